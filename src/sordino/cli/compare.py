"""`sordino compare A.toml B.toml ...`: methods side by side, at the same certified guarantee, on the same task."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from sordino.cli.output import require_picture, show, working
from sordino.cli.sweep import NOT_COVERED, points_progress
from sordino.config import Config, load_config
from sordino.errors import InvalidInput, require
from sordino.privacy.guarantee import Certificate, Warning, format_epsilon

__all__ = ["compare_command"]

SHARED_NOISE = "Methods of one seed share their noise, so that no guarantee holds for seeing both."


def compare_command(
    files: Annotated[list[Path], typer.Argument(help="Run files; the first is what the others are compared with.")],
    seeds: Annotated[int, typer.Option(help="Runs of each, with seeds 0, 1, ...")] = 10,
    set: Annotated[
        list[str] | None, typer.Option("--set", help="Change a value in all files: section.key=value. May be repeated.")
    ] = None,
    unequal: Annotated[
        bool, typer.Option("--unequal", help="Compare although the guarantees differ; the table shows them.")
    ] = False,
    picture: Annotated[Path, typer.Option(help="Where the plot goes.")] = Path("runs/compare.png"),
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train several methods with several seeds: means with 95 % intervals, paired tests, a table and a plot."""
    from sordino.report.comparison import compare, plot_comparison
    from sordino.runs import Options, Point, sweep

    require(len(files) >= 2, "files", [str(file) for file in files], "give at least two run files")
    require(seeds >= 2, "seeds", seeds, "an interval needs at least 2")
    require_picture("picture", picture)
    names = _names(files)
    configs = [load_config(file, tuple(set or ())) for file in files]
    _require_same_task(configs)
    with working("reading data and planning"):
        task = configs[0].task()
        plans = [config.plan() for config in configs]
        answers = [config.resolve(plan, task) for config, plan in zip(configs, plans, strict=True)]
        guarantees = [answer.certificate.total(answer.promised) for answer in answers]
    if not unequal:
        _require_same_guarantee(names, guarantees)
    options = Options(evaluate_every=configs[0].file.run.evaluate_every)
    points = [Point(plan, seed, answer) for plan, answer in zip(plans, answers, strict=True) for seed in range(seeds)]
    with points_progress(len(points)) as progress:
        runs = sweep(points, task, options, progress=progress)
    histories = {name: [run.history for run in runs[i * seeds : (i + 1) * seeds]] for i, name in enumerate(names)}
    rows = compare(histories)
    certificates = [answer.certificate for answer in answers]
    for row, guarantee, certificate in zip(rows, guarantees, certificates, strict=True):
        row |= {"guarantee": str(guarantee), "warnings": certificate.to_json()["warnings"]}
    plot_comparison(histories, task.name, picture)
    result = {"task": task.name, "seeds": seeds, "measure": rows[0]["measure"], "picture": str(picture)}
    if json:
        show("", result | {"rows": rows, "choosing": {"note": f"{NOT_COVERED} {SHARED_NOISE}"}}, as_json=True)
        return
    show("Comparison", result | {"rows": [_shown(row, names[0]) for row in rows]}, as_json=False)
    for name, guarantee in zip(names, guarantees, strict=True):
        print(f"{name}: {guarantee}")
    for line in _warning_lines(names, certificates):
        print(line)
    print(f"{NOT_COVERED} {SHARED_NOISE}")


def _names(files: list[Path]) -> list[str]:
    """The files' names, with their folders where two are called alike."""
    alike = len({file.stem for file in files}) < len(files)
    names = [str(file.with_suffix("")) if alike else file.stem for file in files]
    require(len({*names}) == len(names), "files", [str(file) for file in files], "name each file once")
    return names


def _require_same_task(configs: list[Config]) -> None:
    for config in configs[1:]:
        if config.task_key != configs[0].task_key:
            raise InvalidInput("task", str(config.path), f"is another than in {configs[0].path}: compare on one task")


def _require_same_guarantee(names: list[str], guarantees: list[Any]) -> None:
    """Equal epsilon (to a millionth), delta, unit, relation and observer."""

    def kind(guarantee: Any) -> tuple[Any, ...]:
        return guarantee.observer, guarantee.unit, guarantee.relation, guarantee.delta

    def said(guarantee: Any) -> str:
        return f"epsilon = {format_epsilon(guarantee.epsilon)} over all rounds, of {guarantee.whose}"

    first = guarantees[0]
    for name, guarantee in zip(names[1:], guarantees[1:], strict=True):
        if kind(guarantee) == kind(first) and math.isclose(guarantee.epsilon, first.epsilon, rel_tol=1e-6):
            continue
        remedy = (
            f"promises {said(guarantee)}, and {names[0]} {said(first)}: make them equal with "
            "--set privacy.epsilon=... and --set privacy.delta=..., or say --unequal"
        )
        raise InvalidInput("guarantee", name, remedy)


def _warning_lines(names: list[str], certificates: list[Certificate]) -> list[str]:
    """Each warning once, and which of the methods it is about."""
    about: dict[Warning, list[str]] = {}
    for name, certificate in zip(names, certificates, strict=True):
        for warning in certificate.warnings:
            about.setdefault(warning, []).append(name)
    return [
        f"warning ({warning.code}), {'all' if len(some) == len(names) else ', '.join(some)}: {warning.message}"
        for warning, some in about.items()
    ]


def _shown(row: dict[str, Any], first: str) -> dict[str, str]:
    """A row for people: intervals in brackets."""
    if "difference" not in row:
        difference, p = "-", "-"
    else:
        difference = f"{row['difference']:+.3g} [{row['difference_low']:+.3g}, {row['difference_high']:+.3g}]"
        p = f"{row['p']:.2g}"
    return {
        "method": row["method"],
        "mean [95 %]": f"{row['mean']:.4g} [{row['low']:.4g}, {row['high']:.4g}]",
        f"against {first}": difference,
        "p": p,
    }
