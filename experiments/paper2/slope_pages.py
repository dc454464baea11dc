"""Merging the parts of `experiments.paper2.slopes`: the result, its note and its figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.merge_parts import joined_provenance
from experiments.paper2.slope_cases import CASES, WHY
from sordino.errors import require

ROOT = Path(__file__).parents[2]
QUANTITIES = ("n", "M", "d", "epsilon")


def merge(parts: list[dict[str, Any]], to: Path) -> None:
    """One result of all parts. Rows that no part has again stay as they are, with the commit that made them."""
    before = json.loads(to.read_text()) if to.exists() else {"rows": []}
    found = {(row["row"], row["column"]): row for part in [before, *parts] for row in part["rows"]}
    order = [(f"{case.name}, {risk} risk", name) for case in CASES for risk in case.risks for name in case.values]
    rows = [found[cell] for cell in order if cell in found]
    require(bool(rows), "parts", len(parts), "hold no row of a case: give parts of slopes")
    result = {
        "name": "slopes",
        "metric": "slope of log excess risk; ci95 is half of its 95 % interval; paper is the theorem's exponent",
        "guarantees": [],
        "provenance": joined_provenance(parts),
        "rows": rows,
        "note": note_of(rows),
    }
    to.write_text(json.dumps(result, indent=1) + "\n")
    plot(rows)


def note_of(rows: list[dict[str, Any]]) -> str:
    """Which slopes hold the exponent of the theorem, or of its bound with logarithms, in their interval."""

    def agrees(row: dict[str, Any], with_logarithms: bool) -> bool:
        other = row["with_logarithms"] if with_logarithms else row["paper"]
        return bool(abs(row["mean"] - other) <= row["ci95"])

    plain = [row for row in rows if agrees(row, with_logarithms=False)]
    only_logarithms = [row for row in rows if row not in plain and agrees(row, with_logarithms=True)]
    rest = [row for row in rows if row not in plain and row not in only_logarithms]
    text = f"{len(plain)} of {len(rows)} slopes hold the theorem's exponent in their 95 % interval, and "
    text += f"{len(only_logarithms)} more that of its bound with the noise that was added and with logarithms."
    for row in rest:
        text += f"\n\n{row['row']}, {row['column']}: {row['mean']:.2f} +- {row['ci95']:.2f}, the bound's "
        text += f"{row['with_logarithms']:.2f}. {_why(row)}"
    return text


def _why(row: dict[str, Any]) -> str:
    """What experiments showed to be the cause."""
    return " ".join(why for (case, name), why in WHY.items() if row["row"].startswith(case) and name == row["column"])


def plot(rows: list[dict[str, Any]]) -> None:
    """Excess risk over each quantity, a row a case."""
    names = list(dict.fromkeys(row["row"] for row in rows))
    figure = Figure(figsize=(13, 2.2 * len(names)), layout="constrained")
    grid = figure.subplots(len(names), len(QUANTITIES), squeeze=False)
    for axes in grid.ravel():
        axes.axis("off")
    for row in rows:
        axes = grid[names.index(row["row"]), QUANTITIES.index(row["column"])]
        axes.axis("on")
        x, risk, half = np.array(row["values"]), np.array(row["risk"]), row["ci95"]
        axes.loglog(x, risk, "o-")
        axes.loglog(x, risk[1] * (x / x[1]) ** row["paper"], "k:", label=f"slope {row['paper']:g}")
        axes.set(xlabel=row["column"], title=f"{row['mean']:.2f} +- {half:.2f}")
        axes.tick_params(axis="x", which="minor", labelbottom=False)
        axes.legend()
        axes.grid(alpha=0.3)
        if row["column"] == next(other["column"] for other in rows if other["row"] == row["row"]):
            axes.set_ylabel(row["row"].replace(": ", ":\n").replace(", ", ",\n"), fontsize=6)
    figure.savefig(ROOT / "docs/figures/paper2-slopes.png", dpi=60)
