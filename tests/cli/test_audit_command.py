"""`sordino audit` as a user runs it: sound noise passes, too little noise and a false theorem are shown.

A sound release is shown to be unsound with probability 1e-3 (1 - confidence) over fresh seeds; the seeds are fixed.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import sordino as so
from sordino.errors import InvalidInput
from sordino.privacy.events import Gaussian
from sordino.rounds.auditing import audit_release
from sordino.tasks import Population
from sordino.types import Observer

D, CLIENTS = 4, 20
CONFIG = """\
[task]
name = "quadratics"
clients = 20
options = { d = 4, rank = 2 }

[algorithm]
name = "fedavg"
local_steps = 1
local_lr = 0.1

[bound]
clip = 2.0

[privacy]
delta = 1e-2
PRIVACY

[run]
rounds = 3
"""
QTDL = 'trust = "local"\nmechanism = "qtdl"\nmessage_epsilon = 1.0\nmessage_delta = 1e-3\nlevels = 4\n'
SOUND = {
    "gaussian": "noise_multiplier = 0.7",
    "gaussian, replace-one": 'noise_multiplier = 0.7\nrelation = "replace-one"',
    "local gaussian": 'noise_multiplier = 0.7\ntrust = "local"',
    "laplace": 'mechanism = "laplace"\nnoise_multiplier = 0.5',
    **{f"qtdl, {noise}": QTDL + f'noise = "{noise}"' for noise in ("gaussian", "truncated-laplace", "laplace")},
}


@pytest.fixture
def file(tmp_path: Path):
    def written(privacy: str) -> str:
        path = tmp_path / "cfg.toml"
        path.write_text(CONFIG.replace("PRIVACY", privacy))
        return str(path)

    return written


@pytest.mark.parametrize("name", SOUND)
def test_sound_noise_passes(run, file, name):
    data = json.loads(run("audit", file(SOUND[name]), "--json").stdout)
    assert data["consistent"] is True
    assert 0.1 < data["audited_epsilon"] <= data["epsilon_certified"]
    assert (data["parameters"], data["releases_drawn"], data["delta"]) == (D, 80_000, 1e-2)
    assert data["observer"] == ("server" if "local" in SOUND[name] else "model user")
    assert data["unit"] == "client"
    assert data["accountant"]
    assert ("its negative" in data["neighbours"]) == (data["relation"] == "replace-one")
    assert data["epsilon_claimed"] is None


def test_the_certified_figure_is_that_of_one_round(run, file):
    path = file(SOUND["gaussian"])
    data = json.loads(run("audit", path, "--trials", "100", "--json").stdout)
    rounds = {row["scope"]: row for row in json.loads(run("plan", path, "--json").stdout)["guarantees"][-2:]}
    assert rounds["one round"]["observer"] == "model user"
    assert data["epsilon_certified"] == rounds["one round"]["epsilon"] < rounds["all rounds"]["epsilon"]
    text = run("audit", path, "--trials", "100").stdout
    assert "of one round, not the whole run" in text


def test_one_round_never_stands_without_the_total_and_what_both_rest_on(run, file):
    path = file(SOUND["gaussian"])
    data = json.loads(run("audit", path, "--trials", "100", "--json").stdout)
    planned = json.loads(run("plan", path, "--json").stdout)
    one, total = data["guarantees"]
    assert one in planned["guarantees"]
    assert total in planned["guarantees"]
    assert (one["scope"], total["scope"], total["rounds"], data["rounds"]) == ("one round", "all rounds", 3, 3)
    assert data["epsilon_over_all_rounds"] == total["epsilon"] > data["epsilon_certified"] == one["epsilon"]
    assert total["assumptions"]
    assert data["warnings"] == planned["warnings"]
    text = run("audit", path, "--trials", "100").stdout
    for over in ("in one round", "over all 3 rounds"):
        (line,) = (line for line in text.splitlines() if line.startswith(f"model user, {over}: epsilon = "))
        assert "delta = 0.01 for one client of 20 (add-remove; exact Gaussian); assuming the server adds" in line


def test_theorem_1_of_qtdl_is_shown_to_be_false(run, file):
    result = run("audit", file(QTDL + 'noise = "theorem-1"'), "--trials", "4000", "--json", code=1)
    data = json.loads(result.stdout)
    assert (data["consistent"], data["epsilon_claimed"], data["delta"]) == (False, 1.0, 2.0**-D)
    assert data["audited_epsilon"] > 1.0
    assert "no-valid-guarantee" in {warning["code"] for warning in data["warnings"]}
    assert result.stderr.startswith("violation: epsilon >= ")
    assert "more than the 1 claimed by the theorem" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def planned(**options):
    method = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(2.0))
    plan = so.plan(method, rounds=3, delta=1e-2, noise_multiplier=0.7, **options)
    return plan, plan.resolve(Population(D, CLIENTS))


def test_too_little_noise_is_shown():
    plan, resolved = planned()
    assert audit_release(plan, resolved, D, trials=20_000).consistent
    rules = dataclasses.replace(resolved.rules, mechanism=so.gaussian(0.6 * 0.7 * 2.0))
    quiet = dataclasses.replace(resolved, rules=rules)
    assert not audit_release(plan, quiet, D, trials=20_000).consistent


@pytest.mark.parametrize(("cohort", "relation"), [("poisson:0.1", "add-remove"), ("fixed:2", "replace-one")])
def test_a_secret_sample_is_part_of_what_is_audited(cohort, relation):
    """With it the audit passes; a client that always takes part is not what was certified."""
    plan, resolved = planned(cohort=cohort, relation=relation)
    found = audit_release(plan, resolved, D, trials=20_000)
    assert found.consistent
    assert found.sampling != "full"
    always = dataclasses.replace(resolved, releases=(("update", (Observer.MODEL_USER,), Gaussian(0.7)),))
    assert not audit_release(plan, always, D, trials=20_000).consistent


def test_the_seed_decides():
    plan, resolved = planned()
    one, same, other = (audit_release(plan, resolved, D, trials=1000, seed=seed).shown for seed in (1, 1, 2))
    assert one == same
    assert one != other


@pytest.mark.parametrize(
    ("privacy", "options", "words"),
    [
        ("", [], "nothing to audit"),
        (QTDL + "mu = 0.1", [], "leave out mu"),
        (SOUND["gaussian"], ["--trials", "3"], "trials = 3"),
        (SOUND["gaussian"], ["--confidence", "1"], "confidence = 1.0"),
    ],
)
def test_what_cannot_be_audited_is_one_line(run, file, privacy, options, words):
    result = run("audit", file(privacy), *options, code=2)
    assert words in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""


def test_python_callers_are_told_too():
    plan, resolved = planned()
    with pytest.raises(InvalidInput, match="trials"):
        audit_release(plan, resolved, D, trials=0)
