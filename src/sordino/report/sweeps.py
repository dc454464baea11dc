"""A sweep's results: one tidy table, the best point by a named rule, a heat map, and what choosing costs."""

from __future__ import annotations

import csv
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sordino.errors import InvalidInput, Refused
from sordino.privacy.accountants import epsilon_of
from sordino.privacy.events import Composed, Event
from sordino.privacy.selection import selection_epsilon
from sordino.report.curves import MEASURES
from sordino.types import Relation

__all__ = ["RULES", "best_point", "plot_heat_map", "tidy_table", "tuning_cost", "write_table"]

Row = dict[str, Any]


def tidy_table(records: Sequence[dict[str, Any]]) -> list[Row]:
    """A row a point: what was varied, what was measured last and over the last five rounds, what was promised."""
    rows = []
    for record in records:
        last, tail = record["history"][-1], record["history"][-5:]
        row: Row = {"point": record["point"], **record["values"], "seed": record["seed"], "rounds": last["round"]}
        for measure, _, _ in MEASURES:
            if measure in last:
                row[measure] = last[measure]
                row[f"{measure}_last_5"] = statistics.fmean(line[measure] for line in tail)
        row["diverged"] = record["diverged"]
        for promise in record["certificate"]["guarantees"]:
            if promise["scope"] == "all rounds":
                observer = promise["observer"].replace(" ", "_")
                row[f"epsilon_{observer}"] = float(promise["epsilon"])
                row[f"delta_{observer}"] = promise["delta"]
        rows.append(row)
    return rows


def write_table(rows: Sequence[Row], folder: Path) -> list[Path]:
    """table.csv and table.parquet."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    plain = folder / "table.csv"
    with plain.open("w", newline="") as file:
        table = csv.DictWriter(file, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    from pyarrow.lib import Table
    from pyarrow.parquet import write_table as write_parquet

    write_parquet(Table.from_pydict({key: [row.get(key) for row in rows] for key in columns}), folder / "table.parquet")
    return [plain, folder / "table.parquet"]


# What "best" means, by name: the column that is averaged over seeds, and whether more of it is better.
RULES: dict[str, tuple[str, Callable[[float], float]]] = {
    "accuracy-last-5": ("accuracy_last_5", lambda value: value),
    "accuracy-last": ("accuracy", lambda value: value),
    "suboptimality-last-5": ("suboptimality_last_5", lambda value: -value),
    "loss-last-5": ("test_loss_last_5", lambda value: -value),
}


def usual_rule(rows: Sequence[Row]) -> str:
    """The first rule whose column is there."""
    return next(name for name, (column, _) in RULES.items() if column in rows[0])


def best_point(rows: Sequence[Row], varied: Sequence[str], rule: str) -> Row | None:
    """The values that are best on the mean over seeds, and that mean; None if every point diverged.

    Values of which one seed diverged are not chosen.
    """
    if rule not in RULES or RULES[rule][0] not in rows[0]:
        usable = [name for name, (column, _) in RULES.items() if column in rows[0]]
        raise InvalidInput("best", rule, "use one of " + ", ".join(usable))
    column, worth = RULES[rule]
    groups = _by_values(rows, _without_seed(varied))
    means = [(group, statistics.fmean(row[column] for row in group)) for group in groups.values()]
    sound = [(group, mean) for group, mean in means if not any(row["diverged"] for row in group)]
    if not sound:
        return None
    group, mean = max(sound, key=lambda pair: worth(pair[1]))
    values = {key: group[0][key] for key in _without_seed(varied)}
    return {
        "points": [row["point"] for row in group],
        "values": values,
        "rule": rule,
        "mean": mean,
        "seeds": len(group),
    }


def plot_heat_map(rows: Sequence[Row], varied: Sequence[str], rule: str, path: Path) -> bool:
    """Means over seeds for two varied numbers, a panel for each value of the others; False if there are not two."""
    from matplotlib.figure import Figure

    column, _ = RULES[rule]
    keys = [key for key in _without_seed(varied) if len({row[key] for row in rows}) > 1]
    numbers = [key for key in keys if all(isinstance(row[key], int | float) for row in rows)]
    # The two with the most values span the map.
    across = sorted(numbers, key=lambda key: -len({row[key] for row in rows}))[:2]
    if len(across) < 2:
        return False
    down, along = sorted(across, key=keys.index)
    others = [key for key in keys if key not in across]
    panels = _by_values(rows, others)
    down_values, along_values = (sorted({row[key] for row in rows}) for key in (down, along))
    factor = 100.0 if column.startswith("accuracy") else 1.0
    figure = Figure(figsize=(4.6 * len(panels) + 1, 4.2), layout="constrained")
    found = {
        (values, *place): factor * statistics.fmean(row[column] for row in group)
        for values, panel in panels.items()
        for place, group in _by_values(panel, [down, along]).items()
    }
    finite = [value for value in found.values() if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, values in zip(all_axes, panels, strict=True):
        grid = [[found.get((values, a, b), math.nan) for b in along_values] for a in down_values]
        image = axes.imshow(grid, origin="lower", aspect="auto", vmin=low, vmax=high)
        axes.set_xticks(range(len(along_values)), [f"{value:g}" for value in along_values], rotation=45)
        axes.set_yticks(range(len(down_values)), [f"{value:g}" for value in down_values])
        axes.set(xlabel=along, ylabel=down)
        axes.set_title(", ".join(f"{key} = {value}" for key, value in zip(others, values, strict=True)), fontsize=9)
        for (i, line), j in itertools.product(enumerate(grid), range(len(along_values))):
            text = "lost" if math.isnan(line[j]) else f"{line[j]:.3g}"
            axes.text(j, i, text, ha="center", va="center", color="white", fontsize=7)
    figure.colorbar(image, ax=all_axes.tolist(), label=column + (" (%)" if factor == 100 else ""))
    figure.savefig(path, dpi=130)
    return True


def tuning_cost(events: Sequence[Event], delta: float, relation: Relation) -> dict[str, Any]:
    """What the certificate of one run leaves out: everything that was tried, for one who sees each of the models.

    Returns epsilon if all runs are seen, and if only the best of a random number of runs (on average as many) is.
    """
    cost: dict[str, Any] = {"runs": len(events), "delta": delta, "epsilon_of_all_runs": math.inf}
    try:
        cost["epsilon_of_all_runs"] = epsilon_of(Composed(tuple(events)), delta, relation)
        # One run of the worst kind stands for all of them.
        worst = max(set(events), key=lambda event: epsilon_of(event, delta, relation))
        cost["epsilon_of_private_selection"] = selection_epsilon(
            worst, trials=max(len(events), 2), delta=delta, relation=relation
        )
    except Refused as error:
        cost["note"] = str(error)
    return cost


def _without_seed(varied: Sequence[str]) -> list[str]:
    return [key for key in varied if key != "run.seed"]


def _by_values(rows: Sequence[Row], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups
