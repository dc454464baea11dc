"""What several rooms test with: a small task, rounds of the engine, a run file, and a process with four devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sordino as so
from sordino.data import FederatedData
from sordino.mechanisms import none
from sordino.models import get
from sordino.planning import Cohort, Plan, ResolvedPlan, Rules, parse_cohort
from sordino.rounds import ProgramSpec, RoundInfo, RoundState, run_rounds
from sordino.rounds.debug import debug_rounds
from sordino.tasks import Records, Task
from sordino.types import Mechanism, Method, PlanContext, Relation, Trust, Vector

RUN_FILE = """\
[task]
name = "digits"
clients = 20

[algorithm]
name = "fedavg"
local_steps = 2
local_lr = 0.5

[bound]
clip = 1.0

[privacy]
epsilon = 8.0
delta = 1e-4

[run]
rounds = 3
seed = 0
"""


def toy(model: Any = "logistic", sizes: Sequence[int] = (3, 1, 7, 2, 5, 4, 1, 6, 2, 3)) -> Task:
    """A few clients with records of three features and two classes."""
    rng = np.random.default_rng(0)
    size = np.array(sizes, np.int32)
    x = rng.normal(size=(size.sum(), 3)).astype(np.float32)
    y = (x @ [1.0, -2.0, 0.5] > 0).astype(np.int32)
    start = (np.cumsum(size) - size).astype(np.int32)
    model = get(model, (3,), 2) if isinstance(model, str) else model
    return Task("toy", FederatedData(x, y, start, size, x, y, 2), model)


def states_of(method: Method, w: Vector, clients: int) -> RoundState:
    """The states before the first round."""
    own = method.init_client(w)
    return RoundState(method.init_server(w), jax.tree.map(lambda leaf: jnp.stack([leaf] * clients), own))


def rules_for(
    method: Method,
    clients: int,
    trust: Trust = Trust.NONE,
    mechanism: Mechanism | None = None,
    cohort: Cohort | str = "full",
) -> Rules:
    """The rules of rounds in which a cohort takes part, with noise where trust places it."""
    cohort = parse_cohort(cohort) if isinstance(cohort, str) else cohort
    return Rules.of(method, mechanism or none(), trust, cohort, clients)


def fitted(
    method: Method,
    task: Task,
    trust: Trust = Trust.NONE,
    mechanism: Mechanism | None = None,
    cohort: Cohort | str = "full",
    relation: Relation = Relation.ZERO_OUT,
) -> Rules:
    """The rules of a method that is fitted to the task first, as a plan would fit it."""
    cohort = parse_cohort(cohort) if isinstance(cohort, str) else cohort
    mechanism, planned = mechanism or none(), cohort.planned(task.clients)
    context = PlanContext(
        task.d, task.clients, planned, str(cohort), trust=trust, relation=relation, mechanism=mechanism
    )
    return rules_for(method.resolve(context), task.clients, trust, mechanism, cohort)


def rounds_of(
    rules: Rules, records: Records, loss: Any, w: Any, rounds: int, *, seed: int = 0, first: int = 0, **spec: Any
) -> tuple[RoundState, RoundInfo]:
    """The states and diagnostics after some rounds of the engine; `spec` changes the program's fixed part."""
    program, rules, state = _prepared(rules, records, loss, w, spec)
    return run_rounds(rules, records, state, jax.random.key(seed), jnp.int32(first), spec=program, rounds=rounds)


def debugged_rounds_of(
    rules: Rules, records: Records, loss: Any, w: Any, rounds: int, *, seed: int = 0, **spec: Any
) -> RoundState:
    """The same states, by the debug engine."""
    program, rules, state = _prepared(rules, records, loss, w, spec)
    return debug_rounds(rules, records, state, jax.random.key(seed), 0, spec=program, rounds=rounds)


def _prepared(
    rules: Rules, records: Records, loss: Any, w: Any, spec: dict[str, Any]
) -> tuple[ProgramSpec, Rules, RoundState]:
    """The program's fixed part, the rules and the first states; `state` in `spec` replaces these."""
    clients = len(records.size)
    fixed = {"cohort": parse_cohort("full"), "population": clients, "largest": int(np.asarray(records.size).max())}
    given = spec.pop("state", None)
    program = ProgramSpec(loss=loss, **(fixed | {"chunk": clients} | spec))
    rules = rules.with_noise_in_client() if program.transcript else rules
    state = states_of(rules.method, jnp.asarray(w, jnp.float32), clients) if given is None else given
    return program, rules, state


def run_plan(
    plan: Plan, task: Task, *, w: Any = None, seed: int = 0, transcript: bool = False
) -> tuple[ResolvedPlan, RoundState, RoundInfo]:
    """All rounds of a plan, without files: the resolved plan, the last states, the diagnostics of every round."""
    resolved = plan.resolve(task.population)
    w = task.initial(jax.random.key(seed)) if w is None else w
    spec = {"cohort": plan.cohort, "transcript": transcript, "augment": task.augment}
    state, info = rounds_of(resolved.rules, task.records, task.loss, w, plan.rounds, seed=seed, **spec)
    return resolved, state, info


class Killed(BaseException):
    """Ends a run as a signal would: no `except Exception` catches it."""


def killed_and_resumed(plan: Plan, task: Task, folder: Path, *, after: int, **options: Any) -> Any:
    """A run that is killed once round `after` has been reported, and then resumed to its end."""

    def kill(row: dict[str, Any]) -> None:
        if row["round"] >= after:
            raise Killed

    try:
        so.simulate(plan, task, folder=folder, progress=kill, **options)
    except Killed:
        return so.simulate(plan, task, folder=folder, resume=True, **options)
    raise AssertionError("the run ended before it could be killed")


def write_run_file(folder: Path, text: str, *replacements: tuple[str, str]) -> Path:
    """The text as folder/cfg.toml, each old part, which must stand there once, replaced by the new one."""
    for old, new in replacements:
        assert text.count(old) == 1
        text = text.replace(old, new)
    path = folder / "cfg.toml"
    path.write_text(text)
    return path


def on_four_devices(module: str, expression: str) -> Any:
    """What an expression is worth in a process of its own: a process keeps the devices that JAX started with."""
    script = (
        f"import json, jax, {module} as module\nassert jax.local_device_count() == 4\nprint(json.dumps({expression}))"
    )
    flags = {"JAX_NUM_CPU_DEVICES": "4", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[1],
        env=os.environ | flags,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
