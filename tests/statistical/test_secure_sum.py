"""What a server sees of secure aggregation: the law of modular sums, the length of messages, and what an audit shows.

Keys are fixed. With other keys a true law is rejected with probability ALPHA in each of about ten comparisons.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import sordino as so
from sordino.bounding import clip
from sordino.errors import LARGEST_SEED
from sordino.mechanisms.secure_sum import SIGNS, hadamard, modulo, norm_squared, rotate, rotate_back, secure_sum
from sordino.privacy import epsilon_of
from sordino.privacy.audit import audit
from sordino.rounds.auditing import audit_release
from sordino.tasks import Population
from sordino.types import Relation
from tests.statistical.test_noise_laws import chi_square_p

ALPHA = 1e-5
D, CLIENTS = 12, 6
MECHANISM = secure_sum(d=D, clients=CLIENTS, noise_multiplier=2.0, bits=10)
VECTORS = jnp.asarray(np.random.default_rng(0).normal(size=(CLIENTS, D)), jnp.float32)
VECTORS = VECTORS / jnp.linalg.norm(VECTORS, axis=1, keepdims=True) * 0.99


@jax.jit
def sums_seen(mechanism, keys, vectors):
    """The modular sums of the messages of all clients, one for each key."""

    def one(key):
        messages = jax.vmap(lambda key, vector: mechanism.message(key, vector).vector)
        sent = messages(jax.random.split(key, len(vectors)), vectors)
        return modulo(jnp.sum(sent, axis=0), mechanism.lattice.bits)

    return jax.lax.map(one, keys, batch_size=4096)


def seen(mechanism, count, seed=1, vectors=VECTORS):
    return np.asarray(sums_seen(mechanism, jax.random.split(jax.random.key(seed), count), vectors))


def law_of_noise(share_std, shares, bits):
    """The law of so many shares modulo 2^bits, by convolution with itself around the circle, in float64."""
    n = 2**bits
    y = np.arange(-math.ceil(9 * share_std), math.ceil(9 * share_std) + 1)
    share = np.zeros(n)
    np.add.at(share, y % n, np.exp(-(y**2) / (2 * share_std**2)))
    law = np.fft.irfft(np.fft.rfft(share / share.sum()) ** shares, n)
    return np.fft.fftshift(np.maximum(law, 0))


# --- The joint law of what is seen -----------------------------------------------------------------------------------


def test_sums_have_the_noise_of_all_shares_and_no_more():
    """Zeros are not rounded: every coordinate of the sum is the noise. Near misses: one share fewer, one more."""
    draws = seen(MECHANISM, 20_000, vectors=jnp.zeros((CLIENTS, D)))
    s, bits = MECHANISM.lattice.share_std, MECHANISM.lattice.bits
    for shares, right in ((CLIENTS, True), (CLIENTS - 1, False), (CLIENTS + 1, False)):
        p = chi_square_p(draws.ravel(), -(2 ** (bits - 1)), law_of_noise(s, shares, bits))
        assert (p > ALPHA) == right, shares


def test_coordinates_and_rounds_are_independent():
    draws = seen(MECHANISM, 20_000, vectors=jnp.zeros((CLIENTS, D))).astype(np.float64)
    correlations = np.corrcoef(np.column_stack([draws[:-1], draws[1:, :1]]), rowvar=False)
    off = correlations[np.triu_indices(len(correlations), 1)]
    assert np.abs(off).max() < stats.norm.isf(ALPHA / 2 / len(off)) / math.sqrt(len(draws))


@pytest.mark.parametrize("wrong", [0.0, 0.1])
def test_the_server_reads_the_sum_without_bias(wrong):
    draws = seen(MECHANISM, 20_000)
    read = np.asarray(jax.vmap(MECHANISM.read)(jnp.asarray(draws)), np.float64)
    error = read - (1 + wrong) * np.asarray(VECTORS, np.float64).sum(axis=0)
    std = MECHANISM.lattice.noise_std(CLIENTS)
    z = error.mean(axis=0) / (std / math.sqrt(len(read)))
    assert (stats.chi2.sf(np.sum(z**2), D) > ALPHA) == (wrong == 0)
    if wrong:
        return
    rounding = CLIENTS / 4 * MECHANISM.lattice.step**2  # at most, of the variance
    assert 0.97 * std**2 < np.mean(error**2) < 1.03 * (std**2 + rounding)


def test_a_sum_beyond_the_modulus_wraps_around_and_is_as_private():
    """The same messages in fewer bits are the same sums modulo fewer bits: post-processing."""
    narrow = dataclasses.replace(MECHANISM, lattice=dataclasses.replace(MECHANISM.lattice, bits=5))
    wide, few = seen(MECHANISM, 100), seen(narrow, 100)
    np.testing.assert_array_equal(np.asarray(modulo(jnp.asarray(wide), 5)), few)
    assert few.min() == -16
    assert few.max() == 15
    assert narrow.event(clip(1.0), Relation.ZERO_OUT, D) == MECHANISM.event(clip(1.0), Relation.ZERO_OUT, D)


def test_sums_are_exact_in_any_order():
    """Messages near the ends of int32's range, which wrap around 2^32 on the way."""
    wide = secure_sum(d=D, clients=CLIENTS, noise_multiplier=2.0, bits=30)
    terms = np.random.default_rng(1).integers(-(2**29), 2**29, (1000, 16))
    exact = (terms.sum(axis=0) + 2**29) % 2**30 - 2**29
    for order in (slice(None), slice(None, None, -1)):
        total = modulo(jnp.sum(jnp.asarray(terms[order], jnp.int32), axis=0), 30)
        np.testing.assert_array_equal(np.asarray(total), exact)
    assert wide.wire.size(16) == 60


# --- Rotation and rounding -------------------------------------------------------------------------------------------


def test_the_rotation_keeps_norms_and_is_undone():
    x = VECTORS[0]
    turned = rotate(x, 16)
    assert float(jnp.linalg.norm(turned)) == pytest.approx(float(jnp.linalg.norm(x)), rel=1e-5)
    np.testing.assert_allclose(np.asarray(rotate_back(turned, D)), np.asarray(x), atol=1e-6)
    assert float(jnp.max(jnp.abs(rotate(jnp.eye(16)[3], 16)))) == pytest.approx(0.25)  # spread over all coordinates
    matrix = np.asarray(jax.vmap(hadamard)(jnp.eye(8)))
    np.testing.assert_allclose(matrix @ matrix, np.eye(8), atol=1e-6)


HARD = {  # vectors whose rounding is as long as can be: fractions of one half, one coordinate, ties
    "halves": lambda d: rotate_back(jnp.full(16, 0.5), d),
    "one": lambda d: jnp.zeros(d).at[0].set(1.0),
    "all": lambda d: jnp.full(d, 1 / math.sqrt(d)),
    "nothing": lambda d: jnp.zeros(d),
    "too long": lambda d: jnp.full(d, 3.0),
    "far too long": lambda d: jnp.full(d, 1e30),
    "infinite": lambda d: jnp.full(d, jnp.inf),
    "no number": lambda d: jnp.zeros(d).at[2].set(jnp.nan),
}


@pytest.mark.parametrize("hard", HARD)
@pytest.mark.parametrize("bits", [7, 10, 20])
def test_nothing_longer_than_the_declared_sensitivity_leaves(hard, bits):
    """Constructed neighbours: a client's integers against none, or against its negative's."""
    mechanism = secure_sum(d=16, clients=2, noise_multiplier=0.5, bits=bits)
    v = HARD[hard](16)
    for vector in (v, v * mechanism.lattice.step, v / jnp.maximum(jnp.linalg.norm(v), 1e-9)):
        keys = jax.random.split(jax.random.key(3), 500)
        z = np.asarray(jax.vmap(mechanism.encode, (0, None))(keys, vector), np.int64)
        other = np.asarray(jax.vmap(mechanism.encode, (0, None))(keys[::-1], -vector), np.int64)
        assert (z**2).sum(axis=1).max() <= mechanism.lattice.norm_squared
        assert ((z - other) ** 2).sum(axis=1).max() <= 4 * mechanism.lattice.norm_squared * (1 + 1e-12)


def test_the_signs_of_the_rotation_do_not_depend_on_a_run():
    """Whoever knows them knows nothing of rounding and noise, whose keys are those of the run."""
    assert SIGNS > LARGEST_SEED
    one, other = (MECHANISM.encode(jax.random.key(seed), VECTORS[0]) for seed in (0, 1))
    assert int(jnp.max(jnp.abs(one - other))) == 1  # the same rotated vector, rounded otherwise


def test_the_sensitivity_is_nearly_reached():
    mechanism = secure_sum(d=16, clients=2, noise_multiplier=0.5, bits=20)
    z = np.asarray(mechanism.encode(jax.random.key(0), jnp.zeros(16).at[2].set(1.0)), np.float64)
    assert np.linalg.norm(z) > 0.999 * mechanism.lattice.norm


def test_rounding_is_rarely_rejected_and_has_no_bias():
    x = VECTORS[0] * 0.5
    keys = jax.random.split(jax.random.key(5), 40_000)
    z = np.asarray(jax.vmap(MECHANISM.encode, (0, None))(keys, x), np.float64)
    u = np.asarray(rotate(x, 16)) / MECHANISM.lattice.step
    assert set(np.unique(z - np.floor(u))) == {0.0, 1.0}
    spread = np.sqrt(np.mean((u - np.floor(u)) * (1 - u + np.floor(u))) / len(z))
    assert np.abs(z.mean(axis=0) - u).max() < 6 * spread


def test_the_norm_of_integers_does_not_wrap_around():
    long = jnp.full(2**12, 2**14 - 1, jnp.int32)  # 2^40 in all, which is 0 modulo 2^32 but for the last bits
    assert int(norm_squared(long)) == 2**31 - 1
    assert int(norm_squared(jnp.full(4, 2**16, jnp.int32))) == 2**31 - 1
    assert int(norm_squared(jnp.asarray([3, -4], jnp.int32))) == 25


# --- What an audit shows ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", [Relation.ZERO_OUT, Relation.REPLACE_ONE])
def test_an_audit_of_the_messages_shows_less_than_is_certified(relation):
    """The whole protocol, message by message: one client with e_1 or its neighbour, the others with zero."""
    delta, count, v = 1e-3, 30_000, jnp.zeros(D).at[0].set(1.0)
    mechanism = secure_sum(d=D, clients=CLIENTS, noise_multiplier=1.0, bits=10, relation=relation)
    shown = []
    for seed, held in ((1, v), (2, -v if relation is Relation.REPLACE_ONE else 0 * v)):
        draws = seen(mechanism, count, seed, jnp.zeros((CLIENTS, D)).at[0].set(held))
        shown.append(np.asarray(jax.vmap(mechanism.read)(jnp.asarray(draws)) @ v))
    certified = epsilon_of(mechanism.event(clip(1.0), relation, D), delta, relation)
    found = audit(*shown, delta, 0.9999)
    assert 0.5 * certified < found.epsilon_lower <= certified
    fewer = epsilon_of(secure_sum(d=D, clients=CLIENTS, noise_multiplier=4.0).event(clip(1.0), relation, D), delta)
    assert found.epsilon_lower > fewer  # the audit would see a certificate of four times the noise


@pytest.mark.parametrize("options", [{"bits": 14, "dropouts": 0.2, "colluding": 2}, {"sampler": "float32"}])
def test_the_audit_of_a_plan_counts_honest_shares_alone(options):
    method = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(1.0))
    plan = so.plan(method, rounds=1, noise_multiplier=1.0, delta=1e-3, trust="secure-aggregation", **options)
    resolved = plan.resolve(Population(D, 20))
    found = audit_release(plan, resolved, D, trials=40_000, confidence=0.9999)
    assert found.consistent
    assert found.shown.epsilon_lower > 0.4 * found.certified.epsilon
