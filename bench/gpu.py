"""`make bench-gpu`: one round of alpha-NormEC on ResNet-20 beside one plain step on the same images, in one run.

Ten workers with 32 images each take their gradients at the same weights; a convolution repeats its small kernel for
each of them, which is faster than one product and a second layout of the patches. The plain step is one gradient of the
mean loss over the 320 images and one step along it, with our convolution and with XLA's own. "copied" gives each worker
weights of its own, as methods with local steps must. Runs on whatever device JAX has, with nothing installed but JAX,
NumPy and SciPy.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from sordino.algorithms.error_feedback import error_feedback
from sordino.bounding import smoothed_normalize
from sordino.data._records import FederatedData
from sordino.keys import key_of
from sordino.mechanisms import none
from sordino.models import Batch, get, resnet20
from sordino.planning.cohort import FullCohort
from sordino.planning.resolved import Rules
from sordino.rounds.engine import ProgramSpec, RoundState, run_rounds
from sordino.tasks import Task
from sordino.types import Trust

WORKERS, IMAGES, POOL = 10, 32, 4500
TARGET = 2.5


def make_task(workers: int, images: int, norm: str) -> Task:
    """Random images: speed does not depend on what they show."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((workers * images, 32, 32, 3), dtype=np.float32)
    y = rng.integers(0, 10, workers * images, dtype=np.int32)
    start = np.arange(workers, dtype=np.int32) * images
    data = FederatedData(x, y, start, np.full(workers, images, np.int32), x[:10], y[:10], 10)
    return Task("random images", data, get(f"resnet20:{norm}", (32, 32, 3), 10))


def engine_rounds(task: Task, batch: int, rounds: int) -> Callable[[], Any]:
    """`rounds` rounds through the engine, batches drawn and all."""
    method = error_feedback(beta=0.1, server_lr=0.1, bound=smoothed_normalize(0.01), batch_size=batch)
    rules = Rules.of(method, none(), Trust.NONE, FullCohort(), task.clients)
    spec = ProgramSpec(task.loss, FullCohort(), task.clients, task.largest, chunk=task.clients)
    w = task.initial(key_of(0))
    state = RoundState(method.init_server(w), jnp.zeros((task.clients, task.d)))
    arguments = (rules, task.records, state, key_of(1), jnp.int32(0))
    return partial(run_rounds, *arguments, spec=spec, rounds=rounds)


def plain_steps(task: Task, batch: int, rounds: int) -> Callable[[], Any]:
    """As many steps of gradient descent, each on workers x batch images at once, drawn anew as well."""
    records, n = task.records, task.clients * task.largest

    @jax.jit
    def steps(w: jax.Array, key: jax.Array) -> jax.Array:
        def step(w: jax.Array, k: jax.Array) -> tuple[jax.Array, None]:
            index = jax.random.randint(jax.random.fold_in(key, k), (task.clients * batch,), 0, n)
            images = Batch(records.x[index], records.y[index], jnp.ones(task.clients * batch))
            return w - 0.1 * jax.grad(task.loss)(w, images), None

        return jax.lax.scan(step, w, jnp.arange(rounds))[0]

    return partial(steps, task.initial(key_of(0)), key_of(1))


def copied_steps(task: Task, batch: int, rounds: int) -> Callable[[], Any]:
    """The gradients of all workers at weights of their own, averaged: what sharing the weights saves."""
    records = task.records

    @jax.jit
    def steps(w: jax.Array, key: jax.Array) -> jax.Array:
        def step(w: jax.Array, k: jax.Array) -> tuple[jax.Array, None]:
            draw = jax.random.randint(jax.random.fold_in(key, k), (task.clients, batch), 0, task.largest)
            index = records.start[:, None] + draw
            images = Batch(records.x[index], records.y[index], jnp.ones((task.clients, batch)))
            copies = jnp.broadcast_to(w, (task.clients, task.d)) + 1e-30 * jnp.arange(task.clients)[:, None]
            return w - 0.1 * jax.vmap(jax.grad(task.loss))(copies, images).mean(axis=0), None

        return jax.lax.scan(step, w, jnp.arange(rounds))[0]

    return partial(steps, task.initial(key_of(0)), key_of(1))


def lax_conv2d(
    x: jax.Array, kernel: jax.Array, bias: jax.Array | None = None, *, stride: int = 1, padding: int = 0
) -> jax.Array:
    """What `conv2d` computes, by XLA's own convolution."""
    images, layout = x.transpose(3, 1, 2, 0), ("NHWC", "HWIO", "NHWC")
    sides = [(padding, padding)] * 2
    out = jax.lax.conv_general_dilated(images, kernel, (stride, stride), sides, dimension_numbers=layout)
    out = out.transpose(3, 1, 2, 0)
    return out if bias is None else out + bias[:, None, None, None]


def measure(programs: dict[str, Callable[[], Any]], rounds: int, repetitions: int) -> dict[str, float]:
    """Median seconds of one round of each; they take turns."""

    def seconds(run: Callable[[], Any]) -> float:
        start = time.perf_counter()
        jax.block_until_ready(run())
        return (time.perf_counter() - start) / rounds

    for run in programs.values():
        seconds(run)
    times = [{name: seconds(run) for name, run in programs.items()} for _ in range(repetitions)]
    return {name: statistics.median(row[name] for row in times) for name in programs}


def main() -> None:
    """Measure and print; a missed target is a row that says so, never a failure."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--pool", type=int, default=POOL, help="images that a worker holds and draws from")
    parser.add_argument("--norm", choices=("batch", "group"), default="batch")
    parser.add_argument("--rounds", type=int, default=50, help="rounds in one program")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    task = make_task(options.workers, max(options.pool, options.images), options.norm)
    plain, copied = (make(task, options.images, options.rounds) for make in (plain_steps, copied_steps))
    programs = {"round": engine_rounds(task, options.images, options.rounds), "plain": plain, "copied": copied}
    with mock.patch.object(resnet20_module(), "conv2d", lax_conv2d):
        own = plain_steps(
            make_task(options.workers, max(options.pool, options.images), options.norm), options.images, options.rounds
        )
        jax.block_until_ready(own())  # traced while XLA's convolution stands in
    programs["plain, XLA's convolution"] = own
    times = measure(programs, options.rounds, options.repetitions)
    device = jax.devices()[0]
    ratio = times["round"] / times["plain"]
    result = {
        "workers": options.workers,
        "images": options.images,
        "norm": options.norm,
        "device": f"{device.platform}: {device.device_kind}",
        "jax": jax.__version__,
        "milliseconds": {name: 1000 * value for name, value in times.items()},
        "ratio": ratio,
        "ratio_to_xla_convolution": times["round"] / times["plain, XLA's convolution"],
        "target": TARGET,
        "ok": ratio <= TARGET,
    }
    if options.json:
        print(json.dumps(result, indent=2))
        return
    print(f"ResNet-20 ({options.norm} norm), {options.workers} workers x {options.images} images, {result['device']}")
    for name, value in times.items():
        print(f"  {name:26} {1000 * value:9.3f} ms   {value / times['plain']:.2f} plain steps")
    print(f"ratio {ratio:.2f}, target <= {TARGET:g}: {'ok' if result['ok'] else 'missed'}")


def resnet20_module() -> Any:
    """The module, whose name the function of the same name hides in its package."""
    return sys.modules[resnet20.__module__]


if __name__ == "__main__":
    main()
