"""`sordino run` and `sordino plan` for a file that describes many runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from sordino.cli.output import show, working
from sordino.config import Config, Sweep
from sordino.errors import require
from sordino.privacy import wording
from sordino.types import Event, Observer

if TYPE_CHECKING:
    from sordino.planning import ResolvedPlan
    from sordino.runs.point import Point
    from sordino.runs.store import SweepStore
    from sordino.tasks import Task

Json: TypeAlias = dict[str, Any]


class Promise(NamedTuple):
    """A certificate, and the values of the points that have it."""

    points: list[Json]
    resolved: ResolvedPlan


class Models(StrEnum):
    """Points of a sweep whose models are kept."""

    ALL = "all"
    BEST = "best"
    NONE = "none"


def show_sweep_plan(sweep: Sweep, *, as_json: bool) -> None:
    """Print the number of runs of a file and the certificate of each."""
    with working("planning"):
        promises = _promises(sweep, _resolved(sweep, sweep.tasks()))
    result = {"file": str(sweep.path), "points": len(sweep.points), "varied": list(sweep.varied)}
    if as_json:
        show("", result | {"promises": _promises_as_json(promises)}, as_json=True)
        return
    show(f"Plan of the sweep {sweep.path}", result, as_json=False)
    _print_promises(promises)


def _resolved(sweep: Sweep, tasks: dict[str, Task]) -> list[Point]:
    """The points, each resolved once."""
    from sordino.runs.point import Point

    points = []
    for _, config in sweep.points:
        plan = config.plan()
        points.append(Point(plan, config.file.run.seed, config.resolve(plan, tasks[config.task_key])))
    return points


def _promises(sweep: Sweep, points: list[Point]) -> list[Promise]:
    """The different certificates, and the points that have them."""
    promises: dict[str, Promise] = {}
    for (values, _), point in zip(sweep.points, points, strict=True):
        promise = promises.setdefault(str(point.answer.certificate), Promise([], point.answer))
        promise.points.append(values)
    return list(promises.values())


def _promises_as_json(promises: list[Promise]) -> list[Json]:
    return [
        {"points": points, "noise": dict(resolved.summary), **resolved.certificate.to_json()}
        for points, resolved in promises
    ]


def _print_promises(promises: list[Promise]) -> None:
    for points, resolved in promises:
        print(f"\nEach of {len(points)} points, {_common(points)}:" if len(points) > 1 else f"\n{_common(points)}:")
        print(resolved.certificate)


def run_sweep(sweep: Sweep, folder: Path, best: str | None, models: Models, *, as_json: bool) -> None:
    """Run the points that are missing; write and show the table, the best point and the heat map."""
    from sordino.report.sweeps import best_point, plot_heat_map, rule_for, tidy_table, write_table
    from sordino.runs.identity import digest_of
    from sordino.runs.store import SweepStore

    with working("reading data and planning"):
        tasks = sweep.tasks()
        points = _resolved(sweep, tasks)  # errors come before anything runs
        _check_run_sections(sweep)
        rule = rule_for(set.intersection(*(set(task.measures) for task in tasks.values())), best)
    records = digest_of(*((task.records, task.test) for task in tasks.values()))
    with SweepStore(folder, sweep.changed, records) as store:  # nobody else writes here until the table is whole
        missing = [number for number in range(len(points)) if store.finished(number) is None]
        with points_progress(len(missing)) as progress:
            _run_missing(sweep, points, tasks, missing, store, models, progress)
        rows = tidy_table([_record(store, number, values) for number, (values, _) in enumerate(sweep.points)])
        tables = write_table(rows, folder)
        chosen = best_point(rows, sweep.varied, rule)
        if models is Models.BEST:
            store.keep_models((chosen or {}).get("points", []))
        heat_map = folder / "heat_map.png"
        drawn = plot_heat_map(rows, sweep.varied, rule, heat_map)
    best_found = chosen or {"values": None, "mean": None, "points": None}
    result: Json = {
        "sweep": str(folder),
        "points": len(rows),
        "ran_now": len(missing),
        "diverged": sum(row["diverged"] for row in rows),
        "tables": [str(path) for path in tables],
        "heat_map": str(heat_map) if drawn else None,
        "rule": rule,
        "best": best_found["values"],
        "best_mean": best_found["mean"],
        "best_points": best_found["points"],
    }
    costs, promises = _costs(sweep, points, tasks), _promises(sweep, points)
    if as_json:
        choosing = {"note": wording.SELECTION_NOT_COVERED, "costs": costs}
        promised = _promises_as_json(promises)
        show("", result | {"rows": rows, "promises": promised, "choosing": choosing}, as_json=True)
        return
    show(f"Sweep of {sweep.path}", result, as_json=False)
    _print_promises(promises)
    _print_costs(costs, len(rows))


def _print_costs(costs: list[Json], points: int) -> None:
    print(f"\n{wording.SELECTION_NOT_COVERED}")
    for cost in costs:
        print(wording.tuning_sentence(cost, points))
    if len(costs) > 1:
        print(wording.separate_costs(points))


def _record(store: SweepStore, number: int, values: Json) -> Json:
    """A finished point, as a table takes it."""
    stored = store.finished(number)
    assert stored is not None
    return {
        "point": number,
        "values": values,
        "seed": stored.environment["seed"],
        "diverged": not math.isfinite(stored.metrics[-1]["test_loss"]),
        "history": stored.metrics,
        "certificate": stored.certificate,
    }


def _check_run_sections(sweep: Sweep) -> None:
    for _, config in sweep.points:
        transcript = config.file.run.transcript
        require(not transcript, "transcript", True, "is for a single run: a sweep keeps no messages")


def _run_missing(
    sweep: Sweep,
    points: list[Point],
    tasks: dict[str, Task],
    missing: list[int],
    store: SweepStore,
    models: Models,
    progress: Callable[[float], None],
) -> None:
    """Points of one task and one schedule of evaluations go to the engine together."""
    from sordino.runs import Options
    from sordino.runs import sweep as run_points

    groups: dict[Hashable, list[int]] = {}
    for number, (_, config) in enumerate(sweep.points):  # also those that are there: so blocks are the same as before
        groups.setdefault((config.task_key, config.file.run.evaluate_every, config.file.run.chunk), []).append(number)
    done = 0
    for numbers in groups.values():
        there = {place for place, number in enumerate(numbers) if number not in missing}
        wanted, config = len(numbers) - len(there), sweep.points[numbers[0]].config

        def advance(share: float, done: int = done, wanted: int = wanted) -> None:
            progress((done + share * wanted) / len(missing))

        kept = [
            replace(points[number], folder=store.point(number), config=_toml(sweep.points[number].config))
            for number in numbers
        ]
        options = Options(
            evaluate_every=config.file.run.evaluate_every,
            chunk=config.file.run.chunk,
            skip=there,
            models=models is not Models.NONE,
        )
        run_points(kept, tasks[config.task_key], options, progress=advance)
        done += wanted


def _toml(config: Config) -> str:
    """The run file of one point."""
    import tomli_w

    return tomli_w.dumps(config.file.model_dump(exclude_unset=True, exclude_none=True))


def _costs(sweep: Sweep, points: list[Point], tasks: dict[str, Task]) -> list[Json]:
    """What trying all points costs against the observer who is promised something, by task and kind of promise."""
    from sordino.report.sweeps import tuning_cost

    groups: dict[Any, list[tuple[Event, int]]] = {}
    for (_, config), point in zip(sweep.points, points, strict=True):
        task, resolved = tasks[config.task_key], point.answer
        total = resolved.certificate.total(resolved.promised)
        # Clients of another partition are other clients.
        whose = (config.task_key, task.name, total.observer, total.unit, total.units)
        kind = (*whose, total.relation, total.delta, total.assumptions)
        event = resolved.event_for(resolved.promised, point.plan.rounds)
        groups.setdefault(kind, []).append((event, point.seed))
    costs = []
    seeds = Counter(point.seed for point in points)
    for (_, name, observer, unit, units, relation, delta, assumptions), runs in groups.items():
        shared = any(seeds[seed] > 1 for _, seed in runs)  # also with runs of another kind
        whom = {"task": name, "observer": str(observer), "unit": str(unit), "units": units, "relation": str(relation)}
        server = observer is Observer.SERVER
        cost = tuning_cost([event for event, _ in runs], delta, relation, shared_noise=shared, sees_every_run=server)
        costs.append(whom | {"assumptions": list(assumptions)} | cost)
    return costs


def _common(points: list[Json]) -> str:
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
