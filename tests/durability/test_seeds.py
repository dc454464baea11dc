"""A fresh seed is kept for its owner alone, and a run goes on with it and with no other."""

from __future__ import annotations

import json
import os
import stat

import jax
import numpy as np
import pytest

import sordino as so
from sordino.errors import InvalidInput, Refused
from sordino.keys import key_of
from sordino.privacy.certification import certify_ledger
from sordino.privacy.guarantee import Certificate
from sordino.privacy.ledger import read_ledger
from sordino.runs import Options, Point, RunStore, SweepStore, load_model, sweep
from sordino.runs.seeds import FreshSeed
from sordino.types import SeedOrigin
from tests.toys import RUN_FILE, Killed, killed_and_resumed, toy, write_run_file

TASK = toy()
PLAN = so.plan(so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(1.0)), rounds=4, noise_multiplier=1.0, delta=1e-3)
ADDS = "add to the privacy loss"


def seed_in(folder) -> int:
    return int((folder / "seed.private").read_text(), 16)


def mode(path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_a_run_without_a_seed_goes_on_as_if_it_had_never_stopped(tmp_path):
    torn = killed_and_resumed(PLAN, TASK, tmp_path / "run", after=2, evaluate_every=1)
    whole = so.simulate(PLAN, TASK, seed=key_of(seed_in(tmp_path / "run")), evaluate_every=1)
    assert torn.history == whole.history
    for got, expected in zip(jax.tree.leaves(torn.params), jax.tree.leaves(whole.params), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_runs_without_a_seed_have_noise_of_their_own():
    one, other = (so.simulate(PLAN, TASK) for _ in range(2))
    assert one.history[-1]["test_loss"] != other.history[-1]["test_loss"]


def test_a_fresh_seed_stands_in_one_private_file_and_nowhere_else(tmp_path):
    folder = tmp_path / "run"
    path = write_run_file(tmp_path, RUN_FILE, ("seed = 0\n", ""))
    run = so.simulate(PLAN, TASK, folder=folder, config=path.read_text())
    seed, written = seed_in(folder), {}
    for file in folder.iterdir():
        if file.name != "seed.private":
            written[file.name] = file.read_bytes()
    assert {"config.toml", "environment.json", "ledger.jsonl", "certificate.json", "metrics.jsonl"} <= written.keys()
    shapes = [str(seed).encode(), f"{seed:x}".encode(), seed.to_bytes(8, "big"), seed.to_bytes(8, "little")]
    assert not [name for name, content in written.items() if any(shape in content for shape in shapes)]
    assert json.loads(written["environment.json"])["seed"] is None
    point = Point(PLAN, FreshSeed.read(folder, "run"))
    assert not [shape for shape in (str(seed), f"{seed:x}") if shape in f"{run}{point}".lower()]
    if os.name != "nt":
        assert mode(folder / "seed.private") == mode(folder / "records.sha256") == 0o600


@pytest.mark.parametrize("damage", [None, b"", b"12", b"0123456789abcdeg\n", b"\xff" * 17])
def test_a_run_whose_seed_is_lost_does_not_go_on(tmp_path, damage):
    so.simulate(PLAN, TASK, folder=tmp_path / "run")
    path = tmp_path / "run" / "seed.private"
    path.unlink() if damage is None else path.write_bytes(damage)
    with pytest.raises(InvalidInput, match=r"seed\.private is (missing|damaged)"):
        so.simulate(PLAN, TASK, folder=tmp_path / "run", resume=True)


def test_a_run_does_not_go_on_with_another_seed(tmp_path):
    so.simulate(PLAN, TASK, folder=tmp_path / "fresh")
    so.simulate(PLAN, TASK, folder=tmp_path / "given", seed=3)
    so.simulate(PLAN, TASK, folder=tmp_path / "given", seed=3, resume=True)
    with pytest.raises(InvalidInput, match="resume"):
        so.simulate(PLAN, TASK, folder=tmp_path / "fresh", seed=0, resume=True)
    with pytest.raises(InvalidInput, match=r"seed\.private is missing"):
        so.simulate(PLAN, TASK, folder=tmp_path / "given", resume=True)
    other = (seed_in(tmp_path / "fresh") + 1) % 2**64
    (tmp_path / "fresh" / "seed.private").write_text(f"{other:016x}\n")
    with pytest.raises(InvalidInput, match="seed"):
        so.simulate(PLAN, TASK, folder=tmp_path / "fresh", resume=True)


def test_an_existing_run_is_refused_before_its_seed_is_asked_for(tmp_path):
    so.simulate(PLAN, TASK, folder=tmp_path / "run", seed=3)
    with pytest.raises(InvalidInput, match="exists already"):
        so.simulate(PLAN, TASK, folder=tmp_path / "run")


def test_unfinished_blocks_need_a_seed(tmp_path):
    with pytest.raises(InvalidInput, match="unfinished"):
        sweep([Point(PLAN)], TASK, Options(unfinished=tmp_path))


# --- What the certificate says --------------------------------------------------------------------------------------


def test_a_given_seed_is_the_first_thing_that_a_certificate_says(tmp_path):
    fresh, given = (so.simulate(PLAN, TASK, folder=tmp_path / str(seed), seed=seed) for seed in (None, 3))
    assert (fresh.certificate.to_json()["seed"], given.certificate.to_json()["seed"]) == ("entropy", "given")
    assert "seed" in str(given.certificate).splitlines()[0]
    assert "seed" not in str(fresh.certificate).splitlines()[0]
    assert ADDS in str(fresh.certificate)
    assert ADDS not in str(given.certificate)
    for run, name in ((fresh, "None"), (given, "3")):
        assert RunStore.read(tmp_path / name).certificate == run.certificate
        again = certify_ledger(read_ledger(tmp_path / name / "ledger.jsonl"), 1e-3)
        for field in ("seed", "draws", "assumptions", "warnings"):
            assert again.to_json()[field] == run.certificate.to_json()[field]


def test_a_given_seed_without_noise_is_no_alarm():
    plain = so.simulate(so.plan(PLAN.method, rounds=1), TASK, seed=3).certificate
    assert plain.seed is SeedOrigin.GIVEN
    assert "seed" not in str(plain)


def test_runs_that_may_share_their_noise_are_not_composed():
    given = [so.simulate(PLAN, TASK, seed=seed).certificate for seed in (3, 4)]
    fresh = [so.simulate(PLAN, TASK).certificate for _ in range(2)]
    for pair in (given, [fresh[0], given[0]]):
        with pytest.raises(Refused, match="share their noise"):
            so.Certificate.compose(*pair)
    both = so.Certificate.compose(*fresh)
    assert both.seed is SeedOrigin.ENTROPY
    assert both.total("model user").epsilon == pytest.approx(2 * fresh[0].total("model user").epsilon)


# --- Sweeps ---------------------------------------------------------------------------------------------------------


def test_points_of_a_sweep_without_a_seed_have_seeds_of_their_own(tmp_path):
    points = [Point(PLAN, folder=tmp_path / name) for name in "ab"]
    runs = sweep(points, TASK)
    assert seed_in(tmp_path / "a") != seed_in(tmp_path / "b")
    assert runs[0].history != runs[1].history
    again = sweep(points, TASK)
    assert [run.history for run in again] == [run.history for run in runs]


def test_a_sweep_keeps_one_seed(tmp_path):
    with SweepStore(tmp_path / "sweep", "config", b"one", seeded=False) as store:
        first = store.seed
    assert mode(tmp_path / "sweep" / "seed.private") == 0o600 or os.name == "nt"
    with SweepStore(tmp_path / "sweep", "config", b"one", seeded=False) as store:
        assert store.seed == first
    (tmp_path / "sweep" / "seed.private").unlink()
    with pytest.raises(InvalidInput, match=r"seed\.private is missing"):
        SweepStore(tmp_path / "sweep", "config", b"one", seeded=False)
    with SweepStore(tmp_path / "seeded", "config", b"one", seeded=True) as store:
        assert store.seed is None
    assert not (tmp_path / "seeded" / "seed.private").exists()


def test_a_checkpoint_of_another_run_is_not_taken_up(tmp_path):
    """Two runs of one file with fresh seeds: the second, killed, does not go on from the state of the first."""
    so.simulate(PLAN, TASK, folder=tmp_path / "first", evaluate_every=1)
    with pytest.raises(Killed):
        so.simulate(PLAN, TASK, folder=tmp_path / "second", evaluate_every=1, progress=kill_at_once)
    (tmp_path / "second" / "checkpoint.npz").write_bytes((tmp_path / "first" / "checkpoint.npz").read_bytes())
    so.simulate(PLAN, TASK, folder=tmp_path / "second", evaluate_every=1, resume=True)
    first, second = (load_model(tmp_path / name / "model.safetensors") for name in ("first", "second"))
    assert any(np.any(first[name] != second[name]) for name in first)


def kill_at_once(row):
    raise Killed


def test_certificates_that_do_not_say_where_their_seed_came_from_are_not_composed(tmp_path):
    """Files of earlier versions have no such field, and their runs had the same seed by default."""
    run = so.simulate(PLAN, TASK)
    values = {name: value for name, value in run.certificate.to_json().items() if name != "seed"}
    old = Certificate.from_json(values)
    with pytest.raises(Refused, match="seed"):
        Certificate.compose(old, old)
