"""Every guarantee, warning and assumption of Sordino as a sentence; no other module writes them.

`figures` rounds, `caveats` holds assumptions and warnings, `calculations` those of the calculator, `plain` says who
could learn what, `guarantees` prints certificates and costs, `picture` labels the cells of a report's picture,
`disagreements` says where certificate and ledger differ.
"""

from sordino.privacy.wording.calculations import *  # noqa: F403
from sordino.privacy.wording.caveats import *  # noqa: F403
from sordino.privacy.wording.disagreements import *  # noqa: F403
from sordino.privacy.wording.figures import *  # noqa: F403
from sordino.privacy.wording.guarantees import *  # noqa: F403
from sordino.privacy.wording.picture import *  # noqa: F403
from sordino.privacy.wording.plain import *  # noqa: F403
