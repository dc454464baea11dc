"""`sordino bench`: the speed of one training round, beside a plain Python loop over clients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sordino.cli.output import Json, print_json, show
from sordino.cli.progress import working
from sordino.errors import LARGEST_SEED
from sordino.files import require_folder


def bench_command(
    workload: Annotated[
        str | None,
        typer.Option(
            help="w1: logistic regression, many clients; w2: small CNN, many clients; w3: MLP bound by matrix "
            "products; tiny: ten clients. Default: all of them, one process each."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random records.", min=0, max=LARGEST_SEED)] = 0,
    keep: Annotated[
        Path | None, typer.Option(help="A folder with the history of measurements: add these, and draw all.")
    ] = None,
    json: Json = False,
) -> None:
    """Measure seconds a round and peak memory, beside a plain loop over clients.

    The workloads are Sordino's own and synthetic: their shapes are chosen by us, their records random. They measure
    the speed of Sordino on this machine and are not comparable with figures of other projects.
    """
    from sordino.runs.workloads import WORKLOADS, find_workload

    if keep is not None:
        require_folder("keep", keep)
    if workload is not None:
        find_workload(workload)  # refuse a wrong name before anything is printed
        with working(f"measuring {workload}"):
            result = _measured(workload, seed)
        _keep(keep, [result])
        show(f"One round, {result['what']}", result, as_json=json)
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # A process keeps its peak memory, so each workload gets its own.
    with (
        working("measuring"),
        ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as processes,
    ):
        rows = list(processes.map(_measured, WORKLOADS, [seed] * len(WORKLOADS)))
    _keep(keep, rows)
    if json:
        print_json({"workloads": rows})
        return
    for row in rows:
        show(f"One round, {row['what']}", row)


def _keep(folder: Path | None, rows: list[dict[str, object]]) -> None:
    if folder is not None:
        from sordino.report.speed import add_to_history

        folder.mkdir(parents=True, exist_ok=True)
        add_to_history(folder, rows)


def _measured(name: str, seed: int) -> dict[str, object]:
    """The workload, then its measurements, then the versions and the device."""
    import dataclasses

    from sordino.runs.metrics import environment
    from sordino.runs.workloads import find_workload, measure

    workload = find_workload(name)
    made_with = environment()
    sizes = dataclasses.asdict(workload) | {"shape": list(workload.shape), "seed": seed}
    facts = {key: made_with[key] for key in ("sordino", "jax", "device", "devices", "date")}
    return {"workload": name.strip().lower(), **sizes, **measure(workload, seed), **facts}
