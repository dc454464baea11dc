"""The runs in a folder, one line each. Nothing is verified here: `sordino certify` and `sordino report` do that."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from sordino.errors import SordinoError, require
from sordino.privacy import wording
from sordino.report.comparison import COMPARISON, parts_of_comparison
from sordino.report.page import measured_of, promised_total
from sordino.report.readers import TABLE
from sordino.report.subject import Tables, planned_rounds, public_task, settings_of
from sordino.runs.agreement import was_run
from sordino.runs.names import DESCRIPTION, ENVIRONMENT, LEDGER, METRICS, POINTS, STATEMENT, STATUS
from sordino.runs.store import RunStore, point_folders
from sordino.runs.stored import StoredRun

Kind = Literal["run", "sweep", "comparison", "study", "damaged"]


@dataclass(frozen=True)
class Listed:
    """A run, a sweep, a comparison or a study in the folder."""

    name: str
    kind: Kind
    task: str = ""
    method: str = ""
    done: int = 0  # rounds, points of a sweep, or runs of a comparison
    planned: int = 0  # 0: not known yet, as of a comparison that goes on
    finished: bool = False
    epsilon: str = ""  # of all planned rounds
    against: str = ""
    epsilon_of: str = ""  # unit, relation, observer, delta, accountant and assumptions
    caution: str = ""  # what limits this epsilon: a seed that is known, noise that is not the ideal one
    measure: str = ""
    value: str | None = None  # None if nothing was measured, or it is not for everybody
    note: str = ""

    @property
    def going(self) -> bool:
        """Whether it has not ended, so that it may be running."""
        return not self.finished and self.kind != "damaged"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def list_runs(folder: Path, *, public: bool = False) -> list[Listed]:
    """What a folder of runs holds, by name; with `public`, without figures that no guarantee covers."""
    require(folder.is_dir(), "folder", str(folder), "is not a folder: give the folder of all runs")
    return [listed_run(each, public=public) for each in run_folders(folder)]


def run_folders(folder: Path) -> list[Path]:
    """The folders in which something has run."""
    return sorted(each for each in folder.iterdir() if each.is_dir() and holds_something(each))


def stamp(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Changes when a run goes on: the sizes and times of the files that grow."""
    names = (METRICS, ENVIRONMENT, STATUS, POINTS, COMPARISON)
    paths = (*(folder / name for name in names), *(part / POINTS for part in parts_of_comparison(folder)))
    stats = [(str(path.relative_to(folder)), path.stat()) for path in paths if path.exists()]
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


def listed_run(folder: Path, *, public: bool = False) -> Listed:
    """One of them; a folder that cannot be read is listed as damaged."""
    try:
        if (folder / DESCRIPTION).exists():
            return _study(folder, public)
        if (folder / POINTS).is_dir():
            return _sweep(folder)
        return _run(folder, public) if was_run(folder) else _comparison(folder)
    except (SordinoError, OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        return Listed(folder.name, "damaged", note=str(error))


def holds_something(folder: Path) -> bool:
    """Whether a folder is itself that of a run, a sweep, a comparison or a study."""
    alone = was_run(folder) or (folder / POINTS).is_dir() or (folder / DESCRIPTION).exists()
    return alone or bool(parts_of_comparison(folder))


def _run(folder: Path, public: bool) -> Listed:
    stored = RunStore.read(folder)
    hidden = public and wording.why_not_covered(stored.certificate) is not None
    measure, value = measured_of(stored.metrics)
    done = int(stored.metrics[-1]["round"]) if stored.metrics else 0
    kept = None if hidden else value
    planned = planned_rounds(stored.certificate)
    return _with_promise(folder, "run", stored, done, planned, stored.finished, measure, kept)


def _sweep(folder: Path) -> Listed:
    """A sweep: its points that ended, and the promise of the first one."""
    points = point_folders(folder)
    begun = [RunStore.read(point) for point in points if (point / ENVIRONMENT).exists()]
    done = sum(stored.finished for stored in begun)
    if not begun:
        return Listed(folder.name, "sweep", planned=len(points))
    finished = done == len(points) and (folder / TABLE).exists()
    return _with_promise(folder, "sweep", begun[0], done, len(points), finished, "", None)


def _comparison(folder: Path) -> Listed:
    """A comparison: its runs that ended, and the promise of the first one. Tuning comes before it is known how many."""
    points = [point for part in parts_of_comparison(folder) for point in point_folders(part)]
    begun = [RunStore.read(point) for point in points if (point / ENVIRONMENT).exists()]
    done, finished = sum(stored.finished for stored in begun), (folder / COMPARISON).exists()
    if not begun:
        return Listed(folder.name, "comparison")
    listed = _with_promise(folder, "comparison", begun[0], done, len(points) if finished else 0, finished, "", None)
    methods = dict.fromkeys(str(settings_of(stored.config).get("algorithm", {}).get("name", "")) for stored in begun)
    return replace(listed, method=", ".join(methods))


def _with_promise(
    folder: Path,
    kind: Kind,
    stored: StoredRun,
    done: int,
    planned: int,
    finished: bool,
    measure: str,
    value: str | None,
) -> Listed:
    total, settings = promised_total(stored.certificate), settings_of(stored.config)
    epsilon = "none" if total is None else wording.format_epsilon(total.epsilon)
    return Listed(
        name=folder.name,
        kind=kind,
        task=_task_in_ledger(stored.folder / LEDGER) or _task_of(settings),
        method=str(settings.get("algorithm", {}).get("name", "")),
        done=done,
        planned=planned,
        finished=finished,
        epsilon=epsilon,
        against="" if total is None else str(total.observer),
        epsilon_of="" if total is None else total.whose,
        caution=wording.short_caution(stored.certificate),
        measure=measure,
        value=value,
    )


def _study(folder: Path, public: bool) -> Listed:
    description = json.loads((folder / DESCRIPTION).read_bytes())
    settings = settings_of(description.get("file"))
    status: dict[str, Any] = json.loads((folder / STATUS).read_bytes()) if (folder / STATUS).exists() else {}
    measure, value = measured_of([status["measured"]]) if status.get("measured") else ("", None)
    planned = int(status["rounds"]) if "rounds" in status else int(settings.get("run", {}).get("rounds", 0))
    return Listed(
        name=folder.name,
        kind="study",
        task=_task_of(settings),
        method=str(settings.get("algorithm", {}).get("name", "")),
        done=int(status.get("round", 0)),
        planned=planned,
        finished=(folder / STATEMENT).exists(),
        measure=measure,
        value=None if public else value,  # a study states no guarantee about what its server measured
        note=str(status.get("state", "")),
    )


def _task_of(settings: Tables) -> str:
    """The task of a run file: of one's own data the kind alone, because their path may tell something."""
    return public_task(str(settings.get("task", {}).get("name", "")))


def _task_in_ledger(path: Path) -> str:
    """The task that the first line of a ledger names."""
    with path.open("rb") as file:
        return public_task(str(json.loads(file.readline()).get("description", {}).get("task", "")))


def folder_named(folder: Path, name: str) -> Path | None:
    """The folder of a run of this name; None if the folder holds none."""
    found = next(_named(folder, name), None)
    return found if found is not None and holds_something(found) else None


def _named(folder: Path, name: str) -> Iterator[Path]:
    """Compared with what is there, so that no name leads out of the folder."""
    return (each for each in folder.iterdir() if each.name == name and each.is_dir())
