"""A sweep's results: one tidy table, the best point by a named rule, a heat map, and what choosing costs."""

from __future__ import annotations

import csv
import json
import math
import statistics
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from sordino.errors import InvalidInput, Refused
from sordino.privacy import wording
from sordino.privacy.accountants import account_of, epsilon_of
from sordino.privacy.events import ByHolder, Composed, Event, parts_of, passing_anew
from sordino.privacy.guarantee import Certificate
from sordino.privacy.selection import selection_epsilon
from sordino.report.curves import MEASURES
from sordino.report.heat_maps import HeatMap, draw_heat_maps
from sordino.types import Relation

__all__ = ["RULES", "best_point", "plot_heat_map", "rule_for", "tidy_table", "tuning_cost", "write_table"]

Row = dict[str, Any]


def tidy_table(records: Sequence[dict[str, Any]]) -> list[Row]:
    """A row a point: what was varied, what was measured last and over the last five rounds, what was promised."""
    rows = []
    for record in records:
        last, tail = record["history"][-1], record["history"][-5:]
        own = {key: _cell(value) for key, value in record["values"].items()}
        row: Row = {"point": record["point"], **own, "seed": record["seed"], "rounds": last["round"]}
        for measure, _, _ in MEASURES:
            if measure in last:
                row[measure] = last[measure]
                row[f"{measure}_last_5"] = statistics.fmean(line[measure] for line in tail)
        row["diverged"] = record["diverged"]
        certificate = Certificate.from_json(record["certificate"])
        for total in certificate.totals:
            observer = total.observer.replace(" ", "_")
            row |= {f"epsilon_{observer}": total.epsilon, f"delta_{observer}": total.delta}
        row["epsilon_of"] = wording.table_note(certificate)
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

    cells = {key: [row.get(key) for row in rows] for key in columns}
    for key, values in cells.items():  # a column has one type: words, where words and numbers mix
        if any(isinstance(value, str) for value in values):
            cells[key] = [None if value is None else str(value) for value in values]
    write_parquet(Table.from_pydict(cells), folder / "table.parquet")
    return [plain, folder / "table.parquet"]


# What "best" means, by name: the column that is averaged over seeds, and whether more of it is better.
RULES: dict[str, tuple[str, Callable[[float], float]]] = {
    "accuracy-last-5": ("accuracy_last_5", lambda value: value),
    "accuracy-last": ("accuracy", lambda value: value),
    "suboptimality-last-5": ("suboptimality_last_5", lambda value: -value),
    "loss-last-5": ("test_loss_last_5", lambda value: -value),
}


def rule_for(measures: Collection[str], wanted: str | None = None) -> str:
    """The rule of that name, or the first one, whose measure is among those that every run is given."""
    usable = [name for name, (column, _) in RULES.items() if column.removesuffix("_last_5") in measures]
    if wanted is not None and wanted not in usable:
        raise InvalidInput("best", wanted, "use one of " + ", ".join(usable))
    return wanted or usable[0]


def best_point(rows: Sequence[Row], varied: Sequence[str], rule: str) -> Row | None:
    """The values that are best on the mean over seeds, and that mean; None if every point diverged.

    Values of which one seed diverged are not chosen.
    """
    column, worth = RULES[rule]
    groups = _by_values(rows, _without_seed(varied))
    means = [(group, _mean(group, column)) for group in groups.values()]
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
    """Means over seeds for two varied numbers, a panel for each value of the others; False if there are not two.

    Values of which one seed diverged are lost; those that no point has stay empty.
    """
    column, _ = RULES[rule]
    keys = [key for key in _without_seed(varied) if len({row[key] for row in rows}) > 1]
    numbers = [key for key in keys if all(isinstance(row[key], int | float) for row in rows)]
    # The two with the most values span the map.
    across = sorted(numbers, key=lambda key: -len({row[key] for row in rows}))[:2]
    if len(across) < 2:
        return False
    down, along = sorted(across, key=keys.index)
    others = [key for key in keys if key not in across]
    downs, alongs = (sorted({row[key] for row in rows}) for key in (down, along))
    factor = 100.0 if column.startswith("accuracy") else 1.0
    maps = {}
    for values, panel in _by_values(rows, others).items():
        found = {
            place: math.nan if any(row["diverged"] for row in group) else factor * _mean(group, column)
            for place, group in _by_values(panel, [down, along]).items()
        }
        name = ", ".join(f"{key} = {value}" for key, value in zip(others, values, strict=True))
        table = [[found.get((a, b)) for b in alongs] for a in downs]
        maps[name] = HeatMap([f"{value:g}" for value in downs], [f"{value:g}" for value in alongs], table)
    label = column + (" (%)" if factor == 100 else "")
    draw_heat_maps(maps, path, label=label, down=down, along=along)
    return True


def tuning_cost(
    events: Sequence[Event], delta: float, relation: Relation, *, shared_noise: bool, sees_every_run: bool
) -> dict[str, Any]:
    """What the certificate of one run leaves out: everything that was tried.

    Args:
      events: what each run shows to an observer.
      delta: of the guarantee over all runs.
      relation: of the guarantee.
      shared_noise: whether a run shares its seed with another, and so its noise, which the two of them may cancel.
      sees_every_run: whether the observer does so even if one model is given out, as the server.

    Returns epsilon of all runs together; of as many with noise of their own; and, for one who sees only what is given
    out, of the best of a random number of those, on average as many.
    """
    cost: dict[str, Any] = {"runs": len(events), "delta": delta, "shared_noise": shared_noise}
    try:
        together = _together(events)
        independent = epsilon_of(together, delta, relation)
        cost["accountant"] = account_of(together, relation).accountant
        cost["epsilon_of_all_runs"] = math.inf if cost["shared_noise"] else independent
        cost["epsilon_with_independent_noise"] = independent
        if len(events) > 1 and not sees_every_run and math.isfinite(independent):
            kinds = dict.fromkeys(events)
            cost["epsilon_of_private_selection"] = selection_epsilon(
                *kinds, trials=len(events), delta=delta, relation=relation
            )
    except Refused as error:
        cost["note"] = str(error)
    return cost


def _together(events: Sequence[Event]) -> Event:
    """All runs, as one event: each of them passes over the data anew, and a client's records are its own in each."""
    if len(set(events)) > 1 and any(isinstance(part, ByHolder) for event in events for part in parts_of(event)):
        reason = "runs that promise the clients different things are not composed client by client here"
        raise Refused(reason, "sweep the epsilons one at a time")
    return Composed(tuple(passing_anew(event, f"run {number}") for number, event in enumerate(events)))


def _mean(rows: Sequence[Row], column: str) -> float:
    return statistics.fmean(row[column] for row in rows)


def _without_seed(varied: Sequence[str]) -> list[str]:
    return [key for key in varied if key != "run.seed"]


def _by_values(rows: Sequence[Row], keys: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def _cell(value: Any) -> Any:
    """A value of a file as a table holds it: lists and tables as text."""
    return json.dumps(value) if isinstance(value, list | dict) else value
