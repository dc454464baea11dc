"""What `sordino compare` keeps: its table, and of each method the certificate and the first seed's metrics."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sordino.errors import InvalidInput
from sordino.files import write_atomically
from sordino.privacy.guarantee import Certificate
from sordino.report.series import Row
from sordino.report.subject import Compared, Shown, Subject, planned_rounds, settings_of
from sordino.runs.metrics import storable

FORMAT = "sordino-comparison-1"

Json = dict[str, Any]


def kept_method(name: str, task: str, config: str, certificate: Certificate, history: Sequence[Row]) -> Json:
    """One method."""
    return {
        "name": name,
        "task": task,
        "config": config,
        "certificate": certificate.to_json(),
        "history": list(history),
    }


def keep_comparison(path: Path, facts: Mapping[str, Any], rows: Sequence[Row], methods: Sequence[Json]) -> None:
    """Write the file, which tells of the records as metrics do."""
    kept = {"format": FORMAT, "facts": dict(facts), "rows": list(rows), "methods": list(methods)}
    write_atomically(path, json.dumps(storable(kept), allow_nan=False, indent=1).encode(), private=True)


class ComparisonReader:
    """A file of `sordino compare`."""

    def reads(self, path: Path) -> bool:
        return path.is_file() and path.suffix == ".json" and _object(path).get("format") == FORMAT

    def read(self, path: Path) -> Subject:
        kept = _object(path)
        runs = tuple(_shown(each) for each in kept["methods"])
        why = next((run.why_private for run in runs if run.why_private), None)
        return Subject("comparison", path.stem, runs, compared=Compared(kept["facts"], kept["rows"], why))


def _shown(kept: Mapping[str, Any]) -> Shown:
    certificate = Certificate.from_json(kept["certificate"])
    return Shown(
        name=str(kept["name"]),
        certificate=certificate,
        rows=[{name: math.nan if value is None else value for name, value in row.items()} for row in kept["history"]],
        planned=planned_rounds(certificate),
        finished=True,
        task=str(kept["task"]),
        settings=settings_of(kept["config"]),
    )


def _object(path: Path) -> Json:
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise InvalidInput("run", str(path), "is no JSON object: restore it") from None
    return found if isinstance(found, dict) else {}
