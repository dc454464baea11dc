"""How work in progress is shown: a bar on a terminal; elsewhere (nohup, slurm, CI) a plain line at each evaluation."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from sordino.privacy.wording import format_epsilon

if TYPE_CHECKING:
    from sordino.runs.point import Progress as OnRow

FIRST_SHARE = 0.01  # of the work of many points, between two lines


def progress_bar(*columns: ProgressColumn) -> Progress:
    """A bar on the stderr of a terminal, until the work is done; nothing elsewhere."""
    console = Console(stderr=True)
    return Progress(*columns, console=console, disable=not console.is_terminal, transient=True)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show a spinner and the elapsed time."""
    with progress_bar(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()) as bar:
        bar.add_task(what, total=None)
        yield


@contextmanager
def points_progress(points: int) -> Iterator[Callable[[float], None]]:
    """Show the share of the work of all points that is done; in lines, at most one for each per cent."""
    columns = (TextColumn(f"{points} points"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    said = 0.0
    with progress_bar(*columns) as bar:
        work = bar.add_task("", total=1.0)

        def progress(share: float) -> None:
            nonlocal said
            bar.update(work, completed=share)
            if bar.disable and (share >= said + FIRST_SHARE or share >= 1.0 > said):
                said = share
                _say(f"{100 * share:3.0f} % done of {points} points")

        yield progress


@contextmanager
def live_progress(rounds: int) -> Iterator[OnRow]:
    """Round, epsilon, loss and accuracy; on a terminal with a bar and the time left."""
    measures = TextColumn("{task.fields[line]}", table_column=Column(overflow="fold"))  # no figure is cut
    begun = False
    with progress_bar(TextColumn("round"), MofNCompleteColumn(), BarColumn(), measures, TimeRemainingColumn()) as bar:
        rounds_bar = bar.add_task("", total=rounds, line="compiling")

        def progress(row: dict[str, Any]) -> None:
            nonlocal begun
            if not begun and _spent(row) is not None:  # said once, before the first line
                _say(f"epsilon of {row['epsilon_of']}", bar)
            begun = True
            line = evaluation_line(row)
            bar.update(rounds_bar, completed=row["round"], line=line)
            if bar.disable:
                _say(f"round {row['round']:{len(str(rounds))}}/{rounds}  {line}")

        yield progress


def evaluation_line(row: dict[str, Any]) -> str:
    """What an evaluation found, the most telling figure last."""
    spent = _spent(row)
    parts = ["not private" if spent is None else f"epsilon {format_epsilon(spent)}", f"loss {row['test_loss']:.3f}"]
    if "suboptimality" in row:
        parts.append(f"suboptimality {row['suboptimality']:.3g}")
    elif "accuracy" in row:
        parts.append(f"accuracy {100 * row['accuracy']:.1f} %")
    return "  ".join(parts)


def _spent(row: dict[str, Any]) -> float | None:
    epsilon = row["epsilon"]
    return epsilon if isinstance(epsilon, float) and math.isfinite(epsilon) else None


def _say(text: str, bar: Progress | None = None) -> None:
    if bar is not None and not bar.disable:
        bar.console.print(text, highlight=False)
    else:
        print(text, file=sys.stderr, flush=True)
