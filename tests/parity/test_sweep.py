"""A sweep is its points: every one of them is what `simulate` makes of it, however they were put together."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

import sordino as so
from sordino.algorithms.fedavg import FedAvg
from sordino.errors import InvalidInput
from sordino.models import from_loss
from sordino.privacy.certification import certify_ledger
from sordino.pytrees import pytree
from sordino.runs import Options, OutOfTime, Point, RunStore, blocks, checkpoint, setup
from sordino.runs import sweep as run_points
from sordino.runs.blocks import Program, advance, make_blocks
from sordino.tasks import Task
from sordino.types import Method
from tests.toys import on_four_devices, toy

CLIENTS, ROUNDS = 10, 6
RATES, BOUNDS, SEEDS = (0.1, 0.5), (0.3, 1.0), (0, 3)

TASK = toy("mlp:4")
ADAM = optax.adam(0.1)


def fedavg(lr: float, C: float, **options: Any) -> Any:
    return so.fedavg(**{"local_steps": 2, "local_lr": lr, "bound": so.clip(C)} | options)


def plan(method: Any, **options: Any) -> Any:
    return so.plan(method, **{"rounds": ROUNDS, "noise_multiplier": 0.5} | options)


QTDL = {
    "trust": "local",
    "mechanism": "qtdl",
    "levels": 8,
    "message_epsilon": 5.0,
    "message_delta": 1e-3,
    "noise_multiplier": None,
}
KINDS = {
    "full": lambda lr, C: plan(fedavg(lr, C)),
    "poisson": lambda lr, C: plan(fedavg(lr, C, batch_size=2), cohort="poisson:0.4"),
    "fixed": lambda lr, C: plan(fedavg(lr, C), cohort="fixed:4"),
    "epsilon": lambda lr, C: plan(fedavg(lr, C), noise_multiplier=None, epsilon=10 * C, delta=1e-3),
    "local": lambda lr, C: plan(fedavg(lr, C), trust="local"),
    "local, sampled": lambda lr, C: plan(fedavg(lr, C), trust="local", cohort="poisson:0.4"),
    "qtdl": lambda lr, C: plan(fedavg(lr, C), **QTDL),
    "adaptive": lambda lr, C: plan(
        fedavg(lr, C, bound=so.adaptive_clip(C, indicator_noise_std=5.0)), noise_multiplier=0.2
    ),
    "momentum": lambda lr, C: plan(
        fedavg(
            {"start": lr, "decay": 0.9},
            C,
            momentum=lr,
            weight_decay=C / 10,
            server_momentum=lr,
            output="mean-of-last-two",
        )
    ),
    "optimiser": lambda lr, C: plan(fedavg(lr, C, server_optimiser=ADAM, server_lr=lr)),
    "remembered noise": lambda lr, C: plan(
        so.error_feedback(beta=C, server_lr=lr, bound=so.smoothed_normalize(0.1), batch_size=2, remember_noise=True),
        trust="local",
        cohort="poisson:0.4",
    ),
    "not private": lambda lr, C: so.plan(fedavg(lr, C, bound=None), rounds=ROUNDS),
}


def points_of(kind: str) -> list[Point]:
    return [Point(KINDS[kind](lr, C), seed) for lr in RATES for C in BOUNDS for seed in SEEDS]


def flat(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows whose values are plain numbers."""
    rows = [{**row, **row["not_private"]} for row in history]
    return [{name: math.inf if value == "inf" else value for name, value in row.items()} for row in rows]


def check_history(got: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert [row["round"] for row in got] == [row["round"] for row in expected]
    for row, right in zip(flat(got), flat(expected), strict=True):
        assert row.keys() == right.keys()
        for name, value in right.items():
            if name != "not_private" and (value is None or isinstance(value, str)):
                assert row[name] == value
            elif name != "not_private":
                assert row[name] == pytest.approx(value, rel=1e-5, abs=1e-5), name


def check(runs: list[Any], points: list[Point], task: Task = TASK, **options: Any) -> None:
    """Every run of the sweep against `simulate` of its point."""
    assert len(runs) == len(points)
    for run, point in zip(runs, points, strict=True):
        alone = so.simulate(point.plan, task, seed=point.seed, **options)
        check_history(run.history, alone.history)
        for leaf, right in zip(jax.tree.leaves(run.params), jax.tree.leaves(alone.params), strict=True):
            np.testing.assert_allclose(leaf, right, rtol=1e-5, atol=1e-5)
        assert run.certificate == alone.certificate
        assert run.diverged == alone.diverged


def sweep(points: list[Point], task: Task, **settings: Any) -> list[Any]:
    """`sordino.runs.sweep` with its options as keywords."""
    calls = {name: settings.pop(name) for name in ("progress", "finished") if name in settings}
    return run_points(points, task, Options(**settings), **calls)


def losses(runs: list[Any]) -> list[float]:
    return [run.history[-1]["test_loss"] for run in runs]


# --- Every point --------------------------------------------------------------------------------------------------


ALWAYS = ("poisson",)  # the other kinds compile for as long and are left to `make test-all`


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in ALWAYS else pytest.mark.slow) for kind in KINDS]
)
def test_every_point_is_what_simulate_makes_of_it(kind):
    points = points_of(kind)
    runs = sweep(points, TASK)
    matter = len(points) if kind != "not private" else len(points) / 2  # without a bound its values do not
    assert len({round(loss, 5) for loss in losses(runs)}) == matter
    check(runs, points)


@pytest.mark.slow
def test_evaluations_far_apart():
    points = [Point(plan(fedavg(lr, 0.3), rounds=12), 0) for lr in RATES]
    runs = sweep(points, TASK, evaluate_every=5)
    assert [row["round"] for row in runs[0].history] == [5, 8, 9, 10, 11, 12]
    check(runs, points, evaluate_every=5)


@pytest.mark.slow
def test_a_linear_model():
    """Linear models train in the span of their records, which is another program."""
    task = toy("logistic")
    points = points_of("poisson")
    check(sweep(points, task), points, task)


@pytest.mark.slow
def test_a_problem_without_classes():
    task = so.task("quadratics", clients=6, d=5, rank=3)
    points = points_of("full")[:4]
    runs = sweep(points, task)
    assert "suboptimality" in runs[0].history[-1]
    check(runs, points, task)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [(0, 0, 0, 1), (2, 1, 0, 1)], ids=str)
def test_seeds_that_have_not_the_same_numbers(seeds):
    """A seed with three rates and another with one; and every rate with a seed of its own."""
    points = [Point(KINDS["full"](lr, 0.3), seed) for lr, seed in zip((0.1, 0.2, 0.3, 0.4), seeds, strict=True)]
    check(sweep(points, TASK), points)


@pytest.mark.slow
def test_twice_the_same_point():
    points = [*points_of("full")[:2], points_of("full")[0]]
    runs = sweep(points, TASK)
    assert runs[0].history == runs[2].history
    check(runs, points)


@pytest.mark.slow
def test_different_structures_end_in_the_order_of_the_points():
    """Bounds, steps and rounds of different kinds, in no order; `finished` names each once."""
    plans = [
        plan(fedavg(0.1, 0.5)),
        plan(fedavg(0.1, 0.5, bound=so.normalize(0.5))),
        plan(fedavg(0.1, 0.5, local_steps=3)),
        plan(fedavg(0.2, 0.5)),
        plan(fedavg(0.2, 0.5), rounds=5),
        plan(fedavg(0.2, 0.5, bound=so.normalize(0.7))),
        plan(fedavg(0.2, 0.5, local_steps=3)),
    ]
    points = [Point(each, 0) for each in plans]
    seen: dict[int, Any] = {}

    def finished(number: int, run: Any) -> None:
        assert number not in seen
        seen[number] = run

    runs = sweep(points, TASK, finished=finished)
    assert [seen[number] for number in range(len(points))] == runs
    check(runs, points)


# --- However they are put together --------------------------------------------------------------------------------


def three_by_three() -> list[Point]:
    return [Point(KINDS["poisson"](lr, 0.5), seed) for lr in (0.1, 0.3, 0.5) for seed in (0, 1, 2)]


@pytest.fixture(scope="module")
def together() -> list[Any]:
    return sweep(three_by_three(), TASK)


@pytest.mark.parametrize(
    "options",
    [{"at_a_time": 2}, {"at_a_time": 5}, {"chunk": 1}, {"chunk": 7}]
    + [pytest.param(more, marks=pytest.mark.slow) for more in ({"at_a_time": 1}, {"at_a_time": 3}, {"chunk": 10})],
    ids=str,
)
def test_how_many_at_a_time_does_not_matter(together, options):
    """Two of three rates, and then two of three seeds, leave a batch that is filled up with what it has already."""
    shares: list[float] = []
    numbers: list[int] = []
    runs = sweep(
        three_by_three(), TASK, progress=shares.append, finished=lambda number, _: numbers.append(number), **options
    )
    for run, expected in zip(runs, together, strict=True):
        check_history(run.history, expected.history)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
    assert sorted(numbers) == list(range(9))


@pytest.mark.parametrize("at_a_time", [1, 2, 3, 4, 5, 6, 9])
def test_blocks_hold_every_point_and_are_not_too_large(at_a_time):
    points = three_by_three()
    made = make_blocks([point.for_task(TASK) for point in points], TASK, at_a_time=at_a_time)
    assert {number for block in made for number in block.points} == set(range(9))
    assert max(len(block.points) for block in made) <= at_a_time
    assert len({(block.spec, len(block.members), len(block.seeds)) for block in made}) == 1  # one program


@pytest.mark.slow
def test_iterates():
    points = points_of("full")[:3]
    for run, point in zip(sweep(points, TASK, iterates=True, at_a_time=2), points, strict=True):
        expected = so.simulate(point.plan, TASK, seed=point.seed, iterates=True).iterates
        assert run.iterates.shape == (ROUNDS, TASK.d)
        np.testing.assert_allclose(run.iterates, expected, rtol=1e-5, atol=1e-5)
    assert sweep(points, TASK)[0].iterates is None


def test_a_point_that_diverges_is_marked_and_disturbs_nobody():
    rates = (0.1, 1e38, 0.5)
    points = [
        Point(plan(fedavg(0.1, 0.5, server_lr=rate), noise_multiplier=5.0), seed) for rate in rates for seed in SEEDS
    ]
    runs = sweep(points, TASK)
    assert [run.diverged for run in runs] == [False, False, True, True, False, False]
    for number in (0, 1, 4, 5):
        check([runs[number]], [points[number]])
    assert all(so.simulate(points[number].plan, TASK, seed=points[number].seed).diverged for number in (2, 3))


@pytest.mark.parametrize("wrong", [{"at_a_time": 0}, {"chunk": 0}, {"chunk": -1}, {"evaluate_every": 0}], ids=str)
def test_bad_input(wrong):
    with pytest.raises(InvalidInput, match=f"^{next(iter(wrong))} = .*at least 1"):
        sweep(points_of("full"), TASK, **wrong)


# --- Killed ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def often(monkeypatch):
    """A checkpoint after every evaluation."""
    monkeypatch.setattr(checkpoint, "EVERY", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE", float("inf"))


@pytest.fixture
def segments_run(monkeypatch):
    """[start, stop) of every piece that is computed."""
    seen, real = [], Program.advance

    def spy(self, carry, start, stop):
        seen.append((start, stop))
        return real(self, carry, start, stop)

    monkeypatch.setattr(Program, "advance", spy)
    return seen


class Killed(BaseException):
    pass


def kill_after(share: float):
    def progress(done: float) -> None:
        if done >= share:
            raise Killed

    return progress


def test_a_block_that_was_killed_goes_on(tmp_path, often, segments_run):
    points = points_of("poisson")
    options = {"evaluate_every": 1, "at_a_time": len(points)}
    whole = sweep(points, TASK, **options)
    assert len(segments_run) == ROUNDS
    segments_run.clear()
    with pytest.raises(Killed):
        sweep(points, TASK, unfinished=tmp_path, progress=kill_after(0.5), **options)
    assert segments_run == [(0, 1), (1, 2), (2, 3)]
    again = sweep(points, TASK, unfinished=tmp_path, **options)
    assert segments_run[3:] == [(3, 4), (4, 5), (5, 6)]
    finished = sweep(points, TASK, unfinished=tmp_path, **options)
    assert len(segments_run) == ROUNDS  # nothing was left to do
    for runs in (again, finished):
        for run, right in zip(runs, whole, strict=True):
            assert run.history == right.history
            for leaf, expected in zip(jax.tree.leaves(run.params), jax.tree.leaves(right.params), strict=True):
                np.testing.assert_array_equal(leaf, expected)


def test_a_finished_block_keeps_its_model_and_no_memories(tmp_path, often, segments_run):
    """Half way all clients' memories are on disk; at the end there is nothing left to do with them."""
    method = so.error_feedback(beta=0.3, server_lr=0.5, bound=so.smoothed_normalize(0.2))
    points, options = [Point(so.plan(method, rounds=4), 0)], {"evaluate_every": 1, "unfinished": tmp_path}

    def kept():
        (path,) = tmp_path.glob("*.npz")
        with np.load(path) as saved:
            leaves = [saved[f"leaf{i}"] for i in range(int(saved["count"]))]
        return path.stat().st_size, [leaf for leaf in leaves if TASK.clients in leaf.shape], leaves[0]

    with pytest.raises(Killed):
        sweep(points, TASK, progress=kill_after(0.5), **options)
    size_half, memories_half, _ = kept()
    (run,) = sweep(points, TASK, **options)
    size, memories, model = kept()
    assert [leaf.any() for leaf in memories_half] == [True]
    assert [leaf.any() for leaf in memories] == [False]
    assert size < size_half
    (again,) = sweep(points, TASK, **options)
    assert again.history == run.history
    np.testing.assert_array_equal(ravel_pytree(again.params)[0], model.ravel())
    np.testing.assert_array_equal(ravel_pytree(run.params)[0], model.ravel())


def test_a_sweep_out_of_time_gets_one_evaluation_further_and_ends_alike(tmp_path, segments_run):
    """Checkpoints are as rare as usual, so that nothing but the deadline keeps blocks as short as these."""
    points = points_of("full")[:2]
    options = {"evaluate_every": 3, "at_a_time": 1, "unfinished": tmp_path}
    whole = sweep(points, TASK, evaluate_every=3, at_a_time=1)
    evaluations, seen = len(segments_run), {}
    segments_run.clear()
    for _ in range(evaluations - 1):
        with pytest.raises(OutOfTime):
            sweep(points, TASK, deadline=-math.inf, finished=seen.__setitem__, **options)
    assert list(seen) == [0]  # seen as soon as it was complete
    again = sweep(points, TASK, deadline=-math.inf, **options)
    assert len(segments_run) == evaluations
    assert [run.history for run in again] == [run.history for run in whole]
    with pytest.raises(InvalidInput, match=r"^deadline = .* needs a folder"):
        sweep(points, TASK, deadline=0.0)


def other_records() -> Task:
    return dataclasses.replace(TASK, data=TASK.data._replace(x=TASK.data.x + 1))


OTHERS = {
    "seed": (plan(fedavg(0.1, 1.0)), 1, TASK, 3),
    "rate": (plan(fedavg(0.2, 1.0)), 0, TASK, 3),
    "steps": (plan(fedavg(0.1, 1.0, local_steps=3)), 0, TASK, 3),
    "trust": (plan(fedavg(0.1, 1.0), trust="local"), 0, TASK, 3),
    "rounds": (plan(fedavg(0.1, 1.0), rounds=7), 0, TASK, 3),
    "evaluations": (plan(fedavg(0.1, 1.0)), 0, TASK, 1),
    "model": (plan(fedavg(0.1, 1.0)), 0, toy("mlp:5"), 3),
    "loss": (plan(fedavg(0.1, 1.0)), 0, toy(from_loss(TASK.model.init, lambda *a: 2 * TASK.model.loss(*a))), 3),
    "records": (plan(fedavg(0.1, 1.0)), 0, other_records(), 3),
}


COMPILED = ("steps", "trust", "model")  # programs of their own, left to `make test-all`


@pytest.mark.parametrize(
    "other", [pytest.param(other, marks=pytest.mark.slow if other in COMPILED else ()) for other in OTHERS]
)
def test_nothing_goes_on_from_another_block(tmp_path, often, segments_run, other):
    with pytest.raises(Killed):
        sweep([Point(plan(fedavg(0.1, 1.0)), 0)], TASK, evaluate_every=3, unfinished=tmp_path, progress=kill_after(0.5))
    assert list(tmp_path.iterdir())
    segments_run.clear()
    settled, seed, task, every = OTHERS[other]
    sweep([Point(settled, seed)], task, evaluate_every=every, unfinished=tmp_path)
    assert segments_run[0][0] == 0


def test_promises_are_never_taken_from_a_checkpoint(tmp_path, often, segments_run):
    point = Point(plan(fedavg(0.1, 1.0)), 0)
    kept = sweep([point], TASK, unfinished=tmp_path)[0]
    segments_run.clear()
    (path,) = tmp_path.iterdir()
    with np.load(path) as saved:
        arrays = dict(saved)
    note = json.loads(arrays["note"].tobytes())
    for row in note["rows"][0]:
        row["epsilon"] *= 0.01
        row["epsilon_of"] = "somebody else"
    np.savez(path, **arrays | {"note": np.frombuffer(json.dumps(note).encode(), np.uint8)})
    run = sweep([point], TASK, unfinished=tmp_path)[0]
    assert segments_run == []
    assert run.history == kept.history
    assert run.seconds >= note["seconds"]  # of the process that did the work


@pytest.mark.parametrize("harm", ["torn", "empty", "no rows", "fewer rows", "another state"])
def test_a_checkpoint_that_is_not_whole_counts_as_none(tmp_path, often, segments_run, harm):
    point = Point(plan(fedavg(0.1, 1.0)), 0)
    right = sweep([point], TASK, unfinished=tmp_path)[0]
    (path,) = tmp_path.iterdir()
    if harm in ("torn", "empty"):
        path.write_bytes(path.read_bytes()[: 1000 * (harm == "torn")])
    else:
        with np.load(path) as saved:
            kept = dict(saved)
        note = json.loads(kept["note"].tobytes())
        if harm == "fewer rows":
            note["rows"] = [history[:-1] for history in note["rows"]]
        elif harm == "no rows":
            note["rows"] = []
        else:
            kept["leaf0"] = kept["leaf0"][:-1]
        np.savez(path, **kept | {"note": np.frombuffer(json.dumps(note).encode(), np.uint8)})
    segments_run.clear()
    run = sweep([point], TASK, unfinished=tmp_path)[0]
    assert segments_run[0][0] == 0
    assert run.history == right.history


def test_skipped_points_do_not_change_who_runs_with_whom(tmp_path, often, segments_run):
    points = [Point(plan(fedavg(0.01 * (i + 1), 1.0)), 0) for i in range(5)]  # 0 and 1, 2 and 3, and 4
    whole = sweep(points, TASK, at_a_time=2, unfinished=tmp_path)
    segments_run.clear()
    numbers = []
    options = {"at_a_time": 2, "unfinished": tmp_path, "finished": lambda number, _: numbers.append(number)}
    rest = sweep(points, TASK, skip={0, 1}, **options)
    assert segments_run == []  # the same blocks, which are there
    assert numbers == [2, 3, 4]
    assert [run.history for run in rest] == [run.history for run in whole[2:]]


def test_a_point_that_is_missing_comes_out_as_before_to_the_last_bit():
    """It runs with the points that it ran with before: alone, sums would be added up in another order."""
    points = [Point(plan(fedavg(0.01 * (i + 1), 1.0)), 0) for i in range(4)]
    whole = sweep(points, TASK, evaluate_every=ROUNDS)
    seen: list[int] = []
    rest = sweep(points, TASK, evaluate_every=ROUNDS, skip={0, 1, 3}, finished=lambda number, _: seen.append(number))
    assert seen == [2]
    assert [run.history for run in rest] == [whole[2].history]
    np.testing.assert_array_equal(ravel_pytree(rest[0].params)[0], ravel_pytree(whole[2].params)[0])


def test_a_cpu_takes_few_points_at_a_time_and_one_seed(monkeypatch):
    points = [Point(plan(fedavg(0.01 * (i + 1), 1.0)), seed).for_task(TASK) for i in range(20) for seed in SEEDS]
    for most in (3, blocks.ON_A_CPU):
        monkeypatch.setattr(blocks, "ON_A_CPU", most)
        made = make_blocks(points, TASK)
        assert {len(block.seeds) for block in made} == {1}
        assert max(len(block.members) for block in made) <= most
        assert len({len(block.members) for block in made}) == 1  # of one size, so that they share a program
        assert {number for block in made for number in block.points} == set(range(len(points)))


GO_ON = """\
import sys
from pathlib import Path
from sordino.runs import checkpoint
from tests.parity.test_sweep import TASK, points_of, sweep
checkpoint.EVERY, checkpoint.SHARE = 0.0, float("inf")
sweep(points_of("optimiser"), TASK, unfinished=Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_a_block_is_known_again_in_another_process(tmp_path):
    root = Path(__file__).parents[2]
    for _ in range(2):
        subprocess.run([sys.executable, "-c", GO_ON, str(tmp_path)], cwd=root, check=True)
        left = sorted(tmp_path.iterdir())
        assert len(left) == len(SEEDS)  # one for each block, and not new ones the second time


def test_no_points():
    assert sweep([], TASK) == []


# --- Folders --------------------------------------------------------------------------------------------------------


def in_folders(points: list[Point], home: Path) -> list[Point]:
    return [dataclasses.replace(point, folder=home / str(number)) for number, point in enumerate(points)]


def test_every_point_has_the_files_of_a_run_and_a_ledger_that_certifies_it(tmp_path):
    points = in_folders(points_of("poisson")[:5], tmp_path)  # one of them alone, in a block filled up with itself
    runs = sweep(points, TASK, at_a_time=2)
    for point, run in zip(points, runs, strict=True):
        stored = RunStore.read(point.folder)
        assert stored.finished
        assert stored.metrics == run.history
        assert stored.certificate == run.certificate
        assert not (point.folder / "checkpoint.npz").exists()  # of the block
        model = np.concatenate([leaf.ravel() for leaf in so.load_model(stored.model_file).values()])
        assert sorted(model) == sorted(np.asarray(ravel_pytree(run.params)[0]))
        total = run.certificate.total("model user")
        assert certify_ledger(stored.ledger, total.delta).total("model user").epsilon == total.epsilon
    with pytest.raises(InvalidInput, match="nothing has been run here"):
        sweep(in_folders(points_of("poisson")[:1], tmp_path / "b"), TASK, resume=True)
    with pytest.raises(InvalidInput, match="exists already"):
        sweep(points, TASK, resume=False, at_a_time=2)


def test_a_sweep_with_folders_that_was_killed_goes_on(tmp_path, often, segments_run):
    points = in_folders(points_of("poisson")[:4], tmp_path)
    options = {"evaluate_every": 1, "at_a_time": 4}
    whole = sweep(points_of("poisson")[:4], TASK, **options)
    segments_run.clear()
    with pytest.raises(Killed):
        sweep(points, TASK, progress=kill_after(0.5), **options)
    assert not any(RunStore.read(point.folder).finished for point in points)
    again = sweep(points, TASK, **options)
    assert segments_run == [(i, i + 1) for i in range(ROUNDS)]
    for point, run, right in zip(points, again, whole, strict=True):
        assert run.history == right.history == RunStore.read(point.folder).metrics
        assert RunStore.read(point.folder).ledger.rounds() == ROUNDS
    changed = dataclasses.replace(points[0], seed=99)
    with pytest.raises(InvalidInput, match="seed, records"):
        sweep([changed, *points[1:]], TASK, **options)


# --- Clients that remember ----------------------------------------------------------------------------------------


@pytree
@dataclass(frozen=True)
class Remembering(Method):
    """FedAvg whose clients send a decaying sum of their own messages: they keep a vector between rounds."""

    inner: FedAvg
    rate: Any

    bound = None

    def init_server(self, w: Any) -> Any:
        return self.inner.init_server(w)

    def init_client(self, w: Any) -> Any:
        return jnp.zeros_like(w)

    def broadcast(self, state: Any) -> Any:
        return self.inner.broadcast(state)

    def client(self, key: Any, received: Any, state: Any, data: Any) -> Any:
        message, _, info = self.inner.client(key, received, (), data)
        state = self.rate * state + message.vector
        return message._replace(vector=state), state, info

    def server(self, key: Any, state: Any, total: Any) -> Any:
        return self.inner.server(key, state, total)

    def params(self, state: Any) -> Any:
        return self.inner.params(state)

    def resolve(self, context: Any) -> Any:
        return dataclasses.replace(self, inner=self.inner.resolve(context))


@pytest.mark.parametrize("options", [{"chunk": 3}, {"at_a_time": 1}], ids=str)
def test_clients_that_remember(options):
    """States of clients lie in the order (seed, client, run); only those who come write theirs."""
    points = [
        Point(so.plan(Remembering(fedavg(lr, 0.5), rate), rounds=ROUNDS, cohort="poisson:0.4"), seed)
        for lr in RATES
        for rate in (0.5, 0.9)
        for seed in SEEDS
    ]
    runs = sweep(points, TASK, **options)
    assert len({round(loss, 5) for loss in losses(runs)}) == len(points)
    check(runs, points)


# --- Several devices ----------------------------------------------------------------------------------------------


def on_all_devices() -> list[list[float]]:
    """Test losses of sweeps that take all devices that there are, however small the work."""
    setup.SMALL = 0.0
    return [
        [row["test_loss"] for run in sweep(points_of(kind), TASK, **options) for row in run.history]
        for kind, options in (("poisson", {}), ("qtdl", {"chunk": 2, "at_a_time": 3}), ("remembered noise", {}))
    ]


@pytest.mark.slow
def test_four_devices_are_one():
    of_four = on_four_devices("tests.parity.test_sweep", "module.on_all_devices()")
    for four, one in zip(of_four, on_all_devices(), strict=True):
        np.testing.assert_allclose(four, one, rtol=1e-5, atol=1e-5)


# --- How many programs --------------------------------------------------------------------------------------------


def counted(points: list[Point], **options: Any) -> tuple[int, int]:
    """(times that the loss was traced, programs that were compiled) in a sweep over a task of its own."""
    traces = []
    model = TASK.model

    def loss(params: Any, batch: Any) -> Any:
        traces.append(1)
        return model.loss(params, batch)

    # A loss that is not known would be traced once more, to see what it makes of padding.
    task = toy(from_loss(model.init, loss, model.predict)._replace(leaves_padding_out=True))
    programs = advance._cache_size()
    sweep(points, task, **options)
    return len(traces), advance._cache_size() - programs


@pytest.mark.slow
def test_traced_values_share_one_program():
    """Rates, bounds, noise, seeds; batches that do not come out even, and evaluations that lie closer at the end."""

    def point(lr: float, C: float, z: float, seed: int) -> Point:
        return Point(plan(fedavg(lr, C, server_lr=2 * lr, momentum=lr), rounds=12, noise_multiplier=z), seed)

    once, programs = counted([point(0.1, 0.5, 1.0, 0)], evaluate_every=12)
    assert once > 0
    assert programs == 1
    many = [
        point(lr, C, z, seed)
        for lr in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
        for C in (0.5, 1.0)
        for z in (0.5, 2.0)
        for seed in (0, 1, 2)
    ]
    assert counted(many, evaluate_every=5, at_a_time=11) == (once, 1)


def test_static_values_do_not():
    """The same count for what is part of a program, so that the count above can fail."""
    once, _ = counted([Point(plan(fedavg(0.1, 0.5)), 0)])
    points = [Point(plan(fedavg(lr, 0.5, local_steps=steps)), 0) for lr in RATES for steps in (2, 3)]
    traces, programs = counted(points)
    assert programs == 2
    assert traces > once
