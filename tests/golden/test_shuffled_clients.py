"""Shuffled messages of clients with several records (paper 2, Theorem E.2) against exact divergences of small cases."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from sordino.errors import InvalidInput, Refused
from sordino.planning.record_noise import shuffled_event
from sordino.privacy.accountants import epsilon_of
from sordino.privacy.events import Repeated
from sordino.privacy.gaussian import gaussian_epsilon
from sordino.privacy.sampling import WithoutReplacement
from sordino.privacy.shuffle import Apart, apart_by_groups, shuffle_delta, shuffle_epsilon, shuffle_epsilon_closed
from sordino.types import Relation

REPLACE = Relation.REPLACE_ONE
EPSILONS = (0.0, 0.05, 0.2, 0.5, 0.9)


def laws(records: int, alpha: float) -> np.ndarray:
    """A message of each sum of bits 0, ..., records: the sum with discrete Laplace noise, cut to the same numbers."""
    s, z = np.arange(records + 1)[:, None], np.arange(records + 1)[None, :]
    weight = np.exp(-alpha * np.abs(z - s))
    return weight / weight.sum(axis=1, keepdims=True)


def log_ratio(p: np.ndarray, q: np.ndarray) -> float:
    return float(np.abs(np.log(p) - np.log(q)).max())


def shuffled_law(victim: np.ndarray, others: list[np.ndarray]) -> dict[tuple[int, ...], float]:
    """Of how often each message arrives, which is all that a shuffler shows."""
    found = {(0,) * len(victim): 1.0}
    for law in (victim, *others):
        after: dict[tuple[int, ...], float] = {}
        for counts, mass in found.items():
            for z, p in enumerate(law):
                more = (*counts[:z], counts[z] + 1, *counts[z + 1 :])
                after[more] = after.get(more, 0.0) + mass * p
        found = after
    return found


def divergence(epsilon: float, P: dict[tuple[int, ...], float], Q: dict[tuple[int, ...], float]) -> float:
    return sum(max(0.0, p - math.exp(epsilon) * Q[x]) for x, p in P.items())


@pytest.mark.parametrize(("records", "alpha"), [(2, 0.4), (2, 1.0), (3, 0.6)])
def test_no_data_of_others_gives_more_than_the_bound(records, alpha):
    """Every pair of neighbours and all records of three others: 4 messages, by enumeration."""
    law = laws(records, alpha)
    eps0 = max(log_ratio(law[s], law[s + 1]) for s in range(records))
    eps1 = max(log_ratio(a, b) for a, b in itertools.combinations(law, 2))
    assert eps1 <= apart_by_groups(eps0, 0.0, records).epsilon + 1e-12
    for s, step in itertools.product(range(records + 1), (1, -1)):
        if not 0 <= s + step <= records:
            continue
        for others in itertools.combinations_with_replacement(law, 3):
            P, Q = shuffled_law(law[s], list(others)), shuffled_law(law[s + step], list(others))
            for epsilon in EPSILONS:
                assert divergence(epsilon, P, Q) <= shuffle_delta(epsilon, eps0, 4, eps1) + 1e-12


def test_the_theorem_of_one_record_is_false_of_several():
    """A record's own message hides among others' no better than they are close: e^-eps0 counts too many clones."""
    law = laws(6, 1.0)
    eps0, eps1 = max(log_ratio(law[s], law[s + 1]) for s in range(6)), log_ratio(law[0], law[6])
    far = [law[6]] * 4
    P, Q = shuffled_law(law[0], far), shuffled_law(law[1], far)
    truth = divergence(0.5 * eps0, P, Q)
    assert shuffle_delta(0.5 * eps0, eps0, 5) < truth <= shuffle_delta(0.5 * eps0, eps0, 5, eps1)


@pytest.mark.parametrize(
    ("eps0", "records", "n"), [(0.01, 10, 10**4), (0.1, 4, 10**5), (0.5, 3, 10**6), (1.0, 1, 10**4)]
)
def test_equation_41(eps0, records, n):
    """The closed form as printed, never below the numeric bound."""
    e, delta = math.exp(records * eps0), 1e-6
    spread = 8 * math.sqrt(e * math.log(4 / delta)) / math.sqrt(n) + 8 * e / n
    printed = math.log(1 + (math.exp(eps0) - 1) / (math.exp(eps0) + 1) * spread)
    apart = apart_by_groups(eps0, 0.0, records)
    assert shuffle_epsilon_closed(eps0, n, delta, apart.epsilon) == pytest.approx(min(eps0, printed), rel=1e-12)
    assert shuffle_epsilon(eps0, n, delta, apart=apart) <= printed


def test_records_alone_are_one_record():
    assert apart_by_groups(0.3, 1e-9, 1) == Apart(0.3, 1e-9)
    one, none_given = (
        shuffle_epsilon(0.3, 1000, 1e-6, 1e-11, apart=Apart(0.3, 1e-11)),
        shuffle_epsilon(0.3, 1000, 1e-6, 1e-11),
    )
    assert one == none_given
    assert apart_by_groups(0.5, 1e-9, 3).delta == pytest.approx(3e-9 * math.exp(1.0))


def test_messages_that_are_farther_apart_hide_less():
    found = [shuffle_epsilon(0.2, 10**4, 1e-6, apart=Apart(eps1)) for eps1 in (0.2, 0.5, 1.0, 2.0, 4.0)]
    assert found == sorted(found)
    assert found[-1] <= 0.2


def test_what_is_not_far_apart_enough_is_refused():
    with pytest.raises(InvalidInput, match="apart"):
        shuffle_epsilon(0.5, 1000, 1e-6, apart=Apart(0.4))
    with pytest.raises(InvalidInput, match="apart"):
        shuffle_epsilon(0.5, 1000, 1e-6, 1e-12, apart=Apart(1.0))
    with pytest.raises(InvalidInput, match="records"):
        apart_by_groups(0.5, 0.0, 0)
    with pytest.raises(Refused, match="eps1"):
        shuffle_epsilon(0.5, 1000, 1e-6, method="closed", apart=Apart(8.0))


def test_gaussian_messages_of_two_records_pass_a_shuffler():
    """The plan's event counts a record's own step and the distance of whole messages, and keeps its one-record form."""
    x, messages, rounds, delta = 3.0, 10**5, 10, 1e-6
    two = shuffled_event(x, messages, WithoutReplacement(2, 20), rounds, delta, 2.0)
    whole = shuffled_event(x, messages, WithoutReplacement(2, 20), rounds, delta)
    delta_s = delta / (2 * 0.1 * rounds)
    delta_0 = delta_s / (8 * messages)
    by_hand = shuffle_epsilon(
        gaussian_epsilon(0.5 / x, delta_0),
        messages,
        delta_s,
        delta_0,
        apart=Apart(gaussian_epsilon(1 / x, delta_0), delta_0),
    )
    assert two.event.event.epsilon == pytest.approx(by_hand)
    costs = [epsilon_of(Repeated(event, rounds), delta, REPLACE) for event in (two, whole)]
    assert costs[0] < 0.7 * costs[1]
