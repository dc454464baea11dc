"""`sordino reproduce`: the list, what is missing, and a small table from beginning to end."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from sordino.experiments import reproducing, specs
from sordino.report import figures
from sordino.simulation import sweep
from sordino.simulation.checkpoint import Bookmark

SPEC = """\
title = "Clipping or normalization on small quadratics"
metric = "suboptimality"
data = []
minutes = 1
quick_minutes = 1
seeds = 3
evaluate_every = 2
note = "A note."

[quick]
seeds = 2
set = ["run.rounds=4", "algorithm.local_lr=0.001"]
note = "Too short to show an order."

[[figures]]
name = "figure1"
title = "Suboptimality over rounds"
metric = "suboptimality"
scale = "log"

[[figures]]
name = "figure2"
title = "Paths"
kind = "paths"

[[cells]]
row = "C = {bound.clip}"
column = "clip"
paper = 1.25
file = "runs/quadratics-clip-I1.toml"
claim = "(5, 1e-6)"

[[cells]]
row = "C = {bound.normalize}"
column = "norm"
file = "runs/quadratics-normalize-I1.toml"
claim = "(5, 1e-6)"
set = ["bound.normalize=40.0"]
quick = ["bound.normalize={ grid = [40.0, 50.0] }"]
"""


@pytest.fixture
def papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of papers with one small spec, in place of ours."""
    folder = tmp_path / "papers" / "paper3"
    (folder / "runs").mkdir(parents=True)
    for name in ("clip", "normalize"):
        shutil.copy(specs.PAPERS / "paper3" / "runs" / f"quadratics-{name}-I1.toml", folder / "runs")
    (folder / "small.toml").write_text(SPEC)
    monkeypatch.setattr(specs, "PAPERS", folder.parent)
    monkeypatch.chdir(tmp_path)
    return folder.parent


def test_the_list_says_what_each_needs(run):
    listed = json.loads(run("reproduce", "--list", "--json").stdout)["specs"]
    entry = {row["name"]: row for row in listed}["paper3-table1-fashion-mnist"]
    assert (entry["paper"], entry["data"]) == ("3", "fashion-mnist")
    assert float(entry["--quick, 2 CPU cores"]) <= 5
    assert "paper0-table2" in run("reproduce", "--list").stdout
    estimated = {row["name"] for row in listed if row["minutes on a GPU"].startswith("~")}
    assert {"paper3-table1-cifar10", "paper4-table3"} <= estimated
    assert "paper0-table2" not in estimated
    assert entry["minutes on a GPU"] == "1"  # timed


@pytest.mark.parametrize("name", ["paper3-table9", "table1", "paper12-table1", "paper3-../paper0/table2"])
def test_an_unknown_name_is_answered_with_the_known_ones(run, name):
    said = run("reproduce", name, code=2).stderr
    assert name in said
    assert "paper3-table1-fashion-mnist" in said
    assert said.count("\n") == 1


def test_no_name_points_to_the_list(run):
    assert "--list" in run("reproduce", code=2).stderr


def test_missing_data_are_named_with_the_way_to_get_them(run, tmp_path, monkeypatch):
    monkeypatch.setenv("SORDINO_DATA", str(tmp_path))
    monkeypatch.setenv("SORDINO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("sordino.data._files._download", lambda file, path: "no network")
    monkeypatch.chdir(tmp_path)
    said = run("reproduce", "paper3-table1-fashion-mnist", "--quick", code=2).stderr
    assert "sordino data fetch fashion-mnist" in said
    assert str(tmp_path) in said
    said = run("reproduce", "paper3-table1-cifar100", "--quick", code=2).stderr
    assert "train.npz" in said
    assert "$SORDINO_DATA/cifar100-resnet18" in said
    assert not (tmp_path / "runs").exists()


def test_paper_beside_ours_numbers_and_pictures(run, papers, tmp_path):
    printed = " ".join(run("reproduce", "paper3-small", "--quick").stdout.split())  # however lines are broken
    assert "paper" in printed
    assert "1.25" in printed
    assert "the paper claims (5, 1e-6)" in printed
    assert "quick look" in printed
    assert "Too short to show an order. A note." in printed
    folder = tmp_path / "runs" / "reproduce" / "paper3"
    result = json.loads((folder / "small.json").read_text())
    cells = {(row["row"], row["column"]): row for row in result["rows"]}
    clip, norm = ([f"C = {bound}" for bound in bounds] for bounds in ((40, 50, 100), (40, 50)))
    assert set(cells) == {*((row, "clip") for row in clip), *((row, "norm") for row in norm)}
    for (_, column), row in cells.items():
        assert row["paper"] == (1.25 if column == "clip" else None)
        assert row["mean"] > 0
        assert row["std"] > 0
        assert row["seeds"] == [0, 1]
    assert len(result["guarantees"]) == len(result["rows"])
    for certificate in result["guarantees"]:
        assert certificate["claim"] == "(5, 1e-6)"
        promised = {g["observer"]: g["epsilon"] for g in certificate["guarantees"] if g["scope"] == "all rounds"}
        assert promised == {"server": "inf", "model user": pytest.approx(5, rel=1e-4)}
    assert result["provenance"]["command"] == "sordino reproduce paper3-small --quick"
    assert set(result["provenance"]) == {"commit", "versions", "device", "date", "command"}
    for figure in ("figure1", "figure2"):
        assert (folder / f"small-{figure}.png").read_bytes().startswith(b"\x89PNG")


def test_a_part_of_a_table(run, papers, tmp_path):
    (papers / "paper3" / "small.toml").write_text(SPEC.replace("{bound.normalize}", "any"))
    command = ("reproduce", "paper3-small", "--quick", "--only", "(40|50), clip", "--set", "run.rounds=3", "--json")
    result = json.loads(run(*command).stdout)
    assert [(row["row"], row["column"]) for row in result["rows"]] == [("C = 40", "clip"), ("C = 50", "clip")]
    assert result["scope"] == "cells that match '(40|50), clip', run.rounds=3"
    assert result["provenance"]["command"] == (
        "sordino reproduce paper3-small --quick --only '(40|50), clip' --set run.rounds=3"
    )
    totals = [g for one in result["guarantees"] for g in one["guarantees"] if g["scope"] == "all rounds"]
    assert {g["rounds"] for g in totals} == {3}
    said = " ".join(run("reproduce", "paper3-small", "--only", "40, clip", "--set", "run.rounds=3").stdout.split())
    assert "Not the whole: cells that match '40, clip', run.rounds=3." in said
    assert not (tmp_path / "results").exists()  # where only whole tables go


def test_a_part_does_not_replace_the_whole(run, papers, tmp_path):
    (tmp_path / "o" / "paper3").mkdir(parents=True)
    whole = tmp_path / "o" / "paper3" / "small.json"
    whole.write_text("{}")
    said = run("reproduce", "paper3-small", "--quick", "--only", "norm", "--out", str(tmp_path / "o"), code=2).stderr
    assert "small.json is not the same part of the table: choose another folder" in said
    assert whole.read_text() == "{}"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--only", "none"], "matches no cell; there are 'C = {bound.clip}, clip'"),
        (["--only", "("], "is no regular expression"),
        (["--set", "run.round=3"], "[run] round = 3: is not known"),
        (["--minutes", "0"], "minutes = 0.0: must be above 0"),
    ],
    ids=str,
)
def test_parts_that_are_none(run, papers, options, says):
    said = run("reproduce", "paper3-small", "--quick", *options, code=2).stderr
    assert says in said
    assert len(said.splitlines()) == 1


def test_a_cell_named_after_what_does_not_vary(run, papers):
    said = run("reproduce", "paper3-small", code=2).stderr
    assert "cell = 'C = {bound.normalize}': bound.normalize has one value only" in said


def test_what_was_killed_goes_on(run, papers, tmp_path, monkeypatch):
    """Killed between the runs and the picture: the second time there is nothing left to compute."""
    spec = papers / "paper3" / "small.toml"
    spec.write_text(SPEC.partition("[[figures]]")[0] + "[[cells]]" + SPEC.partition("[[cells]]")[2])
    monkeypatch.setattr(sweep, "Bookmark", functools.partial(Bookmark, seconds=0.0, times=0.0))
    command = ("reproduce", "paper3-small", "--quick", "--json")
    with monkeypatch.context() as patched:
        patched.setattr(figures, "plot_table", mock.Mock(side_effect=InterruptedError))
        with pytest.raises(InterruptedError):
            run(*command)
    unfinished = tmp_path / "runs" / "unfinished" / "paper3-small-quick"
    assert list(unfinished.iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(sweep, "run_block", mock.Mock(side_effect=AssertionError, lower=sweep.run_block.lower))
        again = json.loads(run(*command).stdout)
    assert not unfinished.exists()
    anew = json.loads(run(*command).stdout)
    assert again["rows"] == anew["rows"]


def test_a_heat_map_says_how_far_it_varies(run, papers):
    spec = papers / "paper3" / "small.toml"
    text = SPEC.partition("[[figures]]")[0] + '[[figures]]\nname = "map"\ntitle = "A map"\nkind = "heat-map"\n'
    text += 'metric = "suboptimality"\n[[cells]]' + SPEC.partition("[[cells]]")[2].partition("[[cells]]")[0]
    spec.write_text(text.replace("C = {bound.clip}", "I 1, C = {bound.clip}"))
    result = json.loads(run("reproduce", "paper3-small", "--quick", "--json").stdout)
    means = [row["mean"] for row in result["rows"]]
    assert len(means) == 3
    spread = pytest.approx(max(means) - min(means), abs=1e-4)  # rows have five digits
    assert result["spreads"] == [{"metric": "suboptimality", "column": "clip", "row": "I 1", "spread": spread, "of": 3}]
    said = " ".join(run("reproduce", "paper3-small", "--quick").stdout.split())
    assert f"Highest less lowest, suboptimality, clip: I 1: {result['spreads'][0]['spread']:.3g} (of 3)" in said


def test_what_ran_out_of_time_writes_what_is_complete_and_goes_on(run, papers, tmp_path, monkeypatch):
    spec = papers / "paper3" / "small.toml"
    spec.write_text(SPEC.partition("[[figures]]")[0] + "[[cells]]" + SPEC.partition("[[cells]]")[2])
    monkeypatch.setattr(sweep, "Bookmark", functools.partial(Bookmark, seconds=0.0, times=0.0))
    clock, command = mock.Mock(), ("reproduce", "paper3-small", "--quick", "--json")
    monkeypatch.setattr(reproducing, "time", clock)

    def stopped_after(evaluations, *options):
        clock.monotonic.side_effect = [0.0, *[30.0] * evaluations, *[61.0] * 1000]  # the first sets the deadline
        return run(*command, "--minutes", "1", *options).stdout

    said = stopped_after(2)
    unfinished = tmp_path / "runs" / "unfinished" / "paper3-small-quick"
    assert said == (
        "No cell is complete after 1 minutes; the same command goes on from runs/unfinished/paper3-small-quick.\n"
    )
    assert list(unfinished.iterdir())
    assert not (tmp_path / "runs" / "reproduce").exists()
    part = json.loads(stopped_after(9, "--out", str(tmp_path / "o")))
    assert 0 < len(part["rows"]) < 5
    assert part["scope"] == f"{len(part['rows'])} of 5 cells"
    assert json.loads((tmp_path / "runs" / "reproduce" / "paper3" / "small.json").read_text()) == part
    assert not (tmp_path / "o").exists()  # where the whole will go
    whole = json.loads(run(*command, "--minutes", "1000").stdout)
    assert "scope" not in whole
    assert len(whole["rows"]) == 5
    assert [row for row in whole["rows"] if row in part["rows"]] == part["rows"]
    assert not unfinished.exists()
    anew = json.loads(run(*command).stdout)
    assert anew["rows"] == whole["rows"]


def test_the_same_numbers_as_json_without_figures(run, papers, tmp_path):
    path = papers / "paper3" / "small.toml"
    text = path.read_text()
    kept, cells = text[: text.index("[[figures]]")], text[text.index("[[cells]]") :]
    path.write_text(kept + cells)
    said = run("reproduce", "paper3-small", "--quick", "--json", "--out", str(tmp_path / "o"), "--commit", "abc").stdout
    assert json.loads(said) == json.loads((tmp_path / "o" / "paper3" / "small.json").read_text())
    assert json.loads(said)["provenance"]["commit"] == "abc"
    assert (tmp_path / "o" / "paper3" / "small.png").exists()


@pytest.mark.slow
def test_a_features_file_of_the_user_is_found_beside_the_data(run, tmp_path, monkeypatch):
    """The spec of CIFAR-10 runs on any features; here on a few made up."""
    random = np.random.default_rng(0)
    (tmp_path / "cifar10-resnet18").mkdir()
    for name, records in (("train", 500), ("test", 100)):
        y = np.arange(records) % 10
        x = random.normal(size=(records, 8)) + 3 * np.eye(10, 8)[y]
        np.savez(tmp_path / "cifar10-resnet18" / f"{name}.npz", x=x, y=y)
    monkeypatch.setenv("SORDINO_DATA", str(tmp_path))
    folder = tmp_path / "papers" / "paper3"
    shutil.copytree(specs.PAPERS / "paper3", folder)
    spec = folder / "table1-cifar10.toml"
    small = '"run.rounds=3", "task.clients=100", "privacy.delta=1e-3"'
    spec.write_text(spec.read_text().replace('"run.rounds=60"', small))
    monkeypatch.setattr(specs, "PAPERS", folder.parent)
    said = run("reproduce", "paper3-table1-cifar10", "--quick", "--json", "--out", str(tmp_path / "o")).stdout
    rows = json.loads(said)["rows"]
    assert [row["paper"] for row in rows] == [82.63, 84.21, 81.53, 82.42, 85.64]
    assert rows[-1]["mean"] > 50
