"""`python -m bench.population`: a cohort of 1,000 out of 10^4 and out of 10^6 clients, in memory and from the disk.

Each case runs in a process of its own, through `so.simulate`: the seconds of a round are the median over stretches of
ten rounds, and memory is the peak of the process without the arrays of records. The cases take turns. Clients have 100
records of 16 features; those of a million clients take 6.8 GB, on the disk as well as in memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import sordino as so
from sordino.data import FederatedData
from sordino.models import get
from sordino.runs.memory import peak_mib
from sordino.tasks import Task

RECORDS, FEATURES, COHORT = 100, 16, 1000
STRETCH, STRETCHES, TURNS = 10, 12, 3
SMALL, LARGE = 10_000, 1_000_000
CASES = {
    "10^4 in memory": (SMALL, False),
    "10^6 in memory": (LARGE, False),
    "10^4 on disk": (SMALL, True),
    "10^6 on disk": (LARGE, True),
}
RATIOS = (
    ("10^6 in memory", "10^4 in memory", 1.2),
    ("10^6 on disk", "10^6 in memory", 1.5),
    ("10^6 on disk", "10^4 on disk", 1.2),
)


def block_of(number: int, clients: int) -> tuple[np.ndarray, np.ndarray]:
    """The records of some clients, at random: speed does not depend on what they say."""
    rng = np.random.default_rng(number)
    x = rng.standard_normal((clients * RECORDS, FEATURES), dtype=np.float32)
    return x, (x[:, 0] > 0).astype(np.int32)


def in_memory(clients: int) -> Task:
    """All records in arrays."""
    x = np.empty((clients * RECORDS, FEATURES), np.float32)
    y = np.empty(clients * RECORDS, np.int32)
    each = SMALL * RECORDS
    for number in range(clients // SMALL):
        part = slice(number * each, (number + 1) * each)
        x[part], y[part] = block_of(number, SMALL)
    start, size = np.arange(clients, dtype=np.int32) * RECORDS, np.full(clients, RECORDS, np.int32)
    data = FederatedData(x, y, start, size, x[:1000].copy(), y[:1000].copy(), 2)
    return Task("random", data, get("logistic", (FEATURES,), 2))


def write(folder: Path, clients: int) -> None:
    """The same records on the disk."""
    with so.write_records(folder, classes=2) as writer:
        for number in range(clients // SMALL):
            x, y = block_of(number, SMALL)
            writer.add(x, y, sizes=[RECORDS] * SMALL)
        x, y = block_of(0, SMALL)
        writer.test(x[:1000], y[:1000])


def measure(clients: int, folder: Path | None) -> dict[str, float]:
    """Seconds of a round, and the peak memory beside the records."""
    task = in_memory(clients) if folder is None else so.task(f"disk:{folder}", model="logistic")
    data = 0 if folder is not None else sum(part.nbytes for part in (task.data.x, task.data.y))
    method = so.fedavg(local_steps=5, local_lr=0.1, bound=so.clip(1.0))
    plan = so.plan(method, rounds=STRETCH * STRETCHES, cohort=f"fixed:{COHORT}", noise_multiplier=1.0, delta=1e-7)
    clock: list[float] = []

    def tick(row: object) -> None:
        clock.append(time.perf_counter())

    so.simulate(plan, task, seed=0, evaluate_every=STRETCH, progress=tick)
    whole = clock[: STRETCHES - 1]  # each of the last rounds is evaluated by itself
    return {
        "s_round": statistics.median(np.diff(whole).tolist()) / STRETCH,
        "memory_mib": peak_mib() - data / 2**20,
    }


def main() -> None:
    """A line a case, then the ratios beside their targets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, help="one case alone, in this process, as JSON")
    parser.add_argument("--folder", type=Path, help="where records on the disk are, or are put; temporary if left out")
    parser.add_argument("--turns", type=int, default=TURNS, help="how often each case runs; medians count")
    given = parser.parse_args()
    if given.case:
        clients, on_disk = CASES[given.case]
        print(json.dumps(measure(clients, given.folder / str(clients) if on_disk else None)))
        return
    with TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        for clients, on_disk in CASES.values():
            if on_disk and not (folder / str(clients)).exists():
                write(folder / str(clients), clients)
        found: dict[str, list[dict[str, float]]] = {case: [] for case in CASES}
        for _ in range(given.turns):
            for case in CASES:
                command = [sys.executable, "-m", "bench.population", "--case", case, "--folder", str(folder)]
                out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                found[case].append(json.loads(out))
    middle = {
        case: {name: statistics.median(row[name] for row in rows) for name in rows[0]} for case, rows in found.items()
    }
    for case, row in middle.items():
        print(
            f"{case:15} {1000 * row['s_round']:8.2f} ms a round  {row['memory_mib']:8.0f} MiB beside records in memory"
        )
    for case, other, target in RATIOS:
        time_ratio, memory = (middle[case][name] / middle[other][name] for name in ("s_round", "memory_mib"))
        print(f"{case} over {other}: time {time_ratio:.2f}, memory {memory:.2f} (at most {target})")


if __name__ == "__main__":
    main()
