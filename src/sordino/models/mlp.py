"""Fully connected network with ReLU between its layers.

Weights and biases start uniform on (-1/sqrt(fan_in), 1/sqrt(fan_in)), PyTorch's default, which the papers used.

    norm = "none"   (default)
    norm = "batch"  hidden layers are standardised by the statistics of the current batch; as for resnet20, these never
                    leave a client, and there are no claims about records
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from sordino.errors import require
from sordino.models._normalization import Norm, by_batch, identity
from sordino.models.model import Array, Model, classifier
from sordino.types import Key


class Dense(NamedTuple):
    """x -> x W^T + b. With outputs first, many models on the same x are one matrix product without copies."""

    weight: Array  # [outputs, inputs]
    bias: Array  # [outputs]

    def __call__(self, x: Array) -> Array:
        return x @ self.weight.T + self.bias


def uniform(key: Key, shape: tuple[int, ...], fan_in: int) -> Array:
    """Uniform on (-1/sqrt(fan_in), 1/sqrt(fan_in))."""
    limit = 1 / math.sqrt(fan_in)
    return jax.random.uniform(key, shape, jnp.float32, -limit, limit)


def dense(key: Key, inputs: int, outputs: int) -> Dense:
    """Return a layer with random weights and biases."""
    key_weight, key_bias = jax.random.split(key)
    return Dense(uniform(key_weight, (outputs, inputs), inputs), uniform(key_bias, (outputs,), inputs))


def dense_layers(key: Key, sizes: Sequence[int]) -> tuple[Dense, ...]:
    """Return layers from each size to the next, with random weights and biases."""
    keys = jax.random.split(key, len(sizes) - 1)
    return tuple(dense(k, inputs, outputs) for k, (inputs, outputs) in zip(keys, pairwise(sizes), strict=True))


class Normed(NamedTuple):
    """x -> norm(x W^T) over a batch, without a bias, which standardising would remove."""

    weight: Array  # [outputs, inputs]
    norm: Norm

    def __call__(self, x: Array, record_weight: Array) -> Array:
        return self.norm.scale * by_batch((x @ self.weight.T).T, record_weight).T + self.norm.shift


def mlp(
    input_shape: tuple[int, ...], classes: int, hidden: Sequence[int] = (), norm: Literal["none", "batch"] = "none"
) -> Model:
    """Return the network inputs - hidden[0] - ... - classes on the flattened record."""
    hidden = tuple(hidden)
    valid = bool(hidden) and all(isinstance(size, int) and size > 0 for size in hidden)
    require(valid, "hidden", hidden, "give one positive size for each hidden layer, as in 'mlp:300,300'")
    require(norm in ("none", "batch"), "norm", norm, "use 'none' or 'batch'")
    sizes = (math.prod(input_shape), *hidden, classes)

    def init(key: Key) -> tuple[Dense | Normed, ...]:
        layers = dense_layers(key, sizes)
        if norm == "none":
            return layers
        return (*(Normed(layer.weight, identity(len(layer.bias))) for layer in layers[:-1]), layers[-1])

    def logits(params: tuple[Any, ...], x: Array, weight: Array) -> Array:
        x = x.reshape(len(x), sizes[0])
        *before, last = params
        for layer in before:
            x = jax.nn.relu(layer(x) if norm == "none" else layer(x, weight))
        scores: Array = last(x)
        return scores

    name = "mlp:" + ",".join(map(str, hidden)) + (",batch" if norm == "batch" else "")
    return classifier(init, logits, name, input_shape=input_shape)
