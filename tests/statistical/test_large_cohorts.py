"""Cohorts of large populations, drawn without a look at everybody: their laws. Fixed keys; see test_cohort.py."""

from __future__ import annotations

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from sordino.planning._drawing import SMALL, binomial, binomial_thresholds, distinct
from sordino.planning.cohort import FixedCohort, PoissonCohort, UnreliableCohort

ALPHA = 1e-6  # false alarms of one check
CLIENTS = 100_003  # above SMALL, and no power of two
DRAWS = 4000


def rounds(cohort, clients: int = CLIENTS, draws: int = DRAWS, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(client numbers, mask) of many rounds; nobody is in a round twice."""
    draw = jax.jit(jax.vmap(lambda key: cohort.draw(key, clients)))
    ids, here = map(np.asarray, draw(jax.random.split(jax.random.key(seed), draws)))
    assert ids.shape == here.shape == (draws, cohort.capacity(clients))
    assert ids.min() >= 0
    assert ids.max() < clients
    alone = np.where(here, ids, clients + np.arange(ids.shape[1]))  # absent places differ from everybody
    assert (np.diff(np.sort(alone, axis=1), axis=1) > 0).all()
    return ids, here


def cells_pvalue(numbers: np.ndarray, clients: int, cells: int = 97) -> float:
    """Chi-square of how many of these numbers lie in each stretch of the population."""
    edges = np.arange(cells + 1) * clients // cells
    return float(stats.chisquare(np.histogram(numbers, edges)[0], len(numbers) * np.diff(edges) / clients).pvalue)


def pairs_pvalue(ids: np.ndarray, here: np.ndarray, clients: int, width: int) -> float:
    """Two-sided, of the pairs of a round whose numbers lie within `width`, given how many came: nearly Poisson."""
    ordered = np.sort(np.where(here, ids, 10 * clients), axis=1).astype(np.int64)
    close = sum(
        ((ordered[:, j:] < clients) & (ordered[:, j:] - ordered[:, :-j] <= width)).sum() for j in range(1, width + 1)
    )
    count = here.sum(axis=1).astype(float)
    share = sum(clients - distance for distance in range(1, width + 1)) / (clients * (clients - 1) / 2)
    expected = (count * (count - 1) / 2).sum() * share
    return float(2 * min(stats.poisson.cdf(close, expected), stats.poisson.sf(close - 1, expected)))


@pytest.mark.parametrize("cohort", [FixedCohort(40), PoissonCohort(4e-4), UnreliableCohort(10, 70)], ids=str)
def test_everybody_and_every_pair_is_as_likely(cohort):
    ids, here = rounds(cohort)
    assert cells_pvalue(ids[here], CLIENTS) > ALPHA
    assert pairs_pvalue(ids, here, CLIENTS, 30) > ALPHA
    # In the order of the draw too: each place of the list is uniform.
    assert cells_pvalue(ids[:, 0], CLIENTS) > ALPHA
    assert cells_pvalue(ids[:, 9], CLIENTS) > ALPHA


def test_near_misses_are_seen():
    """A sample with a favoured tenth, and one whose gaps are too even: each is seen by one check alone."""
    rng = np.random.default_rng(0)
    here = np.ones((DRAWS, 40), bool)
    favoured = np.where(rng.random(here.shape) < 0.02, rng.integers(0, CLIENTS // 10, here.shape), 0)
    favoured = np.where(favoured > 0, favoured, rng.integers(0, CLIENTS, here.shape))
    assert cells_pvalue(favoured[here], CLIENTS) < ALPHA
    stratum = CLIENTS // 40  # one client out of each stretch: systematic, every client equally likely
    even = np.arange(40) * stratum + rng.integers(0, stratum, here.shape)
    assert cells_pvalue(even[here], 40 * stratum, 40) > ALPHA
    assert pairs_pvalue(even, here, CLIENTS, 30) < ALPHA


def test_no_number_is_favoured_by_a_remainder():
    """Of 3 * 2^29 clients the first two thirds would come half as often again as the others, by a plain remainder."""
    clients = 3 * 2**29
    numbers = np.asarray(jax.vmap(lambda key: distinct(key, 500, clients))(jax.random.split(jax.random.key(1), 40)))
    first = int((numbers < 2**30).sum())
    low, high = stats.binom.interval(1 - ALPHA, numbers.size, 2 / 3)
    assert low <= first <= high
    words = np.asarray(jax.random.bits(jax.random.key(1), (numbers.size,), jnp.uint32))
    assert not low <= int((words % clients < 2**30).sum()) <= high
    built_in = np.asarray(jax.random.randint(jax.random.key(1), (numbers.size,), 0, clients))
    assert not low <= int((built_in < 2**30).sum()) <= high  # why larger populations do not use it


@pytest.mark.parametrize(("q", "clients"), [(1e-6, 10**6), (1e-3, 10**6), (0.2, 10**5), (4e-4, CLIENTS)])
def test_the_count_is_binomial(q, clients):
    share = math.floor(q * 2**32)
    keys = jax.random.split(jax.random.key(2), 20_000)
    capacity = PoissonCohort(q).capacity(clients)
    count = np.asarray(jax.jit(jax.vmap(lambda key: binomial(key, clients, share, capacity)))(keys))

    def pvalue(law) -> float:
        edges = np.unique(law.ppf(np.linspace(0, 1, 21)[1:-1]))
        expected = np.diff(np.concatenate([[0], law.cdf(edges), [1]])) * len(count)
        observed = np.bincount(np.searchsorted(edges, count, side="left"), minlength=len(expected))
        kept = expected > 5
        return float(
            stats.chisquare(observed[kept], expected[kept] * observed[kept].sum() / expected[kept].sum()).pvalue
        )

    assert pvalue(stats.binom(clients, q)) > ALPHA
    assert pvalue(stats.binom(clients, 1.1 * q)) < ALPHA
    if q * clients > 10:  # right mean, wrong spread
        assert pvalue(stats.nbinom(10 * q * clients, 10 / 11)) < ALPHA


@pytest.mark.parametrize(("clients", "share", "most"), [(5, 2**30, 5), (12, 2**31 + 5, 12), (70, 2**32 // 3, 64)])
def test_thresholds_are_those_of_the_law(clients, share, most):
    """Against exact fractions."""
    least, words = binomial_thresholds(clients, share, most)
    q, so_far = Fraction(share, 2**32), Fraction(0)
    for m in range(least + words.shape[1]):
        so_far += math.comb(clients, m) * q**m * (1 - q) ** (clients - m)
        if m >= least:
            threshold = sum(int(word) << 32 * (2 - i) for i, word in enumerate(words[:, m - least]))
            assert abs(Fraction(threshold, 2**96) - so_far) < Fraction(1, 2**90)
    assert least + words.shape[1] <= most


def test_a_threshold_of_three_words_decides_by_all_of_them(monkeypatch):
    """U >= T as one number of 96 bits: equal words leave the decision to the next one."""
    thresholds = np.array([[5, 5, 7], [9, 9, 0], [3, 4, 0]], np.uint32)
    monkeypatch.setattr("sordino.planning._drawing.binomial_thresholds", lambda *_: (100, thresholds))
    for words, count in [((5, 9, 3), 101), ((5, 9, 4), 102), ((5, 8, 2**32 - 1), 100), ((7, 0, 0), 103)]:
        monkeypatch.setattr(jax.random, "bits", lambda *_, words=words: jnp.array(words, jnp.uint32))
        assert int(binomial(jax.random.key(0), 10**6, 1, 200)) == count


@pytest.mark.parametrize("q", [1e-6, 1e-3, 0.1])
def test_nobody_comes_more_often_than_accounted(q):
    """The count's mean is that of q rounded down to 2^-32, so not above n q; those who come are a uniform sample."""
    clients, share = 2_000_000, math.floor(q * 2**32)
    least, words = binomial_thresholds(clients, share, PoissonCohort(q).capacity(clients))
    below = [sum(int(word) << 32 * (2 - i) for i, word in enumerate(column)) for column in words.T]
    mean = least + sum(Fraction(2**96 - each, 2**96) for each in below)
    exact = Fraction(clients * share, 2**32)
    assert abs(mean - exact) < 1e-14
    assert exact <= Fraction(q) * clients


@pytest.mark.parametrize("size", [1, 2, 5, 10, 40, 100, 1000, 20_000])
def test_draws_hold_enough_different_numbers(size):
    """Chernoff for the number of draws until `size` of 4 `size` are different, and half the worst rejections."""
    draws = size + math.ceil(size / 2) + 40
    stay = 0.98 * (1 - np.arange(size) / (4 * size))  # a draw is new, with up to 2 % of words thrown away
    tilt = np.linspace(0, -math.log(1 - stay.min()), 400, endpoint=False)[1:, None]
    log_mean = np.log(stay) + tilt - np.log(1 - (1 - stay) * np.exp(tilt))  # of e^(t times a geometric number)
    assert (log_mean.sum(axis=1) - tilt[:, 0] * (draws + 1)).min() < -20 * math.log(10)


def test_small_populations_draw_as_before():
    """Recorded runs rest on these numbers; up to 2^16 clients the cost of looking at everybody is small."""
    key = jax.random.key(3)
    assert PoissonCohort(0.05).draw(key, 200)[0][:4].tolist() == _words_below(key, 0.05, 200)[:4]
    drawn = np.asarray(jax.random.randint(key, (1 + 1 + 40,), 0, SMALL))
    assert distinct(key, 1, SMALL).tolist() == [drawn[0]]


def _words_below(key, q: float, clients: int) -> list[int]:
    words = np.asarray(jax.random.bits(key, (clients,), jnp.uint32))
    return np.flatnonzero(words < math.floor(q * 2**32)).tolist()


@pytest.mark.parametrize("clients", [2**32 // 3 + 1, 2**31 - 1, 10**6])
def test_a_cohort_is_whole_where_many_words_are_thrown_away(clients):
    """A third of all words, a few, and next to none: every number is one of the population, and none comes twice."""
    numbers = np.asarray(jax.vmap(lambda key: distinct(key, 1000, clients))(jax.random.split(jax.random.key(3), 100)))
    assert numbers.min() >= 0
    assert numbers.max() < clients
    assert all(len(np.unique(each)) == 1000 for each in numbers)
