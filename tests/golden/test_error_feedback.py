"""Error feedback: Example 1 through the engine, rounds against the box written out again in NumPy, honest figures."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from test_fedavg import W0, X, Y, records, squared_loss

import sordino as so
from sordino.algorithms.error_feedback import keep_largest
from sordino.config import load_config
from sordino.tasks import Population
from sordino.types import Observer, PlanContext, Relation, Trust
from tests.toys import rounds_of, rules_for, run_plan

EXPERIMENTS = Path(__file__).parents[2] / "src" / "sordino" / "experiments" / "papers" / "paper4" / "runs"
ALPHA, BETA, GAMMA = 0.2, 0.3, 0.1


# --- Example 1 ---------------------------------------------------------------------------------------------------


def distances(file: str, **options) -> list[float]:
    """|x| after every 50 rounds of the shipped run file."""
    config = load_config(EXPERIMENTS / file)
    run = so.simulate(config.plan(), config.task(), **({"seed": 0, "evaluate_every": 50} | options))
    return [row["distance"] for row in run.history]


def distance(method, task, rounds: int) -> float:
    """|x| in the end."""
    resolved, state, _ = run_plan(so.plan(method, rounds=rounds), task)
    return task.evaluate(resolved.method.params(state.server))["distance"]


def test_normalised_dp_sgd_stays_at_two():
    assert set(distances("example1-dp-sgd.toml")) == {2.0}


def test_norm_ec_passes_a_thousandth_within_500_rounds():
    moved = distances("example1-norm-ec.toml")
    assert moved[0] > 0.05  # it takes rounds to get there
    assert min(moved) < 1e-3


def test_example_1_with_plain_normalization_in_the_memory():
    """Errata: alpha = 0 reaches |x| < 1e-10 by k = 500 in exact arithmetic, alpha = 0.01 about 1.0e-3."""
    task = so.task("opposed-parabolas")
    found = {}
    for alpha in (0.0, 0.01):
        method = so.error_feedback(beta=0.1, server_lr=0.05, bound=so.smoothed_normalize(alpha))
        found[alpha] = distance(method, task, 500)
    assert found[0.0] < 1e-5  # float32
    assert found[0.01] == pytest.approx(1.0e-3, rel=0.1)


# --- Rounds by hand ----------------------------------------------------------------------------------------------


def smoothed(v):
    return v / (ALPHA + np.linalg.norm(v))


def clipped(v, C=0.7):
    return v * min(1.0, C / np.linalg.norm(v))


def largest(v):
    return np.where(np.abs(v) == np.abs(v).max(), v, 0.0)


def gradient(w, i):
    return X[i].T @ (X[i] @ w - Y[i]) / len(Y[i])


def by_hand(rounds, psi, *, server_normalization=False, local=gradient, memory=None):
    """x, g and the g_i after some rounds of Algorithm 1."""
    x, g_i = W0, np.zeros((2, 2)) if memory is None else memory
    g = g_i.mean(axis=0)
    for _ in range(rounds):
        Delta = [psi(local(x, i) - g_i[i]) for i in (0, 1)]
        g_i = np.stack([g_i[i] + BETA * Delta[i] for i in (0, 1)])
        g = g + BETA / 2 * (Delta[0] + Delta[1])
        x = x - GAMMA * (g / np.linalg.norm(g) if server_normalization else g)
    return x, g, g_i


def trained(rounds, method, planned=None):
    """x, g and the g_i of the engine, without noise."""
    if planned:
        method = method.resolve(PlanContext(2, clients=2, planned_cohort=2, relation=Relation.REPLACE_ONE))
    state, _ = rounds_of(rules_for(method, 2), records(), squared_loss, W0, rounds)
    return state.server.x, getattr(state.server, "g", None), state.clients


def method(**options):
    return so.error_feedback(**({"beta": BETA, "server_lr": GAMMA} | options))


CASES = {
    "alpha-NormEC": ({"bound": so.smoothed_normalize(ALPHA)}, smoothed),
    "Clip21": ({"bound": so.clip(0.7)}, clipped),
    "EF21": ({"top_k": 1}, largest),
    "EF21, clipped": ({"top_k": 1, "bound": so.clip(0.7)}, lambda v: clipped(largest(v))),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("server_normalization", [False, True], ids=["", "server normalization"])
def test_rounds(case, server_normalization):
    options, psi = CASES[case]
    got = trained(4, method(**options, server_normalization=server_normalization))
    for ours, hand in zip(got, by_hand(4, psi, server_normalization=server_normalization), strict=True):
        np.testing.assert_allclose(ours, hand, atol=1e-5)
    other = by_hand(4, psi, server_normalization=not server_normalization)
    assert np.abs(np.asarray(got[0]) - other[0]).max() > 1e-3


def test_top_k_of_every_coordinate_is_gradient_descent():
    """EF21 with the identity and beta = 1: the memory is the gradient, so privacy off is the plain method."""
    x = W0
    for _ in range(3):
        x = x - GAMMA * (gradient(x, 0) + gradient(x, 1)) / 2
    np.testing.assert_allclose(trained(3, method(top_k=2, beta=1.0))[0], x, atol=1e-6)
    np.testing.assert_allclose(trained(3, so.dp_sgd(server_lr=GAMMA))[0], x, atol=1e-6)


def test_keep_largest():
    v = jnp.array([0.1, -3.0, 2.0, 0.0])
    np.testing.assert_array_equal(keep_largest(v, 2), [0.0, -3.0, 2.0, 0.0])
    with pytest.raises(so.errors.InvalidInput, match="only 4 coordinates"):
        keep_largest(v, 5)


@pytest.mark.parametrize(
    ("bound", "psi"), [(so.smoothed_normalize(ALPHA), smoothed), (so.clip(0.7), clipped)], ids=["smoothed", "clip"]
)
def test_dp_sgd(bound, psi):
    x = W0
    for _ in range(3):
        x = x - GAMMA * (psi(gradient(x, 0)) + psi(gradient(x, 1))) / 2
    np.testing.assert_allclose(trained(3, so.dp_sgd(server_lr=GAMMA, bound=bound))[0], x, atol=1e-5)


def test_local_steps():
    """The mean gradient along three local steps takes the gradient's place; one step is the gradient itself."""

    def local(w, i):
        total = np.zeros(2)
        for _ in range(3):
            total, w = total + gradient(w, i), w - 0.05 * gradient(w, i)
        return total / 3

    got = trained(3, method(bound=so.smoothed_normalize(ALPHA), local_steps=3, local_lr=0.05))
    for ours, hand in zip(got, by_hand(3, smoothed, local=local), strict=True):
        np.testing.assert_allclose(ours, hand, atol=1e-5)
    assert np.abs(np.asarray(got[0]) - by_hand(3, smoothed)[0]).max() > 1e-4


def test_server_normalization_of_nothing_is_nothing():
    """0/0 = 0: at the minimiser of both clients, with zero memories, x stays and nothing is NaN."""
    task = so.task("opposed-parabolas", start=0.0)  # the gradients -3 and 3 cancel in g
    ours = so.error_feedback(beta=0.1, server_lr=0.5, bound=so.normalize(1.0), server_normalization=True)
    assert distance(ours, task, 3) == 0.0


# --- The start of the memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "options", "start"),
    [
        ("exact", {}, lambda v: v),
        ("noisy", {"memory_clip": 1.65}, lambda v: clipped(v, 1.65)),
        ("noisy", {"memory_clip": 1.65, "memory_rounds": 3}, lambda v: clipped(v, 1.65)),
        ("secure-average", {"memory_clip": 1.65}, lambda v: clipped(v, 1.65)),
    ],
    ids=["exact", "noisy", "noisy in three rounds", "secure-average"],
)
def test_the_start_of_the_memory(memory, options, start):
    """In the first rounds x rests and the memories become the first gradients, clipped or not; then all is as usual."""
    assert np.linalg.norm(gradient(W0, 0)) < 1.65 < np.linalg.norm(gradient(W0, 1))  # one is clipped, one is not
    ours = method(bound=so.smoothed_normalize(ALPHA), memory=memory, **options)
    rounds = options.get("memory_rounds", 1)
    first = np.stack([start(gradient(W0, i)) for i in (0, 1)])
    for more in (0, 3):
        got = trained(rounds + more, ours, planned=True)
        for value, hand in zip(got, by_hand(more, smoothed, memory=first), strict=True):
            np.testing.assert_allclose(value, hand, atol=1e-5)


# --- Honest figures ----------------------------------------------------------------------------------------------


def certificate(relation, **options):
    ours = method(bound=so.smoothed_normalize(0.01))
    options = {"epsilon": 8.0, "delta": 1e-5, "trust": "local", "rounds": 300} | options
    return so.plan(ours, relation=relation, **options).resolve(Population(100, 10))


@pytest.mark.parametrize(
    ("relation", "server", "user"), [("zero-out", 12.2671, 3.126), ("replace-one", 30.5192, 7.0018)]
)
def test_the_papers_noise_and_what_it_gives(relation, server, user):
    made = certificate(relation, calibration="norm-ec")
    assert made.summary["noise_std"] == pytest.approx(7.34621, abs=1e-5)
    assert made.certificate.total(Observer.SERVER).epsilon == pytest.approx(server, abs=1e-3)
    assert made.certificate.total(Observer.MODEL_USER).epsilon == pytest.approx(user, abs=1e-3)
    false = [warning.message for warning in made.certificate.warnings if warning.code == "no-valid-guarantee"]
    assert len(false) == 1
    assert f"{server:.4g}" in false[0]


def test_numeric_calibration_is_the_default():
    """Errata: 10.41 and 20.83 for 301 messages."""
    for relation, std in (("zero-out", 10.41), ("replace-one", 20.83)):
        made = certificate(relation, rounds=301)
        assert made.summary["noise_std"] == pytest.approx(std, abs=0.01)
        assert made.certificate.total(Observer.SERVER).epsilon == pytest.approx(8.0, rel=1e-6)


@pytest.mark.parametrize(("relation", "epsilon"), [("zero-out", 507), ("replace-one", 1794)])
def test_42000_messages_at_the_noise_for_300(relation, epsilon):
    z = 7.346212501489999 / (2 if relation == "replace-one" else 1)
    made = certificate(relation, rounds=42_000, epsilon=None, noise_multiplier=z)
    assert made.certificate.total(Observer.SERVER).epsilon == pytest.approx(epsilon, abs=1)


def test_the_shipped_private_files_state_what_is_sent():
    for path in EXPERIMENTS.glob("cifar10-private-*.toml"):
        plan = load_config(path).plan()
        total = plan.resolve(Population(269_722, 10)).certificate.total(Observer.SERVER)
        assert total.rounds == 42_000
        assert total.epsilon == pytest.approx(507, abs=1)


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_shipped_file_can_be_planned(path):
    config = load_config(path)
    clients = config.file.task.clients or 2
    assert config.plan().resolve(Population(1000, clients)).certificate.total(Observer.SERVER)


def test_bits_of_a_sparse_message():
    """EF21 sends k numbers and their places, unless local noise fills the vector."""
    sparse = method(top_k=3, bound=so.clip(1.0))
    assert so.plan(sparse, rounds=1).resolve(Population(1000, 10)).summary["bits_per_message"] == 3 * (32 + 10)
    local = so.plan(sparse, rounds=1, trust="local", noise_multiplier=1.0)
    assert local.resolve(Population(1000, 10)).summary["bits_per_message"] == 32 * 1000


def test_beta_is_no_privacy_level():
    """It scales message and noise alike, after both: the certificate does not change."""
    totals = {
        so.plan(method(bound=so.smoothed_normalize(0.01), beta=beta), rounds=300, noise_multiplier=7.0, trust="local")
        .resolve(Population(10, 10))
        .certificate.total(Observer.SERVER)
        for beta in (0.001, 1.0)
    }
    assert len(totals) == 1


def test_remembered_noise_by_hand():
    """Line 6 of what was sent: the messages of the transcript rebuild every memory, g and x."""
    ours = method(bound=so.smoothed_normalize(ALPHA), remember_noise=True)
    rules = rules_for(ours, 2, Trust.LOCAL, so.gaussian(0.5))
    after, info = rounds_of(rules, records(), squared_loss, W0, 4, seed=1, transcript=True)
    x, g, memory = np.asarray(W0, np.float64), np.zeros(2), np.zeros((2, 2))
    for sent in np.asarray(info.transcript[2], np.float64):
        noise = [sent[i] - smoothed(gradient(x, i) - memory[i]) for i in range(2)]
        assert 0.1 < np.abs(noise).max() < 2.0  # noise of std 0.5, and nothing else
        memory = memory + BETA * sent
        g = g + BETA * sent.mean(axis=0)
        x = x - GAMMA * g
    np.testing.assert_allclose(after.clients, memory, atol=1e-5)
    np.testing.assert_allclose(after.server.g, memory.mean(axis=0), atol=1e-5)
    np.testing.assert_allclose(after.server.x, x, atol=1e-5)
