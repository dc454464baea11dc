"""Several releases from a TOML file, composed: `sordino account compose FILE`."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sordino.errors import InvalidInput
from sordino.privacy import events
from sordino.privacy.accountants import account_of
from sordino.privacy.calculator import certified
from sordino.privacy.certification import certify
from sordino.privacy.guarantee import Json
from sordino.privacy.privunit import privunit_constants, scalar_dp_constants
from sordino.privacy.sampling import parse_sampling
from sordino.types import Event, Observer, Relation, Unit


def compose(file: Path) -> Json:
    """The releases of one round that a TOML file lists, together and each alone, over all rounds."""
    table = _Table(_read(file), str(file))
    rounds, relation = table.whole("rounds", 1), Relation.parse(table.pop("relation", "add-remove"))
    delta = table.real("delta")
    units = table.whole("units") if "units" in table.values else None
    observer, unit = Observer.parse(table.pop("observer", "model user")), Unit.parse(table.pop("unit", "client"))
    sampling = parse_sampling(str(table.pop("cohort", "full")))
    releases = table.pop("release")
    table.finish("delta, relation, rounds, cohort, units, observer, unit, release")
    if not (isinstance(releases, list) and releases and all(isinstance(entry, dict) for entry in releases)):
        raise InvalidInput("release", releases, f"in {file}: give at least one [[release]] table")
    costs = [(entry.get("name", entry.get("mechanism")), _event(_Table(dict(entry), str(file)))) for entry in releases]

    def alone(event: Event) -> float:
        return account_of(events.Repeated(events.sampled(event, sampling), rounds), relation).epsilon(delta)

    certificate = certify(
        events.Composed(tuple(event for _, event in costs)),
        relation=relation,
        observer=observer,
        rounds=rounds,
        delta=delta,
        unit=unit,
        units=units,
        sampling=sampling,
    )
    each = [{"release": name, "epsilon": alone(event), "delta": delta} for name, event in costs]
    return {"mechanism": f"{len(costs)} releases", **certified(certificate), "releases": each}


def _read(file: Path) -> Json:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise InvalidInput("file", str(file), f"cannot be read ({error.strerror}): check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput("file", str(file), f"is not valid TOML: {error}") from None


class _Table:
    """A TOML table that is read key by key; errors name the key, its value and the file."""

    def __init__(self, values: Json, source: str) -> None:
        self.values, self.source = values, source

    def pop(self, key: str, default: object = None) -> Any:
        if key not in self.values and default is None:
            raise InvalidInput(key, None, f"is missing in {self.source}: add it")
        return self.values.pop(key, default)

    def real(self, key: str) -> float:
        value = self.pop(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidInput(key, value, f"in {self.source}: must be a number")
        return float(value)

    def whole(self, key: str, default: int | None = None) -> int:
        value = self.pop(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidInput(key, value, f"in {self.source}: must be a whole number, at least 1")
        return value

    def finish(self, known: str) -> None:
        for key, value in self.values.items():
            raise InvalidInput(key, value, f"is not known in {self.source}; known here: {known}")


def _privunit(table: _Table) -> Event:
    gamma = table.pop("gamma", "exact")
    constants = privunit_constants(table.whole("dim"), table.real("eps0"), table.real("eps1"), gamma)
    norm = [scalar_dp_constants(table.real("eps2")).event] if "eps2" in table.values else []
    return events.Composed((constants.event, *norm))


_MECHANISMS: dict[str, Callable[[_Table], Event]] = {
    "gaussian": lambda table: events.Gaussian(table.real("noise_multiplier")),
    "laplace": lambda table: events.Laplace(table.real("noise_multiplier")),
    "pure": lambda table: events.Pure(table.real("epsilon")),
    "zcdp": lambda table: events.ZeroConcentrated(table.real("rho")),
    "approximate": lambda table: events.Approximate(events.Pure(table.real("epsilon")), table.real("delta")),
    "privunit": _privunit,
    "none": lambda table: events.NonPrivate(),
}


def _event(table: _Table) -> Event:
    """The event of one [[release]] table in one round."""
    mechanism, times = str(table.pop("mechanism")), table.whole("times", 1)
    table.values.pop("name", None)
    if mechanism not in _MECHANISMS:
        raise InvalidInput("mechanism", mechanism, f"in {table.source}: use one of {', '.join(_MECHANISMS)}")
    event = _MECHANISMS[mechanism](table)
    table.finish("mechanism, name, times and the mechanism's own numbers; the cohort is set once, above the releases")
    return events.Repeated(event, times) if times != 1 else event
