"""Methods that protect records: what their plans promise to whom, and what they refuse."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.algorithms.local import ClientData
from sordino.algorithms.records import RecordGradients
from sordino.data import Dataset, partition
from sordino.data.augmentation import crop_flip
from sordino.errors import InvalidInput, Refused
from sordino.planning.record_noise import shuffled_event
from sordino.privacy import wording
from sordino.privacy.accountants import account_of, epsilon_of
from sordino.privacy.certification import certify_ledger
from sordino.privacy.events import (
    ByHolder,
    Composed,
    Disjoint,
    Gaussian,
    Parallel,
    Repeated,
    Sampled,
    event_from_json,
    event_to_json,
    of_run,
    passing_anew,
)
from sordino.privacy.sampling import WithoutReplacement
from sordino.tasks import Population
from sordino.types import ClientNumbers, Memory, Observer, Relation, Unit

REPLACE = Relation.REPLACE_ONE
TASK = so.task("linear", clients=3, records=40, d=4, loss="logit", l2=0.1)
USUAL = {"lipschitz": 1.0, "radius": 1.0, "feature_bound": 1.0}
BUDGET = {"epsilon": 1.0, "delta": 1e-5, "trust": "local"}


def resolved(rounds=10, method=None, task=TASK, **settings):
    plan = so.plan(method or so.noisy_mb_sgd(**USUAL), rounds=rounds, **(BUDGET | settings))
    return plan.resolve(task.population)


def noise_std(plan):
    """Of every client's message."""
    return np.asarray(plan.rules.numbers.noise_std)


def claiming(method, **claims):
    """The same method, which says something else of itself to the plan."""

    class Claiming(type(method)):
        privacy = dataclasses.replace(method.privacy, **claims)

    return Claiming(**{field.name: getattr(method, field.name) for field in dataclasses.fields(method)})


# --- Each client its own -----------------------------------------------------------------------------------------


def test_every_client_has_its_own_noise_and_its_own_guarantee():
    method = so.noisy_mb_sgd(**(USUAL | {"lipschitz": [1.0, 2.0, 0.5]}), batch_size=[40, 10, 20])
    plan = resolved(method=method, epsilon=[0.5, 1.0, 2.0], delta=[1e-5, 1e-6, 1e-4])
    own = [g for g in plan.certificate.guarantees if g.client and g.observer is Observer.SERVER]
    assert [g.client for g in own] == ["client 0", "client 1", "client 2"]
    np.testing.assert_allclose([g.epsilon for g in own], [0.5, 1.0, 2.0], rtol=1e-4)
    assert [g.delta for g in own] == [1e-5, 1e-6, 1e-4]
    assert {g.units for g in own} == {40}
    std = noise_std(plan)
    for i, (L, K) in enumerate([(1.0, 40), (2.0, 10), (0.5, 20)]):
        event = Gaussian(float(std[i]) * K / (2 * L))
        event = event if K == 40 else Sampled(event, WithoutReplacement(K, 40))
        assert epsilon_of(Repeated(event, 10), own[i].delta, REPLACE) == pytest.approx(own[i].epsilon, rel=1e-3)


def test_the_guarantee_for_all_covers_every_client():
    plan = resolved(epsilon=[0.5, 1.0, 2.0], delta=[1e-5, 1e-6, 1e-4])
    total = plan.certificate.total(Observer.SERVER)
    assert (total.unit, total.relation, total.client, total.units) == (Unit.RECORD, REPLACE, None, 120)
    assert total.delta == 1e-4
    assert total.epsilon == pytest.approx(2.0, rel=1e-6)
    peer = plan.certificate.total(Observer.PEER)
    assert (peer.epsilon, peer.delta) == (total.epsilon, total.delta)


def test_a_model_user_sees_the_noise_of_all_only_when_all_take_part():
    assert resolved().certificate.total(Observer.MODEL_USER).epsilon < 0.7
    for cohort in ("fixed:2", "unreliable:1-3"):
        certificate = resolved(cohort=cohort).certificate
        assert certificate.total(Observer.MODEL_USER).epsilon == pytest.approx(1.0, rel=1e-6)
        assert certificate.total(Observer.SERVER).epsilon == pytest.approx(1.0, rel=1e-6)  # nothing is amplified


def test_clients_that_remember_their_noise_are_refused():
    """Model users are promised the noise of all, which is then taken off again by later rounds."""
    with pytest.raises(InvalidInput) as caught:
        resolved(method=claiming(so.noisy_mb_sgd(**USUAL), remembers_noise=True))
    assert caught.value.field == "remembers_noise"


def test_weights_change_the_message_and_its_noise_together(needs):
    needs("heart-disease")
    task = so.task("heart-disease")
    plain, weighted = (
        resolved(method=so.noisy_mb_sgd(**USUAL, weights=weights), task=task) for weights in ("clients", "records")
    )
    factor = task.data.size / task.data.size.mean()
    np.testing.assert_allclose(noise_std(weighted), noise_std(plain) * factor, rtol=1e-5)
    assert weighted.certificate.total(Observer.SERVER).epsilon == pytest.approx(1.0, rel=1e-6)


def test_each_hospital_is_named(needs):
    needs("heart-disease")
    text = str(resolved(task=so.task("heart-disease")).certificate)
    for line in ("203 of cleveland", "175 of hungarian", "31 of switzerland", "88 of va"):
        assert f"server, over all 10 rounds: epsilon = 1.0000, delta = 1e-05 for one record of {line}" in text


def test_noise_that_no_float32_has_is_refused():
    for lipschitz in (1e-37, 1e38, [1.0, 1e-37, 1.0], math.nan):
        with pytest.raises(InvalidInput, match="lipschitz"):
            so.noisy_mb_sgd(**(USUAL | {"lipschitz": lipschitz}))
    tiny = so.noisy_mb_sgd(**(USUAL | {"lipschitz": 1e-20}))
    assert math.isfinite(resolved(method=tiny).certificate.total(Observer.SERVER).epsilon)
    with pytest.raises(InvalidInput, match="float32 is exact for"):  # a message that float32 loses
        resolved(method=so.noisy_mb_sgd(**(USUAL | {"lipschitz": 1e-30})))


def test_what_is_not_said_of_sums_and_memory_is_not_gained_from():
    """A model user gains from the noise of all only where the server uses sums alone, and memory is asked about."""
    method = so.noisy_mb_sgd(**USUAL, batch_size=10)
    usual = resolved(method=method).certificate
    careless = resolved(method=claiming(method, uses_sum_only=False)).certificate
    assert usual.total(Observer.MODEL_USER).epsilon < usual.total(Observer.SERVER).epsilon / 1.5
    assert careless.total(Observer.MODEL_USER).epsilon == careless.total(Observer.SERVER).epsilon
    with pytest.raises(Refused, match="memory"):
        resolved(method=claiming(method, memory=Memory.EXACT))


def test_clients_of_one_name_are_refused():
    """Their guarantees are kept by name: one would stand for both."""
    task = dataclasses.replace(TASK, data=TASK.data._replace(names=("ward", "ward", "other")))
    with pytest.raises(InvalidInput, match="names"):
        resolved(task=task)


def test_records_that_overlap_are_said():
    def said(task):
        return "records-overlap" in {warning.code for warning in resolved(task=task).certificate.warnings}

    assert said(dataclasses.replace(TASK, data=TASK.data._replace(overlapping=True)))
    assert not said(TASK)


@pytest.mark.parametrize(
    ("scheme", "said"), [("iid", False), ("quantity:1", False), ("shards:2", True), ("dirichlet:0.3", True)]
)
def test_records_that_their_labels_deal_out_are_said_to_be(scheme, said):
    """One other label may then move records of others between clients: more than one record's worth."""
    task = so.task("digits", clients=20, partition=scheme)
    codes = {warning.code for warning in resolved(task=task, method=so.noisy_mb_sgd(**USUAL)).certificate.warnings}
    assert ("dealt-by-label" in codes) == said
    clients = so.plan(so.dp_sgd(server_lr=0.1, bound=so.clip(1.0)), rounds=1, noise_multiplier=1.0, delta=1e-4)
    codes = {warning.code for warning in clients.resolve(task.population).certificate.warnings}
    assert "dealt-by-label" not in codes  # a client is one after it was dealt its records


@pytest.mark.parametrize(("scheme", "moves"), [("iid", False), ("dirichlet:0.3", True)])
def test_one_label_moves_no_other_record_unless_it_deals(scheme, moves):
    """What the warning rests on: how many places of the dealt records change with one label."""
    x, y = np.arange(200, dtype=np.float32)[:, None], np.random.default_rng(0).integers(0, 2, 200).astype(np.int32)

    def dealt(y):
        return partition(Dataset("mine", x, y, x[:2], y[:2], 2), scheme, 10).x[:, 0]

    changes = []
    for place in range(20):
        other = y.copy()
        other[place] = 1 - y[place]
        changes.append(np.sum(dealt(y) != dealt(other)))
    assert (max(changes) > 1) == moves


def test_the_hospitals_test_patients_are_chosen_by_label(needs):
    needs("heart-disease")
    assert so.task("heart-disease").data.dealt_by_label


def test_windows_of_one_text_overlap(needs):
    needs("tiny-shakespeare")
    assert so.task("tiny-shakespeare").data.overlapping


@pytest.mark.parametrize("name", ["heart-disease", "adult", "tiny-shakespeare"])
def test_natural_clients_are_in_the_test_set_too(name, needs):
    needs(name)
    assert so.task(name).data.tests_clients
    assert not so.task(name, clients=3, partition="iid").data.tests_clients


def test_without_noise_no_option_is_overlooked():
    for wrong in ({"calibration": "numeric"}, {"levels": 3}, {"trust": "banana"}):
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            so.plan(so.noisy_mb_sgd(**USUAL), rounds=1, **wrong)


def test_many_clients_are_printed_as_a_range_and_listed_in_json():
    task = so.task("linear", clients=25, records=4, d=2, loss="logit", l2=0.1)
    plan = resolved(task=task, epsilon=[*np.linspace(0.5, 1.0, 25)], delta=1e-3)
    line = next(line for line in str(plan.certificate).splitlines() if line.startswith("model user") and "25" in line)
    assert "model user, over all 10 rounds, each of 25 clients for its own records: epsilon from" in line
    assert f"replace-one; exact Gaussian; assuming {wording.ASSUME_OTHERS_HONEST}" in line
    assert "each of 25 clients for its own records: epsilon from 0.5000 to 1.0000" in str(plan.certificate)
    assert "client 7" not in str(plan.certificate)
    named = [g["client"] for g in plan.certificate.to_json()["guarantees"] if g["client"]]
    assert named.count("client 7") == 3
    worst = plan.summary["each_client"][0]
    assert worst["epsilon"] == pytest.approx(1.0, rel=1e-6)


def test_without_noise_nothing_is_promised():
    certificate = so.plan(so.noisy_mb_sgd(**USUAL), rounds=3).resolve(TASK.population).certificate
    assert math.isinf(certificate.total(Observer.SERVER).epsilon)
    assert math.isinf(certificate.total(Observer.MODEL_USER).epsilon)


# --- Shuffling ----------------------------------------------------------------------------------------------------


def test_shuffling_needs_less_noise_where_it_hides():
    task = so.task("linear", clients=1000, records=1, d=2, loss="ridge", l2=0.1)
    shuffled, local = (resolved(rounds=1, task=task, trust=trust, epsilon=0.5) for trust in ("shuffle", "local"))
    assert noise_std(shuffled)[0] < 0.5 * noise_std(local)[0]
    server, peer = (shuffled.certificate.total(observer) for observer in (Observer.SERVER, Observer.PEER))
    assert 0.4 < server.epsilon <= 0.5
    assert peer.epsilon > server.epsilon  # it knows its own message
    # Clean messages of others hide nothing.
    assert server.assumptions == (wording.assume_shuffler(1000), wording.ASSUME_OTHERS_ADD_NOISE)
    assert shuffled.summary["noise_std_by_secure_aggregation"] < noise_std(shuffled)[0]
    assert "shuffle-adds-nothing" not in [warning.code for warning in shuffled.certificate.warnings]


def test_shuffling_few_messages_is_said_to_add_nothing():
    shuffled, local = (resolved(trust=trust) for trust in ("shuffle", "local"))
    np.testing.assert_allclose(noise_std(shuffled), noise_std(local), rtol=1e-4)
    assert "shuffle-adds-nothing" in [warning.code for warning in shuffled.certificate.warnings]
    assert shuffled.certificate.total(Observer.SERVER).epsilon <= 1.0 + 1e-6


def test_the_shuffled_pipeline_needs_about_6_at_the_published_setting():
    """N = M = 1000, n = 100, K = 1, R = 1000, (1, 1e-5); 6.03 with the best split of delta."""

    def epsilon(sigma):
        event = shuffled_event(sigma / 2, 1000, WithoutReplacement(1, 100), 1000, 1e-5)
        return math.inf if event is None else epsilon_of(Repeated(event, 1000), 1e-5, REPLACE)

    assert epsilon(6.7) < 1.0 < epsilon(5.8)


def test_messages_of_several_records_are_hidden_by_their_whole_length():
    """A record moves a mean of 40 by 2 L / 40, but two clients' means may differ by 2 L: the noise is set by that."""
    task = so.task("linear", clients=1000, records=40, d=2, loss="ridge", l2=0.1)
    plan = resolved(rounds=1, task=task, trust="shuffle", epsilon=0.5)
    local = resolved(rounds=1, task=task, epsilon=0.5)
    np.testing.assert_allclose(noise_std(plan), noise_std(local), rtol=1e-4)


def test_secure_aggregation_is_compared_with_the_fewest_messages():
    """Of clients who may come alone, one has to hide by itself what a hundred would hide together."""
    task = so.task("linear", clients=100, records=20, d=3, loss="ridge", l2=0.1)
    method = so.noisy_mb_sgd(**USUAL, batch_size=5)
    plan = resolved(method=method, task=task, trust="shuffle", cohort="unreliable:4-100", delta=1e-4)
    z = plan.summary["noise_std_by_secure_aggregation"] * math.sqrt(4) / (2 / 5)
    event = Repeated(Sampled(Gaussian(z), WithoutReplacement(5, 20)), 10)
    assert epsilon_of(event, 1e-4, REPLACE) == pytest.approx(1.0, rel=1e-3)


def test_long_gradients_of_a_heavy_client_do_not_overflow():
    """One record more would turn a finite message into infinity, which no noise hides."""
    heavy = ClientNumbers(jnp.int32(0), jnp.float32(1e30), jnp.int32(8), jnp.float32(1e8), jnp.float32(0))
    x = jnp.full((8, 1), 1e30, jnp.float32)
    data = ClientData.own(lambda w, batch: jnp.vdot(w, batch.x[0]), x, jnp.zeros(8), heavy)
    message, _ = RecordGradients(8, one_pass=False)(jax.random.key(0), jnp.zeros(1), jnp.int32(0), data)
    np.testing.assert_allclose(message, 1e38, rtol=1e-5)


# --- Refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: resolved(calibration="acg16"), "false"),
        (lambda: resolved(method=so.noisy_mb_sgd(**USUAL, batch_size=1), calibration="theorem-2.1", rounds=2), "K"),
        (lambda: epsilon_of(Composed((Disjoint(Gaussian(1.0), "a"), Disjoint(Gaussian(2.0), "a"))), 1e-5), "different"),
    ],
)
def test_refused(ask, words):
    with pytest.raises(Refused) as caught:
        ask()
    assert words in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("ask", "field"),
    [
        (lambda: resolved(trust="central"), "trust"),
        (lambda: resolved(relation="add-remove"), "relation"),
        (lambda: resolved(mechanism="laplace"), "mechanism"),
        (lambda: resolved(calibration="classical"), "calibration"),
        (lambda: resolved(levels=4), "levels"),
        (lambda: resolved(noise_multiplier=1.0), "epsilon"),
        (lambda: resolved(delta=None), "delta"),
        (lambda: resolved(epsilon=[1.0, 2.0]), "epsilon"),
        (lambda: resolved(delta=0.5), "delta"),
        (lambda: resolved(calibration="norm-ec"), "calibration"),
        (lambda: resolved(task=dataclasses.replace(TASK, augment=crop_flip)), "augment"),
        (lambda: resolved(trust="shuffle", cohort="poisson:0.5"), "cohort"),
        (
            lambda: resolved(trust="shuffle", method=so.noisy_mb_sgd(**(USUAL | {"lipschitz": [1.0, 2.0, 1.0]}))),
            "lipschitz",
        ),
        (lambda: resolved(method=so.noisy_mb_sgd(**(USUAL | {"lipschitz": [1.0, 2.0]}))), "lipschitz"),
        (lambda: resolved(method=so.noisy_mb_sgd(lipschitz=1.0, radius=1.0)), "smoothness"),
        (lambda: so.plan(so.noisy_mb_sgd(**USUAL), rounds=1).resolve(Population(4, 3)), "sizes"),
        (lambda: so.noisy_mb_sgd(**USUAL, bound=so.clip(1.0)), "bound"),
        (lambda: so.noisy_mb_sgd(**USUAL, batch_size=0), "batch_size"),
        (lambda: so.noisy_mb_sgd(**USUAL, batch_size=1.9), "batch_size"),  # sensitivity 2L/1.9, but one record is drawn
        (lambda: so.accelerated_mb_sgd(**USUAL, batch_size=[2, 2.5, 3]), "batch_size"),
        (lambda: so.record_scaffold(local_steps=1, local_lr=0.1, bound=so.clip(1.0), batch_size=1.9), "batch_size"),
        (lambda: so.fedavg(local_steps=1.5, local_lr=0.1), "local_steps"),
        (lambda: resolved(rounds=2.5), "rounds"),
        (lambda: so.noisy_mb_sgd(**USUAL, one_pass=True), "batch_size"),
        (lambda: so.noisy_mb_sgd(**USUAL, weights="loud"), "weights"),
        (lambda: so.noisy_mb_sgd(**USUAL, mu=1.0, step_size=1.0), "step_size"),
        (lambda: so.noisy_mb_sgd(lipschitz=0.0, radius=1.0), "lipschitz"),
        (lambda: so.accelerated_mb_sgd(**USUAL, multi_stage=True), "multi_stage"),
        (lambda: so.accelerated_mb_sgd(**USUAL, multi_stage=True, mu=math.inf), "mu"),
        (lambda: so.accelerated_mb_sgd(**USUAL, mu=1e300), "mu"),
        (lambda: so.noisy_mb_sgd(**USUAL, mu=-1.0), "mu"),
        (lambda: so.accelerated_mb_sgd(**USUAL, initial_gap=1e-300), "initial_gap"),
        (lambda: so.noisy_mb_sgd(**USUAL, step_size=1e300), "step_size"),  # a model of NaN, and the budget spent
        (lambda: so.noisy_mb_sgd(**USUAL, step_size=1e-300), "step_size"),  # a model that never moves
        (lambda: so.noisy_mb_sgd(**(USUAL | {"radius": 1e-300})), "radius"),
        (lambda: so.noisy_mb_sgd(**(USUAL | {"feature_bound": math.inf})), "feature_bound"),
        (lambda: resolved(method=so.noisy_mb_sgd(lipschitz=1e6, radius=2e-38, smoothness=1.0)), "step_size"),
        (lambda: so.record_scaffold(local_steps=1, local_lr=0.1, weight_decay=math.inf), "weight_decay"),
        (lambda: so.fedavg(local_steps=1, local_lr=0.1, weight_decay=math.inf), "weight_decay"),
        (lambda: so.plan(so.fedavg(local_steps=1, local_lr=0.1), rounds=1, epsilon=[1.0, 2.0], delta=1e-5), "epsilon"),
    ],
)
def test_bad_input(ask, field):
    with pytest.raises(InvalidInput) as caught:
        ask()
    assert str(caught.value).startswith(f"{field} = ")
    assert caught.value.remedy


# --- One pass -----------------------------------------------------------------------------------------------------


def one_pass(rounds, K, make=so.noisy_mb_sgd, **settings):
    return resolved(rounds, make(**USUAL, batch_size=K, one_pass=True, **settings))


def test_a_record_used_twice_in_one_pass_is_an_error():
    assert one_pass(10, 4).certificate.total(Observer.SERVER).epsilon == pytest.approx(1.0)
    for make, settings in ((so.noisy_mb_sgd, {}), (so.accelerated_mb_sgd, {"mu": 1.0, "multi_stage": True})):
        with pytest.raises(InvalidInput) as caught:
            one_pass(11, 4, make, **settings)
        assert "twice" in str(caught.value)


def test_one_pass_is_accounted_in_parallel():
    total = one_pass(10, 4).certificate.total(Observer.SERVER)
    assert total.accountant == "parallel composition, exact Gaussian"
    assert total.rounds == 10
    event = Disjoint(Gaussian(2.0), "a")
    assert epsilon_of(Repeated(event, 7), 1e-5) == epsilon_of(Parallel((Gaussian(2.0),) * 7), 1e-5)
    two = Composed((Repeated(event, 7), Repeated(Disjoint(Gaussian(3.0), "b"), 5)))
    assert epsilon_of(two, 1e-5) == epsilon_of(Composed((Gaussian(2.0), Gaussian(3.0))), 1e-5)
    assert event_from_json(event_to_json(two)) == two


def test_another_pass_costs_again():
    """Rounds of one run are parts of one pass; another plan or run goes through the records anew."""
    plans = [one_pass(10, 4, step_size=step_size) for step_size in (0.1, 0.2)]
    first, second = (plan.event_for(Observer.SERVER, 10) for plan in plans)
    alone, half = epsilon_of(first, 1e-5), plans[0].event_for(Observer.SERVER, 5)
    assert epsilon_of(Composed((half, half)), 1e-5) == pytest.approx(alone)
    twice = epsilon_of(Composed((first, second)), 1e-5)
    assert so.Budget(1.5 * alone, 1e-5, REPLACE, Unit.RECORD).spent(Composed((first, second))) == twice > 1.4 * alone
    assert epsilon_of(Composed((first, passing_anew(first, "seed 1"))), 1e-5) == pytest.approx(twice)


def test_two_seeds_are_two_passes_in_the_ledgers(tmp_path):
    plan = so.plan(so.noisy_mb_sgd(**USUAL, batch_size=4, one_pass=True), rounds=3, **BUDGET)
    spent = []
    for seed in (0, 1):
        so.simulate(plan, TASK, seed=seed, folder=tmp_path / str(seed))
        spent.append(so.read_ledger(tmp_path / str(seed) / "ledger.jsonl").spent(Observer.SERVER))
    assert epsilon_of(spent[0], 1e-5) == pytest.approx(1.0)
    assert epsilon_of(Composed(tuple(spent)), 1e-5) > 1.4


def test_a_delta_that_may_expose_a_record_is_said_so(tmp_path):
    """1/120 is the share of one record of all; no client's own delta may reach its own share."""
    plan = so.plan(so.noisy_mb_sgd(**USUAL), rounds=2, **BUDGET | {"delta": 0.01})
    run = so.simulate(plan, TASK, seed=0, folder=tmp_path / "run")
    codes = {warning.code for warning in run.certificate.warnings}
    assert "delta-too-large" in codes
    assert run.certificate.total(Observer.SERVER).units is None
    again = certify_ledger(so.read_ledger(tmp_path / "run" / "ledger.jsonl"), 0.01)
    assert {warning.code for warning in again.warnings} == codes
    assert "delta-too-large" not in {warning.code for warning in resolved(delta=0.008).certificate.warnings}


def test_no_record_is_drawn_twice_even_beyond_the_last():
    """The client's own safeguard: 5 rounds of 3 from 10 records use 10 places once, then nothing."""
    x = jnp.arange(12.0)[:, None]
    gradients = RecordGradients(3, one_pass=True)
    own = ClientNumbers(jnp.int32(1), jnp.float32(1), jnp.int32(3), jnp.float32(1), jnp.float32(0))
    data = ClientData(lambda w, batch: jnp.float32(0), x, x[:, 0], jnp.int32(1), jnp.int32(10), 11, own)
    drawn = []
    for r in range(5):
        batch = gradients.draw(jax.random.key(r), jnp.int32(r), data)
        drawn += [float(value) for value, weight in zip(batch.x[:, 0], batch.weight, strict=True) if weight > 0]
    assert sorted(drawn) == list(range(1, 11))


# --- Events -------------------------------------------------------------------------------------------------------


def test_clients_who_hold_other_records_are_not_taken_for_the_same():
    """A record with the client of epsilon 8 in both runs pays 12.3; by kind it would have looked like 8.1."""
    digits = {"clients": 3, "partition": "iid"}
    first = resolved(epsilon=[1.0, 1.0, 8.0], task=so.task("digits", partition_seed=0, **digits))
    second = resolved(epsilon=[8.0, 8.0, 1.0], task=so.task("digits", partition_seed=1, **digits))
    a, b = (run.event_for(Observer.SERVER, 10) for run in (first, second))
    with pytest.raises(InvalidInput, match="sorted alike"):
        epsilon_of(Composed((a, b)), 1e-5, REPLACE)
    again = resolved(epsilon=[1.0, 1.0, 8.0], task=so.task("digits", partition_seed=0, **digits))
    assert again.event_for(Observer.SERVER, 10) == a


def test_records_of_a_file_may_have_changed_hands_between_two_runs(tmp_path):
    """By kind it would have looked like 6.1 for a record that pays 6 with one hospital and then with the other: 9.1."""
    rng = np.random.default_rng(0)
    x, path = rng.normal(size=(40, 3)), tmp_path / "patients.csv"

    def task(owners):
        rows = [f"{owner},{n % 2},train,{','.join(map(str, x[n]))}" for n, owner in enumerate(owners)]
        tests = [f"a,{n % 2},test,{','.join(map(str, x[n]))}" for n in range(4)]
        path.write_text("\n".join(["client,label,split,u,v,w", *rows, *tests]) + "\n")
        return so.task(f"csv:{path}", classes=2)

    def event(task, epsilon):
        ours = so.noisy_mb_sgd(lipschitz=1.0, radius=3.0, smoothness=1.0)
        return resolved(epsilon=epsilon, task=task, method=ours).event_for(Observer.SERVER, 10)

    owners = ["a"] * 20 + ["b"] * 20
    before = task(owners)
    a, b = event(before, [1.0, 6.0]), event(task(owners[::-1]), [6.0, 1.0])
    with pytest.raises(InvalidInput, match="sorted alike"):
        epsilon_of(Composed((a, b)), 1e-5, REPLACE)
    assert epsilon_of(Composed((a, event(before, [1.0, 6.0]))), 1e-5, REPLACE) > 6  # of one task, in one sweep
    # A run that is taken up again has made another task of the same file, and goes on in its own name.
    assert of_run(a, "run 1") == of_run(event(task(owners), [1.0, 6.0]), "run 1") != of_run(a, "run 2")


@pytest.mark.parametrize(("start", "size"), [([0, 3], [5, 9]), ([0, 5], [5, 20]), ([-3, 5], [5, 9])])
def test_clients_hold_records_of_their_own(start, size):
    data = TASK.data._replace(
        x=TASK.data.x[:14], y=TASK.data.y[:14], start=np.int32(start), size=np.int32(size), names=()
    )
    with pytest.raises(InvalidInput, match="parts that do not overlap"):
        dataclasses.replace(TASK, data=data)


def test_a_record_has_one_holder():
    """Over rounds the worst client counts, not the sum of all and not another client in each round."""
    event = ByHolder((Gaussian(2.0), Sampled(Gaussian(1.0), WithoutReplacement(1, 50))))
    account = account_of(Repeated(event, 20), REPLACE)
    each = [epsilon_of(Repeated(inner, 20), 1e-5, REPLACE) for inner in event.events]
    assert account.epsilon(1e-5) == max(each)
    assert account.accountant.startswith("worst client")
    assert event_from_json(event_to_json(Repeated(event, 20))) == Repeated(event, 20)
    with pytest.raises(InvalidInput):
        account_of(Composed((event, ByHolder((Gaussian(1.0),)))), REPLACE)


def test_runs_that_sort_their_clients_otherwise_are_not_composed_kind_by_kind():
    """Client 2 pays the most in both; yet it is the second of two kinds in the one run, and the first in the other."""
    plan = resolved(epsilon=[1.0, 1.0, 8.0])
    a, b = (run.event_for(Observer.SERVER, 10) for run in (plan, resolved(epsilon=[8.0, 1.0, 8.0])))
    with pytest.raises(InvalidInput, match="sorted alike"):
        epsilon_of(Composed((a, b)), 1e-5, REPLACE)
    assert event_from_json(event_to_json(b)) == b
    z = float(noise_std(plan)[2]) / (2 / 40)
    assert epsilon_of(Composed((a, a)), 1e-5, REPLACE) == pytest.approx(
        epsilon_of(Repeated(Gaussian(z), 20), 1e-5, REPLACE)
    )
