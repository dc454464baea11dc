"""`sordino compare`: intervals, paired tests, and nothing compared that is not comparable."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from sordino.privacy import wording
from sordino.report.comparison import compare

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
    rows = compare({"a": histories(a), "b": histories(b), "c": histories(c)})
    interval = stats.t.interval(0.95, 7, 100 * a.mean(), stats.sem(100 * a))
    assert (rows[0]["low"], rows[0]["high"]) == pytest.approx(interval)
    p_b, p_c = stats.ttest_rel(b, a).pvalue, stats.ttest_rel(c, a).pvalue
    assert p_b < p_c
    assert rows[1]["p"] == pytest.approx(2 * p_b)
    assert rows[2]["p"] == pytest.approx(max(2 * p_b, p_c))
    assert rows[1]["difference"] == pytest.approx(100 * (b - a).mean())
    # Pairing is what makes the small difference visible: unpaired the two overlap.
    assert rows[1]["difference_low"] > 0
    assert rows[1]["low"] < rows[0]["high"]


def test_a_run_that_diverged_leaves_no_figure():
    rows = compare({"a": histories([0.5, 0.6, 0.7]), "b": histories([0.5, math.nan, 0.7])})
    assert math.isnan(rows[1]["mean"])
    assert math.isnan(rows[1]["p"])
    assert not math.isnan(rows[0]["mean"])


def test_p_values_do_not_depend_on_the_order_of_the_others():
    """Some have no p-value: one diverged, one differs by a constant, one is the same, one ended at infinity."""
    rng = np.random.default_rng(1)
    a = rng.normal(0.8, 0.01, 6)
    others = {
        "diverged": [0.8, math.nan, 0.7, 0.8, 0.8, 0.8],
        "clear": a + rng.normal(0.02, 0.004, 6),
        "constant": a + 0.1,
        "same": a,
        "infinite": [0.8, 0.7, math.inf, 0.8, 0.8, 0.8],
        "unclear": a + rng.normal(0.0, 0.01, 6),
        "less clear": a + rng.normal(0.004, 0.004, 6),
    }
    found = {}
    for seed in range(30):
        names = np.random.default_rng(seed).permutation(list(others))
        rows = compare({"a": histories(a)} | {str(name): histories(others[name]) for name in names})
        found[seed] = {row["method"]: row["p"] for row in rows[1:]}
    for each in found.values():
        assert each == pytest.approx(found[0], nan_ok=True)
    p = stats.ttest_rel(others["clear"], a).pvalue
    assert found[0]["clear"] == pytest.approx(len(others) * p)  # a test that could not be made is counted too
    without = {name for name, value in found[0].items() if math.isnan(value)}
    assert without == {"diverged", "constant", "same", "infinite"}


def test_methods_side_by_side(run, files, tmp_path):
    picture = tmp_path / "plots" / "both.png"
    arguments = ("compare", files("a"), files("b", "normalize = 1.0"), "--seeds", "3", "--picture", str(picture))
    result = json.loads(run(*arguments, "--json").stdout)
    assert [row["method"] for row in result["rows"]] == ["a", "b"]
    assert all(row["seeds"] == 3 and row["low"] <= row["mean"] <= row["high"] for row in result["rows"])
    assert all("epsilon = 8.000" in row["guarantee"] for row in result["rows"])
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert result["reference"] == "a"
    assert "paired t-test" in result["test"]
    assert result["correction"].startswith("Holm")


def test_warnings_of_all_certificates_and_what_choosing_costs_are_said(run, files, tmp_path):
    quadratics = {'"digits"': '"quadratics"\nclients = 20\noptions = { d = 4, rank = 2 }', "1e-4": "1e-2"}
    a, b = files("a", **quadratics), files("b", "normalize = 1.0", **quadratics)
    picture = ("--picture", str(tmp_path / "both.png"))
    said = run("compare", a, b, "--seeds", "2", *picture).stdout
    assert said.count("warning (start-depends-on-data), all: ") == 1
    result = json.loads(run("compare", a, b, "--seeds", "2", *picture, "--json").stdout)
    planned = [json.loads(run("plan", file, "--json").stdout) for file in (a, b)]
    for row, plan in zip(result["rows"], planned, strict=True):
        assert [each["code"] for each in row["warnings"]] == [each["code"] for each in plan["warnings"]]
        assert (row["draws"], row["assumptions"]) == (plan["draws"], plan["assumptions"])
        assert (row["seed"], plan["seed"]) == ("given", None)
    assert said.count(wording.SEED_GIVEN) == 1
    assert "add to the privacy loss" not in said  # runs of one seed share their noise
    assert result["choosing"]["note"] == f"{wording.SELECTION_NOT_COVERED} {wording.SHARED_NOISE}"
    assert result["choosing"]["note"] in said


def test_a_warning_names_the_methods_that_it_is_about(run, files, tmp_path):
    method = {'"fedavg"\nlocal_steps = 2\nlocal_lr = 0.3': '"error_feedback"\nbeta = 0.1\nserver_lr = 0.1'}
    local = method | {"epsilon = 8": 'trust = "local"\nepsilon = 8'}
    formula = local | {"rounds = 6": "rounds = 6", "delta = 1e-4": 'delta = 1e-4\ncalibration = "norm-ec"'}
    sound, false = (files(name, "smoothed_normalize = 0.1", **new) for name, new in (("a", local), ("b", formula)))
    arguments = (sound, false, "--seeds", "2", "--unequal", "--picture", str(tmp_path / "both.png"))
    said = run("compare", *arguments).stdout
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
