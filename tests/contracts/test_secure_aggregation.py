"""Plans and runs with secure aggregation: what they promise, whose noise counts, what is refused, and parity."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.deploy.settings import AcceptSection
from sordino.errors import InvalidInput
from sordino.planning.deployed import deploy
from sordino.privacy.certification import certify_ledger
from sordino.privacy.ledger import read_ledger
from sordino.rounds.turns import ServerKeys, server_turn
from sordino.runs.blocks import Program
from sordino.tasks import Population
from sordino.types import Aggregate, Draws, Observer, Placement, Relation
from tests.toys import debugged_rounds_of, rounds_of, toy

METHOD = so.fedavg(local_steps=2, local_lr=0.5, bound=so.clip(0.5), message="difference")
TASK = toy()
CLIENTS = TASK.clients
USUAL = {"rounds": 3, "delta": 1e-5, "trust": "secure-aggregation"}
FEW_BITS = {"bits": 12}  # small tables of noise


def planned(method=METHOD, **options):
    noise = {} if "epsilon" in options else {"noise_multiplier": 2.0}
    return so.plan(method, **(USUAL | noise | options))


def resolved(method=METHOD, clients=1000, d=5046, **options):
    return planned(method, **options).resolve(Population(d, clients))


def rho_of(plan):
    (event,) = {event for _, _, event in plan.releases}
    return event.rho


# --- What is promised ------------------------------------------------------------------------------------------------


def test_the_certificate_names_what_it_rests_on():
    plan = resolved(bits=16, dropouts=0.05, colluding=50)
    for observer in (Observer.SERVER, Observer.MODEL_USER):
        total = plan.certificate.total(observer)
        assert (total.relation, total.accountant, total.rounds) == (Relation.ZERO_OUT, "zCDP", 3)
        secure, shares = total.assumptions
        assert "2^16" in secure
        assert "950" in shares
        assert "50" in shares.replace("950", "")
    assert plan.certificate.draws is Draws.SIMULATED_MESSAGES
    assert plan.promised is Observer.SERVER
    assert plan.rules.placement is Placement.IN_SHARES


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_the_noise_of_survivors_who_keep_it_secret_meets_the_target(relation):
    """Calibrated for 900 shares; the rho of the event is that of 900, and of 1,000 it would be smaller."""
    plan = resolved(epsilon=8.0, dropouts=0.05, colluding=50, relation=relation)
    total = plan.certificate.total(Observer.SERVER)
    assert 7.999 < total.epsilon <= 8.0
    lattice, factor = plan.mechanism.lattice, Relation.parse(relation).sensitivity_factor
    assert rho_of(plan) == pytest.approx(factor**2 * lattice.norm_squared / (2 * 900 * lattice.share_std**2), rel=1e-12)
    assert plan.mechanism.shares.honest == 900


def test_dropouts_and_colluders_take_their_noise_with_them():
    """At equal epsilon a share grows by sqrt(1000 / 900), and the noise of all 1,000 clients with it."""
    all_of_them, fewer = resolved(epsilon=8.0), resolved(epsilon=8.0, dropouts=0.05, colluding=50)
    grown = fewer.mechanism.lattice.share_std / all_of_them.mechanism.lattice.share_std
    assert grown == pytest.approx((1000 / 900) ** 0.5, rel=2e-3)  # in steps, which are a little coarser
    unreliable = resolved(epsilon=8.0, cohort="unreliable:950-1000", colluding=50, relation="zero-out")
    assert unreliable.mechanism.shares == fewer.mechanism.shares


def test_sampling_by_number_is_not_amplified():
    """The server sees who is asked: a cohort of 100 among 1,000 costs what 100 clients that always come cost."""
    some, hundred = (
        resolved(cohort="fixed:100", epsilon=8.0),
        resolved(clients=100, epsilon=8.0, relation="replace-one"),
    )
    assert rho_of(some) == pytest.approx(rho_of(hundred))
    assert some.plan.relation is Relation.REPLACE_ONE


def test_the_idealisation_is_marked():
    ideal, lattice = resolved(epsilon=8.0, sampler="float32"), resolved(epsilon=8.0)
    assert "idealised" in {warning.code for warning in ideal.certificate.warnings}
    assert "idealised" not in {warning.code for warning in lattice.certificate.warnings}
    total = ideal.certificate.total(Observer.SERVER)
    assert "idealisation" in total.assumptions[0]
    assert total.accountant == "exact Gaussian"
    assert ideal.summary["noise_std"] < lattice.summary["noise_std"] < 1.2 * ideal.summary["noise_std"]


def test_a_ledger_certifies_what_the_plan_did(tmp_path):
    plan = planned(**FEW_BITS, dropouts=0.2, colluding=1)
    run = so.simulate(plan, TASK, folder=tmp_path / "run")
    again = certify_ledger(read_ledger(tmp_path / "run" / "ledger.jsonl"), 1e-5)
    for observer in (Observer.SERVER, Observer.MODEL_USER):
        assert again.total(observer).epsilon == pytest.approx(run.certificate.total(observer).epsilon)
        assert again.total(observer).assumptions == run.certificate.total(observer).assumptions


# --- What is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"cohort": "poisson:0.5"}, "cohort"),
        ({"relation": "add-remove"}, "relation"),
        ({"mechanism": "laplace"}, "mechanism"),
        ({"mechanism": "none", "noise_multiplier": None}, "mechanism"),
        ({"dropouts": 1.0}, "dropouts"),
        ({"colluding": 1000}, "colluding"),
        ({"dropouts": 0.5, "colluding": 500}, "colluding"),
        ({"bits": 8}, "bits"),
        ({"bits": 40}, "bits"),
        ({"bits": 16, "sampler": "float32"}, "bits"),
        ({"calibration": "norm-ec", "epsilon": 8.0}, "calibration|trust"),
        ({"trust": "central", "bits": 16}, "bits"),
        ({"trust": "local", "dropouts": 0.1}, "dropouts"),
        ({"trust": "central", "colluding": 1}, "colluding"),
    ],
)
def test_what_is_not_proven_is_refused(options, field):
    with pytest.raises(InvalidInput, match=field):
        resolved(**options)


@pytest.mark.parametrize(
    "method",
    [
        so.fedexp(local_steps=2, local_lr=0.1, bound=so.clip(1.0)),
        so.scaffold(local_steps=2, local_lr=0.1, bound=so.clip(1.0)),
        so.fedavg(local_steps=2, local_lr=0.1, bound=so.adaptive_clip(1.0, indicator_noise_std=50.0)),
        so.error_feedback(beta=0.1, server_lr=0.1, bound=so.clip(1.0)),
    ],
    ids=["fedexp", "scaffold", "adaptive clip", "error feedback"],
)
def test_methods_that_need_more_than_one_sum_are_refused(method):
    with pytest.raises(InvalidInput, match="algorithm"):
        resolved(method)


@pytest.mark.parametrize("bound", [so.clip(1.0), so.normalize(1.0)])
def test_the_family_of_fedavg_is_planned(bound):
    method = so.fedavg(local_steps=2, local_lr=0.1, bound=bound, server_optimiser="adam", server_lr=0.01, proximal=0.1)
    assert resolved(method).certificate.total(Observer.SERVER).private


def test_a_transcript_and_a_deployment_are_refused():
    with pytest.raises(InvalidInput, match="transcript"):
        so.simulate(planned(), TASK, transcript=True)
    with pytest.raises(InvalidInput, match="trust"):
        deploy(resolved())
    assert AcceptSection(methods=["fedavg"]).trust == ["local"]


# --- A round ---------------------------------------------------------------------------------------------------------


def opened(plan, count):
    """The parameters before and after a server's turn with the modular sum of so many messages."""
    mechanism, method = plan.mechanism, plan.method
    state = method.init_server(jnp.zeros(TASK.d))
    vectors = jnp.full((max(count, 1), TASK.d), 0.01)
    keys = jax.random.split(jax.random.key(1), max(count, 1))
    messages = jax.vmap(lambda key, vector: mechanism.message(key, vector).vector)(keys, vectors)
    total = Aggregate(jnp.sum(messages[:count], axis=0), cohort=jnp.int32(count))
    server_keys = ServerKeys(*jax.random.split(jax.random.key(2), 3))
    after, _ = server_turn(plan.rules, server_keys, state, total)
    return np.asarray(method.params(state)), np.asarray(method.params(after))


MORE_SUMS = ((10, True), (1, False), (0, False))


@pytest.mark.parametrize(
    ("count", "moves"), [(8, True), (7, False), *(pytest.param(*case, marks=pytest.mark.slow) for case in MORE_SUMS)]
)
def test_a_sum_of_fewer_messages_than_are_certified_is_not_opened(count, moves):
    plan = planned(**FEW_BITS, dropouts=0.2).resolve(TASK.population)
    before, after = opened(plan, count)
    assert np.any(before != after) == moves


def test_without_noise_to_speak_of_the_model_is_that_of_plain_fedavg():
    w = TASK.initial(jax.random.key(0))
    rules = planned(noise_multiplier=1e-3, bits=30).resolve(TASK.population).rules
    plain = so.plan(METHOD, rounds=3).resolve(TASK.population).rules
    private, exact = (rounds_of(each, TASK.records, TASK.loss, w, 3)[0].server.w for each in (rules, plain))
    np.testing.assert_allclose(np.asarray(private), np.asarray(exact), atol=5e-3)


@pytest.mark.parametrize(
    "cohort", ["full", *(pytest.param(cohort, marks=pytest.mark.slow) for cohort in ("unreliable:5-8", "fixed:6"))]
)
def test_chunks_padding_and_the_debug_engine_give_the_same_model(cohort):
    """Integers are summed in any order, and places that pad a chunk add no noise: not even the last bits differ."""
    plan = planned(**FEW_BITS, cohort=cohort, relation="replace-one").resolve(TASK.population)
    w = TASK.initial(jax.random.key(0))
    run = {"cohort": plan.plan.cohort}
    whole = rounds_of(plan.rules, TASK.records, TASK.loss, w, 2, **run)[0].server.w
    cut = rounds_of(plan.rules, TASK.records, TASK.loss, w, 2, chunk=3, **run)[0].server.w
    slow = debugged_rounds_of(plan.rules, TASK.records, TASK.loss, w, 2, **run).server.w
    np.testing.assert_allclose(np.asarray(cut), np.asarray(whole), atol=1e-2)  # a rounding may differ by one step
    np.testing.assert_allclose(np.asarray(slow), np.asarray(whole), atol=1e-2)


class Killed(BaseException):
    """Not an Exception: nobody catches it."""


def test_a_run_that_stops_goes_on_as_if_it_had_not(tmp_path, monkeypatch):
    plan = planned(**FEW_BITS, rounds=4, dropouts=0.2)
    whole = so.simulate(plan, TASK, seed=3, evaluate_every=1)
    usual = Program.advance

    def stops(program, state, start, stop):
        if start >= 2:
            raise Killed
        return usual(program, state, start, stop)

    monkeypatch.setattr(Program, "advance", stops)
    with pytest.raises(Killed):
        so.simulate(plan, TASK, seed=3, folder=tmp_path / "run", evaluate_every=1)
    monkeypatch.undo()
    again = so.simulate(plan, TASK, seed=3, folder=tmp_path / "run", evaluate_every=1, resume=True)
    for before, after in zip(*(jax.tree.leaves(run.model.params) for run in (whole, again)), strict=True):
        np.testing.assert_array_equal(np.asarray(before), np.asarray(after))
    assert json.loads((tmp_path / "run" / "certificate.json").read_text())["draws"] == "simulated messages"
