"""Comparison of methods: means with confidence intervals, and tests of the paired differences of all pairs.

Runs are paired by seed: runs with equal seeds start from the same model and draw the same clients. All pairs are
tested, so that the answer does not depend on the order of the methods.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sordino.report.curves import MEASURES, History, measure_of
from sordino.report.figures import save_privately
from sordino.runs.names import POINTS

Histories = Sequence[History]  # one for each seed
TEST = "two-sided paired t-test, runs paired by seed"
CORRECTION = "Holm"
COMPARISON = "comparison.json"  # what a comparison keeps, as it is printed
HIGHER_IS_BETTER = MEASURES[0][0]  # accuracy; less of every other measure is better


def parts_of_comparison(folder: Path) -> list[Path]:
    """Of each method of a comparison the runs among which its best point is chosen, and the runs of that point."""
    return sorted(each.parent for part in ("tuning", "best") for each in folder.glob(f"*/{part}/{POINTS}"))


class Comparison(NamedTuple):
    """The methods, best mean first, and every pair of them, the better one first."""

    rows: list[dict[str, Any]]
    pairs: list[dict[str, Any]]

    @property
    def correction(self) -> str:
        """The correction for several tests, and their number."""
        return f"{CORRECTION}, for all {len(self.pairs)} pairs" if len(self.pairs) > 1 else "none: one pair"


def compare(methods: Mapping[str, Histories], confidence: float = 0.95) -> Comparison:
    """Means over seeds of the last five rounds with intervals, and the differences of all pairs.

    The p-values are those of paired t-tests, adjusted for the number of pairs (Holm). The figures of a method are NaN
    if one of its runs diverged; so is a p-value if all differences are equal, or one is not finite. The rows also hold
    the pair of the method with the best one.
    """
    measure, _, factor = measure_of(next(iter(methods.values()))[0][-1])
    values = {
        name: factor * np.array([_last_five(history, measure) for history in histories])
        for name, histories in methods.items()
    }
    sign = -1.0 if measure == HIGHER_IS_BETTER else 1.0

    def rank(name: str) -> tuple[bool, float, str]:
        mean = sign * float(values[name].mean())
        return not math.isfinite(mean), mean if math.isfinite(mean) else 0.0, name

    names = sorted(values, key=rank)
    pairs = [_pair(a, b, values, confidence) for a, b in itertools.combinations(names, 2)]
    for pair, adjusted in zip(pairs, _holm([pair["p"] for pair in pairs]), strict=True):
        pair["p"] = adjusted
    rows: list[dict[str, Any]] = []
    for name in names:
        low, high = _interval(values[name], confidence)
        row = {"method": name, "measure": measure, "mean": float(values[name].mean()), "low": low, "high": high}
        rows.append(row | {"seeds": len(values[name])})
    for row, pair in zip(rows[1:], pairs, strict=False):  # the first pairs are those of the best method
        row |= {key: pair[key] for key in ("difference", "difference_low", "difference_high", "p")}
    return Comparison(rows, pairs)


def _pair(better: str, other: str, values: Mapping[str, np.ndarray], confidence: float) -> dict[str, Any]:
    """The other less the better, and the p-value before any correction."""
    difference = values[other] - values[better]
    low, high = _interval(difference, confidence)
    mean, p = float(difference.mean()), _paired_p(values[other], values[better])
    return {"better": better, "other": other} | {
        "difference": mean,
        "difference_low": low,
        "difference_high": high,
        "p": p,
    }


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
    save_privately(figure, path, dpi=130)


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
