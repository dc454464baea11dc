"""Rounds of one plan in one process on one core, and in as many processes as there are cores: their ratio.

    python -m bench.processes [workload]

The two are measured in turn, several times, since other work on the machine comes and goes; of each round, whose cohort
is always the same, the least seconds count. One process is bound to one core, and has one device.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys

ROUNDS, REPETITIONS = 7, 3  # the first round of each compiles


def seconds_of_rounds(name: str, coordinator: str, index: int, count: int) -> list[float]:
    """Seconds of each round but the first."""
    import jax

    from sordino.runs import simulate
    from sordino.runs.processes import ALONE, Group
    from sordino.runs.workloads import find_workload, random_task

    workload = find_workload(name)
    at: list[float] = []
    with Group.join(coordinator, index, count) if count > 1 else ALONE as group:
        assert jax.device_count() == count
        plan, task = workload.plan(ROUNDS), random_task(workload)
        simulate(plan, task, seed=0, evaluate_every=1, group=group, progress=lambda row: at.append(row["seconds"]))
    return [after - before for before, after in itertools.pairwise(at)]


def measured(name: str, count: int) -> list[float]:
    """The same in processes of their own."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{found.getsockname()[1]}"
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.processes", name, coordinator, str(index), str(count)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in range(count)
    ]
    said = [process.communicate()[0] for process in started]
    assert all(process.returncode == 0 for process in started)
    return list(json.loads(said[0].splitlines()[-1]))


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "w3"
    if len(sys.argv) > 2:
        coordinator, index, count = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
        if count == 1:
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
        print(json.dumps(seconds_of_rounds(name, coordinator, index, count)))
        return
    cores = len(os.sched_getaffinity(0))
    least = {1: [float("inf")] * (ROUNDS - 1), cores: [float("inf")] * (ROUNDS - 1)}
    for _ in range(REPETITIONS):
        for count in least:
            found = measured(name, count)
            least[count] = [min(pair) for pair in zip(least[count], found, strict=True)]
            each = ", ".join(f"{seconds:.3f}" for seconds in found)
            print(f"{count} processes: {each} s a round; load {os.getloadavg()[0]:.1f}", flush=True)
    one, several = (sum(least[count]) / (ROUNDS - 1) for count in (1, cores))
    print(f"{name}: {one:.3f} s a round on one core, {several:.3f} s in {cores} processes: {one / several:.2f} times")


if __name__ == "__main__":
    main()
