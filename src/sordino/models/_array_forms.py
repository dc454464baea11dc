"""Pools, reshapes and elementwise operations in the order of axes of a convolution: forms for `_product_form`."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn

from sordino.models._convolution import largest_along
from sordino.models._orders import Array, Faster, Order, in_order, is_batch, records_last, shaped

ELEMENTWISE = [
    "abs",
    "add",
    "add_any",
    "and",
    "clamp",
    "convert_element_type",
    "copy",
    "cos",
    "div",
    "eq",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "ge",
    "gt",
    "integer_pow",
    "is_finite",
    "le",
    "log",
    "log1p",
    "logistic",
    "lt",
    "max",
    "min",
    "mul",
    "ne",
    "neg",
    "not",
    "or",
    "pow",
    "rsqrt",
    "select_n",
    "sign",
    "sin",
    "sqrt",
    "square",
    "stop_gradient",
    "sub",
    "tanh",
]


def pool_of(step: JaxprEqn, order: Order | None) -> Faster | None:
    """The largest element of every window, where windows lie side by side."""
    p = step.params
    window, x = tuple(p["window_dimensions"]), shaped(step.invars[0])
    ones = {*p["base_dilation"], *p["window_dilation"]} <= {1}
    if tuple(p["window_strides"]) != window or not ones or x.dtype != jnp.float32 or math.prod(window) > 16:
        return None
    if any(side != (0, 0) for side in p["padding"]):
        return None
    if not is_batch(x.shape) or window[0] > 1:
        return Faster(functools.partial(largest, window=window), None)
    order = order or records_last(x.shape)
    return Faster(in_order(functools.partial(largest, window=tuple(window[axis] for axis in order)), order), order)


def maximum_of(step: JaxprEqn, order: Order | None) -> Faster | None:
    """The largest element along short axes."""
    x, axes = shaped(step.invars[0]), tuple(step.params["axes"])
    elements = math.prod(x.shape[axis] for axis in axes)
    if not is_batch(x.shape) or 0 in axes or x.dtype != jnp.float32 or not 0 < elements <= 16:
        return None
    order = order or records_last(x.shape)
    left = [axis for axis in order if axis not in axes]
    after = tuple(sorted(left).index(axis) for axis in left)
    places = tuple(order.index(axis) for axis in axes)
    return Faster(in_order(functools.partial(largest_along, axes=places), order, after), after)


def reshape_of(step: JaxprEqn, order: Order | None) -> Faster | None:
    """The same reshape of each record."""
    old, new = shaped(step.invars[0]).shape, tuple(step.params["new_sizes"])
    plain = len(step.invars) == 1 and step.params["dimensions"] is None
    if not (plain and is_batch(old) and is_batch(new) and old[0] == new[0]):
        return None
    parts = _parts(old, new)
    if order is None or parts is None:
        order, after = records_last(old), records_last(new)
    else:
        after = tuple(itertools.chain.from_iterable(parts[axis] for axis in order))
    sizes = tuple(new[axis] for axis in after)
    return Faster(in_order(lambda x: x.reshape(sizes), order, after), after)


def _parts(old: Sequence[int], new: Sequence[int]) -> list[list[int]] | None:
    """The new axes that each old one is cut into, or None where old axes are joined."""
    parts: list[list[int]] = []
    left = list(range(len(new)))
    for size in old:
        part = [left.pop(0)] if left else []
        while left and math.prod(new[axis] for axis in part) < size:
            part.append(left.pop(0))
        if not part or math.prod(new[axis] for axis in part) != size:
            return None
        parts.append(part)
    return None if left else parts


def transposed(step: JaxprEqn, order: Order | None) -> Faster | None:
    """The values lie as before, under other names of the axes."""
    names = step.params["permutation"]
    return None if order is None else Faster(None, tuple(names.index(axis) for axis in order))


def elementwise(step: JaxprEqn, order: Order | None) -> Faster | None:
    """The same in the order in which an argument lies."""
    if order is None or len(shaped(step.outvars[0]).shape) != len(order):
        return None
    return Faster(in_order(functools.partial(step.primitive.bind, **step.params), order), order)


def relu_of(step: JaxprEqn, order: Order | None) -> Faster | None:
    """`jax.nn.relu`, whose derivative is its own; somebody else's function of that kind stays."""
    if order is None or step.params["call_jaxpr"].jaxpr.debug_info.func_src_info != _source_of_relu():
        return None
    return Faster(in_order(jax.nn.relu, order), order)


@functools.cache
def _source_of_relu() -> str:
    (step,) = jax.make_jaxpr(jax.nn.relu)(jnp.float32(0)).jaxpr.eqns
    return str(step.params["call_jaxpr"].jaxpr.debug_info.func_src_info)


def largest(x: Array, window: tuple[int, ...]) -> Array:
    """The largest element of each window, in the order of its elements; an incomplete edge is left out."""
    whole = [size // width for size, width in zip(x.shape, window, strict=True)]
    places = itertools.product(*(range(width) for width in window))
    parts = [
        lax.slice(x, place, [p + (n - 1) * w + 1 for p, n, w in zip(place, whole, window, strict=True)], window)
        for place in places
    ]
    return functools.reduce(_larger, parts)


def _larger(a: Array, b: Array) -> Array:
    """The larger one, and the first of two equal ones, which gets the whole gradient; NaN if one is."""
    return jnp.where((a >= b) | jnp.isnan(a), a, b)
