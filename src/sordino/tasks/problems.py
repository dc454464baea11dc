"""Problems with their own losses, whose minimum is known or whose gradient can be measured."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sordino.data import FederatedData, synthetic
from sordino.errors import require
from sordino.models import Batch, from_loss, linear, weighted_mean
from sordino.tasks.task import Task
from sordino.types import Key, Vector


def _quadratics(clients: int | None, *, d: int = 200, rank: int = 20, scale: float = 1.0, seed: int = 0) -> Task:
    """Client i's one record is x = A_i, y = w_i*. A run draws z ~ U(0, 1)^d and starts at w* + scale z."""
    problem = synthetic.quadratics(seed, clients or 100, d, rank)
    minimiser = jnp.asarray(problem.minimiser, jnp.float32)

    def init(key: Key) -> Vector:
        return minimiser + scale * jax.random.uniform(key, minimiser.shape)

    return Task(
        "quadratics",
        _dealt(problem.A, problem.centers),
        from_loss(init, _mean_quadratic, name="quadratics"),
        problem.minimum,
        minimiser,
        starts_near_data=True,
    )


def _opposed_parabolas(clients: int | None, *, start: float = 2.0) -> Task:
    """Two clients, one number x, which every run starts at `start`; the distance to x* = 0 is measured."""
    require(clients in (None, 2), "clients", clients, "there are two: leave out")
    problem = synthetic.opposed_parabolas()
    minimiser = jnp.asarray(problem.minimiser, jnp.float32)

    def init(key: Key) -> Vector:
        return jnp.full((1,), start, jnp.float32)

    model = from_loss(init, _mean_quadratic, name="opposed-parabolas")
    return Task("opposed-parabolas", _dealt(problem.A, problem.centers), model, problem.minimum, minimiser)


def _mean_quadratic(w: Vector, batch: Batch) -> jax.Array:
    each = jax.vmap(synthetic.quadratic_loss, in_axes=(None, 0))(w, (batch.x, batch.y))
    return weighted_mean(each, batch.weight)


def _dealt(x: NDArray[np.float64], y: NDArray[np.float64], records: int = 1) -> FederatedData:
    """`records` records in a row for each client; the objective itself is the test."""
    x, y = x.astype(np.float32), y.astype(np.float32)
    clients = len(x) // records
    start, size = np.arange(clients, dtype=np.int32) * records, np.full(clients, records, np.int32)
    return FederatedData(x, y, start, size, x, y, classes=0)


def _robust_regression(
    clients: int | None, *, d: int = 20, records: int = 50, regularisation: float = 0.1, seed: int = 0
) -> Task:
    """Every client holds `records` records; a run starts at w_0 ~ N(0, I_d) and the gradient's norm is measured."""
    problem = synthetic.robust_regression(seed, clients or 10, d, records, regularisation)

    def init(key: Key) -> Vector:
        return jax.random.normal(key, (d,))

    def loss(w: Vector, batch: Batch) -> jax.Array:
        each = jax.vmap(lambda x, y: synthetic.robust_loss(w, (x, y), regularisation))(batch.x, batch.y)
        return weighted_mean(each, batch.weight)

    data = _dealt(problem.x.reshape(-1, d), problem.y.reshape(-1), records)
    return Task("robust-regression", data, from_loss(init, loss, name="robust-regression"), stationarity=True)


def _linear_regression(clients: int | None, *, d: int = 500, u_variance: float = 0.1, seed: int = 0) -> Task:
    """Client i's one record is (x_i, y_i), its loss (x_i^T w - y_i)^2. All share w*; a run starts at 0."""
    problem = synthetic.linear_regression(seed, clients or 1000, d, u_variance)

    def init(key: Key) -> Vector:
        del key  # deterministic: start at zero
        return jnp.zeros(d, jnp.float32)

    def loss(w: Vector, batch: Batch) -> jax.Array:
        each = jax.vmap(synthetic.squared_residual, in_axes=(None, 0))(w, (batch.x, batch.y))
        return weighted_mean(each, batch.weight)

    minimiser = jnp.asarray(problem.minimiser, jnp.float32)
    model = from_loss(init, loss, name="linear-regression")
    return Task("linear-regression", _dealt(problem.x, problem.y), model, problem.minimum, minimiser)


def _linear(
    clients: int | None,
    *,
    loss: str = "ridge",
    records: int = 100,
    d: int = 10,
    l2: float = 0.0,
    smoothing: float | None = None,
    spread: float = 0.0,
    noise: float = 0.1,
    seed: int = 0,
) -> Task:
    """A linear model of `data.linear_problem`; `smoothing` is beta of the Moreau envelope that clients train on.

    The test loss is the objective itself, not smoothed and with (l2/2) ||w||^2, whose gradient a method must add.
    """
    problem = synthetic.linear_problem(seed, clients or 10, records, d, loss, l2=l2, spread=spread, noise=noise)
    exact, trained = linear(loss, d), linear(loss, d, smoothing=smoothing)

    def objective(w: Vector, batch: Batch) -> jax.Array:
        return exact.loss(w, batch) + 0.5 * l2 * jnp.vdot(w, w)

    data = _dealt(problem.x.reshape(-1, d), problem.y.ravel(), records)
    measured = from_loss(exact.init, objective, name=exact.name)
    return Task("linear", data, trained, problem.minimum, objective=measured)


PROBLEMS: dict[str, Callable[..., Task]] = {
    "quadratics": _quadratics,
    "linear": _linear,
    "linear-regression": _linear_regression,
    "opposed-parabolas": _opposed_parabolas,
    "robust-regression": _robust_regression,
}
