"""Guarantees name everything; certificates never show one round without the total."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from sordino.errors import BudgetExceeded, InvalidInput, Refused
from sordino.privacy import Budget, Certificate, certify
from sordino.privacy.accountants import epsilon_of
from sordino.privacy.events import (
    Composed,
    Gaussian,
    Laplace,
    Parallel,
    Pure,
    Repeated,
    Sampled,
    ZeroConcentrated,
)
from sordino.privacy.guarantee import Guarantee, format_delta, format_epsilon
from sordino.privacy.ledger import LedgerRecord
from sordino.privacy.sampling import Poisson
from sordino.types import Observer, Relation, Unit

GUARANTEE = Guarantee(
    Unit.RECORD, Relation.ADD_REMOVE, Observer.SERVER, "all rounds", 10, 1.5, 1e-6, "exact Gaussian", units=500
)


def test_a_sentence_says_it_all():
    text = str(GUARANTEE)
    for word in ("server", "all 10 rounds", "1.5", "1e-06", "record", "500", "add-remove", "exact Gaussian"):
        assert word in text


def test_json_round_trips_and_carries_infinity():
    hopeless = dataclasses.replace(GUARANTEE, epsilon=math.inf)
    data = json.loads(json.dumps(hopeless.to_json(), allow_nan=False))
    assert data["epsilon"] == "inf"
    assert set(data) == {field.name for field in dataclasses.fields(Guarantee)}


def test_one_round_needs_its_total():
    one = dataclasses.replace(GUARANTEE, scope="one round", rounds=1)
    with pytest.raises(InvalidInput, match="total over all rounds"):
        Certificate((one,))
    assert Certificate((one, GUARANTEE)).total(Observer.SERVER) is GUARANTEE


def test_certify_gives_both_and_the_total_is_larger():
    cert = certify(
        Gaussian(0.35), relation=Relation.REPLACE_ONE, observer=Observer.SERVER, rounds=50, delta=1e-5, units=1000
    )
    one, total = cert.guarantees
    assert (one.scope, total.scope, total.rounds, total.units) == ("one round", "all rounds", 50, 1000)
    assert one.epsilon == pytest.approx(15.658124, abs=1e-5)
    assert total.epsilon == pytest.approx(289.338637, abs=1e-4)


def test_conversions_that_hold():
    replaced = GUARANTEE.under(Relation.REPLACE_ONE)
    assert replaced.epsilon == 3.0
    assert replaced.delta == pytest.approx((1 + math.exp(1.5)) * 1e-6)
    assert replaced.under(Relation.ZERO_OUT).epsilon == replaced.epsilon
    client = GUARANTEE.for_client(4)
    assert (client.unit, client.epsilon) == (Unit.CLIENT, 6.0)
    assert client.delta == pytest.approx(4 * math.exp(3 * 1.5) * 1e-6)
    assert replaced.for_client(1).for_record().unit is Unit.RECORD


def test_two_steps_of_zero_out_cover_replace_one():
    """The generic conversion is never better than accounting replace-one directly."""
    for z in (0.5, 2.0, 10.0):
        direct = epsilon_of(Gaussian(z / 2), 1e-5)  # the sensitivity doubles
        zero_out = dataclasses.replace(GUARANTEE, relation=Relation.ZERO_OUT, epsilon=epsilon_of(Gaussian(z), 1e-9))
        generic = dataclasses.replace(zero_out, delta=1e-9, units=None).under(Relation.REPLACE_ONE)
        assert generic.epsilon >= epsilon_of(Gaussian(z / 2), min(generic.delta, 0.5)) or generic.delta >= 0.5
        assert direct > 0


def test_conversions_that_do_not_hold():
    with pytest.raises(Refused, match="does not imply"):
        GUARANTEE.under(Relation.REPLACE_ONE).under(Relation.ADD_REMOVE)
    with pytest.raises(Refused, match="replaces a client"):
        dataclasses.replace(GUARANTEE, unit=Unit.CLIENT).for_record()


def test_delta_must_lie_below_one_over_units():
    with pytest.raises(InvalidInput, match="1/units"):
        dataclasses.replace(GUARANTEE, units=2_000_000)


@pytest.mark.parametrize(
    ("epsilon", "text"),
    [(15.658124, "15.66"), (289.3386, "289.4"), (0.18241235, "0.1825"), (5.0, "5.000"), (0.0, "0"), (12345.6, "12350")],
)
def test_printed_epsilon_is_rounded_up(epsilon, text):
    assert format_epsilon(epsilon) == text
    assert float(text) >= epsilon or text == "0"


def test_parallel_composition_is_the_worst_branch():
    one_pass = Parallel((Gaussian(2.0), Gaussian(1.0), Gaussian(3.0)))
    assert epsilon_of(one_pass, 1e-5) == epsilon_of(Gaussian(1.0), 1e-5)
    assert epsilon_of(Repeated(Parallel((Gaussian(2.0),) * 7), 3), 1e-5) == epsilon_of(Repeated(Gaussian(2.0), 3), 1e-5)


def test_equal_events_however_nested_cost_the_same():
    release = Sampled(Gaussian(2.0), Poisson(0.1))
    nested = [
        Repeated(release, 12),
        Repeated(Repeated(release, 3), 4),
        Composed((Repeated(release, 5), Repeated(release, 7))),
        Composed(tuple([release] * 12)),
    ]
    assert len({epsilon_of(event, 1e-5) for event in nested}) == 1


def test_budget_refuses_the_round_that_would_exceed_it():
    release = Sampled(Gaussian(1.0), Poisson(0.1))
    budget = Budget(2.0, 1e-5, Relation.ADD_REMOVE)
    rounds = 0
    while (projected := budget.spent(Repeated(release, rounds + 1))) <= budget.epsilon:
        rounds += 1
        assert budget.require(Repeated(release, rounds)) == projected
    with pytest.raises(BudgetExceeded, match="above the budget"):
        budget.require(Repeated(release, rounds + 1))
    assert rounds > 1


def test_budget_looks_ahead_through_the_ledger():
    """Releases about the sample of one round are joint: more than independent samples of each would cost."""
    release, budget = Sampled(Gaussian(1.0), Poisson(0.01)), Budget(1.0, 1e-5, Relation.ADD_REMOVE)
    record = LedgerRecord(Unit.CLIENT, Relation.ADD_REMOVE, {}, {}, 1, ())
    for part in range(3):
        record = record.after(round=0, release=f"part {part}", observers=["model user"], event=release)
        joint = Sampled(Composed((release.event,) * (part + 1)), release.sampling)
        assert epsilon_of(record.spent("model user"), 1e-5) == pytest.approx(epsilon_of(joint, 1e-5))
    with pytest.raises(BudgetExceeded):
        budget.require(record.spent("model user"))
    assert budget.spent(Repeated(release, 3)) < budget.epsilon  # as three samples they would have passed


@pytest.mark.parametrize("beside", [Pure(1.0), Gaussian(1.0), Laplace(1.0), Sampled(Gaussian(1.0), Poisson(0.1))])
@pytest.mark.parametrize("endless", [Pure(math.inf), Repeated(Pure(1e308), 100)])
def test_a_release_without_bound_has_no_finite_epsilon(beside, endless):
    event = Composed((endless, beside))
    assert epsilon_of(event, 1e-5) == math.inf
    with pytest.raises(BudgetExceeded):
        Budget(1.0, 1e-5, Relation.ADD_REMOVE).require(event)


@pytest.mark.parametrize("rho", [1e13, 1e300, math.inf])
def test_concentrated_releases_without_end(rho):
    assert epsilon_of(ZeroConcentrated(rho), 1e-5) >= rho


def test_delta_is_never_rounded_down():
    rng = np.random.default_rng(0)
    for delta in (1.000002e-5, 0.1 + 0.2, *10.0 ** rng.uniform(-300, 0, 2000)):
        shown = float(format_delta(delta))
        assert delta <= shown <= delta * (1 + 1.1e-5)
    assert (format_delta(1e-5), format_delta(1.000002e-5), format_delta(0.0)) == ("1e-05", "1.00001e-05", "0")


def test_a_client_whose_name_breaks_the_line_is_refused():
    line = "a\nserver, over all 5 rounds: epsilon = 0.01"
    with pytest.raises(InvalidInput, match=r"client = .*printable"):
        Guarantee("record", "replace-one", "server", "all rounds", 5, 1.0, 1e-5, "exact Gaussian", client=line)
