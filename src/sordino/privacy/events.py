"""What one release does to one unit's privacy, as a record that any accountant can read.

An event is always about one unit *under the relation of its guarantee*: a noise multiplier is the noise std over the
sensitivity under that relation (bound for add/remove and zero-out, 2 x bound for replace-one). Events of mechanisms
state both words, and are accounted under no others. An event that states none takes those of whoever accounts it.
Events nest like expressions, `Repeated(Sampled(Gaussian(2.7), Poisson(0.2)), 200)`, and travel through the ledger as
JSON.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sordino.errors import LedgerError, require
from sordino.privacy.sampling import Full, Poisson, Sampling, parse_sampling
from sordino.types import Event, Relation, Unit


@dataclass(frozen=True)
class Gaussian(Event, kind="gaussian"):
    """N(0, s^2 I) added to a vector of L2 sensitivity S; noise_multiplier = s / S."""

    noise_multiplier: float

    def __post_init__(self) -> None:
        _require_noise(self.noise_multiplier)


@dataclass(frozen=True)
class Laplace(Event, kind="laplace"):
    """Laplace noise of scale b on every coordinate of a vector of L1 sensitivity S; noise_multiplier = b / S.

    Pure DP with epsilon = 1 / noise_multiplier, the loss of one coordinate that moves by all of S.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        _require_noise(self.noise_multiplier)


@dataclass(frozen=True)
class Pure(Event, kind="pure"):
    """Any epsilon-DP release."""

    epsilon: float

    def __post_init__(self) -> None:
        require(self.epsilon >= 0, "epsilon", self.epsilon, "must not be negative")


@dataclass(frozen=True)
class ZeroConcentrated(Event, kind="zero-concentrated"):
    """Any (xi, rho)-zCDP release: Renyi divergence of every order a at most xi + a rho (Bun and Steinke 2016).

    `pure_epsilon` bounds the loss outright, where it is bounded.
    """

    rho: float
    xi: float = 0.0
    pure_epsilon: float = math.inf

    def __post_init__(self) -> None:
        require(self.rho >= 0, "rho", self.rho, "must not be negative")
        require(self.xi >= 0, "xi", self.xi, "must not be negative")
        impossible = self.pure_epsilon == 0 and self.rho > 0
        require(self.pure_epsilon >= 0 and not impossible, "pure_epsilon", self.pure_epsilon, "must be positive")


@dataclass(frozen=True)
class FiniteLoss(Event, kind="finite-loss"):
    """A release whose worst pair of neighbours has a privacy loss with finitely many values.

    `losses[i] = log(P/Q)` occurs with `probabilities[i]` under P; the pair must be symmetric (P and Q exchange).
    """

    losses: tuple[float, ...]
    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        total = math.fsum(self.probabilities)
        same = len(self.losses) == len(self.probabilities) > 0
        require(same, "probabilities", self.probabilities, f"give one for each of the {len(self.losses)} losses")
        require(all(math.isfinite(loss) for loss in self.losses), "losses", self.losses, "must be finite")
        require(min(self.probabilities) >= 0, "probabilities", self.probabilities, "must not be negative")
        require(abs(total - 1) < 1e-9, "probabilities", total, "must sum to 1")
        mass: dict[float, float] = {}
        for loss, p in zip(self.losses, self.probabilities, strict=True):
            mass[loss] = mass.get(loss, 0.0) + p
        symmetric = all(abs(mass.get(-loss, 0.0) - p * math.exp(-loss)) < 1e-9 for loss, p in mass.items() if loss >= 0)
        covered = all(-loss in mass for loss in mass if loss < 0)
        require(symmetric and covered, "losses", self.losses, "the pair must be symmetric: p(-loss) = p(loss) e^-loss")


@dataclass(frozen=True)
class DiscreteNoise(Event, kind="discrete-noise"):
    """Integer noise of a named law on every coordinate, for a known integer shift between neighbours.

    `shifts` lists (k, how many coordinates move by k). Laws and their parameters: tdl (m, alpha),
    discrete-laplace (alpha), discrete-gaussian (noise std), binomial (N, even). It speaks of that shift only, so it
    can be accounted but not certified.
    """

    law: str
    parameters: tuple[float, ...]
    shifts: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        right = all(k >= 1 and count >= 1 for k, count in self.shifts)
        require(right, "shifts", self.shifts, "give (distance, coordinates) pairs of whole numbers, both at least 1")
        odd = self.law == "binomial" and self.parameters[0] % 2 == 1
        require(not odd, "coins", self.parameters, "must be even, so that N/2 is whole")


@dataclass(frozen=True)
class Approximate(Event, kind="approximate"):
    """A release that behaves like `event` except with probability `delta`."""

    event: Event
    delta: float

    def __post_init__(self) -> None:
        require(0 <= self.delta <= 1, "delta", self.delta, "must lie in [0, 1]")


@dataclass(frozen=True)
class Drawn(Event, kind="drawn"):
    """`event` as a sampler draws it, whose law is not quite the event's.

    Except with a probability of at most `failure`, whatever the data, every outcome has the probability that `event`
    gives it up to a factor of e^+-(excess / 2): epsilon grows by `excess`, delta by the factor e^excess and by
    `failure`. A secret sample of the units amplifies neither.
    """

    event: Event
    excess: float
    failure: float

    def __post_init__(self) -> None:
        require(self.excess >= 0, "excess", self.excess, "must not be negative")
        require(0 <= self.failure <= 1, "failure", self.failure, "must lie in [0, 1]")


@dataclass(frozen=True)
class Claimed(Event, kind="claimed"):
    """A calibration whose published guarantee is false, beside what it honestly gives.

    `claim` is the sentence that every certificate of it carries: what is claimed, that it is false, what is true.
    """

    claim: str
    event: Event


@dataclass(frozen=True)
class Assumed(Event, kind="assumed"):
    """A release whose sensitivity, of `unit`, is assumed and enforced by nothing; every certificate of it says so."""

    assumption: str
    event: Event


@dataclass(frozen=True)
class NonPrivate(Event, kind="non-private"):
    """A release without protection: epsilon is infinite, and printed so."""

    reason: str = "no noise is added"


@dataclass(frozen=True)
class Sampled(Event, kind="sampled"):
    """`event` run on a secret sample of the units.

    Samples of different `Sampled` events are drawn independently. Several releases about one sample are one event,
    `Sampled(Composed(...), sampling)`.
    """

    event: Event
    sampling: Sampling


@dataclass(frozen=True)
class Repeated(Event, kind="repeated"):
    """`event` run `count` times, each perhaps chosen after seeing the earlier results."""

    event: Event
    count: int

    def __post_init__(self) -> None:
        whole = 0 <= self.count <= 1e18 and float(self.count).is_integer()
        require(whole, "rounds", self.count, "must be a whole number, at least 0")
        object.__setattr__(self, "count", int(self.count))


@dataclass(frozen=True)
class Composed(Event, kind="composed"):
    """Several releases about the same units."""

    events: tuple[Event, ...]


@dataclass(frozen=True)
class Parallel(Event, kind="parallel"):
    """Several releases on disjoint data: a unit is in at most one of them, fixed before any is made.

    Parallel composition holds for one-pass methods, in which each record is used at most once over all rounds.
    """

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        require(len(self.events) > 0, "events", self.events, "give at least one")


UNTOLD = ", untold "  # in a sorting: the partition is known only within the task or run that follows


@dataclass(frozen=True)
class ByHolder(Event, kind="by-holder"):
    """A release that costs the records of each client what that client's event says, the clients always in one order.

    A record never changes clients, so each round charges it the same event. Where clients of one kind share an event,
    `sorting` names the partition of the records and the kind of each client: releases that differ in it cannot be
    composed event by event. After `UNTOLD` it names the task, or the run (`of_run`), beyond which records may have
    changed clients. If `sorting` is empty, the caller must ensure that all releases have the same holders.
    """

    events: tuple[Event, ...]
    sorting: str = ""

    def __post_init__(self) -> None:
        require(isinstance(self.sorting, str), "sorting", self.sorting, "must be a name")
        require(len(self.events) > 0, "events", self.events, "give at least one")


@dataclass(frozen=True)
class Disjoint(Event, kind="disjoint"):
    """`event` on a part of the data: of all releases with the same `of`, a unit is in at most one.

    Two passes over the same data are two names: `passing_anew` gives one to a run that is composed with another.
    Which one does not depend on the data. So the parts compose in parallel, however many rounds a ledger lists them in.
    """

    event: Event
    of: str


_KINDS = {cls.kind: cls for cls in Event.__subclasses__()}


def sampled(event: Event, sampling: Sampling) -> Event:
    """`event` on a sample; nothing is gained where everybody takes part or nothing is private."""
    return event if isinstance(sampling, Full) or isinstance(event, NonPrivate) else Sampled(event, sampling)


def as_ideal(event: Event) -> Event:
    """The event with every part as its sampler is meant to draw it."""
    return _mapped(event, lambda part: _with_words_of(part, part.event) if isinstance(part, Drawn) else part)


def parts_of(event: Event) -> Iterator[Event]:
    """The event and everything nested in it that happens at all."""
    if isinstance(event, Repeated) and event.count == 0:
        return
    yield event
    for value in vars(event).values():
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Event):
                yield from parts_of(part)


def unstated(event: Event) -> Event:
    """The event without unit and relation, for an accountant that has checked them: equal releases are then equal."""
    if all(part.unit is None and part.relation is None for part in parts_of(event)):
        return event
    return _mapped(event, lambda part: dataclasses.replace(part, unit=None, relation=None))


def passing_anew(event: Event, name: str) -> Event:
    """The event with passes over the data that are not those of other events."""

    def rename(event: Event) -> Event:
        return dataclasses.replace(event, of=f"{event.of}, {name}") if isinstance(event, Disjoint) else event

    return _mapped(event, rename)


def of_run(event: Event, name: str) -> Event:
    """The event as one of a run of its own: it passes over the data anew, and records may have changed hands."""

    def rename(event: Event) -> Event:
        if isinstance(event, ByHolder) and UNTOLD in event.sorting:
            return dataclasses.replace(event, sorting=event.sorting.partition(UNTOLD)[0] + UNTOLD + name)
        return event

    return _mapped(passing_anew(event, name), rename)


def held_by(event: Event, i: int) -> Event:
    """The event as it concerns the records of client i."""
    return _mapped(event, lambda part: _with_words_of(part, part.events[i]) if isinstance(part, ByHolder) else part)


def _with_words_of(outer: Event, inner: Event) -> Event:
    """`inner` alone, stated for the unit and relation of the event that held it, where it states none."""
    return dataclasses.replace(inner, unit=inner.unit or outer.unit, relation=inner.relation or outer.relation)


def _mapped(event: Event, change: Callable[[Event], Event]) -> Event:
    """The event changed, and then every event inside the result."""

    def inside(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(inside, value))
        return _mapped(value, change) if isinstance(value, Event) else value

    changed = change(event)
    return dataclasses.replace(changed, **{key: inside(value) for key, value in vars(changed).items()})


def event_to_json(event: Event) -> dict[str, Any]:
    """The event as plain JSON values."""

    def plain(value: Any) -> Any:
        if isinstance(value, Event):
            return event_to_json(value)
        if isinstance(value, Sampling):
            # repr keeps all digits of q, which str() rounds for people.
            return f"poisson:{value.sampling_prob!r}" if isinstance(value, Poisson) else str(value)
        if isinstance(value, tuple):
            return [plain(item) for item in value]
        if isinstance(value, Unit | Relation):
            return value.value
        return "inf" if value == math.inf else value  # JSON has no word for infinity

    fields = {field.name: plain(getattr(event, field.name)) for field in dataclasses.fields(event)}
    unsaid = [name for name in ("unit", "relation") if fields[name] is None]
    return {"kind": event.kind, **{name: value for name, value in fields.items() if name not in unsaid}}


def event_from_json(data: dict[str, Any]) -> Event:
    """The event that `event_to_json` wrote."""
    if not isinstance(data, dict):
        raise LedgerError(f"event {data!r} is not an object")
    kind = data.get("kind")
    if kind not in _KINDS:
        raise LedgerError(f"event kind {kind!r} is not known to this version; known: {', '.join(sorted(_KINDS))}")

    def rich(name: str, value: Any) -> Any:
        if name == "event":
            return event_from_json(value)
        if name == "events":
            return tuple(event_from_json(item) for item in value)
        if name == "sampling":
            return parse_sampling(str(value))
        if name in ("unit", "relation"):
            return Unit.parse(value) if name == "unit" else Relation.parse(value)
        if isinstance(value, bool):
            raise LedgerError(f"event of kind {kind!r}: {name} = {value} is not a number")
        if isinstance(value, list):
            return tuple(tuple(item) if isinstance(item, list) else item for item in value)
        return math.inf if value == "inf" else value

    try:
        return _KINDS[kind](**{name: rich(name, value) for name, value in data.items() if name != "kind"})
    except TypeError as error:
        raise LedgerError(f"event of kind {kind!r} has the wrong fields: {error}") from error


def _require_noise(noise_multiplier: float) -> None:
    remedy = "must be positive and finite; for a run without noise use the mechanism none"
    require(1e-9 <= noise_multiplier < math.inf, "noise_multiplier", noise_multiplier, remedy)
