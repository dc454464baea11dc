"""The cost of sums of discrete Gaussian shares, derived a second time: in mpmath, and by exact convolution."""

import math

import pytest
from mpmath import mp, mpf

from sordino.errors import InvalidInput
from sordino.privacy import epsilon_of
from sordino.privacy.events import Repeated, ZeroConcentrated
from sordino.privacy.secure_sum import (
    Shares,
    lattice_for,
    rounded_norm_squared,
    secure_sum_event,
    shares_of,
    width_of_sum,
)
from sordino.types import Relation

mp.dps = 40
REACH = 40  # of one share; sums are looked at up to 60


def width_in_mpmath(s, n):
    """T_n from mpmath's theta functions, and the paper's tau."""
    q = [mp.exp(-2 * mp.pi**2 * mpf(s) ** 2 * mpf(k) / (k + 1)) for k in range(1, n)]
    return mp.fsum(mp.log(mp.jtheta(3, 0, x) / mp.jtheta(4, 0, x)) for x in q), 10 * mp.fsum(q)


def law_of_sum(s, n):
    """The exact law of n shares, by convolution."""
    share = [mp.exp(-mpf(y * y) / (2 * mpf(s) ** 2)) for y in range(-REACH, REACH + 1)]
    share = [p / mp.fsum(share) for p in share]
    law = share
    for _ in range(n - 1):
        sums = [mpf(0)] * (len(law) + len(share) - 1)
        for i, p in enumerate(law):
            for j, r in enumerate(share):
                sums[i + j] += p * r
        law = sums
    return law


def renyi(law, shift, order):
    middle = len(law) // 2
    terms = (law[y] ** order * law[y - shift] ** (1 - order) for y in range(middle - 60, middle + 61))
    return mp.log(mp.fsum(terms)) / (order - 1)


@pytest.mark.parametrize(("s", "n"), [(0.3, 2), (0.5, 3), (0.7, 2), (1.0, 10), (1.7, 1000), (40.0, 50)])
def test_the_width_of_a_sum(s, n):
    width, tau = width_in_mpmath(s, n)
    assert width_of_sum(s, n) == pytest.approx(float(width), rel=1e-8, abs=1e-18)
    assert width_of_sum(s, n) <= float(tau) + 1e-300  # so that the paper's bound follows
    assert width_of_sum(s, 1) == 0


@pytest.mark.parametrize(("s", "n"), [(0.3, 2), (0.3, 4), (0.5, 3), (0.7, 4), (1.0, 2)])
def test_no_divergence_of_the_true_sums_exceeds_the_bound(s, n):
    """One coordinate, exactly. Without xi the bound would be false."""
    law, exceeded = law_of_sum(s, n), False
    for shift in (1, 2, 3):
        event = secure_sum_event(shift, s, n, 1)
        for order in (1.01, 1.5, 2, 4, 8):
            true = renyi(law, shift, mpf(order))
            assert true <= event.xi + order * event.rho
            exceeded |= true > order * event.rho * (1 + 1e-12)
    assert exceeded


@pytest.mark.parametrize(("s", "n", "shift"), [(0.3, 4, 1), (0.5, 3, 2), (0.7, 4, 3), (1.0, 2, 3)])
@pytest.mark.parametrize("delta", [1e-2, 1e-6])
def test_the_true_epsilon_is_below_the_certified_one(s, n, shift, delta):
    """delta(epsilon) = sum max(0, P - e^epsilon Q), exactly; fewer shares than are counted would show."""
    certified = epsilon_of(secure_sum_event(shift, s, n, 1), delta)
    assert hockey_stick(law_of_sum(s, n), shift, certified) <= delta
    counted = epsilon_of(secure_sum_event(shift, 3 * s, n, 1), delta)
    assert hockey_stick(law_of_sum(s, n), shift, counted) > delta


def hockey_stick(law, shift, epsilon):
    middle, factor = len(law) // 2, mp.exp(epsilon)
    return mp.fsum(max(mpf(0), law[y] - factor * law[y - shift]) for y in range(middle - 60, middle + 61))


def test_coordinates_add_up():
    """Two coordinates that move by 1, one that moves by 2, and one that stays."""
    s, n, order = 0.5, 3, mpf(2)
    law = law_of_sum(s, n)
    event = secure_sum_event(math.sqrt(6), s, n, 4)
    true = 2 * renyi(law, 1, order) + renyi(law, 2, order)
    assert true <= event.xi + 2 * event.rho
    assert event.xi == pytest.approx(4 * width_of_sum(s, n))  # at most all coordinates
    assert secure_sum_event(1.0, s, n, 4).xi == pytest.approx(width_of_sum(s, n))  # a move of 1 is one coordinate's


def test_golden_values():
    """From mpmath with 40 digits, by the formulas of docs/secure_aggregation.md."""
    event = secure_sum_event(12.5, 1.5, 20, 1000)
    assert event.rho == pytest.approx(12.5**2 / (2 * 20 * 2.25), rel=1e-15)
    assert event.xi == pytest.approx(156.25 * 9.08080150133764e-10, rel=1e-8)
    assert rounded_norm_squared(100.0, 1024) == 10372  # 100^2 + 1024 / 4 + 100 + 32 / 2
    assert rounded_norm_squared(0.1, 4, beta=1e-9) == 4  # (0.1 + 2)^2 = 4.41, which no rounding exceeds
    assert width_of_sum(0.5, 2) == pytest.approx(0.342493929894664, rel=1e-8)
    assert width_of_sum(1.0, 1000) == pytest.approx(2.29251303838044e-4, rel=1e-8)


def test_composition_is_that_of_concentrated_privacy():
    event = secure_sum_event(10.0, 2.0, 50, 64)
    assert epsilon_of(Repeated(event, 30), 1e-5) == epsilon_of(ZeroConcentrated(30 * event.rho, 30 * event.xi), 1e-5)


def test_the_shares_that_count():
    assert shares_of(1000, 1000, 0.05, 50) == Shares(1000, 950, 50)
    assert shares_of(1000, 1000, 0.05, 50).honest == 900
    assert shares_of(1000, 950, 0.0, 0).honest == 950
    assert shares_of(7, 7, 0.5, 0).fewest == 4  # 3.5 dropouts are 3
    for dropouts, colluding, field in ((1.0, 0, "dropouts"), (-0.1, 0, "dropouts"), (0.5, 5, "colluding")):
        with pytest.raises(InvalidInput, match=field):
            shares_of(10, 10, dropouts, colluding)


@pytest.mark.parametrize("relation", [Relation.ZERO_OUT, Relation.REPLACE_ONE])
@pytest.mark.parametrize("bits", [14, 16, 20, 30])
def test_a_lattice_has_the_noise_that_is_asked_for_and_fits_into_its_bits(bits, relation):
    shares, z = Shares(1000, 950, 50), 2.5
    lattice = lattice_for(z, bits=bits, d=5046, bound=0.7, relation=relation, shares=shares)
    event = lattice.event(relation, shares.honest)
    assert event.rho <= 1 / (2 * z**2)
    assert event.rho == pytest.approx(1 / (2 * z**2), rel=1e-12)
    assert lattice.d == 8192
    largest = 6 * math.sqrt((1000 * 0.7 / lattice.step) ** 2 / 8192 + 1000 * (lattice.share_std**2 + 0.25))
    assert largest <= 2 ** (bits - 1)
    assert lattice.norm * lattice.step >= 0.7  # a vector of norm C may leave
    assert lattice.norm**2 <= 2**30
    with pytest.raises(InvalidInput, match="bits"):
        lattice_for(z, bits=8, d=5046, bound=0.7, relation=relation, shares=shares)


def test_too_little_noise_is_not_accounted():
    with pytest.raises(InvalidInput, match="noise_multiplier"):
        secure_sum_event(1.0, 0.1, 5, 1)
