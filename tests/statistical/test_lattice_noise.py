"""Lattice noise: the sampler's law, its ties, what rounding adds, and attacks that take float32 noise apart."""

from __future__ import annotations

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy import signal, stats

from sordino.mechanisms._exact_table import exact_table
from sordino.mechanisms._lattice_gaussian import (
    LOW_BITS,
    add_lattice_noise,
    lattice_noise,
    lattice_step,
    read_lattice,
    round_to_lattice,
)
from sordino.privacy import lattice
from sordino.summation import rounding_share
from sordino.types import Relation

TABLE = exact_table(lattice.table_weights())
THRESHOLD_BITS = 32 * lattice.THRESHOLD_WORDS


# --- The table, exactly ----------------------------------------------------------------------------------------------


def thresholds(table):
    words = [[int(word) for word in row] for row in table.keep]
    return [
        sum(words[i][c] << (THRESHOLD_BITS - 32 * (i + 1)) for i in range(len(words))) for c in range(len(words[0]))
    ]


def probabilities(table):
    """The law that the table draws from, as exact fractions."""
    mass: dict[int, int] = {}
    for own, other, keep in zip(table.own.tolist(), table.other.tolist(), thresholds(table), strict=True):
        mass[own] = mass.get(own, 0) + keep
        mass[other] = mass.get(other, 0) + (1 << THRESHOLD_BITS) - keep
    return {value: Fraction(count, table.columns << THRESHOLD_BITS) for value, count in mass.items()}


def test_weights_are_those_of_the_gaussian():
    mpmath.mp.prec = 600
    for a, weight in list(enumerate(lattice.table_weights()))[:: lattice.REACH // 7]:
        exact = mpmath.exp(-(mpmath.mpf(a) ** 2) / (2 * lattice.TABLE_STD**2))
        assert abs(mpmath.mpf(weight) / 2**512 / exact - 1) < mpmath.mpf(2) ** -300


def test_every_value_of_the_table_has_its_probability():
    weights = lattice.table_weights()
    total = weights[0] + 2 * sum(weights[1:])
    drawn = probabilities(TABLE)
    assert sum(drawn.values()) == 1
    worst = max(abs(drawn[a] / Fraction(weights[abs(a)], total) - 1) for a in range(-lattice.REACH, lattice.REACH + 1))
    assert worst < Fraction(1, 2**70)


def test_a_tie_is_decided_by_the_later_words():
    """Of two draws whose first six words hit the threshold, one lies below it in the seventh word and one above."""
    keep = np.array(TABLE.keep, np.int64)
    column = next(
        c for c in range(TABLE.columns) if keep[6, c] not in (0, 2**32 - 1) and TABLE.own[c] != TABLE.other[c]
    )
    first = jnp.full(2, keep[0, column], jnp.uint32)
    rest = np.repeat(keep[1:, [column]], 2, axis=1)
    rest[5, 0], rest[5, 1] = rest[5, 0] - 1, rest[5, 1] + 1
    split = jax.jit(lambda first, rest: TABLE.split(jnp.full(2, column), first, lambda: rest))
    got = split(first, jnp.asarray(rest, jnp.uint32))
    assert got.tolist() == [TABLE.own[column], TABLE.other[column]]
    # A full tie is not below the threshold.
    equal = split(first, jnp.asarray(np.repeat(keep[1:, [column]], 2, axis=1), jnp.uint32))
    assert equal.tolist() == [TABLE.other[column]] * 2


# --- The law of a draw -----------------------------------------------------------------------------------------------

EDGES = np.concatenate([[-np.inf], np.linspace(-5.5, 5.5, 45), [np.inf]])  # in deviations
EXPECTED = np.diff(stats.norm.cdf(EDGES))


@jax.jit
def counts_of(key):
    """Draws in each bin, of one million."""
    high, low = lattice_noise(key, (10**6,))
    # Edges in units of the high part; the low parts, a 16,384th of it each, move a bin's share by less than 1e-8.
    value = high.astype(jnp.float32) + low.astype(jnp.float32) * 2.0**-LOW_BITS
    edges = jnp.asarray(EDGES[1:-1] * lattice.DEVIATION * 2.0**-LOW_BITS, jnp.float32)
    return jnp.bincount(jnp.searchsorted(edges, value), length=len(EXPECTED))


def histogram(millions, seed):
    keys = jax.random.split(jax.random.key(seed, impl="threefry2x32"), millions)
    return sum(np.asarray(counts_of(key), np.int64) for key in keys)


def chi_square(counts, expected):
    expected = expected / expected.sum() * counts.sum()
    return stats.chi2.sf(np.sum((counts - expected) ** 2 / expected), len(counts) - 1)


def test_a_draw_is_a_rounded_gaussian():
    """Three million draws accept the law (false alarm 1e-4) and reject a deviation that is 0.5 % off."""
    counts = histogram(3, seed=0)
    inner = slice(6, -6)  # bins with enough draws
    assert chi_square(counts[inner], EXPECTED[inner]) > 1e-4
    for factor in (0.995, 1.005):
        other = np.diff(stats.norm.cdf(EDGES / factor))
        assert chi_square(counts[inner], other[inner]) < 1e-6


@pytest.mark.slow
def test_a_billion_draws_have_the_law_and_its_tails():
    """The law is accepted; one that ends at 5.5 deviations is rejected: 38 draws lie beyond."""
    counts = histogram(1000, seed=1)
    assert counts.sum() == 10**9
    assert chi_square(counts, EXPECTED) > 1e-4
    beyond = counts[0] + counts[-1]
    ending = EXPECTED.copy()
    ending[[0, -1]] = 1e-12
    assert beyond > 10
    assert chi_square(counts, ending) < 1e-12


def test_digits_are_independent_and_fine_ones_uniform():
    """The last seven bits of a draw are uniform: its third digit is 1.5 times as wide as they are."""
    _, low = lattice_noise(jax.random.key(2, impl="threefry2x32"), (2**20,))
    counts = np.bincount(np.asarray(low) & 127, minlength=128)
    assert stats.chisquare(counts).pvalue > 1e-4
    assert stats.chisquare(np.bincount((np.asarray(low) >> 7) & 127, minlength=128)).pvalue > 1e-4


def test_two_digits_make_one_gaussian():
    """2^7 A + B, convolved in float64, has the probabilities of a rounded Gaussian, up to float64's own errors."""
    s, b = lattice.TABLE_STD, lattice.DIGIT_BITS
    digit = np.arange(-lattice.REACH, lattice.REACH + 1)
    p = np.exp(-(digit**2) / (2 * s**2))
    p /= p.sum()
    spread = np.zeros(2**b * (len(p) - 1) + 1)
    spread[:: 2**b] = p
    whole = signal.fftconvolve(spread, p)
    deviation = math.sqrt(s**2 * (1 + 4**b) - 1 / 12)
    z = np.arange(len(whole)) - len(whole) // 2
    near = np.abs(z) < 5 * deviation
    rounded = stats.norm.cdf((z[near] + 0.5) / deviation) - stats.norm.cdf((z[near] - 0.5) / deviation)
    assert np.abs(whole[near] - rounded).sum() < 1e-9
    coarse = np.exp(-(z[near] ** 2) / (2 * s**2 * 4**b))  # without B's variance, a 16,384th of all
    assert np.abs(whole[near] - coarse / coarse.sum()).sum() > 1e-6


# --- What rounding adds ----------------------------------------------------------------------------------------------


def lattice_distance(x, other, step):
    """The L2 distance of two vectors on the lattice, in its own units."""
    (high, low), (high_2, low_2) = (round_to_lattice(jnp.asarray(each, jnp.float32), step) for each in (x, other))
    gap = (np.asarray(high, np.int64) - np.asarray(high_2)) * 2**LOW_BITS + (
        np.asarray(low, np.int64) - np.asarray(low_2)
    )
    return float(np.linalg.norm(gap.astype(np.float64)))


@pytest.mark.parametrize("d", [1, 50, 10**4])
@pytest.mark.parametrize("noise_std", [1e-3, 1.0, 37.0])
def test_neighbours_are_no_further_apart_on_the_lattice_than_accounted(d, noise_std):
    """Random vectors, and vectors on both sides of the lattice's rounding edges, which the bound is made for."""
    rng = np.random.default_rng(d)
    step = lattice_step(noise_std)
    spacing = float(step) / 2**LOW_BITS
    on_edges = (rng.integers(-1000, 1000, d) + 0.5) * spacing
    worst = 0.0
    for x, moved in [
        (rng.normal(size=d), rng.normal(size=d) * 1e-3),
        (on_edges, np.full(d, -0.01 * spacing)),
        (on_edges, 0.3 * spacing * rng.choice([-1.0, 1.0], d)),
        (1e4 * noise_std * rng.normal(size=d), rng.normal(size=d) * noise_std),
    ]:
        x32, other = np.float32(x), np.float32(x + moved)
        apart = float(np.linalg.norm(x32.astype(np.float64) - other))
        largest = max(np.linalg.norm(x32.astype(np.float64)), np.linalg.norm(other.astype(np.float64)))
        allowed = (apart * (1 + lattice.SCALE_ROUNDING) + 2 * largest * 2.0**-24) / spacing + math.sqrt(d)
        found = lattice_distance(x32, other, step)
        assert found <= allowed * (1 + 1e-9)
        worst = max(worst, found / allowed)
    assert worst > 0.5  # the edges are found


def test_sums_are_rounded_no_further_than_accounted():
    assert rounding_share(100) < 1e-4  # of the bound of one of a hundred clients, in the noise multiplier
    for z, d, clients in [(1.0, 10**6, 100), (20.0, 10**6, 1000), (0.35, 7850, 1000)]:
        rounding = rounding_share(clients)
        for relation in Relation:
            std = lattice.noise_std_for(z, 0.7, d, relation, rounding)
            assert lattice.lattice_multiplier(std / 0.7, d, relation, rounding) == pytest.approx(z, rel=1e-12)
            assert lattice.lattice_multiplier(std / 0.7, d, relation, rounding) >= z
            assert z * 0.7 < std < 1.012 * z * 0.7  # what rounding costs: about 1 % of noise at most


def test_a_poisson_sample_of_exchanged_clients_is_paid_for():
    """The sum of the others lies next to a rounding edge, and one client carries every coordinate over it.

    Under replace-one the accountant gives each of the two clients half of the sensitivity. Half of what is charged must
    cover the way from the sum without both to the sum with either, rounding included.
    """
    d, C = 10**4, 1.0

    def steps(z):
        """How many steps of the lattice a client of norm C moves each coordinate."""
        return C / math.sqrt(d) / (lattice.noise_std_for(z, 2 * C, d, Relation.REPLACE_ONE) / lattice.DEVIATION)

    z = next(z for z in np.linspace(2, 2.01, 5000) if 0.004 < steps(z) % 1 < 0.02)  # a little above a whole number
    std = lattice.noise_std_for(z, 2 * C, d, Relation.REPLACE_ONE)
    step = lattice_step(std)
    spacing = float(step) / 2**LOW_BITS
    charged = std / z / spacing / 2  # of one client, in units of the lattice
    moved, others = (np.full(d, np.float32(each * spacing)) for each in (math.floor(steps(z)) + 0.003, 0.498))
    assert np.linalg.norm(moved.astype(np.float64)) < C
    distance = lattice_distance(others + moved, others, step)
    assert distance > math.sqrt(d) * (steps(z) + 0.9)  # rounding adds nearly a whole step to every coordinate
    assert distance <= charged


def test_what_leaves_depends_on_the_integer_alone():
    """The same integer in two pairs of parts gives the same number, to the last bit, also where float32 rounds."""
    rng = np.random.default_rng(0)
    step = lattice_step(0.37)
    high, low = (jnp.asarray(rng.integers(-most, most, 10**5), jnp.int32) for most in (2**26, 2**19))
    again = high - 9, low + 9 * 2**LOW_BITS
    assert np.array_equal(read_lattice(high, low, step), read_lattice(*again, step))


def test_a_sum_far_beyond_the_noise_is_kept():
    vector = jnp.array([1e6, -2.5e4, 3.0], jnp.float32)
    noisy = np.asarray(add_lattice_noise(jax.random.key(0, impl="threefry2x32"), vector, 1.0))
    assert np.abs(noisy - np.asarray(vector)).max() < 10
    cut = add_lattice_noise(jax.random.key(0, impl="threefry2x32"), jnp.array([1e30, -1e30]), 1.0)
    assert cut[0] > 1e6 > -1e6 > cut[1]


# --- Attacks ---------------------------------------------------------------------------------------------------------

D = 10**6
SHIFT = np.float32(1 / math.sqrt(D))  # one client of norm 1, spread over all coordinates


@jax.jit
def float32_release(key, shift):
    return jnp.full(D, shift) + 1.0 * jax.random.normal(key, (D,), jnp.float32)


@jax.jit
def lattice_release(key, shift):
    return add_lattice_noise(key, jnp.full(D, shift), 1.0)


def atoms():
    """All values of `jax.random.normal` in float32: those of its 2^23 uniform numbers."""
    low = np.nextafter(np.float32(-1), np.float32(0))
    uniform = (np.arange(2**23, dtype=np.uint32) | np.float32(1).view(np.uint32)).view(np.float32) - np.float32(1)
    uniform = np.maximum(low, uniform * (np.float32(1) - low) + low)
    return np.sort(np.asarray(np.float32(math.sqrt(2)) * jax.lax.erf_inv(jnp.asarray(uniform))))


def share_of_atoms(release, known):
    place = np.clip(np.searchsorted(known, release), 0, len(known) - 1)
    return float(np.mean(known[place] == release))


def on_the_lattice(release):
    """The share of small numbers, where float32 is finer than the lattice, that lie on it up to their rounding."""
    small = release[np.abs(release) < 0.1].astype(np.float64)
    place = small / (float(lattice_step(1.0)) / 2**LOW_BITS)
    return float(np.mean(np.abs(place - np.round(place)) < 0.1))


def low_bits(release):
    """How often each of the last six bits of the numbers is set, within one power of two."""
    words = release[(np.abs(release) >= 0.5) & (np.abs(release) < 1)].view(np.uint32)
    return np.array([np.mean(words >> bit & 1) for bit in range(6)])


def test_atoms_tell_whether_a_client_took_part_under_float32_noise_and_not_on_the_lattice():
    known = atoms()
    key = jax.random.key(5, impl="threefry2x32")
    without, with_client = (np.asarray(float32_release(key, shift)) for shift in (np.float32(0), SHIFT))
    assert share_of_atoms(without, known) > 0.999  # the attack works where there is something to see
    assert share_of_atoms(with_client, known) < 0.9
    assert on_the_lattice(with_client) < 0.5
    without, with_client = (np.asarray(lattice_release(key, shift)) for shift in (np.float32(0), SHIFT))
    assert on_the_lattice(without) == on_the_lattice(with_client) == 1.0


def distinguishing_p(release, repetitions):
    """The smallest p-value, times their number, of tests that compare low bits and tails with and without a client."""
    seen = {True: [], False: []}
    for number in range(2 * repetitions):
        present = number % 2 == 0
        key = jax.random.key(1000 + number, impl="threefry2x32")
        values = np.asarray(release(key, SHIFT if present else np.float32(0)))
        seen[present].append([*low_bits(values), values.max(), values.min()])
    here, there = np.array(seen[True]), np.array(seen[False])
    values = [stats.ks_2samp(here[:, i], there[:, i]).pvalue for i in range(here.shape[1])]
    return min(values) * len(values)


def test_low_bits_and_tails_do_not_tell_on_the_lattice():
    assert distinguishing_p(lattice_release, 20) > 1e-3


@pytest.mark.slow
def test_nobody_tells_the_neighbours_apart_in_a_thousand_repetitions():
    assert distinguishing_p(lattice_release, 1000) > 1e-3


@pytest.mark.slow
def test_float32_noise_ends_where_the_law_does_not():
    """A hundred million float32 normals have none beyond 5.5 deviations; the law has four, and the lattice too."""
    beyond = {"float32": 0, "lattice": 0}
    for number in range(300):
        key = jax.random.key(number, impl="threefry2x32")
        for name, release in (("float32", float32_release), ("lattice", lattice_release)):
            beyond[name] += int(jnp.sum(jnp.abs(release(key, np.float32(0))) > 5.5))
    assert beyond["float32"] == 0
    assert 1 <= beyond["lattice"] <= 40
