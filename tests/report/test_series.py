"""Thinned series keep what people look for: extremes, ends, gaps; and epsilons are rounded up."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sordino.report.series import QUANTITIES, Quantity, quantities_of, series_of, thinned

LOSS, EPSILON = Quantity("test_loss", "Loss"), Quantity("epsilon", "Epsilon")
VALUES = st.none() | st.floats(-1e6, 1e6)


@given(st.lists(VALUES, min_size=1, max_size=300), st.integers(4, 40))
def test_extremes_ends_and_order_stay(values, most):
    points = list(enumerate(values, 1))
    kept = thinned(points, most)
    assert len(kept) <= max(most, 4)
    assert set(kept) <= set(points)
    assert [number for number, _ in kept] == sorted({number for number, _ in kept})
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    known = [value for value in values if value is not None]
    if known:
        found = [value for _, value in kept if value is not None]
        assert (min(found), max(found)) == (min(known), max(known))


def test_a_stretch_without_numbers_is_seen():
    points = [(n, None if 40 <= n < 80 else float(n)) for n in range(1, 201)]
    assert any(value is None for _, value in thinned(points, 20))


def test_a_lost_run_has_a_gap_and_a_run_without_figures_has_no_series():
    rows = [{"round": 1, "test_loss": 2.0}, {"round": 2, "test_loss": math.nan}, {"round": 3, "test_loss": math.inf}]
    assert series_of(rows, LOSS).values == (2.0, None, None)
    assert series_of(rows[1:], LOSS) is None
    assert series_of([{"round": 1, "epsilon": "inf"}], EPSILON) is None


def test_epsilons_are_rounded_up():
    (value,) = series_of([{"round": 1, "epsilon": 1.00001}], EPSILON).values
    assert value == 1.001


@pytest.mark.parametrize(
    ("key", "private"),
    [
        ("mean_norm", True),
        ("my_own", False),
        ("my_secret", True),
        ("training_loss", True),
        ("gradient_norm", True),
        ("private_loss", False),
    ],
)
def test_what_lies_under_not_private_is_private(key, private):
    secret = {"mean_norm": 1.0, "my_secret": 3.0, "training_loss": 1.0, "gradient_norm": 2.0}
    row = {"round": 1, "test_loss": 1.0, "my_own": 2.0, "private_loss": 1.0, "not_private": secret}
    (found,) = (each for each in quantities_of([row]) if each.key == key)
    assert found.on_records is private


def test_only_a_metric_with_noise_is_called_so():
    titles = {each.key: each.title for each in QUANTITIES}
    assert {key for key, title in titles.items() if "with noise" in title} == {"private_loss", "private_gradient_norm"}
