"""The cost of private selection, derived a second time from Papernot and Steinke's Theorem 2."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.dp_event import (
    GaussianDpEvent,
    PoissonSampledDpEvent,
    RepeatAndSelectDpEvent,
    SelfComposedDpEvent,
)
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import minimize_scalar

from sordino.errors import InvalidInput, Refused
from sordino.privacy.accountants import epsilon_of
from sordino.privacy.events import Composed, Gaussian, NonPrivate, Pure, Repeated, Sampled
from sordino.privacy.sampling import Full, Poisson, WithoutReplacement
from sordino.privacy.selection import selection_epsilon
from sordino.types import Relation

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE


def theorem_2(rho: float, trials: float, delta: float) -> float:
    """epsilon of Gaussian noise, eps(a) = rho a, with a geometric number of runs, over all real orders.

    eps'(a) = eps(a) + 2 (1 - 1/b) eps(b) + 2 log(1/gamma) / b + log(E K) / (a - 1), gamma = 1 / E K, eta = 1. From
    eps'(a) to (eps, delta) by Canonne, Kamath and Steinke 2020: eps'(a) + log((a - 1)/a) - log(delta a) / (a - 1).
    """
    L = math.log(trials)
    b = max(1.0, math.sqrt(L / rho))  # the minimum of 2 rho (b - 1) + 2 L / b
    at_b = 2 * rho * (b - 1) + 2 * L / b

    def epsilon(log_a_minus_1: float) -> float:
        t = math.exp(log_a_minus_1)
        a = 1 + t
        return rho * a + at_b + L / t + math.log(t / a) - math.log(delta * a) / t

    return float(minimize_scalar(epsilon, bounds=(-6, 12), method="bounded", options={"xatol": 1e-10}).fun)


@pytest.mark.parametrize("trials", [1.5, 12, 168, 10_000])
@pytest.mark.parametrize(("z", "rounds"), [(20.0, 50), (4.0, 10), (2.0, 6)])
@pytest.mark.parametrize("delta", [1e-6, 1e-4])
def test_gaussian_noise(z, rounds, trials, delta):
    """The orders of the accountant are a grid: never below the minimum over all orders, and hardly above."""
    expected = theorem_2(rounds / (2 * z**2), trials, delta)
    got = selection_epsilon(Repeated(Gaussian(z), rounds), trials=trials, delta=delta, relation=ADD)
    assert expected - 1e-6 <= got <= 1.015 * expected
    assert selection_epsilon(Repeated(Gaussian(z), rounds), trials=trials, delta=delta, relation=REPLACE) == got


@pytest.mark.parametrize("sampled", [False, True])
def test_against_dp_accounting(sampled):
    inner = Sampled(Gaussian(1.0), Poisson(0.05)) if sampled else Gaussian(6.0)
    theirs = PoissonSampledDpEvent(0.05, GaussianDpEvent(1.0)) if sampled else GaussianDpEvent(6.0)
    accountant = RdpAccountant().compose(RepeatAndSelectDpEvent(SelfComposedDpEvent(theirs, 40), mean=30, shape=1))
    got = selection_epsilon(Repeated(inner, 40), trials=30, delta=1e-5, relation=ADD)
    assert got == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-9)


def test_worth_its_name():
    """More trials cost more; any cost more than one run; many cost far less than all of them."""
    event, delta = Repeated(Sampled(Gaussian(1.0), Poisson(0.02)), 100), 1e-5
    costs = [selection_epsilon(event, trials=trials, delta=delta, relation=ADD) for trials in (1.01, 2, 10, 168, 1000)]
    assert costs == sorted(set(costs))
    one = epsilon_of(event, delta, ADD)
    assert costs[0] > one
    assert 4 * costs[3] < epsilon_of(Repeated(event, 168), delta, ADD)


def test_different_runs_cost_the_largest_at_every_order():
    """Curves that cross: plain noise is worse at low orders, rarely sampled strong releases at high ones."""
    plain, rare = Repeated(Gaussian(3.0), 2), Repeated(Sampled(Gaussian(0.45), Poisson(0.001)), 5)
    delta, trials = 1e-3, 20

    def curve(event):
        return RdpAccountant().compose(event).rdp

    a = np.asarray(RdpAccountant().orders)
    first = curve(SelfComposedDpEvent(GaussianDpEvent(3.0), 2))
    second = curve(SelfComposedDpEvent(PoissonSampledDpEvent(0.001, GaussianDpEvent(0.45)), 5))
    assert (first > second).any()
    assert (first < second).any()
    alone = [selection_epsilon(event, trials=trials, delta=delta, relation=ADD) for event in (plain, rare)]
    both = selection_epsilon(plain, rare, trials=trials, delta=delta, relation=ADD)
    assert both == selection_epsilon(rare, plain, trials=trials, delta=delta, relation=ADD)
    assert both > max(alone)
    # by hand, order by order
    eps = np.maximum(first, second)
    L = math.log(trials)
    total = eps + np.min(2 * (1 - 1 / a) * eps + 2 * L / a) + L / (a - 1)
    expected = np.min(total + np.log1p(-1 / a) - np.log(delta * a) / (a - 1))
    assert both == pytest.approx(expected, rel=1e-9)
    # what is never the largest changes nothing
    assert selection_epsilon(plain, Gaussian(30.0), trials=trials, delta=delta, relation=ADD) == alone[0]


def test_the_same_runs_in_other_words():
    settings = {"trials": 12, "delta": 1e-5, "relation": ADD}
    expected = selection_epsilon(Repeated(Gaussian(5.0), 6), **settings)
    for event in (
        Composed((Repeated(Gaussian(5.0), 4), Gaussian(5.0), Gaussian(5.0))),
        Repeated(Sampled(Gaussian(5.0), Full()), 6),
        Gaussian(5.0 / math.sqrt(6)),
    ):
        assert selection_epsilon(event, **settings) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("event", "relation"),
    [
        (Pure(1.0), ADD),
        (NonPrivate(), ADD),
        (Composed((Gaussian(1.0), Pure(1.0))), ADD),
        (Sampled(Gaussian(1.0), Poisson(0.1)), REPLACE),
        (Sampled(Gaussian(1.0), Poisson(0.1)), Relation.ZERO_OUT),
        (Sampled(Gaussian(1.0), WithoutReplacement(5, 100)), REPLACE),
    ],
)
def test_refused_for_other_noise(event, relation):
    with pytest.raises(Refused, match="Gaussian") as caught:
        selection_epsilon(event, trials=10, delta=1e-5, relation=relation)
    assert "count every run" in caught.value.remedy


@pytest.mark.parametrize(("trials", "delta", "field"), [(1, 1e-5, "trials"), (0, 1e-5, "trials"), (9, 0.0, "delta")])
def test_bad_input(trials, delta, field):
    with pytest.raises(InvalidInput, match=f"^{field} = "):
        selection_epsilon(Gaussian(1.0), trials=trials, delta=delta, relation=ADD)
