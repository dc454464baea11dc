"""`sordino run` and `sordino plan` for a file that describes many runs."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sordino.cli.output import show, working
from sordino.config import Sweep
from sordino.errors import require
from sordino.privacy import wording
from sordino.types import Observer

__all__ = ["points_progress", "run_sweep", "show_sweep_plan"]


def show_sweep_plan(sweep: Sweep, *, as_json: bool) -> None:
    """Print the number of runs of a file and the certificate of each."""
    with working("planning"):
        promises = _promises(sweep, sweep.tasks())
    result = {"file": str(sweep.path), "points": len(sweep.points), "varied": list(sweep.varied)}
    if as_json:
        show("", result | {"promises": _promises_as_json(promises)}, as_json=True)
        return
    show(f"Plan of the sweep {sweep.path}", result, as_json=False)
    _print_promises(promises)


def _promises(sweep: Sweep, tasks: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each different certificate with the points that have it."""
    promises: dict[str, dict[str, Any]] = {}
    for values, config in sweep.points:
        resolved = config.resolve(config.plan(), tasks[config.task_key])
        entry = promises.setdefault(str(resolved.certificate), {"points": [], "resolved": resolved})
        entry["points"].append(values)
    return promises


def _promises_as_json(promises: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"points": entry["points"], "noise": dict(entry["resolved"].summary), **entry["resolved"].certificate.to_json()}
        for entry in promises.values()
    ]


def _print_promises(promises: dict[str, dict[str, Any]]) -> None:
    for text, entry in promises.items():
        points = entry["points"]
        print(f"\nEach of {len(points)} points, {_common(points)}:" if len(points) > 1 else f"\n{_common(points)}:")
        print(text)


def run_sweep(sweep: Sweep, folder: Path, best: str | None, *, as_json: bool) -> None:
    """Run the points that are missing; write and show the table, the best point and the heat map."""
    from sordino.report.sweeps import best_point, plot_heat_map, rule_for, tidy_table, write_table
    from sordino.simulation.sweep_files import SweepFiles

    with working("reading data and planning"):
        tasks = sweep.tasks()
        promises = _promises(sweep, tasks)  # errors come before anything runs
        _check_run_sections(sweep)
        rule = rule_for(set.intersection(*(set(task.measures) for task in tasks.values())), best)
    with SweepFiles(folder, sweep.changed, tasks.values()) as files:  # nobody else writes here until the table is whole
        missing = [number for number in range(len(sweep.points)) if files.load(number) is None]
        with points_progress(len(missing)) as progress:
            _run_missing(sweep, tasks, missing, files, progress)
        shutil.rmtree(files.unfinished, ignore_errors=True)
        records = [record for number in range(len(sweep.points)) if (record := files.load(number)) is not None]
        rows = tidy_table(records)
        tables = write_table(rows, folder)
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
        choosing = {"note": wording.SELECTION_NOT_COVERED, "costs": costs}
        promised = _promises_as_json(promises)
        show("", result | {"rows": rows, "promises": promised, "choosing": choosing}, as_json=True)
        return
    show(f"Sweep of {sweep.path}", result, as_json=False)
    _print_promises(promises)
    print(f"\n{wording.SELECTION_NOT_COVERED}")
    for cost in costs:
        print(wording.tuning_sentence(cost, len(rows)))
    if len(costs) > 1:
        print(wording.separate_costs(len(rows)))


def _check_run_sections(sweep: Sweep) -> None:
    for _, config in sweep.points:
        run = config.file.run
        for name in ("evaluate_every", "chunk"):
            value = getattr(run, name)
            require(value is None or value >= 1, name, value, "must be at least 1")
        require(not run.transcript, "transcript", True, "is for a single run: a sweep keeps no messages")


def _run_missing(
    sweep: Sweep, tasks: dict[str, Any], missing: list[int], files: Any, progress: Callable[[float], None]
) -> None:
    """Points of one task and one schedule of evaluations go to the engine together."""
    from sordino.simulation.sweep import Point
    from sordino.simulation.sweep import sweep as run_points

    groups: dict[Any, list[int]] = {}
    for number, (_, config) in enumerate(sweep.points):  # also those that are there: so blocks are the same as before
        groups.setdefault((config.task_key, config.file.run.evaluate_every, config.file.run.chunk), []).append(number)
    done = 0
    for (task_key, evaluate_every, chunk), numbers in groups.items():
        there = {place for place, number in enumerate(numbers) if number not in missing}
        if len(there) == len(numbers):
            continue
        configs = [sweep.points[number].config for number in numbers]

        def keep(place: int, run: Any, numbers: list[int] = numbers) -> None:
            values, config = sweep.points[numbers[place]]
            files.save(numbers[place], values, config.file.run.seed, run)

        def advance(share: float, done: int = done, size: int = len(numbers) - len(there)) -> None:
            progress((done + share * size) / len(missing))

        run_points(
            [Point(config.plan(), config.file.run.seed) for config in configs],
            tasks[task_key],
            evaluate_every=evaluate_every,
            chunk=chunk,
            skip=there,
            unfinished=files.unfinished,
            progress=advance,
            finished=keep,
        )
        done += len(numbers) - len(there)


def _costs(sweep: Sweep, tasks: dict[str, Any]) -> list[dict[str, Any]]:
    """The cost of trying all points, against the observer of each point's guarantee, by task and kind of guarantee."""
    from sordino.report.sweeps import tuning_cost

    groups: dict[Any, list[tuple[Any, int]]] = {}
    for _, config in sweep.points:
        plan, task = config.plan(), tasks[config.task_key]
        resolved = config.resolve(plan, task)
        total = resolved.certificate.total(resolved.promised)
        # Clients of another partition are other clients.
        whose = (config.task_key, task.name, total.observer, total.unit, total.units)
        kind = (*whose, total.relation, total.delta, total.assumptions)
        event = resolved.event_for(resolved.promised, plan.rounds)
        groups.setdefault(kind, []).append((event, config.file.run.seed))
    costs = []
    seeds = Counter(config.file.run.seed for _, config in sweep.points)
    for (_, name, observer, unit, units, relation, delta, assumptions), runs in groups.items():
        shared = any(seeds[seed] > 1 for _, seed in runs)  # also with runs of another kind
        whom = {"task": name, "observer": str(observer), "unit": str(unit), "units": units, "relation": str(relation)}
        server = observer is Observer.SERVER
        cost = tuning_cost([event for event, _ in runs], delta, relation, shared_noise=shared, sees_every_run=server)
        costs.append(whom | {"assumptions": list(assumptions)} | cost)
    return costs


def _common(points: list[dict[str, Any]]) -> str:
    """The values that all points share."""
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
