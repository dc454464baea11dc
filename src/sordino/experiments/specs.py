"""A published table or figure as data: papers/paper<k>/<name>.toml, whose cells are run files beside it.

    title = "..."; metric = "accuracy"; data = ["fashion-mnist"]; minutes = 1; quick_minutes = 3; seeds = 3
    [quick]                                  the changes of the quick version for a CPU
    seeds = 1; set = ["run.rounds=30"]; note = "the order that it shows"
    [[cells]]
    row = "eps 5"; column = "clip"; paper = 75.59; file = "runs/....toml"; claim = "(5, 1e-5)"
    quick = ["algorithm.local_lr=0.1"]       further changes of this cell in the quick version
    [[figures]]
    name = "figure1"; metric = "accuracy"

A cell whose file is a sweep stands for all points; {section.key} in its texts is replaced by the point's value.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from sordino.config import Config, load_sweep
from sordino.errors import InvalidInput, near_misses, one_of_many, require

TEXTS = ("row", "column", "claim", "panel", "line")  # of a cell, with {section.key} for a sweep's values
PAPERS = Path(__file__).parent / "papers"
NAMED = 4  # cells that an error lists


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Cell(_Strict):
    """One cell, or one for each point of a sweep."""

    row: str
    column: str
    file: str
    paper: float | None = None
    claim: str | None = None  # the guarantee that the paper states
    panel: str = ""  # of the figures
    line: str | None = None
    set: tuple[str, ...] = ()  # changes to the file, section.key=value
    quick: tuple[str, ...] = ()  # further ones in the quick version

    @property
    def place(self) -> tuple[str, str]:
        """Its place in a heat map: the two parts of its row "a, b"."""
        down, comma, along = self.row.partition(", ")
        require(bool(comma), "row", self.row, "a heat map needs rows of two parts, as 'beta 1, gamma 0.1'")
        return down, along


class FigureSpec(_Strict):
    """A picture.

    "curves" shows a metric over rounds, "paths" the iterates in the plane in which they are widest around the
    minimiser, "heat-map" a metric of the table over the two parts of its rows "a, b".
    """

    name: str
    title: str
    metric: str = "accuracy"
    kind: Literal["curves", "paths", "heat-map"] = "curves"
    scale: Literal["linear", "log"] = "linear"
    lines: str = ""  # a regular expression: only the lines that match
    panels: str = ""


class Quick(_Strict):
    """The changes of the quick version, for a CPU."""

    seeds: int = 1
    set: tuple[str, ...] = ()
    rows: str = ""  # a regular expression: only the rows that match
    evaluate_every: int | None = None  # if left out, that of the full version
    note: str = ""  # the order that it shows, and its limits


class _File(_Strict):
    title: str
    metric: Literal["accuracy", "error", "highest-accuracy", "suboptimality", "distance"]
    data: tuple[str, ...]
    needs: str = ""  # where to put data that cannot be fetched
    minutes: float  # on a GPU
    estimated: bool = False  # minutes is an estimate, not measured in full
    quick_minutes: float  # on two CPU cores
    seeds: int
    first_seed: int = 0
    evaluate_every: int | None = None
    note: str = ""
    quick: Quick = Quick()
    cells: tuple[Cell, ...]
    figures: tuple[FigureSpec, ...] = ()


class Point(NamedTuple):
    """One run of a spec: its cell, with the texts filled in, and its configuration."""

    cell: Cell
    config: Config


@dataclass(frozen=True)
class Spec:
    """A checked spec."""

    paper: int
    name: str  # within the paper: table1-fashion-mnist
    path: Path
    file: _File
    only: str = ""  # a regular expression: only the cells whose "row, column" it finds
    changes: tuple[str, ...] = ()  # to every run, section.key=value

    def part(self, only: str | None, changes: Sequence[str]) -> Spec:
        """This spec with only some of its cells, or with changes."""
        try:
            re.compile(only or "")
        except re.error as error:
            raise InvalidInput("only", only, f"is not a regular expression ({error})") from None
        for change in changes:
            if change.partition("=")[0].strip() in ("run.seed", "run.evaluate_every"):
                raise InvalidInput("set", change, f"seeds and evaluations are the spec's: change them in {self.path}")
        return replace(self, only=only or "", changes=tuple(changes))

    @property
    def scope(self) -> str | None:
        """The part or the changes in words; None for the whole."""
        cells = [f"cells that match '{self.only}'"] if self.only else []
        return ", ".join([*cells, *self.changes]) or None

    def suffix(self, quick: bool) -> str:
        """The end of the names of files about less than the whole: -quick, and a digest of the scope."""
        digest = f"-{hashlib.sha256(self.scope.encode()).hexdigest()[:8]}" if self.scope else ""
        return "-quick" * quick + digest

    @property
    def full_name(self) -> str:
        """The name on the command line."""
        return f"paper{self.paper}-{self.name}"

    def points(self, quick: bool) -> list[Point]:
        """The runs, without their seeds."""
        points, names = [], []
        for cell in self.file.cells:
            changes = (*cell.set, *((*self.file.quick.set, *cell.quick) if quick else ()), *self.changes)
            for values, config in load_sweep(self.path.parent / cell.file, changes).points:
                texts = {name: _filled(getattr(cell, name), values) for name in TEXTS}
                if quick and not re.search(self.file.quick.rows, texts["row"] or ""):
                    continue
                names.append(f"{texts['row']}, {texts['column']}")
                if re.search(self.only, names[-1]):
                    points.append(Point(cell.model_copy(update=texts), config))
        if not points:
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            some = ", ".join(map(repr, names[:NAMED])) + more
            raise InvalidInput("only", self.only, f"matches no cell; there are {some}")
        return points

    def evaluate_every(self, quick: bool) -> int | None:
        """Rounds between evaluations."""
        return (self.file.quick.evaluate_every if quick else None) or self.file.evaluate_every

    def seeds(self, quick: bool) -> tuple[int, ...]:
        """The seeds, from the first one on."""
        count = self.file.quick.seeds if quick else self.file.seeds
        return tuple(range(self.file.first_seed, self.file.first_seed + count))


def all_specs() -> list[Spec]:
    """Every spec, by paper and name."""
    paths = sorted(PAPERS.glob("paper*/*.toml"), key=lambda path: (path.parent.name, path.stem))
    return [_load(path) for path in paths]


def find_spec(name: str) -> Spec:
    """The spec called `name`, for instance paper3-table1-fashion-mnist."""
    paper, _, inner = name.partition("-")
    path = PAPERS / paper / f"{inner}.toml"
    if not re.fullmatch(r"paper\d-[\w-]+", name) or not path.exists():
        names = [spec.full_name for spec in all_specs()]
        of_paper = [full for full in names if full.startswith(f"{paper}-")]
        alike = [full for full in names if name and name in full] or near_misses(name, of_paper) or of_paper
        raise InvalidInput("name", name, one_of_many(name, names, alike, "`sordino reproduce --list` shows all"))
    return _load(path)


def _load(path: Path) -> Spec:
    try:
        file = _File.model_validate(tomllib.loads(path.read_text()))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise InvalidInput("spec", str(path), f"is not a spec: {error}") from None
    return Spec(int(path.parent.name.removeprefix("paper")), path.stem, path, file)


def _filled(text: str | None, values: dict[str, Any]) -> str | None:
    """{section.key} replaced by the point's value."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            remedy = f"{match[1]} has one value only: make it a grid, for instance {match[1]}={{ grid = [0.1] }}"
            raise InvalidInput("cell", text, remedy)
        found = values[match[1]]
        return f"{found:g}" if isinstance(found, int | float) else str(found)

    return None if text is None else re.sub(r"\{([\w.]+)\}", value, text)
