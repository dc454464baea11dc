"""The public names: `lazy_loader` reads them from here at run time, type checkers read their types."""

from .algorithms.error_feedback import dp_sgd as dp_sgd
from .algorithms.error_feedback import error_feedback as error_feedback
from .algorithms.fedavg import fedavg as fedavg
from .algorithms.fedexp import fedexp as fedexp
from .algorithms.minibatch import accelerated_mb_sgd as accelerated_mb_sgd
from .algorithms.minibatch import noisy_mb_sgd as noisy_mb_sgd
from .algorithms.scaffold import scaffold as scaffold
from .bounding import adaptive_clip as adaptive_clip
from .bounding import clip as clip
from .bounding import normalize as normalize
from .bounding import smoothed_normalize as smoothed_normalize
from .mechanisms import binomial as binomial
from .mechanisms import discrete_gaussian as discrete_gaussian
from .mechanisms import gaussian as gaussian
from .mechanisms import laplace as laplace
from .mechanisms import none as none
from .mechanisms import privunit as privunit
from .mechanisms import qtdl as qtdl
from .mechanisms import scalar_dp as scalar_dp
from .privacy import Budget as Budget
from .privacy import Certificate as Certificate
from .privacy import Full as Full
from .privacy import Guarantee as Guarantee
from .privacy import Ledger as Ledger
from .privacy import Poisson as Poisson
from .privacy import WithoutReplacement as WithoutReplacement
from .privacy import WithReplacement as WithReplacement
from .privacy import calibrate as calibrate
from .privacy import calibrate_gaussian as calibrate_gaussian
from .privacy import certify as certify
from .privacy import delta_of as delta_of
from .privacy import epsilon_of as epsilon_of
from .privacy import events as events
from .privacy import read_ledger as read_ledger
from .simulation import load_model as load_model
from .simulation import plan as plan
from .simulation import simulate as simulate
from .simulation import task as task
from .types import Algorithm as Algorithm
from .types import Bounder as Bounder
from .types import Mechanism as Mechanism
from .types import Observer as Observer
from .types import Relation as Relation
from .types import Unit as Unit

__version__: str
