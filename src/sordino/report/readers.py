"""Readers of what `sordino run` leaves. A certificate is shown only if all files agree with it."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sordino.errors import InvalidInput, SordinoError, require
from sordino.privacy import wording
from sordino.privacy.signing import VerifyingKey
from sordino.report.comparison import COMPARISON, parts_of_comparison
from sordino.report.study import StudyReader
from sordino.report.subject import (
    Compared,
    Digest,
    Grid,
    Point,
    Reader,
    Shown,
    Signature,
    Signed,
    Subject,
    planned_rounds,
    public_task,
    settings_of,
)
from sordino.report.sweeps import RULES, rule_for
from sordino.runs.agreement import Agreement, compare_run, was_run
from sordino.runs.digests import digest_of_file
from sordino.runs.names import CONFIG, ENVIRONMENT, MODEL, POINTS, RECORDS, SECRET, SIGNATURE
from sordino.runs.signature import verify_run
from sordino.runs.store import RunStore, point_folders
from sordino.runs.stored import StoredRun

TABLE = "table.csv"


class Disagreed(SordinoError):
    """Files of a run contradict each other: no guarantee is shown."""


@dataclass(frozen=True)
class RunReader:
    """The folder of a run or of a point."""

    key: VerifyingKey | None = None

    def reads(self, path: Path) -> bool:
        return path.is_dir() and was_run(path)

    def read(self, path: Path) -> Subject:
        shown = read_run(path, self.key)
        return Subject("run", shown.name, (shown,))


@dataclass(frozen=True)
class SweepReader:
    """The folder of a sweep that ended."""

    key: VerifyingKey | None = None

    def reads(self, path: Path) -> bool:
        return (path / POINTS).is_dir()

    def read(self, path: Path) -> Subject:
        require((path / TABLE).exists(), "run", str(path), "is a sweep that has not ended: run it again to complete it")
        runs = [read_run(folder, self.key) for folder in point_folders(path)]
        require(bool(runs), "run", str(path), "holds no points: restore them")
        grid, worth = _grid(path / TABLE, runs)
        of_number = {int(point.name): point for point in grid.points}
        runs = [named(run, of_number.get(int(run.name))) for run in runs]
        ranked = [run for _, run in sorted(zip(grid.points, runs, strict=False), key=lambda pair: worth(pair[0]))]
        return Subject("sweep", path.resolve().name, tuple(ranked), grid=grid)


@dataclass(frozen=True)
class ComparisonReader:
    """The folder of `sordino compare`: its figures, and of each method the first run of its best point."""

    key: VerifyingKey | None = None

    def reads(self, path: Path) -> bool:
        return (path / COMPARISON).is_file() or bool(parts_of_comparison(path))

    def read(self, path: Path) -> Subject:
        ended = (path / COMPARISON).is_file()
        require(ended, "run", str(path), "is a comparison that has not ended: repeat the command to complete it")
        try:
            kept = json.loads((path / COMPARISON).read_bytes())
            rows, methods = kept["rows"], [str(row["method"]) for row in kept["rows"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InvalidInput("run", str(path / COMPARISON), "is no comparison: repeat the command") from None
        runs = []
        for method in methods:
            best = point_folders(path / method.replace("/", "-") / "best")
            require(bool(best), "run", str(path), f"holds no run of {method}: repeat the command")
            runs.append(replace(read_run(best[0], self.key), name=method))
        why = next((run.why_private for run in runs if run.why_private), None)
        return Subject("comparison", path.resolve().name, tuple(runs), compared=Compared(kept, rows, why))


def readers(key: VerifyingKey | None = None) -> tuple[Reader, ...]:
    """All of them; signatures are checked with the key."""
    return (StudyReader(), RunReader(key), SweepReader(key), ComparisonReader(key))


def read_run(folder: Path, key: VerifyingKey | None = None) -> Shown:
    """A run whose files agree; with a key its signature must hold."""
    agreement = compare_run(folder)
    faults = agreement.disagreements
    signature = Signature()
    if key is not None:
        verified = verify_run(folder, key, agreement)
        faults = (*faults, *verified.disagreements)
        signature = Signature(Signed.VERIFIED, verified.key_id, verified.signed_at or "")
    elif (folder / SIGNATURE).exists():
        signature = Signature(Signed.UNCHECKED)
    if faults or agreement.record is None:
        listed = "; ".join(map(str, faults))
        raise Disagreed(f"{folder}: its files do not agree, and no guarantee is shown: {listed}")
    stored = RunStore.read(folder)
    described = agreement.record.description
    return Shown(
        name=folder.resolve().name,
        certificate=stored.certificate,
        rows=stored.metrics,
        planned=planned_rounds(stored.certificate),
        finished=stored.finished,
        task=public_task(str(described.get("task", ""))),
        settings=settings_of(stored.config),
        environment=stored.environment,
        digests=_digests(stored, agreement),
        signature=signature,
        agree=agreement.compared,
        notes=agreement.notes,
    )


def _digests(stored: StoredRun, agreement: Agreement) -> tuple[Digest, ...]:
    assert agreement.record is not None
    found = [Digest("ledger, last hash of its chain", agreement.record.last_hash)]
    model = digest_of_file(stored.folder / MODEL)
    found += [Digest("model", model)] if model else []
    fingerprint = agreement.record.description.get("fingerprint")
    found += [Digest("settings and program", str(fingerprint))] if fingerprint else []
    named = agreement.record.finish.files if agreement.record.finish else agreement.record.first_files
    keyed = {CONFIG: "run file, keyed", ENVIRONMENT: "environment, keyed"}
    found += [Digest(keyed.get(name, f"{name}, keyed"), str(named[name])) for name in SECRET if named.get(name)]
    data = stored.folder / RECORDS
    found += [Digest("data and seed", data.read_text().strip(), private=True)] if data.exists() else []
    return tuple(found)


def _grid(table: Path, runs: Sequence[Shown]) -> tuple[Grid, Callable[[Point], float]]:
    """What the points reached, and an order that puts the best first and the lost last."""
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = list(rows[0])
    varied = tuple(columns[columns.index("point") + 1 : columns.index("seed")])
    measures = {key for run in runs for key in run.rows[-1]}
    column, worth = RULES[rule_for(measures)]
    points = tuple(
        Point(row["point"], {key: _number(row[key]) for key in varied}, _measured(row, column)) for row in rows
    )
    why = next((run.why_private for run in runs if run.why_private), wording.SEVERAL_RUNS)
    return Grid(
        varied, column, points, why
    ), lambda point: math.inf if point.measured is None else -worth(point.measured)


def named(run: Shown, point: Point | None) -> Shown:
    """The run under the values of its point; for everybody without values that may tell of the data."""
    if point is None:
        return run
    public = {key: value for key, value in point.values.items() if not key.startswith(("task.", "rules."))}
    return replace(run, name=_label(point, point.values), public_name=_label(point, public))


def _label(point: Point, shown: Mapping[str, float | str]) -> str:
    """The point's number and these of its values, by the last words of their keys."""
    values = [
        f"{key.rpartition('.')[2]} {value:g}" if isinstance(value, float) else str(value)
        for key, value in shown.items()
    ]
    number = f"{int(point.name):05d}"
    return f"{number}: {', '.join(values)}" if values else number


def _measured(row: Mapping[str, str], column: str) -> float | None:
    value = _number(row[column])
    return value if isinstance(value, float) and math.isfinite(value) and row["diverged"] == "False" else None


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
