"""What `sordino run` and `sordino plan` do with a file that stands for many runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sordino.cli.output import show, working
from sordino.config import Sweep
from sordino.errors import InvalidInput
from sordino.privacy.guarantee import format_epsilon

__all__ = ["points_progress", "run_sweep", "show_sweep_plan"]

NOT_COVERED = (
    "Each certificate covers one run; choosing among runs by what was measured on private data is not covered."
)


def show_sweep_plan(sweep: Sweep, *, as_json: bool) -> None:
    """How many runs a file stands for, and what each promises."""
    with working("planning"):
        tasks = sweep.tasks()
        promises: dict[str, dict[str, Any]] = {}
        for values, config in sweep.points:
            task = tasks[config.task_key]
            resolved = config.resolve(config.plan(), task)
            entry = promises.setdefault(str(resolved.certificate), {"points": [], "resolved": resolved})
            entry["points"].append(values)
    result = {"file": str(sweep.path), "points": len(sweep.points), "varied": list(sweep.varied)}
    if as_json:
        several = [
            {
                "points": entry["points"],
                "noise": dict(entry["resolved"].noise),
                **entry["resolved"].certificate.to_json(),
            }
            for entry in promises.values()
        ]
        show("", result | {"promises": several}, as_json=True)
        return
    show(f"Plan of the sweep {sweep.path}", result, as_json=False)
    for text, entry in promises.items():
        print(f"\n{len(entry['points'])} points, {_common(entry['points'])}:")
        print(text)


def run_sweep(sweep: Sweep, folder: Path, best: str | None, *, as_json: bool) -> None:
    """Run the points that are missing; write and show the table, the best point and the heat map."""
    from sordino.report.sweeps import best_point, plot_heat_map, tidy_table, usual_rule, write_table
    from sordino.simulation.sweep_files import SweepFiles

    with working("reading data and planning"):
        tasks = sweep.tasks()
        for _, config in sweep.points:  # errors come before anything runs
            config.resolve(config.plan(), tasks[config.task_key])
    files = SweepFiles(folder, sweep.changed)
    missing = [number for number in range(len(sweep.points)) if files.load(number) is None]
    with points_progress(len(missing)) as progress:
        _run_missing(sweep, tasks, missing, files, progress)
    records = [record for number in range(len(sweep.points)) if (record := files.load(number)) is not None]
    rows = tidy_table(records)
    tables = write_table(rows, folder)
    rule = best or usual_rule(rows)
    chosen = best_point(rows, sweep.varied, rule)
    heat_map = folder / "heat_map.png"
    drawn = plot_heat_map(rows, sweep.varied, rule, heat_map)
    result: dict[str, Any] = {
        "sweep": str(folder),
        "points": len(rows),
        "ran_now": len(missing),
        "diverged": sum(row["diverged"] for row in rows),
        "tables": [str(path) for path in tables],
        "heat_map": str(heat_map) if drawn else None,
        "rule": rule,
        "best": chosen["values"] if chosen else None,
        "best_mean": chosen["mean"] if chosen else None,
        "best_points": chosen["points"] if chosen else None,
    }
    costs = _costs(sweep, tasks)
    if as_json:
        show("", result | {"rows": rows, "choosing": {"note": NOT_COVERED, "costs": costs}}, as_json=True)
        return
    show(f"Sweep of {sweep.path}", result, as_json=False)
    print(NOT_COVERED)
    for cost in costs:
        print(_cost_in_words(cost))


def _run_missing(
    sweep: Sweep, tasks: dict[str, Any], missing: list[int], files: Any, progress: Callable[[float], None]
) -> None:
    """Points of one task and one schedule of evaluations go to the engine together."""
    from sordino.simulation.sweep import Point
    from sordino.simulation.sweep import sweep as run_points

    groups: dict[Any, list[int]] = {}
    for number in missing:
        config = sweep.points[number].config
        if config.file.run.transcript:
            raise InvalidInput("transcript", True, "is for a single run: a sweep keeps no messages")
        groups.setdefault((config.task_key, config.file.run.evaluate_every, config.file.run.chunk), []).append(number)
    done = 0
    for (task_key, evaluate_every, chunk), numbers in groups.items():
        configs = [sweep.points[number].config for number in numbers]

        def keep(place: int, run: Any, numbers: list[int] = numbers) -> None:
            values, config = sweep.points[numbers[place]]
            files.save(numbers[place], values, config.file.run.seed, run)

        def advance(share: float, done: int = done, size: int = len(numbers)) -> None:
            progress((done + share * size) / len(missing))

        run_points(
            [Point(config.plan(), config.file.run.seed) for config in configs],
            tasks[task_key],
            evaluate_every=evaluate_every,
            chunk=chunk,
            progress=advance,
            finished=keep,
        )
        done += len(numbers)


def _costs(sweep: Sweep, tasks: dict[str, Any]) -> list[dict[str, Any]]:
    """What trying all points costs against the observer who is promised something, by task and delta."""
    from sordino.report.sweeps import tuning_cost

    groups: dict[Any, list[Any]] = {}
    for _, config in sweep.points:
        plan, task = config.plan(), tasks[config.task_key]
        resolved = config.resolve(plan, task)
        total = resolved.certificate.total(resolved.promised)
        kind = (task.name, total.observer, total.unit, plan.relation, total.delta)
        groups.setdefault(kind, []).append(resolved.event_for(resolved.promised, plan.rounds))
    return [
        {"task": name, "observer": str(observer), "unit": str(unit), "relation": str(relation)}
        | tuning_cost(events, delta, relation)
        for (name, observer, unit, relation, delta), events in groups.items()
    ]


def _cost_in_words(cost: dict[str, Any]) -> str:
    whom = f"For one {cost['unit']} against the {cost['observer']} ({cost['relation']}, delta = {cost['delta']:g})"
    everything = f"all {cost['runs']} runs together cost epsilon = {format_epsilon(cost['epsilon_of_all_runs'])}"
    if "epsilon_of_private_selection" not in cost:
        return f"{whom} {everything}."
    selection = format_epsilon(cost["epsilon_of_private_selection"])
    return (
        f"{whom} {everything}. Giving out only the best of a random number, geometric with mean {cost['runs']}, "
        f"would cost epsilon = {selection} (Papernot and Steinke 2022; scores from public data)."
    )


def _common(points: list[dict[str, Any]]) -> str:
    """What points have in common, in words."""
    same = {key: value for key, value in points[0].items() if all(point[key] == value for point in points)}
    return ", ".join(f"{key} = {value}" for key, value in same.items()) or "whatever the values"


@contextmanager
def points_progress(points: int) -> Iterator[Callable[[float], None]]:
    """A bar over the work of all points, on a terminal; nothing otherwise."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn(f"{points} points"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        work = bar.add_task("", total=1.0)
        yield lambda share: bar.update(work, completed=share)
