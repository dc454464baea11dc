"""Events say which unit and relation they are about; nothing is accounted, spent or certified under other words."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import sordino as so
from sordino.errors import InvalidInput, LedgerError, Refused
from sordino.mechanisms.gaussian import gaussian
from sordino.privacy import Budget, Certificate, account_of, certify, certify_ledger, delta_of, epsilon_of, events
from sordino.privacy.accountants import forget_accounts
from sordino.privacy.calibration import calibrate
from sordino.privacy.events import event_from_json, event_to_json
from sordino.privacy.ledger import Ledger, read_ledger
from sordino.privacy.ledger_record import LedgerRecord, joint_release
from sordino.privacy.sampling import Poisson
from sordino.privacy.selection import selection_epsilon
from sordino.privacy.stated import stated, stated_as
from sordino.types import Event, Observer, Relation, Unit

ADD, ZERO, REPLACE = Relation.ADD_REMOVE, Relation.ZERO_OUT, Relation.REPLACE_ONE
CLIENT, RECORD = Unit.CLIENT, Unit.RECORD
BOUND = so.clip(1.0)
UNDER_ADD = events.Gaussian(2.0, unit=CLIENT, relation=ADD)
UNDER_REPLACE = events.Gaussian(2.0, unit=CLIENT, relation=REPLACE)


def certified(event: Event, relation: Relation, unit: Unit = CLIENT, delta: float = 1e-5) -> Certificate:
    return certify(event, relation=relation, unit=unit, observer="model user", rounds=1, delta=delta)


def epsilon(event: Event, relation: Relation, unit: Unit = CLIENT) -> float:
    return certified(event, relation, unit).total("model user").epsilon


def ledger_of(path: Path, *releases: Event, relation: Relation = ADD, unit: Unit = CLIENT) -> LedgerRecord:
    with Ledger.create(path, unit=unit, relation=relation, worst_release=events.NonPrivate()) as ledger:
        for round, event in enumerate(releases):
            ledger.append(round=round, release="update", observers=["model user"], event=event)
    return read_ledger(path)


# Three guarantees that were false


def test_an_event_under_add_remove_gives_no_certificate_under_replace_one() -> None:
    noise = gaussian(0.7)
    under_add, under_replace = (noise.event(BOUND, relation, 10) for relation in (ADD, REPLACE))
    assert epsilon(under_add, ADD) == pytest.approx(6.653, abs=1e-3)
    assert epsilon(under_replace, REPLACE) == pytest.approx(15.66, abs=5e-3)
    with pytest.raises(Refused) as refusal:
        certified(under_add, REPLACE)  # was certified with 6.653
    assert "add-remove" in str(refusal.value)
    assert "replace-one" in str(refusal.value)
    assert refusal.value.remedy
    with pytest.raises(Refused):
        certified(under_replace, ADD)


def test_a_budget_takes_no_spend_of_another_relation(tmp_path: Path) -> None:
    z = calibrate(events.Gaussian, epsilon=2.0, delta=1e-4)
    spent = ledger_of(tmp_path / "ledger", gaussian(z).event(BOUND, ADD, 10)).spent("model user")
    assert Budget(2.001, 1e-4, ADD).require(spent) == pytest.approx(2.0, abs=1e-3)
    same_noise = gaussian(z).event(BOUND, REPLACE, 10)
    assert epsilon_of(same_noise, 1e-4) == pytest.approx(4.510, abs=1e-3)
    for budget in (Budget(4.0, 1e-4, REPLACE), Budget(4.0, 1e-4, ZERO)):
        with pytest.raises(Refused):
            budget.require(spent)  # was taken for 2.000
        with pytest.raises(Refused):
            budget.spent(spent)


def test_an_event_about_clients_gives_no_certificate_about_records() -> None:
    event = gaussian(5.0).event(BOUND, ADD, 10)
    assert epsilon(event, ADD) == pytest.approx(0.7256, abs=1e-4)
    with pytest.raises(Refused) as refusal:
        certified(event, ADD, RECORD)  # was certified with 0.7256
    assert "record" in str(refusal.value)
    assert "client" in str(refusal.value)
    # What holds: another record makes another client, which replaces the one before.
    replaced = certified(gaussian(5.0).event(BOUND, REPLACE, 10), REPLACE).total("model user").for_record()
    assert replaced.epsilon == pytest.approx(1.555, abs=1e-3)


# Words inside events


MIXED = {
    "composed": events.Composed((UNDER_ADD, UNDER_REPLACE)),
    "repeated": events.Repeated(UNDER_ADD, 3, relation=REPLACE),
    "sampled": events.Sampled(UNDER_ADD, Poisson(0.1), relation=REPLACE),
    "parallel": events.Parallel((UNDER_ADD, UNDER_REPLACE)),
    "by holder": events.ByHolder((UNDER_ADD, UNDER_REPLACE)),
    "units": events.Composed((events.Pure(1.0, unit=CLIENT), events.Pure(1.0, unit=RECORD))),
    "assumed": events.Composed((UNDER_ADD, events.Assumed("mu", events.Pure(1.0), unit=RECORD))),
    "not private": events.Composed((UNDER_ADD, events.NonPrivate(relation=REPLACE))),
}


@pytest.mark.parametrize("event", MIXED.values(), ids=MIXED)
def test_a_mixture_is_refused_whatever_is_asked(event: Event, tmp_path: Path) -> None:
    for relation in (None, ADD, REPLACE):
        with pytest.raises(Refused):
            account_of(event, relation)
        with pytest.raises(Refused):
            epsilon_of(event, 1e-5, relation)
        with pytest.raises(Refused):
            delta_of(event, 1.0, relation)
    for relation in (ADD, REPLACE):
        with pytest.raises(Refused):
            certified(event, relation)
        with pytest.raises(Refused):
            Budget(100.0, 1e-5, relation).spent(event)
        with pytest.raises(Refused):
            ledger_of(tmp_path / relation, event, relation=relation)


def test_what_does_not_happen_says_nothing() -> None:
    event = events.Composed((UNDER_ADD, events.Repeated(UNDER_REPLACE, 0)))
    assert epsilon_of(event, 1e-5, ADD) == epsilon_of(events.Gaussian(2.0), 1e-5)


@pytest.mark.parametrize("relation", Relation)
def test_an_unstated_event_takes_the_words_of_the_caller(relation: Relation, tmp_path: Path) -> None:
    event = events.Repeated(events.Gaussian(2.0), 3)
    for unit in Unit:
        assert stated(event, unit, relation) == (unit, relation)
        assert epsilon(event, relation, unit) == epsilon_of(event, 1e-5, relation)
        assert Budget(100.0, 1e-5, relation, unit).spent(event) == epsilon_of(event, 1e-5, relation)
        spent = ledger_of(tmp_path / unit, event, relation=relation, unit=unit).spent("model user")
        assert (spent.unit, spent.relation) == (unit, relation)


def test_the_relation_of_an_event_is_that_of_its_account() -> None:
    """Nobody need repeat it. Sampling does not cost the same under all relations."""
    event = events.Sampled(events.Gaussian(2.0), Poisson(0.1))
    costs = {relation: epsilon_of(event, 1e-5, relation) for relation in (ADD, REPLACE)}
    assert costs[REPLACE] < costs[ADD] == epsilon_of(event, 1e-5)  # an event that states none is under add-remove
    for relation, cost in costs.items():
        same = dataclasses.replace(event, relation=relation)
        assert epsilon_of(same, 1e-5) == account_of(same).epsilon(1e-5) == cost
        assert calibrate(
            lambda z, same=same: dataclasses.replace(same, event=events.Gaussian(z)), epsilon=cost, delta=1e-5
        ) == pytest.approx(2.0, rel=1e-5)


def test_a_cache_hides_no_mismatch() -> None:
    forget_accounts()
    for ask in (
        lambda relation: epsilon_of(UNDER_ADD, 1e-5, relation),
        lambda relation: account_of(UNDER_ADD, relation),
    ):
        ask(ADD)
        epsilon_of(events.Gaussian(2.0), 1e-5, REPLACE)  # the same noise, of which nothing is stated
        epsilon_of(UNDER_REPLACE, 1e-5, REPLACE)
        for relation in (REPLACE, "replace-one", ZERO):
            with pytest.raises(Refused):
                ask(relation)


def test_words_do_not_change_what_releases_cost_together() -> None:
    """Stated and unstated releases of one kind are equal: exact composition knows them as one."""
    pure, said = events.Pure(0.1), events.Pure(0.1, unit=CLIENT, relation=ADD)
    account = account_of(events.Composed((events.Repeated(pure, 5), events.Repeated(said, 5))))
    assert account.accountant == "optimal pure composition"
    assert account.epsilon(1e-5) == epsilon_of(events.Repeated(pure, 10), 1e-5)
    passes = events.Composed((events.Disjoint(pure, "a"), events.Disjoint(said, "a")))
    assert epsilon_of(passes, 0.0) == pytest.approx(0.1)
    branches = events.Repeated(events.Parallel((pure, said)), 2)
    assert epsilon_of(branches, 0.0) == pytest.approx(0.2)


def test_private_selection_takes_no_runs_of_another_relation() -> None:
    assert selection_epsilon(UNDER_ADD, trials=10, delta=1e-5, relation=ADD) > 0
    with pytest.raises(Refused):
        selection_epsilon(UNDER_ADD, trials=10, delta=1e-5, relation=REPLACE)


# Ledgers and budgets


@pytest.mark.parametrize(
    "event", [UNDER_REPLACE, dataclasses.replace(UNDER_ADD, unit=RECORD)], ids=["relation", "unit"]
)
def test_a_ledger_takes_no_event_that_contradicts_its_header(event: Event, tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with Ledger.create(path, unit=CLIENT, relation=ADD, worst_release=UNDER_ADD) as ledger:
        before = path.read_bytes()
        with pytest.raises(Refused):
            ledger.append(round=0, release="update", observers=["server"], event=events.Repeated(event, 2))
        assert path.read_bytes() == before
        ledger.append(round=0, release="update", observers=["server"], event=UNDER_ADD)  # it goes on
    with pytest.raises(Refused):
        Ledger.create(tmp_path / "other", unit=CLIENT, relation=ADD, worst_release=event)
    assert not (tmp_path / "other").exists()
    record = read_ledger(path)
    after = record.after(round=1, release="update", observers=["server"], event=event)
    with pytest.raises(Refused):
        after.spent("server")
    with pytest.raises(Refused):
        certify_ledger(dataclasses.replace(record, relation=event.relation, unit=event.unit), 1e-5)


def test_a_ledger_of_one_sort_is_read_as_no_other(tmp_path: Path) -> None:
    """A header of other words, however it came there, contradicts the releases below it."""
    record = ledger_of(tmp_path / "ledger", UNDER_ADD)
    header = json.loads((tmp_path / "ledger").read_text().splitlines()[0])
    lines = [header | {"relation": "replace-one"}, json.loads((tmp_path / "ledger").read_text().splitlines()[1])]
    assert LedgerRecord.of([header, lines[1]]) == record
    with pytest.raises(Refused):
        LedgerRecord.of(lines)


def test_what_ledgers_say_was_spent_is_not_mixed(tmp_path: Path) -> None:
    by_add = ledger_of(tmp_path / "a", events.Gaussian(2.0)).spent("model user")
    by_replace = ledger_of(tmp_path / "b", events.Gaussian(2.0), relation=REPLACE).spent("model user")
    of_records = ledger_of(tmp_path / "c", events.Gaussian(2.0), unit=RECORD).spent("model user")
    assert epsilon_of(events.Composed((by_add, by_add)), 1e-5) > epsilon_of(by_add, 1e-5)
    for other in (by_replace, of_records):
        with pytest.raises(Refused):
            epsilon_of(events.Composed((by_add, other)), 1e-5)


def test_a_budget_of_records_is_not_spent_by_clients() -> None:
    about = {unit: gaussian(5.0).event(BOUND, ADD, 10, unit=unit) for unit in Unit}
    for unit, other in ((CLIENT, RECORD), (RECORD, CLIENT)):
        budget = Budget(1.0, 1e-5, ADD, unit=unit)
        assert budget.require(about[unit]) == pytest.approx(0.7256, abs=1e-4)
        with pytest.raises(Refused):
            budget.require(about[other])


def test_releases_of_one_sample_keep_their_words() -> None:
    half = events.Sampled(events.Gaussian(2.0), Poisson(0.1))
    said = events.Sampled(events.Gaussian(2.0), Poisson(0.1), unit=CLIENT, relation=ADD)
    eyes = (Observer.SERVER,)
    (joint,) = joint_release([("a", eyes, half), ("b", eyes, said)]).values()
    assert (joint.unit, joint.relation) == (CLIENT, ADD)
    with pytest.raises(Refused):
        joint_release([("a", eyes, said), ("b", eyes, dataclasses.replace(said, relation=REPLACE))])


# JSON


@pytest.mark.parametrize(
    "event",
    [
        UNDER_ADD,
        events.Assumed("mu", UNDER_REPLACE, unit=CLIENT),
        events.Repeated(events.Sampled(UNDER_REPLACE, Poisson(0.1), unit=CLIENT), 3, relation=REPLACE),
        gaussian(1.0).event(BOUND, ZERO, 3, unit=RECORD),
    ],
)
def test_words_survive_json(event: Event) -> None:
    again = event_from_json(json.loads(json.dumps(event_to_json(event))))
    assert again == event
    assert (type(again.relation), type(again.unit)) == (type(event.relation), type(event.unit))


def test_json_holds_words_only_where_they_are_stated() -> None:
    assert event_to_json(events.Gaussian(2.0)) == {"kind": "gaussian", "noise_multiplier": 2.0}
    assert event_to_json(UNDER_ADD) == {
        "kind": "gaussian",
        "noise_multiplier": 2.0,
        "unit": "client",
        "relation": "add-remove",
    }
    # As versions before wrote it.
    inner = {"kind": "pure", "epsilon": 1.0}
    old = {"kind": "assumed", "assumption": "mu", "unit": "record", "event": inner}
    assert event_from_json(old) == events.Assumed("mu", events.Pure(1.0), unit=RECORD)


@pytest.mark.parametrize("word", ["patient", None, 1, ["client"]])
@pytest.mark.parametrize("name", ["unit", "relation"])
def test_json_with_other_words_is_refused(name: str, word: object) -> None:
    with pytest.raises((InvalidInput, LedgerError)):
        event_from_json({"kind": "pure", "epsilon": 1.0, name: word})


# Where events come from


def test_a_word_stated_twice_must_be_the_same() -> None:
    assert stated_as(UNDER_ADD, "client", "add-remove") == UNDER_ADD
    with pytest.raises(Refused):
        stated_as(UNDER_ADD, RECORD, ADD)
    with pytest.raises(Refused):
        stated_as(events.Composed((UNDER_ADD,)), CLIENT, ZERO)


MAKERS = {
    "gaussian": lambda: gaussian(1.0),
    "laplace": lambda: so.laplace(1.0),
    "qtdl": lambda: so.qtdl(d=10, levels=8, epsilon=5.0, delta=1e-6),
    "binomial": lambda: so.binomial(d=10, levels=8, coins=1000),
    "privunit": lambda: so.privunit(d=10, eps0=1.0, eps1=1.0, eps2=1.0, bound=1.0),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("relation", Relation)
def test_a_mechanism_states_whom_its_event_is_about(name: str, relation: Relation) -> None:
    mechanism = MAKERS[name]()
    assert stated(mechanism.event(BOUND, relation, 10)) == (CLIENT, relation)
    assert stated(mechanism.event(BOUND, relation, 10, unit=RECORD)) == (RECORD, relation)


def test_assumed_sensitivities_are_about_records() -> None:
    event = so.qtdl(d=10, levels=8, epsilon=5.0, delta=1e-6, mu=0.1).event(BOUND, REPLACE, 10)
    assert stated(event) == (RECORD, REPLACE)


PEOPLE = so.Population(10, 1000, sizes=(50,) * 1000)
LOCAL = {"local_steps": 1, "local_lr": 0.1}
CLIPPED, QUANTILE = {"bound": so.clip(1.0)}, {"bound": so.adaptive_clip(1.0, indicator_noise_std=50.0)}
RECORDS = {"lipschitz": 1.0, "radius": 1.0, "smoothness": 1.0}
TARGET, NOISE = {"epsilon": 2.0, "delta": 1e-4}, {"noise_multiplier": 2.0, "delta": 1e-4}
PLANS = {
    "central": so.plan(so.fedavg(**LOCAL, **CLIPPED), rounds=5, cohort="poisson:0.1", **NOISE),
    "by number": so.plan(so.fedavg(**LOCAL, **CLIPPED), rounds=5, cohort="fixed:100", **NOISE),
    "quantile": so.plan(so.fedavg(**LOCAL, **QUANTILE), rounds=5, relation="replace-one", **TARGET),
    "step size": so.plan(so.fedexp(**LOCAL, **CLIPPED), rounds=5, relation="zero-out", **TARGET),
    "local": so.plan(so.dp_sgd(server_lr=0.1, **CLIPPED), rounds=5, trust="local", **TARGET),
    "false claim": so.plan(
        so.dp_sgd(server_lr=0.1, **CLIPPED), rounds=5, trust="local", calibration="norm-ec", **TARGET
    ),
    "laplace": so.plan(so.dp_sgd(server_lr=0.1, **CLIPPED), rounds=5, mechanism="laplace", **TARGET),
    "assumed": so.plan(
        so.dp_sgd(server_lr=0.1, **CLIPPED),
        rounds=5,
        mechanism="qtdl",
        trust="local",
        message_epsilon=5.0,
        levels=8,
        mu=0.1,
    ),
    "records": so.plan(so.noisy_mb_sgd(**RECORDS, batch_size=5), rounds=5, trust="local", epsilon=2.0, delta=1e-6),
    "shuffled": so.plan(so.noisy_mb_sgd(**RECORDS), rounds=1, trust="shuffle", epsilon=0.5, delta=1e-6),
}


@pytest.mark.parametrize("name", PLANS)
def test_the_releases_of_a_plan_state_what_its_certificate_says(name: str) -> None:
    resolved = PLANS[name].resolve(PEOPLE)
    about = resolved.certificate.totals[0]
    assert about.unit is (RECORD if name in ("assumed", "records", "shuffled") else CLIENT)
    private = [event for _, _, event in resolved.releases if not isinstance(event, events.NonPrivate)]
    side = resolved.method.side_event(about.relation)
    assert (side is not None) == (name in ("quantile", "step size"))
    assert private
    for event in (*private, side) if side else private:
        assert stated(event) == (about.unit, about.relation)
