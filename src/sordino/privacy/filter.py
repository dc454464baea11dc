"""A budget that holds also where each release is chosen after the earlier ones were seen: a privacy filter.

Accountants compose releases whose costs are fixed in advance. Where the cost of the next release depends on what was
released before, as across studies whose server chooses its next request by what it has seen, adding up is a theorem for
a few measures only. A filter adds one of them up, and refuses the first release that would exceed the budget:

    measure         cost of a release            the whole, while the sum is at most B    proof
    gaussian        mu^2                         sqrt(B)-Gaussian DP                      Smith and Thakurta 2022
    concentrated    rho of zCDP                  B-zCDP                                   Feldman and Zrnic 2021
    renyi           divergence of one order a    that divergence is at most B             Feldman and Zrnic 2021
    pure            epsilon                      B-DP                                     Rogers et al. 2016

For a general composition of privacy loss distributions no such theorem is known: it is refused. docs/guarantees.md has
the argument.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sordino.errors import BudgetExceeded, Refused, require
from sordino.privacy.budget import Budget
from sordino.privacy.concentrated import zcdp_rho
from sordino.privacy.events import FiniteLoss, Gaussian, Laplace, Pure, Sampled, ZeroConcentrated
from sordino.privacy.gaussian import gaussian_mu
from sordino.privacy.sampling import Poisson, WithoutReplacement
from sordino.privacy.stated import require_stated
from sordino.privacy.tally import pure_bound, tally_of
from sordino.types import Event, Relation
from sordino.words import Measure

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent

RESERVE = 1e-6  # share of epsilon and delta for what samplers add
_PURE = (Pure, FiniteLoss, Laplace)


class Spent(NamedTuple):
    """What has been released so far, in the filter's measure, and what samplers have added."""

    cost: float = 0.0
    excess: float = 0.0
    failure: float = 0.0
    failures: float = 0.0  # of releases that may fail


@dataclass(frozen=True)
class Filter:
    """(epsilon, delta) over releases that are chosen adaptively, by one measure that is fixed at the start.

    Args:
      budget: for one unit under one relation.
      measure: how releases are added up; renyi takes records that are sampled in secret too.
      order: of renyi.
      failures: the part of delta that is set aside for releases which fail with a probability of their own, as those
        of the Binomial mechanism. Their probabilities are added up beside the costs: Whitehouse et al. 2023.
    """

    budget: Budget
    measure: Measure
    order: float | None = None
    failures: float = 0.0

    def __post_init__(self) -> None:
        renyi = self.measure is Measure.RENYI
        good = self.order is not None and 1 < self.order < math.inf if renyi else self.order is None
        require(good, "order", self.order, "give a finite order above 1 with renyi, and none with other measures")
        remedy = "needs a delta above 0; with delta = 0 use the measure pure"
        require(self.measure is Measure.PURE or self.budget.delta > 0, "delta", self.budget.delta, remedy)
        remedy = "must lie between 0 and half of delta"
        require(0 <= self.failures <= self.budget.delta / 2, "failures", self.failures, remedy)
        remedy = f"epsilon is too small for order {self.order} at this delta: take a larger order or budget"
        require(self.capacity > 0, "epsilon", self.budget.epsilon, remedy)

    @property
    def capacity(self) -> float:
        """B: what all releases together may cost."""
        epsilon, delta = (1 - RESERVE) * self.budget.epsilon, (1 - RESERVE) * self.budget.delta - self.failures
        if self.measure is Measure.GAUSSIAN:
            return gaussian_mu(epsilon, delta) ** 2
        if self.measure is Measure.CONCENTRATED:
            return zcdp_rho(epsilon, delta)
        if self.order is not None:  # Canonne, Kamath and Steinke 2020, Proposition 12
            return epsilon - math.log1p(-1 / self.order) + (math.log(delta) + math.log(self.order)) / (self.order - 1)
        return epsilon

    def cost(self, event: Event) -> Spent:
        """What one release costs; refused where its measure is not known."""
        require_stated(event, self.budget.unit, self.budget.relation)
        tally = tally_of(event, self.budget.relation)
        if tally.claims:
            raise Refused("a filter adds up no false claims", "use other noise")
        if tally.failure > self.failures:
            raise Refused(
                f"a release that fails with probability {tally.failure:.3g} needs a part of delta for failures",
                "set one aside, or use other noise",
            )
        each = (count * self._of(leaf, self.budget.relation) for leaf, count in tally.leaves.items())
        return Spent(math.fsum(each), tally.excess, tally.drawn_failure, tally.failure)

    def require(self, spent: Spent, event: Event) -> Spent:
        """What will have been spent after one more release, or raise before it is made."""
        after = Spent(*(before + more for before, more in zip(spent, self.cost(event), strict=True)))
        room = self.capacity - spent.cost
        if not after.cost <= self.capacity:
            raise BudgetExceeded(
                f"the next release costs {after.cost - spent.cost:.6g} ({self.measure}), and {max(room, 0.0):.6g} of "
                f"{self.capacity:.6g} is left within epsilon = {self.budget.epsilon:g}, delta = {self.budget.delta:g} "
                f"(one {self.budget.unit}, {self.budget.relation}): refuse it, or agree on a larger budget"
            )
        if after.failures > self.failures:
            raise BudgetExceeded(
                f"releases would fail with probability {after.failures:.3g}, and {self.failures:.3g} of delta is set "
                "aside for that: refuse it, or agree on a larger budget"
            )
        reserved = after.excess <= RESERVE * self.budget.epsilon and after.failure <= RESERVE * self.budget.delta
        if not reserved and (after.excess > 0 or after.failure > 0):
            raise BudgetExceeded("what samplers add exceeds its reserve: refuse the release, or take more noise")
        return after

    def _of(self, leaf: Event, relation: Relation) -> float:
        """The measure of one release."""
        match self.measure, leaf:
            case Measure.GAUSSIAN, Gaussian(z):
                return z**-2
            case Measure.CONCENTRATED, Gaussian(z):
                return z**-2 / 2
            case Measure.CONCENTRATED, ZeroConcentrated(rho, xi) if xi == 0:
                return rho
            case Measure.CONCENTRATED, _ if isinstance(leaf, _PURE):
                return pure_bound(leaf) ** 2 / 2
            case Measure.PURE, _ if math.isfinite(pure_bound(leaf)):
                return pure_bound(leaf)
        if self.order is not None:
            return _renyi(leaf, self.order, relation)
        raise Refused(
            f"the measure {self.measure} of a {leaf.kind} release is not known",
            "use the measure that fits the noise: gaussian, concentrated, renyi (for sampled records) or pure",
        )


def _renyi(leaf: Event, order: float, relation: Relation) -> float:
    """The Renyi divergence of this order, of the worse of both directions."""
    from dp_accounting.dp_event import GaussianDpEvent, PoissonSampledDpEvent, SampledWithoutReplacementDpEvent

    match leaf:
        case Gaussian(z):
            return order * z**-2 / 2
        case ZeroConcentrated(rho, xi):
            return xi + order * rho
        case Sampled(Gaussian(z), Poisson(q)) if relation is not Relation.REPLACE_ONE:
            return _of_library(PoissonSampledDpEvent(q, GaussianDpEvent(z)), order, relation)
        case Sampled(Gaussian(z), WithoutReplacement(K, n)) if relation is Relation.REPLACE_ONE:
            return _of_library(SampledWithoutReplacementDpEvent(n, K, GaussianDpEvent(z)), order, relation)
    if isinstance(leaf, _PURE):
        return min(pure_bound(leaf), order * pure_bound(leaf) ** 2 / 2)
    raise Refused(
        f"the Renyi divergence of a {leaf.kind} release is not known here", "account it in a study of its own"
    )


def _of_library(sampled: DpEvent, order: float, relation: Relation) -> float:
    """Of Gaussian noise on a secret sample, by dp-accounting, whose noise multiplier is ours: over the sensitivity."""
    from dp_accounting.privacy_accountant import NeighboringRelation
    from dp_accounting.rdp.rdp_privacy_accountant import RdpAccountant

    replaced = relation is Relation.REPLACE_ONE
    neighbours = NeighboringRelation.REPLACE_ONE if replaced else NeighboringRelation.ADD_OR_REMOVE_ONE
    return float(RdpAccountant([order], neighbours).compose(sampled).rdp[0])
