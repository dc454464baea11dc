"""Paper 4, Table 3 with its models evaluated as the code that the paper builds on might do it.

    python -m experiments.paper4.evaluations --only '^beta 1, dp-sgd$' [--set SECTION.KEY=VALUE]

*Statistics.* Batch normalization in PyTorch keeps averages of the means and variances of the batches that it trains on,

    s <- (1 - m) s + m s_batch,  m = 0.1,

and standardises test images by them. Ten workers that take turns with one model replace 65 % of s in a round, so s was
measured on training images, at models that are one round old and more. Where steps are long this costs accuracy.

Sordino's ResNet-20 keeps no s, which would be one more message without bound or noise, and takes the statistics of the
test images. Here s is computed after the run, from its last models x^{K-4}, ..., x^K: batches of the workers' sizes,
drawn anew, at all models before the one that is evaluated, oldest first. Of x^K, x^{K-1} and x^{K-2}, for which 99, 96
and 88 % of the weights of s are there, the mean is taken.

*Augmented.* The paper's test images are a tenth of the training images. Held out by PyTorch's `random_split`, they
pass through the transform of the training set, and are changed at random like it.

Each cell is evaluated in all four ways. Runs that promise anything have no business here.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sordino.experiments.provenance import commit_of_the_code, provenance
from sordino.experiments.specs import find_spec
from sordino.keys import key_of
from sordino.models.model import Array, Params
from sordino.models.resnet20 import scores
from sordino.runs import Options, Point, sweep
from sordino.tasks import Records, Task
from sordino.types import Key

MOMENTUM = 0.1  # m
EVALUATED = 3  # of the last five models, whose predecessors among the five make up s
TEST_BATCH = 1000


WAYS = {  # by running averages or not, test images changed like those of training or not
    "": (False, False),
    ", running averages": (True, False),
    ", augmented": (False, True),
    ", running averages, augmented": (True, True),
}


class Statistics(NamedTuple):
    """Of the channels of one layer."""

    mean: Array
    variance: Array


def standardized(x: Array, s: Statistics) -> Array:
    """What a convolution [C, H, W, N] has found, standardised by s."""
    mean, variance = (value[:, None, None, None] for value in s)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5)


def of_batch(params: Params, x: Array, dtype: str) -> list[Statistics]:
    """s_batch, a layer each; variances are unbiased, as PyTorch averages them."""
    found: list[Statistics] = []

    def standardize(x: Array) -> Array:
        s = Statistics(jnp.mean(x, (1, 2, 3)), jnp.var(x, (1, 2, 3)))
        count = x[0].size
        found.append(s._replace(variance=s.variance * count / (count - 1)))
        return standardized(x, s)

    scores(params, x, standardize, dtype)
    return found


@functools.partial(jax.jit, static_argnames=("task", "batch_size", "dtype"))
def running(task: Task, records: Records, models: Array, key: Key, *, batch_size: int, dtype: str) -> list[Statistics]:
    """s after rounds that began at `models`, oldest first; divided by its weights, which begin with these rounds."""

    def one(s: list[Statistics], turn: tuple[Array, Array]) -> tuple[list[Statistics], None]:
        k, worker = turn
        key_draw, key_change = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, k), worker))
        rows = records.start[worker] + jax.random.randint(key_draw, (batch_size,), 0, records.size[worker])
        x = records.x[rows]
        x = x if task.augment is None else task.augment(key_change, x)
        new = of_batch(task.params(models[k]), x, dtype)
        return jax.tree.map(lambda s, new: (1 - MOMENTUM) * s + MOMENTUM * new, s, new), None

    rounds, workers = len(models), task.clients
    turns = (jnp.repeat(jnp.arange(rounds), workers), jnp.tile(jnp.arange(workers), rounds))
    like = jax.eval_shape(lambda x: of_batch(task.params(models[0]), x, dtype), records.x[:batch_size])
    s, _ = jax.lax.scan(one, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like), turns)
    return jax.tree.map(lambda s: s / (1 - (1 - MOMENTUM) ** (rounds * workers)), s)


def accuracy(task: Task, w: Array, s: list[Statistics] | None, dtype: str, changed: Key | None = None) -> float:
    """Share of test images that are named rightly, standardised by s or themselves; augmented with a key."""
    x, y = task.test
    right = 0
    for number, first in enumerate(range(0, len(y), TEST_BATCH)):
        images = x[first : first + TEST_BATCH]
        if changed is not None:
            assert task.augment is not None
            images = task.augment(jax.random.fold_in(changed, number), images)
        right += int(_right(task, w, s, images, y[first : first + TEST_BATCH], dtype))
    return right / len(y)


@functools.partial(jax.jit, static_argnames=("task", "dtype"))
def _right(task: Task, w: Array, s: list[Statistics] | None, x: Array, y: Array, dtype: str) -> Array:
    if s is None:
        named = task.predict(w, x)
    else:
        layers = iter(s)
        named = scores(task.params(w), x, lambda x: standardized(x, next(layers)), dtype)
    return jnp.sum(jnp.argmax(named, axis=1) == y)


def evaluated(task: Task, models: np.ndarray, batch_size: int, key: Key, dtype: str) -> dict[str, float]:
    """Accuracy in all four ways: the mean over the last of five models, each with the s of those before it."""
    key_batches, key_changes = jax.random.split(key)
    found: dict[str, list[float]] = {}
    for place in range(len(models) - EVALUATED, len(models)):
        w, before = jnp.asarray(models[place]), jnp.asarray(models[:place])
        s = running(task, task.records, before, key_batches, batch_size=batch_size, dtype=dtype)
        changed = jax.random.fold_in(key_changes, place)
        for way, (by_running, on_changed) in WAYS.items():
            if on_changed and task.augment is None:
                continue
            value = accuracy(task, w, s if by_running else None, dtype, changed if on_changed else None)
            found.setdefault(way, []).append(value)
    return {way: statistics.fmean(values) for way, values in found.items()}


def main() -> None:
    """Run cells of Table 3, evaluate their last models in all ways, and write a result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="regular expression: cells whose 'row, column' it finds")
    parser.add_argument("--set", action="append", default=[], help="change to every run, as algorithm.batch_size=128")
    parser.add_argument("--commit", help="of the code, where git cannot be asked")
    parser.add_argument("--out", type=Path, default=Path("runs/table3-evaluations.json"))
    given = parser.parse_args()
    if given.out.is_dir():
        parser.error(f"--out {given.out} is a folder: name a file")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    commit = given.commit or commit_of_the_code()
    spec = find_spec("paper4-table3").part(given.only, given.set)
    points, (seed,) = spec.points(quick=False), spec.seeds(quick=False)
    task = points[0].config.task()
    dtype = "bfloat16" if "bfloat16" in (points[0].config.file.task.model or "") else "float32"
    planned = [Point(point.config.plan(), seed) for point in points]
    runs = sweep(planned, task, Options(evaluate_every=spec.evaluate_every(False), iterates=True))
    rows: list[dict[str, Any]] = []
    for point, run in zip(points, runs, strict=True):
        cell, batch_size = point.cell, point.config.file.algorithm.model_dump()["batch_size"]
        assert run.iterates is not None  # asked for
        for way, found in evaluated(task, run.iterates[-5:], batch_size, key_of(seed), dtype).items():
            row = {"row": cell.row, "column": f"{cell.column}{way}", "paper": cell.paper, "mean": round(100 * found, 3)}
            rows.append(row | {"std": None, "seeds": [seed]})
            print(rows[-1], flush=True)
    parts = ["python -m experiments.paper4.evaluations", f"--only '{given.only}'"]
    command = " ".join(parts + [f"--set {change}" for change in given.set])
    metric = "test accuracy (%), mean of the last three rounds, evaluated in four ways"
    result = {"name": "table3-evaluations", "scope": spec.scope, "metric": metric, "rows": rows}
    given.out.write_text(
        json.dumps(result | {"guarantees": [], "provenance": provenance(command, commit)}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
