"""A run goes on only as the same run, and a run that is refused leaves the files of another alone."""

from __future__ import annotations

import dataclasses
import functools
import shutil

import jax
import jax.numpy as jnp
import optax
import pytest

import sordino as so
from sordino.algorithms.dp_sgd import DpSgd
from sordino.errors import InvalidInput, LedgerError, SordinoError
from sordino.pytrees import pytree
from sordino.runs import Options, Point, RunStore, sweep
from sordino.types import Memory, Privacy
from tests.toys import toy

TASK = toy()
KILL = RuntimeError("killed")


def plan_of(optimiser, noise_multiplier=1.0):
    method = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(1.0), server_optimiser=optimiser)
    return so.plan(method, rounds=3, noise_multiplier=noise_multiplier, delta=1e-5)


def killed(row):
    raise KILL


def test_a_run_does_not_go_on_with_another_optimiser(tmp_path):
    """Its later releases would differ from the earlier ones under the same noise."""
    folder = tmp_path / "run"
    with pytest.raises(RuntimeError):
        so.simulate(plan_of(optax.adam(0.1)), TASK, folder=folder, evaluate_every=1, progress=killed)
    with pytest.raises(InvalidInput, match="resume"):
        so.simulate(plan_of(optax.adam(0.5)), TASK, folder=folder, evaluate_every=1, resume=True)
    run = so.simulate(plan_of(optax.adam(0.1)), TASK, folder=folder, evaluate_every=1, resume=True)
    assert run.history[-1]["round"] == 3


def test_a_refused_run_changes_no_file_of_another(tmp_path):
    """The ledger of a finished run was moved away: another plan is refused, and what the first promised stays."""
    folder = tmp_path / "run"
    so.simulate(plan_of(None), TASK, folder=folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".json", ".sha256", ".toml")}
    shutil.move(folder / "ledger.jsonl", tmp_path / "elsewhere")
    with pytest.raises(LedgerError, match="restore it"):
        so.simulate(plan_of(None, noise_multiplier=30.0), TASK, folder=folder)
    assert before == {name: (folder / name).read_bytes() for name in before}


def test_a_run_does_not_go_on_beside_another_certificate(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(RuntimeError):
        so.simulate(plan_of(None), TASK, folder=folder, evaluate_every=1, progress=killed)
    other = plan_of(None, noise_multiplier=30.0).resolve(TASK.population).certificate
    text = (folder / "certificate.json").read_text()
    old = RunStore.read(folder).certificate.total("model user").epsilon
    (folder / "certificate.json").write_text(text.replace(str(old), str(other.total("model user").epsilon)))
    with pytest.raises(InvalidInput, match=r"certificate\.json is not that of the plan"):
        so.simulate(plan_of(None), TASK, folder=folder, evaluate_every=1, resume=True)


def test_a_resolved_plan_is_for_its_plan_and_task():
    plan = plan_of(None)
    elsewhere = plan.resolve(so.Population(TASK.d, 10_000))
    longer = plan_of(None)
    for point in (Point(plan, 0, elsewhere), Point(longer, 0, plan.resolve(TASK.population))):
        with pytest.raises(InvalidInput, match="resolved for another plan or task"):
            sweep([point], TASK, Options())


# --- Methods of one's own that would send what nobody accounts for ---------------------------------------------------


@functools.cache  # a class is made a dataclass once
def own(cls):
    method = so.dp_sgd(server_lr=0.1, bound=so.clip(1.0))
    return pytree(dataclasses.dataclass(frozen=True)(cls))(method.bound, method.local, method.lr)


class SaysNoiseInside(DpSgd):
    privacy = Privacy(noise_inside=True)


class ChangesItsBound(DpSgd):
    def resolve(self, context):
        return dataclasses.replace(self, bound=so.clip(100.0))


class KeepsAState(DpSgd):
    def init_client(self, w):
        return jnp.zeros_like(w)


@pytest.mark.parametrize("cls", [SaysNoiseInside, ChangesItsBound, KeepsAState])
def test_a_method_that_contradicts_itself_is_not_planned(cls):
    with pytest.raises(InvalidInput, match=cls.__name__):
        so.plan(own(cls), rounds=1, noise_multiplier=1.0).resolve(TASK.population)


def test_a_method_that_names_its_state_is_planned():
    class NamesIt(KeepsAState):
        privacy = Privacy(memory=Memory.ZERO)

    so.plan(own(NamesIt), rounds=1, noise_multiplier=1.0, delta=1e-5).resolve(TASK.population)


class SendsASide(DpSgd):
    def client(self, key, received, state, data):
        message, state, info = super().client(key, received, state, data)
        return message._replace(side=jnp.float32(1)), state, info


class SendsMore(DpSgd):
    def client(self, key, received, state, data):
        message, state, info = super().client(key, received, state, data)
        return message._replace(vector=jnp.concatenate([message.vector, jnp.zeros(3)])), state, info


@pytest.mark.parametrize("trust", ["central", "local"])
@pytest.mark.parametrize(("cls", "says"), [(SendsASide, "side scalar"), (SendsMore, "the noise was made for")])
def test_a_message_that_the_noise_was_not_made_for_is_not_sent(cls, says, trust):
    plan = so.plan(own(cls), rounds=1, noise_multiplier=1.0, delta=1e-5, trust=trust)
    with pytest.raises(SordinoError, match=says):
        so.simulate(plan, TASK)


@pytest.mark.parametrize("seed", [1.5, True, "a", jax.random.key(0, impl="rbg"), jax.random.split(jax.random.key(0))])
def test_a_seed_is_an_integer_or_one_key(seed):
    with pytest.raises(InvalidInput, match="seed"):
        so.simulate(plan_of(None), TASK, seed=seed)


def test_a_key_is_the_seed_that_made_it():
    one, other = (so.simulate(plan_of(None), TASK, seed=seed) for seed in (5, jax.random.key(5)))
    assert one.history == other.history
