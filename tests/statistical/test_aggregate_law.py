"""`aggregate` has the joint law of what the server computes from the messages of all clients.

Both sides are drawn N times and compared by two-sample Kolmogorov-Smirnov tests on the marginals, on quadratic
statistics and on random projections of all of them, with Bonferroni's correction inside each comparison. Keys are
fixed; with others a true law would be rejected with probability ALPHA a comparison, once in 1000 runs of this file.
Near misses must be rejected at the same level.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from sordino.mechanisms import binomial, discrete_gaussian, gaussian, laplace, none, privunit, qtdl
from sordino.mechanisms._lattice import QuantizedMessages
from sordino.mechanisms._packing import PackedIntegers
from sordino.mechanisms.gaussian import Gaussian

ALPHA = 3e-5
N = 25_000
PROJECTIONS = 15


def _for_length(mechanism, n):
    """The same mechanism for n coordinates: noise falls on each by itself, so one long vector is many draws."""
    return dataclasses.replace(mechanism, d=n) if isinstance(mechanism, QuantizedMessages) else mechanism


def whole_numbers(mechanism):
    return isinstance(mechanism.wire, PackedIntegers)


def two_sample_p(x, y):
    """Kolmogorov-Smirnov; with ties conservative."""
    x, y = np.sort(x), np.sort(y)
    D = np.max(np.abs(np.searchsorted(x, y, "right") - np.searchsorted(y, y, "right"))) / N
    return special.kolmogorov(D * math.sqrt(N / 2))


def joint_p(one, other):
    """The least p over all columns and over random projections of the standardised columns, times their number."""
    centre, spread = np.mean(one, axis=0), np.std(one, axis=0) + 1e-30
    directions = np.random.default_rng(0).normal(size=(one.shape[1], PROJECTIONS))
    # Rounded, so that equal lattice points stay equal.
    columns = [np.hstack([s, (s - centre) / spread @ directions]).round(9) for s in (one, other)]
    found = [two_sample_p(x, y) for x, y in zip(columns[0].T, columns[1].T, strict=True)]
    return min(1.0, len(found) * min(found))


def statistics(mechanism, vectors, total, squares):
    """What is compared: coordinates, size of the noise, and the sum of squares alone and against the mean."""
    M, exact = len(vectors), np.sum(np.asarray(vectors, np.float64), axis=0)
    total = np.asarray(total, np.float64)
    if whole_numbers(mechanism):  # whole numbers of steps, which float32 sums hit but nearly
        step = float(mechanism.bound) / mechanism.levels
        assert np.max(np.abs(total / step - np.round(total / step))) < 1e-2
        total = step * np.round(total / step)
    columns = [*(total - exact).T, np.sum((total - exact) ** 2, axis=1)]
    if squares is not None:
        squares = np.asarray(squares, np.float64)
        mean_square = np.sum(total**2, axis=1) / M**2
        columns += [squares]
        if M > 1:  # one message is its own mean
            columns += [squares - M * mean_square, np.log(squares / mean_square)]
    return np.stack(columns, axis=1)


def cohort(M, d, length=0.8, same=False):
    vectors = np.random.default_rng(M * d).normal(size=(M, d))
    vectors *= length / np.linalg.norm(vectors, axis=1, keepdims=True)
    return jnp.asarray(vectors[:1].repeat(M, axis=0) if same else vectors, jnp.float32)


def from_messages(mechanism, vectors, with_squares=False):
    """Every client randomises, the server adds. One long vector of all runs saves compiling: noise is elementwise."""
    everything = jnp.tile(vectors.reshape(-1), N)
    long = _for_length(mechanism, everything.size)
    messages = np.asarray(long.randomize(jax.random.key(1), everything), np.float64).reshape(N, *vectors.shape)
    squares = np.sum(messages**2, axis=(1, 2)) if with_squares else None
    return statistics(mechanism, vectors, np.sum(messages, axis=1), squares)


def from_aggregate(mechanism, vectors, count=None):
    """The shortcut; a mechanism on integers is given the sum of the encoded vectors."""
    M, d = vectors.shape
    total, squares = jnp.sum(vectors, axis=0), jnp.sum(vectors**2)
    if isinstance(mechanism, Gaussian):
        drawn = aggregate_all(mechanism, jax.random.split(jax.random.key(2), N), total, squares, M)
        return statistics(mechanism, vectors, drawn.sum, drawn.sum_of_squared_norms)
    key_encode, key_noise = jax.random.split(jax.random.key(2))
    totals = jnp.tile(total, N)
    if whole_numbers(mechanism):
        encoded = _for_length(mechanism, N * vectors.size).encode(key_encode, jnp.tile(vectors.reshape(-1), N))
        totals = jnp.sum(encoded.reshape(N, M, d), axis=1).reshape(-1)
    drawn = mechanism.aggregate(key_noise, totals, squares, count or M)
    assert drawn.sum_of_squared_norms is None
    return statistics(mechanism, vectors, np.asarray(drawn.sum).reshape(N, d), None)


@jax.jit
def aggregate_all(mechanism, keys, total, squares, count):
    return jax.vmap(lambda key: mechanism.aggregate(key, total, squares, count))(keys)


# The noise about as large as the differences between clients, so that every term of the law matters.
GAUSSIAN = gaussian(0.3)


@pytest.mark.parametrize("d", [1, 4])
@pytest.mark.parametrize(("M", "same"), [(1, False), (2, False), (2, True), (6, False), (6, True)])
def test_gaussian_sums_and_squares_have_their_joint_law(M, d, same):
    vectors = cohort(M, d, same=same)
    assert joint_p(from_messages(GAUSSIAN, vectors, with_squares=True), from_aggregate(GAUSSIAN, vectors)) > ALPHA


def test_near_misses_of_the_gaussian_law_are_noticed():
    M, d, s = 6, 4, GAUSSIAN.noise_std
    vectors = cohort(M, d)
    truth = from_messages(GAUSSIAN, vectors, with_squares=True)
    for wrong in (0.95, 1.05):
        assert joint_p(truth, from_aggregate(gaussian(wrong * s), vectors)) < ALPHA

    exact, squares = np.sum(np.asarray(vectors, np.float64), axis=0), float(np.sum(vectors**2))
    R2 = squares - exact @ exact / M

    def with_law(dof, cross=2.0, mean_of_its_own=True):
        """The law of the module, with one term changed."""
        rng = np.random.default_rng(3)
        total = exact + s * math.sqrt(M) * rng.normal(size=(N, d))
        g = s * rng.normal(size=N)
        around = R2 + cross * math.sqrt(R2) * g + g**2 + s**2 * rng.chisquare(dof, N)
        other = total if mean_of_its_own else exact + s * math.sqrt(M) * rng.normal(size=(N, d))
        return statistics(GAUSSIAN, vectors, total, np.sum(other**2, axis=1) / M + around)

    dof = (M - 1) * d - 1
    assert joint_p(truth, with_law(dof)) > ALPHA
    assert joint_p(truth, with_law(dof, cross=0.0)) < ALPHA
    assert joint_p(truth, with_law(dof, cross=1.5)) < ALPHA
    assert joint_p(truth, with_law(dof, mean_of_its_own=False)) < ALPHA
    for wrong in (dof - M, dof - 1, dof + 1, dof + M):
        assert joint_p(truth, with_law(wrong)) < ALPHA


@pytest.mark.parametrize("M", [1, 7])
def test_laplace_sums_have_their_law(M):
    vectors = cohort(M, 3)
    truth = from_messages(laplace(0.3), vectors)
    assert joint_p(truth, from_aggregate(laplace(0.3), vectors)) > ALPHA
    for wrong in (0.95, 1.05):
        assert joint_p(truth, from_aggregate(laplace(wrong * 0.3), vectors)) < ALPHA
    if M == 1:  # the law, not only its variance
        assert joint_p(truth, from_messages(gaussian(0.3 * math.sqrt(2)), vectors)) < ALPHA


def with_noise(mechanism, factor):
    """The same QTDL with noise of another scale."""
    calibration = mechanism.calibration
    if calibration.law == "gaussian":
        other = dataclasses.replace(calibration, noise_std=factor * calibration.noise_std)
    elif calibration.law == "theorem-1":  # all but uniform: the support is the scale
        other = dataclasses.replace(calibration, support=round(factor * calibration.support))
    else:
        other = dataclasses.replace(calibration, alpha=calibration.alpha / factor)
    return dataclasses.replace(mechanism, calibration=other)


def make_qtdl(noise):
    epsilon = 0.6 if noise == "theorem-1" else 20.0
    return qtdl(d=3, levels=16, epsilon=epsilon, delta=0.0 if noise == "laplace" else 1e-3, noise=noise, bound=0.9)


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "truncated-laplace", "theorem-1"])
def test_qtdl_sums_have_their_law(noise):
    mechanism, vectors = make_qtdl(noise), cohort(5, 3)
    truth = from_messages(mechanism, vectors)
    assert joint_p(truth, from_aggregate(mechanism, vectors)) > ALPHA
    for wrong in (0.94, 1.06):
        assert joint_p(truth, from_aggregate(with_noise(mechanism, wrong), vectors)) < ALPHA
    assert joint_p(truth, from_aggregate(mechanism, vectors, count=4)) < ALPHA


@pytest.mark.parametrize(
    ("mechanism", "near_misses"),
    [
        (
            binomial(d=3, levels=16, coins=200, bound=0.9),
            [binomial(d=3, levels=16, coins=coins, bound=0.9) for coins in (180, 220)],
        ),
        (
            discrete_gaussian(levels=16, noise_std=5.0, bound=0.9),
            [discrete_gaussian(levels=16, noise_std=std, bound=0.9) for std in (4.75, 5.25)],
        ),
        (
            discrete_gaussian(levels=4, noise_std=0.6, bound=0.9),
            [discrete_gaussian(levels=4, noise_std=std, bound=0.9) for std in (0.54, 0.66)],
        ),
    ],
    ids=["binomial", "discrete gaussian", "coarse discrete gaussian"],
)
def test_sums_of_integers_have_their_law(mechanism, near_misses):
    vectors = cohort(5, 3)
    truth = from_messages(mechanism, vectors)
    assert joint_p(truth, from_aggregate(mechanism, vectors)) > ALPHA
    for near in near_misses:
        assert joint_p(truth, from_aggregate(near, vectors)) < ALPHA


def test_the_sum_must_be_given_encoded():
    """The noise of the quantiser belongs to the law: leaving it out is noticed where it counts."""
    mechanism, vectors = discrete_gaussian(levels=2, noise_std=0.6, bound=0.9), cohort(5, 3)
    truth = from_messages(mechanism, vectors)
    assert joint_p(truth, from_aggregate(mechanism, vectors)) > ALPHA
    rounded = jnp.round(np.sum(vectors, axis=0) * 2 / 0.9).astype(jnp.int32)
    lazy = mechanism.aggregate(jax.random.key(2), jnp.tile(rounded, N), jnp.float32(0), 5).sum
    assert joint_p(truth, statistics(mechanism, vectors, lazy.reshape(N, 3), None)) < ALPHA


def test_without_noise_the_statistics_are_the_sums_and_privunit_has_no_shortcut():
    vectors = cohort(6, 4)
    total, squares = jnp.sum(vectors, axis=0), jnp.sum(vectors**2)
    found = none().aggregate(jax.random.key(0), total, squares, 6)
    np.testing.assert_array_equal(found.sum, total)
    assert found.sum_of_squared_norms == found.squared_norms_before_noise == squares
    assert privunit(d=4, eps0=1.0, eps1=1.0, eps2=1.0, bound=1.0).aggregate is None
