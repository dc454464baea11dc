"""epsilon and delta of an event, by the sharpest accountant that is proven for it.

    only Gaussian releases              the exact Gaussian curve, mu^2 = sum mu_i^2
    only equal pure releases            optimal composition (Kairouz, Oh and Viswanath)
    concentrated ones (with Gaussians)  zCDP
    everything else                     privacy loss distributions, pessimistic on a lattice (dp-accounting)

A sampling is accounted only under the relation that its theorem is about. What no theorem covers is refused.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from sordino.errors import InvalidInput, Refused, require
from sordino.privacy.coins import log_binomial_pmf
from sordino.privacy.concentrated import zcdp_delta, zcdp_epsilon
from sordino.privacy.events import (
    Approximate,
    Assumed,
    ByHolder,
    Claimed,
    Composed,
    DiscreteNoise,
    Disjoint,
    Event,
    FiniteLoss,
    Gaussian,
    Laplace,
    NonPrivate,
    Parallel,
    Pure,
    Repeated,
    Sampled,
    ZeroConcentrated,
    parts_of,
)
from sordino.privacy.gaussian import compose_mu, gaussian_delta, gaussian_epsilon
from sordino.privacy.pure import pure_delta, pure_epsilon, require_releases, subsampled_pure_epsilon
from sordino.privacy.sampling import Full, Poisson, WithoutReplacement, WithReplacement
from sordino.types import Relation

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = ["Account", "account_of", "delta_of", "epsilon_of", "forget_accounts"]

_SMALLEST_PLD_DELTA = 1e-12  # below it the library's truncation of tails could matter
_ROUNDING = 2.0**-48  # of delta, for each of the releases that an FFT composes: against extended precision at most
# a twentieth was seen, for Gaussian, sampled, Laplace and pure losses and up to a million releases
_LONGEST_LATTICE = 400_000


@dataclass
class _Tally:
    """The leaves of an event and how often each occurs."""

    leaves: Counter[Event] = field(default_factory=Counter)
    log_kept: float = 0.0  # log of the probability that no release fails
    claims: list[str] = field(default_factory=list)
    parts: dict[str, Event] = field(default_factory=dict)  # what each pass over the data releases

    @property
    def failure(self) -> float:
        return -math.expm1(self.log_kept)


@dataclass(frozen=True)
class Account:
    """An event, accounted: `epsilon(delta)` and `delta(epsilon)` by the accountant of this name."""

    accountant: str
    claims: tuple[str, ...]  # published guarantees of parts of the event that are false
    _epsilon: Callable[[float], float]
    _delta: Callable[[float], float]

    def epsilon(self, delta: float) -> float:
        """The least epsilon that is proven at this delta (infinity if none is)."""
        require(0 <= delta < 1, "delta", delta, "must lie in [0, 1)")
        return self._epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """The least delta that is proven at this epsilon."""
        require(epsilon >= 0, "epsilon", epsilon, "must be a number that is not negative")
        return self._delta(epsilon)


_NOT_PRIVATE = Account("none: a release is not private", (), lambda _: math.inf, lambda _: 1.0)


@lru_cache(maxsize=10_000)  # a sweep asks the same again for every point
def epsilon_of(event: Event, delta: float, relation: Relation | str = Relation.ADD_REMOVE) -> float:
    """The least proven epsilon of `event` at `delta`."""
    return _epsilon_of(event, delta, Relation.parse(relation))


def delta_of(event: Event, epsilon: float, relation: Relation | str = Relation.ADD_REMOVE) -> float:
    """The least proven delta of `event` at `epsilon`."""
    return account_of(event, relation).delta(epsilon)


def account_of(event: Event, relation: Relation | str = Relation.ADD_REMOVE) -> Account:
    """Choose the accountant for `event` under `relation`."""
    return _account_of(event, Relation.parse(relation))


def forget_accounts() -> None:
    """Empty the caches, to time an account or to free its memory."""
    epsilon_of.cache_clear()
    _account_of.cache_clear()
    _epsilon_of.cache_clear()
    _leaf_loss.cache_clear()


@lru_cache(maxsize=4096)  # numbers alone: runs with several seeds ask for the same ones after every round
def _epsilon_of(event: Event, delta: float, relation: Relation) -> float:
    return account_of(event, relation).epsilon(delta)


@lru_cache(maxsize=16)  # an account may hold a long lattice
def _account_of(event: Event, relation: Relation) -> Account:
    if isinstance(event, Parallel):
        return _worst([account_of(branch, relation) for branch in event.events])
    holders = {(len(part.events), part.sorting) for part in parts_of(event) if isinstance(part, ByHolder)}
    if holders:
        require(len(holders) == 1, "events", holders, "list the same clients, sorted alike, in every release")
        ((number, _),) = holders
        worst = _worst([account_of(_held_by(event, i), relation) for i in range(number)])
        return dataclasses.replace(
            worst, accountant=worst.accountant.replace("parallel composition", "worst client", 1)
        )
    tally = _Tally()
    _flatten(event, 1, relation, tally)
    leaves, claims = tally.leaves, tuple(dict.fromkeys(tally.claims))
    if any(isinstance(leaf, NonPrivate) for leaf in leaves):
        return dataclasses.replace(_NOT_PRIVATE, claims=claims)
    account = _account_leaves(leaves, relation)
    if tally.parts:
        account = dataclasses.replace(account, accountant=f"parallel composition, {account.accountant}")
    return _with_failure(account, tally.failure, claims)


def _account_leaves(leaves: Counter[Event], relation: Relation) -> Account:
    kinds = {type(leaf) for leaf in leaves}
    if not leaves:
        return Account("nothing released", (), lambda _: 0.0, lambda _: 0.0)
    if kinds == {Gaussian}:
        mu = compose_mu(_mus(leaves))
        return Account(
            "exact Gaussian",
            (),
            lambda delta: gaussian_epsilon(mu, delta),
            lambda epsilon: gaussian_delta(epsilon, mu),
        )
    if kinds == {Pure} and len(leaves) == 1:
        ((leaf, count),) = leaves.items()
        epsilon_0 = _pure_bound(leaf)
        return Account(
            "optimal pure composition",
            (),
            lambda delta: pure_epsilon(epsilon_0, count, delta),
            lambda epsilon: pure_delta(epsilon, epsilon_0, count),
        )
    if ZeroConcentrated in kinds:
        return _concentrated(leaves)
    return _loss_account(leaves, relation)


def _mus(leaves: Counter[Event]) -> list[float]:
    return [math.sqrt(count) / leaf.noise_multiplier for leaf, count in leaves.items() if isinstance(leaf, Gaussian)]


def _concentrated(leaves: Counter[Event]) -> Account:
    """Everything as zCDP: Gaussian mu is mu^2/2, pure epsilon is epsilon^2/2 (Bun and Steinke 2016)."""
    rho, xi = 0.0, 0.0
    pure = math.fsum(count * _pure_bound(leaf) for leaf, count in leaves.items())
    for leaf, count in leaves.items():
        if isinstance(leaf, ZeroConcentrated):
            rho, xi = rho + count * leaf.rho, xi + count * leaf.xi
        elif isinstance(leaf, Gaussian):
            rho += count / leaf.noise_multiplier**2 / 2
        elif isinstance(leaf, Pure):
            rho += count * leaf.epsilon * leaf.epsilon / 2
        elif isinstance(leaf, FiniteLoss):
            rho += count * max(leaf.losses) ** 2 / 2
        elif isinstance(leaf, Laplace):
            rho += count / leaf.noise_multiplier**2 / 2
        else:
            raise Refused(
                f"no accountant composes a {leaf.kind} release with a concentrated one",
                "account them separately and add epsilons and deltas",
            )
    return Account(
        "zCDP",
        (),
        lambda delta: pure if delta == 0 else min(pure, xi + zcdp_epsilon(rho, delta)),
        lambda epsilon: 0.0 if epsilon >= pure else zcdp_delta(epsilon - xi, rho),
    )


def _loss_account(leaves: Counter[Event], relation: Relation) -> Account:
    require_releases(max(leaves.values()))
    if not math.isfinite(sum(_loss_range(leaf) * count for leaf, count in leaves.items())):
        return _NOT_PRIVATE
    loss = _compose_losses(leaves, relation)
    rounding = _ROUNDING * sum(count * _convolutions(leaf) for leaf, count in leaves.items())
    least = max(_SMALLEST_PLD_DELTA, 2 * rounding)
    pure = math.fsum(_pure_bound(leaf) * count for leaf, count in leaves.items())

    def epsilon(delta: float) -> float:
        if delta >= least:
            return min(pure, float(loss.get_epsilon_for_delta(delta - rounding)))
        if math.isfinite(pure):
            return pure
        raise InvalidInput("delta", delta, f"the numeric accountant is exact to {least:g}: ask for a larger delta")

    def delta(epsilon: float) -> float:
        if epsilon >= pure:
            return 0.0
        return float(np.clip(loss.get_delta_for_epsilon(epsilon) + rounding, 0.0, 1.0))

    return Account("privacy loss distribution", (), epsilon, delta)


def _convolutions(leaf: Event) -> int:
    """How many losses make up one release: a coordinate each for integer noise."""
    return sum(count for _, count in leaf.shifts) if isinstance(leaf, DiscreteNoise) else 1


def _pure_bound(leaf: Event) -> float:
    """epsilon of one release at delta = 0."""
    if isinstance(leaf, Pure):
        return leaf.epsilon
    if isinstance(leaf, FiniteLoss):
        return max(leaf.losses)
    if isinstance(leaf, Laplace):
        return 1 / leaf.noise_multiplier
    return leaf.pure_epsilon if isinstance(leaf, ZeroConcentrated) else math.inf


def _compose_losses(leaves: Counter[Event], relation: Relation) -> PrivacyLossDistribution:
    if len(leaves) == 1 and isinstance(leaf := next(iter(leaves)), DiscreteNoise) and leaf.law in _ALPHA_LAWS:
        # Alone on its own lattice, discrete Laplace noise is accounted without rounding.
        return _repeat(_alpha_lattice_loss(leaf), leaves[leaf])
    from sordino.privacy.loss import STEP

    # A total of thousands needs no ten-thousandths; one of millions gets a lattice that is rough but fits the memory.
    mean, most = (sum(f(leaf) * count for leaf, count in leaves.items()) for f in (_mean_loss, _loss_range))
    total = min(mean + 9 * math.sqrt(2 * mean), most)
    widest = max(_loss_range(leaf) for leaf in leaves)
    step = max(
        STEP, widest / _LONGEST_LATTICE, min(total / _LONGEST_LATTICE, 100 * STEP), total / 10 / _LONGEST_LATTICE
    )
    # Far in a tail the library's bounds overflow to infinity, which it handles.
    with np.errstate(over="ignore", invalid="ignore"):
        try:
            parts = [_repeat(_leaf_loss(leaf, relation, step), count) for leaf, count in leaves.items()]
            return reduce(lambda left, right: left.compose(right), parts)
        except OverflowError:
            noises = [getattr(part, "noise_multiplier", math.inf) for leaf in leaves for part in parts_of(leaf)]
            remedy = "so little noise hides nothing, and its privacy loss leaves what numbers can hold: take more"
            raise InvalidInput("noise_multiplier", min(noises), remedy) from None


def _repeat(loss: PrivacyLossDistribution, count: int) -> PrivacyLossDistribution:
    surely_infinite = loss.get_delta_for_epsilon(math.inf) >= 1  # the library cannot compose it
    return loss if count == 1 or surely_infinite else loss.self_compose(count)


def _loss_range(leaf: Event) -> float:
    from sordino.privacy.loss import gaussian_loss_range, most_draws

    if isinstance(leaf, Sampled) and isinstance(leaf.event, Gaussian) and isinstance(leaf.sampling, WithReplacement):
        return gaussian_loss_range(leaf.event.noise_multiplier / most_draws(leaf.sampling))
    if isinstance(leaf, Sampled):
        return _loss_range(leaf.event)
    if isinstance(leaf, Gaussian):
        return gaussian_loss_range(leaf.noise_multiplier)
    if isinstance(leaf, DiscreteNoise):
        return 0.0
    return _pure_bound(leaf)


def _mean_loss(leaf: Event) -> float:
    """Roughly what one release adds to the privacy loss: nothing but the choice of a lattice rests on it."""
    match leaf:
        case DiscreteNoise():
            return 0.0
        case Gaussian(z):
            return z**-2 / 2
        case Sampled(Gaussian(z), Poisson(draws)):
            pass
        case Sampled(Gaussian(z), WithoutReplacement(K, n) | WithReplacement(K, n)):
            draws = K / n
        case _:
            bound = _loss_range(leaf)
            return bound * math.tanh(bound / 2)
    q, squared = min(draws, 1.0), (max(draws, 1.0) / z) ** 2
    return min(q * squared, q**2 * math.expm1(min(squared, 700.0))) / 2


@lru_cache(maxsize=8)
def _leaf_loss(leaf: Event, relation: Relation, step: float) -> PrivacyLossDistribution:
    """The privacy loss distribution of one release."""
    from sordino.privacy.loss import (
        fixed_size_gaussian_loss,
        gaussian_loss,
        laplace_loss,
        pure_loss,
        rounded_loss,
    )

    match leaf:
        case Gaussian(z):
            return gaussian_loss(z, 1.0, relation, step)
        case Laplace(z):
            return laplace_loss(z, 1.0, step)
        case Pure(epsilon):
            return pure_loss(epsilon, step)
        case FiniteLoss(losses, probabilities):
            return rounded_loss(np.array(losses), np.array(probabilities), 0.0, step)
        case DiscreteNoise():
            return _discrete_loss(leaf, step)
        case Sampled(Gaussian(z), Poisson(q)):
            return gaussian_loss(z, q, relation, step)
        case Sampled(Laplace(z), Poisson(q)):
            return laplace_loss(z, q, step)
        case Sampled(Gaussian(z), WithoutReplacement() | WithReplacement() as sampling):
            return fixed_size_gaussian_loss(z, sampling, step)
    raise Refused(f"no accountant is proven for a {leaf.kind} release here", "see the events in sordino.privacy")


def _flatten(event: Event, count: int, relation: Relation, tally: _Tally) -> None:
    """Count the leaves of `event`, checking each sampling against the relation."""
    if count == 0:
        return
    match event:
        case Repeated(inner, times):
            _flatten(inner, count * times, relation, tally)
        case Composed(events):
            for inner in events:
                _flatten(inner, count, relation, tally)
        case Claimed(claim, inner):
            tally.claims.append(claim)
            _flatten(inner, count, relation, tally)
        case Assumed(_, _, inner):  # `certify` prints the assumption
            _flatten(inner, count, relation, tally)
        case Approximate(inner, delta):
            tally.log_kept += count * math.log1p(-delta) if delta < 1 else -math.inf
            _flatten(inner, count, relation, tally)
        case Parallel(events):
            if len(set(events)) != 1:
                raise Refused(
                    "different parallel releases inside a composition have no common worst case",
                    "account the worst of them, or put parallel outermost",
                )
            _flatten(events[0], count, relation, tally)
        case Disjoint(inner, of):
            if of not in tally.parts:
                tally.parts[of] = inner
                _flatten(inner, 1, relation, tally)
            elif tally.parts[of] != inner:
                raise Refused(f"the parts of {of} cost different amounts", "account the worst of them for each part")
        case Sampled(inner, sampling):
            _flatten_sampled(inner, sampling, count, relation, tally)
        case _:
            tally.leaves[event] += count


def _flatten_sampled(
    inner: Event,
    sampling: Full | Poisson | WithoutReplacement | WithReplacement,
    count: int,
    relation: Relation,
    tally: _Tally,
) -> None:
    if isinstance(sampling, Full) or (isinstance(sampling, Poisson) and sampling.sampling_prob == 1):
        return _flatten(inner, count, relation, tally)
    if isinstance(inner, NonPrivate):
        tally.leaves[inner] += count
        return None
    if isinstance(inner, Claimed):
        tally.claims.append(inner.claim)
    if isinstance(inner, Claimed | Assumed):
        return _flatten_sampled(inner.event, sampling, count, relation, tally)
    if isinstance(inner, Composed | Repeated):
        return _flatten_sampled(_joint(inner, relation, tally.claims), sampling, count, relation, tally)
    fixed_size = isinstance(sampling, WithoutReplacement | WithReplacement)
    if fixed_size and relation is not Relation.REPLACE_ONE:
        raise Refused(
            f"sampling {sampling} is analysed under replace-one, not {relation}, nor by the Poisson accountant",
            "use relation replace-one, or sampling poisson:Q",
        )
    if isinstance(inner, Gaussian):
        tally.leaves[Sampled(inner, sampling)] += count
        return None
    poisson_pair = isinstance(sampling, Poisson) and relation is not Relation.REPLACE_ONE
    if isinstance(inner, Laplace) and poisson_pair:
        tally.leaves[Sampled(inner, sampling)] += count
        return None
    # (epsilon, delta) on a secret sample: log(1 + q (e^epsilon - 1)) and q delta.
    failure = inner.delta if isinstance(inner, Approximate) else 0.0
    inner = inner.event if isinstance(inner, Approximate) else inner
    without_replacement = isinstance(sampling, WithoutReplacement)
    if isinstance(inner, Pure) and (poisson_pair or without_replacement) and not isinstance(sampling, WithReplacement):
        q = sampling.sampling_prob
        tally.log_kept += count * math.log1p(-q * failure)
        tally.leaves[Pure(subsampled_pure_epsilon(inner.epsilon, q))] += count
        return None
    raise Refused(
        f"no amplification theorem here covers a {inner.kind} release with sampling {sampling} under {relation}",
        "account it with sampling full, which always holds",
    )


def _joint(event: Event, relation: Relation, claims: list[str]) -> Event:
    """Several releases about one sample, as one: Gaussians add mu^2, pure releases add epsilon."""
    tally = _Tally(claims=claims)
    _flatten(event, 1, relation, tally)
    kinds = {type(leaf) for leaf in tally.leaves}
    if kinds == {Gaussian} and tally.failure == 0:
        return Gaussian(1 / compose_mu(_mus(tally.leaves)))
    if kinds <= {Pure, FiniteLoss, Laplace}:
        joint = Pure(math.fsum(_pure_bound(leaf) * count for leaf, count in tally.leaves.items()))
        return Approximate(joint, tally.failure) if tally.failure else joint
    names = ", ".join(sorted(leaf.kind for leaf in tally.leaves))
    raise Refused(
        f"no amplification theorem here covers {names} released together from one sample",
        "account them with sampling full, which always holds",
    )


def _with_failure(account: Account, failure: float, claims: tuple[str, ...]) -> Account:
    """Take the probability that some release fails out of delta."""
    if failure == 0 and not claims:
        return account
    return Account(
        account.accountant,
        claims,
        lambda delta: account.epsilon(delta - failure) if delta >= failure and failure < 1 else math.inf,
        lambda epsilon: min(1.0, failure + account.delta(epsilon)),
    )


def _held_by(event: Event, i: int) -> Event:
    """The event as the records of client i meet it."""
    if isinstance(event, ByHolder):
        return event.events[i]

    def inner(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(inner, value))
        return _held_by(value, i) if isinstance(value, Event) else value

    return dataclasses.replace(event, **{name: inner(value) for name, value in vars(event).items()})


def _worst(branches: list[Account]) -> Account:
    """Parallel composition: a unit meets one branch only."""
    return Account(
        "parallel composition, " + ", ".join(dict.fromkeys(branch.accountant for branch in branches)),
        tuple(dict.fromkeys(claim for branch in branches for claim in branch.claims)),
        lambda delta: max(branch.epsilon(delta) for branch in branches),
        lambda epsilon: max(branch.delta(epsilon) for branch in branches),
    )


_ALPHA_LAWS = ("tdl", "discrete-laplace")


def _alpha_lattice_loss(event: DiscreteNoise) -> PrivacyLossDistribution:
    from sordino.privacy.tdl import tdl_loss

    if event.law == "tdl":
        m, alpha = event.parameters
    else:  # untruncated: cut where the tail is far below any delta, and the cut is counted as infinite loss
        (alpha,) = event.parameters
        m = max(k for k, _ in event.shifts) + math.ceil(80 / alpha)
    return tdl_loss(int(m), alpha, event.shifts)


def _discrete_loss(event: DiscreteNoise, step: float) -> PrivacyLossDistribution:
    """Any integer noise, coordinate by coordinate: loss log p(y) - log p(y - k)."""
    from sordino.privacy.loss import rounded_loss

    support, log_p = _log_pmf(event)
    parts = []
    for k, count in event.shifts:
        k = min(k, len(log_p))  # further apart than the table is wide: nothing in common
        here, there = log_p[k:], log_p[: len(log_p) - k]  # p(y) and p(y - k) where both are on the table
        mass = np.exp(here)
        parts.append(rounded_loss(here - there, mass, max(0.0, 1 - float(mass.sum())), step).self_compose(count))
    if not parts or not support.size:
        return rounded_loss(np.zeros(1), np.ones(1), 0.0, step)
    return reduce(lambda left, right: left.compose(right), parts)


def _log_pmf(event: DiscreteNoise) -> tuple[np.ndarray, np.ndarray]:
    match event.law, event.parameters:
        case "tdl", (m, alpha):
            y = np.arange(-int(m), int(m) + 1)
            weight = -alpha * np.abs(y)
        case "discrete-laplace", (alpha,):
            y = np.arange(-math.ceil(80 / alpha), math.ceil(80 / alpha) + 1)
            weight = -alpha * np.abs(y)
        case "discrete-gaussian", (std,):
            y = np.arange(-math.ceil(13 * std), math.ceil(13 * std) + 1)
            weight = -(y**2) / (2 * std**2)
        case "binomial", (coins,):
            log_p = log_binomial_pmf(int(coins))
            return np.arange(len(log_p)), log_p
        case _:
            laws = "tdl (m, alpha), discrete-laplace (alpha), discrete-gaussian (noise_std), binomial (coins)"
            raise InvalidInput("law", event.law, f"use one of {laws}")
    return y, weight - np.logaddexp.reduce(weight)
