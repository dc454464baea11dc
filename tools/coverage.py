"""`python -m tools.coverage` writes docs/coverage.md from docs/coverage.toml: items of the papers and their state."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from sordino.report.results import PAPERS

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "coverage.toml"
PAGE = ROOT / "docs" / "coverage.md"
STATES = ("reproduced", "tested", "partly", "absent")

HEADER = """# What of the papers is here

Every algorithm, mechanism, theorem, table and figure of the five papers, and its state here. Made from
[coverage.toml](coverage.toml) by `python -m tools.coverage`; a test compares it with code, tests and results.

- **reproduced**: figures of ours stand beside the paper's;
- **tested**: built and tested, without a figure of its own in the paper;
- **partly**: something is missing, as the note says;
- **absent**: not here, as the note says.
"""


class Item(NamedTuple):
    """One item of a paper. `code` holds FILE or FILE::NAME."""

    paper: int
    name: str
    state: str
    code: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    note: str = ""


def items(table: Path = TABLE) -> list[Item]:
    """The items of the table."""
    return [
        Item(
            each["paper"],
            each["name"],
            each["state"],
            tuple(each.get("code", ())),
            tuple(each.get("tests", ())),
            tuple(each.get("results", ())),
            each.get("note", ""),
        )
        for each in tomllib.loads(table.read_text())["item"]
    ]


def problems(item: Item) -> list[str]:
    """What is wrong with an item: a place that does not exist, a state without what it needs."""
    places = (*item.code, *item.tests, *item.results)
    found = [f"{place} is not there" for place in places if not exists(place)]
    needs = {"reproduced": bool(item.results), "tested": bool(item.code and item.tests)}
    needs |= {"partly": bool(item.note and item.code), "absent": bool(item.note)}
    if item.state not in STATES:
        found.append(f"{item.state} is no state")
    elif not needs[item.state]:
        found.append(f"{item.state} without what the state needs")
    return found


def exists(place: str) -> bool:
    """Whether there is such a file and, in FILE::NAME, such a class or function in it."""
    file, _, name = place.partition("::")
    path = ROOT / file
    if not name:
        return path.exists()
    return path.exists() and name in _defined(path)


def _defined(path: Path) -> set[str]:
    kinds = (ast.ClassDef, ast.FunctionDef)
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)}


def page(all_items: list[Item]) -> str:
    """The table as Markdown, with a count for each paper."""
    lines = [HEADER, f"| paper | items | {' | '.join(STATES)} |", f"|---|---|{'---|' * len(STATES)}"]
    for number, title in enumerate(PAPERS.values()):
        own = [item for item in all_items if item.paper == number]
        lines.append(f"| {number}: {title} | {_counts(own)} |")
    lines.append(f"| all | {_counts(all_items)} |")
    for number, title in enumerate(PAPERS.values()):
        lines += [f"\n## Paper {number}: {title}\n", "| item | state | where | note |", "|---|---|---|---|"]
        lines += [_row(item) for item in all_items if item.paper == number]
    return "\n".join([*lines, ""])


def _counts(some: list[Item]) -> str:
    counts = Counter(item.state for item in some)
    return " | ".join(str(number) for number in (len(some), *(counts[state] for state in STATES)))


def _row(item: Item) -> str:
    links = [_link(place) for place in (*item.code, *item.tests, *item.results)]
    name = item.name.replace("|", "\\|")
    return f"| {name} | {item.state} | {', '.join(links) or '-'} | {item.note or '-'} |"


def _link(place: str) -> str:
    file, _, name = place.partition("::")
    return f"[{name or Path(file).name}](../{file})"


if __name__ == "__main__":
    PAGE.write_text(page(items()))
