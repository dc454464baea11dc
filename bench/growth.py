"""`python -m bench.growth`: how seconds and memory grow with clients and parameters, and what 10^7 and 10^8 would take.

Rounds of DP-FedAvg with central noise on the lattice, by the engine, each setting in a process of its own:

    population   a cohort of 1,000 out of N clients with 2 records of 8 features, logistic regression
    parameters   2 and 6 clients that take one step on 10 records, MLPs with d parameters in two hidden layers

    seconds a round = a N + K (s_model d) + c d      a from the populations; s_model and c from 2 and 6 clients
    memory          = m_N N + m_d d + base

Each coefficient is the slope between the two largest settings that are run. The last line is the model's figure for
N = 10^7, K = 1,000 and d = 10^8; it is an extrapolation, and says so.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

import jax
import numpy as np

import sordino as so
from sordino.data import FederatedData
from sordino.models import get
from sordino.runs.blocks import Program, make_blocks
from sordino.runs.memory import peak_mib
from sordino.runs.point import Point
from sordino.tasks import Task

TIMED, COHORT = 3, 1000
POPULATIONS, HIDDEN, FEW, MORE = (10**5, 10**6, 10**7), (1_000, 3_000), 2, 6


@dataclass(frozen=True)
class Setting:
    """Of one process."""

    clients: int
    cohort: int
    records: int
    features: int
    model: str


@dataclass(frozen=True)
class Measured:
    """Of a round."""

    seconds: float
    memory_mib: float  # the peak of the process without the arrays of records
    d: int


def measure(setting: Setting) -> Measured:
    """The median of a few rounds, after one that does not count."""
    n = setting.clients * setting.records
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, setting.features), dtype=np.float32)
    y = (x[:, 0] > 0).astype(np.int32)
    start = np.arange(setting.clients, dtype=np.int32) * setting.records
    size = np.full(setting.clients, setting.records, np.int32)
    data = FederatedData(x, y, start, size, x[:10].copy(), y[:10].copy(), 2)
    task = Task("random", data, get(setting.model, (setting.features,), 2))
    method = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(1.0))
    cohort = "full" if setting.cohort == setting.clients else f"fixed:{setting.cohort}"
    plan = so.plan(method, rounds=TIMED + 1, cohort=cohort, noise_multiplier=1.0, delta=1e-8)
    point = Point(plan, 0, plan.resolve(task.population))
    (block,) = make_blocks([point], task)
    program = Program(block, [point], task)
    state, times = program.initial(), []
    for k in range(TIMED + 1):
        began = time.perf_counter()
        state, _ = program.advance(state, k, k + 1)
        jax.block_until_ready(state)
        times.append(time.perf_counter() - began)
    return Measured(statistics.median(times[1:]), peak_mib() - (x.nbytes + y.nbytes) / 2**20, task.d)


def in_a_process(setting: Setting) -> Measured:
    """The same, where nothing ran before."""
    command = [sys.executable, "-m", "bench.growth", "--setting", json.dumps(asdict(setting))]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return Measured(**json.loads(out))


def slope(y0: float, y1: float, x0: float, x1: float) -> float:
    """Of the line through two points; a difference within the noise of the clock is no growth."""
    return max(0.0, (y1 - y0) / (x1 - x0))


def main() -> None:
    """A line a setting, the coefficients, and the figure for 10^7 clients and 10^8 parameters."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setting", help="one setting alone, in this process, as JSON")
    given = parser.parse_args()
    if given.setting:
        print(json.dumps(asdict(measure(Setting(**json.loads(given.setting))))))
        return
    by_population = []
    for clients in POPULATIONS:
        found = in_a_process(Setting(clients, COHORT, 2, 8, "logistic"))
        by_population.append(found)
        print(
            f"N = {clients:>9,}, K = {COHORT:,}: {1000 * found.seconds:.1f} ms, {found.memory_mib:.0f} MiB", flush=True
        )
    by_parameters = []
    for hidden in HIDDEN:
        few, more = (in_a_process(Setting(K, K, 10, 64, f"mlp:{hidden},{hidden}")) for K in (FEW, MORE))
        by_parameters.append((few, more))
        line = f"{FEW} clients {few.seconds:.3f} s, {MORE} clients {more.seconds:.3f} s"
        print(f"d = {few.d:>11,}: {line}, {more.memory_mib:.0f} MiB", flush=True)
    (N0, N1), (p0, p1) = POPULATIONS[-2:], by_population[-2:]
    (few0, _), (few1, more1) = by_parameters[-2:]
    a, m_N = slope(p0.seconds, p1.seconds, N0, N1), slope(p0.memory_mib, p1.memory_mib, N0, N1)
    client = slope(few1.seconds, more1.seconds, FEW, MORE) / few1.d
    c = max(0.0, few1.seconds / few1.d - FEW * client)
    m_d = slope(few0.memory_mib, few1.memory_mib, few0.d, few1.d)
    base = few1.memory_mib - m_d * few1.d
    print(f"a client of the population: {a:.2e} s a round, {m_N * 2**20:.0f} bytes")
    print(f"a parameter: {client:.2e} s a client and step, {c:.2e} s a round, {m_d * 2**20:.0f} bytes")
    N, K, d = 10**7, COHORT, 10**8
    seconds, memory = a * N + K * client * d + c * d, m_N * N + m_d * d + base
    print(f"extrapolated, N = 10^7, K = {K:,}, d = 10^8, one step: {seconds:.0f} s a round, {memory / 1024:.1f} GiB")


if __name__ == "__main__":
    main()
