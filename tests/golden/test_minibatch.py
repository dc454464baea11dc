"""Rounds of Noisy MB-SGD and AC-SA on a toy of two clients, against the boxes written out again in NumPy."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import sordino as so
from sordino.algorithms.ac_sa import ac_sa_weights, stages_of
from sordino.algorithms.records import project, variance
from sordino.data import FederatedData, linear_problem
from sordino.errors import InvalidInput
from sordino.models import Batch, linear, moreau
from sordino.privacy import published
from sordino.tasks import Task
from sordino.types import RecordFacts
from tests.toys import run_plan

# Client 0 holds two records, client 1 three.
X = [np.array([[0.6, 0.8], [-1.0, 0.5]]), np.array([[0.5, -1.0], [0.3, 0.4], [0.0, 2.0]])]
Y = [np.array([1.0, -2.0]), np.array([0.5, 3.0, -1.0])]
L, D, MU, R = 0.7, 0.9, 0.1, 5


def toy() -> Task:
    size = np.array([2, 3], np.int32)
    x, y = np.concatenate(X).astype(np.float32), np.concatenate(Y).astype(np.float32)
    data = FederatedData(x, y, np.array([0, 2], np.int32), size, x, y, 0, ("north", "south"))
    return Task("toy", data, linear("ridge", 2))


def clip(g, C):
    return g * min(1.0, C / np.linalg.norm(g))


def mean_gradient(w, weights=(1.0, 1.0), lipschitz=(L, L)):
    """The mean over clients of the mean over records of clipped gradients."""
    each = []
    for x, y, weight, C in zip(X, Y, weights, lipschitz, strict=True):
        each.append(weight * np.mean([clip((a @ w - b) * a, C) for a, b in zip(x, y, strict=True)], axis=0))
    return np.mean(each, axis=0)


def in_ball(w):
    return w * min(1.0, D / max(np.linalg.norm(w), 1e-30))


def trained(method, rounds=R) -> np.ndarray:
    resolved, state, _ = run_plan(so.plan(method, rounds=rounds), toy())
    return np.asarray(resolved.method.params(state.server))


def sgd_by_hand(eta, mu, **settings):
    w, iterates = np.zeros(2), []
    for _ in range(R):
        iterates.append(w)
        w = in_ball(w - eta * (mean_gradient(w, **settings) + mu * w))
    gamma = (1 - mu * eta) ** -(np.arange(R) + 1.0)
    return gamma @ np.array(iterates) / gamma.sum()


@pytest.mark.parametrize("mu", [0.0, MU])
def test_noisy_mb_sgd(mu):
    method = so.noisy_mb_sgd(lipschitz=L, radius=D, mu=mu, smoothness=4.0, step_size=0.5)
    np.testing.assert_allclose(trained(method), sgd_by_hand(0.5, mu), atol=1e-5)


def test_weights_and_lipschitz_constants_of_clients():
    method = so.noisy_mb_sgd(lipschitz=[0.5, 0.9], radius=D, smoothness=4.0, step_size=0.5, weights="records")
    by_hand = sgd_by_hand(0.5, 0.0, weights=(0.8, 1.2), lipschitz=(0.5, 0.9))
    np.testing.assert_allclose(trained(method), by_hand, atol=1e-5)


def test_weights_of_clients_as_the_paper_writes_them():
    """F = sum_i p_i F_i: p = (1, 3) counts as (0.5, 1.5) of a mean over two clients."""
    method = so.noisy_mb_sgd(lipschitz=L, radius=D, smoothness=4.0, step_size=0.5, weights=[1.0, 3.0])
    np.testing.assert_allclose(trained(method), sgd_by_hand(0.5, 0.0, weights=(0.5, 1.5)), atol=1e-5)


@pytest.mark.parametrize(
    "weights", [[1.0], [1.0, 0.0], [1.0, -2.0], [1.0, 2.0, 3.0], "sizes", ["a", 1.0], [[1.0], [2.0]], [True, 1]]
)
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(InvalidInput) as caught:
        trained(so.noisy_mb_sgd(lipschitz=L, radius=D, smoothness=4.0, step_size=0.5, weights=weights))
    assert caught.value.field == "weights"


def test_the_variance_rests_on_the_harmonic_mean_of_those_who_answer():
    """M = 1 / E(1 / M_r): of one or two clients at even odds 4/3, and not the mean 1.5."""
    one = np.ones(2)
    known = RecordFacts(one, one, one, one, 3 * one, 1.0)
    population = toy().population

    def V2(cohort):
        plan = so.plan(so.noisy_mb_sgd(lipschitz=L, radius=D), rounds=R, cohort=cohort)
        return variance(plan.context(population, None, known), with_replacement=False)

    assert V2("fixed:2") == pytest.approx(population.d * 9 / 2)
    assert V2("unreliable:1=0.5,2=0.5") == V2("unreliable:1-2") == pytest.approx(population.d * 9 / (4 / 3))


def test_weights_that_grow_beyond_float32():
    """gamma_R = 0.5^-300 is far above the largest float32; the mean is of the last iterates all the same."""
    method = so.noisy_mb_sgd(lipschitz=L, radius=D, mu=1.0, smoothness=1.0, step_size=0.5)
    w = np.zeros(2)
    for _ in range(300):
        w = in_ball(w - 0.5 * (mean_gradient(w) + w))
    np.testing.assert_allclose(trained(method, 300), w, atol=1e-5)


def ac_sa_by_hand(stages, mu, anchor=0.0):
    w = w_ag = w0 = np.zeros(2)
    strong = mu + anchor
    for rounds, upsilon in stages:
        w = w_ag
        for r in range(1, rounds + 1):
            alpha, eta = 2 / (r + 1), 4 * upsilon / (r * (r + 1))
            above = (1 - alpha) * (strong + eta) * w_ag + alpha * ((1 - alpha) * strong + eta) * w
            w_md = above / (eta + (1 - alpha**2) * strong)
            g = mean_gradient(w_md) + mu * w_md + anchor * (w_md - w0)
            hat = (alpha * strong * w_md + ((1 - alpha) * strong + eta) * w - alpha * g) / (strong + eta)
            w = in_ball(hat)
            w_ag = alpha * w + (1 - alpha) * w_ag
    return w_ag


def test_ac_sa_convex():
    method = so.accelerated_mb_sgd(lipschitz=L, radius=D, smoothness=4.0)
    np.testing.assert_allclose(trained(method), ac_sa_by_hand([(R, 4.0)], 0.0), atol=1e-5)


def test_ac_sa_strongly_convex():
    method = so.accelerated_mb_sgd(lipschitz=L, radius=D, smoothness=4.0, mu=MU)
    np.testing.assert_allclose(trained(method), ac_sa_by_hand([(R, 2 * 4.1)], MU), atol=1e-5)


def test_ac_sa_in_stages():
    """4 sqrt(2 beta / mu) = 8 rounds a stage: two stages, the last with the two rounds that are left over."""
    method = so.accelerated_mb_sgd(lipschitz=L, radius=D, smoothness=1.0, mu=1.0, multi_stage=True)
    upsilon = 2 * (1.0 + 1.0)
    np.testing.assert_allclose(trained(method, 18), ac_sa_by_hand([(8, upsilon), (10, upsilon)], 1.0), atol=1e-5)


def test_stages_with_noise():
    """The formulas of the paper, at V^2 = 1: R_1 = 128 / (3 mu gap / 4)."""
    first, second, *_ = stages_of(2000, beta=2.0, mu=1.0, V2=1.0, gap=1.0)
    assert first.rounds == np.ceil(128 / 3 * 4) == 171
    assert first.upsilon == pytest.approx(np.sqrt(171 * 172 * 173 / 3))
    assert second.rounds == np.ceil(128 / 3 * 8)
    assert second.upsilon == pytest.approx(np.sqrt(342 * 343 * 344 / (3 * 0.5)))
    assert sum(stage.rounds for stage in stages_of(2000, beta=2.0, mu=1.0, V2=1.0, gap=1.0)) == 2000


def test_stages_without_noise_are_many():
    stages = stages_of(20_000, beta=1.0, mu=1.0, V2=0.0, gap=1.0)
    assert sum(stage.rounds for stage in stages) == 20_000
    assert {stage.upsilon for stage in stages} == {2.0}


def test_line_10_is_the_minimiser_of_its_box():
    """argmin over the ball of alpha [<g, w> + (mu/2) ||w_md - w||^2] + [(1 - alpha) mu + eta]/2 ||w_prev - w||^2."""
    rng = np.random.default_rng(0)
    w_md, w_prev, g = rng.normal(size=(3, 4))
    alpha, eta, *_ = ac_sa_weights(3, 0.5, 1.0)
    for radius in (0.3, 10.0):

        def box(w):
            near = 0.5 * ((1 - alpha) * 0.5 + eta) * np.sum((w_prev - w) ** 2)
            return alpha * (g @ w + 0.25 * np.sum((w_md - w) ** 2)) + near

        inside = {"type": "ineq", "fun": lambda w, radius=radius: radius**2 - w @ w}
        found = minimize(box, np.zeros(4), constraints=[inside], method="SLSQP", options={"ftol": 1e-14})
        hat = (alpha * 0.5 * w_md + ((1 - alpha) * 0.5 + eta) * w_prev - alpha * g) / (0.5 + eta)
        np.testing.assert_allclose(project(jnp.asarray(hat, jnp.float32), radius), found.x, atol=1e-4)


@pytest.mark.parametrize(
    ("w", "expected"), [([3.0, 4.0], [0.6, 0.8]), ([0.3, 0.4], [0.3, 0.4]), ([0.0, 0.0], [0.0, 0.0])]
)
def test_projection(w, expected):
    np.testing.assert_allclose(project(jnp.array(w), 1.0), expected, rtol=1e-6)


def test_the_theorems_noise_by_name():
    task = so.task("linear", clients=2, records=1000, d=2, loss="logit", l2=0.1)
    method = so.noisy_mb_sgd(lipschitz=3.0, radius=1.0, feature_bound=1.0, batch_size=6)
    plan = so.plan(method, rounds=100, epsilon=1.0, delta=1e-5, trust="local", calibration="theorem-2.1")
    resolved = plan.resolve(task.population)
    sigma = 3 * published.minibatch_theorem_2_1(1000, 100, 6, 1.0, 1e-5)
    np.testing.assert_allclose(resolved.rules.numbers.noise_std, sigma, rtol=1e-6)
    assert sigma == pytest.approx(3 * 2.307125423)
    assert 0.02 < resolved.certificate.total(so.Observer.SERVER).epsilon < 0.0275  # the theorem is that loose


def test_one_pass_noise_is_the_analytic_gaussian():
    task = so.task("linear", clients=2, records=100, d=2, loss="logit", l2=0.1)
    method = so.noisy_mb_sgd(lipschitz=1.0, radius=1.0, feature_bound=1.0, batch_size=1, one_pass=True)
    resolved = so.plan(method, rounds=100, epsilon=1.0, delta=1e-5, trust="local").resolve(task.population)
    np.testing.assert_allclose(resolved.rules.numbers.noise_std, 7.461263270, rtol=1e-6)
    assert resolved.certificate.total(so.Observer.SERVER).epsilon == pytest.approx(1.0, rel=1e-9)


# --- Smoothing and problems with known minimisers ------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "y"), [("absolute", 0.3), ("hinge", 1.0)])
def test_smoothed_losses_are_moreau_envelopes(loss, y):
    """Against a minimisation over v by brute force, along x, where the minimiser lies."""
    beta, x = 2.0, np.array([0.6, -1.2])
    steps = np.linspace(-3, 3, 60001)
    batch = Batch(jnp.asarray(x, jnp.float32)[None], jnp.float32(y)[None], jnp.ones(1))
    for w in np.array([[0.1, 0.0], [1.0, 0.5], [-2.0, 1.0], [0.7, -0.4]]):
        s = w @ x - steps * (x @ x)
        f = np.abs(s - y) if loss == "absolute" else np.maximum(0, 1 - y * s)
        objective = f + beta / 2 * steps**2 * (x @ x)
        value, gradient = jax.value_and_grad(linear(loss, 2, smoothing=beta).loss)(jnp.asarray(w, jnp.float32), batch)
        assert float(value) == pytest.approx(objective.min(), abs=1e-4)
        np.testing.assert_allclose(gradient, beta * steps[objective.argmin()] * x, atol=1e-3)


@pytest.mark.parametrize("loss", ["absolute", "hinge"])
def test_the_inexact_prox_is_as_near_as_it_says(loss):
    beta, steps = 2.0, 200
    batch = Batch(jnp.array([[0.6, -1.2]]), jnp.array([1.0]), jnp.ones(1))
    exact, inexact = linear(loss, 2, smoothing=beta), moreau(linear(loss, 2), beta, steps=steps)
    lipschitz = np.linalg.norm([0.6, -1.2])
    for w in np.array([[0.1, 0.0], [1.0, 0.5], [-2.0, 1.0]], np.float32):
        off = jax.grad(inexact.loss)(jnp.asarray(w), batch) - jax.grad(exact.loss)(jnp.asarray(w), batch)
        assert float(jnp.linalg.norm(off)) <= 2 * lipschitz / np.sqrt(steps + 1)


@pytest.mark.parametrize(("loss", "l2"), [("ridge", 0.1), ("logit", 0.1), ("absolute", 0.0), ("hinge", 0.0)])
def test_no_point_nearby_is_lower_than_the_minimum(loss, l2):
    problem = linear_problem(1, 3, 40, 4, loss, l2=l2, spread=0.5)
    task = so.task("linear", clients=3, records=40, d=4, loss=loss, l2=l2, spread=0.5, seed=1)
    assert task.evaluate(jnp.asarray(problem.minimiser, jnp.float32))["suboptimality"] == pytest.approx(0, abs=1e-5)
    rng = np.random.default_rng(0)
    for scale in (0.01, 0.3):
        w = problem.minimiser + scale * rng.normal(size=4)
        assert task.evaluate(jnp.asarray(w, jnp.float32))["suboptimality"] > 0


def test_a_smoothed_task_reports_the_loss_itself():
    task = so.task("linear", clients=3, records=40, d=4, loss="absolute", smoothing=5.0)
    x, y = task.data.x_test, task.data.y_test
    assert task.evaluate(jnp.zeros(4))["test_loss"] == pytest.approx(np.mean(np.abs(y)), rel=1e-5)
    assert float(task.loss(jnp.zeros(4), Batch(x, y, jnp.ones(len(y))))) < np.mean(np.abs(y))


def test_step_sizes_from_public_constants():
    """Theorem 2.1, strongly convex; the plan says what was assumed."""
    task = so.task("linear", clients=4, records=50, d=3, loss="logit", l2=0.2)
    method = so.noisy_mb_sgd(lipschitz=1.0, radius=2.0, feature_bound=1.0, mu=0.2)
    resolved = so.plan(method, rounds=400, epsilon=1.0, delta=1e-5, trust="local").resolve(task.population)
    sigma = float(resolved.rules.numbers.noise_std[0])
    eta = np.log(max(2, (0.2 * 2 * 400) ** 2 / (2 * 3 * sigma**2 / 4))) / (0.2 * 400)
    assert float(resolved.method.eta) == pytest.approx(min(1 / (4 * 0.45), eta), rel=1e-5)
    for word in ("features of norm at most 1", "L = 1 (enforced)", "beta = 0.45", "mu = 0.2", "D = 2", "V = "):
        assert word in resolved.summary["assumed"]


def test_data_do_not_change_the_step_size():
    task = so.task("linear", clients=4, records=50, d=3, loss="logit", l2=0.2)
    other = replace(task, data=task.data._replace(x=-3 * task.data.x, y=-task.data.y))
    plan = so.plan(
        so.accelerated_mb_sgd(lipschitz=1.0, radius=2.0, feature_bound=1.0),
        rounds=10,
        epsilon=1.0,
        delta=1e-5,
        trust="local",
    )
    first, second = (jax.tree.leaves(plan.resolve(each.population).method) for each in (task, other))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
