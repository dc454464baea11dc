"""Shuffling against local privacy at one epsilon: `python -m experiments.paper2.shuffling`.

Ridge regression of clients with one record each, by Algorithm 1 with the rounds of Theorem 4.1. At the same (epsilon,
delta) of every record over all rounds: the noise that each client adds if the server sees who sent what, if a shuffler
hands the messages on, and under secure aggregation, where the noise of all adds up; and the risk that is left. Writes
results/paper2/shuffling.json.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.paper2.coordinates import true_shares
from experiments.paper2.exact_rounds import everybody, final_models
from experiments.paper2.slope_cases import DELTA, RIDGE, L, Setting, beta_of, shuffled_strong
from experiments.paper2.slopes import shuffled_method, shuffled_noise
from sordino.experiments.provenance import provenance
from sordino.privacy.gaussian import gaussian_noise_multiplier

RESULT = Path(__file__).parents[2] / "results/paper2/shuffling.json"
CLIENTS, d, EPSILON, Q, SEEDS = (1000, 4000, 16_000, 64_000, 256_000), 5, 1.0, 0.5, 64


def noises(setting: Setting, rounds: int) -> dict[str, float]:
    """The std of a client's noise under each trust, over L."""
    alone = 2 * L * gaussian_noise_multiplier(setting["epsilon"], DELTA) * math.sqrt(rounds)
    aggregated = alone / math.sqrt(setting["M"])
    return {"local": alone, "shuffled": shuffled_noise(setting, rounds), "secure aggregation": aggregated}


def risks(setting: Setting, rounds: int, noise_std: float) -> NDArray[np.float64]:
    """The excess empirical risk of each seed."""
    method = shuffled_method(RIDGE, setting, rounds, beta_of(RIDGE) - RIDGE.mu, noise_std)
    shares = true_shares(Q, d)
    data = np.broadcast_to(shares, (1, SEEDS, *shares.shape)).astype(np.float32)
    draw = everybody(int(setting["M"]))
    w = final_models(method, RIDGE, draw, data, d=d, rounds=rounds, noise_std=noise_std, beta=None, seeds=SEEDS)
    return RIDGE.excess(w, shares)[0]


def at_start() -> float:
    """The excess risk of w = 0."""
    return float(RIDGE.excess(np.zeros(d), true_shares(Q, d)))


def main() -> None:
    """Each number of clients under each trust."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    made = provenance("python -m experiments.paper2.shuffling")
    rows: list[dict[str, Any]] = []
    for M in CLIENTS:
        setting = {"n": 1, "M": M, "d": d, "epsilon": EPSILON}
        rounds = shuffled_strong(RIDGE, setting).rounds
        for trust, noise_std in noises(setting, rounds).items():
            risk, row = risks(setting, rounds, noise_std), f"{M} clients, {rounds} rounds"
            usual = {"row": row, "paper": None, "seeds": list(range(SEEDS))}
            rows.append(usual | {"column": f"{trust}, noise over L", "mean": noise_std / L, "std": None})
            rows.append(
                usual | {"column": f"{trust}, risk", "mean": float(risk.mean()), "std": float(risk.std(ddof=1))}
            )
            print(rows[-2:], flush=True)
    result = {
        "name": "shuffling",
        "metric": f"noise of a client, and excess empirical risk of ridge regression, at epsilon = {EPSILON:g}",
        "guarantees": [],
        "provenance": made,
        "rows": rows,
        "note": f"One record a client, {d} coordinates, delta = {DELTA:g}; (epsilon, delta) over all rounds; "
        f"{SEEDS} seeds. The risk of w = 0 is {at_start():.2g}: where it is higher, training did harm.",
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
