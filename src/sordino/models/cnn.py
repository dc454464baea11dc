"""The two convolutional networks of DP-FedEXP for 28 x 28 images (Takakura et al., Table 3).

    cnn        conv 4 (4x4) - pool 2 - conv 8 (4x4) - pool 2 - 128 - 32 - ReLU - 10     d = 5046, central
    cnn_small  conv 2 (4x4) - pool 2 - conv 1 (4x4) - pool 2 -  16 - 10                 d =  237, local

No activation follows a convolution, as the table prints; the max pool is the nonlinearity there.
"""

from __future__ import annotations

from typing import NamedTuple

import jax

from sordino.errors import require
from sordino.models._convolution import conv2d, max_pool2d
from sordino.models.mlp import Dense, dense_layers, uniform
from sordino.models.model import Array, Model, classifier
from sordino.types import Key

SIDE, KERNEL, POOLED = 28, 4, 4  # 28 -conv-> 25 -pool-> 12 -conv-> 9 -pool-> 4
CHUNK = 500  # records in one step of predict


class Conv(NamedTuple):
    """A convolution."""

    kernel: Array  # [height, width, inputs, outputs]
    bias: Array  # [outputs]


class CNN(NamedTuple):
    """Two convolutions and one or two dense layers."""

    first: Conv
    second: Conv
    dense: tuple[Dense, ...]


def cnn(input_shape: tuple[int, ...], classes: int) -> Model:
    """Return the larger network, d = 5046 with 10 classes."""
    return _network("cnn", input_shape, channels=(4, 8), hidden=(32,), classes=classes)


def cnn_small(input_shape: tuple[int, ...], classes: int) -> Model:
    """Return the smaller network, d = 237 with 10 classes."""
    return _network("cnn-small", input_shape, channels=(2, 1), hidden=(), classes=classes)


def _network(
    name: str, input_shape: tuple[int, ...], *, channels: tuple[int, int], hidden: tuple[int, ...], classes: int
) -> Model:
    shapes = ((SIDE, SIDE), (SIDE, SIDE, 1), (1, SIDE, SIDE), (SIDE * SIDE,))  # the same numbers in the same order
    remedy = f"{name} takes grey 28 x 28 images: reshape to (28, 28), or use mlp, logistic or resnet20"
    require(input_shape in shapes, "input_shape", input_shape, remedy)
    sizes = (channels[1] * POOLED * POOLED, *hidden, classes)

    def init(key: Key) -> CNN:
        key_first, key_second, key_dense = jax.random.split(key, 3)
        first, second = _conv(key_first, 1, channels[0]), _conv(key_second, *channels)
        return CNN(first, second, dense_layers(key_dense, sizes))

    def logits(params: CNN, x: Array, weight: Array) -> Array:
        del weight
        x = x.reshape(len(x), 1, SIDE, SIDE).transpose(1, 2, 3, 0)
        x = max_pool2d(conv2d(x, *params.first))
        x = max_pool2d(conv2d(x, *params.second))
        x = x.reshape(sizes[0], -1).T
        for layer in params.dense[:-1]:
            x = jax.nn.relu(layer(x))
        return params.dense[-1](x)

    return classifier(init, logits, name, input_shape=input_shape, chunk=CHUNK)


def _conv(key: Key, inputs: int, outputs: int) -> Conv:
    key_kernel, key_bias = jax.random.split(key)
    fan_in = KERNEL * KERNEL * inputs
    return Conv(uniform(key_kernel, (KERNEL, KERNEL, inputs, outputs), fan_in), uniform(key_bias, (outputs,), fan_in))
