"""`sordino compare A.toml B.toml ...`: methods side by side, at the same certified guarantee, on the same task."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from sordino.cli.output import Json, print_json, require_picture, show
from sordino.cli.progress import points_progress, working
from sordino.config import Config, load_config
from sordino.errors import InvalidInput, require
from sordino.privacy import wording
from sordino.privacy.guarantee import Guarantee

NOT_COVERED = f"{wording.SELECTION_NOT_COVERED} {wording.SHARED_NOISE}"


def compare_command(
    files: Annotated[
        list[Path], typer.Argument(help="Run files; the others are compared with the first, the reference.")
    ],
    seeds: Annotated[int, typer.Option(help="Runs of each, with seeds 0, 1, ...")] = 10,
    set: Annotated[
        list[str] | None, typer.Option("--set", help="Change a value in all files: section.key=value. May be repeated.")
    ] = None,
    unequal: Annotated[
        bool, typer.Option("--unequal", help="Compare methods with different guarantees; the output shows them.")
    ] = False,
    picture: Annotated[Path, typer.Option(help="File for the plot.")] = Path("runs/compare.png"),
    json: Json = False,
) -> None:
    """Train several methods with several seeds: means with 95 % intervals, paired tests, a table and a plot."""
    from sordino.report.comparison import CORRECTION, TEST, compare, plot_comparison
    from sordino.report.comparison_file import keep_comparison, kept_method
    from sordino.runs import Options, sweep

    require(len(files) >= 2, "files", [str(file) for file in files], "give at least two run files")
    require(seeds >= 2, "seeds", seeds, "an interval needs at least 2")
    require_picture("picture", picture)
    names = _names(files)
    configs = [load_config(file, tuple(set or ())) for file in files]
    _require_same_task(configs)
    with working("reading data and planning"):
        task = configs[0].task()
        points = [config.point(task) for config in configs]
        guarantees = [point.answer.certificate.total(point.answer.promised) for point in points]
    if not unequal:
        _require_same_guarantee(names, guarantees)
    options = Options(evaluate_every=configs[0].file.run.evaluate_every)
    seeded = [replace(point, seed=seed) for point in points for seed in range(seeds)]
    with points_progress(len(seeded)) as progress:
        runs = sweep(seeded, task, options, progress=progress)
    certificates = [run.certificate for run in runs[::seeds]]  # they differ from seed to seed in nothing
    histories = {name: [run.history for run in runs[i * seeds : (i + 1) * seeds]] for i, name in enumerate(names)}
    rows = compare(histories)
    for row, guarantee, certificate in zip(rows, guarantees, certificates, strict=True):
        said = certificate.to_json()
        row |= {"guarantee": str(guarantee)} | {key: said[key] for key in ("draws", "seed", "assumptions", "warnings")}
    plot_comparison(histories, task.name, picture)
    kept = picture.with_suffix(".json")
    others = "1 other file" if len(names) == 2 else f"{len(names) - 1} other files"
    result = {
        "task": task.name,
        "seeds": seeds,
        "measure": rows[0]["measure"],
        "reference": names[0],
        "test": f"{TEST}, of each file against {names[0]}",
        "correction": f"{CORRECTION}, for {others}",
        "picture": str(picture),
        "kept": str(kept),
    }
    methods = [
        kept_method(name, task.name, config.changed, certificate, histories[name][0])
        for name, config, certificate in zip(names, configs, certificates, strict=True)
    ]
    keep_comparison(kept, result, rows, methods)
    if json:
        print_json(result | {"rows": rows, "choosing": {"note": NOT_COVERED}})
        return
    for name, guarantee in zip(names, guarantees, strict=True):
        print(f"{name}: {guarantee}")
    print(*wording.comparison_notes(dict(zip(names, certificates, strict=True))), sep="\n")
    print(NOT_COVERED)
    show("Comparison", result | {"rows": [_shown(row, names[0]) for row in rows]})


def _names(files: list[Path]) -> list[str]:
    """The files' names, with their folders if two files have the same name."""
    same_stems = len({file.stem for file in files}) < len(files)
    names = [str(file.with_suffix("")) if same_stems else file.stem for file in files]
    require(len({*names}) == len(names), "files", [str(file) for file in files], "name each file once")
    return names


def _require_same_task(configs: list[Config]) -> None:
    for config in configs[1:]:
        if config.task_key != configs[0].task_key:
            remedy = f"differs from the task of {configs[0].path}: compare on one task"
            raise InvalidInput("task", str(config.path), remedy)


def _require_same_guarantee(names: list[str], guarantees: list[Guarantee]) -> None:
    """Refuse guarantees that differ in epsilon (by more than a millionth), delta, unit, relation or observer."""
    first = guarantees[0]
    for name, other in zip(names[1:], guarantees[1:], strict=True):
        same_kind = (other.subject, other.delta) == (first.subject, first.delta)
        if same_kind and math.isclose(other.epsilon, first.epsilon, rel_tol=1e-6):
            continue
        remedy = (
            f"has {wording.total_sentence(other)}, but {names[0]} has {wording.total_sentence(first)}: make them equal "
            "with --set privacy.epsilon=... and --set privacy.delta=..., or use --unequal"
        )
        raise InvalidInput("guarantee", name, remedy)


def _shown(row: dict[str, Any], first: str) -> dict[str, str]:
    """A row for people: intervals in brackets."""
    from sordino.report.comparison import CORRECTION

    difference, p = "-", "-"
    if "difference" in row:
        difference = f"{row['difference']:+.3g} [{row['difference_low']:+.3g}, {row['difference_high']:+.3g}]"
        p = f"{row['p']:.2g}"
    return {
        "method": row["method"],
        "mean [95 %]": f"{row['mean']:.4g} [{row['low']:.4g}, {row['high']:.4g}]",
        f"against {first}": difference,
        f"p ({CORRECTION})": p,
    }
