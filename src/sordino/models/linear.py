"""Linear models of problems with a known minimiser, and the Moreau envelope of losses that are not smooth.

    ridge     phi(s, y) = (s - y)^2 / 2             absolute  |s - y|
    logit     log(1 + e^(-y s)),   y = -1 or 1      hinge     max(0, 1 - y s)

with s = <w, x>. The beta-Moreau envelope (Lowy and Razaviyayn, Theorem 2.2)

    f_beta(w) = min_v f(v) + (beta/2) ||w - v||^2,     grad f_beta(w) = beta (w - v*)

is beta-smooth and at most L^2 / (2 beta) below f. Of phi(<w, x>, y) it is the envelope of phi in s with
rho = beta / ||x||^2, which for |r| is rho r^2 / 2 up to |r| = 1/rho and |r| - 1 / (2 rho) beyond, and likewise for the
hinge: v* is exact. For any other loss `moreau` finds v* by subgradient steps, inexactly.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from sordino.errors import require
from sordino.models.model import Array, Batch, Model, Params, from_loss, weighted_mean
from sordino.types import Key

# phi, and its curvature in s if it is smooth.
_LOSSES: dict[str, tuple[Callable[[Array, Array], Array], float | None]] = {
    "ridge": (lambda s, y: 0.5 * (s - y) ** 2, 1.0),
    "logit": (lambda s, y: jax.nn.softplus(-y * s), 0.25),
    "absolute": (lambda s, y: jnp.abs(s - y), None),
    "hinge": (lambda s, y: jnp.maximum(0.0, 1.0 - y * s), None),
}


def linear(loss: str, d: int, *, smoothing: float | None = None) -> Model:
    """phi(<w, x>, y) with w in R^d, starting at zero; `smoothing` is beta of the Moreau envelope (absolute, hinge)."""
    require(loss in _LOSSES, "loss", loss, "use one of " + ", ".join(_LOSSES))
    phi, curvature = _LOSSES[loss]
    require(smoothing is None or smoothing > 0, "smoothing", smoothing, "must be positive")
    require(smoothing is None or curvature is None, "smoothing", smoothing, f"{loss} is already smooth: leave it out")

    def init(key: Key) -> Array:
        del key
        return jnp.zeros(d, jnp.float32)

    def record_losses(w: Array, batch: Batch) -> Array:
        s = batch.x @ w
        if smoothing is None:
            return phi(s, batch.y)
        rho = smoothing / jnp.maximum(jnp.sum(batch.x**2, axis=1), 1e-30)
        return _huber(jnp.abs(s - batch.y) if loss == "absolute" else jnp.maximum(0.0, 1.0 - batch.y * s), rho)

    def mean(w: Array, batch: Batch) -> Array:
        return weighted_mean(record_losses(w, batch), batch.weight)

    model = from_loss(init, mean, name=loss if smoothing is None else f"{loss}, smoothed")
    if smoothing is not None:
        return model._replace(smoothness=lambda bound: smoothing)
    return model if curvature is None else model._replace(smoothness=lambda bound: curvature * bound**2)


def moreau(model: Model, beta: float, *, steps: int = 50) -> Model:
    """The Moreau envelope of any model's record losses; the prox v* is found by subgradient steps.

    h(v) = f(v) + (beta/2) ||w - v||^2 is beta-strongly convex. With steps 2 / (beta (k + 2)) and the mean of the
    iterates weighted by k + 1, ||v - v*||^2 <= 4 L^2 / (beta^2 (steps + 1)), so the gradient beta (w - v) is off by at
    most 2 L / sqrt(steps + 1). The error affects accuracy, not privacy: each record's gradient is clipped afterwards.
    """
    require(beta > 0, "beta", beta, "must be positive")
    require(steps >= 1, "steps", steps, "must be at least 1")

    def envelope(w: Params, record: Batch) -> Array:
        def distance(v: Params) -> Array:
            squares: list[Array] = jax.tree.leaves(jax.tree.map(lambda a, b: jnp.sum((a - b) ** 2), w, v))
            return functools.reduce(jnp.add, squares)

        def h(v: Params) -> Array:
            return model.loss(v, record) + beta / 2 * distance(v)

        def step(carry: tuple[Params, Params], k: Array) -> tuple[tuple[Params, Params], None]:
            v, mean = carry
            share = 2.0 / (k + 2.0)  # the weight of v_k among k' = 0, ..., k, in proportion to k' + 1
            mean = jax.tree.map(lambda a, b: a + share * (b - a), mean, v)
            v = jax.tree.map(lambda a, g: a - 2.0 / (beta * (k + 2.0)) * g, v, jax.grad(h)(v))
            return (v, mean), None

        (_, v), _ = jax.lax.scan(step, (w, w), jnp.arange(steps))
        v = jax.lax.stop_gradient(v)
        return model.loss(v, record) + beta / 2 * distance(v)

    def loss(params: Params, batch: Batch) -> Array:
        def one(x: Array, y: Array) -> Array:
            return envelope(params, Batch(x[None], y[None], jnp.ones(1)))

        return weighted_mean(jax.vmap(one)(batch.x, batch.y), batch.weight)

    return from_loss(model.init, loss, model.predict, f"{model.name}, smoothed")._replace(smoothness=lambda _: beta)


def _huber(r: Array, rho: Array) -> Array:
    """min_u u + (rho/2) (r - u)^2 over u >= 0, for r >= 0."""
    return jnp.where(r * rho <= 1, rho * r**2 / 2, r - 1 / (2 * rho))
