"""A guarantee names its unit, relation, observer, scope, accountant and assumptions; a certificate lists them all."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from typing import Any, Literal

from sordino.errors import InvalidInput, Refused, require, require_name
from sordino.types import Observer, Relation, Unit

__all__ = [
    "OTHERS_ADD_NOISE",
    "OTHERS_LOOK_AWAY",
    "Certificate",
    "Guarantee",
    "Scope",
    "Warning",
    "format_delta",
    "format_epsilon",
]

Scope = Literal["one round", "all rounds"]
OTHERS_ADD_NOISE = "every other client adds its noise and keeps it secret"
OTHERS_LOOK_AWAY = f"{OTHERS_ADD_NOISE}, and is not the model user itself"  # who knows its own, and can take it off
_MOST_CLIENTS = 20  # whose own guarantees are printed; JSON holds all


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta) of one unit against one observer, and what that rests on."""

    unit: Unit
    relation: Relation
    observer: Observer
    scope: Scope
    rounds: int  # how many rounds the scope covers
    epsilon: float
    delta: float
    accountant: str
    assumptions: tuple[str, ...] = ()
    units: int | None = None  # how many units are protected: delta means little beside few of them
    client: str | None = None  # whose records, where each client has a guarantee of its own

    def __post_init__(self) -> None:
        require(self.epsilon >= 0, "epsilon", self.epsilon, "must not be negative")
        require(0 <= self.delta <= 1, "delta", self.delta, "must lie in [0, 1]")
        require(self.units is None or self.units >= 1, "units", self.units, "must be at least 1")
        if self.client is not None:
            require_name("client", self.client)
        if self.units is not None and self.delta > 0 and math.isfinite(self.epsilon):
            remedy = f"must be below 1/units = {1 / self.units:g}, or one unit in {self.units} may be exposed outright"
            require(self.delta < 1 / self.units, "delta", self.delta, remedy)

    @property
    def private(self) -> bool:
        """Whether anything is promised at all."""
        return math.isfinite(self.epsilon) and self.delta < 1

    @property
    def whose(self) -> str:
        """What an epsilon must say where it stands alone: of whom, against whom, at which delta, how computed."""
        text = f"{self._protected} ({self.relation}) against the {self.observer} at delta {format_delta(self.delta)}"
        return f"{text}, {self.accountant}{self._assumed}"

    def __str__(self) -> str:
        over = "in one round" if self.rounds == 1 else f"over all {self.rounds} rounds"
        figures = f"epsilon = {format_epsilon(self.epsilon)}, delta = {format_delta(self.delta)}"
        if not self.private:
            figures = f"no guarantee ({figures})"
        protected = f"for {self._protected} ({self.relation}; {self.accountant})"
        return f"{self.observer}, {over}: {figures} {protected}{self._assumed}"

    @property
    def _protected(self) -> str:
        units = "" if self.units is None else f" of {self.units}"
        return f"one {self.unit}{units}" + ("" if self.client is None else f" of {self.client}")

    @property
    def _assumed(self) -> str:
        return "".join(f"; assuming {assumption}" for assumption in self.assumptions)

    def to_json(self) -> dict[str, Any]:
        """Plain values; an infinite epsilon is the string "inf", which JSON can carry."""
        values = dataclasses.asdict(self) | {"assumptions": list(self.assumptions)}
        return values | {"epsilon": self.epsilon if math.isfinite(self.epsilon) else "inf"}

    def under(self, relation: Relation) -> Guarantee:
        """The same release under another relation, where one implies the other.

        add-remove or zero-out to replace-one: two steps, (2 epsilon, (1 + e^epsilon) delta). replace-one to zero-out:
        the zero contribution is one of the replacements. add-remove and zero-out do not imply each other here.
        """
        if relation is self.relation:
            return self
        if relation is Relation.REPLACE_ONE:
            delta = _grown(self.delta, 1 + math.exp(min(self.epsilon, 700)), self.epsilon > 700)
            return self._derived(
                f"two steps of {self.relation}", relation=relation, epsilon=2 * self.epsilon, delta=delta
            )
        if self.relation is Relation.REPLACE_ONE and relation is Relation.ZERO_OUT:
            return self._derived("zero is one of the replacements", relation=relation)
        raise Refused(
            f"{self.relation} does not imply {relation}",
            f"account the events under {relation}, noise relative to its sensitivity",
        )

    def for_client(self, records: int) -> Guarantee:
        """Group privacy: a client that holds at most `records` records, (n epsilon, n e^((n-1) epsilon) delta)."""
        require(records >= 1, "records", records, "a client holds at least one record")
        if self.unit is Unit.CLIENT:
            return self
        exponent = (records - 1) * self.epsilon
        growth = records * math.exp(min(exponent, 700))
        return self._derived(
            f"group privacy for {records} records",
            unit=Unit.CLIENT,
            epsilon=records * self.epsilon,
            delta=_grown(self.delta, growth, exponent > 700),
            units=None,
        )

    def for_record(self) -> Guarantee:
        """A client-level replace-one guarantee covers each of the client's records, however it changes."""
        if self.unit is Unit.RECORD:
            return self
        if self.relation is not Relation.REPLACE_ONE:
            raise Refused(
                f"changing one record replaces a client, of which {self.relation} says nothing directly",
                "convert first: guarantee.under(Relation.REPLACE_ONE).for_record()",
            )
        return self._derived("a record lies inside its client", unit=Unit.RECORD, units=None)

    def _derived(self, how: str, **changes: Any) -> Guarantee:
        return dataclasses.replace(self, accountant=f"{self.accountant}, {how}", **changes)


@dataclass(frozen=True)
class Warning:
    """Something the reader of a certificate must know, as data: a stable code and a sentence."""

    code: str
    message: str

    def to_json(self) -> dict[str, str]:
        """Plain values."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Certificate:
    """What a run promises, to whom. A figure for one round is never there without the total for the same observer."""

    guarantees: tuple[Guarantee, ...]
    warnings: tuple[Warning, ...] = ()

    def __post_init__(self) -> None:
        totals = {_who(guarantee) for guarantee in self.guarantees if guarantee.scope == "all rounds"}
        for guarantee in self.guarantees:
            if _who(guarantee) not in totals:
                raise InvalidInput(
                    "scope", guarantee.scope, f"give the total over all rounds for {guarantee.observer} too"
                )

    def __add__(self, other: Certificate) -> Certificate:
        warnings = tuple(dict.fromkeys(self.warnings + other.warnings))
        return Certificate(self.guarantees + other.guarantees, warnings)

    def total(self, observer: Observer | str, relation: Relation | None = None) -> Guarantee:
        """The guarantee over all rounds against `observer`: of any client, where each has its own."""
        observer = Observer.parse(observer)
        for guarantee in self.guarantees:
            right_relation = relation is None or guarantee.relation is relation
            if guarantee.scope == "all rounds" and guarantee.observer is observer and right_relation:
                require(guarantee.client is None, "client", guarantee.client, "the guarantee for all must come first")
                return guarantee
        known = ", ".join(dict.fromkeys(guarantee.observer for guarantee in self.guarantees))
        raise InvalidInput("observer", observer, f"this certificate speaks of {known}")

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "guarantees": [guarantee.to_json() for guarantee in self.guarantees],
            "warnings": [warning.to_json() for warning in self.warnings],
        }

    def __str__(self) -> str:
        totals = [guarantee for guarantee in self.guarantees if guarantee.scope == "all rounds"]
        once = {_who(total) for total in totals if total.rounds == 1}  # one round is the total: said once
        shown = [g for g in self.guarantees if g.scope == "all rounds" or _who(g) not in once]
        few = len({g.client for g in shown if g.client is not None}) <= _MOST_CLIENTS
        lines = [str(guarantee) for guarantee in shown if few or guarantee.client is None]
        lines += [] if few else _ranges(shown)
        lines += [f"warning ({warning.code}): {warning.message}" for warning in self.warnings]
        return "\n".join(lines)


def format_epsilon(epsilon: float) -> str:
    """Four significant digits, rounded up (a billionth is forgiven): what is printed never promises more."""
    if not math.isfinite(epsilon):
        return "infinite"
    if epsilon == 0:
        return "0"
    if epsilon < 1e-9:
        return "1e-09"
    digits = 3 - math.floor(math.log10(epsilon))
    return f"{_ceil_to(epsilon, digits):.{max(0, digits)}f}"


def format_delta(delta: float) -> str:
    """Six significant digits, rounded up."""
    nearest = f"{delta:.6g}"
    if float(nearest) >= delta:
        return nearest
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).create_decimal_from_float(delta)):.6g}"


def _grown(delta: float, factor: float, beyond: bool) -> float:
    """delta times factor, at most 1; `beyond` says that the factor overflowed."""
    return 1.0 if beyond and delta > 0 else min(1.0, factor * delta)


def _ceil_to(value: float, digits: int) -> float:
    scale = 10.0**digits
    return math.ceil(round(value * scale, 6)) / scale


def _who(guarantee: Guarantee) -> tuple[Observer, Unit, Relation, str | None]:
    return guarantee.observer, guarantee.unit, guarantee.relation, guarantee.client


def _ranges(guarantees: list[Guarantee]) -> list[str]:
    """One line an observer for many clients' own guarantees; JSON lists them all."""
    lines = []
    for observer in dict.fromkeys(g.observer for g in guarantees if g.client is not None):
        own = [g for g in guarantees if g.client is not None and g.observer is observer]
        low, high = min(g.epsilon for g in own), max(g.epsilon for g in own)
        delta = format_delta(max(g.delta for g in own))
        figures = f"epsilon from {format_epsilon(low)} to {format_epsilon(high)}, delta at most {delta}"
        how = "; ".join(dict.fromkeys(f"{g.relation}; {g.accountant}{g._assumed}" for g in own))
        over = f"over all {max(g.rounds for g in own)} rounds, " if own[0].rounds > 1 else "in one round, "
        lines.append(f"{observer}, {over}each of {len(own)} clients for its own records: {figures} ({how})")
    return lines
