"""epsilon and delta of an event, by the sharpest accountant that is proven for it.

    only Gaussian releases              the exact Gaussian curve, mu^2 = sum mu_i^2
    only equal pure releases            optimal composition (Kairouz, Oh and Viswanath)
    concentrated ones (with Gaussians)  zCDP
    everything else                     privacy loss distributions, pessimistic on a lattice (dp-accounting)

A sampling is accounted only under the relation that its theorem is about. What no theorem covers is refused, and so is
an event that is stated under another relation, or for several units.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sordino.errors import InvalidInput, Refused, require
from sordino.privacy import events
from sordino.privacy.concentrated import zcdp_delta, zcdp_epsilon
from sordino.privacy.gaussian import compose_mu, gaussian_delta, gaussian_epsilon
from sordino.privacy.numeric import compose_losses, convolutions, forget_losses, loss_range
from sordino.privacy.pure import pure_delta, pure_epsilon, require_releases
from sordino.privacy.stated import stated
from sordino.privacy.tally import mus, pure_bound, tally_of
from sordino.types import Event, Relation

_SMALLEST_PLD_DELTA = 1e-12  # below it the library's truncation of tails could matter
_ROUNDING = 2.0**-48  # of delta, for each of the releases that an FFT composes: against extended precision at most
# a twentieth was seen, for Gaussian, sampled, Laplace and pure losses and up to a million releases


@dataclass(frozen=True)
class Account:
    """An event, accounted: `epsilon(delta)` and `delta(epsilon)` by the accountant of this name."""

    accountant: str
    _epsilon: Callable[[float], float]
    _delta: Callable[[float], float]
    claims: tuple[str, ...] = ()  # published guarantees of parts of the event that are false

    def epsilon(self, delta: float) -> float:
        """The least epsilon that is proven at this delta (infinity if none is)."""
        require(0 <= delta < 1, "delta", delta, "must lie in [0, 1)")
        return self._epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """The least delta that is proven at this epsilon."""
        require(epsilon >= 0, "epsilon", epsilon, "must be a number that is not negative")
        return self._delta(epsilon)


_NOT_PRIVATE = Account("none: at least one release has no noise", lambda _: math.inf, lambda _: 1.0)


def epsilon_of(event: Event, delta: float, relation: Relation | str | None = None) -> float:
    """The least proven epsilon of `event` at `delta`; see `account_of`."""
    return accounted(event, delta, relation)[0]


def accounted(event: Event, delta: float, relation: Relation | str | None = None) -> tuple[float, str]:
    """`epsilon_of`, and the accountant that proves it."""
    return _accounted(event, delta, _relation_of(event, relation))


def delta_of(event: Event, epsilon: float, relation: Relation | str | None = None) -> float:
    """The least proven delta of `event` at `epsilon`; see `account_of`."""
    return account_of(event, relation).delta(epsilon)


def account_of(event: Event, relation: Relation | str | None = None) -> Account:
    """Choose the accountant for `event` under `relation`: by default the one that it states, or else add-remove."""
    return _account_of(event, _relation_of(event, relation))


def _relation_of(event: Event, relation: Relation | str | None) -> Relation:
    """The relation to account under. It is checked before any cache is asked."""
    _, agreed = stated(event, relation=relation)
    return agreed or Relation.ADD_REMOVE


@lru_cache(maxsize=10_000)  # a sweep asks the same again for every point
def _accounted(event: Event, delta: float, relation: Relation) -> tuple[float, str]:
    # Kept are the answers: an account may hold a long lattice, and every number of rounds has one of its own.
    account = _account_of.__wrapped__(event, relation)
    return account.epsilon(delta), account.accountant


def forget_accounts() -> None:
    """Empty the caches, to time an account or to free its memory."""
    _accounted.cache_clear()
    _account_of.cache_clear()
    forget_losses()


@lru_cache(maxsize=16)  # an account may hold a long lattice
def _account_of(event: Event, relation: Relation) -> Account:
    if isinstance(event, events.Parallel):
        return _worst([_account_of(branch, relation) for branch in event.events])
    holders = {(len(part.events), part.sorting) for part in events.parts_of(event) if isinstance(part, events.ByHolder)}
    if holders:
        require(len(holders) == 1, "events", holders, "list the same clients, sorted alike, in every release")
        ((number, _),) = holders
        worst = _worst([_account_of(events.held_by(event, i), relation) for i in range(number)])
        name = worst.accountant.replace("parallel composition", "worst client", 1)
        return dataclasses.replace(worst, accountant=name)
    tally = tally_of(event, relation)
    leaves, claims = tally.leaves, tuple(dict.fromkeys(tally.claims))
    if any(isinstance(leaf, events.NonPrivate) for leaf in leaves):
        return dataclasses.replace(_NOT_PRIVATE, claims=claims)
    account = _account_leaves(leaves, relation)
    if tally.parts:
        account = dataclasses.replace(account, accountant=f"parallel composition, {account.accountant}")
    account = _with_failure(account, tally.failure, claims)
    return _as_drawn(account, tally.excess, tally.drawn_failure)


def _account_leaves(leaves: Counter[Event], relation: Relation) -> Account:
    kinds = {type(leaf) for leaf in leaves}
    if not leaves:
        return Account("nothing released", lambda _: 0.0, lambda _: 0.0)
    if kinds == {events.Gaussian}:
        mu = compose_mu(mus(leaves))
        return Account("exact Gaussian", lambda delta: gaussian_epsilon(mu, delta), lambda e: gaussian_delta(e, mu))
    if kinds == {events.Pure} and len(leaves) == 1:
        ((leaf, count),) = leaves.items()
        epsilon_0 = pure_bound(leaf)
        return Account(
            "optimal pure composition",
            lambda delta: pure_epsilon(epsilon_0, count, delta),
            lambda epsilon: pure_delta(epsilon, epsilon_0, count),
        )
    if events.ZeroConcentrated in kinds:
        return _concentrated(leaves)
    return _loss_account(leaves, relation)


def _concentrated(leaves: Counter[Event]) -> Account:
    """Everything as zCDP: Gaussian mu is mu^2/2, pure epsilon is epsilon^2/2 (Bun and Steinke 2016)."""
    rho, xi = 0.0, 0.0
    pure = math.fsum(count * pure_bound(leaf) for leaf, count in leaves.items())
    for leaf, count in leaves.items():
        if isinstance(leaf, events.ZeroConcentrated):
            rho, xi = rho + count * leaf.rho, xi + count * leaf.xi
        elif isinstance(leaf, events.Gaussian):
            rho += count / leaf.noise_multiplier**2 / 2
        elif isinstance(leaf, events.Pure | events.FiniteLoss | events.Laplace):
            bound = pure_bound(leaf)  # bound * bound may be infinite; bound ** 2 would raise
            rho += count * bound * bound / 2
        else:
            raise Refused(
                f"no accountant composes a {leaf.kind} release with a concentrated one",
                "account them separately and add epsilons and deltas",
            )
    return Account(
        "zCDP",
        lambda delta: pure if delta == 0 else min(pure, xi + zcdp_epsilon(rho, delta)),
        lambda epsilon: 0.0 if epsilon >= pure else zcdp_delta(epsilon - xi, rho),
    )


def _loss_account(leaves: Counter[Event], relation: Relation) -> Account:
    require_releases(max(leaves.values()))
    if not math.isfinite(sum(loss_range(leaf) * count for leaf, count in leaves.items())):
        return _NOT_PRIVATE
    from sordino.privacy.repeated import least_epsilon

    loss = compose_losses(leaves, relation)
    rounding = _ROUNDING * sum(count * convolutions(leaf) for leaf, count in leaves.items())
    least = max(_SMALLEST_PLD_DELTA, 2 * rounding)
    pure = math.fsum(pure_bound(leaf) * count for leaf, count in leaves.items())

    def epsilon(delta: float) -> float:
        if delta >= least:
            return min(pure, least_epsilon(loss, delta - rounding))
        if math.isfinite(pure):
            return pure
        raise InvalidInput("delta", delta, f"the numeric accountant is exact to {least:g}: ask for a larger delta")

    def delta(epsilon: float) -> float:
        if epsilon >= pure:
            return 0.0
        return float(np.clip(loss.get_delta_for_epsilon(epsilon) + rounding, 0.0, 1.0))

    return Account("privacy loss distribution", epsilon, delta)


def _with_failure(account: Account, failure: float, claims: tuple[str, ...]) -> Account:
    """Take the probability that some release fails out of delta."""
    if failure == 0 and not claims:
        return account
    return Account(
        account.accountant,
        lambda delta: account.epsilon(delta - failure) if delta >= failure and failure < 1 else math.inf,
        lambda epsilon: min(1.0, failure + account.delta(epsilon)),
        claims,
    )


def _as_drawn(account: Account, excess: float, failure: float) -> Account:
    """The account of releases whose samplers add `excess` to epsilon, and to delta a factor e^excess and `failure`."""
    if excess == 0 and failure == 0:
        return account

    def epsilon(delta: float) -> float:
        if delta < failure or failure >= 1:
            return math.inf
        return account.epsilon((delta - failure) * math.exp(-excess)) + excess

    def delta(epsilon: float) -> float:
        below = max(0.0, excess - epsilon)  # delta at -x is at most that at 0 plus 1 - e^-x
        return min(1.0, failure + math.exp(excess) * (account.delta(max(0.0, epsilon - excess)) + below))

    return dataclasses.replace(account, _epsilon=epsilon, _delta=delta)


def _worst(branches: list[Account]) -> Account:
    """Parallel composition: a unit meets one branch only."""
    return Account(
        "parallel composition, " + ", ".join(dict.fromkeys(branch.accountant for branch in branches)),
        lambda delta: max(branch.epsilon(delta) for branch in branches),
        lambda epsilon: max(branch.delta(epsilon) for branch in branches),
        tuple(dict.fromkeys(claim for branch in branches for claim in branch.claims)),
    )
