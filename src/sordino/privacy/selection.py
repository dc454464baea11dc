"""What choosing the best of many private runs costs (Papernot and Steinke 2022, "Hyperparameter tuning with Renyi DP").

Run the private training a random number of times, each with a point of the grid drawn uniformly, and give out only the
best. If the number of runs is geometric, the Renyi divergence of the result is at most that of one run plus terms that
grow with the logarithm of the mean number, not with the number (their Theorem 2 with eta = 1, gamma = 1 / trials):

    eps'(a) = eps(a) + 2 (1 - 1/b) eps(b) + 2 log(trials) / b + log(trials) / (a - 1)        for every order b

A run whose values are drawn at random is a mixture: its divergence is at most the largest of any of them, order by
order. Scores must not cost privacy of their own: they are computed from the models and from public data. Whoever sees
the runs themselves, as a server does, gains nothing from this.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from sordino.errors import Refused, require
from sordino.privacy.events import Composed, Gaussian, Repeated, Sampled, as_ideal
from sordino.privacy.sampling import Full, Poisson
from sordino.privacy.stated import require_stated
from sordino.privacy.tally import tally_of
from sordino.types import Event, Relation

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent


def selection_epsilon(*events: Event, trials: float, delta: float, relation: Relation) -> float:
    """epsilon of the best of a geometric number of runs with mean `trials`, each of which costs one of `events`.

    Known for Gaussian releases, all of them or Poisson-sampled under add-remove; refused for others.
    """
    require(trials > 1, "trials", trials, "the mean number of runs must be above 1")
    require(0 < delta < 1, "delta", delta, "must lie in (0, 1)")
    require_stated(Composed(events), None, relation)
    from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant, compute_epsilon

    accountants = [RdpAccountant().compose(_as_dp_event(as_ideal(event), relation)) for event in events]
    a, eps = accountants[0].orders, np.max([accountant.rdp for accountant in accountants], axis=0)
    at_b = np.min(2 * (1 - 1 / a) * eps + 2 * math.log(trials) / a)
    # More than 100 times the mean number of runs has probability e^-100. What samplers add counts for all of them.
    drawn, runs = [tally_of(event, relation) for event in events], 100 * trials
    excess = runs * max(each.excess for each in drawn)
    failure = math.exp(-100) + runs * max(each.drawn_failure for each in drawn)
    renyi = eps + at_b + math.log(trials) / (a - 1)
    # The runs behind the chosen model are not shown: a failure with the other data set costs e^epsilon times as much.
    most = 1 + excess + float(compute_epsilon(a, renyi, delta)[0])
    left = (delta - (1 + math.exp(min(most, 700))) * failure) * math.exp(-excess)
    chosen = excess + float(compute_epsilon(a, renyi, left)[0]) if left > 0 else math.inf
    if chosen > most:
        raise Refused("epsilon is so large that the failures of samplers count", "take more noise")
    return chosen


def _as_dp_event(event: Event, relation: Relation) -> DpEvent:
    """Our event in the words of dp-accounting, whose noise multiplier is ours: both are over the sensitivity."""
    from dp_accounting.dp_event import ComposedDpEvent, GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent

    match event:
        case Gaussian(noise_multiplier):
            return GaussianDpEvent(noise_multiplier)
        case Repeated(inner, count):
            return SelfComposedDpEvent(_as_dp_event(inner, relation), count)
        case Composed(parts):
            return ComposedDpEvent([_as_dp_event(part, relation) for part in parts])
        case Sampled(inner, Full()):
            return _as_dp_event(inner, relation)
        case Sampled(Gaussian() as inner, Poisson(q)) if relation is Relation.ADD_REMOVE:
            return PoissonSampledDpEvent(q, _as_dp_event(inner, relation))
    raise Refused(
        "the cost of private selection is known here for Gaussian noise, on everybody or Poisson-sampled (add-remove)",
        "count every run of the sweep instead",
    )
