"""Merge parts of one table that were run separately into one result with its curves.

python -m experiments.merge_parts PART.json ... --to results/paper4/table3.json --scope TEXT --note TEXT
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import Counter
from pathlib import Path

from sordino.errors import require
from sordino.experiments.pictures import draw_curves
from sordino.experiments.specs import FigureSpec, find_spec
from sordino.report.results import Result

__all__ = ["joined_provenance", "merge_curves", "merged"]


def merged(parts: list[Result], cells: list[tuple[str, str]], *, scope: str, note: str) -> Result:
    """One result with rows and certificates in the order of `cells`, and the commit and date of the newest part."""
    require(len(parts) > 1, "parts", len(parts), "give two results or more")
    first = parts[0]
    _require_alike(parts)
    rows, certificates = (_by_cell(parts, field) for field in ("rows", "guarantees"))
    order = [cell for cell in cells if cell in rows]
    strange = rows.keys() - set(order)
    require(not strange, "cells", sorted(strange), "are not of this table")
    choosing = [part["choosing"] for part in parts if "choosing" in part]
    return {
        "name": first["name"],
        "scope": scope,
        "title": first["title"],
        "metric": first["metric"],
        "note": note,
        "rows": [rows[cell] for cell in order],
        "guarantees": [certificates[cell] for cell in order],
        **({"choosing": choosing[0]} if choosing else {}),
        "provenance": joined_provenance(parts),
    }


def _require_alike(parts: list[Result]) -> None:
    """Refuse parts of different tables, and parts that were made on different devices or by different versions."""
    first = parts[0]
    for part in parts:
        for field in ("name", "title", "metric"):
            require(part[field] == first[field], field, part[field], f"is of another table than {first[field]!r}")
        for field in ("device", "versions"):
            made, other = part["provenance"][field], first["provenance"][field]
            require(made == other, field, made, f"differs from {other!r}: merge parts of one device and one version")


def joined_provenance(parts: list[Result]) -> Result:
    """The provenance of the newest part, with the commits and the commands of all."""
    provenances = sorted((part["provenance"] for part in parts), key=lambda made: str(made["date"]))
    commits = [commit for each in provenances for commit in (*each.get("earlier_commits", []), each["commit"])]
    earlier = [commit for commit in dict.fromkeys(commits) if commit != commits[-1]]
    command = "; ".join(dict.fromkeys(each["command"] for each in provenances))
    return {**provenances[-1], "command": command, **({"earlier_commits": earlier} if earlier else {})}


def _by_cell(parts: list[Result], field: str) -> dict[tuple[str, str], Result]:
    entries = [entry for part in parts for entry in part[field]]
    counts = Counter((entry["row"], entry["column"]) for entry in entries)
    twice = [cell for cell, count in counts.items() if count > 1]
    require(not twice, "cells", twice, "are in two parts: leave one out")
    return {(entry["row"], entry["column"]): entry for entry in entries}


def merge_curves(figure: FigureSpec, parts: list[Path], to: Path) -> None:
    """Write the numbers of all parts, panel by panel, and their picture."""
    numbers = []
    for part in parts:
        with part.open(newline="") as file:
            header, *rows = csv.reader(file)
        require(header == ["panel", "line", "round", figure.metric], "curves", str(part), "have other columns")
        numbers += [(panel, line, float(x), float(y)) for panel, line, x, y in rows]
    panels = list(dict.fromkeys(panel for panel, *_ in numbers))
    numbers.sort(key=lambda row: panels.index(row[0]))  # stable: lines keep the order of the parts
    draw_curves(figure, numbers, to)


def main() -> None:
    """Read the parts and write the whole."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", type=Path, help="results of one table")
    parser.add_argument("--to", required=True, type=Path, help="the merged result")
    parser.add_argument("--scope", required=True, help="what of the table it is")
    parser.add_argument("--note", required=True, help="what a reader must know")
    given = parser.parse_args()
    try:
        _merge(given)
    except (OSError, ValueError) as error:  # SordinoError is a ValueError
        parser.error(str(error))


def _merge(given: argparse.Namespace) -> None:
    parts = [json.loads(path.read_text()) for path in given.parts]
    spec = find_spec(f"{given.to.parent.name}-{parts[0]['name']}")
    cells = [(point.cell.row, point.cell.column) for point in spec.points(quick=False)]
    result = merged(parts, cells, scope=given.scope, note=given.note)
    for figure in spec.file.figures:
        require(figure.kind == "curves", "figures", figure.kind, "only curves can be merged")
        curves = [path.with_name(f"{path.stem}-{figure.name}.csv") for path in given.parts]
        merge_curves(figure, curves, given.to.with_name(f"{given.to.stem}-{figure.name}.png"))
    given.to.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    main()
