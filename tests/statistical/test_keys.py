"""One generator makes all keys, whatever JAX's default is, and keys of another are refused at the border."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import sordino as so
from sordino.errors import InvalidInput
from sordino.keys import key_of
from sordino.rounds import ServerKeys, server_turn
from sordino.rounds.debug import debug_rounds
from sordino.rounds.engine import run_rounds
from sordino.types import Aggregate, Trust
from tests.toys import _prepared, rules_for, toy

TASK = toy()
METHOD = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(1.0))
OTHERS = {
    "rbg": lambda: jax.random.key(0, impl="rbg"),
    "unsafe_rbg": lambda: jax.random.key(0, impl="unsafe_rbg"),
    "raw": lambda: jax.random.PRNGKey(0),
    "number": lambda: 0,
}

SCRIPT = """
import itertools, json, jax, jax.numpy as jnp, numpy as np
import sordino as so
from sordino.errors import InvalidInput
from sordino.models import from_loss
from tests.toys import toy

assert str(jax.random.key_impl(jax.random.key(0))) == "unsafe_rbg"
flat = from_loss(lambda key: jnp.zeros(3), lambda w, batch: 0.0 * jnp.sum(w))  # so that messages are noise alone
task = toy(flat, sizes=[2] * 8)
method = so.dp_sgd(server_lr=0.1, bound=so.clip(1.0))
plan = so.plan(method, rounds=8, noise_multiplier=1.0, delta=1e-3, trust="local")
run = so.simulate(plan, task, transcript=True, evaluate_every=8)
noise = np.concatenate([np.asarray(sent) for _, _, sent in run.transcript])  # [round, client, d]
pairs = list(itertools.combinations(range(8), 2))
try:
    so.simulate(plan, task, seed=jax.random.key(0))
    refused = ""
except InvalidInput as error:
    refused = str(error)
one_pass = so.noisy_mb_sgd(lipschitz=1.0, radius=1.0, smoothness=1.0, batch_size=1, one_pass=True)
passed = so.simulate(so.plan(one_pass, rounds=2), toy(sizes=[2, 3, 4]), seed=0)
print(json.dumps({
    "shape": noise.shape,
    "differ": sum(bool(np.all(noise[i, j] != noise[j, i])) for i, j in pairs),
    "refused": refused,
    "loss": passed.history[-1]["test_loss"],
}))
"""


def test_an_unsafe_default_changes_nothing():
    """With it, keys of (client i, round j) and of (client j, round i) would be the same."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"JAX_DEFAULT_PRNG_IMPL": "unsafe_rbg", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["shape"] == [8, 8, 3]
    assert found["differ"] == 28
    assert found["refused"].startswith("seed = 'unsafe_rbg'")
    one_pass = so.noisy_mb_sgd(lipschitz=1.0, radius=1.0, smoothness=1.0, batch_size=1, one_pass=True)
    here = so.simulate(so.plan(one_pass, rounds=2), toy(sizes=[2, 3, 4]), seed=0)
    assert found["loss"] == pytest.approx(here.history[-1]["test_loss"], rel=1e-6)


def test_the_key_of_a_seed_is_that_of_jax():
    for seed in (0, 3, 2**32 - 1):
        words = (jax.random.key_data(key).tolist() for key in (key_of(seed), jax.random.key(seed, impl="threefry2x32")))
        assert len(set(map(tuple, words))) == 1
    assert jax.random.key_data(key_of((7 << 32) | 5)).tolist() == [7, 5]


@pytest.mark.parametrize("kind", OTHERS)
def test_keys_of_another_kind_are_refused(kind):
    key = OTHERS[kind]()
    for mechanism in (so.gaussian(1.0), so.laplace(1.0)):
        with pytest.raises(InvalidInput, match="key"):
            mechanism.randomize(key, jnp.zeros(3))
    with pytest.raises(InvalidInput, match="key"):
        so.scalar_dp(1.0, 1.0).randomize(key, jnp.float32(0.5))
    rules = rules_for(METHOD, TASK.clients, Trust.CENTRAL, so.gaussian(1.0))
    w = TASK.initial(key_of(0))
    spec, rules, state = _prepared(rules, TASK.records, TASK.loss, w, {})
    with pytest.raises(InvalidInput, match="key"):
        run_rounds(rules, TASK.records, state, key, jnp.int32(0), spec=spec, rounds=1)
    with pytest.raises(InvalidInput, match="key"):
        debug_rounds(rules, TASK.records, state, key, 0, spec=spec, rounds=1)
    total = Aggregate(jnp.zeros(TASK.d), cohort=jnp.int32(1))
    with pytest.raises(InvalidInput, match=r"keys\.noise"):
        server_turn(rules, ServerKeys(key, key_of(0), key_of(0)), state.server, total)
    if kind != "number":
        with pytest.raises(InvalidInput, match="seed"):
            so.simulate(so.plan(METHOD, rounds=1), TASK, seed=key)
