"""The run files of the hospitals: every hospital sees its own guarantee, and mistakes are one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sordino.cli.app import app

HEART = str(Path(__file__).parents[2] / "src/sordino/experiments/papers/paper2/runs/heart-eps1.toml")
HOSPITALS = {"cleveland": (203, 4.9e-6), "hungarian": (175, 5.7e-6), "switzerland": (31, 3.2e-5), "va": (88, 1.1e-5)}


@pytest.fixture(autouse=True)
def patients(needs):
    needs("heart-disease")


def plan(*arguments: str):
    return CliRunner().invoke(app, ["plan", HEART, *arguments])


def test_each_hospital_sees_its_own_guarantee():
    done = plan("--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    own = {g["client"]: g for g in said["guarantees"] if g["client"] and g["observer"] == "server"}
    assert set(own) == set(HOSPITALS)
    for name, (patients, delta) in HOSPITALS.items():
        guarantee = own[name]
        assert (guarantee["unit"], guarantee["relation"], guarantee["units"]) == ("record", "replace-one", patients)
        assert guarantee["delta"] == delta <= 1e-3 / patients
        assert guarantee["epsilon"] == pytest.approx(1.0, rel=1e-6)
        assert guarantee["scope"] == "all rounds"
    assert [row["client"] for row in said["each_client"]] == list(HOSPITALS)
    assert "features of norm at most 3.1623" in said["assumed"]


def test_in_words():
    done = plan()
    for name, (patients, delta) in HOSPITALS.items():
        line = f"server, over all 50 rounds: epsilon = 1.0000, delta = {delta:g} for one record of {patients} of {name}"
        assert line in done.output


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("algorithm.one_pass=true", "algorithm.batch_size=1"), "switzerland twice"),
        (("privacy.epsilon=[1.0, 2.0]",), "one for each of the 4 clients"),
        (("privacy.trust=central",), "use local, or shuffle"),
        (("privacy.calibration=acg16",), "is false"),
        (("bound.clip=1.0",), "lipschitz"),
    ],
)
def test_a_mistake_is_one_line(changes, words):
    done = plan(*(part for change in changes for part in ("--set", change)))
    assert done.exit_code != 0
    text = done.output + (done.stderr if done.stderr_bytes else "") + str(done.exception or "")
    assert words in text
