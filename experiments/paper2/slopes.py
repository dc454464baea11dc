"""Rates of paper 2's theorems at their own parameters: `python -m experiments.paper2.slopes`.

Each case of `slope_cases` is a theorem with a problem whose minimiser is known. One of n, M, d and epsilon varies at a
time; the slope of log excess risk against its logarithm, with its 95 % interval over seeds, stands beside the
theorem's, and beside that of the theorem's bound with its logarithms and the noise that was added. Convex bounds speak
of the worst problem: the risk is the largest mean over a grid of problems.

    --case KEY --quantity n --out PART.json     one row, or with one of the two words alone several
    --merge PART.json ...                       writes results/paper2/slopes.json and its figure
    --keys                                      lists the cases
    --quick                                     few seeds and no long run, to try the script
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import sordino as so
from experiments.paper2.coordinates import Loss, Shares, drawn_shares, true_shares
from experiments.paper2.exact_rounds import Draw, everybody, final_models, next_records, some_clients
from experiments.paper2.slope_cases import BETA, CASES, DELTA, SPREAD, Case, Chosen, L, Setting, answering
from sordino.algorithms.ac_sa import AcSa
from sordino.algorithms.noisy_mb_sgd import NoisyMbSgd
from sordino.experiments.provenance import provenance
from sordino.planning.record_noise import shuffled_event
from sordino.privacy.calibration import calibrate, calibrate_gaussian
from sordino.privacy.events import NonPrivate, Repeated
from sordino.privacy.sampling import Full, WithoutReplacement
from sordino.tasks import Population
from sordino.types import Event, Relation

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "results/paper2/slopes.json"
SEEDS, SEEDS_ALONE, QUICK_SEEDS = 32, 128, 4  # with a grid of problems, with one problem, to try
GRID = 2.0 ** (-np.arange(0, 29) / 2)  # of q
NEAR = 4.0  # problems within this factor of the q that the bound points to
REPEATS = 1000  # of the bootstrap
QUANTITIES = ("n", "M", "d", "epsilon")


class Measured(NamedTuple):
    """One setting: the risks of all problems and seeds, and what the algorithm ran with."""

    q: NDArray[np.float64]
    risks: dict[str, NDArray[np.float64]]  # [problems, seeds]
    rounds: int
    bounds: dict[str, float]  # by the name of the risk


class Resolved(NamedTuple):
    """The method with its step sizes, and the noise of a client."""

    chosen: Chosen
    method: NoisyMbSgd | AcSa
    noise_std: float


@cache
def _resolved(case: int, setting: tuple[tuple[str, float], ...]) -> Resolved:
    this, s = CASES[case], dict(setting)
    chosen = this.choose(this.loss, s)
    n, M, d = int(s["n"]), int(s["M"]), int(s["d"])
    beta = this.loss.curvature() or chosen.beta or 1.0
    if this.trust == "shuffle":
        noise_std = shuffled_noise(s, chosen.rounds)
        return Resolved(chosen, shuffled_method(this.loss, s, chosen.rounds, beta, noise_std), noise_std)
    method = this.method(lipschitz=L, radius=this.loss.D, mu=this.loss.mu, smoothness=beta, **this.options)
    plan = so.plan(
        method,
        rounds=chosen.rounds,
        cohort=answering(this, M)[0],
        epsilon=s["epsilon"],
        delta=DELTA,
        trust=this.trust,
        calibration=this.calibration,
    )
    clients = this.clients or M
    found = plan.resolve(Population(d, clients, np.full(clients, n)))
    assert found.rules.numbers is not None
    assert isinstance(found.method, NoisyMbSgd | AcSa)
    return Resolved(chosen, found.method, float(found.rules.numbers.noise_std[0]))


def shuffled_noise(setting: Setting, R: int) -> float:
    """The noise of one record's gradient behind a shuffler, as a plan has it; a plan has a promise for each client too.

    The smaller of what shuffling needs and what the record needs without it.
    """
    n, M, epsilon = int(setting["n"]), int(setting["M"]), setting["epsilon"]
    sampling, relation = WithoutReplacement(1, n) if n > 1 else Full(), Relation.REPLACE_ONE

    def hidden(x: float) -> Event:
        event = shuffled_event(x, M, sampling, R, DELTA)
        return Repeated(event, R) if event else NonPrivate()

    alone = calibrate_gaussian(epsilon=epsilon, delta=DELTA, rounds=R, sampling=sampling, relation=relation)
    shuffled = calibrate(hidden, epsilon=epsilon, delta=DELTA, relation=relation, tolerance=1e-5)
    return 2 * L * min(alone, shuffled)


def shuffled_method(loss: Loss, setting: Setting, R: int, beta: float, noise_std: float) -> NoisyMbSgd:
    """Algorithm 1 with K = 1 and the step size that a plan would choose."""
    n, M, d, D, mu = int(setting["n"]), int(setting["M"]), int(setting["d"]), loss.D, loss.mu
    V2 = (4 * L**2 + d * noise_std**2) / M
    eta = min(1 / (4 * (beta + mu)), D * math.sqrt(M * n) / (L * R), D / math.sqrt(V2 * R))
    if mu > 0:
        eta = min(1 / (4 * (beta + mu)), math.log(max(2.0, (mu * D * R) ** 2 / (2 * V2))) / (mu * R))
    return so.noisy_mb_sgd(lipschitz=L, radius=D, mu=mu, smoothness=beta, step_size=eta)


def resolved(case: Case, setting: Setting) -> Resolved:
    """The plan of a case, with the theorem's rounds and smoothing."""
    return _resolved(CASES.index(case), tuple(sorted(setting.items())))


def bound(case: Case, setting: Setting, risk: str) -> float:
    """What the theorem bounds a risk by, up to a constant, with the noise that was added and with logarithms.

    Convex D V / sqrt(R); strongly convex V^2 / (mu R), for Algorithm 1 times ln(mu^2 D^2 R^2 / (2 V^2)). V holds the
    noise of the accountant, which falls a little more slowly with epsilon than 1 / epsilon. One pass adds 4 L^2 / M to
    V^2, and beta D^2 / n^2 to the convex bound. The population risk of repeated records has L^2 / (mu M n) or
    L D / sqrt(M n) beside it.
    """
    n, d, D, mu = int(setting["n"]), int(setting["d"]), case.loss.D, case.loss.mu
    found, M = resolved(case, setting), answering(case, int(setting["M"]))[1].mean
    R = found.chosen.rounds
    V2 = (d * found.noise_std**2 + (4 * L**2 if case.draws == "next" else 0.0)) / M
    again = risk == "population" and case.draws != "next"
    if mu == 0:
        optimised = BETA * D**2 / n**2 if case.draws == "next" else 0.0
        return D * math.sqrt(V2 / R) + optimised + (L * D / math.sqrt(M * n) if again else 0.0)
    log = math.log(max(2.0, (mu * D * R) ** 2 / (2 * V2))) if case.method is so.noisy_mb_sgd else 1.0
    return V2 / (mu * R) * log + (L**2 / (mu * M * n) if again else 0.0)


def problems(case: Case, setting: Setting) -> NDArray[np.float64]:
    """The q of all problems: those near the one whose answer the noise just hides."""
    if case.q is not None:
        return np.array([case.q])
    middle = 2 * math.sqrt(setting["d"]) * bound(case, setting, case.risks[0]) / case.loss.D
    most = 1 - SPREAD if case.draws == "next" else 1.0
    inside = (min(most, NEAR * middle) >= GRID) & (middle / NEAR <= GRID)
    return GRID[inside]


def data_of(case: Case, setting: Setting, q: NDArray[np.float64], seeds: int) -> tuple[Draw, NDArray[Any], Shares]:
    """How a round draws, its data [problems, seeds, ...], and the shares of all records [problems, seeds, d, 2]."""
    n, M, d = int(setting["n"]), int(setting["M"]), int(setting["d"])
    rngs = [np.random.default_rng(seed) for seed in range(seeds)]

    def each(draw: Any) -> NDArray[Any]:
        return np.array([[draw(rng, value) for rng in rngs] for value in q])

    if case.draws == "next":
        data = each(lambda rng, value: _pass(rng, value, d, M, n))
        return next_records(M), data, data.mean(2)
    if case.draws == "some":
        assert case.clients is not None
        data = each(lambda rng, value: drawn_shares(rng, value, d, n, (case.clients,)))
        return some_clients(M // 2, M + M // 2), data, data.mean(2)
    if case.risks == ("empirical",):  # the data are as they are: every share is the law's
        data = each(lambda rng, value: true_shares(value, d))
    else:
        data = each(lambda rng, value: drawn_shares(rng, value, d, M * n))
    return everybody(M), data, data


def _pass(rng: np.random.Generator, q: float, d: int, M: int, rounds: int) -> Shares:
    """Each round's shares of one record of each client; half of the clients see + more often, half less often."""
    halves = [drawn_shares(rng, q + sign * SPREAD, d, M // 2, (rounds,)) for sign in (1, -1)]
    return (halves[0] + halves[1]) / 2


def measure(case: Case, setting: Setting, seeds: int) -> Measured:
    """Run all problems and seeds of one setting."""
    q, found, d = problems(case, setting), resolved(case, setting), int(setting["d"])
    draw, data, all_records = data_of(case, setting, q, seeds)
    R, beta = found.chosen.rounds, found.chosen.beta
    w = final_models(
        found.method,
        case.loss,
        draw,
        data.astype(np.float32),
        d=d,
        rounds=R,
        noise_std=found.noise_std,
        beta=beta,
        seeds=seeds,
    )
    smoothing = beta if case.smooth else None
    law = np.array([true_shares(value, d) for value in q])[:, None]
    of = {"empirical": all_records, "population": np.broadcast_to(law, all_records.shape)}
    risks = {name: case.loss.excess(w, of[name], smoothing) for name in case.risks}
    return Measured(q, risks, R, {name: bound(case, setting, name) for name in case.risks})


def worst(risk: NDArray[np.float64]) -> float:
    """The largest mean over seeds, of all problems."""
    return float(risk.mean(1).max())


def slope(x: NDArray[np.float64], risks: list[NDArray[np.float64]]) -> tuple[float, float]:
    """Of log risk on log x: the estimate, and half of its 95 % interval by the bootstrap over seeds."""
    rng, log_x = np.random.default_rng(0), np.log(x)

    def fitted(tops: list[float]) -> float:
        return float(stats.linregress(log_x, np.log(tops)).slope)

    again = [
        fitted([worst(risk[:, rng.integers(0, risk.shape[1], risk.shape[1])]) for risk in risks])
        for _ in range(REPEATS)
    ]
    low, high = np.percentile(again, [2.5, 97.5])
    return fitted([worst(risk) for risk in risks]), float(high - low) / 2


def rows_of(case: Case, quantity: str, seeds: int, made_at: str) -> list[dict[str, Any]]:
    """The slope over one quantity for each kind of risk, with the risk at every value."""
    began = time.monotonic()
    settings = [{**case.base, quantity: value} for value in case.values[quantity]]
    measured = [measure(case, setting, seeds) for setting in settings]
    is_M = quantity == "M"
    x = np.array([answering(case, int(s["M"]))[1].mean if is_M else s[quantity] for s in settings])
    rows = []
    for name in case.risks:
        risks, bounds = [one.risks[name] for one in measured], [one.bounds[name] for one in measured]
        expected = float(stats.linregress(np.log(x), np.log(bounds)).slope)
        centre, half = slope(x, risks)
        top = [worst(risk) for risk in risks]
        rows.append(
            {
                "row": f"{case.name}, {name} risk",
                "column": quantity,
                "paper": case.theory[quantity],
                "mean": round(centre, 3),
                "std": None,
                "ci95": round(half, 3),
                "with_logarithms": round(expected, 3),
                "values": [float(value) for value in x],
                "base": dict(case.base),
                "rounds": [one.rounds for one in measured],
                "risk": top,
                "risk_over_bound": [round(t / b, 4) for t, b in zip(top, bounds, strict=True)],
                "worst_q": [float(one.q[r.mean(1).argmax()]) for one, r in zip(measured, risks, strict=True)],
                "q_range": [[float(one.q.min()), float(one.q.max())] for one in measured],
                "local_slopes": [round(float(v), 3) for v in np.diff(np.log(top)) / np.diff(np.log(x))],
                "seeds": list(range(seeds)),
                "seconds": round(time.monotonic() - began, 1),
                "commit": made_at,
            }
        )
    return rows


def chosen_rows(case: str | None, quantity: str | None) -> list[tuple[Case, str]]:
    """The cases and quantities that the words ask for."""
    return [
        (one, name)
        for one in CASES
        for name in one.values
        if (case is None or one.key() == case) and (quantity is None or name == quantity)
    ]


def main(words: list[str]) -> None:
    """Make a part, or merge parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=[case.key() for case in CASES], help="one case alone")
    parser.add_argument("--quantity", choices=QUANTITIES, help="one quantity alone")
    parser.add_argument("--out", type=Path, default=None, help="where a part goes; without it the result is written")
    parser.add_argument("--quick", action="store_true", help="few seeds")
    parser.add_argument("--keys", action="store_true", help="list cases and quantities")
    parser.add_argument("--merge", nargs="+", type=Path, default=None, help="parts to merge")
    parser.add_argument("--commit", default=None, help="the commit of this code, where there is no git to ask")
    given = parser.parse_args(words)
    if given.keys:
        print("\n".join(f"{case.key()} {name}" for case, name in chosen_rows(given.case, given.quantity)))
        return
    if given.merge:
        from experiments.paper2.slope_pages import merge

        merge([json.loads(path.read_text()) for path in given.merge], RESULT)
        return
    command = "python -m experiments.paper2.slopes" + (f" --case {given.case}" if given.case else "")
    command += f" --quantity {given.quantity}" if given.quantity else ""
    made = provenance(command + " --quick" * given.quick, given.commit)
    rows = []
    for case, name in chosen_rows(given.case, given.quantity):
        seeds = QUICK_SEEDS if given.quick else SEEDS if case.q is None else SEEDS_ALONE
        found = rows_of(case, name, seeds, made["commit"])
        rows += found
        print("\n".join(json.dumps(row) for row in found), flush=True)
        part = {"name": "slopes", "rows": rows, "provenance": made}
        if given.out:
            given.out.write_text(json.dumps(part, indent=1) + "\n")
    if given.out is None:
        from experiments.paper2.slope_pages import merge

        merge([part], RESULT)


if __name__ == "__main__":
    main(sys.argv[1:])
