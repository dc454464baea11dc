"""Every mechanism draws the law that it is accounted for, and these tests would notice one that is 5 % off.

Keys are fixed, so a run repeats itself. With other keys a true law is rejected with probability ALPHA in each of
about 100 comparisons: once in 1000 runs of this file. A wrong law must be rejected at the same level.
"""

import dataclasses
import math
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from sordino.errors import Refused
from sordino.mechanisms import binomial, discrete_gaussian, gaussian, laplace, privunit, qtdl, scalar_dp
from sordino.mechanisms._lattice import QuantizedMessages, quantize
from sordino.mechanisms._table import LARGEST_TABLE, fold, table
from sordino.mechanisms.qtdl import _discrete_laplace, _rounded_gaussian
from sordino.privacy.tdl import tdl_pmf

ALPHA = 1e-5
Z_MAX = stats.norm.isf(ALPHA / 2)  # 4.4
N = 300_000
CELLS = 64


def ks_p(sample, cdf):
    """Kolmogorov-Smirnov against a continuous law."""
    F = np.sort(cdf(np.asarray(sample, np.float64)))
    n = len(F)
    D = max(np.max(np.arange(1, n + 1) / n - F), np.max(F - np.arange(n) / n))
    return special.kolmogorov(math.sqrt(n) * D)


def chi_square_p(draws, first, pmf):
    """Pearson's test of integers against P(first + i) = pmf[i], in about CELLS cells of equal probability."""
    index = np.asarray(draws, np.int64) - first
    if index.min() < 0 or index.max() >= len(pmf):
        return 0.0
    pmf = pmf / pmf.sum()
    cell = np.minimum((CELLS * (np.cumsum(pmf) - pmf / 2)).astype(int), CELLS - 1)
    expected = len(index) * np.bincount(cell, pmf, CELLS)
    observed = np.bincount(cell, np.bincount(index, minlength=len(pmf)), CELLS)
    small = expected < 10  # too few for the limit law: count them as one cell
    expected = np.append(expected[~small], expected[small].sum())
    observed = np.append(observed[~small], observed[small].sum())
    if expected[-1] < 10:
        if observed[-1] > 40:
            return 0.0
        expected, observed = expected[:-1], observed[:-1]
    return float(special.chdtrc(max(len(expected) - 1, 1), np.sum((observed - expected) ** 2 / expected)))


def integer_p(draws, law):
    return chi_square_p(draws, -(len(law) // 2), law)


def noise_of(mechanism, seed=0, n=N):
    """The message of the zero vector."""
    if isinstance(mechanism, QuantizedMessages):  # noise falls on each coordinate: one long vector is many draws
        mechanism = dataclasses.replace(mechanism, d=n)
    return np.asarray(mechanism.randomize(jax.random.key(seed), jnp.zeros(n, jnp.float32)))


def steps_of(mechanism, seed=0, n=N):
    """The same in quantisation steps."""
    steps = noise_of(mechanism, seed, n) * (mechanism.levels / mechanism.bound)
    assert np.max(np.abs(steps - np.round(steps))) < 1e-3
    return np.round(steps).astype(np.int64)


# Continuous laws


@pytest.mark.parametrize(
    ("mechanism", "law"),
    [(gaussian(0.7), stats.norm), (laplace(0.7), stats.laplace), (gaussian(1e-3), stats.norm)],
)
def test_continuous_noise_has_its_scale_and_no_other(mechanism, law):
    (scale,) = jax.tree.leaves(mechanism)
    noise = noise_of(mechanism)
    assert ks_p(noise, law(scale=scale).cdf) > ALPHA
    for wrong in (0.95, 1.05):
        assert ks_p(noise, law(scale=wrong * scale).cdf) < ALPHA
    other = stats.laplace if law is stats.norm else stats.norm
    assert ks_p(noise, other(scale=np.std(noise) / other.std()).cdf) < ALPHA


@pytest.mark.parametrize("mechanism", [gaussian(0.7), laplace(0.7)])
def test_noise_is_added_to_the_vector(mechanism):
    u = jnp.linspace(-1, 1, 1000, dtype=jnp.float32)
    alone = mechanism.randomize(jax.random.key(3), jnp.zeros(1000, jnp.float32))
    np.testing.assert_allclose(mechanism.randomize(jax.random.key(3), u), u + alone, atol=1e-6)


@pytest.mark.parametrize("mechanism", [gaussian(0.7), laplace(0.7)])
def test_no_draw_is_used_twice(mechanism):
    keys = jax.random.split(jax.random.key(0), 30)
    noise = np.asarray(jax.vmap(mechanism.randomize, in_axes=(0, None))(keys, jnp.zeros(30, jnp.float32)))
    # 900 draws of 23 random bits: 0.05 coincidences are expected, copies would come by the dozen.
    assert noise.size - np.unique(noise).size <= 3
    rows = np.corrcoef(noise)[np.triu_indices(30, 1)]
    assert np.max(np.abs(rows)) * math.sqrt(30) < stats.norm.isf(ALPHA / 435)


# Integer laws


def rounded_gaussian(std):
    edges = np.arange(-math.ceil(9 * std) - 1, math.ceil(9 * std) + 1) + 0.5
    return np.diff(special.ndtr(edges / std))


def discrete_gaussian_law(std):
    y = np.arange(-math.ceil(12 * std), math.ceil(12 * std) + 1)
    return np.exp(-(y**2) / (2 * std**2))


def coin_law(coins):
    return stats.binom.pmf(np.arange(coins + 1), coins, 0.5)


def discrete_laplace_law(alpha):
    return tdl_pmf(math.ceil(60 / alpha), alpha)


def make_qtdl(noise, epsilon=6.0, delta=1e-5):
    return qtdl(d=20, levels=8, epsilon=epsilon, delta=0.0 if noise == "laplace" else delta, noise=noise)


def qtdl_cases():
    rounded, pure = make_qtdl("gaussian"), make_qtdl("laplace")
    truncated, paper = make_qtdl("truncated-laplace"), make_qtdl("theorem-1", epsilon=1.0)
    std, alpha = rounded.calibration.noise_std, pure.calibration.alpha
    yield rounded, rounded_gaussian(std), [rounded_gaussian(f * std) for f in (0.95, 1.05)]
    yield pure, discrete_laplace_law(alpha), [discrete_laplace_law(f * alpha) for f in (0.95, 1.05)]
    for mechanism in (truncated, paper):
        m, alpha = mechanism.calibration.support, mechanism.calibration.alpha
        scales = [tdl_pmf(m, f * alpha) for f in (0.95, 1.05)] if mechanism is truncated else []
        # Theorem 1's noise is all but uniform: there the support decides, to within one value.
        supports = [tdl_pmf(m + 1, alpha), tdl_pmf(m - 1, alpha)] if mechanism is paper else []
        yield mechanism, tdl_pmf(m, alpha), scales + supports


def integer_cases():
    yield from qtdl_cases()
    for std in (0.6, 3.0, 250.0):
        near = [discrete_gaussian_law(f * std) for f in (0.95, 1.05)]
        if std < 1:
            near.append(rounded_gaussian(std))
        yield discrete_gaussian(levels=8, noise_std=std), discrete_gaussian_law(std), near
    for coins in (2, 40, 5000):
        near = [coin_law(2 * round(coins * f / 2)) for f in (0.9, 1.1) if coins > 2]
        near += [coin_law(coins + 2)] if coins <= 40 else [rounded_gaussian(1.05 * math.sqrt(coins) / 2)]
        yield binomial(d=20, levels=8, coins=coins), coin_law(coins), near


@pytest.mark.parametrize(
    ("mechanism", "law", "near_misses"), integer_cases(), ids=lambda x: type(x).__name__ if hasattr(x, "levels") else ""
)
def test_integer_noise_has_its_law_and_no_neighbouring_one(mechanism, law, near_misses):
    steps = steps_of(mechanism)
    assert integer_p(steps, law) > ALPHA
    assert near_misses
    for near in near_misses:
        assert integer_p(steps, near) < ALPHA


def test_ten_billion_coins_are_a_gaussian_of_the_right_scale():
    coins = 12_107_000_000
    steps = steps_of(binomial(d=20, levels=2**20, coins=coins))
    std = math.sqrt(coins) / 2
    assert ks_p(steps, stats.norm(scale=std).cdf) > ALPHA
    for wrong in (0.95, 1.05):
        assert ks_p(steps, stats.norm(scale=wrong * std).cdf) < ALPHA


@pytest.mark.parametrize("alpha", [0.5, 1e-3, 1e-6])
def test_discrete_laplace_draws_both_digits(alpha):
    """At alpha = 1e-6 the noise is about 2^20 and the upper digit counts; at 0.5 only the lower one does."""
    Y = np.asarray(_discrete_laplace(jax.random.key(5), alpha, (N,)), np.int64)
    if alpha > 1e-5:
        assert integer_p(Y, discrete_laplace_law(alpha)) > ALPHA
        for f in (0.95, 1.05):
            assert integer_p(Y, discrete_laplace_law(f * alpha)) < ALPHA
    else:  # its own law is too long a table: compare with the distribution function
        assert ks_p(Y, stats.laplace(scale=1 / alpha).cdf) > ALPHA
        for f in (0.95, 1.05):
            assert ks_p(Y, stats.laplace(scale=f / alpha).cdf) < ALPHA
        low = np.where(Y >= 0, Y, -1 - Y) % 2**16  # P(low) ~ e^(-alpha low), whatever the upper digit
        assert chi_square_p(low, 0, np.exp(-alpha * np.arange(2**16))) > ALPHA
        assert chi_square_p(low[np.abs(Y) > 2**17], 0, np.exp(-alpha * np.arange(2**16))) > ALPHA
        assert chi_square_p(low, 0, np.exp(-2 * alpha * np.arange(2**16))) < ALPHA
    p_zero = -math.expm1(-alpha) / (1 + math.exp(-alpha))
    assert stats.binomtest(int(np.sum(Y == 0)), N, p_zero).pvalue > ALPHA
    assert stats.binomtest(int(np.sum(Y > 0)), int(np.sum(Y != 0)), 0.5).pvalue > ALPHA


@pytest.mark.parametrize("std", [200.0, 1e5, 3e7])
def test_rounded_gaussian_noise_reaches_every_integer_at_any_scale(std):
    """Wide noise is drawn in parts; its low bits must be even, which those of a float32 normal are not at 3e7."""
    Y = np.asarray(_rounded_gaussian(jax.random.key(6), std, (N,)), np.int64)
    assert ks_p(Y + np.random.default_rng(0).uniform(-0.5, 0.5, N), stats.norm(scale=std).cdf) > ALPHA
    for wrong in (0.95, 1.05):
        assert ks_p(Y, stats.norm(scale=wrong * std).cdf) < ALPHA
    assert chi_square_p(Y % 64, 0, np.ones(64)) > ALPHA
    if std > 1e7:
        float32 = np.asarray(jnp.round(std * jax.random.normal(jax.random.key(6), (N,))), np.int64)
        assert chi_square_p(float32 % 64, 0, np.ones(64)) < ALPHA


# The quantiser


@pytest.mark.parametrize("levels", [1, 3, 1000, 2**20])
@pytest.mark.parametrize("bound", [1.0, 0.3])
def test_the_quantiser_rounds_to_a_neighbour_without_bias(levels, bound):
    """Both roundings are neighbours of s x / bound, and their mean lies within Z_MAX standard errors of it."""
    at = np.array([-1.0, -0.7071, -1e-4, 0.0, 1e-7, 0.001, 1 / 3, 0.6180339, 0.999, 1.0])
    x = (bound * at).astype(np.float32)
    n = 40_000
    Q = quantize(jax.random.key(levels), jnp.tile(x, n), levels, bound)
    Q = np.asarray(Q, np.float64).reshape(n, len(x))
    exact = levels * (x / np.float32(bound)).astype(np.float64)
    assert np.all(np.abs(Q - exact) < 1 + 1e-6)
    p = exact - np.floor(exact)
    error = np.mean(Q, axis=0) - exact
    rare = 12 / n * (p * (1 - p) * n < 12)  # what is seen a few times at most
    float32 = 2.0**-23 * (1 + (bound != 1) * np.abs(exact))  # of the uniform number, and of the quotient x / bound
    assert np.all(np.abs(error) <= Z_MAX * np.sqrt(p * (1 - p) / n) + rare + float32)
    if bound == 1:
        whole = exact == np.round(exact)
        assert np.all(Q[:, whole] == exact[whole])


def test_the_quantiser_keeps_the_low_bits_at_a_million_levels():
    """Adding the uniform number to s x instead would round it to eighths, which this notices."""
    x = jnp.full(N, (700_000 + 5 / 64) / 2**20, jnp.float32)  # s x = 700000 + 1/16: the nearest float32
    fraction = float(np.asarray(x[0], np.float64) * 2**20 - 700_000)
    assert 0.05 < fraction < 0.1
    up = int(np.sum(np.asarray(quantize(jax.random.key(0), x, 2**20, 1.0)) == 700_001))
    assert stats.binomtest(up, N, fraction).pvalue > ALPHA
    careless = jnp.floor(2**20 * x + jax.random.uniform(jax.random.key(0), x.shape)) == 700_001
    assert stats.binomtest(int(np.sum(careless)), N, fraction).pvalue < ALPHA


# Alias tables


def law_in(built, first):
    """The law that a table draws, exactly."""
    keep, alias = np.asarray(built.keep).astype(np.float64) / 2**32, np.asarray(built.alias)
    mass = keep + np.bincount(alias, 1 - keep, len(keep))
    assert int(built.first) == first
    assert len(keep) & (len(keep) - 1) == 0
    return mass / len(keep)


def peaked(n):
    pmf = np.full(n, 1e-12)
    pmf[n // 3] = 1.0
    return pmf


rng = np.random.default_rng(0)
LAWS = {
    "random": rng.random(1000),
    "random, one more than a power of two": rng.random(1025),
    "spread over decades": 10.0 ** rng.uniform(-15, 0, 777),
    "peaked": peaked(1000),
    "one of many": np.eye(1, 50, 17)[0],
    "uniform": np.ones(1000),
    "uniform, a power of two": np.ones(1024),
    "single": np.ones(1),
    "two": np.array([0.3, 0.7]),
    "ties": np.array([0.5, 1.5, 0.5, 1.5]),
    "ties with full columns": np.array([1.0, 1.0, 0.5, 1.5]),
    "many ties": np.tile([0.5, 1.0, 1.5, 0.25, 1.75, 1.0, 1.0, 1.0], 64),
    "some zeros": rng.random(500) * (rng.random(500) < 0.3),
    "gaussian": discrete_gaussian_law(300.0),
    "tdl": tdl_pmf(70_000, 1e-4),
    "large": discrete_gaussian_law(2e4),
}


@pytest.mark.parametrize("name", LAWS)
def test_an_alias_table_holds_its_law_exactly(name):
    pmf = LAWS[name]
    mass = law_in(table(-7, pmf), -7)
    np.testing.assert_allclose(mass[: len(pmf)], pmf / pmf.sum(), rtol=0, atol=1e-9)
    assert np.sum(np.abs(mass[: len(pmf)] - pmf / pmf.sum())) < 1e-9
    assert not np.any(mass[len(pmf) :])
    assert not np.any(mass[: len(pmf)][pmf == 0])


def test_random_small_tables_with_ties_hold_their_law():
    for seed in range(300):
        generator = np.random.default_rng(seed)
        pmf = generator.integers(0, 5, generator.integers(1, 40)).astype(float)
        if pmf.sum():
            np.testing.assert_allclose(law_in(table(0, pmf), 0)[: len(pmf)], pmf / pmf.sum(), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["random", "peaked", "uniform", "single", "ties", "tdl"])
def test_an_alias_table_draws_its_law(name):
    draws = table(-7, LAWS[name]).draw(jax.random.key(1), (N,))
    assert draws.dtype == jnp.int32
    assert chi_square_p(draws, -7, LAWS[name]) > ALPHA
    if name == "random":
        tilted = LAWS[name] * np.linspace(0.95, 1.05, 1000)
        assert chi_square_p(draws, -7, tilted) < ALPHA


def test_the_largest_table_can_be_built():
    pmf = tdl_pmf(LARGEST_TABLE // 2 - 1, 1e-6)
    mass = law_in(table(0, pmf), 0)
    assert np.sum(np.abs(mass[: len(pmf)] - pmf)) < 1e-9


@pytest.mark.parametrize("count", [1, 2, 3, 7, 30])
@pytest.mark.parametrize("name", ["two values", "gaussian", "tdl", "single"])
def test_fold_is_the_convolution(name, count):
    pmf = {
        "two values": np.array([0.25, 0.5, 0.25]),
        "gaussian": rounded_gaussian(4.0),
        "tdl": tdl_pmf(9, 0.1),
        "single": np.ones(1),
    }[name]
    direct = np.ones(1)
    for _ in range(count):
        direct = np.convolve(direct, pmf)
    folded = fold(pmf, count)
    assert len(folded) % 2 == 1
    cut = (len(direct) - len(folded)) // 2
    np.testing.assert_allclose(folded, direct[cut : len(direct) - cut], rtol=0, atol=1e-15)
    assert np.sum(direct[:cut]) < 1e-15
    assert np.sum(folded) == pytest.approx(1.0, abs=1e-13)


def test_fold_of_a_thousand_has_the_right_moments():
    folded = fold(tdl_pmf(9, 0.1), 1000)
    y = np.arange(len(folded)) - len(folded) // 2
    one = np.arange(-9, 10)
    assert y @ folded == pytest.approx(0.0, abs=1e-9)
    assert y**2 @ folded == pytest.approx(1000 * (one**2 @ tdl_pmf(9, 0.1)), rel=1e-10)


# PrivUnit and ScalarDP


def unit(d, seed=0):
    u = np.random.default_rng(seed).normal(size=d)
    return u / np.linalg.norm(u)


def projection_scores(mechanism, vector, n, seed=0):
    """z-scores of the mean message minus the vector along u, across it, along an axis and along a random direction."""
    d = len(vector)
    u = np.asarray(vector / np.linalg.norm(vector), np.float64)
    across = unit(d, 1) - (unit(d, 1) @ u) * u
    basis = jnp.asarray(np.stack([u, across / np.linalg.norm(across), np.eye(1, d, d - 1)[0], unit(d, 2)]), jnp.float32)
    batches = max(1, n * d // 5_000_000)
    keys = jax.random.split(jax.random.key(seed), (batches, n // batches))
    v = jnp.asarray(vector, jnp.float32)
    seen = np.concatenate([np.asarray(messages_of(mechanism, part, v).vector @ basis.T, np.float64) for part in keys])
    return (seen.mean(0) - np.asarray(basis, np.float64) @ vector) / (seen.std(0) / math.sqrt(len(seen)))


@jax.jit
def messages_of(mechanism, keys, vector):
    return jax.vmap(mechanism.message, in_axes=(0, None))(keys, vector)


@lru_cache
def make_privunit(d):
    return privunit(d=d, eps0=2.0, eps1=2.0, eps2=2.0, bound=1.0)


@pytest.mark.parametrize(("d", "n"), [(2, 100_000), (3, 100_000), (10, 100_000), (237, 16_000), (5046, 4000)])
def test_privunit_is_unbiased(d, n):
    assert np.max(np.abs(projection_scores(make_privunit(d), 0.8 * unit(d), n))) < Z_MAX


def test_biased_directions_are_noticed():
    mechanism, vector = make_privunit(237), 0.8 * unit(237)
    # Algorithm 3 as printed: "w.p. gamma".
    literal = dataclasses.replace(mechanism.direction, p=mechanism.direction.gamma)
    scores = projection_scores(dataclasses.replace(mechanism, direction=literal), vector, 16_000)
    assert scores[0] < -Z_MAX
    # A scale that is 5 % off.
    mechanism, vector = make_privunit(10), 0.8 * unit(10)
    for wrong, sign in ((0.95, 1), (1.05, -1)):
        scaled = dataclasses.replace(mechanism.direction, m=wrong * mechanism.direction.m)
        scores = projection_scores(dataclasses.replace(mechanism, direction=scaled), vector, 100_000)
        assert sign * scores[0] > Z_MAX


@pytest.mark.parametrize("d", [2, 3, 237, 10**6])
def test_the_cap_coordinate_has_its_exact_law(d):
    """G(S(t)) is uniform: S the upper tail of a uniform point's coordinate, G the mixture of cap and rest."""
    direction = privunit(d=d, eps0=1.0, eps1=2.0, eps2=2.0, bound=1.0).direction
    mechanism = dataclasses.replace(make_privunit(2), direction=direction)
    n = 100_000
    t = jax.jit(jax.vmap(mechanism._cap_coordinate))(jax.random.split(jax.random.key(d), n))
    t = np.asarray(t, np.float64)
    S = special.betaincc(0.5, (d - 1) / 2, t**2) / 2
    S = np.where(t >= 0, S, 1 - S)

    def mixture(p, q):
        return lambda tail: np.where(tail < q, p * tail / q, p + (1 - p) * (tail - q) / (1 - q))

    p, q = direction.p, direction.q
    assert ks_p(S, mixture(p, q)) > ALPHA
    for wrong in (0.95, 1.05):
        assert ks_p(S, mixture(wrong * p, q)) < ALPHA
        assert ks_p(S, mixture(p, wrong * q)) < ALPHA
    in_cap = int(np.sum(t >= direction.gamma * (1 - 1e-7)))
    assert stats.binomtest(in_cap, n, p).pvalue > ALPHA


@pytest.mark.parametrize("d", [2, 3, 237])
def test_the_direction_has_length_one_over_m_and_lies_around_u(d):
    """Also where the random vector is all but parallel to u, which at d = 2 happens."""
    mechanism, n = make_privunit(d), 40_000 if d < 10 else 3000
    directions = jnp.asarray(
        np.stack([unit(d), -unit(d), np.eye(1, d)[0], -np.eye(1, d)[0], np.eye(1, d, 1)[0]]), jnp.float32
    )
    draw = jax.jit(jax.vmap(lambda key: jax.vmap(mechanism.randomize_direction, in_axes=(None, 0))(key, directions)))
    V = mechanism.direction.m * np.asarray(draw(jax.random.split(jax.random.key(7), n)), np.float64)
    np.testing.assert_allclose(np.linalg.norm(V, axis=-1), 1.0, rtol=1e-5)
    along = np.sum(V * np.asarray(directions, np.float64), axis=-1)
    for in_cap in np.sum(along >= mechanism.direction.gamma - 1e-6, axis=0):
        assert stats.binomtest(int(in_cap), n, mechanism.direction.p).pvalue > ALPHA


def test_around_u_every_direction_is_as_likely():
    d, n = 3, 100_000
    mechanism, u = make_privunit(d), unit(d, 5)
    draw = jax.jit(jax.vmap(lambda key: mechanism.randomize_direction(key, jnp.asarray(u, jnp.float32))))
    V = np.asarray(draw(jax.random.split(jax.random.key(8), n)), np.float64)
    first = np.cross(u, [1.0, 0.0, 0.0])
    first /= np.linalg.norm(first)
    angle = np.arctan2(V @ np.cross(u, first), V @ first)
    assert ks_p(angle, stats.uniform(-math.pi, 2 * math.pi).cdf) > ALPHA
    upper = V @ u > np.median(V @ u)
    assert ks_p(angle[upper], stats.uniform(-math.pi, 2 * math.pi).cdf) > ALPHA


@pytest.mark.parametrize("vector", [[0.0, 0.0], [1.5e-19, 1e-19], [1e-25, -1e-25], [1e-42, 1e-42], [0.6, 0.8]])
def test_the_length_of_a_message_tells_its_level_and_nothing_else(vector):
    mechanism = make_privunit(2)
    message = messages_of(mechanism, jax.random.split(jax.random.key(0), 2000), jnp.asarray(vector, jnp.float32))
    length = mechanism.direction.m * np.linalg.norm(np.asarray(message.vector, np.float64), axis=1)
    np.testing.assert_allclose(length, np.abs(mechanism.norm.value(np.asarray(message.level))), rtol=1e-5)


def level_law(constants, r):
    """P(J^ = j), j = 0, ..., k, as Algorithm 4 says."""
    k, kr = constants.k, constants.k * r / constants.bound
    J = np.zeros(k + 1)
    J[math.floor(kr)] += math.floor(kr) + 1 - kr
    J[min(math.floor(kr) + 1, k)] += kr - math.floor(kr)
    truth = math.exp(constants.epsilon) / (math.exp(constants.epsilon) + k)
    return truth * J + (1 - truth) / k * (1 - J)


@pytest.mark.parametrize("eps2", [0.5, 2.0, 4.0])
@pytest.mark.parametrize("r", [0.0, 0.4, 0.77, 1.5])
def test_norm_levels_have_their_law(eps2, r):
    mechanism = scalar_dp(eps2, 1.5)
    levels = mechanism.randomize(jax.random.key(int(100 * r)), jnp.full(N, r, jnp.float32)).level
    assert chi_square_p(levels, 0, level_law(mechanism.constants, r)) > ALPHA
    for wrong in (0.95, 1.05) if eps2 >= 2 else ():  # below, a level tells too little
        near = dataclasses.replace(mechanism.constants, epsilon=wrong * eps2)
        assert chi_square_p(levels, 0, level_law(near, r)) < ALPHA
        if 0 < r < 1.4:
            assert chi_square_p(levels, 0, level_law(mechanism.constants, wrong * r)) < ALPHA


@pytest.mark.parametrize("eps2", [0.3, 1.0, math.log(4), 2.0, 5.0, 9.0])
@pytest.mark.parametrize("C", [0.2, 1.0, 30.0])
def test_the_squared_norm_is_never_overestimated(eps2, C):
    """E r^ = r and r^2 - E s^ = (C^2 / k^2) (1/4 - f (1 - f)), f = frac(k r / C), summed over all levels."""
    mechanism = scalar_dp(eps2, C)
    constants = mechanism.constants
    j = np.arange(constants.k + 1)
    for r in C * np.linspace(0, 1, 41):
        P = level_law(constants, r)
        f = constants.k * r / C % 1.0
        gap = (C / constants.k) ** 2 * (0.25 - f * (1 - f))
        assert P @ mechanism.value(j) == pytest.approx(r, abs=1e-12 * C)
        assert r**2 - P @ mechanism.squared_norm(j) == pytest.approx(gap, abs=1e-11 * C**2)
        assert gap >= 0


def test_golden_moments_of_the_norm():
    mechanism, j = scalar_dp(2.0, 1.0), np.arange(3)
    P = level_law(mechanism.constants, 0.5)
    r = mechanism.value(j)
    assert P @ r**2 - (P @ r) ** 2 == pytest.approx(0.115005480113, abs=1e-12)
    assert P @ mechanism.squared_norm(j) == pytest.approx(0.1875, abs=1e-12)


@pytest.mark.parametrize("eps2", [2.0, 5.0])
def test_the_level_is_recovered_from_every_message(eps2):
    mechanism = privunit(d=237, eps0=2.0, eps1=2.0, eps2=eps2, bound=1.0)
    vector = jnp.asarray(0.63 * unit(237), jnp.float32)
    message = messages_of(mechanism, jax.random.split(jax.random.key(4), 10_000), vector)
    recovered = jax.vmap(mechanism.level_of)(message.vector)
    np.testing.assert_array_equal(recovered, message.level)
    assert len(np.unique(recovered)) == mechanism.norm.constants.k + 1
    squares = np.asarray(mechanism.squared_norm(message), np.float64)
    expected = level_law(mechanism.norm.constants, 0.63) @ mechanism.norm.squared_norm(
        np.arange(mechanism.norm.constants.k + 1)
    )
    assert abs(squares.mean() - expected) < Z_MAX * squares.std() / math.sqrt(len(squares))


@pytest.mark.parametrize("eps2", [math.log(4), math.log(9)])
def test_a_level_that_the_length_does_not_tell_is_refused(eps2):
    with pytest.raises(Refused, match="transmit the level"):
        scalar_dp(eps2, 1.0).level_of(jnp.float32(0.5))
