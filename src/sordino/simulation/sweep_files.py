"""A sweep's folder: the configuration, and a file for each point that is finished, so that a killed sweep goes on."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from sordino.errors import InvalidInput, require
from sordino.simulation.checkpoint import write_atomically
from sordino.simulation.running import Run, storable

__all__ = ["SweepFiles"]


class SweepFiles:
    """See the module."""

    def __init__(self, folder: Path, config: str) -> None:
        """Make the folder, or take it up again if it holds the same sweep."""
        self.folder, self._points = folder, folder / "points"
        kept = folder / "config.toml"
        if (folder / "ledger.jsonl").exists():
            raise InvalidInput("run", str(folder), "holds a single run: choose another name")
        if kept.exists():
            remedy = f"holds another sweep: run {kept} to complete that one, or choose another name"
            require(kept.read_text() == config, "run", str(folder), remedy)
        self._points.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, config.encode())

    def load(self, point: int) -> dict[str, Any] | None:
        """The record of a finished point, None if it has to be run."""
        path = self._path(point)
        if not path.exists():
            return None
        record: dict[str, Any] = json.loads(path.read_text())
        for row in record["history"]:  # JSON has no NaN
            row |= {name: math.nan for name, value in row.items() if value is None}
        return record

    def save(self, point: int, values: dict[str, Any], seed: int, run: Run) -> None:
        """Keep a finished point."""
        record = {
            "point": point,
            "values": values,
            "seed": seed,
            "diverged": run.diverged,
            "seconds": run.seconds,
            "history": run.history,
            "certificate": run.certificate.to_json(),
        }
        write_atomically(self._path(point), json.dumps(storable(record), indent=1, allow_nan=False).encode())

    def _path(self, point: int) -> Path:
        return self._points / f"{point:05d}.json"
