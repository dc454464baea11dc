"""`python -m bench.accelerator`: rounds of w1 to w3 by twenties, and whether an accelerator learns what a CPU does.

On the CPU: `JAX_PLATFORMS=cpu python -m bench.accelerator --losses losses.json` writes the test losses of ten rounds
without noise. On the accelerator: `--against losses.json` compares its own, multiplied as JAX does and in float32.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path

import jax

import sordino as so
from sordino.models import PRECISIONS
from sordino.runs.workloads import WORKLOADS, prepare, random_task

NAMES = ("w1", "w2", "w3")
ROUNDS, TIMED, COMPARED = 20, 7, 10


def seconds_a_round(name: str, precision: str) -> tuple[float, float]:
    """(seconds a round, the median of programs of twenty; seconds of compiling)."""
    program = prepare(WORKLOADS[name], rounds=ROUNDS, precision=precision)
    program.run(0)
    times = []
    for number in range(1, TIMED + 1):
        started = time.perf_counter()
        program.run(ROUNDS * number)
        times.append(time.perf_counter() - started)
    return statistics.median(times) / ROUNDS, program.compile_seconds


def losses(name: str, precision: str) -> list[float]:
    """The test loss after each of ten rounds without noise."""
    workload = WORKLOADS[name]
    task = replace(random_task(workload), precision=precision)
    plan = workload.plan()
    plan = so.plan(plan.method, rounds=COMPARED, cohort=str(plan.cohort), mechanism="none")
    history = so.simulate(plan, task, seed=0, evaluate_every=1).history
    return [row["test_loss"] for row in history]


def main() -> None:
    """A JSON line for each measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--losses", type=Path, help="write losses here, and measure no time")
    parser.add_argument("--against", type=Path, help="losses of another device")
    parser.add_argument("--workloads", nargs="+", default=NAMES, choices=NAMES)
    given = parser.parse_args()
    device = f"{jax.devices()[0].device_kind}, JAX {jax.__version__}, Sordino {so.__version__}"
    if given.losses is not None:
        given.losses.write_text(json.dumps({name: losses(name, "default") for name in given.workloads}) + "\n")
        return
    for name in given.workloads:
        for precision in PRECISIONS:
            seconds, compiling = seconds_a_round(name, precision)
            row = {"workload": name, "precision": precision, "ms": 1e3 * seconds, "compile_s": compiling}
            print(json.dumps(row | {"device": device}), flush=True)
    theirs = json.loads(given.against.read_text()) if given.against else {}
    for name in given.workloads:
        for precision in PRECISIONS if name in theirs else ():
            pairs = zip(losses(name, precision), theirs[name], strict=True)
            furthest = max(abs(ours - other) / abs(other) for ours, other in pairs)
            print(json.dumps({"workload": name, "precision": precision, "loss_off_by": furthest}), flush=True)


if __name__ == "__main__":
    main()
