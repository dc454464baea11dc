"""Rounds of the FedAvg family on a toy of two clients, against the formulas written out again in NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import sordino as so
from sordino.algorithms.local import ClientData, LocalTraining
from sordino.algorithms.schedules import as_schedule, constant
from sordino.algorithms.server import Output
from sordino.data import FederatedData
from sordino.models import Batch, get, weighted_mean
from sordino.tasks import Records, Task
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
    run = so.simulate(so.plan(so.fedavg(local_steps=E, local_lr=0.5), rounds=2), task)

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
