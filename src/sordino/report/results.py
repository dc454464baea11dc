"""Committed results as pages: `python -m sordino.report.results` writes docs/results.md and the README's summary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sordino.data import where
from sordino.errors import InvalidInput
from sordino.experiments.specs import find_spec
from sordino.privacy import wording
from sordino.privacy.guarantee import Certificate

__all__ = ["promise_lines", "results_page", "spread_lines", "summary", "with_summary"]

HEADER = """# Results

Published figures beside ours, generated from `results/`; do not edit. Each file names the command, the commit, the
versions, the device and the date of its runs, and holds the certificates. Learning rates and bounds were chosen by test
accuracy, as in the papers; no certificate covers that choice.
"""


MARKS = ("<!-- results -->", "<!-- end of results -->")
MOST_CELLS = 9  # of a table that the summary lists


def results_page(folder: Path) -> str:
    """All tables of a results folder as Markdown."""
    tables = []
    for path in _files(folder):
        where = {"paper": path.parent.name, "file": path.stem, "pictures": _pictures_of(path)}
        tables.append(json.loads(path.read_text()) | where)
    return HEADER + "".join(_table(table) for table in tables)


def summary(folder: Path) -> str:
    """The cells that a paper gives a figure for, a line a table, as Markdown for the README."""
    lines = ["| paper | table | ours (paper) |", "|---|---|---|"]
    for path in _files(folder):
        result = json.loads(path.read_text())
        cells = [row for row in result["rows"] if row["paper"] is not None and row["mean"] is not None]
        figures = "; ".join(
            f"{row['row']}, {row['column']} {row['mean']:.4g} ({row['paper']:g})" for row in cells[:MOST_CELLS]
        ).replace("|", "\\|")
        more = f"; {len(cells) - MOST_CELLS} more" if len(cells) > MOST_CELLS else ""
        if cells:
            name = ", ".join(filter(None, (path.stem, result.get("scope"))))
            lines.append(f"| {path.parent.name.removeprefix('paper')} | {name} | {figures}{more} |")
    return "\n".join(lines) + "\n"


def with_summary(readme: str, folder: Path) -> str:
    """The README with its summary made anew between the two marks."""
    before, _, rest = readme.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}\n{summary(folder)}{MARKS[1]}{after}"


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.json"), key=lambda path: (path.parent.name, path.stem))


def _pictures_of(path: Path) -> list[str]:
    """Those named after a result, and not after another one with a longer name: table5 has no table5-on-messages-*."""

    def owner(picture: Path) -> Path:
        named = [other for other in path.parent.glob("*.json") if f"{picture.stem}-".startswith(f"{other.stem}-")]
        return max(named, key=lambda other: len(other.stem), default=picture)

    pictures = sorted(path.parent.glob(f"{path.stem}*.png"))
    return [f"{path.parent.name}/{picture.name}" for picture in pictures if owner(picture) == path]


def _table(table: dict[str, Any]) -> str:
    made = table["provenance"]
    lines = [
        f"\n## {table['paper'].replace('paper', 'Paper ')}: {table['file']}\n",
        f"{table['metric']}. Made by `{made['command']}` at {made['commit']}{_begun(made)} on {made['device']}, "
        f"Sordino {made['versions']['sordino']}, JAX {made['versions']['jax']}, {made['date'][:10]}.\n",
        "| row | column | paper | ours | std | seeds |",
        "|---|---|---|---|---|---|",
    ]
    for row in table["rows"]:
        paper = "-" if row["paper"] is None else f"{row['paper']:g}"
        std = "-" if row["std"] is None else f"{row['std']:.3g}"
        lines.append(
            f"| {row['row']} | {row['column']} | {paper} | {_number(row['mean'])} | {std} | {_seeds(row['seeds'])} |"
        )
    spreads = [f"- {text}" for text in spread_lines(table.get("spreads", []))]
    lines += ["\nHighest less lowest along each line of the heat map:\n", *spreads] if spreads else []
    if table.get("note"):
        lines += ["", table["note"]]
    lines += [f"\n![{picture}](../results/{picture})" for picture in table["pictures"]]
    promises = [f"- {text}" for text in promise_lines(_as_warned_today(table))]
    promise = "\nWhat the runs promise, over all rounds, and what the paper claims:\n"
    what = promise if promises else "\nMeasurements that promise nobody anything."
    return "\n".join([*lines, what, *promises, ""])


def _begun(made: dict[str, Any]) -> str:
    """Of runs that took several calls, with changes of the code between them."""
    earlier = made.get("earlier_commits", [])
    return f" (begun at {', '.join(earlier)})" if earlier else ""


def _as_warned_today(table: dict[str, Any]) -> list[dict[str, Any]]:
    """The certificates, with what is said of the same cells today: results may be older than a warning.

    Only where all data are at hand wherever this runs: made up, or embedded.
    """
    kept: list[dict[str, Any]] = table["guarantees"]
    try:
        spec = find_spec(f"{table['paper']}-{table['name']}")
    except InvalidInput:  # made by a script
        return kept
    if not all(where(name) == "embedded" for name in spec.file.data):
        return kept
    tasks: dict[str, Any] = {}
    today = {}
    for cell, config in ((point.cell, point.config) for point in spec.points(quick=False)):
        if config.task_key not in tasks:
            tasks[config.task_key] = config.task()
        certificate = config.resolve(config.plan(), tasks[config.task_key]).certificate
        today[cell.row, cell.column] = certificate.to_json()["warnings"]
    return [each | {"warnings": [*each["warnings"], *today.get((each["row"], each["column"]), ())]} for each in kept]


def promise_lines(certificates: list[dict[str, Any]]) -> list[str]:
    """A line for each promise, naming all the cells that share it."""
    cells: dict[str, list[str]] = {}
    for certificate in certificates:
        promise = wording.results_line(Certificate.from_json(certificate), certificate.get("claim"))
        cells.setdefault(promise, []).append(f"{certificate['row']}, {certificate['column']}")
    return [f"{_joined(names)}: {text}" for text, names in cells.items()]


def spread_lines(spreads: list[dict[str, Any]]) -> list[str]:
    """A line for each column of a heat map: how far its figures vary."""
    columns: dict[str, list[str]] = {}
    for each in spreads:
        lost = f", {each['diverged']} diverged" if each["diverged"] else ""
        spread = "-" if each["spread"] is None else f"{each['spread']:.3g}"
        texts = columns.setdefault(f"{each['metric']}, {each['column']}", [])
        texts.append(f"{each['row']}: {spread} ({each['cells']} cells{lost})")
    return [f"{name}: {'; '.join(texts)}" for name, texts in columns.items()]


def _joined(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _number(mean: float | None) -> str:
    return "diverged" if mean is None else f"{mean:.4g}"


def _seeds(seeds: list[int] | int) -> str:
    return str(len(seeds)) if isinstance(seeds, list) else str(seeds)


if __name__ == "__main__":
    Path("docs/results.md").write_text(results_page(Path("results")))
    Path("README.md").write_text(with_summary(Path("README.md").read_text(), Path("results")))
