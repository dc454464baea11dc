"""The least noise, found by search, against the accountant that is asked once more."""

from __future__ import annotations

import pytest

from sordino.errors import InvalidInput, require
from sordino.privacy.accountants import epsilon_of
from sordino.privacy.calibration import calibrate, calibrate_gaussian
from sordino.privacy.events import Event, Gaussian, Repeated, Sampled
from sordino.privacy.gaussian import gaussian_noise_multiplier
from sordino.privacy.sampling import Poisson


@pytest.mark.parametrize("epsilon", [0.1, 3.0, 1e6])
def test_the_search_finds_what_the_formula_gives(epsilon: float) -> None:
    exact = gaussian_noise_multiplier(epsilon, 1e-5)
    assert calibrate(Gaussian, epsilon=epsilon, delta=1e-5) == pytest.approx(exact, rel=1e-6)


def test_a_sampled_release_costs_what_was_asked_and_hardly_less() -> None:
    delta = 1e-6

    def cost(noise_multiplier: float) -> float:
        return epsilon_of(Repeated(Sampled(Gaussian(noise_multiplier), Poisson(0.1)), 10), delta)

    z = calibrate_gaussian(epsilon=2.0, delta=delta, rounds=10, sampling=Poisson(0.1))
    assert cost(z) <= 2.0 < cost(0.9999 * z)


def test_noise_that_cannot_be_accounted_is_not_blamed_on_who_asked_for_none() -> None:
    """The search came upon it on its way down from 1: what was given are epsilon and delta."""

    def event_of(noise_multiplier: float) -> Event:
        require(noise_multiplier > 0.5, "noise_multiplier", noise_multiplier, "leaves what numbers can hold")
        return Gaussian(noise_multiplier)

    with pytest.raises(InvalidInput, match=r"epsilon = 1000\.0: at delta = 1e-05 it allows less noise"):
        calibrate(event_of, epsilon=1000.0, delta=1e-5)


def test_what_is_wrong_with_something_else_is_said() -> None:
    def event_of(noise_multiplier: float) -> Event:
        raise InvalidInput("delta", 1e-30, "ask for a larger delta")

    with pytest.raises(InvalidInput, match="delta = 1e-30"):
        calibrate(event_of, epsilon=1.0, delta=1e-30)


@pytest.mark.parametrize(
    ("epsilon", "delta", "named"),
    [(1e7, 1e-5, "epsilon = 10000000.0: above 1e"), (0.0, 1e-5, "epsilon"), (1.0, 1.0, "delta"), (1.0, -0.1, "delta")],
)
def test_targets_that_cannot_be_meant_are_refused(epsilon: float, delta: float, named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        calibrate(Gaussian, epsilon=epsilon, delta=delta)
