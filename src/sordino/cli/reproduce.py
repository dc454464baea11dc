"""`sordino reproduce [NAME | --list]`: a paper's table or figure beside ours."""

from __future__ import annotations

import json as jsonlib
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sordino.cli.output import Json, Set, print_json, print_rows, show
from sordino.cli.progress import points_progress
from sordino.errors import SordinoError, require
from sordino.files import require_folder

if TYPE_CHECKING:
    from sordino.experiments.specs import Spec

NOT_COMPLETE = 3  # the exit status when --minutes were too few


def reproduce_command(
    name: Annotated[str | None, typer.Argument(help="Which, as in --list: paper3-table1-fashion-mnist.")] = None,
    list: Annotated[
        bool, typer.Option("--list", help="Say what there is, what it needs and how long it takes.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller, for two CPU cores: minutes. Says which order it shows.")
    ] = False,
    only: Annotated[
        str | None, typer.Option(help="A regular expression: only the cells whose 'row, column' it finds.")
    ] = None,
    set: Set = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of results; if left out results/, or runs/reproduce/ for less than the whole."),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Stop after so long, write the cells that are complete, exit with 3; the same again goes on."
        ),
    ] = None,
    commit: Annotated[str | None, typer.Option(help="What the code is at, where git does not know.")] = None,
    json: Json = False,
) -> None:
    """Run a published table or figure: paper beside ours, what it claims beside what holds, numbers and pictures.

    One that was stopped or killed goes on from runs/unfinished/ when it is called again, but for figures of paths.
    """
    from sordino.experiments.specs import all_specs, find_spec

    if list:
        _show_list(all_specs(), as_json=json)
        return
    if name is None:
        raise SordinoError("NAME is missing: say which table or figure; `sordino reproduce --list` shows them")
    require(minutes is None or minutes > 0, "minutes", minutes, "must be above 0")
    spec = find_spec(name).part(only, set or ())
    if out is not None:
        require_folder("out", out)
    from sordino.experiments.pictures import write_result
    from sordino.experiments.provenance import Calls, provenance
    from sordino.experiments.reproducing import reproduce, result_of
    from sordino.runs.store import one_at_a_time

    unfinished = Path("runs/unfinished") / (name + spec.suffix(quick))
    cells = len(spec.points(quick))
    options = [*["--quick"] * quick, *(["--only", only] if only else [])]
    changes = [word for change in set or () for word in ("--set", change)]
    command = shlex.join(["sordino", "reproduce", name, *options, *changes])
    with one_at_a_time(unfinished):
        calls = Calls(unfinished, provenance(command, commit))
        if calls.elsewhere:
            print(f"{unfinished} was begun on {calls.elsewhere}: all of it begins anew here", file=sys.stderr)
        with points_progress(cells * len(spec.seeds(quick))) as progress:
            outcomes = reproduce(
                spec, quick=quick, unfinished=unfinished, calls=calls, minutes=minutes, progress=progress
            )
        result = result_of(spec, outcomes, provenance=calls.provenance, quick=quick)
        complete = len(outcomes) == cells
        # Less than the whole has a name of its own, so that nothing takes the place of anything else.
        stem = spec.name + spec.suffix(quick) + ("" if complete else "-unfinished")
        folder = (out or Path("results" if stem == spec.name else "runs/reproduce")) / f"paper{spec.paper}"
        written = write_result(spec, outcomes, result, folder, stem) if outcomes else []
        if complete:
            shutil.rmtree(unfinished, ignore_errors=True)
            for part_of_it in folder.glob(f"{stem}-unfinished*"):
                part_of_it.unlink()
    if json:
        print(jsonlib.dumps(result, indent=1, allow_nan=False))
    elif outcomes:
        _show_result(spec.file.title, result, quick)
        print("Written: " + ", ".join(map(str, written)))
    if not complete:
        so_far = f"{len(outcomes)} of {cells} cells are complete"
        print(f"{so_far}; the same command goes on from {unfinished}", file=sys.stderr)
        raise typer.Exit(NOT_COMPLETE)


def _show_list(specs: list[Spec], *, as_json: bool) -> None:
    rows = [
        {
            "name": spec.full_name,
            "paper": str(spec.paper),
            "data": ", ".join(spec.file.data) or "synthetic",
            "minutes on a GPU": ("~" if spec.file.estimated else "") + f"{spec.file.minutes:g}",
            "--quick, 2 CPU cores": f"{spec.file.quick_minutes:g}",
        }
        for spec in specs
    ]
    if as_json:
        print_json({"specs": [row | {"title": spec.file.title} for row, spec in zip(rows, specs, strict=True)]})
        return
    print_rows(rows, caption="~ an estimate: not timed in full yet", whole="name", boxed=False)


def _show_result(title: str, result: dict[str, Any], quick: bool) -> None:
    from rich.console import Console

    from sordino.report.results import promise_lines, spread_lines

    rows = []
    for row in result["rows"]:
        paper, ours = row["paper"], row["mean"]
        difference = None if None in (paper, ours) else round(ours - paper, 2)
        compared = {"paper": paper, "ours": ours, "difference": difference, "std": row["std"]}
        rows.append({"row": row["row"], "column": row["column"], **compared, "seeds": len(row["seeds"])})
    show(title, {"metric": result["metric"], "rows": rows})
    console = Console(highlight=False, markup=False)
    if "scope" in result:
        console.print(f"Not the whole: {result['scope']}.")
    if quick:
        console.print(
            "A quick look: fewer rounds, clients or seeds than the paper; compare the order, not the figures."
        )
    for line in spread_lines(result.get("spreads", [])):
        console.print(f"Highest less lowest, {line}")
    if result["note"]:
        console.print(result["note"])
    console.print("What the runs promise over all rounds, and what the paper claims:")
    for line in promise_lines(result["guarantees"]):
        console.print(f"- {line}")
    if "choosing" in result:
        console.print(result["choosing"]["note"])
