"""A grid as one program against its runs one after another, in one process: paper 3's tuning table.

    python -m bench.sweeps [--rounds 200] [--alone 8] [--rates 7] [--bounds 6]

Fashion-MNIST, 3000 clients, a fifth of them a round; 7 learning rates x 6 bounds x 2 epsilons x 2 methods = 168 runs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable

import numpy as np

import sordino as so
from sordino.runs import Options, Point, environment, sweep

# Appendix G: eta_0 = 0.001 * 2^i. The paper's bounds are on a scale of its own, so ours halve from 500.
RATES = [0.001 * 2.0**i for i in range(7)]
BOUNDS = [500.0 / 2**i for i in range(6)]


def grid(rounds: int, rates: list[float], bounds: list[float]) -> list[Point]:
    points = []
    methods: tuple[Callable[[float], so.Bounder], ...] = (so.clip, so.normalize)
    for bound, epsilon, rate, C in itertools.product(methods, (5.0, 1.5), rates, bounds):
        algorithm = so.fedavg(
            local_steps=20,
            local_lr={"start": rate, "decay": 0.99},
            weight_decay=1e-4,
            server_momentum=0.8,
            bound=bound(C),
        )
        points.append(
            Point(so.plan(algorithm, rounds=rounds, cohort="poisson:0.2", epsilon=epsilon, delta=1e-5), seed=0)
        )
    return points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--alone", type=int, default=8, help="runs that are also made one after another")
    parser.add_argument("--rates", type=int, default=7)
    parser.add_argument("--bounds", type=int, default=6)
    options = parser.parse_args()
    task = so.task("fashion-mnist", clients=3000, partition="shards:5", model="logistic")
    points = grid(options.rounds, RATES[: options.rates], BOUNDS[: options.bounds])
    chosen = np.linspace(0, len(points) - 1, options.alone).astype(int).tolist()
    every = max(1, options.rounds // 2)
    for point in points:
        point.plan.resolve(task.population)  # calibrates: the same work for both, and kept
    started = time.perf_counter()
    for number in chosen[:1] + chosen[-1:]:  # both methods
        so.simulate(points[number].plan, task, seed=0, evaluate_every=every)
    cold = time.perf_counter() - started
    started = time.perf_counter()
    alone = {number: so.simulate(points[number].plan, task, seed=0, evaluate_every=every) for number in chosen}
    each = (time.perf_counter() - started) / len(chosen)
    compiling = cold - 2 * each
    started = time.perf_counter()
    together = sweep(points, task, Options(evaluate_every=every))
    whole = time.perf_counter() - started
    started = time.perf_counter()
    sweep(points, task, Options(evaluate_every=every))
    again = time.perf_counter() - started
    differences = [
        abs(a["accuracy"] - b["accuracy"])
        for number, run in alone.items()
        for a, b in zip(run.history, together[number].history, strict=True)
    ]
    result = {
        "points": len(points),
        "rounds": options.rounds,
        "seconds_each_alone": each,
        "seconds_all_alone": each * len(points),
        "seconds_compiling_alone": compiling,
        "seconds_sweep": again,
        "seconds_compiling_sweep": whole - again,
        "ratio_compiled": again / (each * len(points)),
        "ratio_with_compiling": whole / (each * len(points) + compiling),  # alone: one for each length of segment
        "largest_difference_of_accuracy": max(differences),
        "best_accuracy": max(run.accuracy for run in together),
        "environment": environment(),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
