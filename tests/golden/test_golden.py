"""Every golden number (golden.json, computed independently), and more values of the same functions.

The second derivations use mpmath at 50 digits or plain enumeration, never the code under test.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path

import mpmath
import numpy as np
import pytest

from sordino.algorithms.ac_sa import ac_sa_weights
from sordino.errors import InvalidInput
from sordino.privacy import published
from sordino.privacy.accountants import account_of, delta_of, epsilon_of
from sordino.privacy.binomial import binomial_bits, binomial_event, cpsgd_coins, paper_binomial_bits
from sordino.privacy.calibration import calibrate_gaussian
from sordino.privacy.concentrated import zcdp_delta, zcdp_epsilon, zcdp_rho
from sordino.privacy.events import (
    Composed,
    DiscreteNoise,
    FiniteLoss,
    Gaussian,
    Laplace,
    Pure,
    Repeated,
    Sampled,
    ZeroConcentrated,
)
from sordino.privacy.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu, gaussian_noise_multiplier
from sordino.privacy.privunit import privunit_constants, scalar_dp_constants
from sordino.privacy.pure import pure_delta, pure_epsilon
from sordino.privacy.quantized import (
    assumed_sensitivities,
    calibrations,
    client_sensitivities,
    theorem_1_calibration,
    wrapped_gaussian_calibration,
)
from sordino.privacy.sampling import Poisson, WithoutReplacement, WithReplacement
from sordino.privacy.shuffle import shuffle_delta, shuffle_epsilon, shuffle_epsilon_closed
from sordino.privacy.tdl import (
    log_not_worst_delta,
    shift_counts,
    tdl_delta,
    tdl_normalizer,
    tdl_pmf,
    tdl_tail,
    tdl_variance,
    worst_delta,
)
from sordino.types import Relation

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
REPLACE = Relation.REPLACE_ONE


def fedexp(d: int, rounds: int, clients: int = 1000) -> float:
    """CDP-FedEXP of paper 1: the mean update and the step size, released together in every round."""
    sigma = 5 / math.sqrt(clients)  # C = 1
    mean = Gaussian(math.sqrt(clients) * sigma / 2)
    step_size = Gaussian(clients * d * sigma**2 / clients)  # sigma_xi over its sensitivity C^2 / M
    return epsilon_of(Repeated(Composed((mean, step_size)), rounds), 1e-5, REPLACE)


def qtdl_row(d: int, s: int) -> list[int]:
    bounds = assumed_sensitivities(d, s, 0.1)
    paper, coins = theorem_1_calibration(bounds, 10), cpsgd_coins(10, bounds, 3e-6)
    return [paper.support, paper.bits, coins, paper_binomial_bits(s, coins)]


def privunit_row(d: int) -> list[float]:
    sufficient, exact = privunit_constants(d, 2, 2, "condition-1"), privunit_constants(d, 2, 2)
    return [sufficient.gamma, exact.gamma, sufficient.m, exact.m]


def scalar_row(eps2: float) -> list[float]:
    c = scalar_dp_constants(eps2)
    return [c.k, c.a, c.b, c.c1, c.c2, c.c3]


def scalar_moments(eps2: float, r: float) -> list[float]:
    """Var r^ and E s^ by enumeration of the levels."""
    c = scalar_dp_constants(eps2)
    down = math.floor(c.k * r)
    law_J = {down: 1 - (c.k * r - down), down + 1: c.k * r - down}
    truth = math.exp(eps2) / (math.exp(eps2) + c.k)
    law = [sum(p * (truth if level == J else (1 - truth) / c.k) for J, p in law_J.items()) for level in range(c.k + 1)]
    value = np.array([c.a * (level - c.b) for level in range(c.k + 1)])
    mean = np.dot(law, value)
    s_hat = (value**2 - c.c2 * value - c.c3) / (1 + c.c1)
    return [float(np.dot(law, value**2) - mean**2), float(np.dot(law, s_hat))]


def ac_sa_row(r: int) -> list[float]:
    return list(ac_sa_weights(r, 0.5, 4.0))


def poisson(q: float, z: float, rounds: int) -> float:
    return epsilon_of(Repeated(Sampled(Gaussian(z), Poisson(q)), rounds), 1e-5)


def fixed(sampling: WithoutReplacement | WithReplacement) -> float:
    return epsilon_of(Repeated(Sampled(Gaussian(2), sampling), 200), 1e-5, REPLACE)


def normec_row() -> list[float]:
    sigma = published.normec_noise(300, 8, 1e-5)
    local = [epsilon_of(Repeated(Gaussian(sigma / moved), 300), 1e-5) for moved in (1, 2)]
    return [*local, epsilon_of(Repeated(Gaussian(sigma * math.sqrt(10) / 2), 300), 1e-5)]


COMPUTED = {
    ("gauss_delta", "eps=1,mu=1"): lambda: gaussian_delta(1, 1),
    ("gauss_eps", "mu=1.0,delta=1e-05"): lambda: gaussian_epsilon(1, 1e-5),
    ("gauss_eps", "mu=0.5,delta=1e-06"): lambda: gaussian_epsilon(0.5, 1e-6),
    ("gauss_eps", "mu=3.0,delta=1e-05"): lambda: gaussian_epsilon(3, 1e-5),
    ("gauss_eps LDP-FedEXP one round", "sigma=.7C, sens 2C, 1e-5"): lambda: epsilon_of(Gaussian(0.35), 1e-5, REPLACE),
    ("gauss_eps LDP-FedEXP 50 rounds", "mu=2/.7*sqrt50"): lambda: epsilon_of(
        Repeated(Gaussian(0.35), 50), 1e-5, REPLACE
    ),
    ("DP-FedAvg CDP T=50", "mu=.4*sqrt50"): lambda: epsilon_of(Repeated(Gaussian(2.5), 50), 1e-5, REPLACE),
    ("DP-FedAvg CDP T=49", "mu=.4*sqrt49"): lambda: epsilon_of(Repeated(Gaussian(2.5), 49), 1e-5, REPLACE),
    **{
        ("CDP-FedEXP", f"d={d},T={T},M=1000"): lambda d=d, T=T: fedexp(d, T)
        for d, T in itertools.product((500, 5046), (50, 49))
    },
    ("analytic sigma/sens", "(1,1e-5)"): lambda: gaussian_noise_multiplier(1, 1e-5),
    ("analytic sigma/sens", "(8,1e-5)"): lambda: gaussian_noise_multiplier(8, 1e-5),
    ("TDL Z", "m=3,alpha=.1"): lambda: tdl_normalizer(3, 0.1),
    ("TDL pmf(0), pmf(3)", "m=3,alpha=.1"): lambda: list(tdl_pmf(3, 0.1)[[3, 6]]),
    ("TDL variance (s=1)", "m=3,alpha=.1"): lambda: tdl_variance(3, 0.1),
    ("TDL variance (s=1)", "m=10,alpha=.5"): lambda: tdl_variance(10, 0.5),
    ("TDL tail tau_2", "m=3,alpha=1/6"): lambda: tdl_tail(2, 3, 1 / 6),
    ("TDL exact delta", "m=3,alpha=1/6,v=(2,2,2),eps=1"): lambda: tdl_delta(1, 3, 1 / 6, shift_counts((2, 2, 2))),
    ("TDL exact delta", "m=3,alpha=1/6,v=(2,2,2),eps=0.5"): lambda: tdl_delta(0.5, 3, 1 / 6, shift_counts((2, 2, 2))),
    **{
        ("Thm1 m, t ; cpSGD N, t(m=N)", f"{data} d={d} s={s}"): lambda d=d, s=s: qtdl_row(d, s)
        for data, d, s in (
            ("CIFAR", 2210410, 2**20),
            ("CIFAR", 2210410, 2**9),
            ("FMNIST", 328810, 2**12),
            ("FMNIST", 328810, 2**6),
        )
    },
    **{
        ("PrivUnit gamma_cond1, gamma_exact, m(cond1), m(exact)", f"d={d},eps0=eps1=2"): lambda d=d: privunit_row(d)
        for d in (10, 100, 237, 5046, 10**6)
    },
    ("ScalarDP k,a,b,c1,c2,c3 (C=1)", "eps2=2.0"): lambda: scalar_row(2.0),
    ("ScalarDP k,a,b,c1,c2,c3 (C=1)", "eps2=4.0"): lambda: scalar_row(4.0),
    ("ScalarDP Var, E[s_hat]", "eps2=2,r=.5,C=1"): lambda: scalar_moments(2.0, 0.5),
    ("Poisson-subsampled Gaussian eps", "q=.01,z=1.1,T=1000,1e-5"): lambda: poisson(0.01, 1.1, 1000),
    ("Poisson-subsampled Gaussian eps", "q=.2,z=2.6879,T=200,1e-5"): lambda: poisson(0.2, 2.6879, 200),
    ("WOR replace-one eps", "K/n=50/1000, z=2 (sens 2L/K), R=200,1e-5"): lambda: fixed(WithoutReplacement(50, 1000)),
    ("WR replace-one eps", "K=50,n=1000, z=2, R=200,1e-5"): lambda: fixed(WithReplacement(50, 1000)),
    ("pure eps composition", "eps0=.1 x 100, delta=1e-6"): lambda: pure_epsilon(0.1, 100, 1e-6),
    ("Thm 2.1 sigma(L=1), Kmin", "n=1000,R=100,eps0=1,d0=1e-5"): lambda: [
        published.minibatch_theorem_2_1(1000, 100, 6, 1, 1e-5),
        published.minibatch_theorem_2_1_least_batch(1000, 100, 1, 1e-5),
    ],
    ("one-pass sigma classical/analytic (L=1)", "eps0=1,d0=1e-5"): lambda: [
        published.one_pass_classical_noise(1, 1e-5),
        2 * gaussian_noise_multiplier(1, 1e-5),
    ],
    ("shuffle FMT21 closed, numeric", "e0=1,n=1000,d=1e-6"): lambda: [
        shuffle_epsilon(1, 1000, 1e-6, method="closed"),
        shuffle_epsilon(1, 1000, 1e-6),
    ],
    ("shuffle FMT21 closed", "e0=2,n=10000,d=1e-6"): lambda: shuffle_epsilon(2, 10000, 1e-6, method="closed"),
    **{("AC-SA alpha,eta,coef(wag),coef(w)", f"r={r},mu=.5,upsilon=4"): lambda r=r: ac_sa_row(r) for r in (1, 2, 3)},
    (
        "NormEC eps: local zero-out, local replace, central(10) replace",
        "K=300 msgs, sigma=7.3462",
    ): normec_row,
    ("QTDL Thm 2 eps0", "eps=5,K=500,d=1e-5"): lambda: published.qtdl_theorem_2_epsilon_0(5, 500, 1e-5),
}


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: re.sub(r"\W+", "-", f"{row['name']} {row['inputs']}"))
def test_golden_row(row):
    computed = np.atleast_1d(COMPUTED[row["name"], row["inputs"]]())
    expected = np.atleast_1d(row["expected"])
    if isinstance(row["tol"], str):  # "rel 1e-8"
        tolerance = float(row["tol"].split()[1]) * np.abs(expected)
    else:
        tolerance = np.broadcast_to(row["tol"], expected.shape)
    assert computed.shape == expected.shape
    # One ulp beside the stated tolerance: a tolerance of 0 is for whole numbers.
    np.testing.assert_array_less(np.abs(computed - expected), tolerance + np.spacing(np.abs(expected)))


def test_no_computed_value_is_unused():
    assert {(row["name"], row["inputs"]) for row in GOLDEN} == set(COMPUTED)


# --- second derivations ------------------------------------------------------------------------------------------


def mp_gaussian_delta(epsilon, mu):
    with mpmath.workdps(50):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("mu", [1e-4, 0.01, 0.3, 1, 5, 20, 60])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9, 1e-15])
def test_gaussian_epsilon_is_exact_and_private(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    assert mp_gaussian_delta(epsilon, mu) <= delta * (1 + 1e-9)
    if epsilon > 0:
        assert mp_gaussian_delta(epsilon * (1 - 1e-9) - 1e-12, mu) > delta * (1 - 1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.5, 1, 8, 50, 1000])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-12])
def test_gaussian_calibration_is_tight_on_the_private_side(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_delta(epsilon, mu) <= delta
    assert gaussian_delta(epsilon, mu * (1 + 1e-6)) > delta


@pytest.mark.parametrize("law", [("tdl", (3, 1 / 6)), ("tdl", (5, 0.0)), ("tdl", (4, 0.7))])
@pytest.mark.parametrize("shift", [(1,), (2, 2), (3, 1, 0), (2, -2, 2), (7,), (12,)])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 4.0])
def test_tdl_delta_against_enumeration(law, shift, epsilon):
    m, alpha = law[1]
    noise = {y: math.exp(-alpha * abs(y)) for y in range(-m, m + 1)}
    total = sum(noise.values())
    delta = 0.0
    for point in itertools.product(*(range(-m, m + 1) for _ in shift)):
        p = math.prod(noise[y] / total for y in point)
        q = math.prod(noise.get(y - k, 0.0) / total for y, k in zip(point, shift, strict=True))
        delta += max(0.0, p - math.exp(epsilon) * q)
    event = DiscreteNoise("tdl", (m, alpha), shift_counts(shift))
    assert delta_of(event, epsilon) == pytest.approx(delta, abs=1e-12)


@pytest.mark.parametrize(("d", "linf", "l1", "epsilon", "m", "delta"), [
    (2, 3, 6, 0.5, 4, 0.5256),
    (3, 2, 6, 1.0, 3, 0.5744),
    (4, 2, 8, 1.0, 3, 0.6958),
])  # fmt: skip
def test_theorem_1_is_false_by_enumeration(d, linf, l1, epsilon, m, delta):
    from sordino.privacy.tdl import theorem_1

    alpha, support = theorem_1(epsilon, l1, linf)
    assert support == m
    worst = max(
        tdl_delta(epsilon, m, alpha, shift_counts(shift))
        for shift in itertools.product(range(linf + 1), repeat=d)
        if sum(shift) <= l1
    )
    assert worst == pytest.approx(delta, abs=5e-5)
    assert worst_delta(m, alpha, d, l1, linf) == pytest.approx(worst, abs=1e-12)
    assert worst > 2.0**-d


@pytest.mark.parametrize(
    ("d", "s", "std", "tau", "log10", "tdl", "laplace", "gaussian", "free"),
    [
        (2210410, 2**20, 0.058, 0.498, -458, (1310216, 23, 0.082), 21.6, (22, 0.0537), (25, 1.04)),
        (2210410, 2**9, 0.061, 0.486, -24541, (35101, 17, 4.70), 1242, (15, 3.08), (15, 2.56)),
        (328810, 2**12, 0.058, 0.497, -648, (17427, 16, 0.303), 30.8, (15, 0.198), (17, 1.12)),
        (328810, 2**6, 0.086, 0.421, -19620, (12759, 15, 14.3), 1461, (14, 9.40), (13, 5.72)),
    ],
)
def test_qtdl_settings_of_the_paper(d, s, std, tau, log10, tdl, laplace, gaussian, free):
    """The paper's four settings: its own calibration with the true delta, and the sound ones."""
    bounds = assumed_sensitivities(d, s, 0.1)
    paper = theorem_1_calibration(bounds, 10)
    assert paper.noise_std / s == pytest.approx(std, rel=0.02)
    assert tdl_tail(int(bounds.linf), paper.support, paper.alpha) == pytest.approx(tau, abs=6e-4)
    assert log_not_worst_delta(paper.support, paper.alpha, d, bounds.l1, bounds.linf) / math.log(10) == pytest.approx(
        log10, abs=0.6
    )
    sound = {choice.law: choice for choice in calibrations(bounds, 10, 3e-6)}
    truncated = sound["truncated-laplace"]
    assert (truncated.support, truncated.bits) == tdl[:2]
    assert truncated.noise_std / s == pytest.approx(tdl[2], rel=6e-3)
    assert sound["laplace"].noise_std / s == pytest.approx(laplace, rel=2e-3)
    assert sound["gaussian"].bits == gaussian[0]
    assert sound["gaussian"].noise_std / s == pytest.approx(gaussian[1], rel=2e-3)
    worst_case = wrapped_gaussian_calibration(client_sensitivities(d, s, REPLACE), 10, 3e-6)
    assert worst_case.bits == free[0]
    assert worst_case.noise_std / s == pytest.approx(free[1], rel=6e-3)
    for choice in sound.values():
        assert account_of(choice.event, REPLACE).epsilon(3e-6) <= 10 * (1 + 1e-9), choice.law


@pytest.mark.parametrize(("rounds", "z5", "z15"), [
    (100, 2.007, 5.341), (200, 2.688, 7.432), (300, 3.227, 9.054), (500, 4.097, 11.642),
])  # fmt: skip
def test_noise_of_paper_3(rounds, z5, z15):
    for epsilon, z in ((5, z5), (1.5, z15)):
        ours = calibrate_gaussian(epsilon=epsilon, delta=1e-5, rounds=rounds, sampling=Poisson(0.2))
        assert ours == pytest.approx(z, rel=2e-3)
        assert poisson(0.2, ours, rounds) <= epsilon
        assert poisson(0.2, ours * (1 - 1e-5), rounds) > epsilon


def test_replace_one_needs_about_twice_the_noise_of_paper_3():
    z = calibrate_gaussian(epsilon=5, delta=1e-5, rounds=200, sampling=Poisson(0.2), relation=REPLACE)
    assert 2 * z == pytest.approx(5.031, abs=2e-3)  # relative to C; the sensitivity is 2 C
    event = Repeated(Sampled(Gaussian(2.6879 / 2), Poisson(0.2)), 200)
    assert epsilon_of(event, 1e-5, REPLACE) == pytest.approx(10.53, abs=5e-3)


def test_a_sampling_does_not_borrow_anothers_accountant():
    """q = .05, z = 2, T = 200: 1.561 (Poisson), 1.736 (without replacement), 2.363 (with)."""
    assert poisson(0.05, 2, 200) == pytest.approx(1.561, abs=2e-3)
    assert fixed(WithoutReplacement(50, 1000)) > 1.7
    assert fixed(WithReplacement(50, 1000)) > 2.3


@pytest.mark.parametrize(("gamma", "pure", "approximate"), [("exact", 300, 289.7), ("condition-1", 279.3, 269.2)])
def test_privunit_over_fifty_rounds(gamma, pure, approximate):
    message = Composed((privunit_constants(237, 2, 2, gamma).event, scalar_dp_constants(2).event))
    assert epsilon_of(Repeated(message, 50), 0.0) == pytest.approx(pure, abs=0.05)
    assert epsilon_of(Repeated(message, 50), 1e-5) == pytest.approx(approximate, abs=0.05)


@pytest.mark.parametrize(("M", "d", "epsilon"), [(1000, 500, 15.851), (10_000, 5046, 15.844), (10_000, 500, 46.2)])
def test_step_size_release_is_not_always_negligible(M, d, epsilon):
    # mu_xi = M / (25 d) a round, beside 0.4 for the mean.
    event = Repeated(Composed((Gaussian(2.5), Gaussian(25 * d / M))), 50)
    assert epsilon_of(event, 1e-5, REPLACE) == pytest.approx(epsilon, abs=0.05)


@pytest.mark.parametrize("d", [2, 3, 5, 50, 1000])
@pytest.mark.parametrize(("eps0", "eps1"), [(2, 2), (0.5, 4), (1.34, 2.66)])
def test_privunit_constants_against_mpmath(d, eps0, eps1):
    c = privunit_constants(d, eps0, eps1)
    with mpmath.workdps(60):
        a = mpmath.mpf(d - 1) / 2
        tau = (1 + mpmath.mpf(c.gamma)) / 2
        whole, part = mpmath.beta(a, a), mpmath.betainc(a, a, 0, tau)
        p = mpmath.exp(eps0) / (1 + mpmath.exp(eps0))
        m = (
            (1 - mpmath.mpf(c.gamma) ** 2) ** a
            / (mpmath.mpf(2) ** (d - 2) * (d - 1))
            * (p / (whole - part) - (1 - p) / part)
        )
        assert c.m == pytest.approx(float(m), rel=1e-9)
        assert c.q == pytest.approx(float((whole - part) / whole), rel=1e-9)
    assert c.epsilon == pytest.approx(eps0 + eps1, rel=1e-12)


def test_privunit_is_finite_at_a_hundred_million_coordinates():
    c = privunit_constants(10**8, 2, 2)
    assert 0 < c.gamma < 1e-3
    assert c.m * 1e4 == pytest.approx(privunit_constants(10**6, 2, 2).m * 1e3, rel=1e-5)  # m ~ 1 / sqrt(d)


def exact_shuffle_delta(epsilon, eps0, n):
    """The divergence of the clones' reduction by enumeration, with digits for e^-600 beside 1."""
    with mpmath.workdps(300):
        p, clones, e = 1 / (1 + mpmath.exp(-eps0)), mpmath.exp(-eps0), mpmath.exp(epsilon)
        total = mpmath.mpf(0)
        for c in range(n):
            weight = mpmath.binomial(n - 1, c) * clones**c * (1 - clones) ** (n - 1 - c)
            b = [mpmath.binomial(c, a) / mpmath.mpf(2) ** c for a in range(c + 1)]
            for j in range(c + 2):
                with_one, without = b[j - 1] if j > 0 else 0, b[j] if j <= c else 0
                total += weight * max(0, p * with_one + (1 - p) * without - e * ((1 - p) * with_one + p * without))
        return total


@pytest.mark.parametrize("n", [1, 2, 40])
@pytest.mark.parametrize("eps0", [0.01, 1.0, 5.0, 20.0, 25.0, 36.4, 50.0, 100.0, 600.0])
def test_shuffling_against_enumeration(n, eps0):
    """1 - p is 0 in float64 from eps0 = 37 on: what was computed from it promised 36.9 for eps0 = 100."""
    for share in (0.0, 0.3, 0.99, 1 - 1e-9):
        truth = exact_shuffle_delta(share * eps0, eps0, n)
        assert truth * (1 - 1e-15) <= shuffle_delta(share * eps0, eps0, n) <= truth * (1 + 1e-6) + 1e-19
    for delta in (1e-6, 1e-12):
        epsilon = shuffle_epsilon(eps0, n, delta)
        assert epsilon <= eps0
        assert exact_shuffle_delta(epsilon, eps0, n) <= delta


@pytest.mark.parametrize("mu", [1e-17, 1e-13, 1e-9, 1e-7, 1e-3, 0.1])
def test_gaussian_delta_of_tiny_mu_is_not_below_the_truth(mu):
    with mpmath.workdps(60):
        for share in (0.0, 0.5, 1.0, 3.0, 7.0):
            epsilon = share * mu
            exact_mu, exact_epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
            a, b = exact_mu / 2 - exact_epsilon / exact_mu, -exact_mu / 2 - exact_epsilon / exact_mu
            truth = mpmath.ncdf(a) - mpmath.exp(exact_epsilon) * mpmath.ncdf(b)
            assert truth * (1 - 1e-15) <= gaussian_delta(epsilon, mu) <= truth * (1 + 1e-12) + 4e-15


def test_records_drawn_many_times_have_a_lattice_that_fits():
    """All of 1,000 draws from one record: its own noise, a thousand times as close."""
    event = Sampled(Gaussian(2.0), WithReplacement(1000, 1))
    exact = gaussian_epsilon(500.0, 1e-5)
    assert exact <= epsilon_of(event, 1e-5, Relation.REPLACE_ONE) <= 1.01 * exact


LONG = [(100, 1e-10), (10_000, 1e-10), (1_000_000, 1e-8)]


@pytest.mark.parametrize(("count", "delta"), LONG)
def test_the_rounding_of_long_compositions_is_counted(count, delta):
    """Gaussian releases with mu = 1 in all, on a lattice; 10,000 would be 3e-4 below the truth if it were not."""
    event = Composed((Repeated(Gaussian(math.sqrt(count)), count), Laplace(1e9)))  # no closed form for both
    exact = gaussian_epsilon(1.0, delta)
    assert exact <= epsilon_of(event, delta) <= 1.02 * exact
    assert delta <= delta_of(event, exact) <= 1.5 * delta
    with pytest.raises(InvalidInput, match="exact to"):
        epsilon_of(event, count * 2.0**-48)


def test_more_releases_than_numbers_can_compose_are_refused():
    with pytest.raises(InvalidInput, match="rounds = 10000001"):
        epsilon_of(Repeated(Laplace(10.0), 10**7 + 1), 1e-6)


def test_little_noise_and_large_totals_are_accounted():
    """Their lattices are rough: never below the truth, which is between none of the samples and all of them."""
    little = Repeated(Sampled(Gaussian(0.01), Poisson(0.5)), 10)
    assert 10 * 0.4 * gaussian_epsilon(100.0, 0.5) < epsilon_of(little, 1e-6) < gaussian_epsilon(100 * 10**0.5, 1e-6)
    # The loss of one release is 2 - 1 + e^-2 in the mean, and 2 at most, whatever the lattice finds.
    assert 1.135 * 10**7 < epsilon_of(Repeated(Laplace(0.5), 10**7), 1e-6) <= 2 * 10**7
    for event in (Sampled(Gaussian(1e-9), WithReplacement(5, 10)), Sampled(Laplace(1e-4), Poisson(0.5))):
        relation = Relation.ADD_REMOVE if isinstance(event.event, Laplace) else Relation.REPLACE_ONE
        with pytest.raises(InvalidInput, match="noise_multiplier"):
            epsilon_of(event, 1e-6, relation)
    assert epsilon_of(Composed((ZeroConcentrated(1.0), Pure(1e308))), 1e-6) >= 1e308


@pytest.mark.parametrize("count", [1, 2, 7, 30])
@pytest.mark.parametrize("epsilon_0", [0.05, 1.0, 3.0])
def test_pure_composition_against_enumeration(count, epsilon_0):
    p = 1 / (1 + math.exp(-epsilon_0))
    for epsilon in (0.0, 0.3 * count * epsilon_0, 0.9 * count * epsilon_0):
        delta = sum(
            math.comb(count, j)
            * max(0.0, p**j * (1 - p) ** (count - j) - math.exp(epsilon) * (1 - p) ** j * p ** (count - j))
            for j in range(count + 1)
        )
        assert pure_delta(epsilon, epsilon_0, count) == pytest.approx(delta, abs=1e-13)
    # The lattice accountant agrees with the closed form, from above.
    event = Repeated(FiniteLoss((epsilon_0, -epsilon_0), (p, 1 - p)), count)
    exact = pure_epsilon(epsilon_0, count, 1e-6)
    assert exact - 1e-9 <= epsilon_of(event, 1e-6) <= exact + 1e-4 * count + 1e-6


def test_zcdp_conversion():
    assert zcdp_rho(10, 1.5e-6) == pytest.approx(1.577, abs=5e-4)
    for rho, delta in ((0.01, 1e-6), (1.0, 1e-5), (30.0, 1e-9)):
        epsilon = zcdp_epsilon(rho, delta)
        # Never below what Gaussian noise, which is rho-zCDP with mu = sqrt(2 rho), really has; never above Bun-Steinke.
        assert gaussian_epsilon(math.sqrt(2 * rho), delta) <= epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / delta))
        assert zcdp_delta(epsilon, rho) <= delta


@pytest.mark.parametrize(("n", "eps0"), [(5, 1.0), (12, 0.5), (20, 2.0)])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.4])
def test_numeric_shuffling_against_enumeration(n, eps0, epsilon):
    clone, b = math.exp(-eps0), 1 / (1 + math.exp(-eps0))
    P, Q = {}, {}
    for c in range(n):
        pc = math.comb(n - 1, c) * clone**c * (1 - clone) ** (n - 1 - c)
        for a in range(c + 1):
            pa = pc * math.comb(c, a) / 2**c
            for B, pb in ((1, b), (0, 1 - b)):
                P[a + B, c - a + 1 - B] = P.get((a + B, c - a + 1 - B), 0) + pa * pb
                Q[a + 1 - B, c - a + B] = Q.get((a + 1 - B, c - a + B), 0) + pa * pb
    delta = sum(max(0.0, p - math.exp(epsilon) * Q.get(x, 0.0)) for x, p in P.items())
    assert shuffle_delta(epsilon, eps0, n) == pytest.approx(delta, abs=1e-12)


def test_shuffling_outside_the_closed_form_amplifies_nothing():
    assert shuffle_epsilon_closed(4, 10**4, 1e-6) == 4.0
    assert shuffle_epsilon(4, 10**4, 1e-6) < 0.61


def test_binomial_certificate_lies_above_exact_shifts():
    """The realised shift of paper 0's CIFAR setting costs 10.277; what is certified covers it."""
    bounds = assumed_sensitivities(2210410, 2**20, 0.1)
    coins = cpsgd_coins(10, bounds, 3e-6)
    exact = epsilon_of(DiscreteNoise("binomial", (coins,), ((104859, 1), (25142, 1))), 3e-6)
    assert exact == pytest.approx(10.277, abs=2e-3)
    assert exact > 10  # cpSGD's claim is false here
    assert exact <= epsilon_of(binomial_event(coins, bounds, 3e-7), 3e-6) < 11.2
    assert binomial_bits(2**20, coins) == 34


@pytest.mark.parametrize("std", [2.0, 10.0])
def test_discrete_gaussian_loss_against_direct_sums(std):
    y = np.arange(-200, 201)
    weight = np.exp(-(y**2) / (2 * std**2))
    p = weight / weight.sum()
    q = np.exp(-((y - 3) ** 2) / (2 * std**2)) / weight.sum()
    for epsilon in (0.1, 0.5):
        delta = float(np.maximum(0.0, p - math.exp(epsilon) * q).sum())
        ours = delta_of(DiscreteNoise("discrete-gaussian", (std,), ((3, 1),)), epsilon)
        assert delta <= ours <= delta + 1e-4


def test_subsampled_pure_release():
    event = Sampled(Pure(1.0), WithoutReplacement(10, 100))
    assert epsilon_of(event, 0.0, REPLACE) == pytest.approx(math.log(1 + 0.1 * (math.e - 1)), rel=1e-12)


def test_paper_3_synthetic_noise():
    assert calibrate_gaussian(epsilon=5, delta=1e-6, rounds=500) == pytest.approx(21.91, abs=5e-3)


def test_normec_over_every_message_really_sent():
    sigma = published.normec_noise(300, 8, 1e-5)
    assert epsilon_of(Repeated(Gaussian(sigma), 42_000), 1e-5) == pytest.approx(507, abs=1)
    assert epsilon_of(Repeated(Gaussian(sigma / 2), 42_000), 1e-5) == pytest.approx(1794, abs=1)


@pytest.mark.parametrize("z", [0.04, 0.03, 0.0231])
def test_samples_of_fixed_size_with_hardly_any_noise(z):
    """Where e^epsilon of one release overflows: a moment of the sampled loss, q per round, and everybody's epsilon."""
    sampled = epsilon_of(Repeated(Sampled(Gaussian(z), WithoutReplacement(25, 50)), 500), 1e-9, Relation.REPLACE_ONE)
    everybody = epsilon_of(Repeated(Gaussian(z), 500), 1e-9, Relation.REPLACE_ONE)
    # Half of 500 rounds lose 1/(2 z^2) each, give or take: six deviations of a binomial and of the normal losses.
    mean, deviation = 250 / (2 * z**2), math.sqrt(125) / (2 * z**2) + math.sqrt(250) / z
    assert mean < sampled < mean + 6.5 * deviation
    assert sampled < everybody


def test_table_1_of_paper_1():
    """PrivUnit is pure; the central figures are the errata's, for noise that is up to 0.1 % more than 5C gives."""
    from experiments.paper1.table1 import rows

    cells, guarantees = rows()
    assert len(cells) == len(guarantees) == 16
    found = {(cell["row"], cell["column"]): cell["mean"] for cell in cells}
    expected = {"LDP, Gaussian, 1 round": 15.658124, "LDP, Gaussian, 50 rounds": 289.338637}
    expected |= {"LDP, PrivUnit, 1 round": 6, "LDP, PrivUnit, 50 rounds": 300}
    expected |= {"CDP, synthetic, 49 rounds": 15.646201, "CDP, synthetic, 50 rounds": 15.850909}
    expected |= {"CDP, MNIST, 49 rounds": 15.260897, "CDP, MNIST, 50 rounds": 15.460054}
    assert {row: found[row, "fedexp"] for row in expected} == pytest.approx(expected, abs=5e-4)
    assert found["CDP, MNIST, 50 rounds", "fedavg"] == pytest.approx(15.456156, abs=1e-5)
