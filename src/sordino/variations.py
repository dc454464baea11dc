"""One file that stands for many runs.

    local_lr = { grid = [0.01, 0.03, 0.1] }     grids multiply: every value with every value of the others
    seed = [0, 1, 2]                            plain lists advance together: the first values, the second ones, ...

A list stands where one value is expected; a key that takes a list of its own is varied with a grid of lists.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from sordino.errors import InvalidInput, require

__all__ = ["Variation", "variations"]

Place = tuple[str, ...]


class Variation(NamedTuple):
    """What one run's file would say, and what is its own in it: {"algorithm.local_lr": 0.03}."""

    values: dict[str, Any]
    changes: dict[str, Any]


def variations(values: dict[str, Any], takes_list: Callable[[str, str], bool]) -> list[Variation]:
    """Every run that the file stands for, itself alone if nothing varies.

    Args:
      values: the file, parsed.
      takes_list: of a section and a key, whether its value may itself be a list.

    An error's field is the place, as algorithm.local_lr.start.
    """
    grids, lists = {}, {}
    for place, value in _leaves(values):
        if isinstance(value, dict):
            grids[place] = _choices(place, value["grid"])
        elif isinstance(value, list) and len(place) == 2 and not takes_list(*place):
            lists[place] = _choices(place, value)
    lengths = {len(choices) for choices in lists.values()}
    if len(lengths) > 1:
        place, choices = next(iter(lists.items()))
        sizes = ", ".join(f"{'.'.join(place)}: {len(choices)}" for place, choices in lists.items())
        remedy = f"lists advance together and must be equally long ({sizes}); write {{ grid = [...] }} to multiply"
        raise InvalidInput(".".join(place), choices, remedy)
    together = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)] if lists else [{}]
    result = []
    for row in itertools.product(*grids.values()):
        for also in together:
            changes = dict(zip(grids, row, strict=True)) | also
            result.append(Variation(_with(values, changes), {".".join(place): v for place, v in changes.items()}))
    return result


def _leaves(values: dict[str, Any], above: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Values by their place; a grid is a value."""
    for key, value in values.items():
        if isinstance(value, dict) and set(value) != {"grid"}:
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _choices(place: Place, choices: Any) -> list[Any]:
    require(isinstance(choices, list) and len(choices) > 0, ".".join(place), choices, "give a list of values")
    return list(choices)


def _with(values: dict[str, Any], changes: dict[Place, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(values)
    for place, value in changes.items():
        inside = changed
        for key in place[:-1]:
            inside = inside[key]
        inside[place[-1]] = value
    return changed
