"""Labels as classes 0, 1, ...: from whole numbers, or from words with a place in a list.

The list should be declared (`labels = ["benign", "malignant"]`), and is then public. If it is left out, the words, or
the largest number, are counted in the records: the shape of the model reveals them, and certificates warn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sordino.data._records import Labels
from sordino.data._spelling import require_one_spelling
from sordino.errors import InvalidInput, require

BEYOND = 2.0**53  # from here on, a float stands for several whole numbers
MOST_WORDS = 1000  # different labels that are counted
SPARSE = 100  # a class number may lie this far above twice the number of different labels


@dataclass(frozen=True)
class Classes:
    """How many classes there are, their names if they have names, and whether the records decided this."""

    number: int
    names: tuple[str, ...] = ()
    counted: bool = False

    def name(self, label: int) -> str:
        """The name of a class; its number where classes have no names."""
        return self.names[label] if self.names else str(label)

    def of(self, field: str, values: NDArray[Any], place: Callable[[int], str] | None = None) -> Labels:
        """Labels as classes; `place` names where the label of a record stands, where there are rows."""
        if not self.names:
            numbers = whole_numbers(field, values)
            largest = int(numbers.max(initial=0))
            remedy = f"there are {self.number} classes, 0 to {self.number - 1}: leave such records out"
            require(largest < self.number, field, largest, remedy)
            return numbers
        if values.dtype.kind == "f" and not (np.abs(values) < BEYOND).all():
            raise InvalidInput(
                field, "2^53", "floats of this size stand for several labels: give whole numbers or words"
            )
        words = as_words(values)
        places = {name: place for place, name in enumerate(self.names)}
        found = np.array([places.get(str(word), -1) for word in words], np.int32)
        unknown = np.flatnonzero(found < 0)
        if len(unknown):
            row = int(unknown[0])
            which = f" (label number {row + 1})" if place is None else ""
            remedy = f"is not one of the labels {', '.join(self.names)}: correct it{which}, or add it"
            raise InvalidInput(place(row) if place else field, str(words[row]), remedy)
        return found


def settle_classes(
    field: str, values: NDArray[Any], *, labels: Sequence[object] | None = None, classes: int | None = None
) -> Classes:
    """What the labels of all records, of training and of test, are: declared, or counted."""
    require(classes is None or labels is None, "classes", classes, "labels are named already: leave it out")
    if labels is not None:
        return Classes(len(labels), declared_words("labels", labels))
    if classes is not None:
        whole = isinstance(classes, int) and not isinstance(classes, bool) and classes >= 1
        require(whole, "classes", classes, "must be a whole number, at least 1")
    if values.dtype == np.bool_:
        return Classes(2, ("False", "True"))
    numeric = numeric_words(values) if values.dtype.kind in "UTO" else np.ones(len(values), np.bool_)
    if numeric.all():
        return _numbered(field, whole_numbers(field, values), classes)
    if numeric.any():
        row = int(np.flatnonzero(~numeric)[0])
        remedy = "other labels are numbers: correct it, or name all labels in their order, labels = [...]"
        raise InvalidInput(field, str(values[row]), remedy)
    require(classes is None, "classes", classes, 'labels are words: name them in their order, labels = ["no", "yes"]')
    words = tuple(str(word) for word in np.unique(as_words(values)))
    remedy = f"has {len(words)} different words: name the column of the classes"
    require(len(words) <= MOST_WORDS, field, words[0], remedy)
    return Classes(len(words), words, counted=True)


def _numbered(field: str, numbers: Labels, classes: int | None) -> Classes:
    """0, ..., classes - 1, or as far as the largest label goes."""
    largest = int(numbers.max(initial=0))
    if classes is not None:
        remedy = f"{field} has the label {largest}: give at least {largest + 1}"
        require(largest < classes, "classes", classes, remedy)
        return Classes(classes)
    different = len(np.unique(numbers))
    remedy = f"only {different} labels differ: number the classes 0, 1, 2, ..., or name them, labels = [...]"
    require(largest < 2 * different + SPARSE, field, largest, remedy)
    return Classes(largest + 1, counted=True)


def declared_words(field: str, words: Sequence[object]) -> tuple[str, ...]:
    """A list of different words or numbers that a user has declared."""
    listed = isinstance(words, list | tuple) and all(isinstance(word, str | int | float) for word in words)
    require(listed and len(words) > 0, field, words, 'give a list of words, as in ["no", "yes"]')
    found = tuple(as_word(word) for word in words)
    twice = [word for word in found if found.count(word) > 1]
    require(not twice, field, words, f"{twice[0]!r} appears twice: name each once" if twice else "")
    require_one_spelling(field, found)
    return found


def as_word(value: object) -> str:
    """A value of a table as a word: 2 and 2.0 are "2"."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


def as_words(values: NDArray[Any]) -> NDArray[np.str_]:
    """Every value as a word."""
    return np.array([as_word(value) for value in values], dtype=str)


def is_number(text: str) -> bool:
    """Whether a text is a number; Python would also take 1_000, which nobody means."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def numeric_words(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of the values are numbers, or words that spell one."""
    if values.dtype.kind == "U" and not (np.char.find(values, "_") >= 0).any():
        try:
            values.astype(np.float64)  # all at once, where all are
            return np.ones(len(values), np.bool_)
        except ValueError:
            pass
    return np.array([not isinstance(value, bool | np.bool_) and is_number(str(value)) for value in values], np.bool_)


def whole_numbers(field: str, values: NDArray[Any]) -> Labels:
    """Labels that are 0, 1, 2, ..."""
    if values.dtype.kind in "UTO":
        wrong = np.flatnonzero(~numeric_words(values))
        if len(wrong):
            raise InvalidInput(field, str(values[wrong[0]]), "labels must be numbers here: number the classes 0, 1, 2")
        values = np.array([float(str(value)) for value in values])
    good = values.ndim == 1 and (values.dtype.kind in "iufb")
    require(good, field, f"{values.dtype}{list(values.shape)}", "labels must be one number for each record")
    with np.errstate(invalid="ignore"):
        bad = values[~((values >= 0) & (values == np.floor(values)) & (values < 2**31 - 1))]
    if len(bad):
        remedy = "number the classes 0, 1, 2, ..., or name them in their order, labels = [...]"
        raise InvalidInput(field, bad[0].item(), remedy)
    return values.astype(np.int32)
