"""Weights & Biases: a run of the project `sordino`; WANDB_MODE=offline keeps it on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


class WeightsAndBiases:
    """One run. Neither code nor the command line is sent: they may name a seed or paths of data."""

    def __init__(self, name: str, folder: Path) -> None:
        import wandb

        settings = wandb.Settings(
            disable_git=True,
            save_code=False,
            disable_code=True,
            console="off",
            x_disable_meta=True,
            x_disable_stats=True,
        )
        self._run = wandb.init(project="sordino", name=name, dir=str(folder), settings=settings)

    def log(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def text(self, name: str, text: str) -> None:
        self._run.summary[name] = text

    def close(self) -> None:
        self._run.finish()
