"""`sordino run FILE.toml` and `sordino plan FILE.toml`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sordino.cli.certify import SignWith, signing_key
from sordino.cli.output import File, Json, Set, print_json, show, show_with_certificate
from sordino.cli.processes import (
    Coordinator,
    NumProcesses,
    Processes,
    ProcessId,
    require_one_run,
    run_arguments,
    supervise,
    wanted,
)
from sordino.cli.progress import live_progress, working
from sordino.cli.sweep import Models, run_sweep, show_sweep_plan
from sordino.cli.tracking import Sending, Track, TrackPrivate, tracking
from sordino.config import Config, load_sweep
from sordino.errors import require
from sordino.files import require_folder
from sordino.privacy.wording import MOST_CLIENTS

if TYPE_CHECKING:
    from sordino.privacy.signing import SigningKey
    from sordino.runs.point import Row
    from sordino.runs.processes import Group


def plan_command(
    file: File,
    set: Set = None,
    cost: Annotated[
        bool, typer.Option("--cost", help="Predict seconds and bytes, from rounds that run for a few seconds.")
    ] = False,
    json: Json = False,
) -> None:
    """What would be promised to whom, and the noise, before anything runs."""
    sweep = load_sweep(file, tuple(set or ()))
    if sweep.varied:
        require(not cost, "cost", cost, "is predicted for a single run: give every key of the file one value")
        show_sweep_plan(sweep, as_json=json)
        return
    config = sweep.points[0].config
    with working("planning"):
        task = config.task()
        point = config.point(task)
    plan, resolved = point.plan, point.answer
    facts = {"file": str(file), "rounds": plan.rounds, "cohort": str(plan.cohort), "trust": resolved.trust}
    result = facts | dict(resolved.summary)
    if config.ruled:
        result["rules"] = [each.row for each in config.ruled]
    if cost:
        from dataclasses import asdict

        from sordino.runs.cost import predict_cost

        with working("running a few rounds"):
            given = config.file.run
            predicted = predict_cost(point, task, evaluate_every=given.evaluate_every, chunk=given.chunk)
        result |= {f"predicted_{name}": value for name, value in asdict(predicted).items()}
    certificate = resolved.certificate if point.seed is None else point.certificate  # with what a given seed means
    show_with_certificate(f"Plan of {file}", result, certificate, as_json=json)


def run_command(
    file: File,
    set: Set = None,
    name: Annotated[str | None, typer.Option(help="Name of the run; the file's name if left out.")] = None,
    runs: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("runs"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the run's last checkpoint.")] = False,
    best: Annotated[str | None, typer.Option(help="Rule for the best point of a sweep, as accuracy-last-5.")] = None,
    models: Annotated[
        Models | None, typer.Option(help="Points of a sweep whose models are kept: best if left out.")
    ] = None,
    sign: SignWith = None,
    track: Track = None,
    track_private: TrackPrivate = False,
    processes: Processes = None,
    coordinator: Coordinator = None,
    process_id: ProcessId = None,
    num_processes: NumProcesses = None,
    json: Json = False,
) -> None:
    """Train; writes metrics, certificate, ledger, checkpoint, model and a picture to runs/<name>/.

    A file with lists or grids of values is a sweep: all of its points run together, each with the files of a run in
    runs/<name>/points/, and running it again completes the points that are missing.

    With --processes, or with --coordinator on each of several machines, the clients are dealt to several processes.
    """
    folder = runs / _name(file.stem if name is None else name)
    together = wanted(processes, coordinator, process_id, num_processes)
    sweep = load_sweep(file, tuple(set or ()))
    key = None if sign is None else signing_key(sign)
    if together is None or together.has_folder:
        require_folder("runs", runs)
    require(track is not None or not track_private, "track-private", True, "says what is sent with --track: give both")
    if together is not None:
        require_one_run(bool(sweep.varied), file, track)
    if together is not None and not together.is_member:
        given = run_arguments(file, set, folder, resume, sign, as_json=json)
        supervise(together, given, folder)
    if sweep.varied:
        require(track is None, "track", track, "is for a single run: a sweep has a table")
        run_sweep(sweep, folder, best, models or Models.BEST, key, as_json=json)
        return
    for field, value in (("best", best), ("models", models)):
        require(value is None, field, value, "is for sweeps: give a key of the file a list or a grid of values")
    sending = None
    if track is not None:
        from sordino.report.tracking import require_tracker

        require_tracker(track)
        sending = Sending(track, track_private)
    config = sweep.points[0].config
    if together is None:
        run_alone(config, folder, resume, key, sending, as_json=json)
        return
    with together.join() as group:
        run_alone(config, folder, resume, key, group=group, as_json=json)


def run_alone(
    config: Config,
    folder: Path,
    resume: bool,
    key: SigningKey | None = None,
    sending: Sending | None = None,
    *,
    group: Group | None = None,
    as_json: bool,
) -> None:
    """Run a file that stands for one run, sign it if there is a key, and show what came of it.

    Of several processes, the first does all but train its clients.
    """
    from sordino.report.curves import measure_of, plot_history
    from sordino.runs import simulate
    from sordino.runs.names import CERTIFICATE
    from sordino.runs.point import Point
    from sordino.runs.processes import ALONE

    given = config.file.run.model_dump(exclude={"rounds", "cohort"}) | {"config": config.changed}
    with working("reading data and planning"):
        plan, task = config.plan(), config.task()
        resolved = config.resolve(plan, task.population)
    promised = Point(plan, config.file.run.seed, resolved).certificate
    with live_progress(plan.rounds) as show_row, tracking(sending, promised, folder) as send_row:

        def progress(row: Row) -> None:
            show_row(row)
            send_row(row)

        group = group or ALONE
        run = simulate(
            plan, task, **given, resolved=resolved, folder=folder, resume=resume, progress=progress, group=group
        )
    if not group.leader:
        return
    measure = measure_of(run.history[-1])[0]
    picture = folder / f"{measure}.png"
    plot_history(run.history, f"{task.name}, {plan.mechanism} noise", picture)
    result = {
        "run": str(folder),
        "picture": str(picture),
        "rounds": plan.rounds,
        "seconds": run.seconds,
    }
    if key is not None:
        from sordino.runs.signature import sign_run

        result |= {"signature": str(sign_run(folder, key)), "signed_by": key.id}
    result[f"{measure}_last_5"] = sum(row[measure] for row in run.history[-5:]) / len(run.history[-5:])
    result[measure] = run.history[-1][measure]
    if as_json:
        print_json(result | run.certificate.to_json())
        return
    print(run.certificate)
    own = {guarantee.client for guarantee in run.certificate.guarantees} - {None}
    if len(own) > MOST_CLIENTS:
        print(f"The guarantee of each of {len(own)} clients: {folder / CERTIFICATE}, or --json")
    show(f"Run of {config.path}", result)  # last, with what was measured at the end: this is where people look


def _name(name: str) -> str:
    """A run's folder lies in the folder of runs, and nowhere else."""
    plain = name not in ("", ".", "..") and "/" not in name and len(name.encode()) <= 200
    require(plain, "name", name, "must be the name of a folder, without /, of at most 200 bytes")
    return name
