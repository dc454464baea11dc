"""The tables that docs/methods/fedavg.md copies from results/, figure by figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sordino.privacy.wording.figures import format_epsilon
from tests.pages import is_rounded, table_after

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "methods" / "fedavg.md"

GAUSSIAN = {
    "epsilon 5, clip": ("eps 5", "clip"),
    "epsilon 5, normalize": ("eps 5", "norm"),
    "epsilon 1.5, clip": ("eps 1.5", "clip"),
    "epsilon 1.5, normalize": ("eps 1.5", "norm"),
    "no privacy": ("no privacy", "fedavg"),
}
INTEGERS = {
    "Binomial": ("binomial", "error"),
    "QTDL, Theorem 1, 14 bits": ("qtdl 14 bits", "error"),
    "QTDL, Theorem 1, 8 bits": ("qtdl 8 bits", "error"),
    "QTDL, sound Gaussian, 15 bits": ("sound gaussian, 15 bits", "error"),
    "QTDL, sound truncated Laplace, 16 bits": ("sound truncated laplace, 16 bits", "error"),
}


@pytest.mark.parametrize(
    ("result", "after", "names"),
    [
        ("paper3/table1-fashion-mnist", "made by `sordino reproduce paper3-table1-fashion-mnist`", GAUSSIAN),
        ("paper0/table4", "now `sordino reproduce paper0-table4`", INTEGERS),
    ],
)
def test_the_figures_are_those_of_the_result(result, after, names):
    found = json.loads((ROOT / "results" / f"{result}.json").read_text())
    cells = {(row["row"], row["column"]): row for row in found["rows"]}
    totals = {
        (each["row"], each["column"]): guarantee["epsilon"]
        for each in found["guarantees"]
        for guarantee in each["guarantees"]
        if (guarantee["observer"], guarantee["scope"]) == ("server", "all rounds")
    }
    rows = table_after(PAGE, after)
    assert [name for name, *_ in rows] == list(names)
    for name, paper, ours, *guarantee in rows:
        cell = cells[names[name]]
        assert (paper == "-" and cell["paper"] is None) or is_rounded(paper, cell["paper"]), name
        assert is_rounded(ours, cell["mean"]), name
        for written in guarantee:
            total = totals[names[name]]
            assert written == ("none" if total == "inf" else f"epsilon {format_epsilon(total)}"), name
