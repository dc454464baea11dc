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
    """One result of all parts, the later before the earlier.

    Rows that no part has again stay as they are, with the commit that made them; rows of cases that are gone do not.
    """
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


def standing(row: dict[str, Any]) -> str:
    """Whether the interval holds the theorem's exponent, that of its bound, or neither.

    between: it reaches into the gap of the two. Bounds are sums, of which the theorem names the largest term; one
    measures the term with a weight of its own, and so a slope between both.
    """
    low, high = row["mean"] - row["ci95"], row["mean"] + row["ci95"]
    paper, bound = row["paper"], row["with_logarithms"]
    if low <= paper <= high:
        return "theorem"
    if low <= bound <= high:
        return "bound"
    return "between" if low <= max(paper, bound) and min(paper, bound) <= high else "neither"


def note_of(rows: list[dict[str, Any]]) -> str:
    """How many slopes hold the exponent of the theorem, or of its bound, and why the others do not."""
    of = {row["row"] + row["column"]: standing(row) for row in rows}
    counts = {each: list(of.values()).count(each) for each in ("theorem", "bound", "between", "neither")}
    text = f"Of {len(rows)} slopes {counts['theorem']} hold the theorem's exponent in their 95 % interval, and "
    text += f"{counts['bound']} more that of its bound with the noise that was added and with logarithms. Noise of the "
    text += "accountant falls more slowly than 1 / epsilon: over the values here about as its power 0.9. "
    text += f"{counts['between']} lie between both, as the sum of two terms does. By chance alone one interval in "
    text += "twenty misses. What holds neither:"
    for row in rows:
        if of[row["row"] + row["column"]] == "neither":
            text += f"\n\n{row['row']}, {row['column']}: {row['mean']:.3f} +- {row['ci95']:.3f}, the theorem's "
            text += f"{row['paper']:g}, the bound's {row['with_logarithms']:.3f}; between neighbouring values "
            text += f"{', '.join(f'{local:.2f}' for local in row['local_slopes'])}. {_why(row)}"
    return text


def _why(row: dict[str, Any]) -> str:
    """What experiments showed to be the cause."""
    return " ".join(why for (case, name), why in WHY.items() if row["row"].startswith(case) and name == row["column"])


def plot(rows: list[dict[str, Any]]) -> None:
    """Excess risk over each quantity, a row of panels a case."""
    names = list(dict.fromkeys(_case(row) for row in rows))
    figure = Figure(figsize=(13, 2.2 * len(names)), layout="constrained")
    grid = figure.subplots(len(names), len(QUANTITIES), squeeze=False)
    for axes in grid.ravel():
        axes.axis("off")
    for row in rows:
        axes = grid[names.index(_case(row)), QUANTITIES.index(row["column"])]
        axes.axis("on")
        x, risk = np.array(row["values"]), np.array(row["risk"])
        kind = row["row"].split(", ")[-1].removesuffix(" risk")
        axes.loglog(x, risk, "o-", label=f"{kind} {row['mean']:.2f} +- {row['ci95']:.2f}", alpha=0.7)
        if len(axes.lines) == 1:
            axes.loglog(x, risk[1] * (x / x[1]) ** row["paper"], "k:", label=f"theorem {row['paper']:g}")
            axes.set(xlabel=row["column"])
            axes.tick_params(axis="x", which="minor", labelbottom=False)
            axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
        if row["column"] == next(other["column"] for other in rows if _case(other) == _case(row)):
            axes.set_ylabel(_case(row).replace(": ", ":\n").replace(", ", ",\n"), fontsize=6)
    figure.savefig(ROOT / "docs/figures/paper2-slopes.png", dpi=60)


def _case(row: dict[str, Any]) -> str:
    return str(row["row"]).rsplit(", ", 1)[0]
