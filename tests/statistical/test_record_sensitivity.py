"""One record moves a client's message no further than declared, and every client's noise has its own scale.

Draws with replacement are in `test_record_draws`. Why samples are never accounted as Poisson: see
`test_audit.test_with_replacement_accounted_as_poisson_is_caught`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import sordino as so
from sordino.algorithms.local import ClientData
from sordino.algorithms.records import BLOCK, RecordGradients
from sordino.models import Batch, linear
from sordino.planning.warnings import about_means
from sordino.types import ClientNumbers
from tests.toys import run_plan

D, N = 5, 12
MODEL = linear("ridge", D)
RECORDS = np.random.default_rng(0)


def numbers(L, K, weight=1.0) -> ClientNumbers:
    f = jnp.float32
    return ClientNumbers(jnp.int32(0), lipschitz=f(L), batch=jnp.int32(K), weight=f(weight), noise_std=f(0))


def client(x, y, own: ClientNumbers) -> ClientData:
    return ClientData.own(MODEL.loss, jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32), own)


def messages(L, K, weight=1.0, one_pass=False):
    """(key, w, x, y) -> the message before noise, compiled once."""
    g, own = RecordGradients(K, one_pass), numbers(L, K, weight)
    return jax.jit(lambda key, w, x, y: g(key, w, jnp.int32(0), client(x, y, own))[0])


@pytest.mark.parametrize(("L", "K", "weight"), [(1.0, N, 1.0), (0.3, 4, 1.0), (2.0, 1, 0.7), (1.0, 7, 1.9)])
def test_neighbours_stay_within_the_declared_sensitivity(L, K, weight):
    """Whatever the replaced record is: huge, opposed, zero, not a number. The sample is the same in both."""
    x, y = RECORDS.normal(size=(N, D)), RECORDS.normal(size=N)
    w = jnp.asarray(RECORDS.normal(size=D), jnp.float32)
    largest, message = 0.0, messages(L, K, weight)
    for replaced in (1e6 * np.ones(D), -1e6 * np.ones(D), np.zeros(D), np.full(D, np.nan), 1e-3 * np.ones(D)):
        for seed in range(4):
            for place in range(0, N, 3):
                other = x.copy()
                other[place] = replaced
                one, two = (message(jax.random.key(seed), w, each, y) for each in (x, other))
                largest = max(largest, float(jnp.linalg.norm(one - two)))
    assert 0 < largest <= 2 * weight * L / K * (1 + 1e-5)


def test_the_declared_sensitivity_is_reached():
    x = np.zeros((N, D))
    x[:, 0] = 1.0
    for K in (N, 3):
        message = messages(0.5, K, one_pass=True)
        moved = []
        for place in range(N):
            y, other = np.full(N, 100.0), np.full(N, 100.0)
            other[place] = -100.0
            one, two = (message(jax.random.key(0), jnp.zeros(D), x, each) for each in (y, other))
            moved.append(float(jnp.linalg.norm(one - two)))
        assert max(moved) == pytest.approx(2 * 0.5 / K, rel=1e-4)


def test_a_sample_is_uniform_and_without_repetition():
    """How often each record is drawn in 4000 rounds: chi-squared at 1e-6, and no round holds one twice."""
    K = 5
    data = client(np.arange(N)[:, None] * np.ones(D), np.zeros(N), numbers(1.0, K))
    draw = jax.jit(jax.vmap(lambda key: RecordGradients(K, one_pass=False).draw(key, jnp.int32(0), data)))
    batch: Batch = draw(jax.random.split(jax.random.key(1), 4000))
    drawn = np.asarray(batch.x[:, :, 0], int)
    assert np.asarray(batch.weight).all()
    assert all(len(set(row)) == K for row in drawn)
    # Draws of one round exclude each other, so that the counts vary less than a multinomial's.
    assert stats.chisquare(np.bincount(drawn.ravel(), minlength=N)).pvalue > 1e-6


def test_every_client_draws_noise_of_its_own_scale():
    """KS tests of all coordinates of 200 rounds against each client's std, at 1e-6; the neighbour's std is rejected."""
    task = so.task("linear", clients=3, records=8, d=20, loss="logit", l2=0.1)
    method = so.noisy_mb_sgd(lipschitz=[1.0, 2.0, 1.0], radius=1.0, feature_bound=1.0)
    plan = so.plan(method, rounds=200, trust="local", epsilon=[1.0, 1.0, 4.0], delta=1e-5)
    resolved, _, info = run_plan(plan, task, w=jnp.zeros(20), transcript=True)
    sent = np.asarray(info.transcript[2])
    std = np.asarray(resolved.rules.numbers.noise_std)
    assert len(set(std.round(6))) == 3
    for i in range(3):
        # A mean of clipped gradients is at most L long over 20 coordinates: far below the noise.
        noise = sent[:, i].ravel()
        assert stats.kstest(noise, "norm", (noise.mean(), std[i])).pvalue > 1e-6
        assert stats.kstest(noise, "norm", (noise.mean(), std[(i + 1) % 3])).pvalue < 1e-6


def test_rounding_moves_a_long_sum_no_further_than_is_said():
    """In the public order of one pass: a sum that is pushed over a power of two, and blocks that then round up.

    A plain sum moved by 2.06 here, and by 9.9 for eight times as many records.
    """
    blocks, v = 128, 0.96875
    n = BLOCK * (2 * blocks + 1)
    ahead = np.zeros(n)
    ahead[: BLOCK * blocks] = 0.5  # 2^14 in all
    ahead[BLOCK * blocks], ahead[BLOCK * blocks + 1] = v, -v
    ahead[BLOCK * (blocks + 1) :: BLOCK] = -(2.0**-10)  # half of the last place of 2^14
    order = ClientData(None, None, None, 0, n, n).shuffled(jax.random.fold_in(jax.random.key(0), 0))

    @jax.jit
    def mean(x: jax.Array) -> jax.Array:
        data = ClientData.own(lambda w, batch: batch.x[0] @ w, x, x[:, 0], numbers(1.0, n))
        gradients = RecordGradients(n, one_pass=True)
        return gradients(jax.random.key(1), jnp.zeros(1), jnp.int32(0), data)[0][0]

    found = []
    for replaced in (-v, v):
        ahead[BLOCK * blocks + 1] = replaced
        found.append(n * float(mean(jnp.zeros((n, 1)).at[order, 0].set(jnp.asarray(ahead, jnp.float32)))))
    assert found[0] == pytest.approx(2.0**14 - blocks * 2.0**-10, abs=0.01)
    assert abs(found[1] - found[0]) <= 2 * v * 1.002
    (warning,) = about_means(n)
    assert warning.code == "rounded-sums"
    assert "2 %" in warning.message
    assert not list(about_means(20_000))
