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


def compare(methods: Mapping[str, Histories], confidence: float = 0.95) -> list[dict[str, Any]]:
    """One row for each method: mean over seeds of the last five rounds, its interval, difference from the first method.

    The p-value is that of a paired t-test against the first method, adjusted for the number of tests (Holm). The
    figures of a method are NaN if one of its runs diverged.
    """
    from scipy.stats import ttest_rel

    measure, _, factor = measure_of(next(iter(methods.values()))[0][-1])
    values = {
        name: factor * np.array([statistics.fmean(row[measure] for row in history[-5:]) for history in histories])
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
            same = bool(np.all(difference == difference[0]))
            p = float(ttest_rel(found, first).pvalue) if len(found) > 1 and not same else math.nan
            row |= {"difference": float(difference.mean()), "difference_low": low, "difference_high": high, "p": p}
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


def _holm(ps: list[float]) -> list[float]:
    """p-values adjusted for their number by Holm's method."""
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    adjusted, largest = [math.nan] * len(ps), 0.0
    for place, i in enumerate(order):
        if not math.isnan(ps[i]):
            largest = max(largest, min(1.0, (len(ps) - place) * ps[i]))
            adjusted[i] = largest
    return adjusted
