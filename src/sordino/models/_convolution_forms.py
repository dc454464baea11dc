"""Convolutions of somebody's own loss as matrix products, or as Sordino's own layer: forms for `_product_form`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn

from sordino.models._convolution import conv2d, conv2d_by, shifts_of
from sordino.models._orders import RECORDS, Array, Faster, Order, shaped

KEPT = 2**24  # bytes of patches that are made at once and kept for the gradients
PIECE = 2**22  # of larger ones, bytes that are made at a time


def product_of(step: JaxprEqn, order: Order | None) -> Faster | None:
    """The convolution as a product, or None where it has to stay."""
    if not _is_plain(step):
        return None
    layout, x = step.params["dimension_numbers"], shaped(step.invars[0])
    innermost = len(x.shape) == 4 and x.shape[layout.lhs_spec[0]] >= RECORDS
    records, channels, *space = layout.out_spec
    return Faster(functools.partial(convolution, **_settings(step)), (channels, *space, records) if innermost else None)


def layer_of(step: JaxprEqn, order: Order | None) -> Faster | None:
    """The convolution as Sordino's own layer, which copies patches: None where they are many, or it has to stay."""
    p, (x, kernel, out) = step.params, map(shaped, (*step.invars, step.outvars[0]))
    if not _is_plain(step) or len(x.shape) != 4 or len(set(p["window_strides"])) > 1 or set(p["rhs_dilation"]) != {1}:
        return None
    outputs = kernel.shape[p["dimension_numbers"].rhs_spec[0]]
    if math.prod(out.shape) // outputs * math.prod(kernel.shape) // outputs * x.dtype.itemsize > KEPT:
        return None
    return Faster(functools.partial(convolution, **_settings(step), product=conv2d), None)


def _is_plain(step: JaxprEqn) -> bool:
    """Whether this is a convolution without groups and gaps between its inputs, of float32."""
    p, values = step.params, [shaped(value) for value in (*step.invars, step.outvars[0])]
    plain = p["feature_group_count"] == p["batch_group_count"] == 1 and set(p["lhs_dilation"]) <= {1}
    default = p["precision"] is None or set(p["precision"]) == {lax.Precision.DEFAULT}
    single = all(value.dtype == jnp.float32 and 0 not in value.shape for value in values)
    return plain and default and single


def _settings(step: JaxprEqn) -> dict[str, Any]:
    p = step.params
    return {
        "strides": tuple(p["window_strides"]),
        "padding": tuple(p["padding"]),
        "dilation": tuple(p["rhs_dilation"]),
        "layout": p["dimension_numbers"],
    }


def convolution(
    x: Array,
    kernel: Array,
    *,
    strides: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    dilation: tuple[int, ...],
    layout: lax.ConvDimensionNumbers,
    product: Callable[..., Array] | None = None,
) -> Array:
    """What `lax.conv_general_dilated` gives for these arguments; `product` is a layer to take for it."""
    records_first = (layout.lhs_spec[0], *layout.lhs_spec[2:], layout.lhs_spec[1])
    outputs_last = (*layout.rhs_spec[2:], layout.rhs_spec[1], layout.rhs_spec[0])
    x, kernel = x.transpose(records_first), kernel.transpose(outputs_last)
    x = lax.pad(x, jnp.float32(0), [(0, 0, 0), *((low, high, 0) for low, high in padding), (0, 0, 0)])
    if product is not None:
        out = product(x.transpose(3, 1, 2, 0), kernel, stride=strides[0]).transpose(3, 1, 2, 0)
    else:
        out = _in_pieces(x, kernel, strides, dilation)
    front = (0, out.ndim - 1, *range(1, out.ndim - 1))  # records, outputs, space
    place = [0] * out.ndim
    for axis, target in zip(front, layout.out_spec, strict=True):
        place[target] = axis
    return out.transpose(place)


def _in_pieces(x: Array, kernel: Array, strides: tuple[int, ...], dilation: tuple[int, ...]) -> Array:
    """[N, space, C], kernel [window, C, O] -> [N, space, O], all records at once or some at a time."""
    if x.ndim == 4 and len(x) >= RECORDS and len(set(strides)) == 1 and set(dilation) == {1}:
        product = functools.partial(_records_innermost, kernel=kernel, stride=strides[0])
    else:
        product = functools.partial(_times, kernel=kernel, strides=strides, dilation=dilation)
    out = jax.eval_shape(product, x)
    patches = out.size // kernel.shape[-1] * math.prod(kernel.shape[:-1]) * x.dtype.itemsize
    return product(x) if patches <= KEPT else _by_pieces(product, x, len(x) * PIECE // patches)


def _by_pieces(product: Callable[[Array], Array], x: Array, length: int) -> Array:
    """product(x), about `length` records at a time."""
    length = max(RECORDS, length)
    pieces = -(-len(x) // length)
    padded = jnp.pad(x, ((0, pieces * length - len(x)), *((0, 0) for _ in x.shape[1:])))
    out = lax.map(jax.checkpoint(product), padded.reshape(pieces, length, *x.shape[1:]))
    return out.reshape(pieces * length, *out.shape[2:])[: len(x)]


def _records_innermost(x: Array, kernel: Array, stride: int) -> Array:
    """[N, H, W, C], kernel [kh, kw, C, O] -> [N, H', W', O]."""
    return conv2d_by(jnp.matmul, x.transpose(3, 1, 2, 0), kernel, stride=stride).transpose(3, 1, 2, 0)


def _times(x: Array, kernel: Array, strides: tuple[int, ...], dilation: tuple[int, ...]) -> Array:
    """[N, space, C], kernel [window, C, O] -> [N, space, O]."""
    patches = _patches(x, kernel.shape[:-2], strides, dilation)
    outputs = kernel.shape[-1]
    return (patches.reshape(-1, patches.shape[-1]) @ kernel.reshape(-1, outputs)).reshape(*patches.shape[:-1], outputs)


def _patches(x: Array, window: Sequence[int], strides: Sequence[int], dilation: Sequence[int]) -> Array:
    """[N, space, C] -> [N, space, window x C]: along one axis after the other, the last one first."""
    for axis in reversed(range(len(window))):
        shifted = shifts_of(x, window[axis], strides[axis], axis + 1, dilation[axis])
        x = jnp.concatenate(shifted, axis=-1)
    return x
