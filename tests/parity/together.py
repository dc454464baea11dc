"""Plans that two processes run together, and what came of them; `python -m tests.parity.together PLAN,... ...`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

import sordino as so
from sordino.errors import SordinoError
from sordino.runs.processes import ALONE, Group

ROOT = Path(__file__).parents[2]
SIZES = (3, 1, 7, 2, 5, 4, 1, 6, 2, 3, 5)  # two devices hold different numbers of clients and of records


def task_of(name: str, folder: str = "", odd: bool = False) -> so.Task:
    """The task of a plan; an odd one has another record."""
    from tests.toys import toy

    if name == "records":
        return so.task("linear", clients=5, records=30, d=3, loss="logit", l2=0.1)
    if name == "disk":
        return so.task(f"disk:{folder}", model="logistic")
    task = toy(sizes=SIZES)
    if odd:
        task.data.x[0] += 1.0
    return task


def plan_of(name: str, rounds: int = 5) -> so.Plan:
    usual: dict[str, Any] = {"rounds": rounds, "noise_multiplier": 1.0, "delta": 1e-3}
    bound = so.clip(1.0)
    if name == "fedavg":
        return so.plan(so.fedavg(local_steps=2, local_lr=0.5, bound=bound, batch_size=2, server_momentum=0.5), **usual)
    if name == "scaffold":
        return so.plan(so.scaffold(local_steps=2, local_lr=0.5, bound=bound), cohort="unreliable:4-9", **usual)
    if name in ("poisson", "disk"):
        return so.plan(so.fedavg(local_steps=2, local_lr=0.5, bound=bound), cohort="poisson:0.4", **usual)
    method = so.noisy_mb_sgd(lipschitz=1.0, radius=1.0, feature_bound=1.0, batch_size=10)
    return so.plan(method, cohort="unreliable:2-4", rounds=rounds, noise_multiplier=2.0, trust="local", delta=1e-5)


def results(names: list[str], folder: str, group: Group = ALONE, odd: bool = False) -> dict[str, Any]:
    """Models, rows, certificates and ledgers."""
    found = {}
    for name in names:
        task, run = task_of(name, folder, odd), f"{folder}-{name}-{group.count}"
        done = so.simulate(plan_of(name), task, seed=3, evaluate_every=2, folder=run, group=group)
        if group.count > 1 and name != "disk":
            assert len(task.data.x) == 1  # what is left of the others' records
        if group.leader:
            w = jax.flatten_util.ravel_pytree(done.params)[0]
            found[name] = {
                "model": np.asarray(w).tolist(),
                "rows": done.history,
                "certificate": json.loads((Path(run) / "certificate.json").read_text()),
                "ledger": [json.loads(line) for line in (Path(run) / "ledger.jsonl").read_text().splitlines()],
            }
    return found


def in_processes(
    names: list[str], folder: Path, count: int = 2, odd: bool = False
) -> list[subprocess.CompletedProcess]:
    """The same in processes of their own, each with its exit status and words."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    given = [",".join(names), str(folder), str(port)]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.parity.together", *given, str(index), str(count), str(int(odd))],
            cwd=ROOT,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(count)
    ]
    done = []
    for process in started:
        try:
            out, err = process.communicate(timeout=300)
        finally:
            process.kill()
        done.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
    return done


def main() -> None:
    names, folder, port, index, count, odd = sys.argv[1:]
    group = Group.join(f"127.0.0.1:{port}", int(index), int(count), patience=120)
    try:
        with group:
            found = results(names.split(","), folder, group, odd=odd == "1" and index == "1")
    except (SordinoError, RuntimeError) as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        os._exit(3)
    if group.leader:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
