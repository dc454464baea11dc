"""Result files as Markdown: a page for each paper, a page that sums them up, and a summary for the README."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from sordino.privacy import wording
from sordino.privacy.guarantee import Certificate

Result = dict[str, Any]  # a result file, parsed
CertificatesOf = Callable[[Result], list[Result]]  # what is printed as the promises of a table
KEPT: CertificatesOf = itemgetter("guarantees")  # those of the file itself

PAPERS = {
    "paper0": "DP-NormFedAvg and QTDL",
    "paper1": "DP-FedEXP",
    "paper2": "Federated learning without a trusted server",
    "paper3": "Clipping or normalization with Gaussian noise",
    "paper4": "alpha-NormEC",
}
GENERATED = "Generated from `results/`; do not edit."
HEADER = f"""# Results

Published figures beside ours. {GENERATED} Each file there names the command,
the commit, the versions, the device and the date of its runs, and holds the certificates. Learning rates and bounds
were chosen by test accuracy, as in the papers; no certificate covers that choice.
"""
CLAIMS = """
## Claimed and actual guarantees

What the papers claim for the runs of their tables, and what holds. One row per claim and observer; "and 2 more"
gives the number of further cells of the table. Each paper's page has all guarantees.
"""

MARKS = ("<!-- results -->", "<!-- end of results -->")
PER_CENT = "(%)"  # in the metric of a table
SUMMARY_NOTE = (
    "A difference is our figure minus the paper's: percentage points for tables in per cent, the table's own unit for "
    "papers without such tables. Variants of a table are left out here; the papers' pages have all tables."
)


class Spread(NamedTuple):
    """How far a paper's figures are from ours."""

    tables: list[Result]
    cells: int
    median: float  # of absolute differences
    largest: float  # the difference that is largest in absolute value
    where: str  # the cell of the largest


def pages(folder: Path, certificates: CertificatesOf = KEPT) -> dict[str, str]:
    """All pages of a results folder by name: results.md, and results/paper0.md and so on."""
    tables = [table | {"pictures": _pictures_of(path)} for path, table in _tables(folder)]
    found = {"results.md": _overview(tables, certificates)}
    for paper, own in _by_paper(tables):
        found[f"results/{paper}.md"] = _paper_page(paper, own, certificates)
    return found


def summary(folder: Path, to: str = "docs/results/") -> str:
    """One row for each paper as Markdown for the README: how far our figures are from the published ones."""
    return _summary([table for _, table in _tables(folder)], to)


def with_summary(readme: str, folder: Path) -> str:
    """The README with a new summary between the two marks."""
    before, _, rest = readme.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}\n{summary(folder)}{MARKS[1]}{after}"


# --- Pages ------------------------------------------------------------------------------------------------------------


def _overview(tables: list[Result], certificates: CertificatesOf) -> str:
    links = [f"- [{_title(paper)}](results/{paper}.md)" for paper, _ in _by_paper(tables)]
    claimed = ["| paper, table, cells | the paper claims | against | what holds | limits |", "|---|---|---|---|---|"]
    for paper, own in _by_paper(tables):
        for table in own:
            where = f"{_number(paper)}, {table['file']}"
            for cells, claim, promise in _promises(certificates(table)):
                if claim:
                    claimed.append(f"| {where}: {cells} | {claim} | {' | '.join(promise)} |")
    return "\n".join([HEADER, *links, "", _summary(tables, "results/"), CLAIMS, *claimed, ""])


def _paper_page(paper: str, tables: list[Result], certificates: CertificatesOf) -> str:
    lines = [f"# {_title(paper)}\n", f"[All papers](../results.md). {GENERATED}"]
    spread = _spread(tables)
    if spread is not None:
        lines.append(
            f"\n{spread.cells} cells have a published figure beside ours: the median absolute difference is "
            f"{spread.median:.3g}, the largest difference {spread.largest:+.3g} ({spread.where})."
        )
    return "\n".join([*lines, *(_table(table, certificates(table)) for table in tables)])


def _table(table: Result, certificates: list[Result]) -> str:
    made = table["provenance"]
    earlier = made.get("earlier_commits")  # of a result that took several calls
    begun = f" (begun at {', '.join(earlier)})" if earlier else ""
    lines = [
        f"\n## {table['file']}\n",
        *([f"**{table['title']}**\n"] if table.get("title") else []),
        f"{table['metric'][0].upper()}{table['metric'][1:]}. Made by `{made['command']}` at {made['commit']}{begun} "
        f"on {made['device']}, Sordino {made['versions']['sordino']}, JAX {made['versions']['jax']}, "
        f"{made['date'][:10]}.\n",
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
    lines += [f"\n![{picture}](../../results/{picture})" for picture in table["pictures"]]
    promises = [
        f"| {cells} | {claim or '-'} | {' | '.join(promise)} |" for cells, claim, promise in _promises(certificates)
    ]
    header = [
        "\nWhat the runs promise over all rounds:\n",
        "| cells | the paper claims | against | what holds | limits |",
        "|---|---|---|---|---|",
    ]
    what = [*header, *promises] if promises else ["\nThese are measurements; they carry no privacy guarantee."]
    return "\n".join([*lines, *what, ""])


def promise_lines(certificates: list[Result]) -> list[str]:
    """The promises of a table as lines for a terminal."""
    return [
        f"{cells}: {promise.against}: {promise.holds}; {promise.limits}" + (f"; the paper claims {claim}" * bool(claim))
        for cells, claim, promise in _promises(certificates)
    ]


def _promises(certificates: list[Result]) -> list[tuple[str, str, wording.Promise]]:
    """Each promise with the claim beside it and the cells that share both."""
    cells: dict[tuple[str, wording.Promise], list[str]] = {}
    for each in certificates:
        for promise in wording.promises(Certificate.from_json(each)):
            name = f"{each['row']}, {each['column']}".replace("|", "\\|")
            cells.setdefault((each.get("claim") or "", promise), []).append(name)
    return [(_and_more(names), claim, promise) for (claim, promise), names in cells.items()]


def _and_more(names: list[str]) -> str:
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]


def spread_lines(spreads: list[Result]) -> list[str]:
    """One line for each column of a heat map: the spread of its figures."""
    columns: dict[str, list[str]] = {}
    for each in spreads:
        lost = f", {each['diverged']} diverged" if each["diverged"] else ""
        spread = "-" if each["spread"] is None else f"{each['spread']:.3g}"
        texts = columns.setdefault(f"{each['metric']}, {each['column']}", [])
        texts.append(f"{each['row']}: {spread} ({each['cells']} cells{lost})")
    return [f"{name}: {'; '.join(texts)}" for name, texts in columns.items()]


# --- How far from the papers ------------------------------------------------------------------------------------------


def _summary(tables: list[Result], to: str) -> str:
    lines = [
        "| paper | tables | cells | median absolute difference | largest difference | its cell |",
        "|---|---|---|---|---|---|",
    ]
    for paper, own in _by_paper(tables):
        spread = _spread(own)
        if spread is not None:
            links = ", ".join(f"[{table['file']}]({to}{paper}.md#{table['file']})" for table in spread.tables)
            lines.append(
                f"| {_number(paper)} | {links} | {spread.cells} | {spread.median:.3g} | {spread.largest:+.3g} | "
                f"{spread.where} |"
            )
    return "\n".join([*lines, "", SUMMARY_NOTE, ""])


def _spread(tables: list[Result]) -> Spread | None:
    """Over the tables of one paper in per cent, or all its tables if none is; None where no figure was published."""
    published = [table for table in tables if table["file"] == table["name"] and _differences(table)]
    chosen = [table for table in published if PER_CENT in table["metric"]] or published
    if not chosen:
        return None
    found = [each for table in chosen for each in _differences(table)]
    median = statistics.median(abs(difference) for difference, _ in found)
    return Spread(chosen, len(found), median, *max(found, key=lambda each: abs(each[0])))


def _differences(table: Result) -> list[tuple[float, str]]:
    """Ours less the paper's, and the cell."""
    return [
        (row["mean"] - row["paper"], f"{table['file']}: {row['row']}, {row['column']}".replace("|", "\\|"))
        for row in table["rows"]
        if row["paper"] is not None and row["mean"] is not None
    ]


# --- Files ------------------------------------------------------------------------------------------------------------


def _tables(folder: Path) -> list[tuple[Path, Result]]:
    """The result files by paper and name, each with its paper and the name of its file."""
    paths = sorted(folder.glob("paper*/*.json"), key=lambda path: (path.parent.name, path.stem))
    return [(path, json.loads(path.read_text()) | {"paper": path.parent.name, "file": path.stem}) for path in paths]


def _by_paper(tables: list[Result]) -> list[tuple[str, list[Result]]]:
    return [(paper, list(own)) for paper, own in groupby(tables, key=itemgetter("paper"))]


def _number(paper: str) -> str:
    return paper.removeprefix("paper")


def _title(paper: str) -> str:
    return f"Paper {_number(paper)}: {PAPERS[paper]}"


def _pictures_of(path: Path) -> list[str]:
    """The pictures named after a result; those of table5-on-messages are not pictures of table5."""

    def owner(picture: Path) -> Path:
        named = [other for other in path.parent.glob("*.json") if f"{picture.stem}-".startswith(f"{other.stem}-")]
        return max(named, key=lambda other: len(other.stem), default=picture)

    pictures = sorted(path.parent.glob(f"{path.stem}*.png"))
    return [f"{path.parent.name}/{picture.name}" for picture in pictures if owner(picture) == path]
