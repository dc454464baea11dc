"""docs/which_method.md, made from results/which_method/*.json: a decision table, and all figures with intervals."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from sordino.experiments.which_method.study import HERE, RESULTS
from sordino.privacy import wording
from sordino.report.results import Result

PAGE = Path("docs/which_method.md")
LEVEL = 0.05  # a method whose p-value against the best one is below it is behind

HEADER = """# Which method?

Generated from `results/which_method/` by `python -m sordino.experiments.which_method`; do not edit. For your own data,
run `sordino compare A.toml B.toml` with a grid in each file: it makes the same comparison.

## Start with this

Each cell holds the method with the best mean test accuracy, and how many others are not significantly different
(p of at least {level} after Holm's correction). "Start with" is the method that is best, or not significantly
different from the best, on most of the tasks; ties are broken by the smaller mean distance from the best. With {seeds}
seeds the test finds large differences only: a method that is "not significantly different" may still be worse.
"""

LIMITS = """
## What this does not say

- The figures are about small linear models, full participation, and one partition of each data set. They do not rank
  the papers.
- Central and local rows promise different things at the same epsilon: central protects against the model user and
  trusts the server; local protects against the server. Compare within a model.
- The intervals are over seeds: start of the model, noise and batches. They say nothing about other data.
- "No better than the constant answer": the interval of the best method reaches down to the accuracy of the constant
  answer, which always predicts the most frequent class. In that case more clients help, not another method.
- Where the best value lies at the edge of its grid, a better one may lie outside; a table above says where. FedProx
  with mu = 0 is FedAvg, and does not count as an edge.
"""


def which_method_page(folder: Path = RESULTS) -> str:
    """The page as Markdown."""
    tasks = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    seeds = len(tasks[0]["comparisons"][0]["budget"]["seeds"])
    header = HEADER.format(level=LEVEL, seeds=seeds)
    return "\n".join([header, *_decisions(tasks), *_method(tasks), *_edges(tasks), *_figures(tasks), LIMITS])


def best_group(comparison: Result) -> dict[str, float]:
    """The best method and those that the test does not tell from it, with their distances from the best mean."""
    first, *others = comparison["rows"]
    group = {first["method"]: 0.0}
    for row in others:
        p = row["p"]
        told = p is not None and p < LEVEL
        if row["mean"] is not None and not told:
            group[row["method"]] = first["mean"] - row["mean"]
    return group


def start_with(comparisons: list[Result]) -> tuple[str, int]:
    """The method that is in most best groups, and in how many; of equals the one nearest to the best on average."""
    groups = [best_group(comparison) for comparison in comparisons]
    counts = Counter(method for group in groups for method in group)
    means = [{row["method"]: row["mean"] for row in comparison["rows"]} for comparison in comparisons]

    def distance(method: str) -> float:
        behind = [max(found.values()) - found[method] for found in means if found[method] is not None]
        return sum(behind) / len(behind) if behind else math.inf

    method = min(counts, key=lambda method: (-counts[method], distance(method), method))
    return method, counts[method]


def label(model: str, method: str) -> str:
    """The name of a method, from the first line of its run file."""
    return (HERE / "runs" / f"{model}-{method}.toml").read_text().splitlines()[0].removeprefix("# ").split(",")[0]


def _kinds(tasks: list[Result]) -> Iterator[tuple[str, float, list[Result]]]:
    """Every model and epsilon, with its comparison on each task."""
    for first in tasks[0]["comparisons"]:
        kind = first["model"], first["epsilon"]
        found = [each for task in tasks for each in task["comparisons"] if (each["model"], each["epsilon"]) == kind]
        yield *kind, found


def _decisions(tasks: list[Result]) -> Iterator[str]:
    names = [task["name"] for task in tasks]
    yield f"| model | epsilon | start with | {' | '.join(names)} |"
    yield "|---|---|---|" + "---|" * len(names)
    for model, epsilon, comparisons in _kinds(tasks):
        method, count = start_with(comparisons)
        cells = []
        for comparison in comparisons:
            first, *alike = best_group(comparison)
            others = f" (+{len(alike)})" if alike else ""
            best = comparison["rows"][0]
            nothing = " (no better than the constant answer)" if best["low"] <= comparison["constant"] else ""
            cells.append(f"{label(model, first)} {best['mean']:.1f}{others}{nothing}")
        chosen = f"**{label(model, method)}** ({count} of {len(comparisons)})"
        yield f"| {model} | {epsilon:g} | {chosen} | {' | '.join(cells)} |"


def _method(tasks: list[Result]) -> Iterator[str]:
    """How the figures came about."""
    first = tasks[0]["comparisons"][0]
    budget = first["budget"]
    yield "\n## How it was done\n"
    yield (
        "Every method has the same budget on a task, at every epsilon: all points of its grid with "
        f"{budget['tuning_seeds']} seeds each, the best one by the rule {first['rule']} on held-out "
        f"clients, then {len(budget['seeds'])} runs of it with other seeds on the test set. Test: {first['test']}. "
        f"Correction: {first['correction']} of a comparison. The grids lie in "
        "`src/sordino/experiments/which_method/runs/`.\n"
    )
    for task in tasks:
        made, one = task["provenance"], task["comparisons"][0]
        points = one["budget"]["points"]
        begun = "".join(f", begun at {commit}" for commit in made.get("earlier_commits", ()))
        versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
        seeds = ", ".join(map(str, one["budget"]["seeds"]))
        yield (
            f"- {task['name']}: {task['about']}. {points} points of each grid; seeds {seeds} on the test set. Always "
            f"predicting the most frequent class scores {one['constant']:.1f} %. "
            f"{wording.held_out(**one['held_out'])} Made at {made['commit']}{begun}, "
            f"on {made['device']}, {made['date'][:10]} ({versions})."
        )
    runs = sorted({row["price"]["runs"] for task in tasks for each in task["comparisons"] for row in each["rows"]})
    yield f"\nPrice of choosing, for a client in training ({' or '.join(f'{each:g}' for each in runs)} runs):\n"
    yield "| model | epsilon of one run | epsilon of all runs | epsilon of the best of them |"
    yield "|---|---|---|---|"
    for model, epsilon, comparisons in _kinds(tasks):
        prices = [row["price"] for each in comparisons for row in each["rows"]]
        together, best = (
            _range(prices, f"epsilon_{key}") for key in ("with_independent_noise", "of_private_selection")
        )
        yield f"| {model} | {epsilon:g} | {together} | {best} |"
    yield f"\n{wording.PRICES_OF_CHOOSING}\n\n{wording.SELECTION_NOT_COVERED} {wording.SHARED_NOISE}"


def _range(prices: list[Result], key: str) -> str:
    """The smallest and the largest of a figure over methods and tasks."""
    found = [
        wording.format_epsilon(price[key])
        for price in sorted(prices, key=lambda each: each.get(key, 0.0))
        if key in price
    ]
    return "-" if not found else found[0] if found[0] == found[-1] else f"{found[0]} to {found[-1]}"


def _edges(tasks: list[Result]) -> Iterator[str]:
    """The best points at the edge of their grids, by method and number."""
    places: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    points = [(task, each, row) for task in tasks for each in task["comparisons"] for row in each["rows"]]
    for task, comparison, row in points:
        for edge in row["edges"]:
            ends = places.setdefault((comparison["model"], row["method"], edge["key"]), {"smallest": [], "largest": []})
            ends[edge["end"]].append(f"{task['name']} {comparison['epsilon']:g}")
    at_edge = sum(bool(row["edges"]) for _, _, row in points)
    yield "\n## Best values at the edge of the grid\n"
    yield f"{at_edge} of {len(points)} best points have the smallest or the largest value of a number that was tried.\n"
    yield "| model | method | number | smallest best: task and epsilon | largest best |"
    yield "|---|---|---|---|---|"
    for (model, method, key), ends in sorted(places.items()):
        smallest, largest = (", ".join(ends[end]) or "-" for end in ("smallest", "largest"))
        yield f"| {model} | {label(model, method)} | `{key}` | {smallest} | {largest} |"


def _figures(tasks: list[Result]) -> Iterator[str]:
    """A table for each task and model: means with intervals, in bold what the test does not tell from the best."""
    yield "\n## Figures\n"
    yield "Test accuracy in per cent, mean of the last five rounds over the seeds, with 95 % intervals. Bold: best, or"
    yield "not significantly different from the best."
    for task in tasks:
        for model in dict.fromkeys(each["model"] for each in task["comparisons"]):
            own = [each for each in task["comparisons"] if each["model"] == model]
            subject = own[0]["rows"][0]["guarantee"]
            yield (
                f"\n### {task['name']}, {model}\n\nOne {subject['unit']} of {subject['units']}, {subject['relation']}, "
                f"delta = {wording.format_delta(subject['delta'])}, against the {subject['observer']}, over "
                f"{subject['rounds']} rounds.\n"
            )
            epsilons = [f"epsilon {each['epsilon']:g}" for each in own]
            yield f"| method | {' | '.join(epsilons)} |"
            yield "|---|" + "---|" * len(own)
            for method in sorted(row["method"] for row in own[0]["rows"]):
                cells = [_cell(each, method) for each in own]
                yield f"| {label(model, method)} | {' | '.join(cells)} |"


def _cell(comparison: Result, method: str) -> str:
    (row,) = (row for row in comparison["rows"] if row["method"] == method)
    if row["mean"] is None:
        return "diverged"
    mean = f"{row['mean']:.1f}"
    bold = f"**{mean}**" if method in best_group(comparison) else mean
    return f"{bold} [{row['low']:.1f}, {row['high']:.1f}]"


def write_page() -> None:
    """Write the page anew."""
    PAGE.write_text(which_method_page())


if __name__ == "__main__":
    write_page()
