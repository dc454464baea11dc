"""A run that is killed and resumed, again and again, is the run that was never stopped."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.errors import InvalidInput
from sordino.privacy import wording
from sordino.privacy.accountants import epsilon_of
from sordino.privacy.certification import certify_ledger
from sordino.privacy.events import Composed
from sordino.privacy.ledger import read_ledger
from sordino.runs import Run, RunStore, SweepStore, blocks, checkpoint, setup
from sordino.runs.agreement import compare_run
from sordino.runs.blocks import Program
from sordino.types import Relation
from tests.toys import toy

CONFIG = """\
[task]
name = "digits"
clients = 12
partition = "quantity:1.0"

[algorithm]
name = "fedavg"
local_steps = 2
local_lr = 0.5
batch_size = 16
server_momentum = 0.5
output = "random"

[bound]
clip = 1.0

[privacy]
noise_multiplier = 1.0
delta = 1e-4

[run]
rounds = 60
seed = 0
cohort = "unreliable:5-10"
evaluate_every = 2
"""


# Checkpoints are rare; with "often" there is one after every evaluation.
COMMAND = """\
import sys
from sordino.cli import main
from sordino.runs import checkpoint
if sys.argv.pop(1) == "often":
    checkpoint.EVERY, checkpoint.SHARE = 0.0, float("inf")
main()
"""


def command(folder: Path, name: str, *, resume: bool, checkpoints: str = "often") -> subprocess.Popen:
    """`sordino run`, as a process of its own that can be killed."""
    arguments = ["run", str(folder / "cfg.toml"), "--runs", str(folder), "--name", name, *["--resume"] * resume]
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, checkpoints, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )


def finish(process: subprocess.Popen) -> None:
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def check_books(run: Path) -> None:
    """Whatever has been measured has been entered first, for every observer."""
    entered = read_ledger(run / "ledger.jsonl").rounds("model user")
    metrics = run / "metrics.jsonl"
    whole = metrics.read_text().rpartition("\n")[0].splitlines() if metrics.exists() else []
    assert all(json.loads(line)["round"] <= entered for line in whole)


def killed_and_resumed(folder: Path, kills: int, seed: int) -> None:
    """Two runs, one of them killed at random moments: while it starts, between lines of its ledger, or at any time."""
    rng = random.Random(seed)
    (folder / "cfg.toml").write_text(CONFIG)
    finish(command(folder, "whole", resume=False, checkpoints="rare"))
    run = folder / "torn"
    ledger = run / "ledger.jsonl"
    segments = lines(folder / "whole" / "ledger.jsonl") - 2  # without beginning and end
    moments = sorted(rng.sample(range(1, segments), kills - 1))  # lines of the ledger
    survived = 0
    for life, moment in enumerate((0, *moments)):
        # A user resumes whenever there is something to resume.
        process = command(folder, "torn", resume=ledger.exists(), checkpoints="often" if life % 2 else "rare")
        if moment == 0:
            time.sleep(rng.uniform(0.1, 1.5))
        while process.poll() is None and lines(ledger) < moment:
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.02))
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
        assert process.returncode in (-signal.SIGKILL, 0), errors
        survived += process.returncode == 0
        if ledger.exists():
            check_books(run)
    assert survived < kills / 2, "the kills came too late to mean anything"
    finish(command(folder, "torn", resume=ledger.exists()))
    check_same(folder / "whole", run)


def check_same(whole: Path, torn: Path) -> None:
    assert (torn / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    expected, got = (so.load_model(run / "model.safetensors") for run in (whole, torn))
    assert expected.keys() == got.keys()
    for name in expected:
        np.testing.assert_array_equal(got[name], expected[name])
    records = [read_ledger(run / "ledger.jsonl") for run in (whole, torn)]
    for observer in ("server", "model user"):
        spent = [record.spent(observer) for record in records if not record.recovered]
        assert len(set(spent)) <= 1
    assert {record.rounds() for record in records} == {60}


@pytest.mark.slow
def test_killed_twice(tmp_path):
    killed_and_resumed(tmp_path, kills=2, seed=0)


@pytest.mark.slow
def test_killed_twenty_times(tmp_path):
    killed_and_resumed(tmp_path, kills=20, seed=1)


# --- Every moment between two writes, without processes -----------------------------------------------------------


class Killed(BaseException):
    """Not an Exception: nobody catches it."""


def small_run(folder: Path, *, resume: bool = False, rounds: int = 3) -> Run:
    method = so.fedavg(local_steps=1, local_lr=0.5, bound=so.clip(1.0), server_momentum=0.5)
    plan = so.plan(method, rounds=rounds, noise_multiplier=1.0)
    return so.simulate(plan, TASK, folder=folder, resume=resume, evaluate_every=2)


def test_promises_are_never_taken_from_metrics(tmp_path):
    """Rows that another version, or another hand, has written: what was spent is computed anew."""
    whole = small_run(tmp_path / "run")
    path = tmp_path / "run" / "metrics.jsonl"
    right = path.read_text()
    rows = [json.loads(line) for line in right.splitlines()]
    for row in rows:
        row["epsilon"] *= 0.01
        del row["epsilon_of"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    again = small_run(tmp_path / "run", resume=True)
    for key in ("epsilon", "epsilon_of"):
        assert [row[key] for row in again.history] == [row[key] for row in whole.history]
    written = [json.loads(line) for line in path.read_text().splitlines()]
    assert written == [json.loads(line) for line in right.splitlines()]


TASK = so.task("digits", clients=6)


@pytest.fixture
def often(monkeypatch):
    """A checkpoint after every evaluation."""
    monkeypatch.setattr(checkpoint, "EVERY", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE", float("inf"))


def test_every_moment(tmp_path, often, monkeypatch):
    """Killed before the first, the second, ... file is made durable or renamed: the same run in the end.

    Among these moments are those while the folder and its ledger are created, those before the first checkpoint, and
    those between the last round and the end.
    """
    monkeypatch.setattr(secrets, "randbits", lambda bits: 2**bits - 3)  # fresh seeds, but the same ones
    whole = small_run(tmp_path / "whole")
    before = 0
    for step in itertools.count(1):
        folder, calls = tmp_path / str(step), itertools.count(1)

        def deadly(real, step=step, calls=calls):
            def call(*arguments):
                if next(calls) == step:
                    raise Killed
                return real(*arguments)

            return call

        with pytest.MonkeyPatch.context() as patch:
            for name in ("fsync", "replace"):
                patch.setattr(os, name, deadly(getattr(os, name)))
            try:
                small_run(folder)
                break  # nothing was left to kill
            except Killed:
                pass
        there = (folder / "ledger.jsonl").exists()
        before += not there
        if there:
            check_books(folder)
            assert RunStore.read(folder).finished is False
        torn = small_run(folder, resume=there)
        assert torn.history == whole.history
        for got, expected in zip(jax.tree.leaves(torn.params), jax.tree.leaves(whole.params), strict=True):
            np.testing.assert_array_equal(got, expected)
        files = [run / "metrics.jsonl" for run in (tmp_path / "whole", folder)]
        assert files[0].read_bytes() == files[1].read_bytes()
        record = read_ledger(folder / "ledger.jsonl")
        assert record.spent("model user") == read_ledger(tmp_path / "whole" / "ledger.jsonl").spent("model user")
        assert RunStore.read(folder).finished
        assert record.finish is not None
        assert compare_run(folder).disagreements == ()
    assert 0 < before < step - 10


def test_a_run_goes_on_in_a_pipe_that_began_on_a_terminal(tmp_path, monkeypatch):
    """JAX prints programs in colours on a terminal, which must not change what a loss is known by."""
    whole = small_run(tmp_path / "run")
    monkeypatch.setattr("jax._src.pretty_printer.CAN_USE_COLOR", True)  # decided when JAX is imported
    assert small_run(tmp_path / "run", resume=True).history == whole.history


def test_rounds_are_entered_before_they_run(tmp_path, monkeypatch):
    """Were the ledger written after a segment, a crash in between would hide what was released."""
    entered = []
    advance = Program.advance

    def spy(self, state, start, stop):
        entered.append(read_ledger(tmp_path / "run" / "ledger.jsonl").rounds("model user") >= stop)
        return advance(self, state, start, stop)

    monkeypatch.setattr(Program, "advance", spy)
    small_run(tmp_path / "run")
    assert entered
    assert all(entered)


def test_a_long_run_has_few_durable_entries(tmp_path):
    method = so.dp_sgd(server_lr=0.1, bound=so.clip(1.0))
    plan = so.plan(method, rounds=42_000, noise_multiplier=50.0, delta=1e-3, trust="local")
    run = so.simulate(plan, toy(), folder=tmp_path / "run")
    assert lines(tmp_path / "run" / "ledger.jsonl") <= len(run.history) + 2 < 30  # its beginning and its end
    record = read_ledger(tmp_path / "run" / "ledger.jsonl")
    assert record.rounds() == 42_000
    assert certify_ledger(record, 1e-3).total("server") == run.certificate.total("server")


def test_a_checkpoint_saves_the_rounds_before_it(tmp_path, monkeypatch, often):
    ran = []
    advance = Program.advance

    def spy(self, state, start, stop):
        if start == 2 and not ran[2:]:
            ran.append("killed")
            raise Killed
        ran.append((start, stop))
        return advance(self, state, start, stop)

    monkeypatch.setattr(Program, "advance", spy)
    with pytest.raises(Killed):
        small_run(tmp_path / "run")
    small_run(tmp_path / "run", resume=True)
    assert ran == [(0, 1), (1, 2), "killed", (2, 3)]


@pytest.mark.parametrize("step", ["advance", "measure"])  # before the third round, or between it and its figures
def test_ctrl_c_keeps_the_rounds_that_are_done(tmp_path, monkeypatch, step):
    calls, ran = [], []
    really, advance = getattr(Program, step), Program.advance

    def interrupted(self, *args):
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return really(self, *args)

    def noted(self, state, start, stop):
        ran.append((start, stop))
        return advance(self, state, start, stop)

    with monkeypatch.context() as patch:
        patch.setattr(Program, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            small_run(tmp_path / "run")
    before = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert before.count("\n") == 2
    monkeypatch.setattr(Program, "advance", noted)
    small_run(tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "metrics.jsonl").read_text().startswith(before)
    assert ran == [(2, 3)]


@pytest.mark.parametrize("damage", [b"", b"nonsense"])
def test_a_checkpoint_that_cannot_be_read_counts_as_none(tmp_path, damage):
    """It only saves time: the rounds run again, and end alike."""
    whole = small_run(tmp_path / "run")
    before = (tmp_path / "run" / "ledger.jsonl").read_bytes()
    (tmp_path / "run" / "checkpoint.npz").write_bytes(damage)
    assert small_run(tmp_path / "run", resume=True).history == whole.history
    assert (tmp_path / "run" / "ledger.jsonl").read_bytes() == before


def test_lost_metrics_are_written_anew(tmp_path):
    whole = small_run(tmp_path / "run")
    path = tmp_path / "run" / "metrics.jsonl"
    before = path.read_bytes()
    for damage in (b"", before + b'{"round": 5, "test', b"no JSON\n" + before):
        path.write_bytes(damage)
        assert small_run(tmp_path / "run", resume=True).history == whole.history
        assert path.read_bytes() == before


def test_what_a_folder_holds(tmp_path):
    run = small_run(tmp_path / "run")
    stored = RunStore.read(tmp_path / "run")
    assert stored.finished
    assert stored.config is None
    assert stored.metrics == run.history
    assert stored.certificate == run.certificate
    assert stored.ledger.rounds() == 3
    assert stored.environment["seed"] is None  # a fresh one is not named
    assert so.load_model(stored.model_file).keys()
    with pytest.raises(InvalidInput, match="check the path"):
        RunStore.read(tmp_path / "elsewhere")


def test_a_torn_line_of_a_sampled_run_can_be_certified(tmp_path):
    """It counts for a model user as a private release, not as what the server would have seen."""
    method = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(1.0))
    planned = so.plan(method, rounds=4, noise_multiplier=1.0, cohort="poisson:0.2", delta=1e-4)
    task = so.task("digits", clients=20)
    run = so.simulate(planned, task, folder=tmp_path / "run")
    with (tmp_path / "run" / "ledger.jsonl").open("ab") as ledger:
        ledger.write(b'{"event"')
    so.simulate(planned, task, folder=tmp_path / "run", resume=True)
    found = {
        each.observer: each for each in certify_ledger(read_ledger(tmp_path / "run" / "ledger.jsonl"), 1e-4).guarantees
    }
    planned_total = run.certificate.total("model user").epsilon
    assert found.keys() == {so.Observer.SERVER, so.Observer.MODEL_USER}
    assert planned_total < found[so.Observer.MODEL_USER].epsilon < 3 * planned_total
    assert found[so.Observer.SERVER].epsilon == float("inf")


def test_another_plan_is_not_resumed(tmp_path):
    """Rounds that ran under one relation or method are not taken up again under another."""
    task = so.task("digits")
    method = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(1.0))
    planned = so.plan(method, rounds=1, noise_multiplier=1.0, relation="replace-one")
    so.simulate(planned, task, folder=tmp_path / "run")
    other_method = so.fedavg(local_steps=2, local_lr=0.1, bound=so.clip(1.0))
    for other in (
        so.plan(method, rounds=1, noise_multiplier=1.0, relation="add-remove"),
        so.plan(other_method, rounds=1, noise_multiplier=1.0, relation="replace-one"),
    ):
        with pytest.raises(InvalidInput, match="another configuration"):
            so.simulate(other, task, folder=tmp_path / "run", resume=True)


def test_other_records_are_not_resumed(tmp_path):
    """Rounds that run again draw the same noise: on other records the difference of the two releases has none."""
    method = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(1.0))
    planned = so.plan(method, rounds=2, noise_multiplier=1.0)
    so.simulate(planned, TASK, folder=tmp_path / "run")
    changed = TASK.data._replace(y=TASK.data.y[::-1].copy())
    with pytest.raises(InvalidInput, match="chunk or devices have changed since"):
        so.simulate(planned, dataclasses.replace(TASK, data=changed), folder=tmp_path / "run", resume=True)
    so.simulate(planned, dataclasses.replace(TASK), folder=tmp_path / "run", resume=True)
    (tmp_path / "run" / "records.sha256").unlink()
    with pytest.raises(InvalidInput, match=r"records\.sha256 is missing"):
        so.simulate(planned, TASK, folder=tmp_path / "run", resume=True)


def test_another_seed_is_not_resumed_and_stands_nowhere_in_the_ledger(tmp_path, monkeypatch):
    """The ledger may be handed on: who knows the seed takes the noise off, and sizes of clients are private."""
    method = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(1.0))
    monkeypatch.setattr(setup, "CACHE", 2.0**22)  # room for all six clients, but not for one with all records
    planned = so.plan(method, rounds=2, noise_multiplier=1.0)
    headers = []
    for seed in (987_654_321, 987_654_322):
        folder = tmp_path / str(seed)
        so.simulate(planned, TASK, folder=folder, seed=seed)
        assert str(seed) not in (folder / "ledger.jsonl").read_text()
        headers.append(read_ledger(folder / "ledger.jsonl").description)
        with pytest.raises(InvalidInput, match="chunk or devices have changed since"):
            so.simulate(planned, TASK, folder=folder, seed=seed + 5, resume=True)
        so.simulate(planned, TASK, folder=folder, seed=seed, resume=True)
    assert headers[0].pop("run") != headers[1].pop("run")
    assert headers[0] == headers[1]
    # One client with nearly all: fewer are trained at a time then, which must not show either.
    others = TASK.clients - 1
    moved = np.array([len(TASK.data.y) - others, *[1] * others], np.int32)
    start = (np.cumsum(moved) - moved).astype(np.int32)
    so.simulate(
        planned,
        dataclasses.replace(TASK, data=TASK.data._replace(start=start, size=moved)),
        folder=tmp_path / "c",
        seed=1,
    )
    other = read_ledger(tmp_path / "c" / "ledger.jsonl").description
    other.pop("run")
    assert other == headers[0]


def test_runs_of_one_pass_go_through_the_records_anew_whatever_their_seed(tmp_path):
    method = so.noisy_mb_sgd(lipschitz=1.0, radius=1.0, smoothness=1.0, batch_size=1, one_pass=True)
    planned = so.plan(method, rounds=2, noise_multiplier=5.0, delta=1e-4, trust="local")
    for name in ("a", "b"):
        so.simulate(planned, TASK, folder=tmp_path / name, seed=3)
    so.simulate(planned, TASK, folder=tmp_path / "a", seed=3, resume=True)
    spent = [read_ledger(tmp_path / name / "ledger.jsonl").spent("server") for name in ("a", "b")]
    one, both = (epsilon_of(event, 1e-4, Relation.REPLACE_ONE) for event in (spent[0], Composed(tuple(spent))))
    assert both > 1.2 * one


def test_another_chunk_or_number_of_devices_is_not_resumed(tmp_path, monkeypatch):
    """Sums are added up in another order there, so that the same noise falls on other numbers."""
    method = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(1.0))
    planned = so.plan(method, rounds=2, noise_multiplier=1.0)
    so.simulate(planned, TASK, folder=tmp_path / "run")
    with pytest.raises(InvalidInput, match="chunk or devices have changed since"):
        so.simulate(planned, TASK, folder=tmp_path / "run", resume=True, chunk=2)
    monkeypatch.setattr(setup, "devices_for", lambda task, plan: 2)
    monkeypatch.setattr(blocks, "everywhere", lambda tree, devices: tree)  # there is one device to lie on
    with pytest.raises(InvalidInput, match="chunk or devices have changed since"):
        so.simulate(planned, TASK, folder=tmp_path / "run", resume=True)


def test_a_run_that_is_not_over_says_so(tmp_path):
    method = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(1.0))
    so.simulate(so.plan(method, rounds=3, noise_multiplier=1.0), TASK, folder=tmp_path / "run")
    record = read_ledger(tmp_path / "run" / "ledger.jsonl")
    half = dataclasses.replace(record, entries=tuple(entry for entry in record.entries if entry.rounds.stop < 3))
    assert "unfinished" not in {warning.code for warning in certify_ledger(record, 1e-5).warnings}
    (said,) = [warning for warning in certify_ledger(half, 1e-5).warnings if warning.code == "unfinished"]
    assert said == wording.unfinished(2, 3)


def test_a_sweep_is_not_completed_on_other_records(tmp_path):
    """One table would mix points of two data sets under one promise."""
    for _ in range(2):
        with SweepStore(tmp_path / "sweep", "config", b"one", seeded=True):
            pass
    with pytest.raises(InvalidInput, match="points were run on other records"):
        SweepStore(tmp_path / "sweep", "config", b"two", seeded=True)
    with pytest.raises(InvalidInput, match="holds another sweep"):
        SweepStore(tmp_path / "sweep", "another", b"one", seeded=True)
    with SweepStore(tmp_path / "sweep", "config", b"one", seeded=True):
        pass


def augmented(key, x):
    return x


def test_what_would_release_something_else_is_not_resumed(tmp_path, monkeypatch):
    """The same noise on other messages cancels; other noise on the same messages is a release that nobody counted."""
    method = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(1.0))
    plan = so.plan(method, rounds=2, noise_multiplier=1.0, trust="local", relation="replace-one")
    so.simulate(plan, TASK, folder=tmp_path / "run")

    def halved(params, batch):
        return 0.5 * TASK.model.loss(params, batch)

    def elsewhere(key):
        return jax.tree.map(lambda leaf: leaf + 1, TASK.model.init(key))

    changed = dataclasses.replace(TASK, augment=lambda key, x: 0.5 * x)
    so.simulate(plan, changed, folder=tmp_path / "changed")
    with pytest.raises(InvalidInput, match="chunk or devices have changed since"):
        so.simulate(
            plan, dataclasses.replace(TASK, augment=lambda key, x: 0.9 * x), folder=tmp_path / "changed", resume=True
        )
    so.simulate(
        plan, dataclasses.replace(TASK, augment=lambda key, x: 0.5 * x), folder=tmp_path / "changed", resume=True
    )
    others = [
        dataclasses.replace(TASK, model=TASK.model._replace(loss=halved, linear=None)),
        dataclasses.replace(TASK, model=TASK.model._replace(init=elsewhere)),
        dataclasses.replace(TASK, augment=augmented),
    ]
    for other in others:
        with pytest.raises(InvalidInput, match="chunk or devices have changed since"):
            so.simulate(plan, other, folder=tmp_path / "run", resume=True)
    with pytest.raises(InvalidInput, match="configuration"):
        so.simulate(plan, TASK, folder=tmp_path / "run", resume=True, transcript=True)
    with monkeypatch.context() as patch:
        patch.setattr(so, "__version__", "another")
        with pytest.raises(InvalidInput, match="version"):
            so.simulate(plan, TASK, folder=tmp_path / "run", resume=True)
    with jax.threefry_partitionable(False), pytest.raises(InvalidInput, match="version"):
        so.simulate(plan, TASK, folder=tmp_path / "run", resume=True)
    so.simulate(plan, TASK, folder=tmp_path / "run", resume=True)


@pytest.mark.slow
def test_a_loss_that_holds_other_numbers_is_another_loss_however_it_is_wrapped(tmp_path):
    """The same noise on messages of the two would show the records that they weigh differently."""
    plan = so.plan(so.dp_sgd(server_lr=0.1, bound=so.clip(1.0)), rounds=1, noise_multiplier=1.0, delta=1e-4)
    plain = TASK.model.loss

    def compiled(weights):
        held, key = jnp.asarray(weights), jax.random.key(3)
        return jax.jit(lambda params, batch: (jnp.sum(held) + jax.random.uniform(key)) * plain(params, batch))

    def looped(weights):
        held = jnp.asarray(weights)

        def loss(params, batch):
            return jax.lax.scan(lambda s, x: (s + jax.jit(lambda x: x * held[0])(x), None), plain(params, batch), held)[
                0
            ]

        return loss

    def asking(weights):
        held, number = np.float32(sum(weights)), jax.ShapeDtypeStruct((), np.float32)
        return lambda params, batch: jax.pure_callback(lambda: held, number) * plain(params, batch)

    def task(loss):
        return dataclasses.replace(TASK, model=TASK.model._replace(loss=loss, linear=None))

    for number, wrap in enumerate((compiled, looped)):
        folder = tmp_path / str(number)
        so.simulate(plan, task(wrap([1.0, 2.0])), folder=folder)
        with pytest.raises(InvalidInput, match="loss, chunk or devices have changed since"):
            so.simulate(plan, task(wrap([1.0, 3.0])), folder=folder, resume=True)
    so.simulate(plan, task(compiled([1.0, 2.0])), folder=tmp_path / "0", resume=True)
    asked = task(asking([1.0]))
    so.simulate(plan, asked, folder=tmp_path / "asked")
    with pytest.raises(InvalidInput, match="loss, chunk or devices have changed since"):  # for what could be known
        so.simulate(plan, asked, folder=tmp_path / "asked", resume=True)


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    plan = so.plan(so.fedavg(local_steps=1, local_lr=0.5), rounds=1)
    for folder in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(InvalidInput, match=r"^folder = .*file.*: cannot be a folder here"):
            so.simulate(plan, TASK, folder=folder)
    assert (tmp_path / "file").read_text() == "kept"
