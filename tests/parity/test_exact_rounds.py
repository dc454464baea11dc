"""The short rounds of `experiments.paper2.exact_rounds` against the engine: the same paths, and the same law."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import ks_2samp

import sordino as so
from experiments.paper2.coordinates import Loss
from experiments.paper2.exact_rounds import everybody, final_models, next_records, some_clients
from experiments.paper2.slope_cases import DELTA
from experiments.paper2.slopes import shuffled_method, shuffled_noise
from sordino.data import FederatedData
from sordino.models import linear
from sordino.tasks import Population, Task
from tests.toys import rounds_of, run_plan

d, n, M, R, D, BETA = 2, 4, 3, 8, 1.0, 20.0
RUNS = 200
rng = np.random.default_rng(0)
COORDINATE, SIGN = rng.integers(0, d, (M, n)), rng.choice([1.0, -1.0], (M, n), p=[0.7, 0.3])


def task_of(loss: Loss) -> Task:
    """Records (e_j, +-label) of M clients."""
    label = loss.label(d) if loss.name in ("absolute", "ridge") else 1.0
    x, y = np.eye(d, dtype=np.float32)[COORDINATE.ravel()], (label * SIGN.ravel()).astype(np.float32)
    smoothing = None if loss.curvature() else BETA
    start, size = np.arange(0, M * n, n, dtype=np.int32), np.full(M, n, np.int32)
    return Task("signs", FederatedData(x, y, start, size, x, y, 0), linear(loss.name, d, smoothing=smoothing))


def shares_of(rows: np.ndarray) -> np.ndarray:
    """[d, 2] of records given by their numbers 2 j + (0 for +, 1 for -)."""
    return np.bincount(rows.ravel(), minlength=2 * d).reshape(d, 2) / rows.size


NUMBERS = 2 * COORDINATE + (SIGN < 0)
METHODS = {
    "MB-SGD": (so.noisy_mb_sgd, {}),
    "AC-SA": (so.accelerated_mb_sgd, {}),
    "multi-stage AC-SA": (so.accelerated_mb_sgd, {"multi_stage": True}),
}


def method_of(name: str, loss: Loss):
    make, own = METHODS[name]
    return make(lipschitz=1.0, radius=D, mu=loss.mu, smoothness=loss.curvature() or BETA, **own)


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("MB-SGD", Loss("absolute", D)),
        ("MB-SGD", Loss("hinge", D, 0.5)),
        ("MB-SGD", Loss("ridge", D / 2, 0.5)),
        ("AC-SA", Loss("hinge", D)),
        ("multi-stage AC-SA", Loss("logit", D, 0.5)),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_without_noise_the_paths_are_the_same(name, loss):
    task = task_of(loss)
    resolved, state, _ = run_plan(so.plan(method_of(name, loss), rounds=R), task)
    data = shares_of(NUMBERS)[None, None].astype(np.float32)
    beta = None if loss.curvature() else BETA
    short = final_models(resolved.method, loss, everybody(M), data, d=d, rounds=R, noise_std=0.0, beta=beta, seeds=1)
    np.testing.assert_allclose(short[0, 0], resolved.method.params(state.server), atol=2e-6)


CLIENTS = np.stack([shares_of(rows) for rows in NUMBERS]).astype(np.float32)
DRAWS = {
    "all records of all": ("full", everybody(M), shares_of(NUMBERS).astype(np.float32)),
    "all records of some": ("unreliable:1-3", some_clients(1, 3), CLIENTS),
}


@pytest.mark.parametrize("draws", DRAWS)
def test_with_noise_the_law_is_the_same(draws):
    """KS tests of each coordinate after all rounds, at 1e-4; the law with twice the noise is told apart."""
    cohort, draw, data = DRAWS[draws]
    loss = Loss("ridge", 0.5, 0.5)
    task = task_of(loss)
    plan = so.plan(method_of("MB-SGD", loss), rounds=R, cohort=cohort, trust="local", noise_multiplier=0.5, delta=1e-3)
    resolved = plan.resolve(task.population)
    models = []
    for seed in range(RUNS):
        run = rounds_of(resolved.rules, task.records, task.loss, jnp.zeros(d), R, seed=seed, cohort=plan.cohort)
        models.append(resolved.method.params(run[0].server))
    std = float(resolved.rules.numbers.noise_std[0])

    def short(noise_std):
        found = final_models(
            resolved.method,
            loss,
            draw,
            np.broadcast_to(data, (1, 4 * RUNS, *data.shape)),
            d=d,
            rounds=R,
            noise_std=noise_std,
            beta=None,
            seeds=4 * RUNS,
        )
        return found[0]

    engine, same, louder = np.array(jnp.stack(models)), short(std), short(2 * std)
    for j in range(d):
        assert ks_2samp(engine[:, j], same[:, j]).pvalue > 1e-4
    assert min(ks_2samp(engine[:, j], louder[:, j]).pvalue for j in range(d)) < 1e-4


@pytest.mark.parametrize(("n", "loss"), [(1, Loss("absolute", 1.5)), (3, Loss("ridge", 0.5, 0.5))], ids=["1", "3"])
def test_the_shuffled_noise_and_steps_are_those_of_a_plan(n, loss):
    M, R, setting = 400, 40, {"n": n, "M": 400, "d": 5, "epsilon": 0.5}
    make = so.noisy_mb_sgd(lipschitz=1.0, radius=loss.D, mu=loss.mu, smoothness=loss.curvature() or BETA, batch_size=1)
    plan = so.plan(make, rounds=R, cohort="full", epsilon=0.5, delta=DELTA, trust="shuffle")
    found = plan.resolve(Population(5, M, np.full(M, n)))
    noise_std = shuffled_noise(setting, R)
    assert noise_std == pytest.approx(float(found.rules.numbers.noise_std[0]), rel=1e-4)
    method = shuffled_method(loss, setting, R, loss.curvature() or BETA, noise_std)
    assert method.eta == pytest.approx(float(found.method.eta), rel=1e-3)


def test_one_pass_takes_each_record_once():
    """Without noise the order alone differs: the mean of the shares over rounds is that of all records."""
    one_hot = np.stack([shares_of(NUMBERS[:, r]) for r in range(n)]).astype(np.float32)
    drawn = [next_records(M)(None, jnp.int32(r), jnp.asarray(one_hot)) for r in range(n)]
    np.testing.assert_allclose(np.mean([one.shares for one in drawn], axis=0), shares_of(NUMBERS), atol=1e-6)


@pytest.mark.parametrize(
    "loss",
    [
        Loss("absolute", 0.9),
        Loss("hinge", 0.9),
        Loss("hinge", 0.9, 0.5),
        Loss("ridge", 0.9, 0.5),
        Loss("logit", 0.9, 0.5),
    ],
    ids=lambda loss: f"{loss.name}-{loss.mu:g}",
)
def test_minimisers_are_least(loss):
    """No point of a random sample of the ball is below F*, and points near w* come close to it."""
    shares, rng = shares_of(NUMBERS), np.random.default_rng(1)
    points = rng.normal(size=(4000, d))
    points *= (loss.D * rng.uniform(size=4000) ** (1 / d) / np.linalg.norm(points, axis=1))[:, None]
    assert loss.excess(points, shares).min() >= -1e-12
    assert loss.excess(loss.minimiser(shares) + 1e-4 * points, shares).max() < 1e-3
