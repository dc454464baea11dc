"""One spelling for each name: two spellings of one client would be two units of protection, each with its own noise."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from sordino.errors import InvalidInput

DIGITS = 28  # more are rounded


def number_key(word: str) -> str:
    """A word that is alike for 7, 07 and 7.0, exactly for any size; other words stay as they are."""
    try:
        number = Decimal(word)
        plain = number.is_finite() and len(number.as_tuple().digits) <= DIGITS and "_" not in word
        return str(number.normalize() + 0) if plain else word  # -0 + 0 is 0
    except ArithmeticError:  # no number, or one with too large an exponent
        return word


def require_one_spelling(field: str, names: Iterable[str], *, fold: bool = False) -> None:
    """Refuse names that differ only in how they write a number or, with `fold`, in upper and lower case."""
    seen: dict[str, str] = {}
    for name in names:
        key = number_key(name)
        other = seen.setdefault(key.casefold() if fold else key, name)
        if other != name:
            remedy = f"and {other!r} are two spellings of one name: write it one way, or give different names"
            raise InvalidInput(field, name, remedy)


def client_names(field: str, words: NDArray[np.str_]) -> NDArray[np.str_]:
    """The client of each record, without spaces around it and in Unicode's composed form (NFC)."""
    found, place = np.unique(words, return_inverse=True)
    names = [unicodedata.normalize("NFC", str(name)).strip() for name in found]
    require_one_spelling(field, sorted(set(names)), fold=True)
    return np.array(names, dtype=str)[place.reshape(-1)]
