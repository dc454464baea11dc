"""How results are shown: JSON where asked for, else a small table; waiting is shown on stderr of a terminal."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from sordino.errors import InvalidInput, require
from sordino.privacy.guarantee import format_delta, format_epsilon

__all__ = ["require_folder", "require_picture", "show", "working"]

PICTURES = (".png", ".pdf", ".svg")


def require_picture(field: str, path: Path) -> None:
    """Refuse, before anything is computed, a picture that could not be written in the end."""
    require(path.suffix in PICTURES, field, str(path), f"name a file that ends in {', '.join(PICTURES)}")
    require(not path.is_dir(), field, str(path), "is a folder: name a file")
    require_folder(field, path.parent)


def require_folder(field: str, path: Path) -> None:
    """Make a folder that results will go to, or refuse it before anything is computed."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(field, str(path), f"cannot be a folder here ({error.strerror}): choose another") from None
    require(os.access(path, os.W_OK), field, str(path), "cannot be written to: choose another folder")


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner and the time so far, where nobody knows how long it takes; silent when stderr is not a terminal."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        bar.add_task(what, total=None)
        yield


def show(title: str, result: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a flat result; nested lists of mappings become tables of their own, warnings become lines."""
    if as_json:
        print(json.dumps(_plain(result), indent=2, allow_nan=False))
        return
    console = Console()
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for key, value in result.items():
        if key == "warnings" or _is_rows(value):
            continue
        table.add_row(key, _text(key, value))
    if table.row_count:
        console.print(table)
    for key, value in result.items():
        if _is_rows(value) and key != "warnings":
            console.print(_rows_table(key, value))
    for warning in result.get("warnings", ()):
        console.print(f"[bold yellow]warning[/] ({warning['code']}): {warning['message']}", highlight=False)


def _rows_table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in rows[0]:
        table.add_column(column)
    for row in rows:
        table.add_row(*(_text(key, value) for key, value in row.items()))
    return table


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def _text(key: str, value: Any) -> str:
    if value is None or value in ([], ()):
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(name, inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(str(item) for item in value)
    if isinstance(value, float):
        # epsilon is rounded up, so that what is printed is never better than what holds.
        if key.startswith("epsilon"):
            return format_epsilon(value)
        return format_delta(value) if key.startswith("delta") else f"{value:.9g}"
    return str(value)


def _plain(value: Any) -> Any:
    """JSON without NaN or infinity: an infinite epsilon is the string "inf", what is not a number is null."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf"
    return value
