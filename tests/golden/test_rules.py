"""Every registered rule against numbers by hand, and what it refuses."""

from __future__ import annotations

import math

import pytest

from sordino.errors import InvalidInput
from sordino.rules import RULES, paper2
from sordino.rules.paper2.ensemble import Answering, least_rounds
from tests.golden.rule_rows import PAPER_0, PAPER_1, PAPER_3, PAPER_4, Row
from tests.golden.rule_rows_2 import EACH, PAPER_2

ROWS = {**PAPER_0, **PAPER_1, **PAPER_2, **PAPER_3, **PAPER_4}


def test_every_rule_has_a_row_that_it_agrees_with_and_something_that_it_refuses() -> None:
    assert set(ROWS) == set(RULES)
    for name, row in ROWS.items():
        assert row.refused, name
        assert set(row.expected) == set(RULES[name].results), name


@pytest.mark.parametrize("name", ROWS)
def test_a_rule_agrees_with_its_theorem(name: str) -> None:
    row = ROWS[name]
    assert RULES[name].compute(row.arguments) == pytest.approx(row.expected, rel=1e-9)


@pytest.mark.parametrize(("name", "row"), ROWS.items())
def test_a_rule_refuses_what_its_theorem_excludes(name: str, row: Row) -> None:
    for change, field in row.refused:
        with pytest.raises(InvalidInput) as refused:
            RULES[name].compute(row.arguments | change)
        assert refused.value.field == field, change


@pytest.mark.parametrize("name", ROWS)
def test_every_number_is_checked(name: str) -> None:
    """Of each argument: no NaN, nothing negative, no text, and none that the rule does not know."""
    row = ROWS[name]
    for field in row.arguments:
        for wrong in (math.nan, -1, "much", True):
            with pytest.raises(InvalidInput) as refused:
                RULES[name].compute(row.arguments | {field: wrong})
            assert refused.value.field == field
    with pytest.raises(InvalidInput):
        RULES[name].compute(row.arguments | {"unknown": 1})


@pytest.mark.parametrize("name", ROWS)
def test_a_missing_number_is_named(name: str) -> None:
    for argument in RULES[name].arguments:
        if argument.required:
            given = {key: value for key, value in ROWS[name].arguments.items() if key != argument.name}
            with pytest.raises(InvalidInput) as refused:
                RULES[name].compute(given)
            assert refused.value.field == argument.name


def test_rounds_that_stand_on_both_sides_are_solved() -> None:
    """Theorem 2.1 has ln(2.5 R / delta) in its R: the least R that is enough, and one round fewer is not."""
    known = {key: value for key, value in EACH.items() if key not in ("noise_rate", "K")}
    steps = paper2.theorem_2_1_convex(**known, beta=3.0)

    def asked(R: int) -> float:
        return 3 * 1.5 * 4 / 2 * 400 / math.sqrt(9 * math.log(2.5e5 * R) * math.log(2e5))

    assert asked(steps.R) <= steps.R
    assert asked(steps.R - 1) > steps.R - 1
    s_2 = 160_000 / (9 * math.log(2.5e5 * steps.R) * math.log(2e5))
    privacy = 400 / (4 * math.sqrt(2 * steps.R * math.log(2e5)))
    assert math.ceil(max(privacy, min(400, s_2) / steps.R)) == steps.K


def test_averages_over_clients_who_differ() -> None:
    """M_r is 1 or 2 of three clients with values 4, 2 and 0: 1/M = 3/4, 1/M'^2 = 5/8, means of the largest 4 and 3."""
    law = Answering((1, 2))
    assert law.mean == pytest.approx(4 / 3)
    assert law.prime == pytest.approx(math.sqrt(8 / 5))
    # Psi = sqrt((16 + 9) / 2) = 3.54; Psi / M' = 2.80 lies below psi_max / M = 3.
    assert law.averages([0.0, 4.0, 2.0]) == pytest.approx((math.sqrt(8 / 5), math.sqrt(12.5)))
    assert law.averages([4.0, 4.0, 4.0]) == pytest.approx((4 / 3, 4.0))  # alike: the mean of 1/M_r alone counts


def test_a_client_with_little_data_sets_the_pace_only_as_far_as_it_answers() -> None:
    """One of four clients has a tenth of the records: n_min is its, Xi~ the average or the largest over M."""
    sizes = {"d": 9, "L": 2.0, "D": 1.5, "beta": 3.0, "epsilon": 1.0, "delta": 1e-5}
    mixed = paper2.theorem_2_1_convex(n=[400, 400, 400, 40], M=4, **sizes)
    alike = paper2.theorem_2_1_convex(n=400, M=4, **sizes)
    smallest = paper2.theorem_2_1_convex(n=40, M=4, **sizes)
    assert alike.risk < mixed.risk < smallest.risk


def test_rounds_beyond_any_run_are_refused() -> None:
    with pytest.raises(InvalidInput):
        least_rounds(lambda R: 1e12)


def test_the_gradient_of_an_unnormalized_server_step_exceeds_the_printed_bound() -> None:
    """Theorem 3 of paper 4 on f = x^2 / 2 with one client: the rule's bound holds where the printed one does not."""
    alpha, beta, R, x, rounds = 1.0, 0.5, 1e-4, 0.1, 2002
    rule = RULES["paper4-theorem-3"].compute(
        {"alpha": alpha, "beta": beta, "R": R, "L_max": 1.0, "gap": x**2 / 2, "rounds": rounds}
    )
    gamma, bound = rule["gamma"], rule["gradient_norm"]
    assert isinstance(gamma, float)
    printed = x**2 / 2 / (gamma * rounds) + 2 * R + gamma / 2
    g, least = x - R, x
    for _ in range(rounds):
        g += beta * (x - g) / (alpha + abs(x - g))
        least = min(least, abs(x))
        x -= gamma * g
    assert 5 * printed < least <= bound


def test_a_batch_without_beta_lets_errors_grow() -> None:
    """Lemma 4 of paper 4: 2 sigma / b + L_max gamma must not exceed beta R / (alpha + R)."""
    row = ROWS["paper4-theorem-4"]
    rule = RULES["paper4-theorem-4"].compute(row.arguments)
    room = 0.5 * 3 / 4
    assert 2 * 5 / rule["b"] + 2 * rule["gamma"] <= room
    printed = math.ceil(4 * 5 * 4 / 3)
    assert 2 * 5 / printed + 2 * rule["gamma"] > room
