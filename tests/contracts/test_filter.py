"""Privacy filters: what they let through, what they refuse, and that no adaptive choice gets more out of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from sordino.errors import BudgetExceeded, InvalidInput, Refused
from sordino.privacy import lattice
from sordino.privacy.accountants import epsilon_of
from sordino.privacy.budget import Budget
from sordino.privacy.events import Approximate, Gaussian, Laplace, Pure, Repeated, Sampled, ZeroConcentrated
from sordino.privacy.filter import Filter, Spent
from sordino.privacy.gaussian import gaussian_delta
from sordino.privacy.sampling import Poisson, WithoutReplacement
from sordino.types import Relation, Unit
from sordino.words import Measure

BUDGET = Budget(4.0, 1e-5, Relation.REPLACE_ONE, Unit.RECORD)
ADD_REMOVE = Budget(4.0, 1e-5, Relation.ADD_REMOVE)


def let_through(privacy_filter, event, most=100_000):
    """How many times the filter lets an event through."""
    spent = Spent()
    for count in range(most):
        try:
            spent = privacy_filter.require(spent, event)
        except BudgetExceeded:
            return count
    raise AssertionError("the filter never closes")


@pytest.mark.parametrize(
    ("measure", "order", "event"),
    [
        (Measure.GAUSSIAN, None, Gaussian(20.0)),
        (Measure.GAUSSIAN, None, lattice.drawn(20.0, 10_000)),
        (Measure.CONCENTRATED, None, Gaussian(20.0)),
        (Measure.CONCENTRATED, None, ZeroConcentrated(1e-3)),
        (Measure.CONCENTRATED, None, Laplace(20.0)),
        (Measure.RENYI, 8.0, Gaussian(20.0)),
        (Measure.RENYI, 8.0, Sampled(Gaussian(2.0), WithoutReplacement(20, 400))),
        (Measure.PURE, None, Pure(0.1)),
    ],
)
def test_what_is_let_through_stays_within_the_budget_and_little_is_wasted(measure, order, event):
    """Equal releases, for which the exact accountant is known: the filter closes before it, and not long before."""
    count = let_through(Filter(BUDGET, measure, order), event)
    assert count > 10
    assert epsilon_of(Repeated(event, count), BUDGET.delta, BUDGET.relation) <= BUDGET.epsilon
    if measure is Measure.GAUSSIAN:
        assert epsilon_of(Repeated(event, count + 2), BUDGET.delta, BUDGET.relation) > BUDGET.epsilon
    if measure is Measure.RENYI:  # one order, and a loose bound for samples: a fifth of what is possible, at least
        assert epsilon_of(Repeated(event, 5 * count), BUDGET.delta, BUDGET.relation) > BUDGET.epsilon


def test_sampled_records_under_add_remove():
    event = Sampled(Gaussian(1.5), Poisson(0.02))
    count = let_through(Filter(ADD_REMOVE, Measure.RENYI, 6.0), event)
    assert count > 100
    assert epsilon_of(Repeated(event, count), 1e-5, Relation.ADD_REMOVE) <= 4.0


def test_no_adaptive_choice_of_noise_gets_more_out_of_a_gaussian_filter():
    """Two releases, the second one made, with all that is left, only if the first one looks promising.

    delta of the whole, at the budget's epsilon, by integration over the first release; the second is Gaussian noise at
    what the first has left of epsilon.
    """
    privacy_filter = Filter(ADD_REMOVE, Measure.GAUSSIAN)
    y = np.linspace(-12, 12, 24_001)
    for share in (0.1, 0.5, 0.9):
        first = math.sqrt(share * privacy_filter.capacity)
        second = math.sqrt(privacy_filter.capacity - first**2)
        p, loss = stats.norm.pdf(y - first), first * y - first**2 / 2
        stop = p * np.maximum(0, -np.expm1(ADD_REMOVE.epsilon - loss))
        go_on = p * np.array([gaussian_delta(ADD_REMOVE.epsilon - each, second) for each in loss])
        for threshold in (-2.0, 0.0, 1.0, 3.0):
            delta = np.trapezoid(np.where(y > threshold, go_on, stop), y)
            assert delta <= ADD_REMOVE.delta
        assert np.trapezoid(go_on, y) > 0.9 * ADD_REMOVE.delta  # the budget is used where nothing stops


def test_a_first_release_counts():
    privacy_filter = Filter(BUDGET, Measure.GAUSSIAN)
    spent = privacy_filter.require(Spent(), Gaussian(1.25))
    assert spent.cost == 0.64
    with pytest.raises(BudgetExceeded, match="left"):
        privacy_filter.require(spent, Gaussian(1.25))


@pytest.mark.parametrize(
    ("measure", "event"),
    [
        (Measure.GAUSSIAN, Sampled(Gaussian(1.0), WithoutReplacement(5, 100))),
        (Measure.GAUSSIAN, Pure(0.1)),
        (Measure.CONCENTRATED, Sampled(Gaussian(1.0), WithoutReplacement(5, 100))),
        (Measure.CONCENTRATED, ZeroConcentrated(0.1, xi=0.1)),
        (Measure.PURE, Gaussian(1.0)),
        (Measure.GAUSSIAN, Approximate(Gaussian(1.0), 1e-9)),
        (Measure.GAUSSIAN, Gaussian(1.0, relation=Relation.ADD_REMOVE)),
        (Measure.GAUSSIAN, Gaussian(1.0, unit=Unit.CLIENT)),
    ],
)
def test_what_no_theorem_adds_up_is_refused(measure, event):
    with pytest.raises(Refused):
        Filter(BUDGET, measure).require(Spent(), event)


def test_a_sampler_that_may_fail_often_is_refused():
    with pytest.raises(BudgetExceeded, match="sampler"):
        Filter(Budget(100.0, 1e-5, Relation.ADD_REMOVE), Measure.GAUSSIAN).require(Spent(), lattice.drawn(0.12, 10**6))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"measure": Measure.RENYI}, "order"),
        ({"measure": Measure.RENYI, "order": 1.0}, "order"),
        ({"measure": Measure.GAUSSIAN, "order": 2.0}, "order"),
        ({"measure": Measure.RENYI, "order": 1.5}, "epsilon"),
    ],
)
def test_a_filter_that_cannot_be_meant_is_refused(options, field):
    with pytest.raises(InvalidInput, match=field):
        Filter(BUDGET, **options)
