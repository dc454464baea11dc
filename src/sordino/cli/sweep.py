"""`sordino run` and `sordino plan` for a file that describes many runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from sordino.cli.output import print_json, show
from sordino.cli.progress import points_progress, working
from sordino.config import Config, Sweep
from sordino.errors import require
from sordino.privacy import wording
from sordino.types import Event, Observer

if TYPE_CHECKING:
    from sordino.planning import ResolvedPlan
    from sordino.privacy.guarantee import Certificate
    from sordino.privacy.signing import SigningKey
    from sordino.runs.point import Point
    from sordino.runs.seeds import FreshSeed
    from sordino.runs.store import SweepStore
    from sordino.tasks import Task

Json: TypeAlias = dict[str, Any]


class Ready(NamedTuple):
    """A point of a sweep that can run: the values that vary, its configuration, its task and its resolved plan."""

    values: Json
    config: Config
    task: Task
    point: Point


class Promise(NamedTuple):
    """A certificate, and the values of the points that have it."""

    points: list[Json]
    resolved: ResolvedPlan
    certificate: Certificate

    def to_json(self) -> Json:
        return {"points": self.points, "noise": dict(self.resolved.summary), **self.certificate.to_json()}

    def __str__(self) -> str:
        same = [
            f"{key} = {value}"
            for key, value in self.points[0].items()
            if all(point[key] == value for point in self.points)
        ]
        several = f"Each of {len(self.points)} points" if len(self.points) > 1 else ""
        about = ", ".join([several] * bool(several) + same) or "The point"
        return f"\n{about}:\n{self.certificate}"


class Models(StrEnum):
    """Points of a sweep whose models are kept."""

    ALL = "all"
    BEST = "best"
    NONE = "none"


def show_sweep_plan(sweep: Sweep, *, as_json: bool) -> None:
    """Print the number of runs of a file and the certificate of each."""
    with working("planning"):
        ready = _ready(sweep)
        promises = _promises(ready, [_planned(each.point, len(ready)) for each in ready])
    result = {"file": str(sweep.path), "points": len(sweep.points), "varied": list(sweep.varied)}
    if as_json:
        print_json(result | {"promises": [promise.to_json() for promise in promises]})
        return
    show(f"Plan of the sweep {sweep.path}", result)
    print(*promises, sep="\n")


def _planned(point: Point, points: int) -> Certificate:
    """The certificate that a run of the sweep will have: points without a seed share a fresh one."""
    from sordino.runs.seeds import FreshSeed

    if point.seed is None and points > 1:
        point = replace(point, seed=FreshSeed(0, shared=True))
    return point.certificate


def _ready(sweep: Sweep) -> list[Ready]:
    """Every point, resolved once: errors come before anything runs."""
    tasks = sweep.tasks()
    return [
        Ready(values, config, tasks[config.task_key], config.point(tasks[config.task_key]))
        for values, config in sweep.points
    ]


def _promises(ready: list[Ready], certificates: list[Certificate]) -> list[Promise]:
    """The different certificates, and the points that have them."""
    promises: dict[str, Promise] = {}
    for (values, _, _, point), certificate in zip(ready, certificates, strict=True):
        promise = promises.setdefault(str(certificate), Promise([], point.answer, certificate))
        promise.points.append(values)
    return list(promises.values())


def run_sweep(
    sweep: Sweep, folder: Path, best: str | None, models: Models, key: SigningKey | None = None, *, as_json: bool
) -> None:
    """Run the points that are missing, sign all if there is a key; write and show table, best point and heat map."""
    from sordino.report.sweeps import best_point, plot_heat_map, record, rule_for, tidy_table, write_table
    from sordino.runs.completion import finished, missing_of
    from sordino.runs.identity import digest_of
    from sordino.runs.store import SweepStore

    with working("reading data and planning"):
        ready = _ready(sweep)
        for each in ready:
            transcript = each.config.file.run.transcript
            require(not transcript, "transcript", True, "is for a single run: a sweep keeps no messages")
        tasks = list({each.config.task_key: each.task for each in ready}.values())
        rule = rule_for(set.intersection(*(set(task.measures) for task in tasks)), best)
    records = digest_of(*((task.content, task.test) for task in tasks))
    seeded = all(each.point.seed is not None for each in ready)
    # Nobody else writes here until the table is whole.
    with SweepStore(folder, sweep.changed, records, seeded=seeded) as store:
        missing = missing_of(store, range(len(ready)))
        with points_progress(len(missing)) as progress:
            _run_missing(ready, missing, store, models, progress)
        stored = [finished(store, number) for number in range(len(ready))]
        records_of_points = zip(ready, stored, strict=True)
        rows = tidy_table(
            [
                record(number, each.values, run.environment["seed"], run.metrics, run.certificate)
                for number, (each, run) in enumerate(records_of_points)
            ]
        )
        tables = write_table(rows, folder)
        chosen = best_point(rows, sweep.varied, rule) or {}
        if models is Models.BEST:
            store.keep_models(chosen.get("points", []))
        if key is not None:
            _sign_points(store, len(ready), key)
        heat_map = folder / "heat_map.png"
        drawn = plot_heat_map(rows, sweep.varied, rule, heat_map)
    result: Json = {
        "sweep": str(folder),
        "points": len(rows),
        "ran_now": len(missing),
        "diverged": sum(row["diverged"] for row in rows),
        "tables": [str(path) for path in tables],
        "heat_map": str(heat_map) if drawn else None,
        "rule": rule,
        "best": chosen.get("values"),
        "best_mean": chosen.get("mean"),
        "best_points": chosen.get("points"),
        "best_folders": [str(store.point(number)) for number in chosen.get("points", [])],
    }
    if key is not None:
        result["signed_by"] = key.id
    costs, promises = _costs(ready), _promises(ready, [run.certificate for run in stored])
    if as_json:
        choosing = {"note": wording.SELECTION_NOT_COVERED, "costs": costs}
        promised = [promise.to_json() for promise in promises]
        print_json(result | {"rows": rows, "promises": promised, "choosing": choosing})
        return
    print(*promises, sep="\n")
    print(f"\n{wording.SELECTION_NOT_COVERED}")
    for cost in costs:
        print(wording.tuning_sentence(cost, len(rows)))
    if len(costs) > 1:
        print(wording.separate_costs(len(rows)))
    mean = chosen.get("mean")
    shown = None if mean is None else f"{100 * mean:.2f} %" if rule.startswith("accuracy") else f"{mean:.4g}"
    ordered = {key: value for key, value in result.items() if key != "best_mean"} | {"best_mean": shown}
    show(f"Sweep of {sweep.path}", ordered)  # last, with what was measured at the end: this is where people look


def _sign_points(store: SweepStore, points: int, key: SigningKey) -> None:
    from sordino.runs.signature import sign_run

    with working("signing"):
        for number in range(points):
            sign_run(store.point(number), key)


def _run_missing(
    ready: list[Ready], missing: list[int], store: SweepStore, models: Models, progress: Callable[[float], None]
) -> None:
    """Points of one task and one schedule of evaluations go to the engine together."""
    from sordino.runs import Options
    from sordino.runs.completion import complete

    groups: dict[Hashable, list[int]] = {}
    for number, each in enumerate(ready):  # also those that are there: so blocks are the same as before
        settings = each.config.file.run
        groups.setdefault((each.config.task_key, settings.evaluate_every, settings.chunk), []).append(number)
    done = 0
    for numbers in groups.values():
        wanted, (_, config, task, _) = len([number for number in numbers if number in missing]), ready[numbers[0]]
        settings = config.file.run

        def advance(share: float, done: int = done, wanted: int = wanted) -> None:
            progress((done + share * wanted) / len(missing))

        points = {number: replace(ready[number].point, config=ready[number].config.toml()) for number in numbers}
        keep = models is not Models.NONE
        options = Options(evaluate_every=settings.evaluate_every, chunk=settings.chunk, models=keep)
        complete(store, points, task, options, advance)
        done += wanted


def _costs(ready: list[Ready]) -> list[Json]:
    """What trying all points costs against the observer who is promised something, by task and kind of promise."""
    from sordino.report.sweeps import tuning_cost

    groups: dict[Any, list[tuple[Event, int | FreshSeed | None]]] = {}
    for _, config, task, point in ready:
        total = point.answer.certificate.total(point.answer.promised)
        # Clients of another partition are other clients.
        whose = (config.task_key, task.name, total.observer, total.unit, total.units)
        kind = (*whose, total.relation, total.delta, total.assumptions)
        event = point.answer.event_for(point.answer.promised, point.plan.rounds)
        groups.setdefault(kind, []).append((event, point.seed))
    costs = []
    seeds = Counter(each.point.seed for each in ready)  # None in all of them: they share a fresh one
    for (_, name, observer, unit, units, relation, delta, assumptions), runs in groups.items():
        shared = any(seeds[seed] > 1 for _, seed in runs)  # also with runs of another kind
        whom = {"task": name, "observer": str(observer), "unit": str(unit), "units": units, "relation": str(relation)}
        server = observer is Observer.SERVER
        cost = tuning_cost([event for event, _ in runs], delta, relation, shared_noise=shared, sees_every_run=server)
        costs.append(whom | {"assumptions": list(assumptions)} | cost)
    return costs
