"""The two turns of a round: what leaves a client, where noise falls, and who asks what it costs.

Every method of METHODS and every mechanism of MECHANISMS is enrolled by being there.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from dataclasses import replace
from typing import Any, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.algorithms import METHODS
from sordino.algorithms.local import ClientData
from sordino.algorithms.records import RecordMethod
from sordino.mechanisms import MECHANISMS, discrete_gaussian, none
from sordino.mechanisms.gaussian import OwnGaussian
from sordino.planning import ResolvedPlan, Rules, parse_cohort
from sordino.planning.resolved import placed
from sordino.privacy.events import Repeated
from sordino.rounds import ClientKeys, RoundState, ServerKeys, client_turn, engine, server_turn, tally
from sordino.rounds.turns import ClientInfo
from sordino.tasks import Population
from sordino.types import Aggregate, BoundInfo, Message, Placement, Privacy, PyTree, Trust, Unit
from tests.toys import rounds_of, states_of, toy

TASK = toy(sizes=(3, 1, 5, 2, 4, 3))
CLIENTS, ROUND, SEED = 6, 0, 3
KEY = jax.random.key(SEED)
START = TASK.initial(KEY)
CLIENT = 4  # holds 4 records where the largest client holds 5

# --- Every method under every placement that it can have ----------------------------------------------------------

TRUST = {
    Placement.IN_CLIENT: "local",
    Placement.LAW_OF_SUM: "local",
    Placement.ON_SUM: "central",
    Placement.IN_SHARES: "secure-aggregation",
}


def make(name: str, **options: Any) -> Any:
    """The method, with one local step, batches of two records, and a value for every argument that needs one."""
    known = {"local_steps": 1, "local_lr": 0.5, "beta": 0.1, "server_lr": 0.5, "lipschitz": 10.0, "radius": 5.0}
    known |= {"batch_size": 2, "smoothness": 1.0, "mu": 0.1}
    parameters = inspect.signature(METHODS[name]).parameters
    usual = {key: known[key] for key, p in parameters.items() if p.default is p.empty}
    usual |= {key: known[key] for key in ("batch_size", "smoothness") if key in parameters}
    bounds_messages = not protects_records(name) or name == "record_scaffold"
    return METHODS[name](**(usual | {"bound": so.clip(0.5) if bounds_messages else None} | options))


def protects_records(name: str) -> bool:
    return issubclass(get_type_hints(METHODS[name])["return"], RecordMethod)


def placements(name: str) -> list[Placement]:
    """Where a method's noise may fall; one that protects records has it in its clients, or inside its own steps."""
    if not protects_records(name):  # a server that sees sums only runs methods without memories or second sums
        sums_suffice = name in ("fedavg", "dp_sgd")
        return [placement for placement in Placement if sums_suffice or placement is not Placement.IN_SHARES]
    return [Placement.NONE] if make(name).privacy.noise_inside else [Placement.NONE, Placement.IN_CLIENT]


def rules_of(method: Any, placement: Placement, **noise: Any) -> Rules:
    """The rules that a plan makes, with the noise in the client where the plan simulates the law of the sum."""
    noise = noise or {"noise_multiplier": 1.0}
    private = {} if placement is Placement.NONE else {"trust": TRUST[placement], "delta": 1e-4, **noise}
    rules = so.plan(method, rounds=2, **private).resolve(TASK.population).rules
    rules = rules.with_noise_in_client() if placement is Placement.IN_CLIENT else rules
    assert rules.placement is placement
    return rules


def own_numbers(rules: Rules, client: int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[client], rules.numbers)


def everybodys(rules: Rules, client: int) -> ClientData:
    """The client's records as the engine sees them: a slice of everybody's arrays."""
    r = TASK.records
    arguments = (TASK.loss, r.x, r.y, r.start[client], r.size[client], TASK.largest)
    return ClientData(*arguments, own_numbers(rules, client))


def keys_of(client: int) -> ClientKeys:
    """The keys of a client's turn, as the engine derives them."""
    purposes = (engine.CLIENT, engine.LOCAL_NOISE)
    k = jnp.int32(ROUND)
    return ClientKeys(*(jax.random.fold_in(engine.round_key(KEY, k, purpose), client) for purpose in purposes))


def turn(rules: Rules, data: ClientData, keys: ClientKeys | None = None) -> tuple[Message, PyTree, ClientInfo]:
    method = rules.method
    received, state = method.broadcast(method.init_server(START)), method.init_client(START)
    return client_turn(rules, keys or keys_of(CLIENT), received, state, data)


CASES = [(name, placement) for name in METHODS for placement in placements(name)]
ON_NODES = [case for case in CASES if case[1] in (Placement.NONE, Placement.IN_CLIENT)]


@pytest.mark.parametrize(("name", "placement"), CASES)
def test_only_a_message_leaves_and_it_is_noisy_where_the_plan_places_the_noise(name, placement):
    rules = rules_of(make(name), placement)
    data, keys, method = everybodys(rules, CLIENT), keys_of(CLIENT), rules.method
    message, state, info = turn(rules, data)
    received, before = method.broadcast(method.init_server(START)), method.init_client(START)
    bounded, after, bounding = method.client(keys.training, received, before, data)
    assert type(message) is Message
    assert np.abs(bounded.vector).max() > 0
    if placement in (Placement.IN_CLIENT, Placement.IN_SHARES):
        noisy = rules.mechanism.for_client(data.numbers).message(keys.noise, bounded.vector)
        np.testing.assert_array_equal(message.vector, noisy.vector)
        assert np.abs(rules.mechanism.read(message.vector) - bounded.vector).max() > 1e-3
    else:
        np.testing.assert_array_equal(message.vector, bounded.vector)
    jax.tree.map(np.testing.assert_array_equal, (message.side, state), (bounded.side, after))
    # Diagnostics are a tree of their own, of which no part is sent.
    assert type(info) is ClientInfo
    assert type(info.bounding) is BoundInfo
    jax.tree.map(np.testing.assert_array_equal, info.bounding, bounding)
    assert not {id(leaf) for leaf in jax.tree.leaves(info)} & {id(leaf) for leaf in jax.tree.leaves(message)}
    assert (info.bounded is not None) == (placement in (Placement.IN_CLIENT, Placement.IN_SHARES))
    assert not info.exceeds_limit


@pytest.mark.parametrize("name", [name for name, placement in CASES if placement is Placement.IN_CLIENT])
def test_the_noise_of_a_turn_comes_from_its_own_key_alone(name):
    """A node may pass another source of noise: nothing but the message, and what remembers it, changes."""
    rules = rules_of(make(name), Placement.IN_CLIENT)
    data, keys = everybodys(rules, CLIENT), keys_of(CLIENT)
    (one, state, info), (other, other_state, other_info) = (
        turn(rules, data, keys._replace(noise=jax.random.key(seed))) for seed in (1, 2)
    )
    assert np.any(one.vector != other.vector)
    jax.tree.map(np.testing.assert_array_equal, (state, info), (other_state, other_info))


@pytest.mark.parametrize(("name", "placement"), ON_NODES)
def test_a_node_that_holds_its_own_arrays_alone_sends_the_same_message(name, placement):
    rules = rules_of(make(name), placement)
    start, size = int(TASK.data.start[CLIENT]), int(TASK.data.size[CLIENT])
    x, y = TASK.records.x[start : start + size], TASK.records.y[start : start + size]
    alone = ClientData.own(TASK.loss, x, y, own_numbers(rules, CLIENT))
    assert (size, alone.largest) != (TASK.largest, TASK.largest)
    here, there = (turn(rules, data)[:2] for data in (alone, everybodys(rules, CLIENT)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), here, there)


def test_a_client_that_remembers_noise_keeps_the_message_as_it_was_sent():
    rules = rules_of(make("error_feedback", remember_noise=True), Placement.IN_CLIENT)
    message, state, info = turn(rules, everybodys(rules, CLIENT))
    np.testing.assert_allclose(state, 0.1 * message.vector, rtol=1e-6)
    forgetful = rules_of(make("error_feedback"), Placement.IN_CLIENT)
    np.testing.assert_allclose(turn(forgetful, everybodys(rules, CLIENT))[1], 0.1 * info.bounded, rtol=1e-6)


def test_a_message_beyond_the_limit_of_its_noise_is_reported():
    """The certificate rests on the bound: a method that sends more must be seen, where there is noise to be wrong."""
    method, longer = (make("fedavg", bound=so.clip(C)) for C in (0.01, 0.5))

    class Careless(type(method)):
        def client(self, *arguments):
            return longer.client(*arguments)

    fields = dataclasses.fields(method)
    static = [each.name for each in fields if each.metadata.get("static")]
    jax.tree_util.register_dataclass(Careless, [each.name for each in fields if each.name not in static], static)
    for placement in (Placement.IN_CLIENT, Placement.ON_SUM, Placement.NONE):
        rules = rules_of(method, placement)
        careless = replace(rules, method=Careless(**vars(rules.method)))
        found = [bool(turn(each, everybodys(rules, CLIENT))[2].exceeds_limit) for each in (rules, careless)]
        assert found == [False, placement is not Placement.NONE]


# --- The engine's round, by hand ----------------------------------------------------------------------------------

QTDL = {"mechanism": "qtdl", "message_epsilon": 4.0, "message_delta": 1e-5, "levels": 16, "delta": 1e-4}
ROUNDS_BY_HAND = {
    **{f"fedavg, {placement}": ("fedavg", placement, {}, {}) for placement in Placement},
    "a step size from side releases": ("fedexp", Placement.ON_SUM, {}, {}),
    "remembered noise": ("error_feedback", Placement.IN_CLIENT, {"remember_noise": True}, {}),
    "noise of each client's own": ("noisy_mb_sgd", Placement.IN_CLIENT, {}, {}),
    "symbols from the clients": ("fedavg", Placement.IN_CLIENT, {}, QTDL),
}


def by_hand(rules: Rules) -> RoundState:
    """One round of all clients, from nothing but `client_turn`, `tally` and `server_turn`."""
    method, state = rules.method, states_of(rules.method, START, CLIENTS)
    total, states = None, []
    for client in range(CLIENTS):
        before = jax.tree.map(lambda leaf, client=client: leaf[client], state.clients)
        data = everybodys(rules, client)
        message, after, _ = client_turn(rules, keys_of(client), method.broadcast(state.server), before, data)
        term = tally(rules, message, data.numbers)
        total = term if total is None else jax.tree.map(jnp.add, total, term)
        states.append(after)
    purposes = (engine.NOISE, engine.SIDE_NOISE, engine.SERVER)
    keys = ServerKeys(*(engine.round_key(KEY, jnp.int32(ROUND), purpose) for purpose in purposes))
    if rules.placement is Placement.LAW_OF_SUM:  # simulations alone draw the noise of all messages at once
        total = at_once(rules, keys.noise, total)
    server, _ = server_turn(rules, keys, state.server, total)
    return RoundState(server, jax.tree.map(lambda *leaves: jnp.stack(leaves), *states))


def at_once(rules: Rules, key: jax.Array, total: Aggregate) -> Aggregate:
    noisy = rules.mechanism.aggregate(key, total.sum, total.sum_of_squared_norms, CLIENTS)
    return noisy._replace(side=total.side, cohort=total.cohort)


@pytest.mark.parametrize("name", ROUNDS_BY_HAND)
def test_the_engine_s_round_is_the_turns_of_its_clients_and_of_its_server(name):
    method, placement, options, noise = ROUNDS_BY_HAND[name]
    rules = rules_of(make(method, **options), placement, **noise)
    engines, _ = rounds_of(rules, TASK.records, TASK.loss, START, 1, seed=SEED, chunk=4)
    hands = by_hand(rules)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), engines, hands)
    assert np.abs(rules.method.broadcast(hands.server)[0] - START).max() > 1e-3  # the model that is trained


@pytest.mark.parametrize(("name", "placement"), [("fedavg", "on the sum"), ("noisy_mb_sgd", "in the client")])
def test_who_answers_changes_the_divisor_only_where_records_are_protected(name, placement):
    """The planned cohort is public; the number of clients that answered shows that a client has gone."""
    rules = rules_of(make(name), Placement(placement))
    message = turn(rules, everybodys(rules, CLIENT))[0]
    term = tally(rules, message, own_numbers(rules, CLIENT))
    assert int(term.cohort) == 1
    keys, state = ServerKeys(KEY, KEY, KEY), rules.method.init_server(START)
    one, three = (server_turn(rules, keys, state, term._replace(cohort=jnp.int32(n)))[0] for n in (1, 3))
    differ = any(np.any(a != b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(three), strict=True))
    assert differ == (rules.method.privacy.unit is Unit.RECORD)


# --- Placement ----------------------------------------------------------------------------------------------------

ALL_AT_ONCE = Placement.LAW_OF_SUM  # simulated: the law of the sum is known, and so is the number of messages
ONE_BY_ONE = Placement.IN_CLIENT
MADE = {
    "gaussian": so.gaussian(1.0),
    "laplace": so.laplace(1.0),
    "qtdl": so.qtdl(d=4, levels=8, epsilon=4.0, delta=1e-5),
    "binomial": so.binomial(d=4, levels=8, coins=1000),
    "privunit": so.privunit(d=4, eps0=2.0, eps1=2.0, eps2=2.0, bound=1.0),
    "truncated_laplace": so.truncated_laplace(noise_scale=1.0, cutoff=10.0),
    "none": none(),
}
CLIENTS_ADD_IT = {  # where noise falls that clients add, by mechanism, for a full, fixed, Poisson and unreliable cohort
    "gaussian": (ALL_AT_ONCE, ALL_AT_ONCE, ONE_BY_ONE, ONE_BY_ONE),
    "laplace": (ALL_AT_ONCE, ALL_AT_ONCE, ONE_BY_ONE, ONE_BY_ONE),
    "qtdl": (ALL_AT_ONCE, ALL_AT_ONCE, ONE_BY_ONE, ONE_BY_ONE),
    "binomial": (ALL_AT_ONCE, ALL_AT_ONCE, ONE_BY_ONE, ONE_BY_ONE),
    "none": (ALL_AT_ONCE, ALL_AT_ONCE, ONE_BY_ONE, ONE_BY_ONE),
    "privunit": (ONE_BY_ONE, ONE_BY_ONE, ONE_BY_ONE, ONE_BY_ONE),
    "truncated_laplace": (ONE_BY_ONE, ONE_BY_ONE, ONE_BY_ONE, ONE_BY_ONE),
    "each client its own": (ONE_BY_ONE, ONE_BY_ONE, ONE_BY_ONE, ONE_BY_ONE),
    "discrete gaussian": (ALL_AT_ONCE, ALL_AT_ONCE, ONE_BY_ONE, ONE_BY_ONE),
}
OTHERS = {"each client its own": OwnGaussian(), "discrete gaussian": discrete_gaussian(levels=8, noise_std=5.0)}
COHORTS = [parse_cohort(text) for text in ("full", "fixed:3", "poisson:0.5", "unreliable:1-3")]


def test_every_mechanism_has_a_stated_placement():
    assert set(MADE) == set(MECHANISMS)
    assert set(MADE) | set(OTHERS) == set(CLIENTS_ADD_IT)


@pytest.mark.parametrize("name", CLIENTS_ADD_IT)
def test_placement_is_decided_by_trust_cohort_mechanism_and_privacy(name):
    mechanism = (MADE | OTHERS)[name]
    for (cohort, simulated), unit, only_sums, memory in itertools.product(
        zip(COHORTS, CLIENTS_ADD_IT[name], strict=True), Unit, (True, False), (True, False)
    ):
        privacy = Privacy(unit=unit, uses_sum_only=only_sums, remembers_noise=memory)
        found = {trust: placed(trust, mechanism, cohort, privacy) for trust in Trust}
        clients_add_it = Placement.IN_CLIENT if memory else simulated
        assert found == {
            Trust.NONE: Placement.NONE,
            Trust.CENTRAL: Placement.ON_SUM,
            Trust.LOCAL: clients_add_it,
            Trust.SHUFFLE: clients_add_it,
            Trust.SECURE_AGGREGATION: clients_add_it,
        }
        inside = replace(privacy, noise_inside=True)
        assert {placed(trust, mechanism, cohort, inside) for trust in Trust} == {Placement.NONE}


@pytest.mark.parametrize("cohort", COHORTS, ids=str)
def test_secure_sums_have_their_noise_in_shares(cohort):
    mechanism = rules_of(make("fedavg"), Placement.IN_SHARES).mechanism
    assert placed(Trust.SECURE_AGGREGATION, mechanism, cohort, Privacy()) is Placement.IN_SHARES


def test_a_transcript_and_a_node_have_their_noise_in_the_client():
    """Messages that must exist one by one are never simulated; other placements stay."""
    for placement in Placement:
        rules = replace(rules_of(make("fedavg"), Placement.NONE), placement=placement)
        expected = Placement.IN_CLIENT if placement is Placement.LAW_OF_SUM else placement
        assert rules.with_noise_in_client().placement is expected


# --- Cost ---------------------------------------------------------------------------------------------------------

NOISE = {
    "gaussian": {"noise_multiplier": 2.0},
    "laplace": {"noise_multiplier": 2.0},
    "qtdl": {"message_epsilon": 1.0, "message_delta": 1e-5, "levels": 8},
    "binomial": {"message_epsilon": 1.0, "levels": 8},
    "privunit": {"message_eps0": 0.5, "message_eps1": 0.5, "message_eps2": 0.5},
    "truncated_laplace": {"message_epsilon": 1.0, "message_delta": 1e-5},
}


def certified(plan: Any, population: Population = TASK.population) -> tuple[ResolvedPlan, float]:
    """The resolved plan, and the epsilon of all rounds against the observer for whom the noise was made."""
    resolved = plan.resolve(population)
    return resolved, resolved.certificate.total(resolved.promised).epsilon


def cost_double(monkeypatch: pytest.MonkeyPatch, mechanism: Any) -> None:
    """Let every message of this kind of mechanism cost as much as two."""
    original = type(mechanism).event
    monkeypatch.setattr(type(mechanism), "event", lambda *at, **unit: Repeated(original(*at, **unit), 2))


@pytest.mark.parametrize("trust", ["central", "local"])
@pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "none"])
def test_a_mechanism_s_event_is_the_only_source_of_cost(name, trust, monkeypatch):
    if name == "privunit" and trust == "central":
        return  # refused: each client adds this noise
    plan = so.plan(make("fedavg"), rounds=3, mechanism=name, trust=trust, delta=1e-3, **NOISE[name])
    twice = replace(plan, rounds=6)
    (before, epsilon), (_, of_twice_the_rounds) = certified(plan), certified(twice)
    assert 0 < epsilon < of_twice_the_rounds < np.inf
    cost_double(monkeypatch, before.mechanism)
    after, doubled = certified(plan)
    assert after.mechanism == before.mechanism
    assert doubled == pytest.approx(of_twice_the_rounds, rel=1e-9)
    spent = after.event_for(after.promised, 3)  # what a ledger would enter
    assert so.epsilon_of(spent, 1e-3, plan.relation) == pytest.approx(doubled, rel=1e-9)


def test_the_event_is_asked_for_records_too(monkeypatch):
    plan = so.plan(make("noisy_mb_sgd"), rounds=3, trust="local", delta=1e-3, noise_multiplier=4.0)
    epsilon, of_twice_the_rounds = certified(plan)[1], certified(replace(plan, rounds=6))[1]
    cost_double(monkeypatch, so.gaussian(1.0))
    assert epsilon < certified(plan)[1] == pytest.approx(of_twice_the_rounds, rel=1e-9)


@pytest.mark.parametrize("name", ["gaussian", "laplace"])
def test_noise_is_calibrated_to_what_the_event_says(name, monkeypatch):
    """A message that costs double needs more noise for the same epsilon, and the certificate still meets it."""
    plan = so.plan(make("fedavg"), rounds=3, mechanism=name, epsilon=2.0, delta=1e-3)
    before, epsilon = certified(plan)
    cost_double(monkeypatch, before.mechanism)
    after, again = certified(plan)
    assert jax.tree.leaves(after.mechanism)[0] > 1.2 * jax.tree.leaves(before.mechanism)[0]
    assert (epsilon, again) == (pytest.approx(2.0, rel=1e-3), pytest.approx(2.0, rel=1e-3))
    assert again <= 2.0


def test_without_noise_nothing_is_promised():
    _, epsilon = certified(so.plan(make("fedavg"), rounds=3))
    assert epsilon == np.inf
