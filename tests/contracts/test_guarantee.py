"""Guarantees name everything; certificates never show one round without the total."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from sordino.errors import BudgetExceeded, InvalidInput, Refused
from sordino.privacy import Budget, Certificate, certify, wording
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
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.ledger import LedgerRecord
from sordino.privacy.sampling import Poisson
from sordino.privacy.wording import format_delta, format_epsilon
from sordino.types import Observer, Relation, Unit

GUARANTEE = Guarantee(
    Unit.RECORD, Relation.ADD_REMOVE, Observer.SERVER, "all rounds", 10, 1.5, 1e-6, "exact Gaussian", units=500
)


def test_json_round_trips_exactly_and_carries_infinity():
    hopeless = dataclasses.replace(GUARANTEE, epsilon=math.inf, observer=Observer.MODEL_USER, units=None)
    own = dataclasses.replace(GUARANTEE, client="Cleveland", delta=0.1 * 3e-7, assumptions=("a", "b"))
    certificate = Certificate((GUARANTEE, hopeless, own), (wording.THIS_RUN_ALONE, wording.total_counts(10)))
    data = json.loads(json.dumps(certificate.to_json(), allow_nan=False))
    assert data["guarantees"][1]["epsilon"] == "inf"
    assert set(data["guarantees"][0]) == {field.name for field in dataclasses.fields(Guarantee)}
    assert Certificate.from_json(data) == certificate
    assert Certificate.from_json(data | {"row": "of a table"}) == certificate


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("unit", "clinet"),
        ("relation", None),
        ("observer", 3),
        ("scope", "some rounds"),
        ("rounds", 2.5),
        ("rounds", 0),
        ("epsilon", "infinite"),
        ("epsilon", -1.0),
        ("epsilon", math.nan),
        ("delta", True),
        ("delta", 0.5),
        ("accountant", 1),
        ("assumptions", "one text"),
        ("units", 0),
        ("client", 7),
        ("client", "two\nlines"),
        ("author", "unknown"),
    ],
)
def test_json_that_is_no_guarantee_is_refused_by_its_field(field, value):
    with pytest.raises(InvalidInput) as raised:
        Certificate.from_json({"guarantees": [GUARANTEE.to_json() | {field: value}], "warnings": []})
    assert raised.value.field == field


@pytest.mark.parametrize("field", ["unit", "scope", "rounds", "epsilon", "delta", "accountant"])
def test_json_without_a_field_is_refused(field):
    values = GUARANTEE.to_json()
    del values[field]
    with pytest.raises(InvalidInput) as raised:
        Guarantee.from_json(values)
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ([], "certificate"),
        ({"warnings": []}, "guarantees"),
        ({"guarantees": {}}, "guarantees"),
        ({"guarantees": [], "warnings": {"code": "a"}}, "warnings"),
        ({"guarantees": [3]}, "guarantee"),
        ({"guarantees": [], "warnings": [{"code": "a"}]}, "message"),
    ],
)
def test_json_that_is_no_certificate_is_refused(values, field):
    with pytest.raises(InvalidInput) as raised:
        Certificate.from_json(values)
    assert raised.value.field == field


# --- Composition of runs ------------------------------------------------------------------------------------------


def run_certificate(epsilon: float, delta: float, rounds: int, **changes) -> Certificate:
    total = dataclasses.replace(GUARANTEE, epsilon=epsilon, delta=delta, rounds=rounds, **changes)
    one = dataclasses.replace(total, scope="one round", rounds=1)
    return Certificate((one, total), (wording.THIS_RUN_ALONE, wording.total_counts(rounds)))


def test_runs_compose_by_adding_epsilons_and_deltas():
    first = run_certificate(1.5, 1e-6, 10, assumptions=("a", "b"))
    second = run_certificate(0.25, 2e-6, 5, assumptions=("b", "c"))
    (total,) = Certificate.compose(first, second).guarantees
    assert (total.epsilon, total.delta, total.rounds) == (1.75, pytest.approx(3e-6), 15)
    assert (total.scope, total.units, total.subject) == ("all rounds", 500, GUARANTEE.subject)
    assert total.accountant == "basic composition of 2 certificates"
    independent = (wording.ASSUME_SAME_DATA, wording.ASSUME_INDEPENDENT_RUNS)
    assert total.assumptions == ("a", "b", "c", *independent)


def test_a_run_composed_with_itself_costs_twice():
    certificate = run_certificate(1.5, 1e-6, 10)
    twice = Certificate.compose(certificate, certificate).total(Observer.SERVER)
    assert (twice.epsilon, twice.delta, twice.rounds) == (3.0, 2e-6, 20)
    assert Certificate.merge_observers(certificate, certificate) == certificate
    assert not hasattr(certificate, "__add__")


def test_composed_warnings_speak_of_all_runs():
    composed = Certificate.compose(run_certificate(1.0, 1e-6, 10), run_certificate(1.0, 1e-6, 7))
    assert composed.warnings == (wording.COMPOSED_RUNS_ALONE, wording.total_counts(17))


def test_every_observer_and_client_is_composed_by_itself():
    def certificate(server: float, user: float, own: float) -> Certificate:
        totals = [dataclasses.replace(GUARANTEE, epsilon=server)]
        totals.append(dataclasses.replace(GUARANTEE, epsilon=user, observer=Observer.MODEL_USER))
        totals.append(dataclasses.replace(GUARANTEE, epsilon=own, client="Cleveland", units=40))
        return Certificate(tuple(totals))

    composed = Certificate.compose(certificate(8.0, 1.0, 2.0), certificate(math.inf, 2.0, 3.0), certificate(1, 4.0, 0))
    found = {(g.observer, g.client): g.epsilon for g in composed.guarantees}
    assert found == {
        (Observer.SERVER, None): math.inf,
        (Observer.MODEL_USER, None): 7.0,
        (Observer.SERVER, "Cleveland"): 5.0,
    }


def test_a_run_with_totals_at_two_deltas_composes_with_one_at_one():
    pure = Certificate(
        (dataclasses.replace(GUARANTEE, epsilon=5.0), dataclasses.replace(GUARANTEE, epsilon=6.0, delta=0))
    )
    other = Certificate((dataclasses.replace(GUARANTEE, epsilon=1.0, delta=2e-6),))
    found = [(g.epsilon, g.delta) for g in Certificate.compose(pure, other).guarantees]
    assert found == [(6.0, pytest.approx(3e-6)), (7.0, 2e-6)]


def test_deltas_that_add_up_to_one_unit_are_warned_of():
    certificate = run_certificate(1.0, 1.5e-3, 3)
    composed = Certificate.compose(certificate, certificate)  # 3e-3 is more than 1/500
    assert composed.total(Observer.SERVER).units is None
    assert "delta-too-large" in {warning.code for warning in composed.warnings}


def test_composed_delta_is_at_most_one():
    lost = Certificate((dataclasses.replace(GUARANTEE, epsilon=1.0, delta=0.7, units=None),))
    assert Certificate.compose(lost, lost).total(Observer.SERVER).delta == 1.0


def test_one_certificate_composed_is_itself_and_none_is_refused():
    certificate = run_certificate(1.0, 1e-6, 10)
    assert Certificate.compose(certificate) is certificate
    with pytest.raises(InvalidInput):
        Certificate.compose()


@pytest.mark.parametrize(
    "changes",
    [
        {"unit": Unit.CLIENT},
        {"relation": Relation.REPLACE_ONE},
        {"observer": Observer.MODEL_USER},
        {"client": "Cleveland"},
        {"units": 501},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_runs_of_another_kind_or_population_are_not_composed(changes):
    with pytest.raises(Refused):
        Certificate.compose(run_certificate(1.0, 1e-6, 10), run_certificate(1.0, 1e-6, 10, **changes))
    with pytest.raises(Refused):
        Certificate.compose(run_certificate(1.0, 1e-6, 10), Certificate(()))


def test_basic_composition_is_no_better_than_composing_the_events():
    def certificate(rounds: int, delta: float) -> Certificate:
        return certify(
            Gaussian(3.0), relation=Relation.REPLACE_ONE, observer=Observer.SERVER, rounds=rounds, delta=delta
        )

    composed = Certificate.compose(certificate(4, 1e-6), certificate(9, 2e-6)).total(Observer.SERVER)
    assert composed.epsilon >= epsilon_of(Repeated(Gaussian(3.0), 13), composed.delta, Relation.REPLACE_ONE)


def test_parts_of_one_run_are_merged_and_not_added():
    user = Certificate((dataclasses.replace(GUARANTEE, observer=Observer.MODEL_USER),), (wording.THIS_RUN_ALONE,))
    server = Certificate((GUARANTEE,), (wording.THIS_RUN_ALONE,))
    merged = Certificate.merge_observers(server, user)
    assert merged == Certificate((*server.guarantees, *user.guarantees), (wording.THIS_RUN_ALONE,))
    other = Certificate((dataclasses.replace(GUARANTEE, epsilon=2.0),))
    with pytest.raises(InvalidInput, match="compose"):
        Certificate.merge_observers(server, other)


def test_the_total_of_an_observer_holds_for_every_client():
    own = dataclasses.replace(GUARANTEE, epsilon=0.1, client="Cleveland")
    assert Certificate((own, GUARANTEE)).total("server") is GUARANTEE
    with pytest.raises(InvalidInput) as raised:
        Certificate((own, GUARANTEE)).total("peer")
    assert raised.value.field == "observer"


def test_one_round_needs_its_total():
    one = dataclasses.replace(GUARANTEE, scope="one round", rounds=1)
    with pytest.raises(InvalidInput) as raised:
        Certificate((one,))
    assert raised.value.field == "scope"
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
    with pytest.raises(Refused, match="convert first"):
        dataclasses.replace(GUARANTEE, unit=Unit.CLIENT).for_record()


def test_delta_must_lie_below_one_over_units():
    with pytest.raises(InvalidInput, match="delta = 1e-06"):
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
