"""Plans: from arguments and a population to the rules of a round and a certificate. No data is read here."""

from sordino.planning.cohort import Cohort, parse_cohort
from sordino.planning.plan import Plan, plan
from sordino.planning.resolved import ResolvedPlan, Rules

__all__ = ["Cohort", "Plan", "ResolvedPlan", "Rules", "parse_cohort", "plan"]
