"""The fenced blocks of the documents, and what a comment above a block says of it.

A comment stands on the line before the fence. It is not shown by a code host or by the site:

    <!-- file: NAME -->       the block is a file of that name in the folder in which the page's commands run
    <!-- needs: NAME -->      the block needs this data set; it is left out where the data set is not
    <!-- run by: PATH -->     this test runs the block
    <!-- not run: REASON -->  no test runs the block; its commands and options are still compared with the program
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
GENERATED = {
    "results.md",
    *(f"paper{k}.md" for k in range(5)),
    "commands.md",
}  # from results/ and from the commands' own help: other tests compare them

COMMENT = r"(?:^<!-- (?P<word>[a-z ]+): (?P<value>[^\n]*) -->\n)?"
BLOCK = re.compile(COMMENT + r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
PRINTS = re.compile(r"\s+prints\s+```\n(.*?)^```$", re.M | re.S)
WORDS = {"file", "needs", "run by", "not run"}


@dataclass(frozen=True)
class Block:
    """One fenced block, with the comment above it."""

    page: Path
    line: int
    language: str
    text: str
    word: str | None  # of WORDS
    value: str
    printed: str | None  # what the page says that a Python block prints

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def is_run_here(self) -> bool:
        return self.word not in ("run by", "not run")


def blocks_of(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    text = page.read_text()
    found = []
    for match in BLOCK.finditer(text):
        printed = PRINTS.match(text, match.end())
        line = text[: match.start("language")].count("\n") + 1
        says = None if printed is None else printed[1]
        found.append(Block(page, line, match["language"], match["text"], match["word"], match["value"] or "", says))
    return found


def all_blocks(*languages: str) -> list[Block]:
    """The blocks of these languages in all pages that people write."""
    return [
        block
        for page in PAGES
        if page.name not in GENERATED
        for block in blocks_of(page)
        if block.language in languages
    ]


def commands_of(block: Block) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output that is shown below it."""
    parts = re.split(r"^\$ (.*)\n", block.text, flags=re.M)
    assert parts[0] == "", f"{block.name}: a console block begins with a command, after `$ `"
    return list(zip(parts[1::2], parts[2::2], strict=True))


def run_file_with(part: str) -> str:
    """A whole run file: the first one of docs/run_file.md, with these sections in the place of its own."""
    given = set(tomllib.loads(part))
    whole = next(block.text for block in blocks_of(ROOT / "docs" / "run_file.md") if block.language == "toml")
    kept = [section for section in re.split(r"^(?=\[)", whole, flags=re.M) if section]
    if {"task", "algorithm", "run"} <= given:
        kept = []
    return "".join([*(section for section in kept if re.match(r"\[(\w+)\]", section)[1] not in given), part])


def without_blocks(text: str) -> str:
    """A page's sentences and tables."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def table_after(page: Path, words: str) -> list[list[str]]:
    """The rows of the first table after these words, without its header and without bold."""
    text = page.read_text()
    assert text.count(words) == 1, words
    rows = []
    for line in text[text.index(words) :].splitlines():
        if line.startswith("|"):
            rows.append([cell.strip().strip("*") for cell in line.strip("|").split("|")])
        elif rows:
            break
    return rows[2:]


def is_rounded(written: str, found: float) -> bool:
    """Whether a figure of a page is this number, rounded to the digits that are written."""
    decimals = len(written.partition(".")[2])
    return abs(float(written) - found) <= 0.5 * 10**-decimals + 1e-9
