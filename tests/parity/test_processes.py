"""A run in two processes is the run in one, and processes that differ do not begin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sordino as so
from sordino.data.writing import write_data
from sordino.errors import InvalidInput
from sordino.runs import Options, streaming
from sordino.runs.processes import Group
from tests.parity.together import in_processes, results, task_of


def require_close(one: Any, other: Any) -> None:
    """Numbers within 1e-5, all else the same."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            require_close(one[key], other[key])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            require_close(*pair)
    elif isinstance(one, float):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)
    else:
        assert one == other


def without_names(value: Any) -> Any:
    """A ledger without what belongs to one run: its name, digests, times, and the hashes that chain its lines."""
    if isinstance(value, dict):
        own = {"run", "files", "seconds", "hash", "previous", "time"}
        return {key: without_names(each) for key, each in value.items() if key not in own}
    if isinstance(value, list):
        return [without_names(each) for each in value]
    return "run" if isinstance(value, str) and value.startswith("run ") else value


def compare(names: list[str], folder: Path) -> None:
    one = results(names, str(folder))
    leader, other = in_processes(names, folder)
    assert (leader.returncode, other.returncode) == (0, 0), leader.stdout + leader.stderr + other.stdout + other.stderr
    assert other.stdout.count("{") == 0
    two = json.loads(leader.stdout.splitlines()[-1])
    for name in names:
        require_close(one[name]["model"], two[name]["model"])
        require_close(one[name]["rows"], two[name]["rows"])
        assert one[name]["certificate"] == two[name]["certificate"]
        assert without_names(one[name]["ledger"]) == without_names(two[name]["ledger"])


def test_two_processes_are_one(tmp_path):
    compare(["fedavg", "scaffold"], tmp_path / "run")


@pytest.mark.slow
def test_two_processes_are_one_with_random_cohorts_and_records(tmp_path):
    compare(["poisson", "records"], tmp_path / "run")


@pytest.mark.slow
def test_records_on_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "STRETCH", 1000)
    write_data(tmp_path / "run", task_of("fedavg").data)
    compare(["disk"], tmp_path / "run")


@pytest.mark.slow
def test_processes_with_other_records_do_not_begin(tmp_path):
    leader, other = in_processes(["fedavg"], tmp_path / "run", odd=True)
    for process in (leader, other):
        assert process.returncode == 3
        assert "InvalidInput: task = 'process 1': is not that of process 0" in process.stdout
    assert not (tmp_path / "run-fedavg-2").exists()


@pytest.mark.parametrize("given", [{"transcript": True}, {"training_loss": True}, {"unfinished": Path("x")}])
def test_what_needs_all_records_is_refused(given):
    (field,) = given
    with pytest.raises(InvalidInput, match=f"^{field} = "):
        Options(group=Group(0, 2), **given)


def test_several_points_are_refused():
    task = task_of("fedavg")
    plan = so.plan(so.fedavg(local_steps=1, local_lr=0.5, bound=so.clip(1.0)), rounds=1, noise_multiplier=1.0)
    points = [so.runs.Point(plan, seed) for seed in (1, 2)]
    with pytest.raises(InvalidInput, match="several processes run one point"):
        so.runs.sweep(points, task, Options(group=Group(0, 2)))
