"""ResNet-20 for small colour images (He, Zhang, Ren and Sun 2016, Section 4.2), shortcuts without parameters.

Weights start normal with the variance 2 / fan_in of He et al. 2015, also in the last layer. Images are padded by one
pixel of zeros, so that where the width doubles the centre of a kernel lies on the pixel that the shortcut keeps.

Running averages of batch statistics, averaged by the server, would be one more message computed from private data,
without bound or noise. This network therefore keeps none:

    norm = "group"  (default) statistics of one record, which does not depend on other records
    norm = "batch"  statistics of the current batch, which in training belongs to one client and never leaves it;
                    `predict` uses the batch that it is given, so evaluate large mixed batches. The gradient of a
                    record depends on the others in its batch: no claims about records, only about clients

    dtype = "bfloat16"  layers compute in bfloat16, statistics in float32; parameters, and so messages, stay float32
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from sordino.errors import require
from sordino.models._convolution import conv2d
from sordino.models._normalization import Norm, by_batch, identity
from sordino.models.mlp import Dense, dense
from sordino.models.model import Array, Model, classifier
from sordino.types import Key

WIDTHS = (16, 32, 64)
BLOCKS = 3  # of two convolutions each, at every width: 3 x 3 x 2 + the first + the last = 20 layers
GROUPS = 8
CHUNK = 500  # records in one step of predict


class Block(NamedTuple):
    """x -> relu(x + norm(conv(relu(norm(conv(x))))))."""

    kernel1: Array
    norm1: Norm
    kernel2: Array
    norm2: Norm


class ResNet20(NamedTuple):
    """All parameters: d = 269,722 for CIFAR-10."""

    kernel: Array
    norm: Norm
    blocks: tuple[Block, ...]
    dense: Dense


def resnet20(
    input_shape: tuple[int, ...],
    classes: int,
    norm: Literal["group", "batch"] = "group",
    dtype: Literal["float32", "bfloat16"] = "float32",
) -> Model:
    """Return the network for images [height, width, channels]."""
    valid = len(input_shape) == 3 and min(input_shape[:2]) >= 4
    require(valid, "input_shape", input_shape, "resnet20 takes [height, width, channels], such as (32, 32, 3)")
    require(norm in ("group", "batch"), "norm", norm, "use 'group' or 'batch'")
    require(dtype in ("float32", "bfloat16"), "dtype", dtype, "use 'float32' or 'bfloat16'")

    def init(key: Key) -> ResNet20:
        key_first, key_dense, key_blocks = jax.random.split(key, 3)
        widths = [width for width in WIDTHS for _ in range(BLOCKS)]
        inputs = [WIDTHS[0], *widths[:-1]]
        blocks = zip(jax.random.split(key_blocks, len(widths)), inputs, widths, strict=True)
        return ResNet20(
            _kernel(key_first, input_shape[2], WIDTHS[0]),
            identity(WIDTHS[0]),
            tuple(_block(k, before, after) for k, before, after in blocks),
            _last(key_dense, WIDTHS[-1], classes),
        )

    def logits(params: ResNet20, x: Array, weight: Array) -> Array:
        return scores(params, x, _by_group if norm == "group" else lambda x: by_batch(x, weight), dtype)

    chunk = CHUNK if norm == "group" else None
    options = (norm, dtype) if dtype != "float32" else (norm,) if norm != "group" else ()
    name = ":".join(["resnet20", *[",".join(options)] * bool(options)])
    return classifier(init, logits, name, input_shape=input_shape, chunk=chunk)


def scores(params: ResNet20, x: Array, standardize: Callable[[Array], Array], dtype: str = "float32") -> Array:
    """Logits; `standardize` gives the output of a convolution [C, H, W, N] mean 0 and variance 1."""
    wide = params.kernel.dtype
    narrow = jnp.bfloat16 if dtype == "bfloat16" else wide

    def layer(x: Array, kernel: Array, n: Norm, stride: int = 1) -> Array:
        standard = standardize(conv2d(x, kernel.astype(narrow), stride=stride, padding=1).astype(wide))
        return (n.scale[:, None, None, None] * standard + n.shift[:, None, None, None]).astype(narrow)

    x = x.transpose(3, 1, 2, 0).astype(narrow)
    x = jax.nn.relu(layer(x, params.kernel, params.norm))
    for block in params.blocks:
        shortcut = _shortcut(x, block.kernel1.shape[-1])
        stride = 1 if shortcut is x else 2
        x = jax.nn.relu(layer(x, block.kernel1, block.norm1, stride))
        x = jax.nn.relu(layer(x, block.kernel2, block.norm2) + shortcut)
    return params.dense(jnp.mean(x.astype(wide), axis=(1, 2)).T)


def _shortcut(x: Array, channels: int) -> Array:
    """x itself or, if the width doubles, every second pixel with channels of zeros on both sides."""
    extra = channels - x.shape[0]
    if extra == 0:
        return x
    return jnp.pad(x[:, ::2, ::2], ((extra // 2, extra - extra // 2), (0, 0), (0, 0), (0, 0)))


def _by_group(x: Array) -> Array:
    """Mean 0 and variance 1 over the pixels of a group of channels, one record at a time."""
    groups = x.reshape(GROUPS, -1, *x.shape[1:])
    mean = jnp.mean(groups, axis=(1, 2, 3), keepdims=True)
    variance = jnp.var(groups, axis=(1, 2, 3), keepdims=True)
    return ((groups - mean) * jax.lax.rsqrt(variance + 1e-5)).reshape(x.shape)


def _block(key: Key, inputs: int, outputs: int) -> Block:
    key1, key2 = jax.random.split(key)
    return Block(_kernel(key1, inputs, outputs), identity(outputs), _kernel(key2, outputs, outputs), identity(outputs))


def _kernel(key: Key, inputs: int, outputs: int) -> Array:
    return _he(key, (3, 3, inputs, outputs), 9 * inputs)


def _last(key: Key, inputs: int, outputs: int) -> Dense:
    """A dense layer whose weights start like the kernels."""
    key_weight, _ = jax.random.split(key)
    return dense(key, inputs, outputs)._replace(weight=_he(key_weight, (outputs, inputs), inputs))


def _he(key: Key, shape: tuple[int, ...], fan_in: int) -> Array:
    """Normal with the variance 2 / fan_in of He et al. 2015."""
    return math.sqrt(2 / fan_in) * jax.random.normal(key, shape, jnp.float32)
