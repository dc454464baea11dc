"""A run read from its folder: certificate, ledger, metrics, run file, and a model that can be applied."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeAlias

from sordino.data.reading import Reading
from sordino.errors import InvalidInput, require
from sordino.models import Model
from sordino.privacy.guarantee import Certificate
from sordino.privacy.ledger import read_ledger
from sordino.privacy.ledger_record import LedgerRecord
from sordino.runs.applied import Applied
from sordino.runs.description import describe
from sordino.runs.metrics import read_rows
from sordino.runs.model_file import model_of, params_of, read_card
from sordino.runs.names import CERTIFICATE, CONFIG, ENVIRONMENT, LEDGER, METRICS, MODEL, POINTS, READING
from sordino.runs.point import Row
from sordino.tasks import Predictor

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, repr=False)
class StoredRun(Applied):
    """What the folder of a run holds."""

    folder: Path
    certificate: Certificate
    environment: Json
    metrics: list[Row]
    config: str | None
    own_model: Model | None = field(default=None, compare=False)  # of a run with a model that is not Sordino's

    @classmethod
    def read(cls, folder: Path, own_model: Model | None = None) -> Self:
        """What a folder holds, whether its run is finished or not. Takes no lock and writes nothing."""
        config = folder / CONFIG
        return cls(
            folder=folder,
            certificate=Certificate.from_json(read_json(folder / CERTIFICATE)),
            environment=read_json(folder / ENVIRONMENT),
            metrics=read_rows(folder / METRICS),
            config=config.read_bytes().decode(errors="replace") if config.exists() else None,
            own_model=own_model,
        )

    def __repr__(self) -> str:
        model = self.model if self.model_file is not None and self._applicable else None
        seconds = self.environment.get("seconds")
        return describe(self.task, self.metrics, self.certificate, model, seconds=seconds, folder=str(self.folder))

    @property
    def finished(self) -> bool:
        """Whether the last round was measured and everything is written."""
        return "seconds" in self.environment

    @property
    def task(self) -> str:
        """The name of what it was trained on."""
        return str(self.ledger.description.get("task", "a task"))

    @property
    def model_file(self) -> Path | None:
        """The file of the model, if there is one."""
        path = self.folder / MODEL
        return path if path.exists() else None

    @cached_property
    def ledger(self) -> LedgerRecord:
        """The releases, checked line by line."""
        return read_ledger(self.folder / LEDGER)

    @cached_property
    def reading(self) -> Reading | None:
        """How rows of a table become features and labels; None for a run on arrays."""
        path = self.folder / READING
        return Reading.from_json(read_json(path)) if path.exists() else None

    @cached_property
    def model(self) -> Predictor:
        """The model after the last round."""
        path = self.model_file
        if path is None:
            remedy = "holds no model: resume the run, or run the sweep with --models all"
            raise InvalidInput("run", str(self.folder), remedy)
        card = read_card(path)
        if card is None:
            raise InvalidInput("run", str(path), "was written by an earlier version: run it anew, or use so.load_model")
        model = self.own_model if self.own_model is not None else model_of(path, card)
        return Predictor(self.task, model, params_of(path, model), card.input_shape, card.classes, self.reading)

    def _trained(self) -> Predictor:
        return self.model

    @property
    def _applicable(self) -> bool:
        try:
            return bool(self.model)
        except InvalidInput:
            return False


def load_run(folder: str | Path, model: Model | None = None) -> StoredRun:
    """A run from its folder.

    Args:
      folder: runs/<name>, or a point of a sweep, runs/<name>/points/00003.
      model: the model, where the run trained one of your own.
    """
    named = isinstance(folder, str | Path)
    require(named, "run", type(folder).__name__, "give the folder of a run, as runs/NAME")
    path = Path(folder)
    swept = (path / POINTS).is_dir() and not (path / LEDGER).exists()
    require(not swept, "run", str(folder), f"holds a sweep: give one of its points, {path / POINTS / '00000'}")
    remedy = "there is no run here: give its folder, as runs/NAME"
    require((path / CERTIFICATE).is_file() and (path / ENVIRONMENT).is_file(), "run", str(folder), remedy)
    require(model is None or isinstance(model, Model), "model", model, "give a Model, as of sordino.models.from_loss")
    return StoredRun.read(path, model)


def read_json(path: Path) -> Json:
    """The values of a file of a run."""
    try:
        return dict(json.loads(path.read_bytes()))
    except OSError as error:
        raise InvalidInput("run", str(path), f"cannot be read ({error.strerror}): check the path") from None
    except (ValueError, TypeError):
        raise InvalidInput("run", str(path), "is no JSON object: restore it") from None
