"""One file that stands for many runs.

    local_lr = { grid = [0.01, 0.03, 0.1] }     grids multiply: every value with every value of the others
    seed = [0, 1, 2]                            plain lists advance together: the first values, the second ones, ...

A list stands where one value is expected; a key whose value is a list is varied by a grid of lists.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from sordino.config.config import Config
from sordino.config.locate import Source, invalid_input, read
from sordino.config.rules import Resolved, resolve_rules
from sordino.config.rules import takes_list as constant_takes_list
from sordino.config.schema import File, file_model, takes_list
from sordino.errors import InvalidInput, require

if TYPE_CHECKING:
    from sordino.tasks import Task

Place = tuple[str, ...]
Values = dict[str, Any]  # TOML, parsed


class SweepPoint(NamedTuple):
    """One run of a sweep: the values that vary, by section.key, and its configuration."""

    values: Values
    config: Config


@dataclass(frozen=True)
class Sweep:
    """A file that stands for one run or many."""

    path: Path
    changed: str  # the text with the changes of --set
    points: tuple[SweepPoint, ...]

    @property
    def varied(self) -> tuple[str, ...]:
        """The keys that take several values, in the order of the file, grids first."""
        return tuple(self.points[0].values)

    def tasks(self) -> dict[str, Task]:
        """The tasks of the points by `Config.task_key`."""
        return tasks_of(config for _, config in self.points)


def tasks_of(configs: Iterable[Config]) -> dict[str, Task]:
    """The tasks of several runs by `Config.task_key`; each data set is read once."""
    made: dict[str, Task] = {}
    for config in configs:
        if config.task_key not in made:
            made[config.task_key] = config.task()
    return made


def load_config(path: Path, changes: tuple[str, ...] = ()) -> Config:
    """Read and check a file that holds one run; `changes` are section.key=value, as for --set."""
    sweep = load_sweep(path, changes)
    if sweep.varied:
        raise InvalidInput("file", str(path), f"holds {len(sweep.points)} runs, not one: `sordino run` takes it")
    return sweep.points[0].config


def load_sweep(path: Path, changes: tuple[str, ...] = ()) -> Sweep:
    """Read and check a file that may stand for many runs."""
    source, values = read(path, changes)
    try:
        several = variations(values, _takes_list)
    except InvalidInput as error:
        section, _, key = error.field.partition(".")
        place = source.place(section, key.partition(".")[0], name=f"[{section}] {key}")
        raise InvalidInput(place, error.value, error.remedy) from None
    points = [SweepPoint(changes, Config(source, *_checked(values, source))) for values, changes in several]
    return Sweep(path, source.changed, tuple(points))


def _takes_list(section: str, key: str) -> bool:
    return constant_takes_list(key) if section == "rules" else takes_list(section, key)


def _checked(values: Values, source: Source) -> tuple[File, tuple[Resolved, ...]]:
    values, resolved = resolve_rules(values, source)
    model = file_model(_value(values, "algorithm", "name"), _value(values, "privacy", "mechanism"))
    try:
        return model.model_validate(values), resolved
    except ValidationError as error:
        raise invalid_input(error, source, model) from None


def _value(values: Values, section: str, key: str) -> object:
    table = values.get(section)
    return table.get(key) if isinstance(table, dict) else None


class Variation(NamedTuple):
    """The values of one run's file, and those of them that vary: {"algorithm.local_lr": 0.03}."""

    values: Values
    changes: Values


def variations(values: Values, takes_list: Callable[[str, str], bool]) -> list[Variation]:
    """Every run that the file stands for; one, without changes, if nothing varies.

    Args:
      values: the file, parsed.
      takes_list: given a section and a key, whether the value may itself be a list.

    The field of an error is the place, for instance algorithm.local_lr.start.
    """
    grids, lists = {}, {}
    for place, value in _leaves(values):
        if isinstance(value, dict):
            grids[place] = _choices(place, value["grid"])
            twice = next((each for each in grids[place] if grids[place].count(each) > 1), None)
            require(twice is None, ".".join(place), grids[place], f"{twice} appears twice: name each value once")
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


def _leaves(values: Values, above: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Values by their place; a grid is a value."""
    for key, value in values.items():
        if isinstance(value, dict) and set(value) != {"grid"}:
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key), value


def _choices(place: Place, choices: object) -> list[Any]:
    if not isinstance(choices, list) or not choices:
        raise InvalidInput(".".join(place), choices, "give a list of values")
    return choices


def _with(values: Values, changes: dict[Place, Any]) -> Values:
    changed = copy.deepcopy(values)
    for place, value in changes.items():
        inside = changed
        for key in place[:-1]:
            inside = inside[key]
        inside[place[-1]] = value
    return changed
