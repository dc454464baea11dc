"""What the documents show is what the code does."""

from __future__ import annotations

import json
import math
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from sordino.cli.account import app
from sordino.experiments import specs
from sordino.experiments.pages import results_pages
from sordino.privacy.wording import SHORT_WARNINGS
from sordino.report.results import summary, with_summary
from tests.pages import is_rounded, table_after
from tools.rules import rules_page

ROOT = Path(__file__).parents[2]
DOCS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("document", DOCS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), target


def test_every_calculator_command_is_documented():
    text = (ROOT / "docs" / "calculator.md").read_text()
    for command in app.registered_commands:
        assert f"account {command.name}" in text, command.name


def test_the_page_of_rules_is_generated_from_the_registry():
    page = (ROOT / "docs" / "rules.md").read_text()
    assert page == rules_page(page)


def test_the_compose_example_is_valid():
    text = (ROOT / "docs" / "calculator.md").read_text()
    spec = tomllib.loads(re.search(r"```toml\n(.*?)```", text, re.S)[1])
    assert [release["name"] for release in spec["release"]] == ["mean update", "step size"]


def test_the_results_page_is_generated_from_the_results():
    pages = results_pages(ROOT / "results")
    for name, text in pages.items():
        assert (ROOT / "docs" / name).read_text() == text, f"run python -m sordino.experiments.pages: {name}"
    assert {path.name for path in (ROOT / "docs" / "results").iterdir()} == {Path(n).name for n in pages if "/" in n}
    readme = (ROOT / "README.md").read_text()
    assert readme == with_summary(readme, ROOT / "results")


def test_the_summary_has_one_row_for_each_paper(tmp_path):
    """By hand: differences 1, -3 and 10 in per cent; slopes are left out beside them, and variants always."""

    def write(paper, name, metric, cells, stem=None):
        (tmp_path / paper).mkdir(exist_ok=True)
        rows = [{"row": f"r{k}", "column": "a|b", "paper": p, "mean": ours} for k, (p, ours) in enumerate(cells)]
        path = tmp_path / paper / f"{stem or name}.json"
        path.write_text(json.dumps({"name": name, "metric": metric, "rows": rows}))

    write("paper0", "table1", "accuracy (%)", [(50, 51), (60, 57), (None, 3), (70, None)])
    write("paper0", "table2", "error (%)", [(20, 30)])
    write("paper0", "table2", "error (%)", [(20, 99)], stem="table2-variant")
    write("paper0", "slopes", "slope", [(1, 100)])
    write("paper1", "slopes", "slope", [(-0.5, -0.75)])
    write("paper2", "measured", "accuracy (%)", [(None, 1)])
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in summary(tmp_path).splitlines()[2:4]
    ]
    tables = "[table1](docs/results/paper0.md#table1), [table2](docs/results/paper0.md#table2)"
    assert rows == [
        ["0", tables, "3", "3", "+10", "table2: r0, a\\|b"],
        ["1", "[slopes](docs/results/paper1.md#slopes)", "1", "0.25", "-0.25", "slopes: r0, a\\|b"],
    ]
    assert "paper2" not in summary(tmp_path)


def test_the_summary_links_to_headings_of_the_pages():
    linked = re.findall(r"docs/results/(paper\d)\.md#([\w-]+)", (ROOT / "README.md").read_text())
    assert len(linked) > 5
    for paper, anchor in linked:
        headings = re.findall(r"^## (.*)$", (ROOT / "docs" / "results" / f"{paper}.md").read_text(), re.M)
        assert anchor in headings


def test_a_picture_stands_beside_the_result_that_it_is_named_after(tmp_path):
    folder = tmp_path / "paper0"
    folder.mkdir()
    known = json.loads((ROOT / "results" / "paper0" / "table5.json").read_text())
    for name in ("table5", "table5-on-messages"):
        (folder / f"{name}.json").write_text(json.dumps(known | {"name": name}))
        (folder / f"{name}-figure4.png").touch()
    first, second = results_pages(tmp_path)["results/paper0.md"].split("\n## ")[1:]
    assert first.startswith("table5\n")
    for text, mine, other in ((first, "table5", "table5-on-messages"), (second, "table5-on-messages", "table5")):
        assert f"paper0/{mine}-figure4.png" in text
        assert f"paper0/{other}-figure4.png" not in text


def test_the_page_names_the_commits_of_every_call(tmp_path):
    (tmp_path / "paper0").mkdir()
    known = json.loads((ROOT / "results" / "paper0" / "table5.json").read_text())
    made = known["provenance"] | {"commit": "ccc", "earlier_commits": ["aaa", "bbb"]}
    (tmp_path / "paper0" / "table5.json").write_text(json.dumps(known | {"provenance": made}))
    assert "at ccc (begun at aaa, bbb) on " in results_pages(tmp_path)["results/paper0.md"]


def test_the_page_says_what_a_promise_does_not_cover(tmp_path):
    known = json.loads((ROOT / "results" / "paper0" / "table6.json").read_text())
    known["guarantees"] = [dict(known["guarantees"][0])]
    for code, words in SHORT_WARNINGS.items():
        known["guarantees"][0]["warnings"] = [{"code": code, "message": "Long."}]
        (tmp_path / "paper0").mkdir(exist_ok=True)
        (tmp_path / "paper0" / "table6.json").write_text(json.dumps(known))
        assert f"**{words}**" in results_pages(tmp_path)["results/paper0.md"]
    data = {"start-depends-on-data", "measured-on-clients", "shape-depends-on-data", "records-overlap"}
    data |= {"constants-from-data"}
    clients = {"clients-dealt-anew", "dealt-by-label", "names-are-clients"}
    assert (
        data | clients | {"step-size-cost", "rounded-sums", "delta-too-large", "no-valid-guarantee", "idealised"}
        == SHORT_WARNINGS.keys()
    )


def test_a_result_that_is_older_than_a_warning_has_it_all_the_same(tmp_path):
    known = json.loads((ROOT / "results" / "paper3" / "section-5-3.json").read_text())
    for certificate in known["guarantees"]:
        certificate["warnings"] = []
    (tmp_path / "paper3").mkdir()
    (tmp_path / "paper3" / "section-5-3.json").write_text(json.dumps(known))
    (promise,) = (line for line in results_pages(tmp_path)["results/paper3.md"].splitlines() if "epsilon 5.000" in line)
    assert f"**{SHORT_WARNINGS['start-depends-on-data']}**" in promise


def test_the_page_says_how_far_a_heat_map_varies(tmp_path):
    (tmp_path / "paper0").mkdir()
    known = json.loads((ROOT / "results" / "paper0" / "table5.json").read_text())
    spreads = [
        {
            "metric": "accuracy",
            "column": "a",
            "row": f"beta {beta}",
            "spread": 1.25 * beta,
            "cells": 4,
            "diverged": beta - 1,
        }
        for beta in (1, 2)
    ]
    (tmp_path / "paper0" / "map.json").write_text(json.dumps(known | {"spreads": spreads}))
    assert (
        "- accuracy, a: beta 1: 1.25 (4 cells); beta 2: 2.5 (4 cells, 1 diverged)\n"
        in results_pages(tmp_path)["results/paper0.md"]
    )


def test_the_spec_in_the_docs_is_one(tmp_path, monkeypatch):
    folder = tmp_path / "paper3"
    shutil.copytree(specs.PAPERS / "paper3" / "runs", folder / "runs")
    text = (ROOT / "docs" / "sweeps.md").read_text()
    (folder / "mine.toml").write_text(re.search(r"## Add a table.*?```toml\n(.*?)```", text, re.S)[1])
    monkeypatch.setattr(specs, "PAPERS", tmp_path)
    spec = specs.find_spec("paper3-mine")
    whole, quick = ([point.cell.row for point in spec.points(quick)] for quick in (False, True))
    assert whole == quick == ["eps 5", "eps 5, C = 0.5", "eps 5, C = 1"]


def test_epsilon_in_plain_words():
    """Row by row: e^epsilon, and the probability 1 / (1 + e^-epsilon) that an even chance can become."""
    page = ROOT / "docs" / "concepts.md"
    epsilons = [float(cell) for cell in re.search(r"^\| epsilon \|(.*)\|$", page.read_text(), re.M)[1].split("|")]
    (_, *factors), (_, *chances) = table_after(page, "**Epsilon in plain words.**")
    for epsilon, factor, chance in zip(epsilons, factors, chances, strict=True):
        assert is_rounded(factor, math.exp(epsilon))
        assert is_rounded(chance.removesuffix(" %"), 100 / (1 + math.exp(-epsilon)))
