"""One round computed in different ways: chunks, devices, segments, the debug engine, a transcript; and client state."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import sordino as so
from sordino.errors import SordinoError
from sordino.mechanisms import none
from sordino.planning import parse_cohort
from sordino.planning.cohort import FixedCohort, FullCohort, PoissonCohort, UnreliableCohort
from sordino.pytrees import pytree
from sordino.rounds import RoundState, engine
from sordino.runs import setup
from sordino.tasks import Records
from sordino.types import BoundInfo, Mechanism, Message, Method, Trust
from tests.toys import debugged_rounds_of, on_four_devices, rounds_of, rules_for, toy

CLIENTS, ROUNDS, SEED = 10, 2, 7
KEY = jax.random.key(SEED)

TASK = toy()
METHOD = so.fedavg(local_steps=3, local_lr=0.5, bound=so.clip(0.5), batch_size=2, momentum=0.5)
ADAPTIVE = so.adaptive_clip(0.5, indicator_noise_std=0.5)
NOISE = so.gaussian(0.3)


def arguments(method: Any, mechanism: Any, records: Records | None, options: dict[str, Any]) -> tuple[Any, ...]:
    """(rules, records, loss, w_0, rounds) of a run, and what else its program has fixed."""
    records = records or TASK.records
    cohort, trust = options.setdefault("cohort", FullCohort()), options.pop("trust", Trust.CENTRAL)
    rules = rules_for(method, len(records.size), trust, mechanism, cohort)
    return rules, records, options.pop("loss", TASK.loss), TASK.initial(KEY), ROUNDS


def trained(method: Any = METHOD, mechanism: Any = NOISE, records: Records | None = None, **options: Any) -> Any:
    """(w, info) after two rounds of the fast engine."""
    state, info = rounds_of(*arguments(method, mechanism, records, options), seed=SEED, **options)
    return np.asarray(method.params(state.server)), info


def debugged(method: Any = METHOD, mechanism: Any = NOISE, records: Records | None = None, **options: Any) -> Any:
    """w after two rounds of the debug engine."""
    state = debugged_rounds_of(*arguments(method, mechanism, records, options), seed=SEED, **options)
    return np.asarray(method.params(state.server))


# --- Chunks, devices, segments -----------------------------------------------------------------------------------


def test_chunks():
    cohort = PoissonCohort(0.4)
    whole, info = trained(cohort=cohort)
    assert np.abs(whole).max() > 0.1
    w, other = trained(cohort=cohort, chunk=7)  # one client at a time: see test_client_state
    np.testing.assert_allclose(w, whole, atol=1e-5)
    for name in ("participants", "dropped", "clipped_share"):
        np.testing.assert_allclose(getattr(other, name), getattr(info, name), atol=1e-6)


def on_devices(devices: int) -> dict[str, list[float]]:
    """Parameters after two rounds, the cohort dealt to `devices` devices: with and without client state."""
    result = {}
    w, info = trained(cohort=PoissonCohort(0.4), chunk=2, devices=devices)
    result["poisson"] = [*w.tolist(), *np.asarray(info.participants).tolist()]
    counted = counted_rounds(PoissonCohort(0.3), chunk=2, devices=devices)
    result["state"] = np.asarray(counted.clients.times).tolist()
    w, info = trained(trust=Trust.LOCAL, transcript=True, chunk=2, devices=devices)
    result["transcript"] = [*w.tolist(), *np.ravel(info.transcript[2]).tolist()]
    return result


@pytest.mark.slow
def test_four_devices_are_one():
    four, through_simulate = on_four_devices(
        "tests.parity.test_engine", "[module.on_devices(4), module.simulated_on_all()]"
    )
    for name, values in on_devices(1).items():
        np.testing.assert_allclose(four[name], values, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(through_simulate, simulated(), atol=1e-5)


def simulated_on_all() -> list[float]:
    """Parameters of `so.simulate`, on all devices however small the work."""
    setup.SMALL = 0.0
    return simulated()


def simulated(**options: Any) -> list[float]:
    """Parameters of `so.simulate`."""
    plan = so.plan(METHOD, rounds=7, cohort="unreliable:3-7", noise_multiplier=1.0)
    run = so.simulate(plan, TASK, seed=3, **options)
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(run.params)]).tolist()


def test_chunks_leave_work_for_every_device(monkeypatch):
    plan = so.plan(METHOD, rounds=1)
    assert setup.choose_chunk(TASK, plan) == 10
    monkeypatch.setattr(jax, "local_device_count", lambda: 4)
    monkeypatch.setattr(setup, "SMALL", 0.0)
    assert setup.choose_chunk(TASK, plan) == 3


def test_no_more_devices_than_clients_or_than_memories_allow(monkeypatch):
    plain, remembering = so.plan(METHOD, rounds=1), so.plan(so.scaffold(local_steps=1, local_lr=0.1), rounds=1)
    monkeypatch.setattr(jax, "local_device_count", lambda: 64)
    assert setup.devices_for(TASK, plain) == 1  # the work is small
    monkeypatch.setattr(setup, "SMALL", 0.0)
    assert setup.devices_for(TASK, plain) == setup.devices_for(TASK, remembering) == CLIENTS
    monkeypatch.setattr(setup, "MEMORIES", 4.0 * CLIENTS * TASK.d - 1)
    assert setup.devices_for(TASK, plain) == CLIENTS
    assert setup.devices_for(TASK, remembering) == 1


def test_chunks_are_of_nearly_equal_size(monkeypatch):
    """Room for seven of ten clients makes two chunks of five, not of seven with four places for nobody."""
    chosen = set()
    for room in range(0, 40_000, 100):
        monkeypatch.setattr(setup, "CACHE", float(room))
        chosen.add(setup.choose_chunk(TASK, so.plan(METHOD, rounds=1)))
    assert chosen == {1, 2, 3, 4, 5, 10}


def test_segments_do_not_matter():
    """Seven rounds one by one, or three at once and the last four."""
    whole = simulated(evaluate_every=1)
    np.testing.assert_allclose(simulated(evaluate_every=3), whole, atol=1e-6)


@pytest.mark.parametrize("every", [1, 3, 4, 7, 100])
@pytest.mark.parametrize("first", [0, 1, 5, 19, 20])
def test_segments_cover_every_round_once(first, every):
    """Also when a run goes on from a checkpoint that another `evaluate_every` left."""
    parts = setup.segments(first, 20, every)
    assert [k for begin, end in parts for k in range(begin, end)] == list(range(first, 20))
    assert {end for _, end in parts} >= {k for k in range(16, 21) if k > first}


def test_one_program_for_all_numbers():
    """Step sizes, momenta, bound and noise are traced: other values do not compile, or trace the loss, again."""
    traces = []

    def loss(w, batch):
        traces.append(1)
        return TASK.loss(w, batch)

    def train(lr, C, noise, beta):
        method = so.fedavg(
            local_steps=2,
            local_lr={"start": lr, "decay": 0.9},
            bound=so.clip(C),
            server_lr=beta,
            momentum=lr / 2,
            weight_decay=lr / 10,
            server_momentum=C / 10,
        )
        return trained(method, so.gaussian(noise), loss=loss)[0]

    first = train(0.1, 0.5, 0.1, 1.0)
    seen = len(traces)
    assert seen > 0
    second = train(0.2, 0.7, 0.3, 2.0)
    assert len(traces) == seen
    assert np.abs(first - second).max() > 1e-3
    trained(METHOD, so.gaussian(0.1), loss=loss)  # another structure does
    assert len(traces) > seen


# --- The debug engine --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "options"),
    [
        (so.clip(0.5), {}),
        pytest.param(so.normalize(0.5), {"cohort": PoissonCohort(0.4)}, marks=pytest.mark.slow),
        pytest.param(ADAPTIVE, {"cohort": FixedCohort(4)}, marks=pytest.mark.slow),
        pytest.param(so.clip(0.5), {"trust": Trust.LOCAL}, marks=pytest.mark.slow),
        pytest.param(so.clip(0.5), {"trust": Trust.LOCAL, "cohort": UnreliableCohort(2, 5)}, marks=pytest.mark.slow),
        pytest.param(None, {"trust": Trust.NONE}, marks=pytest.mark.slow),
    ],
    ids=["central", "poisson", "adaptive", "local", "unreliable", "none"],
)
def test_debug_engine_equals_the_fast_one(bound, options):
    method = dataclasses.replace(METHOD, bound=bound)
    mechanism = none() if bound is None else NOISE
    fast, _ = trained(method, mechanism, chunk=3, **options)
    np.testing.assert_allclose(debugged(method, mechanism, **options), fast, atol=1e-5)


def test_debug_engine_with_nobody_there():
    """An empty round is a round: noise alone."""
    cohort = PoissonCohort(0.001)
    fast, info = trained(cohort=cohort)
    assert np.asarray(info.participants).sum() == 0
    np.testing.assert_allclose(debugged(cohort=cohort), fast, rtol=1e-5)


def poisoned(client: int) -> Records:
    x = np.array(TASK.data.x)
    x[TASK.data.start[client]] = np.nan
    return TASK.records._replace(x=jnp.asarray(x))


def test_debug_engine_names_the_client_with_nan():
    with pytest.raises(SordinoError, match=r"round 0, client 4, stage client: .*not finite.*data"):
        debugged(so.fedavg(local_steps=1, local_lr=0.1), none(), poisoned(4), trust=Trust.NONE)


def test_debug_engine_names_who_raised():
    """In round 0 client 3 is the first whose loss raises; the user's own words are kept."""

    def loss(w, batch):
        if float(jnp.sum(batch.weight)) == 2:  # the clients 3 and 8
            raise RuntimeError("my own words")
        return TASK.loss(w, batch)

    method = so.fedavg(local_steps=1, local_lr=0.1)
    with pytest.raises(SordinoError, match="round 0, client 3, stage client: RuntimeError: my own words"):
        debugged(method, none(), trust=Trust.NONE, loss=loss)


def test_debug_engine_names_the_round_and_the_server():
    class Broken(Mechanism):
        def randomize(self, key, vector):
            raise ZeroDivisionError("no noise")

    with pytest.raises(SordinoError, match="round 0, stage server: ZeroDivisionError: no noise"):
        debugged(METHOD, Broken())


@pytest.mark.parametrize("bound", [None, so.clip(0.5), so.normalize(0.5)], ids=["none", "clip", "normalize"])
def test_a_client_that_is_not_finite_is_dropped_and_counted(bound):
    """It sends zero: the same as clients without it, over the same planned cohort."""
    method = so.fedavg(local_steps=1, local_lr=0.1, bound=bound)
    got, info = trained(method, none(), poisoned(4), trust=Trust.NONE, chunk=3)
    assert np.asarray(info.dropped).tolist() == [1] * ROUNDS
    assert np.asarray(info.participants).tolist() == [CLIENTS] * ROUNDS
    assert np.isfinite(info.mean_norm).all()
    keep = np.arange(CLIENTS) != 4
    without = TASK.records._replace(start=TASK.records.start[keep], size=TASK.records.size[keep])
    # beta = 9/10 eta turns the mean over nine into the sum over nine divided by ten
    nine = dataclasses.replace(method, server_step=so.fedavg(local_steps=1, local_lr=0.09).server_step)
    expected, info = trained(nine, none(), without, trust=Trust.NONE)
    assert np.asarray(info.dropped).sum() == 0
    np.testing.assert_allclose(got, expected, atol=1e-5)
    assert np.abs(got).max() > 0.01


# --- Client state ------------------------------------------------------------------------------------------------


class Counts(NamedTuple):
    times: jax.Array
    last: jax.Array  # the round of the last participation


class Seen(NamedTuple):
    k: jax.Array
    sums: jax.Array  # [rounds, d], what the server got
    squares: jax.Array  # [rounds]


@pytree
@dataclasses.dataclass(frozen=True)
class Counting(Method):
    """Clients count their participations and send (count, number of records, 1); the server writes down what it got."""

    rounds: int = dataclasses.field(metadata={"static": True})
    bound = None  # not a field: what it sends is not bounded

    def init_server(self, w):
        return Seen(jnp.int32(0), jnp.zeros((self.rounds, 3)), jnp.zeros(self.rounds))

    def init_client(self, w):
        return Counts(jnp.int32(0), jnp.int32(-1))

    def broadcast(self, state):
        return state.k

    def client(self, key, k, state, data):
        state = Counts(state.times + 1, k)
        g = jnp.stack([state.times.astype(jnp.float32), data.size.astype(jnp.float32), jnp.float32(1)])
        false = jnp.bool_(False)
        return Message(g), state, BoundInfo(jnp.linalg.norm(g), false, false)

    def server(self, key, state, total):
        squares = jnp.float32(0) if total.sum_of_squared_norms is None else total.sum_of_squared_norms
        sums = state.sums.at[state.k].set(total.sum)
        return Seen(state.k + 1, sums, state.squares.at[state.k].set(squares)), None

    def params(self, state):
        return state.sums[-1]


def counted_rounds(
    cohort: Any, *, rounds: int = 12, mechanism: Any = None, trust: Trust = Trust.NONE, debug: bool = False, **spec: Any
) -> RoundState:
    rules = rules_for(Counting(rounds), CLIENTS, trust, mechanism, cohort)
    arguments = (rules, TASK.records, TASK.loss, jnp.zeros(3), rounds)
    spec = {"chunk": 3, "cohort": cohort, "seed": SEED} | spec
    return debugged_rounds_of(*arguments, **spec) if debug else rounds_of(*arguments, **spec)[0]


@pytest.mark.parametrize(
    ("cohort", "chunk"),
    [("full", 3), *(("poisson:0.3", chunk) for chunk in (1, 3, 10)), ("fixed:2", 3), ("unreliable:1-4", 3)],
)
def test_client_state(cohort, chunk):
    """Those who come write, those who do not keep; a padded place (chunk 3) writes nobody's state, least client 0's."""
    rounds, cohort = 12, parse_cohort(cohort)
    times, last, sums = np.zeros(CLIENTS, int), np.full(CLIENTS, -1), np.zeros((rounds, 3))
    for k in range(rounds):
        client_ids, here = cohort.draw(engine.round_key(KEY, jnp.int32(k), engine.COHORT), CLIENTS)
        present = np.asarray(client_ids)[np.asarray(here)]
        times[present] += 1
        last[present] = k
        sums[k] = times[present].sum(), TASK.data.size[present].sum(), len(present)
    state = counted_rounds(cohort, rounds=rounds, chunk=chunk)
    np.testing.assert_array_equal(state.clients.times, times)
    np.testing.assert_array_equal(state.clients.last, last)
    np.testing.assert_allclose(state.server.sums, sums)
    if str(cohort) != "full":
        assert len(set(times)) > 1
    if (str(cohort), chunk) == ("poisson:0.3", 3):
        slow = counted_rounds(cohort, rounds=rounds, debug=True)
        np.testing.assert_array_equal(slow.clients.times, times)
        np.testing.assert_allclose(slow.server.sums, sums)


# --- Local noise -------------------------------------------------------------------------------------------------


def test_a_transcript_has_the_law_of_the_sum():
    """3,000 rounds of local noise, message by message and as one draw of the sum's law.

    Two-sample Kolmogorov-Smirnov tests of each coordinate of the sum: three checks with a false alarm of 1e-6 each. The
    same tests see noise that is two fifths too large. The noise std of a coordinate of the mean is s / sqrt(n) to
    6.5 %, five of its deviations, in both.
    """
    rounds, s = 3000, 0.8
    seen = {}
    for transcript in (True, False):
        options = {"mechanism": so.gaussian(s), "trust": Trust.LOCAL, "transcript": transcript, "rounds": rounds}
        server = counted_rounds(FullCohort(), **options).server
        sums = np.asarray(server.sums, np.float64)
        sums[:, 0] -= CLIENTS * (1 + np.arange(rounds))  # the counts grow
        seen[transcript] = sums - sums.mean(axis=0)
        std = sums.std(axis=0) / CLIENTS
        np.testing.assert_allclose(std, s / np.sqrt(CLIENTS), rtol=5 / np.sqrt(2 * rounds))
    for column in range(3):
        one, many = seen[False][:, column], seen[True][:, column]
        assert stats.ks_2samp(one, many).pvalue > 1e-6
        assert stats.ks_2samp(one, 1.4 * many).pvalue < 1e-6


def test_the_squares_of_a_transcript_have_the_law_of_the_aggregate():
    """The joint statistic that step sizes are made of: one round under 3,000 keys; KS, false alarm 1e-6."""
    g = np.random.default_rng(1).normal(size=(CLIENTS, 3)).astype(np.float32)
    mechanism = so.gaussian(0.8)

    def separate(key):
        noisy = jax.vmap(mechanism.randomize)(jax.random.split(key, CLIENTS), g)
        return jnp.sum(noisy**2)

    def together(key):
        return mechanism.aggregate(key, g.sum(axis=0), jnp.sum(g**2), CLIENTS).sum_of_squared_norms

    keys = jax.random.split(jax.random.key(11), 6000)
    one, many = jax.jit(jax.vmap(together))(keys[:3000]), jax.jit(jax.vmap(separate))(keys[3000:])
    assert stats.ks_2samp(one, many).pvalue > 1e-6
    assert stats.ks_2samp(one, 1.1 * many).pvalue < 1e-6


def test_a_transcript_is_what_the_server_summed():
    method, cohort = so.fedavg(local_steps=1, local_lr=0.5, bound=so.clip(0.5)), PoissonCohort(0.4)
    w, info = trained(method, so.gaussian(0.5), trust=Trust.LOCAL, transcript=True, cohort=cohort, chunk=3)
    client_ids, here, sent = (np.asarray(part) for part in info.transcript)
    assert client_ids.shape == here.shape == sent.shape[:2] == (ROUNDS, cohort.capacity(CLIENTS))
    total = (sent * here[:, :, None]).sum(axis=(0, 1))
    w0 = np.asarray(TASK.initial(KEY))
    np.testing.assert_allclose(w, w0 - 0.5 * total / 4, atol=1e-5)
    # A client's noise in a round is its own, and another's is another.
    messages = sent[here]
    assert len(np.unique(messages[:, 0])) == len(messages)


def test_simulate_keeps_a_transcript():
    plan = so.plan(METHOD, rounds=3, noise_multiplier=1.0, trust="local")
    run = so.simulate(plan, TASK, seed=0, transcript=True, evaluate_every=1)
    assert len(run.transcript) == 3
    client_ids, here, sent = run.transcript[0]
    assert sent.shape == (1, CLIENTS, TASK.d)
    assert here.all()
    assert (client_ids == np.arange(CLIENTS)).all()
