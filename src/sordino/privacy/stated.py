"""The unit and the relation that events state. What is stated in two ways has no cost, and is refused.

Noise that costs epsilon 6.7 under add-remove costs 15.7 under replace-one, and an event about clients does not say what
a record costs. So every part of an event, and whoever accounts, spends or certifies it, must mean the same.
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from sordino.errors import Refused, require
from sordino.privacy.events import parts_of
from sordino.types import Event, Relation, Unit

E = TypeVar("E", bound=Event)


def stated(
    event: Event, unit: Unit | str | None = None, relation: Relation | str | None = None
) -> tuple[Unit | None, Relation | None]:
    """The unit and relation that the caller and all parts of an event agree on, each None where nobody states it."""
    known = isinstance(event, Event)
    require(known, "event", type(event).__name__, "give an event of so.events, as so.events.Gaussian(1.0)")
    unit, relation = None if unit is None else Unit.parse(unit), None if relation is None else Relation.parse(relation)
    for part in parts_of(event):
        if part.unit is not None and part.unit != (unit := unit or Unit.parse(part.unit)):
            raise Refused(
                f"the cost of a {part.kind} release is stated for one {part.unit}, not for one {unit}",
                f"use unit {part.unit} throughout, or convert its guarantee with Guarantee.for_{unit}",
            )
        if part.relation is not None and part.relation != (relation := relation or Relation.parse(part.relation)):
            raise Refused(
                f"the cost of a {part.kind} release is stated under {part.relation}, not under {relation}",
                f"use relation {part.relation} throughout, or ask the mechanism for its event under {relation}",
            )
    return unit, relation


def require_stated(event: Event, unit: Unit | str | None, relation: Relation | str | None) -> None:
    """Refuse an event of which a part is stated for another unit or under another relation."""
    stated(event, unit, relation)


def stated_as(event: E, unit: Unit | str, relation: Relation | str) -> E:
    """The event, said to be about this unit under this relation; refused where a part says otherwise."""
    about, under = stated(event, unit, relation)
    return dataclasses.replace(event, unit=about, relation=under)
