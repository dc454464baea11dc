"""Multinomial logistic regression: one affine map that starts at zero, with a convex loss."""

from __future__ import annotations

import math

import jax.numpy as jnp

from sordino.models.mlp import Dense
from sordino.models.model import Array, Linear, Model, classifier, loss_of_scores
from sordino.types import Key


def logistic(input_shape: tuple[int, ...], classes: int) -> Model:
    """Return softmax regression on the flattened record, d = (inputs + 1) classes."""
    inputs = math.prod(input_shape)

    def init(key: Key) -> Dense:
        del key  # deterministic: start at zero
        return Dense(jnp.zeros((classes, inputs), jnp.float32), jnp.zeros(classes, jnp.float32))

    def logits(params: Dense, x: Array, weight: Array) -> Array:
        del weight
        return params(features(x))

    def features(x: Array) -> Array:
        return x.reshape(len(x), inputs).astype(jnp.float32)

    model = classifier(init, logits, "logistic", input_shape=input_shape)
    # The Hessian of softmax regression is (diag(p) - p p^T) (x) (x, 1)(x, 1)^T, and the first factor is at most 1/2.
    return model._replace(linear=Linear(features, loss_of_scores), smoothness=lambda bound: (bound**2 + 1) / 2)
