"""`sordino reproduce`: the list, what is missing, and a small table from beginning to end."""

from __future__ import annotations

import itertools
import json
import shutil
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from sordino.experiments import specs
from sordino.privacy.wording import SHORT_WARNINGS, TUNING_NOT_COVERED
from sordino.report import figures
from sordino.runs import checkpoint
from sordino.runs.blocks import Program
from sordino.runs.store import one_at_a_time

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


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("paper3-table1-fashion-mnits", "did you mean paper3-table1-fashion-mnist or "),
        ("paper3-table9", "did you mean paper3-"),
        ("table1", "paper3-table1-fashion-mnist"),
        ("paper12-table1", "did you mean paper1-table4 or "),
        ("paper3-../paper0/table2", "paper3-table1-fashion-mnist"),
        ("nothing", "there is none of this name: `sordino reproduce --list` shows all"),
    ],
)
def test_an_unknown_name_is_answered_with_those_that_are_near(run, name, meant):
    said = run("reproduce", name, code=2).stderr
    assert name in said
    assert meant in said
    assert len(said.splitlines()) == 1


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
    assert not (tmp_path / "runs" / "reproduce").exists()


def test_paper_beside_ours_numbers_and_pictures(run, papers, tmp_path):
    printed = " ".join(run("reproduce", "paper3-small", "--quick").stdout.split())  # however lines are broken
    assert "paper" in printed
    assert "1.25" in printed
    assert "the paper claims (5, 1e-6)" in printed
    assert "quick look" in printed
    assert "Too short to show an order. A note." in printed
    assert SHORT_WARNINGS["start-depends-on-data"] in printed
    assert TUNING_NOT_COVERED in printed
    folder = tmp_path / "runs" / "reproduce" / "paper3"
    result = json.loads((folder / "small-quick.json").read_text())
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
    assert result["choosing"]["note"] in printed
    assert result["provenance"]["command"] == "sordino reproduce paper3-small --quick"
    assert set(result["provenance"]) == {"commit", "versions", "device", "date", "command"}
    for figure in ("figure1", "figure2"):
        assert (folder / f"small-quick-{figure}.png").read_bytes().startswith(b"\x89PNG")


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
    # A note may name figures that the changes have made false.
    assert result["note"].startswith("Changed here: run.rounds=3. ")
    assert result["note"].endswith(" Too short to show an order. A note.")
    said = " ".join(run("reproduce", "paper3-small", "--only", "40, clip", "--set", "run.rounds=3").stdout.split())
    assert "Not the whole: cells that match '40, clip', run.rounds=3." in said
    assert "Changed here: run.rounds=3." in said
    assert not (tmp_path / "results").exists()  # where only whole tables go


@pytest.mark.slow
def test_less_than_the_whole_has_a_name_of_its_own(run, papers, tmp_path):
    folder = tmp_path / "o" / "paper3"
    for options in ([], ["--only", "50, clip"], ["--only", "norm"], ["--set", "run.rounds=3"]):
        run("reproduce", "paper3-small", "--quick", *options, "--out", str(tmp_path / "o"))
    results = [json.loads(path.read_text()) for path in sorted(folder.glob("small-quick*.json"))]
    assert sorted(str(result.get("scope")) for result in results) == [
        "None",
        "cells that match '50, clip'",
        "cells that match 'norm'",
        "run.rounds=3",
    ]
    assert not (folder / "small.json").exists()  # that is the whole, in full


def test_a_figure_none_of_whose_lines_is_there_is_left_out(run, papers, tmp_path):
    spec = papers / "paper3" / "small.toml"
    text = SPEC.replace('scale = "log"', 'scale = "log"\nlines = "norm"')
    spec.write_text(text.replace('kind = "paths"', 'metric = "suboptimality"'))
    said = run("reproduce", "paper3-small", "--quick", "--only", "clip", "--set", "run.rounds=3").stdout
    written = said.partition("Written: ")[2]
    assert "figure2.png" in written
    assert "figure1.png" not in written


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--only", "none"], "matches no cell; there are 'C = 40, clip', 'C = 50, clip'"),
        (["--only", "("], "is not a regular expression"),
        (["--set", "run.round=3"], "[run] round = 3: is not known"),
        (["--set", "run.seed=7"], "set = 'run.seed=7': seeds and evaluations are the spec's"),
        (["--minutes", "0"], "minutes = 0.0: must be above 0"),
        (["--minutes", "1"], "minutes = 1.0: figures of paths begin anew each time: leave it out"),
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


@pytest.mark.slow
def test_what_was_killed_goes_on(run, papers, tmp_path, monkeypatch):
    """Killed between the runs and the picture: the second time there is nothing left to compute."""
    spec = papers / "paper3" / "small.toml"
    spec.write_text(SPEC.partition("[[figures]]")[0] + "[[cells]]" + SPEC.partition("[[cells]]")[2])
    monkeypatch.setattr(checkpoint, "EVERY", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE", float("inf"))
    command = ("reproduce", "paper3-small", "--quick", "--json")
    with monkeypatch.context() as patched:
        patched.setattr(figures, "plot_table", mock.Mock(side_effect=RuntimeError))
        with pytest.raises(RuntimeError):
            run(*command)
    unfinished = tmp_path / "runs" / "unfinished" / "paper3-small-quick"
    assert list(unfinished.iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(Program, "advance", mock.Mock(side_effect=AssertionError))
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
    assert result["spreads"] == [
        {"metric": "suboptimality", "column": "clip", "row": "I 1", "spread": spread, "cells": 3, "diverged": 0}
    ]
    said = " ".join(run("reproduce", "paper3-small", "--quick").stdout.split())
    assert f"Highest less lowest, suboptimality, clip: I 1: {result['spreads'][0]['spread']:.3g} (3 cells)" in said


def test_what_ran_out_of_time_writes_what_is_complete_and_goes_on(run, papers, tmp_path, monkeypatch):
    """Two programs of two seeds, each four evaluations long; states are kept however short it all is."""
    spec = papers / "paper3" / "small.toml"
    spec.write_text(SPEC.partition("[[figures]]")[0] + "[[cells]]" + SPEC.partition("[[cells]]")[2])
    unfinished = tmp_path / "runs" / "unfinished" / "paper3-small-quick"
    counted = mock.Mock(side_effect=Program.advance)
    monkeypatch.setattr(Program, "advance", lambda *arguments: counted(*arguments))
    command = ("reproduce", "paper3-small", "--quick", "--json")

    def stopped_after(evaluations, *options, code=3):
        """The clock stands still until so many evaluations are done."""
        before = counted.call_count
        monkeypatch.setattr(time, "monotonic", lambda: 0.0 if counted.call_count < before + evaluations else 61.0)
        out = run(*command, "--minutes", "1", *options, code=code)
        assert counted.call_count - before == evaluations
        said = [line for line in out.stderr.splitlines() if not line.endswith(" points")]  # without progress
        return json.loads(out.stdout), said

    nothing, said = stopped_after(2)
    assert (nothing["rows"], nothing["scope"]) == ([], "0 of 5 cells")
    assert said == ["0 of 5 cells are complete; the same command goes on from runs/unfinished/paper3-small-quick"]
    assert not (tmp_path / "runs" / "reproduce").exists()
    part, _ = stopped_after(6)  # the end of the second of four blocks, to the round
    assert [row["column"] for row in part["rows"]] == ["clip"] * 3
    assert part["scope"] == "3 of 5 cells"
    written = tmp_path / "runs" / "reproduce" / "paper3" / "small-quick-unfinished.json"
    assert json.loads(written.read_text()) == part
    again, _ = stopped_after(1)
    assert again["rows"] == part["rows"]
    whole, said = stopped_after(7, code=0)
    assert (len(whole["rows"]), "scope" in whole, said) == (5, False, [])
    assert whole["rows"][:3] == part["rows"]
    assert not unfinished.exists()
    assert not written.exists()
    assert json.loads(run(*command).stdout)["rows"] == whole["rows"]


@pytest.mark.slow
def test_a_result_of_several_calls_names_all_commits(run, papers, tmp_path, monkeypatch):
    """And work of another device, which cannot be taken up, is not passed over in silence."""
    spec = papers / "paper3" / "small.toml"
    spec.write_text(SPEC.partition("[[figures]]")[0] + "[[cells]]" + SPEC.partition("[[cells]]")[2])
    command = ("reproduce", "paper3-small", "--quick", "--json")
    monkeypatch.setattr(time, "monotonic", mock.Mock(side_effect=itertools.count(0.0, 61.0)))
    for commit in ("aaa", "bbb", "bbb"):
        run(*command, "--minutes", "1", "--commit", commit, code=3)
    calls = tmp_path / "runs" / "unfinished" / "paper3-small-quick" / "calls.json"
    noted = json.loads(calls.read_text())
    assert [call["commit"] for call in noted] == ["aaa", "bbb", "bbb"]

    made = json.loads(run(*command, "--minutes", "1", "--commit", "ccc", code=3).stdout)["provenance"]
    assert (made["commit"], made["earlier_commits"]) == ("ccc", ["aaa", "bbb"])

    calls.write_text("no JSON")
    assert "calls.json': cannot be read" in run(*command, code=2).stderr
    calls.write_text(json.dumps([call | {"device": "gpu: another"} for call in noted]))
    again = run(*command, "--commit", "ddd")
    assert "paper3-small-quick was begun on gpu: another (sordino" in again.stderr
    assert "earlier_commits" not in json.loads(again.stdout)["provenance"]


def test_runs_that_promise_nothing_have_no_choice_to_cover(run, papers):
    noiseless = papers / "paper3" / "runs" / "quadratics-clip-I1.toml"
    noiseless.write_text(noiseless.read_text().replace("epsilon = 5\n", ""))
    result = json.loads(run("reproduce", "paper3-small", "--quick", "--only", "40, clip", "--json").stdout)
    assert "choosing" not in result
    assert result["note"] == "Too short to show an order. A note."  # a part is not a change


def test_one_process_at_a_time(run, papers, tmp_path):
    with one_at_a_time(tmp_path / "runs" / "unfinished" / "paper3-small-quick"):
        said = run("reproduce", "paper3-small", "--quick", code=2).stderr
    assert "runs/unfinished/paper3-small-quick': another process is at this: wait until it ends" in said


def test_the_same_numbers_as_json_without_figures(run, papers, tmp_path):
    path = papers / "paper3" / "small.toml"
    text = path.read_text()
    kept, cells = text[: text.index("[[figures]]")], text[text.index("[[cells]]") :]
    path.write_text(kept + cells)
    said = run("reproduce", "paper3-small", "--quick", "--json", "--out", str(tmp_path / "o"), "--commit", "abc").stdout
    assert json.loads(said) == json.loads((tmp_path / "o" / "paper3" / "small-quick.json").read_text())
    assert json.loads(said)["provenance"]["commit"] == "abc"
    assert (tmp_path / "o" / "paper3" / "small-quick.png").exists()


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
