"""Comparison of methods: means with confidence intervals, and paired differences from the first method.

Runs are paired by seed: runs with equal seeds start from the same model and draw the same clients.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sordino.report.curves import MEASURES, History, measure_of

Histories = Sequence[History]  # one for each seed
TEST = "two-sided paired t-test, runs paired by seed"
CORRECTION = "Holm"


def compare(methods: Mapping[str, Histories], confidence: float = 0.95) -> list[dict[str, Any]]:
    """One row for each method: mean over seeds of the last five rounds, its interval, difference from the first method.

    The p-value is that of a paired t-test against the first method, adjusted for the number of other methods (Holm).
    The figures of a method are NaN if one of its runs diverged; so is its p-value if all differences are equal, or one
    is not finite.
    """
    measure, _, factor = measure_of(next(iter(methods.values()))[0][-1])
    values = {
        name: factor * np.array([_last_five(history, measure) for history in histories])
        for name, histories in methods.items()
    }
    first = next(iter(values.values()))
    rows: list[dict[str, Any]] = []
    for name, found in values.items():
        low, high = _interval(found, confidence)
        row = {"method": name, "measure": measure, "mean": float(found.mean()), "low": low, "high": high}
        if found is not first:
            difference = found - first
            low, high = _interval(difference, confidence)
            row |= {"difference": float(difference.mean()), "difference_low": low, "difference_high": high}
            row["p"] = _paired_p(found, first)
        rows.append(row | {"seeds": len(found)})
    for row, adjusted in zip(rows[1:], _holm([row["p"] for row in rows[1:]]), strict=True):
        row["p"] = adjusted
    return rows


def plot_comparison(methods: Mapping[str, Histories], title: str, path: Path, confidence: float = 0.95) -> None:
    """Draw the measure over rounds: means over seeds with their intervals."""
    from matplotlib.figure import Figure

    key, label, factor = measure_of(next(iter(methods.values()))[0][-1])
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, histories in methods.items():
        rounds = [row["round"] for row in histories[0]]
        found = factor * np.array([[row[key] for row in history] for history in histories])
        axes.plot(rounds, found.mean(axis=0), label=name)
        if len(found) > 1:
            bands = np.array([_interval(column, confidence) for column in found.T])
            axes.fill_between(rounds, bands[:, 0], bands[:, 1], alpha=0.2)
    scale = "linear" if key == MEASURES[0][0] else "log"
    axes.set(xlabel="round", ylabel=label, title=title, yscale=scale)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=130)


def _interval(values: np.ndarray, confidence: float) -> tuple[float, float]:
    """Student's interval of the mean."""
    from scipy.stats import t

    if len(values) < 2:
        return math.nan, math.nan
    half = t.ppf((1 + confidence) / 2, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def _last_five(history: History, measure: str) -> float:
    """The mean of the last five rounds; NaN of a run that diverged, whatever its last figures are."""
    mean = statistics.fmean(row[measure] for row in history[-5:])
    return mean if math.isfinite(mean) else math.nan


def _paired_p(found: np.ndarray, first: np.ndarray) -> float:
    """The p-value before any correction; NaN where there is no test: one run, or differences without spread."""
    from scipy.stats import ttest_rel

    difference = found - first
    rounding = 1e-12 * max(np.abs(found).max(), np.abs(first).max())
    varies = len(found) > 1 and bool(np.ptp(difference) > rounding)  # a NaN does not
    return float(ttest_rel(found, first).pvalue) if varies else math.nan


def _holm(ps: list[float]) -> list[float]:
    """p-values adjusted for their number by Holm's method. A NaN stays, and counts as one of the tests."""
    known = [i for i, p in enumerate(ps) if not math.isnan(p)]
    adjusted, largest = [math.nan] * len(ps), 0.0
    for place, i in enumerate(sorted(known, key=lambda i: ps[i])):
        largest = max(largest, min(1.0, (len(ps) - place) * ps[i]))
        adjusted[i] = largest
    return adjusted
