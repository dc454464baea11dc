"""`python -m bench [--json]`: run every bench and report. A missed target is a row that says so, never a failure."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench import extrapolation, flower, noise, privacy_core, training
from bench.timing import Bench, Row

ROOMS = (privacy_core, training, noise, extrapolation, flower)
BENCHES: list[Bench] = [bench for room in ROOMS for bench in room.BENCHES]
PACKAGES = ("sordino", "jax", "jaxlib", "numpy", "scipy", "dp-accounting", "jax-privacy")


def run(benches: list[Bench]) -> Iterator[Row]:
    """All rows, with a progress bar on stderr (plain lines where stderr is no terminal)."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(benches))
        for number, bench in enumerate(benches, 1):
            title = (bench.__doc__ or "").splitlines()[0].rstrip(".")
            progress.update(task, description=title)
            if not console.is_terminal:
                console.print(f"{number}/{len(benches)} {title}", highlight=False)
            yield from bench()
            progress.advance(task)


def environment() -> dict[str, Any]:
    """What the numbers depend on."""
    device = jax.devices()[0]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "device": f"{device.platform}: {device.device_kind}",
        "cpu_count": os.cpu_count(),
        "load_average": os.getloadavg()[0],
    }


def as_json(row: Row) -> dict[str, Any]:
    """One row, its times in seconds."""
    return {
        "name": row.name,
        "value": row.value,
        "baseline": row.baseline,
        "against": row.against or None,
        "ratio": row.ratio,
        "target": row.target if math.isfinite(row.target) else None,
        "ok": row.ok,
    }


def as_table(rows: list[Row], facts: dict[str, Any]) -> Table:
    """The same for people."""
    packages = ", ".join(f"{name} {facts['versions'][name]}" for name in ("sordino", "jax"))
    caption = (
        f"{facts['date']}, {packages}, {facts['device']}, {facts['cpu_count']} CPUs, load {facts['load_average']:.1f}"
    )
    table = Table(caption=caption, caption_justify="left")
    table.add_column("bench")
    for heading in ("seconds", "baseline", "ratio", "target", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        baseline = "" if row.baseline is None else f"{row.baseline:.3f}"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        target = f"<= {row.target:g}" + (" s" if row.ratio is None else "") if math.isfinite(row.target) else ""
        name = f"{row.name}, against {row.against}" if row.against else row.name
        table.add_row(name, f"{row.value:.3f}", baseline, ratio, target, "ok" if row.ok else "[bold]missed[/bold]")
    return table


def main() -> None:
    """Run, then print the table or the JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Speed, as ratios measured in one run.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    facts, rows = environment(), list(run(BENCHES))
    if arguments.json:
        print(json.dumps({"environment": facts, "rows": [as_json(row) for row in rows]}, indent=2))
    else:
        Console().print(as_table(rows, facts))


if __name__ == "__main__":
    main()
