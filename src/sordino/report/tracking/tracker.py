"""What a tracker is, which there are, and what is sent to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from sordino.errors import require
from sordino.privacy import wording
from sordino.privacy.guarantee import Certificate
from sordino.report.tracking.mlflow import MLflow
from sordino.report.tracking.tensorboard import TensorBoard
from sordino.report.tracking.wandb import WeightsAndBiases


class Tracker(Protocol):
    """One run at a tracker."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Send the figures of an evaluation."""

    def text(self, name: str, text: str) -> None:
        """Send a text, as the certificate."""

    def close(self) -> None:
        """Send what is left."""


TRACKERS: dict[str, Callable[[str, Path], Tracker]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WeightsAndBiases,
}


def require_tracker(kind: str) -> None:
    """Refuse a tracker that is not known, or whose package is not installed, before anything runs."""
    require(kind in TRACKERS, "track", kind, f"use one of {', '.join(TRACKERS)}")
    there = find_spec(kind) is not None
    require(there, "track", kind, f"is not installed: run `pip install {kind}`, or leave it out")


class Tracking:
    """Sends rows of metrics as they come; `everything` also sends what no guarantee covers."""

    def __init__(self, kind: str, certificate: Certificate, folder: Path, *, everything: bool) -> None:
        require_tracker(kind)
        self._begin, self._certificate, self._everything = TRACKERS[kind], certificate, everything
        self._folder = folder
        self._tracker: Tracker | None = None
        self.held_back = None if everything else wording.why_not_covered(certificate)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._tracker is not None:
            self._tracker.close()

    def send(self, row: Mapping[str, Any]) -> None:
        """One evaluation. The first begins the run there: one that is refused leaves no trace."""
        if self._tracker is None:
            self._tracker = self._begin(self._folder.name, self._folder)
            self._tracker.text("certificate", str(self._certificate))
        self._tracker.log(self._sent(row), int(row["round"]))

    def _sent(self, row: Mapping[str, Any]) -> dict[str, float]:
        """The figures of a row that may be sent."""
        measured = {key: value for key, value in row.items() if key not in _NOT_MEASURED}
        chosen = {"epsilon": row["epsilon"]} | ({} if self.held_back else measured)
        if self._everything:
            chosen |= {f"not_private/{key}": value for key, value in row.get("not_private", {}).items()}
        return {key: float(value) for key, value in chosen.items() if _is_number(value)}


_NOT_MEASURED = ("round", "rounds", "seconds", "epsilon", "epsilon_of", "not_private")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
