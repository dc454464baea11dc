"""Result files as Markdown: a page of all tables, and a summary of one row for each paper."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from sordino.privacy import wording
from sordino.privacy.guarantee import Certificate

Result = dict[str, Any]  # a result file, parsed

HEADER = """# Results

Published figures beside ours, generated from `results/`; do not edit. Each file names the command, the commit, the
versions, the device and the date of its runs, and holds the certificates. Learning rates and bounds were chosen by test
accuracy, as in the papers; no certificate covers that choice.
"""

MARKS = ("<!-- results -->", "<!-- end of results -->")
PER_CENT = "(%)"  # in the metric of a table
SUMMARY_NOTE = (
    "Differences are ours less the paper's: percentage points for tables in per cent, the table's own unit for papers "
    "without such tables. Variants of a table are left out here; docs/results.md has all tables."
)


def results_page(folder: Path, certificates: Callable[[Result], list[Result]] = itemgetter("guarantees")) -> str:
    """All tables of a results folder as Markdown; `certificates` says what is printed as the promises of a table."""
    tables = [table | {"pictures": _pictures_of(path)} for path, table in _tables(folder)]
    return HEADER + "".join(_table(table, certificates(table)) for table in tables)


def summary(folder: Path) -> str:
    """One row for each paper as Markdown for the README: how far our figures are from the published ones."""
    lines = [
        "| paper | tables | cells | median absolute difference | largest difference | its cell |",
        "|---|---|---|---|---|---|",
    ]
    for paper, tables in groupby((table for _, table in _tables(folder)), key=itemgetter("paper")):
        published = [table for table in tables if table["file"] == table["name"] and _differences(table)]
        chosen = [table for table in published if PER_CENT in table["metric"]] or published
        if chosen:
            found = [each for table in chosen for each in _differences(table)]
            links = ", ".join(f"[{table['file']}](docs/results.md#{_anchor(table)})" for table in chosen)
            median = statistics.median(abs(difference) for difference, _ in found)
            largest, cell = max(found, key=lambda each: abs(each[0]))
            number = paper.removeprefix("paper")
            lines.append(f"| {number} | {links} | {len(found)} | {median:.3g} | {largest:+.3g} | {cell} |")
    return "\n".join([*lines, "", SUMMARY_NOTE, ""])


def _differences(table: Result) -> list[tuple[float, str]]:
    """Ours less the paper's, and the cell."""
    return [
        (row["mean"] - row["paper"], f"{table['file']}: {row['row']}, {row['column']}".replace("|", "\\|"))
        for row in table["rows"]
        if row["paper"] is not None and row["mean"] is not None
    ]


def _heading(table: Result) -> str:
    return f"{table['paper'].replace('paper', 'Paper ')}: {table['file']}"


def _anchor(table: Result) -> str:
    """GitHub's link to the heading of a table."""
    return _heading(table).lower().replace(": ", "-").replace(" ", "-")


def with_summary(readme: str, folder: Path) -> str:
    """The README with a new summary between the two marks."""
    before, _, rest = readme.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}\n{summary(folder)}{MARKS[1]}{after}"


def _tables(folder: Path) -> list[tuple[Path, Result]]:
    """The result files by paper and name, each with its paper and the name of its file."""
    paths = sorted(folder.glob("paper*/*.json"), key=lambda path: (path.parent.name, path.stem))
    return [(path, json.loads(path.read_text()) | {"paper": path.parent.name, "file": path.stem}) for path in paths]


def _pictures_of(path: Path) -> list[str]:
    """The pictures named after a result; those of table5-on-messages are not pictures of table5."""

    def owner(picture: Path) -> Path:
        named = [other for other in path.parent.glob("*.json") if f"{picture.stem}-".startswith(f"{other.stem}-")]
        return max(named, key=lambda other: len(other.stem), default=picture)

    pictures = sorted(path.parent.glob(f"{path.stem}*.png"))
    return [f"{path.parent.name}/{picture.name}" for picture in pictures if owner(picture) == path]


def _table(table: Result, certificates: list[Result]) -> str:
    made = table["provenance"]
    earlier = made.get("earlier_commits")  # of a result that took several calls
    begun = f" (begun at {', '.join(earlier)})" if earlier else ""
    lines = [
        f"\n## {_heading(table)}\n",
        f"{table['metric']}. Made by `{made['command']}` at {made['commit']}{begun} on {made['device']}, "
        f"Sordino {made['versions']['sordino']}, JAX {made['versions']['jax']}, {made['date'][:10]}.\n",
        "| row | column | paper | ours | std | seeds |",
        "|---|---|---|---|---|---|",
    ]
    for row in table["rows"]:
        paper = "-" if row["paper"] is None else f"{row['paper']:g}"
        mean = "diverged" if row["mean"] is None else f"{row['mean']:.4g}"
        std = "-" if row["std"] is None else f"{row['std']:.3g}"
        lines.append(f"| {row['row']} | {row['column']} | {paper} | {mean} | {std} | {len(row['seeds'])} |")
    spreads = [f"- {text}" for text in spread_lines(table.get("spreads", []))]
    lines += ["\nHighest less lowest along each line of the heat map:\n", *spreads] if spreads else []
    if table.get("note"):
        lines += ["", table["note"]]
    lines += [f"\n![{picture}](../results/{picture})" for picture in table["pictures"]]
    promises = [f"- {text}" for text in promise_lines(certificates)]
    promise = "\nWhat the runs promise, over all rounds, and what the paper claims:\n"
    what = promise if promises else "\nThese are measurements; they carry no privacy guarantee."
    return "\n".join([*lines, what, *promises, ""])


def promise_lines(certificates: list[Result]) -> list[str]:
    """One line for each promise, with the cells that share it."""
    cells: dict[str, list[str]] = {}
    for certificate in certificates:
        promise = wording.results_line(Certificate.from_json(certificate), certificate.get("claim"))
        cells.setdefault(promise, []).append(f"{certificate['row']}, {certificate['column']}")
    more = {text: f" and {len(names) - 1} more" if len(names) > 1 else "" for text, names in cells.items()}
    return [f"{names[0]}{more[text]}: {text}" for text, names in cells.items()]


def spread_lines(spreads: list[Result]) -> list[str]:
    """One line for each column of a heat map: the spread of its figures."""
    columns: dict[str, list[str]] = {}
    for each in spreads:
        lost = f", {each['diverged']} diverged" if each["diverged"] else ""
        spread = "-" if each["spread"] is None else f"{each['spread']:.3g}"
        texts = columns.setdefault(f"{each['metric']}, {each['column']}", [])
        texts.append(f"{each['row']}: {spread} ({each['cells']} cells{lost})")
    return [f"{name}: {'; '.join(texts)}" for name, texts in columns.items()]
