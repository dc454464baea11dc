"""`sordino run FILE.toml` and `sordino plan FILE.toml`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

from sordino.cli.certify import SignWith, signing_key
from sordino.cli.output import File, Json, Set, progress_bar, require_folder, show_with_certificate, working
from sordino.cli.sweep import Models, run_sweep, show_sweep_plan
from sordino.config import Config, load_sweep
from sordino.errors import require
from sordino.privacy.wording import format_epsilon

if TYPE_CHECKING:
    from sordino.privacy.signing import SigningKey
    from sordino.runs.point import Progress


def plan_command(file: File, set: Set = None, json: Json = False) -> None:
    """What would be promised to whom, and the noise, before anything runs."""
    sweep = load_sweep(file, tuple(set or ()))
    if sweep.varied:
        show_sweep_plan(sweep, as_json=json)
        return
    config = sweep.points[0].config
    with working("planning"):
        point = config.point(config.task())
    plan, resolved = point.plan, point.answer
    facts = {"file": str(file), "rounds": plan.rounds, "cohort": str(plan.cohort), "trust": resolved.trust}
    result = facts | dict(resolved.summary)
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
    json: Json = False,
) -> None:
    """Train; writes metrics, certificate, ledger, checkpoint, model and a picture to runs/<name>/.

    A file with lists or grids of values is a sweep: all of its points run together, each with the files of a run in
    runs/<name>/points/, and running it again completes the points that are missing.
    """
    folder = runs / _name(file.stem if name is None else name)
    sweep = load_sweep(file, tuple(set or ()))
    key = None if sign is None else signing_key(sign)
    require_folder("runs", runs)
    if sweep.varied:
        run_sweep(sweep, folder, best, models or Models.BEST, key, as_json=json)
        return
    for field, value in (("best", best), ("models", models)):
        require(value is None, field, value, "is for sweeps: give a key of the file a list or a grid of values")
    run_alone(sweep.points[0].config, folder, resume, key, as_json=json)


def run_alone(config: Config, folder: Path, resume: bool, key: SigningKey | None = None, *, as_json: bool) -> None:
    """Run a file that stands for one run, sign it if there is a key, and show what came of it."""
    from sordino.report.curves import measure_of, plot_history
    from sordino.runs import simulate

    given = config.file.run.model_dump(exclude={"rounds", "cohort"}) | {"config": config.changed}
    with working("reading data and planning"):
        plan, task = config.plan(), config.task()
        resolved = config.resolve(plan, task)
    with live_progress(plan.rounds) as progress:
        run = simulate(plan, task, **given, resolved=resolved, folder=folder, resume=resume, progress=progress)
    measure = measure_of(run.history[-1])[0]
    picture = folder / f"{measure}.png"
    plot_history(run.history, f"{task.name}, {plan.mechanism} noise", picture)
    result = {
        "run": str(folder),
        "rounds": plan.rounds,
        measure: run.history[-1][measure],
        f"{measure}_last_5": sum(row[measure] for row in run.history[-5:]) / len(run.history[-5:]),
        "seconds": run.seconds,
        "picture": str(picture),
    }
    if key is not None:
        from sordino.runs.signature import sign_run

        result |= {"signature": str(sign_run(folder, key)), "signed_by": key.id}
    show_with_certificate(f"Run of {config.path}", result, run.certificate, as_json=as_json)


def _name(name: str) -> str:
    """A run's folder lies in the folder of runs, and nowhere else."""
    plain = name not in ("", ".", "..") and "/" not in name and len(name.encode()) <= 200
    require(plain, "name", name, "must be the name of a folder, without /, of at most 200 bytes")
    return name


@contextmanager
def live_progress(rounds: int) -> Iterator[Progress]:
    """Round, loss, accuracy, epsilon and time left, on a terminal; nothing otherwise."""
    measures = TextColumn("{task.fields[line]}", table_column=Column(overflow="fold"))  # no figure is cut
    with progress_bar(TextColumn("round"), MofNCompleteColumn(), BarColumn(), measures, TimeRemainingColumn()) as bar:
        rounds_bar = bar.add_task("", total=rounds, line="compiling")

        def progress(row: dict[str, Any]) -> None:
            epsilon = row["epsilon"]
            finite = isinstance(epsilon, float) and math.isfinite(epsilon)
            spent = f"epsilon so far {format_epsilon(epsilon)}" if finite else "not private"
            if finite and not bar.disable and not bar.tasks[rounds_bar].completed:  # said once, above the bar
                bar.console.print(f"epsilon of {row['epsilon_of']}", highlight=False)
            measured = f"accuracy {100 * row['accuracy']:.1f} %" if "accuracy" in row else ""
            if "suboptimality" in row:
                measured = f"suboptimality {row['suboptimality']:.3g}"
            bar.update(rounds_bar, completed=row["round"], line=f"loss {row['test_loss']:.3f}  {measured}  {spent}")

        yield progress
