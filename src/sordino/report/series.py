"""What a run measured over its rounds, as series for charts, thinned where there are too many points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sordino.privacy.wording import format_epsilon
from sordino.report.curves import MEASURES

Row = dict[str, Any]

MOST_POINTS = 600  # of one series in a page
DIGITS = 6


@dataclass(frozen=True)
class Quantity:
    """Something that is measured at every evaluation: its key in a row, the title of its chart, and a factor."""

    key: str
    title: str
    unit: str = ""
    factor: float = 1.0
    log: bool = False
    on_records: bool = False  # computed on the clients' records, whatever the guarantee

    @property
    def label(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title


# In the order of a page. Those that a row holds beside these are shown under their own name.
QUANTITIES = (
    Quantity("accuracy", "Test accuracy", "%", 100.0),
    *(Quantity(key, label.capitalize(), log=True) for key, label, _ in MEASURES if key not in ("accuracy",)),
    Quantity("epsilon", "Epsilon spent"),
    Quantity("step_size", "Server step size"),
    Quantity("private_loss", "Mean loss of the clients, with noise"),
    Quantity("private_gradient_norm", "Mean gradient norm of the clients, with noise"),
    Quantity("training_loss", "Training loss of the clients", log=True, on_records=True),
    Quantity("mean_norm", "Mean norm of an update, before it is bounded", on_records=True),
    Quantity("clipped_share", "Updates that were shortened", "%", 100.0, on_records=True),
    Quantity("signal_to_noise", "Signal to noise of a round", on_records=True),
    Quantity("participants", "Clients that took part", on_records=True),
    Quantity("dropped", "Messages that were dropped", on_records=True),
    Quantity("bits", "Bits sent by all clients"),
    Quantity("used", "Members whose message was used"),
    Quantity("seconds", "Seconds of a round"),
)
_WORDS = ("round", "epsilon_of", "not_private")


@dataclass(frozen=True)
class Series:
    """Values over rounds; None where a figure is not a number. `whole` counts the evaluations before thinning."""

    rounds: tuple[int, ...]
    values: tuple[float | None, ...]
    whole: int

    @property
    def thinned(self) -> bool:
        return self.whole > len(self.rounds)


def quantities_of(rows: Sequence[Row]) -> list[Quantity]:
    """The quantities that these rows hold: those that a row calls not private are computed on the clients' records."""
    held = dict.fromkeys(key for row in rows for key in (*row, *row.get("not_private", ())) if key not in _WORDS)
    private = {key for row in rows for key in row.get("not_private", ())}
    known = {quantity.key: quantity for quantity in QUANTITIES}
    others = [Quantity(key, key.replace("_", " ").capitalize()) for key in held if key not in known]
    found = [known[key] for key in known if key in held] + others
    return [replace(each, on_records=True) if each.key in private else each for each in found]


def series_of(rows: Sequence[Row], quantity: Quantity, most: int = MOST_POINTS) -> Series | None:
    """The series of a quantity; None if no row has a finite value of it."""
    found = [(int(row["round"]), _value(row, quantity)) for row in rows]
    if all(value is None for _, value in found):
        return None
    kept = thinned(found, most)
    return Series(tuple(each for each, _ in kept), tuple(_rounded(value, quantity) for _, value in kept), len(found))


def thinned(points: Sequence[tuple[int, float | None]], most: int) -> list[tuple[int, float | None]]:
    """At most `most` points: of each stretch its lowest and its highest, and the first and last of all.

    A stretch without any number keeps one point, so that the gap is seen.
    """
    if len(points) <= most:
        return list(points)
    stretches = max(1, (most - 2) // 2)
    inner = points[1:-1]
    kept = [points[0]]
    for place in range(stretches):
        stretch = inner[place * len(inner) // stretches : (place + 1) * len(inner) // stretches]
        numbers = [(value, number) for number, value in stretch if value is not None]
        extremes = {number: value for value, number in (min(numbers), max(numbers))} if numbers else {}
        kept += sorted(extremes.items()) or stretch[:1]
    return [*kept, points[-1]]


def _value(row: Row, quantity: Quantity) -> float | None:
    value = row.get(quantity.key, row.get("not_private", {}).get(quantity.key))
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _rounded(value: float | None, quantity: Quantity) -> float | None:
    if value is None:
        return None
    if quantity.key == "epsilon":
        return float(format_epsilon(value))  # rounded up, as wherever an epsilon is shown
    return float(f"{quantity.factor * value:.{DIGITS}g}")
