"""Run files whose keys name theorems: `server_lr = "theorem-1"`."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from sordino.config import load_config, load_sweep
from sordino.errors import InvalidInput

EF = """
[task]
name = "robust-regression"
options = {{ d = 5, records = 4 }}
[algorithm]
name = "error_feedback"
beta = 0.5
server_lr = "{rule}"
server_normalization = true
[bound]
smoothed_normalize = 1.0
[privacy]
trust = "local"
noise_multiplier = 3.0
delta = 1e-3
[run]
rounds = 64
seed = 1
[rules]
R = 3.0
L_max = 2.0
gap = 4.0
"""
MB = """
[task]
name = "linear"
clients = 4
options = { loss = "absolute", smoothing = "theorem-2.2", records = 400, d = 9 }
[algorithm]
name = "noisy_mb_sgd"
lipschitz = 2.0
radius = 1.5
step_size = "theorem-2.2"
batch_size = "theorem-2.2"
smoothness = "theorem-2.2"
[privacy]
trust = "local"
epsilon = 1.0
delta = 1e-5
[run]
rounds = "paper2-theorem-2.2-convex"
[rules]
M = 4
"""


@pytest.fixture
def written(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "run.toml"
        path.write_text(text)
        return path

    return write


def test_a_key_takes_the_number_of_its_theorem(written) -> None:
    config = load_config(written(EF.format(rule="theorem-1")))
    assert config.file.algorithm.server_lr == 0.5 * 3 / (4 * 2)
    (row,) = (each.row for each in config.ruled)
    assert row["key"] == "[algorithm] server_lr"
    assert row["rule"] == "paper4-theorem-1"
    assert "R = 3" in row["assumed"]
    # The noise is the plan's own: no constant of a rule is in it.
    point = config.point(config.task())
    assert float(point.answer.certificate.guarantees[0].epsilon) > 0
    other = load_config(written(EF.format(rule="theorem-1")), ("rules.R=2.0",))
    assert other.point(other.task()).answer.certificate == point.answer.certificate


def test_rounds_steps_batches_and_smoothing_come_from_one_theorem(written) -> None:
    config = load_config(written(MB))
    values = {each.row["key"]: each.value for each in config.ruled}
    assert config.file.run.rounds == values["[run] rounds"] > 1
    assert config.file.algorithm.batch_size == values["[algorithm] batch_size"]
    assert config.file.task.options["smoothing"] == values["[task.options] smoothing"]
    assert config.file.algorithm.step_size == pytest.approx(1 / (4 * values["[task.options] smoothing"]))


def test_a_file_of_one_run_names_the_theorem_again(written) -> None:
    config = load_config(written(EF.format(rule="theorem-1")))
    again = tomllib.loads(config.toml(seed=3))
    assert again["algorithm"]["server_lr"] == "theorem-1"
    assert again["rules"] == {"R": 3.0, "L_max": 2.0, "gap": 4.0}
    assert again["run"]["seed"] == 3


def test_constants_are_swept(written) -> None:
    sweep = load_sweep(written(EF.format(rule="theorem-1")), ("rules.R=[3.0, 6.0]",))
    steps = [config.file.algorithm.server_lr for _, config in sweep.points]
    assert steps == [0.5 * 3 / (4 * 2), 0.5 * 6 / (7 * 2)]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        pytest.param("algorithm.beta=5.0", "[algorithm] beta", id="a precondition"),
        pytest.param("rules.R=-1.0", "[rules] R", id="a range"),
        pytest.param("rules.beta=0.4", "[rules] beta", id="said twice, differently"),
        pytest.param("rules.mu=0.4", "[rules] mu", id="a constant of no rule"),
        pytest.param('algorithm.server_lr="theorem-9"', "[algorithm] server_lr", id="no such theorem"),
        pytest.param('algorithm.server_lr="paper3-theorem-2"', "[algorithm] server_lr", id="of another method"),
        pytest.param("algorithm.server_lr=0.1", "[rules]", id="constants for nothing"),
        pytest.param("algorithm.server_normalization=false", "server_normalization", id="another form of the method"),
        pytest.param("algorithm.local_steps=2", "local_steps", id="local steps"),
        pytest.param("algorithm.batch_size=2", "batch_size", id="batches"),
        pytest.param("run.cohort=poisson:0.5", "cohort", id="absent clients"),
        pytest.param('rules.from_data="R"', "[rules] from_data", id="a kind"),
    ],
)
def test_what_a_theorem_excludes_is_refused_before_anything_runs(written, change: str, named: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        load_config(written(EF.format(rule="theorem-1")), (change,))
    assert refused.value.field.endswith(named)


def test_a_missing_constant_is_named(written) -> None:
    text = EF.format(rule="theorem-1").replace("gap = 4.0\n", "")
    with pytest.raises(InvalidInput) as refused:
        load_config(written(text))
    assert refused.value.field.endswith("[rules] gap")


def test_the_dimension_of_a_rule_is_that_of_the_task(written) -> None:
    config = load_config(written(EF.format(rule="theorem-2")), ("rules.d=6", "rules.n=10", "rules.noise_std=3.0"))
    with pytest.raises(InvalidInput) as refused:
        config.point(config.task())
    assert refused.value.field.endswith("[rules] d")


def test_constants_from_data_are_marked(written, run) -> None:
    path = str(written(EF.format(rule="theorem-1")))
    plan = json.loads(run("plan", path, "--set", 'rules.from_data=["R"]', "--json").stdout)
    assert "constants-from-data" in [warning["code"] for warning in plan["warnings"]]
    assert plan["rules"][0]["value"] == 0.5 * 3 / (4 * 2)
    unmarked = json.loads(run("plan", path, "--json").stdout)
    assert "constants-from-data" not in [warning["code"] for warning in unmarked["warnings"]]
    run("plan", path, "--set", 'rules.from_data=["mu"]', code=2)


def test_the_command_lists_shows_and_computes(run) -> None:
    names = {rule["name"] for rule in json.loads(run("rules", "--json").stdout)["rules"]}
    assert {"paper0-theorem-2", "paper1-theorem-4.5", "paper2-theorem-2.1-convex", "paper4-corollary-2"} <= names
    call = ["rules", "paper4-theorem-1", "alpha=1", "beta=0.5", "R=3", "L_max=2", "gap=4", "rounds=64"]
    assert json.loads(run(*call, "--json").stdout)["result"]["gamma"] == 0.5 * 3 / (4 * 2)
    assert "0.1875" in run(*call).stdout
    for name in ("paper0-theorem-2", "paper2-theorem-4.1-convex"):
        assert name.split("-")[1] in run("rules", name).stdout.lower()
    run("rules")
    run("rules", "paper4-theorem-1", "alpha", code=2)
    run("rules", "paper4-theorem-99", code=2)
    run(*call, "beta=0.4", code=2)


def test_a_plan_says_how_far_it_is_from_minimax(written, run) -> None:
    path = str(written(MB))
    plan = json.loads(run("plan", path, "--json").stdout)
    assert plan["minimax"] == pytest.approx(2 * 1.5 * 3 / (1.0 * 400 * 2))  # L D sqrt(d) / (epsilon n sqrt(N))
    noise = plan["each_client"][0]["noise_std"]
    V = (4 * 4 / plan["each_client"][0]["batch"] + 9 * noise**2) / 4
    assert plan["risk_bound"] == pytest.approx(1.5 * (V / plan["rounds"]) ** 0.5, rel=1e-6)
    assert plan["distance_to_minimax"] == pytest.approx(plan["risk_bound"] / plan["minimax"])
    some = json.loads(run("plan", path, "--set", "run.cohort=unreliable:2-4", "--json").stdout)
    assert "minimax" not in some


def test_a_key_that_is_a_word_for_other_methods_stays_one(written) -> None:
    """step_size is a number for noisy_mb_sgd, which a rule may give, and one of two words for scaffold."""
    text = (
        '[task]\nname = "synthetic"\n[algorithm]\nname = "scaffold"\nlocal_steps = 2\nlocal_lr = 0.5\n'
        'step_size = "corrected"\n[bound]\nclip = 1.0\n[run]\nrounds = 3\n[privacy]\nmechanism = "none"\n'
    )
    assert load_config(written(text)).file.algorithm.step_size == "corrected"


def test_a_rule_reads_what_another_rule_gives(written) -> None:
    constants = ("rules.beta_0=0.01", "rules.D=1.0", "rules.d=6", "rules.n=10", "rules.noise_std=3.0")
    changes = ("bound.smoothed_normalize=2.0", 'algorithm.beta="paper4-section-C.1.1"', *constants)
    file = written(EF.format(rule="paper4-theorem-1"))
    given = load_config(file, changes).file.algorithm
    assert given.beta == pytest.approx(0.01 * 64 ** (-2 / 3))
    assert given.server_lr == pytest.approx(given.beta * 3 / (5 * 2))  # beta R / ((alpha + R) L_max)
    with pytest.raises(InvalidInput) as refused:
        load_config(file, (*changes, "rules.beta=0.9"))
    assert refused.value.field.endswith("[rules] beta")
