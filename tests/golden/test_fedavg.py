"""Rounds of the FedAvg family on a toy of two clients, against the formulas written out again in NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import sordino as so
from sordino.algorithms.local import ClientData, LocalTraining
from sordino.algorithms.schedules import as_schedule, constant
from sordino.algorithms.server import Output
from sordino.data import FederatedData
from sordino.models import Batch, get, weighted_mean
from sordino.tasks import Records, Task
from tests import toys
from tests.toys import rounds_of, rules_for

# Client 0 holds two records, client 1 three.
X = [np.array([[1.0, 2.0], [-1.0, 0.5]]), np.array([[0.5, -1.0], [2.0, 1.0], [0.0, 3.0]])]
Y = [np.array([1.0, -2.0]), np.array([0.5, 3.0, -1.0])]
W0 = np.array([0.3, -0.2])
ETA, E, MOMENTUM, DECAY = 0.1, 3, 0.9, 0.1


def squared_loss(w: jax.Array, batch: Batch) -> jax.Array:
    return weighted_mean(0.5 * (batch.x @ w - batch.y) ** 2, batch.weight)


def records(x=X, y=Y) -> Records:
    size = np.array([len(part) for part in y])
    start = np.cumsum(size) - size
    flat = np.concatenate(x).astype(np.float32), np.concatenate(y).astype(np.float32)
    return Records(*(jnp.asarray(part) for part in (*flat, start, size)))


def trained(rounds: int, **options) -> np.ndarray:
    """w after some rounds of the engine, without noise."""
    method = so.fedavg(**({"local_steps": E, "local_lr": ETA} | options))
    state, _ = rounds_of(rules_for(method, 2), records(), squared_loss, W0, rounds)
    return np.asarray(method.params(state.server))


def local_by_hand(w, x, y, eta, momentum=0.0, weight_decay=0.0, steps=E):
    v = np.zeros_like(w)
    for _ in range(steps):
        v = momentum * v + x.T @ (x @ w - y) / len(y) + weight_decay * w
        w = w - eta * v
    return w


def clip(u, C):
    return u * min(1.0, C / np.linalg.norm(u))


def normalize(u, C):
    return u * C / np.linalg.norm(u)


def by_hand(rounds: int, bound=lambda u: u, eta=lambda k: ETA, beta=None, server_momentum=0.0, **local):
    """(w_0, ..., w_K): the algorithm of the paper, client after client."""
    iterates, v = [W0], np.zeros(2)
    for k in range(rounds):
        w = iterates[-1]
        messages = [bound((w - local_by_hand(w, x, y, eta(k), **local)) / eta(k)) for x, y in zip(X, Y, strict=True)]
        v = server_momentum * v + (messages[0] + messages[1]) / 2
        iterates.append(w - (beta or eta)(k) * v)
    return iterates


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize(
    ("bound", "hand"),
    [
        (None, lambda u: u),
        (so.clip(8.0), lambda u: clip(u, 8.0)),
        (so.clip(0.5), lambda u: clip(u, 0.5)),
        (so.normalize(2.0), lambda u: normalize(u, 2.0)),
    ],
    ids=["fedavg", "clip 8", "clip 0.5", "normalize"],
)
def test_rounds_with_momentum_and_weight_decay(rounds, bound, hand):
    got = trained(rounds, bound=bound, momentum=MOMENTUM, weight_decay=DECAY)
    expected = by_hand(rounds, hand, momentum=MOMENTUM, weight_decay=DECAY)[-1]
    np.testing.assert_allclose(got, expected, atol=1e-5)
    for near_miss in ({"momentum": MOMENTUM}, {"momentum": 0.8, "weight_decay": DECAY}):
        assert np.abs(got - by_hand(rounds, hand, **near_miss)[-1]).max() > 1e-4


def test_the_toy_clips_one_client_and_not_the_other():
    """Otherwise the case "clip 8" above would be one of its neighbours."""
    norms = [
        np.linalg.norm((W0 - local_by_hand(W0, x, y, ETA, MOMENTUM, DECAY)) / ETA) for x, y in zip(X, Y, strict=True)
    ]
    assert min(norms) < 8.0 < max(norms)


def test_privacy_off_is_plain_fedavg():
    """With neither bound nor noise, and beta = eta, the server's model is the mean of the clients' models."""
    w = W0
    for _ in range(3):
        w = np.mean([local_by_hand(w, x, y, ETA) for x, y in zip(X, Y, strict=True)], axis=0)
    np.testing.assert_allclose(trained(3), w, atol=1e-5)


def test_plain_fedavg_on_a_task_through_plan_and_simulate():
    """Softmax regression on two classes; `so.plan` without epsilon runs without noise."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 2)).astype(np.float32), np.array([0, 1, 1, 0, 1], np.int32)
    start, size = np.array([0, 2], np.int32), np.array([2, 3], np.int32)
    task = Task("toy", FederatedData(x, y, start, size, x, y, 2), get("logistic", (2,), 2))
    run = so.simulate(so.plan(so.fedavg(local_steps=E, local_lr=0.5), rounds=2), task, seed=0)

    def gradient(W, b, x, y):
        p = np.exp(x @ W + b)
        p = p / p.sum(axis=1, keepdims=True) - np.eye(2)[y]
        return x.T @ p / len(y), p.mean(axis=0)

    W, b = np.zeros((2, 2)), np.zeros(2)
    for _ in range(2):
        ends = []
        for rows in (slice(0, 2), slice(2, 5)):
            w, c = W, b
            for _ in range(E):
                dw, dc = gradient(w, c, x[rows], y[rows])
                w, c = w - 0.5 * dw, c - 0.5 * dc
            ends.append((w, c))
        W, b = (ends[0][0] + ends[1][0]) / 2, (ends[0][1] + ends[1][1]) / 2
    got = sorted((np.asarray(leaf) for leaf in jax.tree.leaves(run.params)), key=np.size)
    np.testing.assert_allclose(got[0], b, atol=1e-5)
    np.testing.assert_allclose(got[1], W.T, atol=1e-5)
    assert np.abs(W).max() > 0.1


def test_message_difference():
    """w_k - w_{k,E} undivided: the same method without a bound; with one, the bound is in other units."""
    np.testing.assert_allclose(trained(2, message="difference"), trained(2), atol=1e-5)
    # At 0.4 one client's difference is clipped, the other's is not, and both gradients would be.
    got = trained(2, message="difference", bound=so.clip(0.4), server_lr=0.7)
    expected = by_hand(2, lambda u: clip(ETA * u, 0.4), beta=lambda k: 0.7)[-1]
    np.testing.assert_allclose(got, expected, atol=1e-5)
    assert np.abs(got - trained(2, bound=so.clip(0.4), server_lr=0.7)).max() > 1e-3


def test_server_momentum():
    got = trained(3, server_lr=0.2, server_momentum=0.5)
    np.testing.assert_allclose(got, by_hand(3, beta=lambda k: 0.2, server_momentum=0.5)[-1], atol=1e-5)


def test_schedules():
    geometric = as_schedule({"start": 0.1, "decay": 0.5})
    piecewise = as_schedule({"values": [3.0, 2.0, 1.0], "until": [2, 5]})
    for k in (0, 1, 2, 4, 5, 6, 100):
        assert float(geometric(jnp.int32(k))) == pytest.approx(0.1 * 0.5**k, rel=1e-5)
        assert float(piecewise(jnp.int32(k))) == (3.0 if k < 2 else 2.0 if k < 5 else 1.0)
        assert float(constant(0.3)(jnp.int32(k))) == pytest.approx(0.3)


def test_schedules_in_a_run():
    """eta_k = 0.1 / 2^k; beta_k = 0.3, and 0.1 from round 2 on."""
    got = trained(4, local_lr={"start": 0.1, "decay": 0.5}, server_lr={"values": [0.3, 0.1], "until": [2]})
    expected = by_hand(4, eta=lambda k: 0.1 / 2**k, beta=lambda k: 0.3 if k < 2 else 0.1)[-1]
    np.testing.assert_allclose(got, expected, atol=1e-5)
    # beta = eta_k, of the same round, where no beta is given
    got = trained(3, local_lr={"start": 0.1, "decay": 0.5})
    np.testing.assert_allclose(got, by_hand(3, eta=lambda k: 0.1 / 2**k)[-1], atol=1e-5)


def test_optax_schedules_in_a_run():
    """Both are functions of the round, counted from 0."""
    eta, beta = optax.exponential_decay(0.1, 1, 0.5), optax.piecewise_constant_schedule(0.3, {2: 1 / 3})
    got = trained(4, local_lr=eta, server_lr=beta)
    expected = by_hand(4, eta=lambda k: 0.1 / 2**k, beta=lambda k: 0.3 if k < 2 else 0.1)[-1]
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_a_function_of_the_round_is_known_by_its_values():
    """The repr, by which a resumed run knows its plan, is that of the values; a program is found by the function."""
    one, same, other = (optax.cosine_decay_schedule(start, 50) for start in (0.1, 0.1, 0.1000001))
    late = optax.piecewise_constant_schedule(0.1, {60_000: 0.9})
    schedules = [as_schedule(each) for each in (one, one, same, other, late, lambda k: 0.1)]
    assert repr(schedules[0]) == repr(schedules[1]) == repr(schedules[2])
    assert len({repr(each) for each in schedules}) == 4
    assert jax.tree.structure(schedules[0]) == jax.tree.structure(schedules[1]) != jax.tree.structure(schedules[2])
    assert "0x" not in repr(so.fedavg(local_steps=1, local_lr=one))


@dataclass
class WarmUp:
    """A callable whose numbers can change: it has no hash."""

    top: float = 0.5

    def __call__(self, k):
        return self.top * jnp.minimum(1.0, (k + 1) / 2)


def test_an_object_may_be_a_schedule():
    got = trained(3, local_lr=WarmUp(), local_steps=1)
    np.testing.assert_allclose(got, by_hand(3, eta=lambda k: 0.5 * min(1.0, (k + 1) / 2), steps=1)[-1], atol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda k: jnp.where(k < 5, 0.1, jnp.nan), "round 5 gives nan"),
        (lambda k: 0.1 - 0.01 * k, "round 11 gives -0.0"),
        (lambda k: jnp.full(3, 0.1), r"shape \(3,\)"),
        (lambda k: 0.1 if k < 5 else 0.01, "traced"),
        (lambda k: "fast", "traced"),
        (lambda: 0.1, "traced"),
    ],
    ids=["nan", "negative", "array", "not traceable", "text", "no argument"],
)
def test_a_function_that_gives_no_step_size_is_refused(wrong, says):
    with pytest.raises(so.errors.InvalidInput, match=f"local_lr.*{says}"):
        so.fedavg(local_steps=1, local_lr=wrong)


def test_a_step_size_of_zero_is_refused_where_messages_are_divided_by_it():
    eta = optax.linear_schedule(0.1, 0.0, 10)
    task = toys.toy()
    for make in (so.fedavg, so.scaffold):
        so.plan(make(local_steps=1, local_lr=eta), rounds=10).resolve(task.population)
        with pytest.raises(so.errors.InvalidInput, match=r"local_lr.*0 in round 10"):
            so.plan(make(local_steps=1, local_lr=eta), rounds=11).resolve(task.population)
    so.plan(so.fedavg(local_steps=1, local_lr=eta, message="difference"), rounds=11).resolve(task.population)


@pytest.mark.parametrize(
    ("named", "optimiser"),
    [
        ("adam", optax.adam(0.05)),
        ({"name": "adam", "b1": 0.5, "eps": 1e-3}, optax.adam(0.05, b1=0.5, eps=1e-3)),
        ("yogi", optax.yogi(0.05)),
        ("adagrad", optax.adagrad(0.05)),
        ({"name": "sgd", "momentum": 0.5, "nesterov": True}, optax.sgd(0.05, momentum=0.5, nesterov=True)),
    ],
    ids=["adam", "adam with options", "yogi", "adagrad", "sgd"],
)
def test_a_named_optimiser_has_server_lr_as_its_learning_rate(named, optimiser):
    """The object has a learning rate of its own and gets beta_k a_k for a gradient: with beta = 1 both are the same."""
    got, of_object = (
        trained(4, server_optimiser=each, server_lr=beta) for each, beta in ((named, 0.05), (optimiser, 1.0))
    )
    np.testing.assert_allclose(got, of_object, rtol=1e-5, atol=1e-6)
    w, state = jnp.asarray(W0, jnp.float32), optimiser.init(jnp.asarray(W0, jnp.float32))
    for _ in range(4):
        mean = np.mean([(w - local_by_hand(w, x, y, ETA)) / ETA for x, y in zip(X, Y, strict=True)], axis=0)
        updates, state = optimiser.update(jnp.asarray(mean, jnp.float32), state, w)
        w = w + updates
    np.testing.assert_allclose(got, w, atol=1e-5)
    assert np.abs(trained(4, server_optimiser=named, server_lr=0.1) - got).max() > 1e-2


def test_beta_scales_what_an_optimiser_object_is_fed():
    by_beta, by_own = (
        trained(2, server_optimiser=optax.sgd(own), server_lr=beta) for own, beta in ((0.1, 0.5), (0.05, 1.0))
    )
    np.testing.assert_allclose(by_beta, by_own, atol=1e-6)


def test_numbers_of_a_named_optimiser_make_no_other_program():
    one, other = (
        so.fedavg(local_steps=1, local_lr=0.1, server_optimiser="adam", server_lr=beta) for beta in (0.1, 0.2)
    )
    assert jax.tree.structure(one) == jax.tree.structure(other)
    assert "0x" not in repr(one)  # so that a run can be resumed


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"server_optimiser": "lion", "server_lr": 0.1}, "server_optimiser"),
        ({"server_optimiser": {"b1": 0.9}, "server_lr": 0.1}, "server_optimiser"),
        ({"server_optimiser": {"name": "adam", "b3": 0.9}, "server_lr": 0.1}, "server_optimiser"),
        ({"server_optimiser": {"name": "adam", "b1": "fast"}, "server_lr": 0.1}, "server_optimiser"),
        ({"server_optimiser": {"name": "adam", "learning_rate": 0.9}, "server_lr": 0.1}, "server_optimiser"),
        ({"server_optimiser": 3, "server_lr": 0.1}, "server_optimiser"),
        ({"server_optimiser": "adam"}, "server_lr"),
        ({"server_optimiser": "adam", "server_lr": 0.1, "server_momentum": 0.5}, "server_momentum"),
    ],
    ids=str,
)
def test_a_wrong_server_optimiser_names_its_field(options, field):
    with pytest.raises(so.errors.InvalidInput) as caught:
        so.fedavg(local_steps=1, local_lr=0.1, **options)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "wrong",
    [-0.1, 0, "fast", {"start": 0.1}, {"start": "x", "decay": 0.5}, {"values": ["a", "b"], "until": [1]}],
    ids=str,
)
def test_a_wrong_step_size_names_itself(wrong):
    with pytest.raises(so.errors.InvalidInput, match="local_lr"):
        so.fedavg(local_steps=1, local_lr=wrong)


def test_output_mean_of_last_two():
    iterates = by_hand(3)
    np.testing.assert_allclose(
        trained(3, output="mean-of-last-two"), (iterates[2] + iterates[3]) / 2, atol=1e-5, rtol=1e-5
    )
    np.testing.assert_allclose(trained(1, output="mean-of-last-two"), (iterates[0] + iterates[1]) / 2, atol=1e-5)


def test_output_random_is_uniform_over_rounds():
    """4,000 runs of 5 rounds whose iterate in round k is the number k; chi-square, false alarm 1e-6."""
    rounds, runs = 5, 4000

    def chosen(key):
        def step(output, k):
            w = k.astype(jnp.float32)[None]
            return output.after("random", jax.random.fold_in(key, k), w, w + 1, k), None

        return jax.lax.scan(step, Output.init(jnp.full(1, -1.0)), jnp.arange(rounds))[0].iterate[0]

    picks = np.asarray(jax.jit(jax.vmap(chosen))(jax.random.split(jax.random.key(1), runs))).astype(int)
    assert set(picks) == set(range(rounds))
    assert stats.chisquare(np.bincount(picks, minlength=rounds)).pvalue > 1e-6


def client(x, y, start, size, largest) -> ClientData:
    return ClientData(
        squared_loss,
        jnp.asarray(x, jnp.float32),
        jnp.asarray(y, jnp.float32),
        jnp.int32(start),
        jnp.int32(size),
        largest,
    )


@pytest.mark.parametrize(("batch_size", "steps", "times"), [(2, 3, 1), (3, 4, 2), (4, 3, 2), (1, 6, 1)])
def test_mini_batches_use_each_record_equally_often(batch_size, steps, times):
    """A client of six; E times the batch size is a multiple of six. The gradient counts the records it saw."""

    def counting_loss(w, batch):  # gradient: how often each record was in the batch
        return jnp.sum(batch.weight * w[batch.y.astype(jnp.int32)])

    x, y = np.zeros((9, 1)), np.array([7, 7, 0, 1, 2, 3, 4, 5, 7])  # neighbours at both ends
    data = client(x, y, 2, 6, largest=8)
    data = ClientData(counting_loss, data.x, data.y, data.start, data.size, data.largest)
    training = LocalTraining(constant(1.0), 0.0, 0.0, steps, batch_size)
    w = training(jax.random.key(3), jnp.zeros(8), data, jnp.int32(0))
    np.testing.assert_array_equal(-np.asarray(w), [times] * 6 + [0, 0])


@pytest.mark.parametrize("word", [0, 1])
def test_both_words_of_a_record_decide_its_place(monkeypatch, word):
    """Records that share one word are ordered by the other, down to its last bit but one; padding comes last."""
    words = np.zeros((2, 6), np.uint32)
    words[word] = [10, 8, 6, 4, 2, 0]
    monkeypatch.setattr(jax.random, "bits", lambda key, shape, dtype: jnp.asarray(words))
    data = ClientData(None, None, None, jnp.int32(0), jnp.int32(4), 6)
    assert data.shuffled(jax.random.key(0)).tolist()[:4] == [3, 2, 1, 0]
    assert sorted(data.shuffled(jax.random.key(0)).tolist()[4:]) == [4, 5]


def test_mini_batches_are_shuffled():
    """One batch of two out of six: all fifteen pairs come equally often; chi-square, false alarm 1e-6."""
    data = client(np.zeros((6, 1)), np.zeros(6), 0, 6, 9)
    orders = jax.jit(jax.vmap(data.shuffled))(jax.random.split(jax.random.key(4), 6000))
    orders = np.asarray(orders)
    assert (np.sort(orders[:, :6], axis=1) == np.arange(6)).all()  # padding last
    pairs = np.sort(orders[:, :2], axis=1)
    _, counts = np.unique(pairs @ [6, 1], return_counts=True)
    assert len(counts) == 15
    assert stats.chisquare(counts).pvalue > 1e-6


@pytest.mark.parametrize("batch_size", [None, 2, 5])
def test_padding_has_no_effect(batch_size):
    """Three records, padded to seven beside neighbours of NaN, give the update that they give alone."""
    x, y = X[1], Y[1]
    nan = np.full((4, 2), np.nan)
    steps = 6  # of two: all three records twice each
    training = LocalTraining(constant(ETA), MOMENTUM, DECAY, steps, batch_size)
    padded = client(np.concatenate([nan, x, nan]), np.concatenate([nan[:, 0], y, nan[:, 0]]), 4, 3, largest=7)
    key, w = jax.random.key(5), jnp.asarray(W0, jnp.float32)
    got = np.asarray(training(key, w, padded, jnp.int32(0)))
    if batch_size == 2:  # the order of batches is random, and drawn for seven places: take it from there
        order = np.asarray(padded.shuffled(key))[:3]
        expected, v = W0, np.zeros(2)
        for t in range(steps):
            rows = order[[(2 * t) % 3, (2 * t + 1) % 3]]
            v = MOMENTUM * v + x[rows].T @ (x[rows] @ expected - y[rows]) / 2 + DECAY * expected
            expected = expected - ETA * v
    else:
        alone = np.asarray(training(key, w, client(x, y, 0, 3, largest=3), jnp.int32(0)))
        np.testing.assert_allclose(got, alone, atol=1e-6)
        expected = local_by_hand(W0, x, y, ETA, MOMENTUM, DECAY, steps)
    np.testing.assert_allclose(got, expected, atol=1e-5)
