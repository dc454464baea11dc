"""Guarantees (unit, relation, observer, scope, epsilon, delta, accountant, assumptions) and certificates of them."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import UnionType
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args

from sordino.errors import InvalidInput, Refused, require, require_count, require_name
from sordino.privacy import wording
from sordino.types import Draws, Observer, Relation, SeedOrigin, Unit, Warning

T = TypeVar("T")
Json: TypeAlias = dict[str, Any]
Scope = Literal["one round", "all rounds"]
Subject: TypeAlias = tuple[Observer, Unit, Relation, str | None]


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-differential privacy of one unit against one observer, with its accountant and assumptions."""

    unit: Unit
    relation: Relation
    observer: Observer
    scope: Scope
    rounds: int  # covered by the scope
    epsilon: float
    delta: float
    accountant: str
    assumptions: tuple[str, ...] = ()
    units: int | None = None  # number of protected units, for comparison with delta
    client: str | None = None  # holder of the protected records, where each client has its own guarantee

    def __post_init__(self) -> None:
        require(self.epsilon >= 0, "epsilon", self.epsilon, "must not be negative")
        require(0 <= self.delta <= 1, "delta", self.delta, "must lie in [0, 1]")
        require(self.units is None or self.units >= 1, "units", self.units, "must be at least 1")
        if self.client is not None:
            require_name("client", self.client)
        if self.units is not None and self.delta > 0 and math.isfinite(self.epsilon):
            remedy = f"must be below 1/units = {1 / self.units:g}: otherwise one of {self.units} units may be exposed"
            require(self.delta < 1 / self.units, "delta", self.delta, remedy)

    @property
    def private(self) -> bool:
        """Whether the guarantee limits what the observer learns at all."""
        return math.isfinite(self.epsilon) and self.delta < 1

    @property
    def subject(self) -> Subject:
        """Observer, unit, relation and client: guarantees that agree in these are about the same thing."""
        return self.observer, self.unit, self.relation, self.client

    @property
    def whose(self) -> str:
        """The words that must accompany an epsilon printed alone."""
        return wording.epsilon_context(self)

    def __str__(self) -> str:
        return wording.guarantee_sentence(self)

    def to_json(self) -> Json:
        """Plain values; an infinite epsilon is the string "inf", because JSON has no infinity."""
        values = dataclasses.asdict(self) | {"assumptions": list(self.assumptions)}
        return values | {"epsilon": self.epsilon if math.isfinite(self.epsilon) else "inf"}

    @classmethod
    def from_json(cls, values: object) -> Guarantee:
        """The guarantee that `to_json` wrote."""
        table = _table("guarantee", values)
        known = [field.name for field in dataclasses.fields(cls)]
        for name, value in table.items():
            require(name in known, name, value, f"is not a field of a guarantee: use {', '.join(known)}")
        scope, client, units = _text(table, "scope"), table.get("client"), table.get("units")
        require(scope in get_args(Scope), "scope", scope, f"use one of {', '.join(get_args(Scope))}")
        require_count(_value(table, "rounds"), "rounds")
        if units is not None:
            require_count(units, "units")
        require(client is None or isinstance(client, str), "client", client, "must be a text, or null")
        return cls(
            unit=Unit.parse(_text(table, "unit")),
            relation=Relation.parse(_text(table, "relation")),
            observer=Observer.parse(_text(table, "observer")),
            scope=cast(Scope, scope),
            rounds=table["rounds"],
            epsilon=math.inf if table.get("epsilon") == "inf" else _number(table, "epsilon"),
            delta=_number(table, "delta"),
            accountant=_text(table, "accountant"),
            assumptions=_texts(table, "assumptions"),
            units=units,
            client=client,
        )

    def under(self, relation: Relation) -> Guarantee:
        """The guarantee of the same release under another relation that this one implies.

        add-remove or zero-out to replace-one: two steps, (2 epsilon, (1 + e^epsilon) delta). replace-one to zero-out:
        the zero contribution is one of the replacements. add-remove and zero-out do not imply each other here.
        """
        if relation is self.relation:
            return self
        if relation is Relation.REPLACE_ONE:
            delta = _grown(self.delta, 1 + math.exp(min(self.epsilon, 700)), self.epsilon > 700)
            how = f"{self.accountant}, two steps of {self.relation}"
            return replace(self, relation=relation, epsilon=2 * self.epsilon, delta=delta, accountant=how)
        if self.relation is Relation.REPLACE_ONE and relation is Relation.ZERO_OUT:
            return replace(self, relation=relation, accountant=f"{self.accountant}, zero is one of the replacements")
        raise Refused(
            f"{self.relation} does not imply {relation}",
            f"account the events under {relation}, with noise relative to its sensitivity",
        )

    def for_client(self, records: int) -> Guarantee:
        """Group privacy for a client of at most n = `records` records: (n epsilon, n e^((n-1) epsilon) delta)."""
        require(records >= 1, "records", records, "a client holds at least one record")
        if self.unit is Unit.CLIENT:
            return self
        exponent = (records - 1) * self.epsilon
        delta = _grown(self.delta, records * math.exp(min(exponent, 700)), exponent > 700)
        how = f"{self.accountant}, group privacy for {records} records"
        return replace(self, unit=Unit.CLIENT, epsilon=records * self.epsilon, delta=delta, accountant=how, units=None)

    def for_record(self) -> Guarantee:
        """The guarantee for each record of a client that is protected under replace-one."""
        if self.unit is Unit.RECORD:
            return self
        if self.relation is not Relation.REPLACE_ONE:
            raise Refused(
                f"changing one record replaces a client, and {self.relation} does not cover replacement directly",
                "convert first: guarantee.under(Relation.REPLACE_ONE).for_record()",
            )
        how = f"{self.accountant}, a record lies inside its client"
        return replace(self, unit=Unit.RECORD, accountant=how, units=None)


@dataclass(frozen=True)
class Certificate:
    """The guarantees and warnings of a run. A figure for one round always comes with the total for its subject."""

    guarantees: tuple[Guarantee, ...]
    warnings: tuple[Warning, ...] = ()
    draws: Draws | None = None  # how the noise is drawn; None where that is not known, as of a bare event
    seed: SeedOrigin | None = None  # None before a run
    assumptions: tuple[str, ...] = ()  # what every figure rests on, beside its own assumptions

    def __post_init__(self) -> None:
        totals = {guarantee.subject for guarantee in self.guarantees if guarantee.scope == "all rounds"}
        for guarantee in self.guarantees:
            remedy = f"add the total over all rounds against the {guarantee.observer}"
            require(guarantee.subject in totals, "scope", guarantee.scope, remedy)

    @property
    def totals(self) -> tuple[Guarantee, ...]:
        """The guarantees over all rounds that hold for every client."""
        return tuple(g for g in self.guarantees if g.scope == "all rounds" and g.client is None)

    def total(self, observer: Observer | str, relation: Relation | None = None) -> Guarantee:
        """The guarantee over all rounds against `observer` that holds for every client."""
        observer = Observer.parse(observer)
        for guarantee in self.totals:
            if guarantee.observer is observer and relation in (None, guarantee.relation):
                return guarantee
        known = ", ".join(dict.fromkeys(guarantee.observer for guarantee in self.totals))
        raise InvalidInput("observer", observer, f"this certificate has totals against {known}")

    def with_warnings(self, *warnings: Warning) -> Certificate:
        """The same guarantees with further warnings, each listed once."""
        return replace(self, warnings=_unique((*self.warnings, *warnings)))

    @classmethod
    def merge_observers(cls, *parts: Certificate) -> Certificate:
        """One certificate of parts that speak of the same releases, about different observers or clients.

        Nothing is added up: use `compose` for certificates of different runs.
        """
        guarantees = _unique(guarantee for part in parts for guarantee in part.guarantees)
        stated = Counter((guarantee.subject, guarantee.scope, guarantee.delta) for guarantee in guarantees)
        for subject, _, _ in (key for key, count in stated.items() if count > 1):
            remedy = "two parts state different guarantees: use compose for certificates of different runs"
            raise InvalidInput("observer", subject[0], remedy)
        warnings = _unique(warning for part in parts for warning in part.warnings)
        return cls(guarantees, warnings, *_joint_basis(parts))

    @classmethod
    def compose(cls, *certificates: Certificate) -> Certificate:
        """The guarantees of several runs on the same data together, by basic composition: epsilons and deltas add up.

        The runs must have independent noise, which the result states as an assumption; runs with seeds that were given
        or shared are refused. Figures for one round are left out, because the rounds of different runs differ.
        """
        require(len(certificates) > 0, "certificates", len(certificates), "give at least one certificate")
        if len(certificates) == 1:
            return certificates[0]
        _refuse_shared_noise(certificates)
        by_subject = [_totals_by_subject(certificate) for certificate in certificates]
        for other in by_subject[1:]:
            _refuse_different_subjects(by_subject[0], other)
        guarantees, warnings = [], _composed_warnings(certificates)
        for subject in by_subject[0]:
            runs = [totals[subject] for totals in by_subject]
            # Pure noise has totals at two deltas; a run with fewer totals than another repeats its last one.
            for place in range(max(map(len, runs))):
                composed, too_large = _basic_composition([totals[min(place, len(totals) - 1)] for totals in runs])
                guarantees.append(composed)
                warnings += too_large
        return cls(tuple(guarantees), _unique(warnings), *_joint_basis(certificates))

    def to_json(self) -> Json:
        return {
            "draws": self.draws,
            "seed": self.seed,
            "assumptions": list(self.assumptions),
            "guarantees": [guarantee.to_json() for guarantee in self.guarantees],
            "warnings": [warning.to_json() for warning in self.warnings],
        }

    @classmethod
    def from_json(cls, values: object) -> Certificate:
        """The certificate that `to_json` wrote, perhaps inside a larger table, of which the other keys are ignored."""
        table = _table("certificate", values)
        guarantees = tuple(Guarantee.from_json(each) for each in _read(table, "guarantees", list, "a list"))
        listed = _read({"warnings": []} | table, "warnings", list, "a list")
        warnings = [_table("warning", each) for each in listed]
        return cls(
            guarantees,
            tuple(Warning(_text(each, "code"), _text(each, "message")) for each in warnings),
            None if table.get("draws") is None else Draws.parse(_text(table, "draws")),
            _seed_origin(table),
            _texts(table, "assumptions"),
        )

    def __str__(self) -> str:
        return wording.certificate_text(self)


# --- Composition --------------------------------------------------------------------------------------------------

_LEAST_PROVEN = (Draws.FLOAT32, Draws.SIMULATED_MESSAGES, Draws.LATTICE, Draws.NONE)  # a composition is as weak


def _joint_basis(parts: Iterable[Certificate]) -> tuple[Draws | None, SeedOrigin | None, tuple[str, ...]]:
    """What several certificates together rest on: the weakest noise and seed among them, and all assumptions."""
    parts = tuple(parts)
    draws = {part.draws for part in parts if part.draws is not None}
    known = len(draws) > 0 and all(part.draws is not None for part in parts)
    origins = {part.seed for part in parts}
    least = (seed for seed in (SeedOrigin.GIVEN, SeedOrigin.SHARED, None, SeedOrigin.ENTROPY) if seed in origins)
    seed = next(least, None)
    assumptions = _unique(text for part in parts for text in part.assumptions)
    return min(draws, key=_LEAST_PROVEN.index) if known else None, seed, assumptions


def _refuse_shared_noise(certificates: tuple[Certificate, ...]) -> None:
    for certificate in certificates:
        if certificate.seed in (SeedOrigin.GIVEN, SeedOrigin.SHARED) and any(g.private for g in certificate.guarantees):
            raise Refused(wording.may_share_noise(certificate.seed), "compose runs that were each made without a seed")


Totals: TypeAlias = dict[Subject, list[Guarantee]]


def _totals_by_subject(certificate: Certificate) -> Totals:
    totals: Totals = {}
    for guarantee in certificate.guarantees:
        if guarantee.scope == "all rounds":
            totals.setdefault(guarantee.subject, []).append(guarantee)
    return totals


def _refuse_different_subjects(first: Totals, other: Totals) -> None:
    for place, name in enumerate(("observers", "units", "relations", "clients")):
        ours, theirs = ({str(subject[place]) for subject in totals} for totals in (first, other))
        if ours != theirs:
            said = " and ".join(", ".join(sorted(some)) or "none" for some in (ours, theirs))
            raise Refused(f"the certificates have different {name}: {said}", "compose certificates of one kind")
    if {*first} != {*other}:
        raise Refused("the certificates combine observers and relations differently", "compose those of one kind")
    for subject in first:
        sizes = {guarantee.units for guarantee in (*first[subject], *other[subject])} - {None}
        if len(sizes) > 1:
            said = " and ".join(map(str, sizes))
            raise Refused(f"the certificates protect {said} units", "compose certificates about the same population")


def _basic_composition(runs: list[Guarantee]) -> tuple[Guarantee, tuple[Warning, ...]]:
    """One guarantee of each run: their sum, and a warning where its delta is too large for the number of units."""
    epsilon, delta = math.fsum(g.epsilon for g in runs), min(1.0, math.fsum(g.delta for g in runs))
    units = None if any(g.units is None for g in runs) else runs[0].units
    too_large = units is not None and delta >= 1 / units and math.isfinite(epsilon)
    shared = (wording.ASSUME_SAME_DATA, wording.ASSUME_INDEPENDENT_RUNS)
    composed = replace(
        runs[0],
        rounds=sum(g.rounds for g in runs),
        epsilon=epsilon,
        delta=delta,
        accountant=f"basic composition of {len(runs)} certificates",
        assumptions=_unique((*(text for g in runs for text in g.assumptions), *shared)),
        units=None if too_large else units,
    )
    return composed, (wording.delta_too_large(delta, units, composed.unit),) if units and too_large else ()


def _composed_warnings(certificates: tuple[Certificate, ...]) -> list[Warning]:
    """All warnings; those that count the rounds or the runs of one certificate are written anew."""
    rounds = sum(max((g.rounds for g in certificate.guarantees), default=0) for certificate in certificates)
    renewed = {"this-run-alone": wording.COMPOSED_RUNS_ALONE, "total-counts": wording.total_counts(rounds)}
    return [renewed.get(warning.code, warning) for each in certificates for warning in each.warnings]


def _unique(items: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(items))


# --- JSON ---------------------------------------------------------------------------------------------------------


def _table(name: str, values: object) -> Json:
    if not isinstance(values, dict):
        raise InvalidInput(name, values, "must be a JSON object")
    return values


def _seed_origin(table: Json) -> SeedOrigin | None:
    """Where the seed came from; files of earlier versions do not say it, and the default then was one seed for all."""
    if "seed" not in table:
        return SeedOrigin.GIVEN
    return None if table["seed"] is None else SeedOrigin.parse(_text(table, "seed"))


def _texts(table: Json, key: str) -> tuple[str, ...]:
    texts = table.get(key, [])
    listed = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
    require(listed, key, texts, "must be a list of texts")
    return tuple(texts)


def _value(table: Json, key: str) -> Any:
    require(key in table, key, None, "is missing: add it")
    return table[key]


def _read(table: Json, key: str, kind: type | UnionType, must_be: str) -> Any:
    value = _value(table, key)
    require(isinstance(value, kind) and not isinstance(value, bool), key, value, f"must be {must_be}")
    return value


def _text(table: Json, key: str) -> str:
    return _read(table, key, str, "a text")


def _number(table: Json, key: str) -> float:
    return float(_read(table, key, int | float, "a number"))


def _grown(delta: float, factor: float, beyond: bool) -> float:
    """delta times factor, at most 1; `beyond` means that the factor overflowed."""
    return 1.0 if beyond and delta > 0 else min(1.0, factor * delta)
