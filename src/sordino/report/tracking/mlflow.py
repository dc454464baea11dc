"""MLflow: a run at the server of MLFLOW_TRACKING_URI, or where MLflow keeps runs without one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


class MLflow:
    """One run of MLflow's present experiment."""

    def __init__(self, name: str, folder: Path) -> None:
        import mlflow

        self._client = mlflow.MlflowClient()
        found = mlflow.set_experiment("sordino")
        self._run = self._client.create_run(found.experiment_id, run_name=name).info.run_id

    def log(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._client.log_metric(self._run, name, value, step=step)

    def text(self, name: str, text: str) -> None:
        self._client.log_text(self._run, text, f"{name}.txt")

    def close(self) -> None:
        self._client.set_terminated(self._run)
