"""How results are shown: JSON where asked for, else a small table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeGuard

import typer
from rich.box import HEAVY_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sordino.errors import require
from sordino.files import require_folder
from sordino.privacy.guarantee import Certificate
from sordino.privacy.wording import format_delta, format_epsilon

PICTURES = (".png", ".pdf", ".svg")
LONGEST_FIGURE = 15  # -1.23456789e-10
LEAST_TEXT = 6  # narrowest column of text
# Figures of a finite sample, or of a clock: more digits would mean nothing. JSON has them all.
MEASURED = ("accuracy", "test_loss", "suboptimality", "distance", "gradient_norm", "seconds")

# Options that several commands share.
File = Annotated[Path, typer.Argument(help="A run as a TOML file.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Change a value: section.key=value. May be repeated.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def require_picture(field: str, path: Path) -> None:
    """Refuse a picture that could not be written, before anything is computed."""
    require(path.suffix in PICTURES, field, str(path), f"name a file that ends in {', '.join(PICTURES)}")
    require_file(field, path)


def require_file(field: str, path: Path) -> None:
    """Refuse a file that could not be written: a new folder is never made for a single file."""
    require(not path.is_dir(), field, str(path), "is a folder: name a file")
    require_folder(field, path.parent)
    require(path.parent.exists(), field, str(path), f"there is no folder {path.parent}: make it, or choose another")


def print_json(result: Mapping[str, Any]) -> None:
    """Print a result as JSON."""
    print(json_text(result))


def json_text(result: object) -> str:
    """A result as JSON, which has no NaN or infinity: NaN becomes null, infinity the string "inf"."""
    return json.dumps(_plain(result), indent=2, allow_nan=False)


def print_text(*paragraphs: str) -> None:
    """Print paragraphs, wrapped at the width of the terminal; 80 columns elsewhere."""
    Console().print(*paragraphs, sep="\n", markup=False, highlight=False)


def show(title: str, result: Mapping[str, Any], *, as_json: bool = False) -> None:
    """Print a flat result; nested lists of mappings become tables of their own, warnings become lines."""
    if as_json:
        print_json(result)
        return
    pairs = {key: _text(key, value) for key, value in result.items() if key != "warnings" and not _is_rows(value)}
    _print_pairs(title, pairs)
    for key, value in result.items():
        if _is_rows(value) and key != "warnings":
            print_rows(value, title=key)
    for warning in result.get("warnings", ()):
        text = f"[bold yellow]warning[/] ({warning['code']}): {escape(warning['message'])}"
        Console().print(text, highlight=False)


def show_with_certificate(title: str, result: dict[str, Any], certificate: Certificate, *, as_json: bool) -> None:
    """Print a result and the certificate that belongs to it."""
    if as_json:
        print_json(result | certificate.to_json())
        return
    show(title, result)
    print(certificate)


def print_rows(
    rows: Sequence[Mapping[str, Any]],
    *,
    title: str | None = None,
    caption: str | None = None,
    whole: str | None = None,
    boxed: bool = True,
) -> None:
    """Print a table without truncating any number.

    Long words are folded where necessary; numbers and the column `whole` are not. Where the terminal is too narrow for
    those, each row becomes several lines.
    """
    console = Console()
    columns = {name: [_text(name, row.get(name)) for row in rows] for name in rows[0]}
    natural = {name: max(map(len, (name, *cells))) for name, cells in columns.items()}
    least = {name: _longest_figure(name, *cells) for name, cells in columns.items()}
    if whole is not None:
        least[whole] = natural[whole]
    room = console.width - (3 * len(columns) + 1 if boxed else 2 * len(columns) - 2)  # without lines and margins
    if sum(least.values()) > room:
        for text in filter(None, (title, caption)):
            console.print(text, markup=False)
        for row in zip(*columns.values(), strict=True):
            console.print(*map(_line, columns, row), "", sep="\n", soft_wrap=True, markup=False)
        return
    box = HEAVY_HEAD if boxed else None
    table = Table(title=title and escape(title), title_justify="left", caption=caption, box=box, pad_edge=boxed)
    for name, width in _widths(natural, least, room).items():
        table.add_column(escape(name), overflow="fold", width=width)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(escape, row))
    console.print(table)


def _longest_figure(*texts: str) -> int:
    """The length of the longest word that may be a number."""
    words = [len(word) for text in texts for word in text.split()]
    return max((length for length in words if length <= LONGEST_FIGURE), default=LEAST_TEXT)


def _widths(natural: Mapping[str, int], least: Mapping[str, int], room: int) -> dict[str, int]:
    """The natural widths, the widest columns narrowed until the table fits."""
    widths = dict(natural)
    while sum(widths.values()) > room:
        widest = max((name for name in widths if widths[name] > least[name]), key=lambda name: widths[name])
        widths[widest] -= 1
    return widths


def _print_pairs(title: str, pairs: Mapping[str, str]) -> None:
    if not pairs:
        return
    console = Console()
    if max(map(len, pairs)) + 7 + LONGEST_FIGURE > console.width:
        console.print(title, *map(_line, pairs, pairs.values()), sep="\n", soft_wrap=True, markup=False)
        return
    table = Table(title=escape(title), title_justify="left", show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in pairs.items():
        table.add_row(name, escape(text))
    console.print(table)


def _line(name: str, text: str) -> str:
    return f"{name}: {text}"


def _is_rows(value: object) -> TypeGuard[list[Mapping[str, Any]]]:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Mapping)


def _text(key: str, value: object) -> str:
    if value is None or value in ([], ()):
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(name, inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(str(item) for item in value)
    if isinstance(value, float):
        if key.startswith("epsilon"):
            return format_epsilon(value)
        if key.startswith(MEASURED):
            return f"{100 * value:.2f} %" if key.startswith("accuracy") else f"{value:.4g}"
        return format_delta(value) if key.startswith("delta") else f"{value:.9g}"
    return str(value)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf"
    return value
