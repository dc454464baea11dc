"""Who takes part: the laws of the four cohorts. Fixed keys; every test fails by chance at most once in 10^6 keys.

Large populations are in test_large_cohorts.py.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from sordino.errors import InvalidInput
from sordino.planning.cohort import FixedCohort, FullCohort, PoissonCohort, UnreliableCohort, parse_cohort

ALPHA = 1e-6  # false alarms of one check


def drawn(cohort, clients: int, draws: int, seed: int) -> np.ndarray:
    """Membership, [draws, clients]; checks that nobody is there twice and that the mask fits."""

    def member(key):
        client_ids, here = cohort.draw(key, clients)
        assert client_ids.shape == here.shape == (cohort.capacity(clients),)
        return jnp.zeros(clients, jnp.int32).at[jnp.where(here, client_ids, clients)].add(1, mode="drop"), here.sum()

    members, count = jax.jit(jax.vmap(member))(jax.random.split(jax.random.key(seed), draws))
    members = np.asarray(members)
    assert members.max() <= 1
    assert (members.sum(axis=1) == np.asarray(count)).all()
    return members


def uniform_pvalue(members: np.ndarray, q: float) -> float:
    """Chi-square of the clients' frequencies against q each."""
    draws, clients = members.shape
    z = (members.sum(axis=0) - draws * q) / np.sqrt(draws * q * (1 - q))
    return float(stats.chi2.sf(np.sum(z**2), clients))


@pytest.mark.parametrize(("q", "clients", "draws"), [(0.2, 50, 20000), (0.01, 200, 20000), (0.9, 30, 20000)])
def test_poisson(q, clients, draws):
    members = drawn(PoissonCohort(q), clients, draws, seed=0)
    assert uniform_pvalue(members, q) > ALPHA
    assert uniform_pvalue(members, 1.1 * q) < ALPHA  # a near miss is seen

    # Neighbours come independently, and so do clients further apart.
    for distance in (1, 2, 7):
        together = (members[:, :-distance] * members[:, distance:]).sum()
        trials = draws * (clients - distance)
        # Overlapping pairs are correlated: the variance of the sum is computed with them.
        variance = trials * q**2 * (1 - q**2) + 2 * draws * max(clients - 2 * distance, 0) * q**3 * (1 - q)
        assert abs(together - trials * q**2) < stats.norm.isf(ALPHA / 2) * np.sqrt(variance)

    # The count is binomial.
    count = members.sum(axis=1)
    expected = draws * stats.binom.pmf(np.arange(clients + 1), clients, q)
    cells = np.flatnonzero(expected >= 10)
    low, high = cells[0], cells[-1]
    observed = np.bincount(np.clip(count, low, high), minlength=clients + 1)[low : high + 1]
    folded = expected[low : high + 1].copy()
    folded[0] += expected[:low].sum()
    folded[-1] += expected[high + 1 :].sum()
    assert stats.chisquare(observed, folded * observed.sum() / folded.sum()).pvalue > ALPHA


def test_poisson_with_everybody():
    client_ids, here = PoissonCohort(1.0).draw(jax.random.key(0), 7)
    assert (np.asarray(client_ids) == np.arange(7)).all()
    assert np.asarray(here).all()


@pytest.mark.parametrize(("q", "clients"), [(1e-6, 10), (0.999, 10), (0.5, 1), (0.3, 2)])
def test_poisson_at_the_edges(q, clients):
    members = drawn(PoissonCohort(q), clients, 5000, seed=1)
    low, high = stats.binom.interval(1 - ALPHA, members.size, q)
    assert low <= members.sum() <= high


@pytest.mark.parametrize(("q", "clients"), [(0.999, 2_000_000), (1e-3, 60_000)])
def test_nobody_comes_more_often_than_accounted(q, clients):
    """Exactly: those whose word is below q 2^32. Words of 24 bits would round a small q up by many per cent."""
    client_ids, here = PoissonCohort(q).draw(jax.random.key(5), clients)
    words = np.asarray(jax.random.bits(jax.random.key(5), (clients,), jnp.uint32)).astype(np.float64)
    np.testing.assert_array_equal(np.asarray(client_ids)[np.asarray(here)], np.flatnonzero(words + 1 <= q * 2**32))


@pytest.mark.parametrize("clients", [1, 10, 1000, 100_000, 10_000_000])
@pytest.mark.parametrize("q", [1e-5, 0.01, 0.3, 0.97])
def test_poisson_has_room(q, clients):
    """The list overflows, and leaves somebody out, less than once in 10^20 rounds."""
    capacity = PoissonCohort(q).capacity(clients)
    assert capacity <= clients
    assert stats.binom.sf(capacity, clients, q) < 1e-20


@pytest.mark.parametrize(("size", "clients"), [(3, 40), (10, 40), (11, 40), (30, 40), (40, 40), (1, 5), (1, 1)])
def test_fixed_size(size, clients):
    """Few of many (drawn with replacement, repeats left out) and many (a permutation): the border is a quarter."""
    draws = 20000
    cohort = FixedCohort(size)
    members = drawn(cohort, clients, draws, seed=2)
    assert (members.sum(axis=1) == size).all()
    q = size / clients
    if clients > 1 and q < 1:
        # Without replacement the frequencies are negatively correlated: (n-1)/n of the statistic is chi-square(n-1).
        z = (members.sum(axis=0) - draws * q) / np.sqrt(draws * q * (1 - q))
        statistic = np.sum(z**2) * (clients - 1) / clients
        assert stats.chi2.sf(statistic, clients - 1) > ALPHA
        assert stats.chi2.cdf(statistic, clients - 1) > ALPHA
        # Pairs: size (size - 1) / (n (n - 1)) each.
        pair = q * (size - 1) / (clients - 1)
        together = (members[:, 0] * members[:, 1]).sum()
        low, high = stats.binom.interval(1 - ALPHA, draws, pair)
        assert low <= together <= high


@pytest.mark.parametrize("clients", [30, 100])
def test_unreliable(clients):
    """M_r is uniform on 10, ..., 25, and who comes is uniform too (with 30 clients a permutation, with 100 not)."""
    draws = 20000
    members = drawn(UnreliableCohort(10, 25), clients, draws, seed=3)
    counts = np.bincount(members.sum(axis=1), minlength=26)
    assert counts[:10].sum() == 0
    assert len(counts) == 26
    assert stats.chisquare(counts[10:26]).pvalue > ALPHA
    z = (members.sum(axis=0) / draws - 17.5 / clients) / np.sqrt(17.5 / clients * (1 - 17.5 / clients) / draws)
    assert np.abs(z).max() < stats.norm.isf(ALPHA / 2 / clients)


def test_unreliable_with_a_law_of_its_own():
    """M_r is 2, 10 or 25; 1 / E(1 / M_r) is what the variance of a mean is divided by."""
    cohort, draws = parse_cohort("unreliable:25=0.5,2=0.2,10=0.3"), 4000
    members = drawn(cohort, 100, draws, seed=5)
    counts = np.bincount(members.sum(axis=1), minlength=26)
    assert counts[[2, 10, 25]].sum() == draws
    assert stats.chisquare(counts[[2, 10, 25]], draws * np.array([0.2, 0.3, 0.5])).pvalue > ALPHA
    assert cohort.planned(100) == pytest.approx(15.9)
    assert cohort.answering(100) == pytest.approx(1 / np.mean(1 / members.sum(axis=1)), rel=0.1)
    assert cohort.answering(100) == pytest.approx(1 / (0.2 / 2 + 0.3 / 10 + 0.5 / 25))
    assert UnreliableCohort(1, 3).answering(9) == pytest.approx(3 / (1 + 1 / 2 + 1 / 3))
    assert FixedCohort(7).answering(9) == 7


def test_rounds_differ():
    """Different keys, different cohorts."""
    for cohort in (PoissonCohort(0.2), FixedCohort(20), UnreliableCohort(10, 25)):
        assert len(np.unique(drawn(cohort, 100, 50, seed=4), axis=0)) == 50
    assert drawn(FullCohort(), 6, 2, seed=4).all()


@pytest.mark.parametrize("cohort", [PoissonCohort(1e-4), FixedCohort(100), UnreliableCohort(10, 200)], ids=str)
def test_of_a_million_clients_only_the_cohort_is_listed(cohort):
    clients = 1_000_000
    client_ids, here = map(np.asarray, jax.jit(lambda key: cohort.draw(key, clients))(jax.random.key(1)))
    assert len(client_ids) < 1000
    assert len(set(client_ids[here])) == here.sum() > 0
    assert client_ids.min() >= 0
    assert client_ids.max() < clients


@pytest.mark.parametrize("text", ["full", "poisson:0.2", "fixed:25", "unreliable:10-25", "unreliable:2=0.2,10=0.8"])
def test_text_round_trips(text):
    assert str(parse_cohort(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "poisson:0",
        "poisson:1.1",
        "poisson:nan",
        "fixed:0",
        "fixed:x",
        "unreliable:5-3",
        "unreliable:5=0.5",
        "unreliable:5=0.5,5=0.5",
        "unreliable:0=0.5,5=0.5",
        "unreliable:1=1.5,5=-0.5",
    ],
)
def test_wrong_text(text):
    with pytest.raises(InvalidInput, match="cohort"):
        parse_cohort(text)
