"""The least noise that meets (epsilon, delta), always on the private side."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from sordino.errors import InvalidInput, require, require_count
from sordino.privacy.accountants import account_of, epsilon_of
from sordino.privacy.events import Drawn, Gaussian, Repeated, Sampled, sampled
from sordino.privacy.gaussian import gaussian_noise_multiplier, private_side
from sordino.privacy.sampling import Full, Sampling
from sordino.types import Event, Relation

CostOfNoise: TypeAlias = Callable[[float], Event]  # noise multiplier -> the releases of one round

_LARGEST = 1e9
_MOST_EPSILON = 1e6  # numeric accounts of more take minutes, and say nothing that anybody needs


def calibrate(
    event_of: CostOfNoise,
    *,
    epsilon: float,
    delta: float,
    relation: Relation | None = None,
    tolerance: float = 1e-7,
) -> float:
    """The least noise x, up to the relative tolerance, for which `event_of(x)` costs at most epsilon at delta.

    epsilon must fall as x grows. The result is checked with the accountant itself: it never costs more. The relation is
    that of `account_of`.
    """
    require(epsilon > 0, "epsilon", epsilon, "must be positive")
    remedy = f"above {_MOST_EPSILON:g} nobody is protected: ask for less, or give a noise_multiplier"
    require(epsilon <= _MOST_EPSILON, "epsilon", epsilon, remedy)
    require(0 <= delta < 1, "delta", delta, "must lie in [0, 1)")

    def slack(log_noise: float) -> float:
        try:
            spent = account_of(event_of(math.exp(log_noise)), relation).epsilon(delta)
        except InvalidInput as error:
            if error.field != "noise_multiplier":
                raise
            remedy = f"at delta = {delta:g} it allows less noise than can be accounted: ask for less of either"
            raise InvalidInput("epsilon", epsilon, remedy) from error
        return epsilon - min(spent, 2 * epsilon)

    low = high = 0.0
    while slack(high) < 0:
        low, high = high, high + 1.0
        if high > math.log(_LARGEST):
            remedy = f"no noise multiplier below {_LARGEST:g} reaches it at delta = {delta:g}"
            raise InvalidInput("epsilon", epsilon, remedy)
    while low == high or slack(low) >= 0:
        if low < -math.log(_LARGEST):
            return math.exp(low)
        low, high = low - 1.0, min(high, low)
    return math.exp(private_side(slack, low, high, tolerance))


@functools.lru_cache(maxsize=1000)  # a sweep asks the same again for every point
def calibrate_gaussian(
    *,
    epsilon: float,
    delta: float,
    rounds: int,
    sampling: Sampling | None = None,
    relation: Relation = Relation.ADD_REMOVE,
) -> float:
    """The least noise multiplier of Gaussian noise for `rounds` rounds with this sampling."""
    require_count(rounds, "rounds")
    if sampling is None or isinstance(sampling, Full):
        return math.sqrt(rounds) * gaussian_noise_multiplier(epsilon, delta) * (1 + 4e-16)
    return calibrate(
        lambda z: Repeated(Sampled(Gaussian(z), sampling), rounds), epsilon=epsilon, delta=delta, relation=relation
    )


@dataclass(frozen=True)
class Target:
    """(epsilon, delta) over all rounds, in each of which units are sampled in secret."""

    epsilon: float
    delta: float
    rounds: int
    sampling: Sampling
    relation: Relation

    def epsilon_of(self, round_cost: Event) -> float:
        """What rounds of this cost come to at the target's delta."""
        return epsilon_of(Repeated(sampled(round_cost, self.sampling), self.rounds), self.delta, self.relation)

    def least(self, cost: CostOfNoise) -> float:
        """The least noise multiplier whose cost, in every round, meets the target."""
        one = cost(1.0)
        if isinstance(one, Gaussian):  # a multiplier is then the Gaussian's own
            return calibrate_gaussian(**vars(self))

        def total(z: float) -> Event:
            return Repeated(sampled(cost(z), self.sampling), self.rounds)

        if isinstance(one, Drawn) and isinstance(one.event, Gaussian):
            # What a sampler adds is next to nothing, unless there is next to no noise. The accountant's last digits
            # go up and down with z, and a search from anew may ask for more noise than there is.
            least = calibrate_gaussian(**vars(self))
            for more in (1e-12, 1e-9, 1e-6):
                if self.epsilon_of(cost(least * (1 + more))) <= self.epsilon:
                    return least * (1 + more)
        return calibrate(total, epsilon=self.epsilon, delta=self.delta, relation=self.relation)
