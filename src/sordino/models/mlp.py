"""Fully connected network with ReLU between its layers.

Weights and biases start uniform on (-1/sqrt(fan_in), 1/sqrt(fan_in)), PyTorch's default, which the papers used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp

from sordino.errors import require
from sordino.models.model import Array, Model, classifier
from sordino.types import Key

__all__ = ["Dense", "dense", "mlp", "uniform"]


class Dense(NamedTuple):
    """x -> x W^T + b. With outputs first, many models on the same x are one matrix product without copies."""

    weight: Array  # [outputs, inputs]
    bias: Array  # [outputs]

    def __call__(self, x: Array) -> Array:
        """Map a batch."""
        return x @ self.weight.T + self.bias


def uniform(key: Key, shape: tuple[int, ...], fan_in: int) -> Array:
    """Uniform on (-1/sqrt(fan_in), 1/sqrt(fan_in))."""
    limit = 1 / math.sqrt(fan_in)
    return jax.random.uniform(key, shape, jnp.float32, -limit, limit)


def dense(key: Key, inputs: int, outputs: int) -> Dense:
    """Return a layer with random weights and biases."""
    key_weight, key_bias = jax.random.split(key)
    return Dense(uniform(key_weight, (outputs, inputs), inputs), uniform(key_bias, (outputs,), inputs))


def mlp(input_shape: tuple[int, ...], classes: int, hidden: Sequence[int] = ()) -> Model:
    """Return the network inputs - hidden[0] - ... - classes on the flattened record."""
    hidden = tuple(hidden)
    valid = bool(hidden) and all(isinstance(size, int) and size > 0 for size in hidden)
    require(valid, "hidden", hidden, "give one positive size a hidden layer, as in 'mlp:300,300'")
    sizes = (math.prod(input_shape), *hidden, classes)

    def init(key: Key) -> tuple[Dense, ...]:
        keys = jax.random.split(key, len(sizes) - 1)
        return tuple(dense(k, inputs, outputs) for k, (inputs, outputs) in zip(keys, pairwise(sizes), strict=True))

    def logits(params: tuple[Dense, ...], x: Array, weight: Array) -> Array:
        del weight
        x = x.reshape(len(x), sizes[0])
        for layer in params[:-1]:
            x = jax.nn.relu(layer(x))
        return params[-1](x)

    return classifier(init, logits, "mlp:" + ",".join(map(str, hidden)), input_shape=input_shape)
