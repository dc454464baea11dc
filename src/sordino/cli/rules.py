"""`sordino rules [NAME] [KEY=VALUE ...]`: the papers' theorems as functions: list them, show one, compute one."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sordino.cli.output import Json, print_json, print_rows, print_text
from sordino.config.locate import literal_value
from sordino.errors import InvalidInput, one_of_many, require
from sordino.rules import RULES, Rule


def rules_command(
    name: Annotated[str | None, typer.Argument(help="A rule, as paper4-theorem-1; all are listed if left out.")] = None,
    values: Annotated[list[str] | None, typer.Argument(help="Arguments, each key=value; without any, help.")] = None,
    json: Json = False,
) -> None:
    """Step sizes, rounds, batches and bounds of the papers' theorems, with their preconditions."""
    if name is None:
        _show_list(as_json=json)
        return
    rule = rule_named(name)
    if not values:
        _show_rule(rule, as_json=json)
        return
    given = dict(_argument(text) for text in values)
    require(len(given) == len(values), "values", " ".join(values), "give each argument once")
    found = rule.compute(given)
    meanings = rule.results
    if json:
        print_json(description(rule) | {"given": given, "result": found})
        return
    rows = [{"result": key, "value": value, "meaning": meanings[key]} for key, value in found.items()]
    print_rows(rows, title=f"{rule.name} (paper {rule.paper}, {rule.theorem})")
    assumed = [f"{argument.name}: {argument.says.text}" for argument in rule.arguments if argument.says.assumed]
    print_text("It holds if: " + "; ".join([*rule.assumes, *assumed]) + ". It makes no guarantee of privacy.")
    if rule.erratum:
        print_text("About the paper: " + rule.erratum)


def rule_named(name: str) -> Rule:
    """The rule, or a refusal that names those with the same ending."""
    if name not in RULES:
        alike = [full for full, rule in RULES.items() if rule.short_name == name or name in full]
        raise InvalidInput("name", name, one_of_many(name, RULES, alike, "`sordino rules` lists all"))
    return RULES[name]


def description(rule: Rule) -> dict[str, Any]:
    """All that is known of a rule, in plain values."""
    return {
        "name": rule.name,
        "paper": rule.paper,
        "theorem": rule.theorem,
        "formula": rule.formula,
        "arguments": [_row(rule, argument.name) for argument in rule.arguments],
        "results": rule.results,
        "assumes": list(rule.assumes),
        "erratum": rule.erratum,
        "methods": list(rule.methods),
        "sets": dict(rule.sets),
    }


def _row(rule: Rule, name: str) -> dict[str, Any]:
    argument = next(argument for argument in rule.arguments if argument.name == name)
    return {
        "argument": name,
        "meaning": argument.says.text,
        "assumed of the data": argument.says.assumed,
        "default": "required" if argument.required else argument.default,
    }


def _show_list(*, as_json: bool) -> None:
    if as_json:
        print_json({"rules": [description(rule) for rule in RULES.values()]})
        return
    rows = [
        {"rule": rule.name, "about": rule.formula.splitlines()[0]}
        for rule in sorted(RULES.values(), key=lambda rule: rule.paper)
    ]
    print_rows(rows, whole="rule", boxed=False)


def _show_rule(rule: Rule, *, as_json: bool) -> None:
    if as_json:
        print_json(description(rule))
        return
    print_text(f"Paper {rule.paper}, {rule.theorem}", "", rule.formula, "")
    rows = [_row(rule, argument.name) for argument in rule.arguments]
    for row in rows:
        row["assumed of the data"] = "yes" if row["assumed of the data"] else ""
    print_rows(rows)
    print_rows([{"result": key, "meaning": text} for key, text in rule.results.items()])
    if rule.assumes:
        print_text("Assumes: " + "; ".join(rule.assumes) + ".")
    if rule.erratum:
        print_text("About the paper: " + rule.erratum)
    if rule.sets:
        keys = "; ".join(f"[{key.rpartition('.')[0]}] {key.rpartition('.')[2]}" for key in rule.sets)
        print_text(f"In a run file of {', '.join(rule.methods)} it can give {keys}.")


def _argument(text: str) -> tuple[str, Any]:
    """key=value, the value as in TOML."""
    name, equals, literal = text.partition("=")
    require(bool(equals and name), "values", text, "write key=value, for instance L=2.0")
    value = literal_value(literal)
    return name.strip(), value.unwrap()
