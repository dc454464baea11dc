"""`sordino compare A.toml B.toml ...`: methods side by side, at the same certified guarantee, on the same task."""

from __future__ import annotations

import hashlib
import math
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sordino.cli.comparison import NOT_COVERED, show_comparison
from sordino.cli.output import Json, json_text, print_json
from sordino.cli.progress import points_progress, working
from sordino.config import Sweep, load_sweep
from sordino.errors import InvalidInput, require
from sordino.files import require_folder, write_atomically
from sordino.privacy import wording
from sordino.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    from sordino.experiments.comparing import Arena, Outcome
    from sordino.experiments.tuning import Budget, Candidate


def compare_command(
    files: Annotated[list[Path], typer.Argument(help="Run files. A grid in a file is what its method is tuned over.")],
    seeds: Annotated[int, typer.Option(help="Runs of each method at its best point.")] = 10,
    set: Annotated[
        list[str] | None, typer.Option("--set", help="Change a value in all files: section.key=value. May be repeated.")
    ] = None,
    unequal: Annotated[
        bool, typer.Option("--unequal", help="Compare methods with different guarantees; the output shows them.")
    ] = False,
    points: Annotated[
        int | None, typer.Option(help="Points that each method may try; larger grids are drawn from by a public seed.")
    ] = None,
    tuning_seeds: Annotated[int, typer.Option("--tuning-seeds", help="Runs of each point while choosing.")] = 1,
    held_out: Annotated[
        float, typer.Option("--held-out", help="Share of the clients that do not train; their records choose points.")
    ] = 0.2,
    held_out_seed: Annotated[
        int, typer.Option("--held-out-seed", min=0, help="Public seed by which these clients are drawn.")
    ] = 0,
    best: Annotated[str | None, typer.Option(help="Rule for the best point, as accuracy-last-5.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of tables, picture and runs; runs/compare-<digest> if left out.")
    ] = None,
    json: Json = False,
) -> None:
    """Tune methods with equal budgets on held-out clients, then compare their best points on the test set.

    Means with 95 % intervals, paired tests of all pairs, tables (CSV, Parquet, JSON), a picture, and the runs of every
    best point. A command that was interrupted completes what is missing when it is repeated.
    """
    from sordino.experiments.comparing import arena, guarantee_of, promised_of, run_study
    from sordino.experiments.tuning import Budget
    from sordino.report.comparison import COMPARISON
    from sordino.runs.names import LEDGER

    share = "must lie in (0, 1): the share of the clients that choose and do not train"
    require(0 < held_out < 1, "held-out", held_out, share)
    require(len(files) >= 2, "files", [str(file) for file in files], "give at least two run files")
    sweeps = {name: load_sweep(file, tuple(set or ())) for name, file in sorted(zip(_names(files), files, strict=True))}
    _require_comparable(list(sweeps.values()))
    budget = Budget(_points(sweeps, points), tuning_seeds, seeds)
    candidates = _candidates(sweeps, budget)
    folder = out or Path("runs") / f"compare-{_digest(candidates, budget, held_out, held_out_seed)}"
    require(not (folder / LEDGER).exists(), "out", str(folder), "is the folder of a run: choose another")
    require_folder("out", folder)
    with working("reading data and planning"):
        where = arena(candidates[0].config.task(), budget, share=held_out, seed=held_out_seed, best=best)
        promised = {each.name: [guarantee_of(point) for point in promised_of(each, where.task)] for each in candidates}
    for name, guarantees in promised.items():
        _require_same_guarantee([f"{name}, a point"] * len(guarantees), guarantees, otherwise="take it out of the grid")
    if not unequal:
        _require_same_guarantee(list(promised), [guarantees[0] for guarantees in promised.values()])
    folder.mkdir(parents=True, exist_ok=True)  # only now: what is refused leaves nothing behind
    with points_progress(len(candidates) * (budget.tuning_runs + seeds)) as progress:
        outcomes = run_study(candidates, where, budget, folder, progress)
    result = _result(outcomes, where, budget, folder)
    write_atomically(folder / COMPARISON, json_text(result).encode(), private=True)
    if json:
        print_json(result)
    else:
        show_comparison(result, outcomes)


def _names(files: list[Path]) -> list[str]:
    """The files' names, with their folders if two files have the same name."""
    same_stems = len({file.stem for file in files}) < len(files)
    names = [str(file.with_suffix("")) if same_stems else file.stem for file in files]
    require(len({*names}) == len(names), "files", [str(file) for file in files], "name each file once")
    return names


def _require_comparable(sweeps: list[Sweep]) -> None:
    """One task, one schedule of evaluations, and no seeds of their own."""
    first = sweeps[0].points[0].config
    for sweep in sweeps:
        require("run.seed" not in sweep.varied, "run.seed", str(sweep.path), "compare gives the seeds: leave it out")
        for _, config in sweep.points:
            remedy = f"differs from the task of {first.path}: compare on one task"
            require(config.task_key == first.task_key, "task", str(config.path), remedy)
            every, wanted = config.file.run.evaluate_every, first.file.run.evaluate_every
            remedy = f"{config.path} has another value than {first.path}: use --set run.evaluate_every=..."
            require(every == wanted, "run.evaluate_every", every, remedy)
            require(not config.file.run.transcript, "transcript", True, "is for a single run: leave it out")


def _points(sweeps: dict[str, Sweep], wanted: int | None) -> int:
    """The points that every method may try."""
    counts = {name: len(sweep.points) for name, sweep in sweeps.items()}
    least = min(counts.values())
    sizes = ", ".join(f"{name} {count}" for name, count in counts.items())
    if wanted is None:
        remedy = f"differ in number ({sizes}): make the grids equally large, or give --points {least}"
        require(len({*counts.values()}) == 1, "points", least, remedy)
        return least
    require(wanted >= 1, "points", wanted, "must be at least 1")
    require(wanted <= least, "points", wanted, f"a grid has fewer points ({sizes}): use at most {least}")
    return wanted


def _candidates(sweeps: dict[str, Sweep], budget: Budget) -> list[Candidate]:
    from sordino.experiments.tuning import candidate

    return [candidate(name, sweep, budget.points) for name, sweep in sweeps.items()]


def _digest(candidates: list[Candidate], budget: Budget, *others: float) -> str:
    """Of everything but the number of final seeds, which may grow."""
    files = [(each.name, each.sweep.changed) for each in candidates]
    return hashlib.sha256(repr((files, astuple(budget)[:2], others)).encode()).hexdigest()[:8]


def _require_same_guarantee(names: list[str], guarantees: list[Guarantee], otherwise: str = "use --unequal") -> None:
    """Refuse guarantees that differ in epsilon (by more than a millionth), delta, unit, relation or observer."""
    first = guarantees[0]
    for name, other in zip(names[1:], guarantees[1:], strict=True):
        same_kind = (other.subject, other.delta) == (first.subject, first.delta)
        if same_kind and math.isclose(other.epsilon, first.epsilon, rel_tol=1e-6):
            continue
        remedy = (
            f"has {wording.total_sentence(other)}, but {names[0]} has {wording.total_sentence(first)}: make them equal "
            f"by epsilon and delta in [privacy], in place of noise_multiplier, or {otherwise}"
        )
        raise InvalidInput("guarantee", name, remedy)


def _result(outcomes: list[Outcome], where: Arena, budget: Budget, folder: Path) -> dict[str, Any]:
    """Write tables and picture; everything that is known, as plain values."""
    from sordino.report.comparison import TEST, compare, plot_comparison
    from sordino.report.sweeps import write_table

    histories = {each.name: [run.history for run in each.runs] for each in outcomes}
    compared = compare(histories)
    picture = folder / "comparison.png"
    plot_comparison(histories, where.task.name, picture)
    table = [row for each in outcomes for row in each.table]
    write_atomically(folder / "table.json", json_text(table).encode(), private=True)
    tables = [*write_table(table, folder), folder / "table.json"]
    by_name = {each.name: each for each in outcomes}
    rows = [row | _about(by_name[row["method"]]) for row in compared.rows]
    held, chosen = where.held_out, budget.choosing
    return {
        "task": where.task.name,
        "measure": rows[0]["measure"],
        "seeds": budget.seeds,
        "points": budget.points,
        "tuning_seeds": len(chosen),
        "rule": f"{where.rule}, on held-out clients" if chosen else None,
        "held_out": None if held is None else {"clients": held.clients, "of": held.of, "seed": held.seed},
        "test": TEST,
        "correction": compared.correction,
        "reference": rows[0]["method"],
        "folder": str(folder),
        "tables": [str(path) for path in tables],
        "picture": str(picture),
        "rows": rows,
        "pairs": compared.pairs,
        "edges": [edge for each in outcomes for edge in each.choice.edges],
        "choosing": {"note": NOT_COVERED, "prices": _prices(outcomes)},
    }


def _about(outcome: Outcome) -> dict[str, Any]:
    """What a method's row says beside its figures."""
    certificate = outcome.certificate.to_json()
    return {
        "best": outcome.choice.best.values,
        "score": outcome.choice.score,
        "tried": len(outcome.choice.candidate.points),
        "of": len(outcome.choice.candidate.sweep.points),
        "guarantee": str(outcome.guarantee),
        **{key: certificate[key] for key in ("draws", "seed", "assumptions", "warnings")},
    }


def _prices(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    return [{"method": each.name} | each.price for each in outcomes if each.price is not None]
