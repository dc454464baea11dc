"""The leaves of an event, counted: what an accountant composes, with every sampling checked against the relation."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from sordino.errors import Refused
from sordino.privacy import events
from sordino.privacy.gaussian import compose_mu
from sordino.privacy.pure import subsampled_pure_epsilon
from sordino.privacy.sampling import Full, Poisson, Sampling, WithoutReplacement, WithReplacement
from sordino.types import Event, Relation


@dataclass
class Tally:
    """The leaves of an event and how often each occurs."""

    leaves: Counter[Event] = field(default_factory=Counter)
    log_kept: float = 0.0  # log of the probability that no release fails
    excess: float = 0.0  # by which samplers may raise epsilon
    log_drawn: float = 0.0  # log of the probability that no sampler fails
    claims: list[str] = field(default_factory=list)
    parts: dict[str, Event] = field(default_factory=dict)  # what each pass over the data releases

    @property
    def failure(self) -> float:
        """The probability that some release fails."""
        return -math.expm1(self.log_kept)

    @property
    def drawn_failure(self) -> float:
        """The probability that some sampler fails."""
        return -math.expm1(self.log_drawn)

    def add_drawn(self, drawn: events.Drawn, count: int) -> None:
        """Count what `count` draws of a sampler may add."""
        self.excess += count * drawn.excess
        self.log_drawn += count * math.log1p(-drawn.failure) if drawn.failure < 1 else -math.inf


def tally_of(event: Event, relation: Relation) -> Tally:
    """The leaves of an event whose unit and relation have been checked."""
    tally = Tally()
    _flatten(events.unstated(event), 1, relation, tally)  # equal releases count as equal, whoever states what they are
    return tally


def mus(leaves: Counter[Event]) -> list[float]:
    """mu of each kind of Gaussian release."""
    return [
        math.sqrt(count) / leaf.noise_multiplier for leaf, count in leaves.items() if isinstance(leaf, events.Gaussian)
    ]


def pure_bound(leaf: Event) -> float:
    """epsilon of one release at delta = 0."""
    if isinstance(leaf, events.Pure):
        return leaf.epsilon
    if isinstance(leaf, events.FiniteLoss):
        return max(leaf.losses)
    if isinstance(leaf, events.Laplace):
        return 1 / leaf.noise_multiplier
    return leaf.pure_epsilon if isinstance(leaf, events.ZeroConcentrated) else math.inf


def _flatten(event: Event, count: int, relation: Relation, tally: Tally) -> None:
    """Count the leaves of `event`, checking each sampling against the relation."""
    if count == 0:
        return
    match event:
        case events.Repeated(inner, times):
            _flatten(inner, count * times, relation, tally)
        case events.Composed(parts):
            for inner in parts:
                _flatten(inner, count, relation, tally)
        case events.Claimed(claim, inner):
            tally.claims.append(claim)
            _flatten(inner, count, relation, tally)
        case events.Assumed(_, inner):  # `certify` prints the assumption
            _flatten(inner, count, relation, tally)
        case events.Approximate(inner, delta):
            tally.log_kept += count * math.log1p(-delta) if delta < 1 else -math.inf
            _flatten(inner, count, relation, tally)
        case events.Drawn(inner):
            tally.add_drawn(event, count)
            _flatten(inner, count, relation, tally)
        case events.Parallel(branches):
            if len(set(branches)) != 1:
                raise Refused(
                    "different parallel releases inside a composition have no common worst case",
                    "account the worst of them, or put parallel outermost",
                )
            _flatten(branches[0], count, relation, tally)
        case events.Disjoint(inner, of):
            if of not in tally.parts:
                tally.parts[of] = inner
                _flatten(inner, 1, relation, tally)
            elif tally.parts[of] != inner:
                raise Refused(f"the parts of {of} cost different amounts", "account the worst of them for each part")
        case events.Sampled(inner, sampling):
            _flatten_sampled(inner, sampling, count, relation, tally)
        case _:
            tally.leaves[event] += count


def _flatten_sampled(inner: Event, sampling: Sampling, count: int, relation: Relation, tally: Tally) -> None:
    if sampling.sampling_prob == 1 and isinstance(sampling, Full | Poisson):
        return _flatten(inner, count, relation, tally)
    match inner:
        case events.NonPrivate():
            tally.leaves[inner] += count
            return None
        case events.Claimed(claim, event):
            tally.claims.append(claim)
            return _flatten_sampled(event, sampling, count, relation, tally)
        case events.Drawn(event):
            tally.add_drawn(inner, count)
            return _flatten_sampled(event, sampling, count, relation, tally)
        case events.Assumed(_, event):
            return _flatten_sampled(event, sampling, count, relation, tally)
        case events.Composed() | events.Repeated():
            return _flatten_sampled(_joint(inner, relation, tally.claims), sampling, count, relation, tally)
    if isinstance(sampling, WithoutReplacement | WithReplacement) and relation is not Relation.REPLACE_ONE:
        raise Refused(
            f"sampling {sampling} is analysed under replace-one, not {relation}, nor by the Poisson accountant",
            "use relation replace-one, or sampling poisson:Q",
        )
    return _amplify(inner, sampling, count, relation, tally)


def _amplify(inner: Event, sampling: Sampling, count: int, relation: Relation, tally: Tally) -> None:
    """One release about a secret sample, where a theorem covers it."""
    poisson_pair = isinstance(sampling, Poisson) and relation is not Relation.REPLACE_ONE
    if isinstance(inner, events.Gaussian) or (isinstance(inner, events.Laplace) and poisson_pair):
        tally.leaves[events.Sampled(inner, sampling)] += count
        return
    # (epsilon, delta) on a secret sample: log(1 + q (e^epsilon - 1)) and q delta.
    failure = inner.delta if isinstance(inner, events.Approximate) else 0.0
    inner = inner.event if isinstance(inner, events.Approximate) else inner
    if isinstance(inner, events.Pure) and (poisson_pair or isinstance(sampling, WithoutReplacement)):
        q = sampling.sampling_prob
        tally.log_kept += count * math.log1p(-q * failure)
        tally.leaves[events.Pure(subsampled_pure_epsilon(inner.epsilon, q))] += count
        return
    raise Refused(
        f"no amplification theorem here covers a {inner.kind} release with sampling {sampling} under {relation}",
        "account it with sampling full, which always holds",
    )


def _joint(event: Event, relation: Relation, claims: list[str]) -> Event:
    """Several releases about one sample, as one: Gaussians add mu^2, pure releases add epsilon."""
    tally = Tally(claims=claims)
    _flatten(event, 1, relation, tally)
    kinds = {type(leaf) for leaf in tally.leaves}
    joint: Event | None = None
    if kinds == {events.Gaussian} and tally.failure == 0:
        joint = events.Gaussian(1 / compose_mu(mus(tally.leaves)))
    elif kinds <= {events.Pure, events.FiniteLoss, events.Laplace}:
        joint = events.Pure(math.fsum(pure_bound(leaf) * count for leaf, count in tally.leaves.items()))
        joint = events.Approximate(joint, tally.failure) if tally.failure else joint
    if joint is not None:
        drawn = tally.excess > 0 or tally.log_drawn < 0
        return events.Drawn(joint, tally.excess, tally.drawn_failure) if drawn else joint
    names = ", ".join(sorted(leaf.kind for leaf in tally.leaves))
    raise Refused(
        f"no amplification theorem here covers {names} released together from one sample",
        "account them with sampling full, which always holds",
    )
