"""A run whose records are read from the disk by cohorts is the run with all of them in memory, to the last bit."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import sordino as so
from sordino.data.on_disk import open_records
from sordino.data.writing import write_data
from sordino.errors import InvalidInput
from sordino.planning import Plan
from sordino.planning.cohort import parse_cohort
from sordino.runs import Options, Point, Run, setup, streaming, sweep
from sordino.runs.streaming import sizes_of
from sordino.tasks import Task
from tests.toys import on_four_devices, toy

SIZES = tuple(np.random.default_rng(1).integers(1, 9, 60))
ROUNDS = 9


@pytest.fixture
def tasks(tmp_path, monkeypatch) -> tuple[Task, Task]:
    """The same records in memory and on the disk, of which a stretch holds few."""
    monkeypatch.setattr(streaming, "STRETCH", 1000)
    held = toy(sizes=SIZES)
    write_data(tmp_path / "kept", held.data)
    return held, so.task(f"disk:{tmp_path / 'kept'}", model="logistic")


def plan_of(method: str, cohort: str, rounds: int = ROUNDS) -> Plan:
    bound = so.clip(1.0)
    made = so.scaffold(local_steps=2, local_lr=0.5, bound=bound)
    if method == "fedavg":
        made = so.fedavg(local_steps=2, local_lr=0.5, bound=bound, batch_size=2)
    return so.plan(made, rounds=rounds, cohort=cohort, noise_multiplier=1.0, delta=1e-3)


def require_same(one: Run, other: Run) -> None:
    np.testing.assert_array_equal(one.iterates, other.iterates)
    assert one.history == other.history


CASES = [("scaffold", "fixed:5"), ("fedavg", "poisson:0.1"), ("fedavg", "unreliable:2=0.5,7=0.5"), ("scaffold", "full")]


@pytest.mark.parametrize(
    ("method", "cohort"), [CASES[0], *(pytest.param(*c, marks=pytest.mark.slow) for c in CASES[1:])]
)
def test_a_run(tasks, method, cohort):
    """Stretches of records end within segments of rounds, and segments within stretches."""
    _, kept = tasks
    sizes = sizes_of(kept.data.folder, parse_cohort(cohort), ROUNDS)
    assert sizes.rounds in (1, 2, 3)
    given: dict[str, Any] = {"seed": 3, "evaluate_every": 4, "iterates": True}
    one, other = (so.simulate(plan_of(method, cohort), task, **given) for task in tasks)
    require_same(one, other)
    assert not np.array_equal(one.iterates[0], one.iterates[-1])


def test_a_killed_run_goes_on(tasks, tmp_path, monkeypatch):
    _, kept = tasks
    plan = plan_of("scaffold", "fixed:5")
    given: dict[str, Any] = {"seed": 3, "evaluate_every": 2}
    whole = so.simulate(plan, kept, **given)

    def kill(row: dict[str, Any]) -> None:
        if row["round"] == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        so.simulate(plan, kept, folder=tmp_path / "run", progress=kill, **given)
    again = so.simulate(plan, kept, folder=tmp_path / "run", resume=True, **given)
    assert [row["test_loss"] for row in again.history] == [row["test_loss"] for row in whole.history]
    # On other records the noise of the rounds before would be used twice.
    data = toy(sizes=SIZES).data
    data.x[7] += 1
    write_data(tmp_path / "other", data)
    with pytest.raises(InvalidInput, match="resume"):
        so.simulate(plan, so.task(f"disk:{tmp_path / 'other'}"), folder=tmp_path / "run", resume=True, **given)


@pytest.mark.parametrize(("change", "words"), [("shorter", "shorter than when"), ("other", "has changed")])
def test_a_file_that_changes_during_a_run_is_an_error(tasks, change, words):
    _, kept = tasks
    path = kept.data.folder.path / "x.npy"

    def damage(row: dict[str, Any]) -> None:
        if row["round"] == 2 and change == "shorter":
            os.truncate(path, 200)
        elif row["round"] == 2:
            with path.open("r+b") as file:
                file.seek(128)
                file.write(bytes(path.stat().st_size - 128))

    with pytest.raises(InvalidInput, match=words):
        so.simulate(plan_of("scaffold", "fixed:5"), kept, seed=3, evaluate_every=2, progress=damage)


def test_a_cohort_that_does_not_fit_into_memory_is_refused(tasks, monkeypatch):
    monkeypatch.setattr(streaming, "_memory", lambda: 1000.0)
    with pytest.raises(InvalidInput, match=r"cohort.*GiB of memory.*fixed:K"):
        so.simulate(plan_of("scaffold", "full"), tasks[1], seed=0)


def test_what_needs_all_records_is_refused(tasks):
    options = Options(training_loss=True)
    with pytest.raises(InvalidInput, match=r"training_loss.*stay on the disk"):
        sweep([Point(plan_of("fedavg", "fixed:5"), 0)], tasks[1], options)


@pytest.mark.parametrize("cohort", ["fixed:3", "poisson:0.05", "full", "unreliable:1-4"])
def test_a_stretch_has_room_for_what_is_drawn(tmp_path, cohort, monkeypatch):
    """Also where a few clients hold most of the records."""
    monkeypatch.setattr(streaming, "STRETCH", 4000)
    write_data(tmp_path / "kept", toy(sizes=(500, 1, 1, 300, *[2] * 40)).data)
    folder = open_records(tmp_path / "kept").folder
    sizes = sizes_of(folder, parse_cohort(cohort), 100)
    assert sizes.rounds is not None
    clients = min(len(folder.size), sizes.rounds * parse_cohort(cohort).capacity(len(folder.size)))
    assert sizes.clients == clients
    assert sizes.rows >= np.sort(folder.size)[-clients:].sum() or sizes.rows > 10 * clients * folder.size.mean()
    assert sizes_of(folder, parse_cohort(cohort), 1).rounds == 1
    monkeypatch.setattr(streaming, "STRETCH", 2**20)
    assert sizes_of(folder, parse_cohort(cohort), 100) == (None, 44, int(folder.size.sum()))


@pytest.mark.slow
def test_more_records_than_there_is_room_for_are_read_all_the_same(tasks, monkeypatch):
    """The room is a bound that is exceeded hardly ever; then a stretch is longer."""
    monkeypatch.setattr(streaming, "_rows", lambda size, clients: 3)
    given: dict[str, Any] = {"seed": 3, "evaluate_every": 3, "iterates": True}
    one, other = (so.simulate(plan_of("scaffold", "fixed:5", 3), task, **given) for task in tasks)
    require_same(one, other)


@pytest.mark.slow
def test_a_sweep_and_a_transcript(tasks):
    """Points of one seed share what is read; seeds are read one after another."""
    points = [
        Point(so.plan(so.fedavg(local_steps=2, local_lr=lr, bound=so.clip(1.0)), rounds=6, cohort="fixed:5"), seed)
        for lr in (0.1, 0.5)
        for seed in (1, 2)
    ]
    options = Options(evaluate_every=3, iterates=True)
    for one, other in zip(*(sweep(points, task, options) for task in tasks), strict=True):
        require_same(one, other)
    one, other = (so.simulate(points[0].plan, task, seed=1, transcript=True) for task in tasks)
    for mine, theirs in zip(one.transcript, other.transcript, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(a, b)


def same_on_all_devices(folder: str) -> bool:
    """Whether records in memory and on the disk give the same run on the devices of this process."""
    setup.SMALL, streaming.STRETCH = 0.0, 1000
    tasks = toy(sizes=SIZES), so.task(f"disk:{folder}", model="logistic")
    plan = plan_of("scaffold", "fixed:6", 5)
    assert setup.devices_for(tasks[1], plan) == 4
    one, other = (so.simulate(plan, task, seed=1, iterates=True) for task in tasks)
    return bool((one.iterates == other.iterates).all())


@pytest.mark.slow
def test_on_several_devices(tmp_path):
    write_data(tmp_path / "kept", toy(sizes=SIZES).data)
    expression = f"module.same_on_all_devices({str(tmp_path / 'kept')!r})"
    assert on_four_devices("tests.parity.test_streaming", expression) is True


def test_a_cohort_of_nobody_reads_nothing(tasks):
    """Some of these rounds have no client at all."""
    require_same(*(so.simulate(plan_of("fedavg", "poisson:0.01"), task, seed=3, iterates=True) for task in tasks))
