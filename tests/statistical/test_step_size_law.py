"""eta_g inside a method: the O(d) law of the statistics against every message drawn, over 2,000 repetitions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import sordino as so
from sordino.types import Relation, Trust
from tests.toys import fitted, rounds_of

REPETITIONS, M, D = 2000, 12, 6
ALPHA = 1e-4
TASK = so.task("linear-regression", clients=M, d=D)
RECORDS = TASK.records
NOISE = 0.2


def drawn(method, transcript: bool, noise: float = NOISE, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(eta_g, x after one round) of 2,000 rounds that differ in their noise alone."""
    rules = fitted(method, TASK, Trust.LOCAL, so.gaussian(noise), relation=Relation.REPLACE_ONE)
    w = TASK.initial(jax.random.key(0))

    def one(seed):
        after, info = rounds_of(rules, RECORDS, TASK.loss, w, 1, seed=seed, transcript=transcript)
        return info.server.step_size[0], rules.method.params(after.server)

    eta, x = jax.jit(jax.vmap(one))(REPETITIONS * seed + jnp.arange(REPETITIONS))
    return np.asarray(eta, np.float64), np.asarray(x, np.float64)


def joint(eta: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A statistic of the step size and the model together."""
    return np.linalg.norm(x, axis=1) * eta


def same_law(a: np.ndarray, b: np.ndarray) -> float:
    return float(stats.ks_2samp(a, b).pvalue)


METHODS = {
    "fedexp": so.fedexp(local_steps=2, local_lr=0.01, bound=so.clip(0.5), output="last"),
    "naive": so.fedexp(local_steps=2, local_lr=0.01, bound=so.clip(0.5), step_size="naive", output="last"),
    "scaffold": so.scaffold(local_steps=2, local_lr=0.01, bound=so.clip(0.5), step_size="corrected"),
}


@pytest.mark.parametrize(
    "name", ["fedexp", *(pytest.param(name, marks=pytest.mark.slow) for name in ("naive", "scaffold"))]
)
def test_step_size_and_model_have_one_law(name):
    method = METHODS[name]
    (eta, x), (eta_all, x_all) = drawn(method, False, seed=1), drawn(method, True, seed=2)
    assert len(np.unique(eta)) > REPETITIONS / 4  # not all at the maximum with 1
    assert same_law(eta, eta_all) > ALPHA
    along = x.mean(axis=0) / np.linalg.norm(x.mean(axis=0))
    assert same_law(x @ along, x_all @ along) > ALPHA
    assert same_law(joint(eta, x), joint(eta_all, x_all)) > ALPHA


@pytest.mark.slow
def test_near_misses_are_noticed():
    """The wrong correction, the wrong noise."""
    eta, x = drawn(METHODS["fedexp"], True)
    assert same_law(eta, drawn(METHODS["naive"], False)[0]) < ALPHA
    assert same_law(joint(eta, x), joint(*drawn(METHODS["fedexp"], False, noise=1.2 * NOISE, seed=1))) < ALPHA


def test_the_corrected_numerator_is_unbiased():
    """Mean over 2,000 repetitions of the estimate that the engine hands to the server, both ways of drawing it."""
    vectors = 0.3 * np.random.default_rng(1).normal(size=(M, D)).astype(np.float32)
    truth, mechanism = float(np.sum(vectors.astype(np.float64) ** 2)), so.gaussian(NOISE)

    def at_once(key):
        total = mechanism.aggregate(key, jnp.sum(vectors, axis=0), jnp.float32(truth), M)
        return total.squared_norms_before_noise

    def one_by_one(key):
        messages = jax.vmap(mechanism.message)(jax.random.split(key, M), jnp.asarray(vectors))
        return jnp.sum(jax.vmap(mechanism.squared_norm)(messages))

    keys = jax.random.split(jax.random.key(9), REPETITIONS)
    for estimate in (at_once, one_by_one):
        values = np.asarray(jax.jit(jax.vmap(estimate))(keys), np.float64)
        error = values.std() / np.sqrt(REPETITIONS)
        assert abs(values.mean() - truth) < 5 * error
        assert error < M * D * NOISE**2 / 20  # the correction is not lost in the noise
