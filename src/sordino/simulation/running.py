"""Running a plan: segments of compiled rounds, and between them evaluation, metrics, ledger and checkpoint.

The ledger is written before a segment runs, since a segment releases all of its rounds. A run that was killed and is
resumed repeats its last segment with the same keys, which releases the same messages again and nothing new; the ledger
already holds them.
"""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sordino
from sordino.errors import InvalidInput, require
from sordino.privacy.accountants import epsilon_of
from sordino.privacy.events import Composed, Event, Repeated
from sordino.privacy.guarantee import Certificate
from sordino.privacy.ledger import Ledger, read_ledger
from sordino.simulation.checkpoint import load_checkpoint, save_checkpoint, write_atomically
from sordino.simulation.engine import Carry, RoundInfo, Setting, run_rounds
from sordino.simulation.planning import Plan, Resolved
from sordino.simulation.tasks import Task
from sordino.types import Observer, Unit

__all__ = ["Progress", "Run", "environment", "load_model", "simulate"]

NOT_PRIVATE = ("train_loss", "mean_norm", "clipped_share", "dropped", "participants", "signal_to_noise")
Progress = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Run:
    """A finished run."""

    params: Any
    history: list[dict[str, Any]]
    certificate: Certificate
    seconds: float
    transcript: Any = None
    iterates: np.ndarray | None = None

    @property
    def accuracy(self) -> float:
        """Test accuracy after the last round, of a classifier."""
        return float(self.history[-1]["accuracy"])

    def mean_accuracy(self, last: int = 5) -> float:
        """Mean test accuracy over the last evaluations, as papers report it."""
        return float(np.mean([row["accuracy"] for row in self.history[-last:]]))


def simulate(
    plan: Plan,
    task: Task,
    *,
    seed: int = 0,
    evaluate_every: int | None = None,
    chunk: int | None = None,
    transcript: bool = False,
    iterates: bool = False,
    folder: Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Run:
    """Run a plan on a task.

    Args:
      plan: from `so.plan`.
      task: from `so.task`.
      seed: of everything that is random in the run.
      evaluate_every: rounds between evaluations (about twenty, if left out); the last five rounds are always seen.
      chunk: clients that are trained at a time; chosen from the memory, if left out.
      transcript: keep every message of every client, for audits.
      iterates: keep the model, as a flat vector, of every evaluation.
      folder: where metrics, ledger, checkpoint, certificate and model go.
      resume: go on from the checkpoint in `folder`.
      progress: called with a row of metrics after every evaluation.
    """
    started = time.perf_counter()
    resolved = plan.resolve(task.d, task.clients)
    setting = Setting(
        loss=task.loss,
        cohort=plan.cohort,
        population=task.clients,
        largest=task.largest,
        trust=resolved.trust,
        chunk=chunk or choose_chunk(task, plan),
        transcript=transcript,
        devices=jax.local_device_count(),
    )
    require(setting.chunk >= 1, "chunk", chunk, "must be at least 1")
    algorithm = resolved.algorithm
    key = jax.random.key(seed)
    w0 = task.initial(jax.random.fold_in(key, 2**31 - 1))
    carry = Carry(algorithm.init_server(w0), _population_state(algorithm, w0, task.clients))
    files = RunFiles.open(folder, plan, task, resolved, seed, resume) if folder is not None else None
    first, history = 0, []
    if files is not None and resume:
        first, carry = load_checkpoint(files.checkpoint, carry)
        history = files.metrics_until(first)
    transcripts, models = [], []
    for start, stop in segments(first, plan.rounds, evaluate_every or max(1, plan.rounds // 20)):
        if files is not None:
            files.record_releases(start, stop, resolved)
        carry, info = run_rounds(
            algorithm,
            resolved.mechanism,
            task.records,
            carry,
            key,
            jnp.int32(start),
            setting=setting,
            rounds=stop - start,
        )
        w = algorithm.params(carry.server)
        row = _row(stop, task.evaluate(w), info, plan, resolved)
        history.append(row)
        if iterates:
            models.append(np.asarray(w))
        if transcript:
            transcripts.append(jax.tree.map(np.asarray, info.transcript))
        if files is not None:
            files.append_metrics(row)
            save_checkpoint(files.checkpoint, stop, carry)
        if progress is not None:
            progress(row | {"rounds": plan.rounds, "seconds": time.perf_counter() - started})
    params = task.params(algorithm.params(carry.server))
    if files is not None:
        files.finish(params)
    seconds = time.perf_counter() - started
    return Run(
        params, history, resolved.certificate, seconds, transcripts or None, np.stack(models) if models else None
    )


def segments(first: int, rounds: int, every: int) -> list[tuple[int, int]]:
    """[start, stop) of the rounds between evaluations: every `every` rounds, and each of the last five."""
    stops = sorted({*range(every, rounds + 1, every), *range(max(1, rounds - 4), rounds + 1)})
    return [(start, stop) for start, stop in zip([0, *stops], stops, strict=False) if start >= first]


def choose_chunk(task: Task, plan: Plan) -> int:
    """As many clients at a time as fit the memory comfortably: a gigabyte on a CPU, a tenth of an accelerator's."""
    record = 4 * int(np.prod(np.shape(task.data.x)[1:])) + 8
    batch = plan.algorithm.local.batch_size or task.largest
    per_client = 8 * 4 * task.d + 4 * record * min(task.largest, batch)
    device = jax.local_devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    room = stats["bytes_limit"] / 10 if stats else 2.0**28
    return max(1, min(plan.cohort.capacity(task.clients), int(room / per_client)))


def environment() -> dict[str, Any]:
    """What a figure was made with."""
    device = jax.devices()[0]
    return {
        "sordino": sordino.__version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "device": f"{device.platform}: {device.device_kind}",
        "devices": jax.device_count(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def load_model(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a saved model, by their path in the parameters."""
    from safetensors.numpy import load_file

    return load_file(path)


def _row(rounds: int, measured: dict[str, float], info: RoundInfo, plan: Plan, resolved: Resolved) -> dict[str, Any]:
    """One line of metrics. Everything computed on private data stands under "not_private"."""
    noise, signal = np.asarray(info.noise, np.float64), np.asarray(info.signal, np.float64)
    ratio = float(np.mean(signal / np.maximum(noise, 1e-30))) if np.any(noise > 0) else None
    return {
        "round": rounds,
        **measured,
        "epsilon": _json_number(_spent(rounds, plan, resolved)),
        "not_private": {
            "participants": float(np.mean(info.participants)),
            "mean_norm": float(np.mean(info.mean_norm)),
            "clipped_share": float(np.mean(info.clipped_share)),
            "dropped": int(np.sum(info.dropped)),
            "signal_to_noise": ratio,
        },
    }


def _spent(rounds: int, plan: Plan, resolved: Resolved) -> float:
    """epsilon so far, against the observer who is promised something."""
    promised = Observer.SERVER if resolved.trust == "local" else Observer.MODEL_USER
    event: Event = Composed(
        tuple(Repeated(event, rounds) for _, observers, event in resolved.releases if promised in observers)
    )
    delta = resolved.certificate.total(promised).delta
    return epsilon_of(event, delta, plan.relation)


def _json_number(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"


def _population_state(algorithm: Any, w0: Any, clients: int) -> Any:
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (clients, *leaf.shape)), algorithm.init_client(w0))


class RunFiles:
    """A run's folder."""

    def __init__(self, folder: Path, ledger: Ledger, recorded: int) -> None:
        self.folder, self.ledger, self._recorded = folder, ledger, recorded
        self.metrics, self.checkpoint = folder / "metrics.jsonl", folder / "checkpoint.npz"

    @classmethod
    def open(cls, folder: Path, plan: Plan, task: Task, resolved: Resolved, seed: int, resume: bool) -> RunFiles:
        """Create a run's folder, or take it up again."""
        ledger_path = folder / "ledger.jsonl"
        if resume:
            if not (folder / "checkpoint.npz").exists():
                raise InvalidInput("resume", str(folder), "there is no checkpoint here: run without --resume")
            ledger = Ledger.open(ledger_path)
            rounds = [entry.round for entry in read_ledger(ledger_path).entries if entry.round is not None]
            return cls(folder, ledger, max(rounds, default=-1) + 1)
        if ledger_path.exists():
            raise InvalidInput("run", str(folder), "exists already: choose another name, or --resume")
        folder.mkdir(parents=True, exist_ok=True)
        certificate = json.dumps(resolved.certificate.to_json(), indent=2)
        write_atomically(folder / "certificate.json", certificate.encode())
        write_atomically(folder / "environment.json", json.dumps(environment() | {"seed": seed}, indent=2).encode())
        worst = Composed(tuple(dict.fromkeys(event for _, _, event in resolved.releases)))
        delta = resolved.certificate.guarantees[0].delta
        description = {"task": task.name, "delta": delta, "units": task.clients, "rounds": plan.rounds}
        ledger = Ledger.create(
            ledger_path, unit=Unit.CLIENT, relation=plan.relation, worst_release=worst, description=description
        )
        return cls(folder, ledger, 0)

    def record_releases(self, start: int, stop: int, resolved: Resolved) -> None:
        """Enter the rounds [start, stop) before they run, unless a killed run did already."""
        for round in range(max(start, self._recorded), stop):
            for name, observers, event in resolved.releases:
                self.ledger.append(round=round, release=name, observers=observers, event=event)
        self._recorded = max(self._recorded, stop)

    def append_metrics(self, row: dict[str, Any]) -> None:
        """One line."""
        with self.metrics.open("a") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")

    def metrics_until(self, rounds: int) -> list[dict[str, Any]]:
        """The lines up to a round; later ones, of a segment that will run again, are removed from the file."""
        kept = []
        for line in self.metrics.read_text().splitlines() if self.metrics.exists() else ():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:  # torn by a crash
                break
            if row["round"] <= rounds:
                kept.append(row)
        write_atomically(self.metrics, "".join(json.dumps(row) + "\n" for row in kept).encode())
        return kept

    def finish(self, params: Any) -> None:
        """Save the model and let go of the ledger."""
        from safetensors.numpy import save

        named = {
            jax.tree_util.keystr(path) or "params": np.asarray(leaf)
            for path, leaf in jax.tree_util.tree_leaves_with_path(params)
        }
        write_atomically(self.folder / "model.safetensors", save(named))
        self.ledger.close()
