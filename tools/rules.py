"""`python -m tools.rules` writes the generated part of docs/rules.md: every rule of the registry."""

from __future__ import annotations

from pathlib import Path

from sordino.rules import RULES, Rule
from sordino.rules.rule import Argument

PAGE = Path(__file__).parents[1] / "docs" / "rules.md"
MARK = "<!-- below made by `python -m tools.rules` -->\n"


def rules_page(page: str) -> str:
    """The page with its generated part as the registry has it."""
    written, mark, _ = page.partition(MARK)
    assert mark, "the page has lost the line below which it is generated"
    sections = []
    for paper in sorted({rule.paper for rule in RULES.values()}):
        sections.append(f"## Paper {paper}\n")
        sections += [_section(rule) for rule in RULES.values() if rule.paper == paper]
    return written + mark + "\n" + "\n".join(sections)


def _section(rule: Rule) -> str:
    about, _, formula = rule.formula.partition("\n")
    lines = [f"### {rule.name}", "", f"{rule.theorem}. {about}", ""]
    if formula.strip():
        lines += [*(f"    {line}".rstrip() for line in formula.strip("\n").splitlines()), ""]
    lines += [_argument(argument) for argument in rule.arguments]
    lines += ["", "Gives " + "; ".join(f"`{name}`, {text}" for name, text in rule.results.items()) + ".", ""]
    if rule.assumes:
        lines += ["Assumes that " + "; ".join(rule.assumes) + ".", ""]
    if rule.erratum:
        lines += [f"*About the paper.* {rule.erratum}", ""]
    if rule.sets:
        lines += [f"In run files of {', '.join(f'`{name}`' for name in rule.methods)}: {_keys(rule)}.", ""]
    return "\n".join(lines)


def _argument(argument: Argument) -> str:
    marks = ["assumed of the data"] * argument.says.assumed + ["may be left out"] * (not argument.required)
    return f"- `{argument.name}`: {argument.says.text}" + (f" ({', '.join(marks)})" if marks else "")


def _keys(rule: Rule) -> str:
    return ", ".join(f"`[{place.rpartition('.')[0]}] {place.rpartition('.')[2]}`" for place in rule.sets)


if __name__ == "__main__":
    PAGE.write_text(rules_page(PAGE.read_text()))
