"""Plans: from arguments and a population to the rules of a round and a certificate. No data is read here."""

from sordino.planning.cohort import Cohort as Cohort
from sordino.planning.cohort import parse_cohort as parse_cohort
from sordino.planning.plan import Plan as Plan
from sordino.planning.plan import plan as plan
from sordino.planning.resolved import ResolvedPlan as ResolvedPlan
from sordino.planning.resolved import Rules as Rules
