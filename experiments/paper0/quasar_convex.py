"""Paper 0, Theorems 2 and 4 measured: rates in K on functions that are quasar-convex and not convex.

    python -m experiments.paper0.quasar_convex [--quick]

Client i has f_i(w) = (1 + ||A_i (w - w_i*)||^2)^(p/2) with p = 1/2 and A_i diagonal, of condition about 100. With r =
||A_i (w - w_i*)||, <grad f_i, w - w_i*> = p r^2 (1 + r^2)^(p/2 - 1), which is at least p (f_i - f_i*): f_i is
p-quasar-convex everywhere and p-smooth. Along a ray it is concave for r^2 > 1 / (1 - p) = 2.

*Theorem 2.* DP-NormFedAvg with E, eta and beta of the rule, 25 of 50 clients a round, and QTDL's quantiser with
truncated discrete Laplace noise on -m, ..., m. It bounds min_k E ||grad f(w_k)|| by a multiple of K^(-1/2), plus a
multiple of the mean of ||w_i* - w*||. *Theorem 4.* FedAvg with eta of the rule: min_k E ||grad f(w_k)||^2 by a multiple
of 1/K plus another. Each with clients that share a minimiser, where the second part is 0, and with clients that do not.
A bound may be met by any smaller figure, so the slope may be steeper than the bound's. Nothing here is private: the
noise is the theorem's.
"""

from __future__ import annotations

import argparse
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import sordino as so
from sordino.data import FederatedData
from sordino.experiments.provenance import commit_of_the_code, provenance
from sordino.keys import key_of
from sordino.mechanisms import none
from sordino.mechanisms.qtdl import Qtdl
from sordino.models import Batch, from_loss, weighted_mean
from sordino.planning.cohort import FixedCohort
from sordino.planning.resolved import Rules
from sordino.privacy.events import Claimed, Pure
from sordino.privacy.quantized import Calibration, bits_for
from sordino.privacy.tdl import tdl_variance
from sordino.rounds.engine import ProgramSpec, RoundState, run_round
from sordino.rules.paper0 import theorem_2, theorem_4
from sordino.tasks import Task
from sordino.types import Mechanism, Method, Trust

RESULT = Path("results/paper0/quasar-convex.json")  # run from the root of a clone
CLIENTS, COHORT, D, P, DISTANCE = 50, 25, 20, 0.5, 2.0
LEVELS, SUPPORT, ALPHA = 16, 8, 0.1  # s, m and alpha of the noise
HORIZONS = (100, 400, 1600, 6400)
LOCAL_STEPS = 5  # of FedAvg
SEEDS = 8
CASES = {"one minimiser": 0.0, "minimisers 0.5 apart": 0.5}  # mean over clients of ||w_i* - w*||, about

METRIC = (
    "slope over log K, and the least over k of the mean over 8 seeds of ||grad f(w_k)|| (Theorem 2) or its square "
    "(Theorem 4); the paper's column has the theorem's slope and bound"
)
NOTE = (
    "Functions that are 1/2-quasar-convex and not convex, 25 of 50 clients a round; E = sqrt(K) with Theorem 2, 5 with "
    "Theorem 4."
)


def value(w: jax.Array, batch: Batch) -> jax.Array:
    """A record is (the diagonal of A_i, w_i*)."""
    r = batch.x * (w - batch.y)
    return weighted_mean((1 + jnp.sum(r**2, axis=1)) ** (P / 2), batch.weight)


class Problem:
    """The clients' functions, their mean, and what the theorems speak of."""

    def __init__(self, apart: float) -> None:
        rng = np.random.default_rng(0)
        a = (np.geomspace(0.01, 1, D) * rng.uniform(0.5, 1, (CLIENTS, D))).astype(np.float32)
        offsets = rng.standard_normal((CLIENTS, D)) * apart / math.sqrt(D)
        centers = offsets.astype(np.float32)
        start, size = np.arange(CLIENTS, dtype=np.int32), np.ones(CLIENTS, np.int32)
        first = jnp.full(D, DISTANCE / math.sqrt(D), jnp.float32)
        data = FederatedData(a, centers, start, size, a, centers, classes=0)
        self.task = Task("quasar-convex", data, from_loss(lambda _: first, value, name="quasar-convex"))
        self.records = self.task.records  # made before anything is traced
        everything = Batch(jnp.asarray(a), jnp.asarray(centers), jnp.ones(CLIENTS))
        self.gradient = jax.grad(lambda w: self.task.loss(w, everything))
        self.minimiser = self._descended()
        apart_from_it = np.linalg.norm(centers - np.asarray(self.minimiser), axis=1)
        self.minimisers = float(apart_from_it.mean())
        self.squared_minimisers = float(np.mean(apart_from_it**2))
        self.distance = float(jnp.linalg.norm(first - self.minimiser))

    def _descended(self) -> jax.Array:
        """w*, by gradient descent from the middle of the clients' minimisers, where f is convex."""

        @jax.jit
        def descend(w: jax.Array) -> jax.Array:
            return jax.lax.fori_loop(0, 5000, lambda _, w: w - self.gradient(w) / P, w)

        return descend(jnp.zeros(D))

    def gradient_norms(self, method: Method, mechanism: Mechanism, trust: Trust, K: int, key: jax.Array) -> jax.Array:
        """||grad f(w_k)|| for k = 0, ..., K - 1."""
        cohort = FixedCohort(COHORT)
        spec = ProgramSpec(self.task.loss, cohort, CLIENTS, 1, chunk=COHORT)
        rules = Rules.of(method, mechanism, trust, cohort, CLIENTS)

        def one(state: RoundState, k: jax.Array) -> tuple[RoundState, jax.Array]:
            norm = jnp.linalg.norm(self.gradient(rules.method.params(state.server)))
            return run_round(rules, self.records, state, key, k, spec)[0], norm

        begin = RoundState(method.init_server(self.task.initial(key)), ())
        return jax.lax.scan(one, begin, jnp.arange(K))[1]


def theorem_2_noise() -> Qtdl:
    """QTDL with the given m: truncated noise whose privacy nobody claims here."""
    std = math.sqrt(tdl_variance(SUPPORT, ALPHA))
    bits = bits_for(LEVELS, SUPPORT)
    claim = Claimed("no privacy is claimed", Pure(math.inf))
    return Qtdl(1.0, D, LEVELS, None, Calibration("theorem-1", claim, std, SUPPORT, bits, ALPHA))


def measured(problem: Problem, theorem: str, K: int) -> tuple[float, float]:
    """The least over k of the mean over seeds, and the theorem's bound."""
    shared: dict[str, Any] = {"r": COHORT, "K": K, "L": P, "zeta": P, "distance": problem.distance}
    if theorem == "Theorem 2":
        rule = theorem_2(d=D, s=LEVELS, m=SUPPORT, minimisers=problem.minimisers, **shared)
        method = so.fedavg(
            local_steps=rule.E, local_lr=rule.eta, server_lr=rule.beta, bound=so.normalize(1.0), message="difference"
        )
        run = partial(problem.gradient_norms, method, theorem_2_noise(), Trust.LOCAL, K)
        power, bound = 1, rule.gradient_norm
    else:
        E = LOCAL_STEPS
        found = theorem_4(n=CLIENTS, E=E, squared_minimisers=problem.squared_minimisers, **shared)
        method = so.fedavg(local_steps=E, local_lr=found.eta, bound=so.clip(1e6), message="difference")
        run = partial(problem.gradient_norms, method, none(), Trust.NONE, K)
        power, bound = 2, found.squared_gradient_norm
    norms = np.asarray(jax.jit(jax.vmap(run))(jax.random.split(key_of(1), SEEDS)), np.float64)
    return float((norms**power).mean(axis=0).min()), bound


def slope(horizons: tuple[int, ...], figures: list[float]) -> tuple[float, float]:
    """Of log figures over log K, and half of its 95 % interval."""
    fit = stats.linregress(np.log(horizons), np.log(figures))
    return float(fit.slope), float(stats.t.ppf(0.975, len(horizons) - 2) * fit.stderr)


def rows_of(theorem: str, case: str, horizons: tuple[int, ...]) -> list[dict[str, Any]]:
    """The slope, and for each K what was measured beside the bound (in the paper's column)."""
    problem = Problem(CASES[case])
    found = [measured(problem, theorem, K) for K in horizons]
    figures, bounds = [figure for figure, _ in found], [bound for _, bound in found]
    of, half = slope(horizons, figures)
    proven = {"Theorem 2": -0.5, "Theorem 4": -1.0}[theorem] if CASES[case] == 0 else None
    usual = {"std": None, "seeds": list(range(SEEDS))}
    first = {"row": f"{theorem}, {case}", "column": "slope", "paper": proven, "mean": of, "half_width_95": half} | usual
    each = [
        {"row": f"{theorem}, {case}", "column": f"K = {K}", "paper": bound, "mean": figure} | usual
        for K, figure, bound in zip(horizons, figures, bounds, strict=True)
    ]
    return [first, *each]


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short horizons; writes nothing")
    quick = parser.parse_args().quick
    commit = commit_of_the_code()
    horizons = HORIZONS[:2] if quick else HORIZONS
    rows = []
    for theorem in ("Theorem 2", "Theorem 4"):
        for case in CASES:
            rows += rows_of(theorem, case, horizons)
            print(json.dumps(rows[-len(horizons) - 1 :]), flush=True)
    if quick:
        return
    result = {
        "name": "quasar-convex",
        "metric": METRIC,
        "note": NOTE,
        "rows": rows,
        "guarantees": [],
        "provenance": provenance("python -m experiments.paper0.quasar_convex", commit),
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
