"""Results of a sweep: a table, the best point by a named rule, a heat map, and the privacy cost of choosing."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from sordino.errors import InvalidInput, Refused, use_one_of
from sordino.files import replacing, write_atomically
from sordino.privacy import wording
from sordino.privacy.accountants import account_of, epsilon_of
from sordino.privacy.events import ByHolder, Composed, parts_of, passing_anew
from sordino.privacy.guarantee import Certificate
from sordino.privacy.selection import selection_epsilon
from sordino.report.curves import MEASURES, History
from sordino.report.heat_maps import HeatMap, draw_heat_maps
from sordino.types import Event, Relation

Row = dict[str, Any]


def record(number: int, values: Row, seed: int | None, history: History, certificate: Certificate) -> Row:
    """A finished point, as a table takes it."""
    return {
        "point": number,
        "values": values,
        "seed": seed,
        "diverged": not math.isfinite(history[-1]["test_loss"]),
        "history": history,
        "certificate": certificate.to_json(),
    }


def tidy_table(records: Sequence[Row]) -> list[Row]:
    """One row for each point: its values, the last metrics and their means over five rounds, and its guarantees."""
    rows = []
    for record in records:
        last, tail = record["history"][-1], record["history"][-5:]
        # Lists and tables of a run file become text.
        values = record["values"].items()
        own = {key: json.dumps(value) if isinstance(value, list | dict) else value for key, value in values}
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
    """Write table.csv and table.parquet, which their owner alone can read."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    plain = folder / "table.csv"
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, columns, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_atomically(plain, text.getvalue().encode(), private=True)
    from pyarrow.lib import Table
    from pyarrow.parquet import write_table as write_parquet

    cells = {key: [row.get(key) for row in rows] for key in columns}
    for key, values in cells.items():  # a Parquet column has one type: text, where text and numbers mix
        if any(isinstance(value, str) for value in values):
            cells[key] = [None if value is None else str(value) for value in values]
    with replacing(folder / "table.parquet", private=True) as file:
        write_parquet(Table.from_pydict(cells), file)
    return [plain, folder / "table.parquet"]


# The meanings of "best": the column that is averaged over seeds, and its worth.
RULES: dict[str, tuple[str, Callable[[float], float]]] = {
    "accuracy-last-5": ("accuracy_last_5", lambda value: value),
    "accuracy-last": ("accuracy", lambda value: value),
    "suboptimality-last-5": ("suboptimality_last_5", lambda value: -value),
    "loss-last-5": ("test_loss_last_5", lambda value: -value),
}


def rule_for(measures: Collection[str], wanted: str | None = None) -> str:
    """The rule called `wanted`, or the first one, among the rules whose measure every run has."""
    usable = [name for name, (column, _) in RULES.items() if column.removesuffix("_last_5") in measures]
    if wanted is not None and wanted not in usable:
        raise InvalidInput("best", wanted, use_one_of(wanted, usable))
    return wanted or usable[0]


def best_point(rows: Sequence[Row], varied: Sequence[str], rule: str) -> Row | None:
    """The values with the best mean over seeds, and that mean; None if every point diverged.

    Values with a seed that diverged are not chosen.
    """
    column, worth = RULES[rule]
    means = [(group, _mean_or_nan(group, column)) for group in _by_values(rows, _without_seed(varied)).values()]
    sound = [(group, mean) for group, mean in means if not math.isnan(mean)]
    if not sound:
        return None
    group, mean = max(sound, key=lambda pair: worth(pair[1]))
    points = [row["point"] for row in group]
    values = {key: group[0][key] for key in _without_seed(varied)}
    return {"points": points, "values": values, "rule": rule, "mean": mean, "seeds": len(group)}


def plot_heat_map(rows: Sequence[Row], varied: Sequence[str], rule: str, path: Path) -> bool:
    """Means over seeds for two varied numbers, one panel for each value of the other keys; False without two numbers.

    A cell is "lost" if one of its seeds diverged, and empty if no point has its values.
    """
    column, _ = RULES[rule]
    spanning, others = _spanning(rows, varied)
    if len(spanning) < 2:
        return False
    down, along = spanning
    factor = 100.0 if column.startswith("accuracy") else 1.0
    downs, alongs = (sorted({row[key] for row in rows}) for key in spanning)
    maps = {}
    for values, panel in _by_values(rows, others).items():
        found = {place: factor * _mean_or_nan(group, column) for place, group in _by_values(panel, spanning).items()}
        name = ", ".join(f"{key} = {value}" for key, value in zip(others, values, strict=True))
        table = [[found.get((a, b)) for b in alongs] for a in downs]
        maps[name] = HeatMap([f"{value:g}" for value in downs], [f"{value:g}" for value in alongs], table)
    draw_heat_maps(maps, path, label=column + " (%)" * (factor == 100), down=down, along=along)
    return True


def _spanning(rows: Sequence[Row], varied: Sequence[str]) -> tuple[list[str], list[str]]:
    """The two numbers with the most values, in the order of the file, and the other keys that vary."""
    counts = {key: len({row[key] for row in rows}) for key in _without_seed(varied)}
    keys = [key for key, count in counts.items() if count > 1]
    numbers = [key for key in keys if all(isinstance(row[key], int | float) for row in rows)]
    chosen = sorted(numbers, key=lambda key: -counts[key])[:2]
    return [key for key in keys if key in chosen], [key for key in keys if key not in chosen]


def _mean_or_nan(rows: Sequence[Row], column: str) -> float:
    return math.nan if any(row["diverged"] for row in rows) else statistics.fmean(row[column] for row in rows)


def tuning_cost(
    events: Sequence[Event], delta: float, relation: Relation, *, shared_noise: bool, sees_every_run: bool
) -> dict[str, Any]:
    """The cost of the whole sweep, which the certificate of one run does not cover.

    Args:
      events: for each run, what it shows to the observer.
      delta: of the guarantee over all runs.
      relation: of the guarantee.
      shared_noise: whether two runs have the same seed; their noise is then the same and may cancel.
      sees_every_run: whether the observer sees every run, as the server does, or only the model that is published.

    Returns the epsilon of all runs together; the same with independent noise; and, for an observer of the published
    model only, the epsilon of private selection with as many trials on average.
    """
    cost: dict[str, Any] = {"runs": len(events), "delta": delta, "shared_noise": shared_noise}
    try:
        together = _together(events)
        independent = epsilon_of(together, delta, relation)
        cost["accountant"] = account_of(together, relation).accountant
        cost["epsilon_of_all_runs"] = math.inf if shared_noise else independent
        cost["epsilon_with_independent_noise"] = independent
        if len(events) > 1 and not sees_every_run and math.isfinite(independent):
            chosen = selection_epsilon(*dict.fromkeys(events), trials=len(events), delta=delta, relation=relation)
            cost["epsilon_of_private_selection"] = chosen
    except Refused as error:
        cost["note"] = str(error)
    return cost


def _together(events: Sequence[Event]) -> Event:
    """All runs as one event; each run passes over the data again."""
    if len(set(events)) > 1 and any(isinstance(part, ByHolder) for event in events for part in parts_of(event)):
        reason = "runs that promise the clients different things are not composed client by client here"
        raise Refused(reason, "sweep the epsilons one at a time")
    return Composed(tuple(passing_anew(event, f"run {number}") for number, event in enumerate(events)))


def _without_seed(varied: Sequence[str]) -> list[str]:
    return [key for key in varied if key != "run.seed"]


def _by_values(rows: Sequence[Row], keys: Sequence[str]) -> dict[tuple[object, ...], list[Row]]:
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups
