"""The tables that docs/methods/error_feedback.md copies from results/paper4, figure by figure."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.pages import is_rounded, table_after

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "methods" / "error_feedback.md"
METHODS = {
    "alpha-NormEC": "norm-ec",
    "alpha-NormEC, server normalization": "norm-ec server-normalized",
    "Clip21": "clip21",
    "DP-SGD, smoothed normalization": "dp-sgd",
}
BETAS, GAMMAS = ("0.001", "0.01", "0.1", "1"), ("0.001", "0.01", "0.1", "1")


def result(name: str) -> dict:
    return json.loads((ROOT / "results" / "paper4" / f"{name}.json").read_text())


def table(after: str) -> list[list[str]]:
    return table_after(PAGE, after)


def spread(name: str, metric: str, column: str, row: str) -> float:
    (found,) = (
        each["spread"]
        for each in result(name)["spreads"]
        if (each["metric"], each["column"], each["row"]) == (metric, column, row)
    )
    return found


def test_table_3():
    cells = {(row["row"], row["column"]): row for row in result("table3")["rows"]}
    rows, method, within = table("Test accuracy (%), the mean of the last five rounds:"), "", 0
    assert len(rows) == 8
    for name, whose, *figures in rows:
        method = METHODS[name] if name else method
        for beta, figure in zip(BETAS[1:], figures, strict=True):
            cell = cells[f"beta {beta}", method]
            assert is_rounded(figure, cell["paper" if whose == "paper" else "mean"]), (method, beta, whose)
            within += whose == "ours" and abs(cell["mean"] - cell["paper"]) <= 2
    assert within == 9
    text = PAGE.read_text()
    assert "Nine of the twelve figures are within 2 points" in text


def test_the_second_implementation_stands_beside_our_own_curves():
    lines = (ROOT / "results" / "paper4" / "table3-curves.csv").read_text().splitlines()[1:]
    ours = {tuple(line.split(",")[:3]): float(line.split(",")[3]) for line in lines}
    line_of = {"DP-SGD": "dp-sgd", "server normalization": "norm-ec server-normalized"}
    rows, name, beta = table("the runs were cut short after"), "", ""
    assert len(rows) == 9
    for what, rounds, mine, torch, *_ in rows:
        if what:
            name, beta = re.fullmatch(r"(.*), (beta [\d.]+)", what).groups()
        assert is_rounded(mine, ours[beta, line_of[name], rounds.replace(",", "")])
        assert abs(float(mine) - float(torch)) < 1.5


def test_highest_accuracy_with_noise_of_the_papers_length():
    cells = {(row["row"], row["column"]): row["mean"] for row in result("private-by-norm")["rows"]}
    rows = table("With 7.35 as the norm of the noise")
    assert len(rows) == 4
    for name, *figures in rows:
        beta, _, normalized = name.partition(", ")
        method = "norm-ec server-normalized" if normalized else "norm-ec"
        for gamma, figure in zip(GAMMAS, figures, strict=True):
            assert is_rounded(figure, cells[f"{beta}, gamma {gamma}", method])


@pytest.mark.parametrize(
    ("name", "after", "figures_there"),
    [
        ("private-small-model", "`sordino reproduce paper4-private-small-model`", 24),
        ("private-many-clients", "`sordino reproduce paper4-private-many-clients`", 12),
        ("private-batch-norm", "`sordino reproduce paper4-private-batch-norm`", 48),
    ],
)
def test_spreads_over_gamma(name, after, figures_there):
    metric, which, checked = "accuracy", "", 0
    for head, *figures in table(after):
        if not any(figures):  # a heading within the table
            metric = "highest-accuracy" if "highest" in head else "accuracy"
            which = " without batch norm" if head.endswith("without") else ""
            continue
        for beta, figure in zip(BETAS, figures, strict=True):
            assert is_rounded(figure.strip("*"), spread(name, metric, METHODS[head] + which, f"beta {beta}")), (
                head,
                beta,
            )
            checked += 1
    assert checked == figures_there


def test_spreads_over_the_length_of_the_noise():
    rows = result("private-noise-lengths")["rows"]
    lengths = ("0.25", "0.5", "1", "2", "4", "8")
    table_of_lengths = table("`sordino reproduce paper4-private-noise-lengths`")
    assert len(table_of_lengths) == 5
    for head, *figures in table_of_lengths:
        for length, figure in zip(lengths, figures, strict=True):
            row = f"noise of length {length}"
            plain, normalized = (
                spread("private-noise-lengths", "accuracy", method, row)
                for method in ("norm-ec", "norm-ec server-normalized")
            )
            best = {
                method: max(
                    each["mean"] for each in rows if each["column"] == method and each["row"].startswith(f"{row},")
                )
                for method in ("norm-ec", "norm-ec server-normalized")
            }
            found = {
                "spread over gamma, alpha-NormEC": plain,
                "spread over gamma, server normalization": normalized,
                "ratio": normalized / plain,
                "best gamma, alpha-NormEC": best["norm-ec"],
                "best gamma, server normalization": best["norm-ec server-normalized"],
            }[head]
            assert is_rounded(figure.strip("*"), found), (head, length)


def test_noise_that_is_remembered():
    rows = result("private-small-model-compensated")["rows"]
    columns = ("norm-ec", "norm-ec remembering", "norm-ec remembering server-normalized")
    for (_, *figures), column in zip(table("The gain,"), columns, strict=True):
        for beta, figure in zip(BETAS, figures, strict=True):
            best = max(
                row["mean"] for row in rows if row["column"] == column and row["row"].startswith(f"beta {beta},")
            )
            assert is_rounded(figure, best)
    cells = {(row["row"], row["column"]): row["mean"] for row in result("private-by-norm-compensated")["rows"]}
    for name, *figures, spread_over_gamma in table("Its beta = 1 does learn"):
        for gamma, figure in zip(GAMMAS, figures, strict=True):
            assert is_rounded(figure, cells[f"beta 1, gamma {gamma}", METHODS[name]])
        column = METHODS[name]
        assert is_rounded(
            spread_over_gamma, spread("private-by-norm-compensated", "highest-accuracy", column, "beta 1")
        )
