"""What can go wrong, said in one line: the field, its value, the remedy.

Every error that a user can cause is a `SordinoError`. The command line prints its text and exits with code 2;
Python callers can also catch it as the `ValueError` that it is. Limits that several rooms refuse by stand here too.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import operator
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from typing import Any, ParamSpec, TypeVar

MOST_ROUNDS = 10_000_000  # of a run, and releases that numbers can compose
LARGEST_SEED = 2**32 - 1
LONGEST_SHOWN = 300  # characters of a value in an error
SMALLEST_FLOAT32, LARGEST_FLOAT32 = 2.0**-126, (2 - 2.0**-23) * 2.0**127  # what is smaller is flushed to zero
NO_SUCH_SEED = "must lie in [0, 2^32); leave it out for a fresh one of 64 bits"


class SordinoError(ValueError):
    """Base of all errors with a remedy."""


class InvalidInput(SordinoError):
    """A value that cannot be meant: names the field, shows the value, says what to do."""

    def __init__(self, field: str, value: Any, remedy: str) -> None:
        super().__init__(f"{field} = {_short(repr(_as_written(value)))}: {remedy}")
        self.field, self.value, self.remedy = field, value, remedy


def _short(text: str) -> str:
    """The first line of a value, as far as it can be read: an array has many."""
    first = text.partition("\n")[0]
    return text if len(text) <= LONGEST_SHOWN and first == text else f"{first[:LONGEST_SHOWN]} ..."


def _as_written(value: Any) -> Any:
    """What a user wrote for a value of our own: "add-remove" of a relation, and a function's name."""
    if isinstance(value, Enum):
        return value.value
    function = value.func if isinstance(value, partial) else value
    return getattr(function, "__name__", value) if callable(value) else value


class Refused(SordinoError):
    """A guarantee that was asked for and would be false: says why, and what to ask for instead."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"refused: {reason}; {remedy}")
        self.reason, self.remedy = reason, remedy


class SordinoWarning(UserWarning):
    """What a user should know and need not change; it may be computed from private data, and is printed to them."""


class LedgerError(SordinoError):
    """The ledger is damaged, in use by another process, or not there."""


class LedgerInUse(LedgerError):
    """Another process writes to the ledger."""


class BudgetExceeded(SordinoError):
    """The next release would spend more than the budget allows; nothing was released."""


def one_line(text: object) -> str:
    """A text of somebody else, in one line: line breaks, control characters and the like are written as Python does."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in str(text))


def require(condition: bool, field: str, value: Any, remedy: str) -> None:
    """Raise `InvalidInput` unless the condition holds."""
    if not condition:
        raise InvalidInput(field, value, remedy)


def near_misses(given: object, known: Iterable[str], most: int = 3) -> list[str]:
    """The known names that a misspelt one may stand for, the nearest first."""
    word = str(given).lower()
    spelt = {name.lower(): name for name in known}
    return [spelt[name] for name in difflib.get_close_matches(word, spelt, n=most, cutoff=0.65)]


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """The beginning of a remedy, "did you mean clients? ", where a name is nearly one that is known; else empty."""
    return "".join(f"did you mean {near}? " for near in near_misses(given, known, most=1))


def use_one_of(given: object, known: Iterable[str]) -> str:
    """The remedy for a name that is not known: all known names, after a near miss the one that was probably meant."""
    names = list(known)
    return f"{did_you_mean(given, names)}use one of {', '.join(names)}"


def one_of_many(given: object, known: Iterable[str], alike: Sequence[str], otherwise: str) -> str:
    """The same where there are too many names for one line: those that are alike, or near, and how to see all."""
    meant = list(alike) or near_misses(given, known)
    return f"did you mean {' or '.join(meant)}? {otherwise}" if meant else f"there is none of this name: {otherwise}"


def require_known(field: str, value: Any, known: Iterable[str]) -> None:
    """Raise `InvalidInput` unless the value is one of the known names."""
    names = list(known)
    if value not in names:
        raise InvalidInput(field, value, use_one_of(value, names))


Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")


def names_keywords(make: Callable[Arguments, Made]) -> Callable[Arguments, Made]:
    """Refuse a keyword that a factory does not take as other mistakes are refused, with the one that was meant."""
    known = list(inspect.signature(make).parameters)

    @functools.wraps(make)
    def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Made:
        for name, value in kwargs.items():
            meant = did_you_mean(name, known)
            require(name in known, name, value, f"{meant}{make.__name__} takes {', '.join(known)}")
        return make(*args, **kwargs)

    return checked


def require_count(value: Any, field: str, remedy: str = "must be a whole number, at least 1") -> None:
    """Raise `InvalidInput` unless the value is a positive integer."""
    try:
        valid = operator.index(value) >= 1 and not isinstance(value, bool)
    except TypeError:
        valid = False
    require(valid, field, value, remedy)


def require_name(field: str, text: str) -> None:
    """Raise `InvalidInput` unless a text may stand in a guarantee: a line break, or folding, could begin another."""
    readable = 0 < len(text.strip()) <= 100 and text.isprintable() and "  " not in text
    remedy = "must be a name: at most 100 printable characters, no two spaces in a row; give it another"
    require(readable, field, text, remedy)


def _is_float32(value: float) -> bool:
    """Neither zero nor infinity there: 1e300 is infinite, and 1e-50 is zero."""
    return SMALLEST_FLOAT32 <= value <= LARGEST_FLOAT32


def require_float32(field: str, value: float, *, or_zero: bool = False) -> None:
    """Refuse a step, a radius or a constant of zero or infinity: it would spend the budget on a model that is lost."""
    usable = _is_float32(value) or (or_zero and value == 0)
    require(usable, field, value, f"must be {'0, or ' * or_zero}positive and finite, as float32 holds it")


def require_drawable(field: str, value: float) -> None:
    """Refuse a std or a scale that is zero or infinity in float32: it hides nothing, whatever an accountant finds."""
    remedy = "no float32 can be this noise: choose a bound of messages or gradients nearer to 1"
    require(_is_float32(value), field, value, remedy)
