"""Paper 4, Appendix A.4: memories settle after finitely many rounds with clipping, and ever closer with normalization.

    python -m experiments.paper4.memories

Ten workers whose gradients hardly change (gamma = 1e-9) start with memories of zero. A worker's error ||grad f_i(x) -
g_i|| falls by tau a round under Clip21 until it is below tau, and is zero one round later. Under alpha-NormEC an error
e becomes |1 - beta / (alpha + e)| e: below alpha it shrinks by about 1 - beta / alpha a round, where beta < alpha, and
for beta > 2 alpha it never settles. The largest error over the workers is drawn.
"""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import sordino as so
from experiments.paper4.convergence import N, Problem
from sordino.experiments.provenance import commit_of_the_code, provenance
from sordino.keys import key_of
from sordino.mechanisms import none
from sordino.planning.cohort import FullCohort
from sordino.planning.resolved import Rules
from sordino.rounds.engine import ProgramSpec, RoundState, run_round
from sordino.types import Bounder, Method, Trust

RESULTS = Path("results/paper4")  # run from the root of a clone
ROUNDS, STEP = 80, 0.01
SHOWN = (5, 10, 20, 40, 80)
CASES: dict[str, tuple[float, Bounder]] = {
    "clip21, tau = 0.01": (1.0, so.clip(STEP)),
    "norm-ec, beta = 0.01, alpha = 0.1": (STEP, so.smoothed_normalize(0.1)),
    "norm-ec, beta = 0.01, alpha = 0.03": (STEP, so.smoothed_normalize(0.03)),
    "norm-ec, beta = 0.01, alpha = 0.003": (STEP, so.smoothed_normalize(0.003)),
}


def errors(problem: Problem, method: Method) -> np.ndarray:
    """The largest ||grad f_i(x) - g_i|| over the workers, before each round and after the last."""
    cohort, x, memories = FullCohort(), problem.x0, jnp.zeros((N, len(problem.x0)))
    spec = ProgramSpec(problem.task.loss, cohort, N, problem.task.largest, chunk=N)
    rules = Rules.of(method, none(), Trust.NONE, cohort, N)
    records = problem.task.records

    def largest(state: RoundState) -> jax.Array:
        x = rules.method.params(state.server)
        return jnp.max(jnp.linalg.norm(problem.gradients(x) - state.clients, axis=1))

    def one(state: RoundState, k: jax.Array) -> tuple[RoundState, jax.Array]:
        return run_round(rules, records, state, key_of(0), k, spec)[0], largest(state)

    end, found = jax.jit(lambda state: jax.lax.scan(one, state, jnp.arange(ROUNDS)))(
        RoundState(method.init_server(x), memories)
    )
    return np.append(np.asarray(found, np.float64), float(largest(end)))


def plot(found: dict[str, np.ndarray], path: Path) -> None:
    """Errors over rounds; what is zero, up to rounding, leaves the picture."""
    figure = Figure(figsize=(6.5, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, each in found.items():
        axes.semilogy(np.where(each > 1e-7, each, np.nan), label=name)
    axes.set(xlabel="round k", ylabel="largest ||grad f_i(x) - g_i||", title="How memories settle")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure, print, and write the result and the picture."""
    commit = commit_of_the_code()
    problem = Problem(0.0)
    found = {
        name: errors(problem, so.error_feedback(beta=beta, server_lr=1e-9, bound=bound))
        for name, (beta, bound) in CASES.items()
    }
    usual = {"paper": None, "std": None, "seeds": [0]}
    rows = [
        {"row": name, "column": f"after {k} rounds", "mean": float(f"{each[k]:.5g}")} | usual
        for name, each in found.items()
        for k in (0, *SHOWN)
    ]
    result = {
        "name": "memories",
        "title": "Appendix A.4: how memories settle",
        "metric": "largest ||grad f_i(x) - g_i|| over ten workers whose gradients hardly change",
        "note": "Clipping settles after finitely many rounds (what is left is rounding), normalization ever closer "
        "where beta < 2 alpha, and not at all where beta > 2 alpha.",
        "rows": rows,
        "guarantees": [],
        "provenance": provenance("python -m experiments.paper4.memories", commit),
    }
    for row in rows:
        print(row["row"], row["column"], row["mean"])
    (RESULTS / "memories.json").write_text(json.dumps(result, indent=1) + "\n")
    plot(found, RESULTS / "memories.png")


if __name__ == "__main__":
    main()
