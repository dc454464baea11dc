"""The audit catches each false guarantee that was found in the papers, and no guarantee of our own.

Exact audits have no false alarms. A Monte-Carlo audit gives one with probability 1e-4, and there are fewer than 50 of
them here: fresh keys would raise a false alarm in fewer than 1 run in 200, and the keys are fixed.
"""

import dataclasses
import inspect
import itertools
import math
from functools import reduce

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

import sordino.mechanisms
from sordino.bounding import clip
from sordino.errors import InvalidInput
from sordino.mechanisms import (
    binomial,
    discrete_gaussian,
    gaussian,
    laplace,
    privunit,
    qtdl,
    scalar_dp,
    truncated_laplace,
)
from sordino.privacy import delta_of, epsilon_of
from sordino.privacy.audit import Audit, audit, audit_canaries, delta_lower, exact_delta, exact_epsilon
from sordino.privacy.events import Gaussian, Sampled
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.privunit import privunit_constants
from sordino.privacy.quantized import Sensitivities, calibrations
from sordino.privacy.sampling import Poisson, WithReplacement
from sordino.privacy.tdl import tdl_pmf, theorem_1, worst_delta
from sordino.privacy.truncated_laplace import calibrate_truncated_laplace
from sordino.types import Observer, Relation, Unit

CONFIDENCE = 0.9999
DELTA = 1e-3
REPLACE_ONE = Relation.REPLACE_ONE


@jax.jit
def _randomize(mechanism, keys, vector):
    return jax.vmap(mechanism.randomize, (0, None))(keys, vector)


def messages(mechanism, vector, seed, count):
    return _randomize(mechanism, jax.random.split(jax.random.key(seed), count), vector)


def first_coordinates(mechanism, d, count=80_000):
    """The first coordinate of messages about the two vectors of norm 1 that are furthest apart, e_1 and -e_1."""
    e_1 = jnp.zeros(d).at[0].set(1.0)
    return [np.asarray(messages(mechanism, u, seed, count)[:, 0]) for seed, u in ((1, e_1), (2, -e_1))]


def certified(mechanism, d, delta=DELTA):
    return epsilon_of(mechanism.event(clip(1.0), REPLACE_ONE, d), delta, REPLACE_ONE)


def joint(*laws):
    return reduce(np.multiply.outer, laws)


# The instrument itself.


def test_exact_figures_of_randomised_response():
    p = np.array([0.75, 0.25])
    assert exact_epsilon(p, p[::-1], 0.0) == pytest.approx(math.log(3))
    assert exact_delta(p, p[::-1], 0.0) == pytest.approx(0.5)
    assert exact_delta(p, p[::-1], math.log(3)) == pytest.approx(0, abs=1e-15)
    assert exact_delta(p, p, 0.0) == exact_epsilon(p, p, 0.0) == 0


def test_exact_figures_take_the_worse_direction_and_invert_each_other():
    p, q = np.array([0.5, 0.3, 0.2, 0.0]), np.array([0.3, 0.3, 0.25, 0.15])
    assert exact_epsilon(p, q, 0.0) == exact_epsilon(q, p, 0.0) == math.inf
    assert exact_delta(p, q, 1.0) == exact_delta(q, p, 1.0) == pytest.approx(0.15)
    for delta in (0.15, 0.16, 0.19):
        assert exact_delta(p, q, exact_epsilon(p, q, delta)) == pytest.approx(delta)


def test_a_bound_fails_no_more_often_than_it_says():
    """200 audits at confidence 0.9 of Gaussian scores: with failures at the full 10 %, more than 38 have P < 1e-4."""
    rng = np.random.default_rng(3)
    truth = epsilon_of(Gaussian(1.0), 0.05)
    audits = [audit(rng.normal(1, 1, 2000), rng.normal(0, 1, 2000), 0.05, 0.9) for _ in range(200)]
    assert sum(not a.consistent_with(truth) for a in audits) <= 38
    assert np.median([a.epsilon_lower for a in audits]) > truth / 2


def test_equal_laws_show_nothing():
    scores = np.random.default_rng(4).normal(size=(2, 20_000))
    assert audit(*scores, 0.0, CONFIDENCE).epsilon_lower < 0.1
    assert delta_lower(*scores, 0.5, CONFIDENCE) == 0
    assert audit(np.zeros(100), np.zeros(100), DELTA).epsilon_lower == 0


def test_an_audit_is_held_against_a_guarantee_at_its_delta():
    promise = Guarantee(Unit.CLIENT, REPLACE_ONE, Observer.SERVER, "all rounds", 1, 2.0, 1e-3, "exact Gaussian")
    assert Audit(1.9, 1e-3, 0.99, 100, "").consistent_with(promise)
    assert not Audit(2.1, 1e-2, 0.99, 100, "").consistent_with(promise)
    with pytest.raises(InvalidInput, match="larger"):
        Audit(1.9, 1e-4, 0.99, 100, "").consistent_with(promise)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: exact_delta([0.5, 0.5], [1.0], 1.0), "same outcomes"),
        (lambda: exact_delta([0.5, 0.6], [0.5, 0.5], 1.0), "sums to 1"),
        (lambda: exact_delta([0.5, 0.5], [0.5, 0.5], -1.0), "negative"),
        (lambda: exact_epsilon([0.5, 0.5], [0.5, 0.5], 1.0), "delta"),
        (lambda: audit(np.zeros(3), np.zeros(9), 0.0), "p_scores"),
        (lambda: audit(np.zeros(9), np.full(9, np.nan), 0.0), "NaN"),
        (lambda: audit(np.zeros(9), np.zeros(9), 0.0, confidence=1.0), "confidence"),
        (lambda: audit_canaries(np.zeros(9), np.zeros((3, 3)), 0.0), "out_scores"),
    ],
)
def test_input_errors_name_the_field(call, match):
    with pytest.raises(InvalidInput, match=match):
        call()


# The planted faults, and the correct versions beside them.


def shifted_tdl(m, alpha, k, room):
    """TDL noise moved by k, on {-m, ..., m + room}."""
    return np.concatenate([np.zeros(k), tdl_pmf(m, alpha), np.zeros(room - k)])


@pytest.mark.parametrize(
    ("d", "delta_inf", "delta_1", "epsilon", "true_delta"),
    [(2, 3, 6, 0.5, 0.5256), (3, 2, 6, 1.0, 0.5744), (4, 2, 8, 1.0, 0.6958)],
)
def test_theorem_1_of_qtdl_is_caught_by_enumeration(d, delta_inf, delta_1, epsilon, true_delta):
    """Every allowed integer shift, every outcome; the signs and the order of coordinates do not matter."""
    alpha, m = theorem_1(epsilon, delta_1, delta_inf)
    shifts = itertools.combinations_with_replacement(range(delta_inf + 1), d)
    here = joint(*[shifted_tdl(m, alpha, 0, delta_inf)] * d)
    found = max(
        exact_delta(here, joint(*(shifted_tdl(m, alpha, k, delta_inf) for k in v)), epsilon)
        for v in shifts
        if sum(v) <= delta_1
    )
    assert found > 2.0**-d
    assert found == pytest.approx(true_delta, abs=5e-5)
    assert found == pytest.approx(worst_delta(m, alpha, d, delta_1, delta_inf), abs=1e-9)


def symbol_law(calibration, x):
    """The law of x plus noise in t bits, as it travels."""
    y = np.arange(-2000, 2001)
    if calibration.law == "gaussian":
        noise = np.diff(ndtr((np.append(y, y[-1] + 1) - 0.5) / calibration.noise_std))
    else:
        end = calibration.support if calibration.law == "truncated-laplace" else y[-1]
        noise = np.where(np.abs(y) <= end, np.exp(-calibration.alpha * np.abs(y)), 0.0)
    symbols = 2**calibration.bits
    return np.bincount((x + y) % symbols, weights=noise / noise.sum(), minlength=symbols)


@pytest.mark.parametrize(("delta_inf", "delta_1", "epsilon"), [(3, 6, 0.5), (2, 4, 1.0), (4, 6, 2.0)])
@pytest.mark.parametrize("delta", [0.05, 1e-4])
def test_sound_calibrations_of_qtdl_pass_exactly(delta_inf, delta_1, epsilon, delta):
    far, near = delta_inf, delta_1 - delta_inf
    bounds = Sensitivities(d=2, levels=2, l1=delta_1, l2=math.hypot(far, near), linf=delta_inf)
    for calibration in calibrations(bounds, epsilon, delta):
        here, there = (
            joint(symbol_law(calibration, a), symbol_law(calibration, b)) for a, b in ((-2, -2), (far - 2, near - 2))
        )
        promised = min(delta, delta_of(calibration.event, epsilon, REPLACE_ONE))
        assert exact_delta(here, there, epsilon) <= promised + 1e-12, calibration.label
        if calibration.law != "gaussian":  # and the promise is not empty: half of the epsilon is not met
            assert exact_epsilon(here, there, delta) > epsilon / 2, calibration.label


def test_theorem_1_of_qtdl_is_caught_at_the_mechanism():
    d, epsilon, claim = 6, 0.5, 2.0**-6
    mechanism = qtdl(d=d, levels=4, epsilon=epsilon, noise="theorem-1")
    found = delta_lower(*first_coordinates(mechanism, d), epsilon, CONFIDENCE)
    assert found > 10 * claim
    assert found <= delta_of(mechanism.event(clip(1.0), REPLACE_ONE, d), epsilon, REPLACE_ONE)


@pytest.mark.parametrize("noise", ["truncated-laplace", "laplace", "gaussian"])
def test_sound_noise_passes_at_the_mechanism(noise):
    d, epsilon, delta = 6, 0.5, 2.0**-6
    mechanism = qtdl(d=d, levels=4, epsilon=epsilon, delta=delta, noise=noise)
    assert delta_lower(*first_coordinates(mechanism, d), epsilon, CONFIDENCE) <= delta


def direction_law(constants):
    """P(V in the cap of u, in neither cap, in the cap of -u) for the input u; reversed it is the law for -u."""
    other_cap = (1 - constants.p) * constants.q / (1 - constants.q)
    return np.array([constants.p, 1 - constants.p - other_cap, other_cap])


@pytest.mark.parametrize(("d", "eps0", "eps1"), [(64, 0.5, 0.5), (10_000, 1.0, 1.0), (1_000_000, 2.0, 2.0)])
def test_privunit_with_gamma_for_p_is_caught_exactly(d, eps0, eps1):
    """The printed "w.p. gamma" nearly always avoids the cap of u: a draw inside it tells that the input was not u."""
    constants = privunit_constants(d, eps0, eps1)
    right, literal = direction_law(constants), direction_law(dataclasses.replace(constants, p=constants.gamma))
    assert exact_epsilon(right, right[::-1], 0.0) == pytest.approx(eps0 + eps1)
    assert exact_epsilon(literal, literal[::-1], 0.0) > eps0 + eps1


def test_privunit_with_gamma_for_p_is_caught_at_the_mechanism():
    d, claim = 64, 1.0
    right = privunit(d=d, eps0=0.5, eps1=0.5, eps2=1.0, bound=1.0)
    literal = dataclasses.replace(right, direction=dataclasses.replace(right.direction, p=right.direction.gamma))

    def audited(mechanism):
        direction = jax.jit(jax.vmap(mechanism.randomize_direction, (0, None)))
        e_1 = jnp.zeros(d).at[0].set(1.0)
        draws = [direction(jax.random.split(jax.random.key(i), 10_000), u)[:, 0] for i, u in enumerate((e_1, -e_1))]
        return audit(*draws, 0.0, CONFIDENCE)

    assert not audited(literal).consistent_with(claim)
    assert audited(right).consistent_with(claim)
    assert audited(right).epsilon_lower > claim / 2


@pytest.mark.parametrize("noise_std", [1.0, 2.0])
def test_gaussian_noise_30_percent_too_small_is_caught(noise_std):
    d, delta = 8, 0.01
    claim = certified(gaussian(noise_std), d, delta)
    assert not audit(*first_coordinates(gaussian(0.7 * noise_std), d), delta, CONFIDENCE).consistent_with(claim)
    assert audit(*first_coordinates(gaussian(noise_std), d), delta, CONFIDENCE).consistent_with(claim)


def cells_of_normal(edges, mean, std):
    """P(cell) of N(mean, std^2) for the cells between the edges, whole in both tails."""
    x = np.concatenate([[-np.inf], (edges - mean) / std, [np.inf]])
    low, high = x[:-1], x[1:]
    return np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))


def with_replacement_laws(K, n, z):
    """K draws from n records with gradient -1 each, or with one +1 among them; noise z times their distance.

    In units of that distance the sums are N(0, z^2) and N(k, z^2), k ~ Bin(K, 1/n). Reading them off in cells is
    post-processing, so what the cells show is a lower bound.
    """
    edges = np.linspace(-9 * z, K + 9 * z, 20_000)
    with_record = sum(binom.pmf(k, K, 1 / n) * cells_of_normal(edges, k, z) for k in range(K + 1))
    return with_record, cells_of_normal(edges, 0, z)


@pytest.mark.parametrize(
    ("K", "n", "z", "delta"),
    [(50, 1000, 2.0, 1e-5), (20, 100, 4.0, 1e-5), (40, 40, 4.0, 1e-3)],
)
def test_with_replacement_accounted_as_poisson_is_caught(K, n, z, delta):
    shown = exact_epsilon(*with_replacement_laws(K, n, z), delta)
    assert shown > 1.05 * epsilon_of(Sampled(Gaussian(z), Poisson(K / n)), delta)
    assert shown <= epsilon_of(Sampled(Gaussian(z), WithReplacement(K, n)), delta, REPLACE_ONE)


def test_with_replacement_of_one_record_is_the_gaussian_mechanism():
    shown = exact_epsilon(*with_replacement_laws(1, 1, 1.0), 1e-5)
    assert shown == pytest.approx(epsilon_of(Gaussian(1.0), 1e-5), rel=1e-5)


# Every mechanism of the package, at three settings.

MECHANISMS = {
    "gaussian": [(4, gaussian(1.0)), (4, gaussian(2.0)), (8, gaussian(6.0))],
    "laplace": [(1, laplace(1.0)), (1, laplace(4.0)), (3, laplace(3.0))],
    "discrete_gaussian": [
        (1, discrete_gaussian(levels=1, noise_std=2.0)),
        (2, discrete_gaussian(levels=4, noise_std=6.0)),
        (4, discrete_gaussian(levels=16, noise_std=20.0)),
    ],
    "binomial": [
        (1, binomial(d=1, levels=2, coins=200, delta=DELTA)),
        (2, binomial(d=2, levels=8, coins=1000, delta=DELTA)),
        (4, binomial(d=4, levels=16, coins=10_000, delta=DELTA)),
    ],
    "qtdl": [
        (d, qtdl(d=d, levels=levels, epsilon=epsilon, delta=DELTA, noise=noise))
        for noise in ("gaussian", "truncated-laplace", "laplace")
        for d, levels, epsilon in ((1, 4, 1.0), (2, 16, 2.0), (4, 64, 4.0))
    ],
    "truncated_laplace": [
        (d, truncated_laplace(*calibrate_truncated_laplace(epsilon, DELTA, d, 2.0)))
        for d, epsilon in ((1, 1.0), (3, 2.0), (16, 4.0))
    ],
    "privunit": [
        (d, privunit(d=d, eps0=eps, eps1=eps, eps2=eps, bound=1.0)) for d, eps in ((2, 0.5), (16, 1.0), (64, 2.0))
    ],
}


def test_every_mechanism_is_audited():
    factories = {name for name, value in vars(sordino.mechanisms).items() if inspect.isfunction(value)}
    of_their_own = {"scalar_dp", "secure_sum", "none"}  # audited elsewhere: scalars, and messages that are seen as sums
    assert {*MECHANISMS, *of_their_own} == factories >= set(sordino.mechanisms.MECHANISMS)


@pytest.mark.parametrize(
    ("d", "mechanism"),
    [pytest.param(d, mechanism, id=name) for name, cases in MECHANISMS.items() for d, mechanism in cases],
)
def test_audited_epsilon_does_not_exceed_the_certified_one(d, mechanism):
    found = audit(*first_coordinates(mechanism, d, 40_000), DELTA, CONFIDENCE)
    assert found.epsilon_lower > 0
    assert found.consistent_with(certified(mechanism, d))


@pytest.mark.parametrize("eps2", [0.5, 2.0, 4.0])
def test_audited_epsilon_of_scalar_dp_is_nearly_the_certified_one(eps2):
    mechanism = scalar_dp(eps2)
    levels = [messages(mechanism, jnp.float32(r), seed, 50_000).level for seed, r in ((1, 0.0), (2, 1.0))]
    found = audit(*levels, 0.0, CONFIDENCE)
    assert 0.7 * eps2 < found.epsilon_lower
    assert found.consistent_with(epsilon_of(mechanism.event, 0.0))


def test_the_audit_has_teeth():
    """Where delta is large enough to be seen in the draws, most of the certified epsilon is shown."""
    for noise_std in (1.0, 2.0):
        found = audit(*first_coordinates(gaussian(noise_std), 4), 0.01, CONFIDENCE)
        assert found.epsilon_lower > 0.7 * certified(gaussian(noise_std), 4, 0.01)


def every_float32_normal():
    """All that `jax.random.normal` can return: the random bits fill the mantissa of a number in [1, 2)."""
    fraction = (np.arange(2**23, dtype=np.uint32) | np.uint32(0x3F800000)).view(np.float32) - np.float32(1)
    least = np.nextafter(np.float32(-1), np.float32(0))
    uniform = jax.jit(lambda x: jnp.maximum(least, x * (np.float32(1) - least) + least))(fraction)
    return np.float32(np.sqrt(2)) * jax.lax.erf_inv(uniform)


def test_wide_rounded_gaussian_noise_leaves_no_gaps():
    """A whole number that no float32 normal rounds to, seen relative to one input, tells that it was the other."""
    levels, epsilon, delta = 2**16, 1.0, 1e-5
    mechanism = qtdl(d=1, levels=levels, epsilon=epsilon, delta=delta, noise="gaussian")
    noise = np.asarray(jnp.round(mechanism.calibration.noise_std * every_float32_normal())).astype(np.int64)
    reachable = np.unique(noise)
    messages_here, messages_there = first_coordinates(mechanism, 1, 50_000)

    def gaps(messages):
        symbols = np.round(np.float64(messages) * levels).astype(np.int64)
        return (~np.isin(symbols + levels, reachable)).astype(float) - ~np.isin(symbols - levels, reachable)

    assert delta_lower(gaps(messages_here), gaps(messages_there), epsilon, CONFIDENCE) <= delta


# Canaries.


def test_canaries_of_a_gaussian_mechanism():
    rng = np.random.default_rng(5)
    truth = epsilon_of(Gaussian(0.5), DELTA)
    inside, outside = rng.normal(1, 0.5, 2000), rng.normal(0, 0.5, 2000)
    found = audit_canaries(inside, outside, DELTA, CONFIDENCE)
    assert found.samples == 4000
    assert found.epsilon_lower > 1
    assert found.consistent_with(truth)
    assert not found.consistent_with(epsilon_of(Gaussian(2.0), DELTA))  # a claim of four times the noise
    assert audit_canaries(outside, outside[::-1], DELTA, CONFIDENCE).epsilon_lower < 0.1
