"""A message passes the check of its length if and only if its exact norm is proven to lie within the bound."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.algorithms.memory_start import SecureAverageStart
from sordino.algorithms.scaffold import BothHalves
from sordino.bounding._norm import surely_within
from sordino.errors import SordinoError
from sordino.rounds.turns import exceeds_limit
from sordino.runs import Point, sweep
from sordino.types import Unit
from tests.contracts.test_promises import louder
from tests.toys import toy

LIMITS = (1e-30, 1e-19, 0.1, 0.7, 1.0, 3.3e7, 1e30)
DIMENSIONS = (1, 2, 3, 32, 33, 63, 64, 65, 1000, 4097, 100_000)
leave = jax.jit(lambda bound, vectors: jax.vmap(lambda v: surely_within(bound(v)[0], bound.limit))(vectors))
within = jax.jit(jax.vmap(surely_within, in_axes=(0, None)))


def directions(d, seed=0, count=20):
    """Unit vectors in float64: even, uneven, sparse, all equal, one large coordinate among tiny ones."""
    rng = np.random.default_rng(seed)
    v = rng.normal(size=(count, d))
    v[1::5] *= 10.0 ** rng.uniform(-30, 0, (len(v[1::5]), d))
    v[2::5] *= rng.random((len(v[2::5]), d)) < 0.1
    v[3::5] = rng.choice([-1.0, 1.0], (len(v[3::5]), d))
    v[4::5] = 1e-4 * v[4::5]
    v[:, d // 2] += v.any(axis=1) == 0
    v[4::5, d // 3] = 1.0
    return v / np.sqrt(np.sum(v * v, axis=1, keepdims=True))


@pytest.mark.parametrize("d", DIMENSIONS)
def test_a_message_that_is_longer_than_its_limit_is_caught(d):
    units = directions(d)
    for limit, factor in itertools.product(LIMITS, (1.0009, 1.00001, 1 + 1e-6, 1 + 1e-7, math.inf, math.nan)):
        vectors = np.float32(min(factor * limit, 3e38) * units)
        vectors[:, 0] = vectors[:, 0] if math.isfinite(factor) else factor
        exact = np.sqrt(np.sum(np.float64(vectors) ** 2, axis=1))
        longer = ~(exact <= limit * (1 + 1e-15))  # rounding to float32 may have shortened a few
        assert longer.any()
        assert longer.all() or factor < 1 + 1e-6
        assert not np.any(np.asarray(within(vectors, limit))[longer])


@pytest.mark.parametrize("d", [1, 33, 64, 4097, 100_000])
@pytest.mark.parametrize("make", [so.clip, so.normalize, so.smoothed_normalize])
def test_what_leaves_a_bounder_passes(make, d):
    units = directions(d)
    for number, length in itertools.product(LIMITS, (1 - 1e-5, 1.0, 1 + 1e-6, 1e6)):
        bound = make(number)
        vectors = np.float32(length * float(bound.limit) * units)
        assert np.all(leave(bound, vectors))
        assert np.all(leave(BothHalves(bound), np.concatenate([vectors, vectors[::-1]], axis=1)))


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 7, 40, 500, 7850])
def test_millions_of_messages_pass(d):
    """Random lengths about the bound, bounds of random sizes as traced numbers, whole and as halves."""

    def passes(key):
        key_v, key_limit, key_length = jax.random.split(key, 3)
        limit = 10.0 ** jax.random.uniform(key_limit, (), minval=-25.0, maxval=25.0)
        v = jax.random.normal(key_v, (2 * d,))
        v = v * (limit * jax.random.uniform(key_length, (), minval=0.999, maxval=1.001) / jnp.linalg.norm(v[:d]))
        whole, halves = so.clip(1.0), BothHalves(so.normalize(1.0))
        whole, halves = (jax.tree.map(lambda _: limit, each) for each in (whole, halves))
        return surely_within(whole(v)[0], whole.limit) & surely_within(halves(v)[0], halves.limit)

    count = min(1_000_000, 50_000_000 // d)
    many = jax.jit(lambda key: jnp.all(jax.lax.map(passes, jax.random.split(key, count), batch_size=1000)))
    assert many(jax.random.key(d))


METHODS = {
    "fedavg": lambda bound: so.fedavg(local_steps=2, local_lr=0.5, bound=bound),
    "difference": lambda bound: so.fedavg(local_steps=2, local_lr=0.5, bound=bound, message="difference"),
    "fedexp": lambda bound: so.fedexp(local_steps=2, local_lr=0.5, bound=bound),
    "scaffold": lambda bound: so.scaffold(local_steps=2, local_lr=0.5, bound=bound, control_bound=0.3),
    "dp_sgd": lambda bound: so.dp_sgd(server_lr=0.1, bound=bound, local_steps=2, local_lr=0.1),
    "error_feedback": lambda bound: so.error_feedback(beta=0.7, server_lr=0.1, bound=bound),
    "noisy start": lambda bound: so.error_feedback(
        beta=0.7, server_lr=0.1, bound=bound, memory="noisy", memory_clip=0.03, local_steps=2, local_lr=0.1
    ),
    "top k": lambda bound: so.error_feedback(beta=0.7, server_lr=0.1, bound=bound, top_k=3),
}


ALWAYS = ("fedavg", "noisy start")  # the others compile for as long and are left to `make test-all`


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.slow) for name in METHODS]
)
def test_methods_run_in_private_under_tight_and_wide_bounds(name):
    plans = [so.plan(METHODS[name](so.clip(C)), rounds=4, noise_multiplier=1.0) for C in (1e-12, 0.0123, 2.0)]
    assert len(sweep([Point(plan) for plan in plans], toy())) == 3


def test_the_first_messages_under_secure_aggregation_pass():
    for n in (1.0, 3.0, 10.0, 7919.0):
        start = SecureAverageStart(0.3, 1, jnp.float32(n))
        for Phi in (0.1, 1.0, 1e10):
            for v in np.float32(directions(100)):
                message, _ = start.message(jnp.int32(0), v, (v, so.clip(1.0)(v)[1]), Phi)
                assert not exceeds_limit(message, start.limit(jnp.int32(0), Phi))
                assert np.linalg.norm(np.float64(message)) <= math.sqrt(n) * Phi


@pytest.mark.parametrize("trust", ["central", "local"])
@pytest.mark.parametrize("times", [1.0009, 1.00001])
def test_a_run_stops_at_a_message_that_is_a_little_too_long(trust, times):
    plan = so.plan(louder(times), rounds=2, noise_multiplier=1.0, trust=trust)
    with pytest.raises(SordinoError, match="no guarantee holds"):
        so.simulate(plan, toy())


def test_rounding_is_forgiven_where_the_clip_of_each_record_is_what_is_certified():
    v = jnp.asarray([1.0005, 0.0], jnp.float32)
    assert exceeds_limit(v, 1.0)
    assert not exceeds_limit(v, 1.0, Unit.RECORD)
    assert exceeds_limit(2 * v, 1.0, Unit.RECORD)
