"""`sordino compare`: intervals, paired tests, and nothing compared that is not comparable."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet
from scipy import stats

import sordino as so
from sordino.errors import InvalidInput
from sordino.experiments.held_out import hold_out
from sordino.privacy import wording
from sordino.report.comparison import compare
from sordino.runs import RunStore

FILE = """
[task]
name = "digits"

[algorithm]
name = "fedavg"
local_steps = 2
local_lr = 0.3

[bound]
{bound}

[privacy]
epsilon = {epsilon}
delta = 1e-4

[run]
rounds = 6
cohort = "full"
evaluate_every = 3
"""


@pytest.fixture
def files(tmp_path):
    def write(name, bound="clip = 1.0", epsilon=8, **replaced):
        path = tmp_path / f"{name}.toml"
        text = FILE.format(bound=bound, epsilon=epsilon)
        for old, new in replaced.items():
            text = text.replace(old, new)
        path.write_text(text)
        return str(path)

    return write


def histories(values):
    return [[{"round": 1, "accuracy": value, "test_loss": 1.0}] for value in values]


def test_intervals_and_paired_tests_are_the_textbook_s():
    rng = np.random.default_rng(0)
    a = rng.normal(0.8, 0.01, 8)
    b, c = a + rng.normal(0.01, 0.002, 8), a + rng.normal(0.0, 0.01, 8)
    found = compare({"a": histories(a), "b": histories(b), "c": histories(c)})
    rows = {row["method"]: row for row in found.rows}
    interval = stats.t.interval(0.95, 7, 100 * a.mean(), stats.sem(100 * a))
    assert (rows["a"]["low"], rows["a"]["high"]) == pytest.approx(interval)
    assert [row["method"] for row in found.rows] == sorted("abc", key=lambda name: -rows[name]["mean"])
    assert found.rows[0]["method"] == "b"
    values = {"a": a, "b": b, "c": c}
    plain = {
        frozenset(pair): stats.ttest_rel(*(values[name] for name in pair)).pvalue
        for pair in itertools.combinations("abc", 2)
    }
    by_size = sorted(plain, key=plain.get)
    adjusted = {frozenset((pair["better"], pair["other"])): pair["p"] for pair in found.pairs}
    assert adjusted[by_size[0]] == pytest.approx(3 * plain[by_size[0]])
    assert adjusted[by_size[1]] == pytest.approx(max(3 * plain[by_size[0]], 2 * plain[by_size[1]]))
    assert rows["a"]["difference"] == pytest.approx(100 * (a - b).mean())
    assert rows["a"]["p"] == adjusted[frozenset("ab")]
    assert found.correction == "Holm, for all 3 pairs"
    # Pairing is what makes the small difference visible: unpaired the two overlap.
    assert rows["a"]["difference_high"] < 0
    assert rows["b"]["low"] < rows["a"]["high"]


def test_less_is_better_but_for_the_accuracy():
    losses = {"a": [1.0, 1.1], "b": [0.5, 0.6], "c": [0.7, math.nan]}
    found = compare({name: [[{"round": 1, "test_loss": value}] for value in each] for name, each in losses.items()})
    assert [row["method"] for row in found.rows] == ["b", "a", "c"]


def test_a_run_that_diverged_leaves_no_figure():
    rows = compare({"b": histories([0.5, math.nan, 0.7]), "a": histories([0.5, 0.6, 0.7])}).rows
    assert math.isnan(rows[1]["mean"])
    assert math.isnan(rows[1]["p"])
    assert not math.isnan(rows[0]["mean"])


def test_the_answer_does_not_depend_on_the_order_of_the_methods():
    """Some pairs have no p-value: one diverged, one differs by a constant, one is the same, one ended at infinity."""
    rng = np.random.default_rng(1)
    a = rng.normal(0.8, 0.01, 6)
    methods = {
        "a": a,
        "diverged": [0.8, math.nan, 0.7, 0.8, 0.8, 0.8],
        "clear": a + rng.normal(0.02, 0.004, 6),
        "constant": a + 0.1,
        "same": a,
        "infinite": [0.8, 0.7, math.inf, 0.8, 0.8, 0.8],
        "unclear": a + rng.normal(0.0, 0.01, 6),
    }
    first = None
    for seed in range(30):
        names = np.random.default_rng(seed).permutation(list(methods))
        found = compare({str(name): histories(methods[name]) for name in names})
        first = first or found
        assert repr(found) == repr(first)
    ps = {frozenset((pair["better"], pair["other"])): pair["p"] for pair in first.pairs}
    p = stats.ttest_rel(methods["clear"], a).pvalue
    assert ps[frozenset(("clear", "a"))] >= p
    assert len(ps) == 21  # a test that could not be made is counted too
    assert math.isnan(ps[frozenset(("constant", "a"))])
    assert all(math.isnan(p) for pair, p in ps.items() if pair & {"diverged", "infinite"})


def test_methods_side_by_side(run, files, tmp_path):
    folder = tmp_path / "out"
    arguments = ("compare", files("a"), files("b", "normalize = 1.0"), "--seeds", "3", "--out", str(folder))
    result = json.loads(run(*arguments, "--json").stdout)
    assert {row["method"] for row in result["rows"]} == {"a", "b"}
    assert all(row["seeds"] == 3 and row["low"] <= row["mean"] <= row["high"] for row in result["rows"])
    assert all("epsilon = 8.000" in row["guarantee"] for row in result["rows"])
    assert Path(result["picture"]).read_bytes().startswith(b"\x89PNG")
    assert "paired t-test" in result["test"]
    assert (result["held_out"], result["rule"], result["choosing"]["prices"]) == (None, None, [])  # no grid, no choice
    table = parquet.read_table(folder / "table.parquet").to_pylist()
    assert [row["method"] for row in table] == ["a"] * 3 + ["b"] * 3
    assert len((folder / "table.csv").read_text().splitlines()) == 7
    assert [row["seed"] for row in json.loads((folder / "table.json").read_text())] == [0, 1, 2] * 2
    assert json.loads((folder / "comparison.json").read_text()) == result


def test_warnings_of_all_certificates_and_what_choosing_costs_are_said(run, files, tmp_path):
    quadratics = {'"digits"': '"quadratics"\nclients = 20\noptions = { d = 4, rank = 2 }', "1e-4": "1e-2"}
    a, b = files("a", **quadratics), files("b", "normalize = 1.0", **quadratics)
    folder = ("--out", str(tmp_path / "out"))
    said = " ".join(run("compare", a, b, "--seeds", "2", *folder).stdout.split())
    assert said.count("warning (start-depends-on-data), all: ") == 1
    result = json.loads(run("compare", a, b, "--seeds", "2", *folder, "--json").stdout)
    planned = [json.loads(run("plan", file, "--json").stdout) for file in (a, b)]
    by_name = {row["method"]: row for row in result["rows"]}
    for row, plan in zip((by_name["a"], by_name["b"]), planned, strict=True):
        assert [each["code"] for each in row["warnings"]] == [each["code"] for each in plan["warnings"]]
        assert (row["draws"], row["assumptions"]) == (plan["draws"], plan["assumptions"])
        assert (row["seed"], plan["seed"]) == ("given", None)
    assert said.count(wording.SEED_GIVEN) == 1
    assert "add to the privacy loss" not in said  # runs of one seed share their noise
    assert result["choosing"]["note"] == f"{wording.SELECTION_NOT_COVERED} {wording.SHARED_NOISE}"
    assert result["choosing"]["note"] in said


@pytest.mark.slow
def test_a_warning_names_the_methods_that_it_is_about(run, files, tmp_path):
    method = {'"fedavg"\nlocal_steps = 2\nlocal_lr = 0.3': '"error_feedback"\nbeta = 0.1\nserver_lr = 0.1'}
    local = method | {"epsilon = 8": 'trust = "local"\nepsilon = 8'}
    formula = local | {"rounds = 6": "rounds = 6", "delta = 1e-4": 'delta = 1e-4\ncalibration = "norm-ec"'}
    sound, false = (files(name, "smoothed_normalize = 0.1", **new) for name, new in (("a", local), ("b", formula)))
    arguments = (sound, false, "--seeds", "2", "--unequal", "--out", str(tmp_path / "out"))
    said = " ".join(run("compare", *arguments).stdout.split())
    assert said.count("warning (no-valid-guarantee), b: ") == 1
    assert "warning (this-run-alone), all: " in said


def test_unequal_guarantees_are_not_compared_unless_asked(run, files):
    arguments = ("compare", files("a"), files("b", epsilon=4), "--seeds", "2")
    done = run(*arguments, code=2)
    assert "epsilon = 4.000" in done.stderr
    for words in ("epsilon = 8.000", "one client of", "add-remove", "model user", "delta 0.0001", "exact Gaussian"):
        assert words in done.stderr
    assert "--unequal" in done.stderr


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (("--seeds", "1"), "seeds = 1"),
        (("--set", "task.model=mlp:0"), "hidden"),
    ],
)
def test_bad_input_is_named(run, files, extra, message):
    assert message in run("compare", files("a"), files("b"), *extra, code=2).stderr


def test_one_file_or_another_task_is_refused(run, files):
    assert "at least two" in run("compare", files("a"), code=2).stderr
    other = files("b", **{'"digits"': '"digits"\nmodel = "mlp:8"'})
    assert "compare on one task" in run("compare", files("a"), other, code=2).stderr


GRIDS = {"local_lr = 0.3": "local_lr = { grid = [0.01, 0.3] }", '"digits"': '"digits"\nclients = 60', "1e-4": "1e-3"}


@pytest.fixture(scope="module")
def grids(tmp_path_factory):
    """Two files with grids of two points."""
    folder = tmp_path_factory.mktemp("grids")
    paths = []
    for name, bound in (("a", "clip = 1.0"), ("b", "normalize = 0.5")):
        text = FILE.format(bound=bound, epsilon=8)
        for old, new in GRIDS.items():
            text = text.replace(old, new)
        paths.append(folder / f"{name}.toml")
        paths[-1].write_text(text)
    return [str(path) for path in paths]


@pytest.fixture(scope="module")
def tuned(run, grids, tmp_path_factory):
    """A finished comparison: its folder, and what --json printed."""
    folder = tmp_path_factory.mktemp("tuned") / "out"
    said = run("compare", *grids, "--seeds", "2", "--out", str(folder), "--json")
    return folder, json.loads(said.stdout)


def test_each_method_is_tuned_on_held_out_clients_and_runs_with_other_seeds(tuned):
    folder, result = tuned
    assert result["held_out"] == {"clients": 12, "of": 60, "seed": 0}
    assert (result["points"], result["tuning_seeds"], result["seeds"]) == (2, 1, 2)
    table = json.loads((folder / "table.json").read_text())
    for row in result["rows"]:
        own = [each for each in table if each["method"] == row["method"]]
        tried = [each for each in own if each["runs"] == "tuning"]
        final = [each for each in own if each["runs"] == "best"]
        best = max(tried, key=lambda each: each["accuracy_last_5"])
        assert row["best"] == {"algorithm.local_lr": best["algorithm.local_lr"]}
        assert row["score"] == pytest.approx(best["accuracy_last_5"])
        assert {each["algorithm.local_lr"] for each in final} == {best["algorithm.local_lr"]}
        assert ([each["seed"] for each in tried], [each["seed"] for each in final]) == ([0, 0], [1, 2])
        assert row["mean"] == pytest.approx(100 * np.mean([each["accuracy_last_5"] for each in final]))
        assert "one client of 48" in row["guarantee"]
        kept = [RunStore.read(folder / row["method"] / "best" / "points" / f"0000{n}") for n in range(2)]
        assert all(run.finished and run.model is not None for run in kept)
        assert {float(run.certificate.totals[0].delta) for run in kept} == {1e-3}


def test_the_price_of_choosing_is_that_of_a_sweep_s_runs(tuned):
    for price in tuned[1]["choosing"]["prices"]:
        assert price["runs"] == 2
        one, chosen = price["epsilon_of_one_run"], price["epsilon_of_private_selection"]
        assert one < chosen
        assert one < price["epsilon_with_independent_noise"] < 2 * one
        assert price["epsilon_of_all_runs"] == "inf"  # the runs share a seed


def test_a_best_value_at_the_end_of_its_grid_is_named(tuned):
    edges = {edge["method"]: edge for edge in tuned[1]["edges"]}
    for row in tuned[1]["rows"]:
        value = row["best"]["algorithm.local_lr"]
        end = "largest" if value == 0.3 else "smallest"
        assert edges[row["method"]] == {
            "method": row["method"],
            "key": "algorithm.local_lr",
            "value": value,
            "end": end,
        }


def test_another_order_of_the_files_is_the_same_comparison(run, grids, tuned, tmp_path):
    folder, first = tuned
    other = tmp_path / "out"
    again = json.loads(run("compare", *reversed(grids), "--seeds", "2", "--out", str(other), "--json").stdout)
    places = ("folder", "tables", "picture")
    assert {key: again[key] for key in again if key not in places} == {
        key: first[key] for key in first if key not in places
    }
    assert (other / "table.csv").read_text() == (folder / "table.csv").read_text()


def test_repeating_completes_what_is_missing(run, grids, tuned, tmp_path):
    folder = Path(shutil.copytree(tuned[0], tmp_path / "out"))
    lost, kept = folder / "b" / "best" / "points" / "00001", folder / "a" / "tuning" / "points" / "00000"
    shutil.rmtree(lost)
    before = (kept / "environment.json").stat().st_mtime_ns
    result = json.loads(run("compare", *grids, "--seeds", "2", "--out", str(folder), "--json").stdout)
    figures = [{key: row[key] for key in ("method", "mean", "low", "high")} for row in result["rows"]]
    assert figures == [{key: row[key] for key in ("method", "mean", "low", "high")} for row in tuned[1]["rows"]]
    assert (lost / "environment.json").exists()
    assert (kept / "environment.json").stat().st_mtime_ns == before
    more = json.loads(run("compare", *grids, "--seeds", "3", "--out", str(folder), "--json").stdout)
    assert {row["seeds"] for row in more["rows"]} == {3}
    assert (kept / "environment.json").stat().st_mtime_ns == before
    other = run("compare", *grids, "--seeds", "2", "--out", str(folder), "--held-out", "0.4", code=2)
    assert "holds another sweep" in other.stderr


def test_everything_printed_fits_80_columns(run, grids, tuned):
    said = run("compare", *grids, "--seeds", "2", "--out", str(tuned[0])).stdout
    assert max(map(len, said.splitlines())) <= 80
    text = " ".join(said.split())
    assert wording.PRICES_OF_CHOOSING in text
    assert wording.held_out(12, 60, 0) in text


@pytest.mark.slow
def test_grids_of_other_sizes_need_a_number_of_points(run, files, tmp_path):
    a = files("a", **GRIDS)
    b = files("b", **(GRIDS | {"local_lr = 0.3": "local_lr = { grid = [0.1, 0.2, 0.3] }"}))
    assert "a 2, b 3" in run("compare", a, b, "--seeds", "2", code=2).stderr
    assert "a 2, b 3" in run("compare", a, b, "--seeds", "2", "--points", "3", code=2).stderr
    folder = str(tmp_path / "out")
    result = json.loads(run("compare", a, b, "--seeds", "2", "--points", "2", "--out", folder, "--json").stdout)
    assert {row["method"]: (row["tried"], row["of"]) for row in result["rows"]} == {"a": (2, 2), "b": (2, 3)}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (GRIDS | {"rounds = 6": "rounds = 6\nseed = [0, 1]"}, "compare gives the seeds"),
        (
            {'"digits"': '"digits"\nclients = 60', "epsilon = 8": "epsilon = { grid = [2, 8] }"},
            "take it out of the grid",
        ),
        (GRIDS | {"evaluate_every = 3": "evaluate_every = 2"}, "run.evaluate_every"),
    ],
    ids=["seeds", "guarantees", "evaluations"],
)
def test_what_cannot_be_tuned_is_refused(run, files, changes, says):
    changes = changes | {"1e-4": "1e-3"}
    assert says in run("compare", files("a", **GRIDS), files("b", **changes), "--seeds", "2", code=2).stderr


def test_nobody_is_held_out_of_a_problem_that_is_measured_on_its_clients(run, files):
    quadratics = {'"digits"': '"quadratics"\nclients = 20', "1e-4": "1e-2", "0.3": "{ grid = [0.1, 0.2] }"}
    a, b = files("a", **quadratics), files("b", "normalize = 1.0", **quadratics)
    assert "give files without grids" in run("compare", a, b, "--seeds", "2", code=2).stderr


def test_held_out_clients_are_drawn_by_their_numbers_and_leave_training():
    task = so.task("digits", clients=50, partition="dirichlet:0.3")
    held = hold_out(task, 0.2, 3)
    assert (held.clients, held.of, held.final.clients) == (10, 50, 40)
    assert len(held.choosing.data.x_test) + len(held.final.data.x) == len(task.data.x)
    np.testing.assert_array_equal(held.final.data.x_test, task.data.x_test)
    np.testing.assert_array_equal(held.final.data.x, held.choosing.data.x)
    drawn = np.random.default_rng(3).choice(50, 10, replace=False)
    start, size = task.data.start, task.data.size
    expected = np.concatenate([task.data.x[start[i] : start[i] + size[i]] for i in sorted(drawn)])
    np.testing.assert_array_equal(held.choosing.data.x_test, expected)
    rest = [i for i in range(50) if i not in drawn]
    for place, i in ((0, rest[0]), (39, rest[39])):
        own = slice(held.final.data.start[place], held.final.data.start[place] + held.final.data.size[place])
        np.testing.assert_array_equal(held.final.data.x[own], task.data.x[start[i] : start[i] + size[i]])
    assert held.final.assignment != task.assignment
    assert hold_out(task, 0.2, 4).final.assignment != held.final.assignment


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, math.nan])
def test_a_wrong_share_is_refused(share):
    with pytest.raises(InvalidInput, match="held_out"):
        hold_out(so.task("digits", clients=10), share, 0)


def test_a_comparison_does_not_go_into_the_folder_of_a_run(run, files, tmp_path):
    (tmp_path / "ran").mkdir()
    (tmp_path / "ran" / "ledger.jsonl").write_text("{}")
    said = run("compare", files("a"), files("b"), "--out", str(tmp_path / "ran"), code=2).stderr
    assert "is the folder of a run" in said
    assert [path.name for path in (tmp_path / "ran").iterdir()] == ["ledger.jsonl"]
