"""Convolutions and max pools of somebody's own loss, in a form that is fast for clients with different weights.

XLA's own convolution is slow on a CPU where it has no fast kernel, above all for the gradient of the weights, and as a
grouped convolution under `vmap`. `product_form` traces a loss and puts other operations with the same values in place
of these:

    lax.conv_general_dilated    patches times kernel (im2col): one matrix product, forward and for both gradients
    lax.reduce_window, max      comparisons of the elements of windows that do not overlap; of equal ones the first gets
                                the gradient, as before
    x.max(axes), short axes     the same where a reshape cut images into windows; equal ones share the gradient

The records of a batch lie innermost in between, as in `conv2d`, so that every loop is long and contiguous: what comes
after a convolution, element by element, works in the order of axes in which the convolution leaves its result. Patches
that exceed a cache are made for a few records at a time, and made anew for the gradients instead of being kept.

A loss without convolutions runs as it is, and so does whatever has no such form: transposed, grouped and
mixed-precision convolutions, overlapping pools, and functions with derivatives of their own. On accelerators
convolutions of few patches become `conv2d`, Sordino's own layer, and nothing else changes. Under the debug engine every
loss runs as it was written.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

from sordino.models._convolution import conv2d, conv2d_by, largest_along, shifts_of

Array: TypeAlias = jax.Array
Loss: TypeAlias = Callable[..., Array]
Order: TypeAlias = tuple[int, ...]  # the axes of a value as they lie in memory, records last

RECORDS = 8  # so many of a batch, or more, lie innermost
KEPT = 2**24  # bytes of patches that are made at once and kept for the gradients
PIECE = 2**22  # of larger ones, bytes that are made at a time


def product_form(loss: Loss) -> Loss:
    """The same loss with its convolutions in a form that is fast for clients on this kind of device."""

    @functools.wraps(loss)
    def rewritten(*args: Any) -> Array:
        debugged = jax.config.jax_disable_jit  # type: ignore[attr-defined]
        if debugged:
            return loss(*args)
        traced = jax.make_jaxpr(loss)(*args)
        if not _convolves(traced.jaxpr):
            return loss(*args)
        forms = ON_A_CPU if jax.default_backend() == "cpu" else ON_AN_ACCELERATOR
        faster, _ = _rewritten(traced.jaxpr, (), forms)
        if faster is traced.jaxpr:
            return loss(*args)
        (value,) = jaxpr_as_fun(ClosedJaxpr(faster, traced.consts))(*jax.tree.leaves(args))
        return value

    return rewritten


def _convolves(program: Jaxpr) -> bool:
    """Whether there is a convolution in the program, also inside of loops, branches and compiled functions."""
    inside = (value for step in program.eqns for value in jax.tree.leaves(step.params, is_leaf=_is_program))
    return any(step.primitive.name == "conv_general_dilated" for step in program.eqns) or any(
        _convolves(value.jaxpr if isinstance(value, ClosedJaxpr) else value) for value in inside if _is_program(value)
    )


def _is_program(value: Any) -> bool:
    return isinstance(value, ClosedJaxpr | Jaxpr)


class Faster(NamedTuple):
    """An operation in its other form, None where it stays, and the order of axes in which it leaves its result."""

    form: Callable[..., Array] | None
    order: Order | None


Forms: TypeAlias = Mapping[str, Callable[[JaxprEqn, Order | None], Faster | None]]  # by the names of operations


def _rewritten(program: Jaxpr, given: Sequence[Order | None], forms: Forms) -> tuple[Jaxpr, list[Order | None]]:
    """The program with other forms of its operations, itself where none has one; and how its results lie.

    `given` says how its arguments lie.
    """
    orders: dict[Var, Order | None] = dict(zip(program.invars, given, strict=False))
    steps = []
    for step in program.eqns:
        before = [None if isinstance(value, Literal) else orders.get(value) for value in step.invars]
        faster, after = _faster(step, before, forms)
        steps.append(faster)
        orders |= dict(zip(step.outvars, after, strict=False))
    same = all(new is old for new, old in zip(steps, program.eqns, strict=True))
    left = [None if isinstance(value, Literal) else orders.get(value) for value in program.outvars]
    return program if same else program.replace(eqns=steps), left


def _faster(step: JaxprEqn, before: Sequence[Order | None], forms: Forms) -> tuple[JaxprEqn, Sequence[Order | None]]:
    """One operation in its other form, also inside of loops, branches and compiled functions."""
    name = step.primitive.name
    if name in forms and (faster := forms[name](step, next(filter(None, before), None))) is not None:
        return step if faster.form is None else _compiled(faster.form, step), [faster.order]
    if name == "jit":
        inside, after = _rewritten(step.params["jaxpr"].jaxpr, before, forms)
        if inside is step.params["jaxpr"].jaxpr:
            return step, after
        return step.replace(params=step.params | {"jaxpr": ClosedJaxpr(inside, step.params["jaxpr"].consts)}), after
    if name.startswith("custom_"):
        return step, []
    inner, structure = jax.tree.flatten(step.params, is_leaf=_is_program)
    new = [_rewritten_inside(value, forms) for value in inner]
    if all(a is b for a, b in zip(new, inner, strict=True)):
        return step, []
    return step.replace(params=jax.tree.unflatten(structure, new)), []


def _compiled(form: Callable[..., Array], step: JaxprEqn) -> JaxprEqn:
    (compiled,) = jax.make_jaxpr(jax.jit(form))(*(value.aval for value in step.invars)).jaxpr.eqns
    return compiled.replace(invars=step.invars, outvars=step.outvars)


def _rewritten_inside(value: Any, forms: Forms) -> Any:
    if isinstance(value, ClosedJaxpr):
        faster, _ = _rewritten(value.jaxpr, (), forms)
        return value if faster is value.jaxpr else ClosedJaxpr(faster, value.consts)
    return _rewritten(value, (), forms)[0] if isinstance(value, Jaxpr) else value


def _shaped(value: Any) -> jax.ShapeDtypeStruct:
    """Shape and type of a value of a program."""
    return jax.ShapeDtypeStruct(value.aval.shape, value.aval.dtype)


# Convolutions


def _product_of(step: JaxprEqn, order: Order | None) -> Faster | None:
    """The convolution as a product, or None where it has to stay."""
    if not _is_plain(step):
        return None
    layout, x = step.params["dimension_numbers"], _shaped(step.invars[0])
    innermost = len(x.shape) == 4 and x.shape[layout.lhs_spec[0]] >= RECORDS
    records, channels, *space = layout.out_spec
    return Faster(functools.partial(convolution, **_settings(step)), (channels, *space, records) if innermost else None)


def _layer_of(step: JaxprEqn, order: Order | None) -> Faster | None:
    """The convolution as Sordino's own layer, which copies patches: None where they are many, or it has to stay."""
    p, (x, kernel, out) = step.params, map(_shaped, (*step.invars, step.outvars[0]))
    if not _is_plain(step) or len(x.shape) != 4 or len(set(p["window_strides"])) > 1 or set(p["rhs_dilation"]) != {1}:
        return None
    outputs = kernel.shape[p["dimension_numbers"].rhs_spec[0]]
    if math.prod(out.shape) // outputs * math.prod(kernel.shape) // outputs * x.dtype.itemsize > KEPT:
        return None
    return Faster(functools.partial(convolution, **_settings(step), product=conv2d), None)


def _is_plain(step: JaxprEqn) -> bool:
    """Whether this is a convolution without groups and gaps between its inputs, of float32."""
    p, values = step.params, [_shaped(value) for value in (*step.invars, step.outvars[0])]
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


# Pools, and the reshapes before them


def _pool_of(step: JaxprEqn, order: Order | None) -> Faster | None:
    """The largest element of every window, where windows lie side by side."""
    p = step.params
    window, x = tuple(p["window_dimensions"]), _shaped(step.invars[0])
    ones = {*p["base_dilation"], *p["window_dilation"]} <= {1}
    if tuple(p["window_strides"]) != window or not ones or x.dtype != jnp.float32 or math.prod(window) > 16:
        return None
    if any(side != (0, 0) for side in p["padding"]):
        return None
    if not _is_batch(x.shape) or window[0] > 1:
        return Faster(functools.partial(largest, window=window), None)
    order = order or _records_last(x.shape)
    return Faster(_in_order(functools.partial(largest, window=tuple(window[axis] for axis in order)), order), order)


def _maximum_of(step: JaxprEqn, order: Order | None) -> Faster | None:
    """The largest element along short axes."""
    x, axes = _shaped(step.invars[0]), tuple(step.params["axes"])
    elements = math.prod(x.shape[axis] for axis in axes)
    if not _is_batch(x.shape) or 0 in axes or x.dtype != jnp.float32 or not 0 < elements <= 16:
        return None
    order = order or _records_last(x.shape)
    left = [axis for axis in order if axis not in axes]
    after = tuple(sorted(left).index(axis) for axis in left)
    places = tuple(order.index(axis) for axis in axes)
    return Faster(_in_order(functools.partial(largest_along, axes=places), order, after), after)


def _reshape_of(step: JaxprEqn, order: Order | None) -> Faster | None:
    """The same reshape of each record."""
    old, new = _shaped(step.invars[0]).shape, tuple(step.params["new_sizes"])
    plain = len(step.invars) == 1 and step.params["dimensions"] is None
    if not (plain and _is_batch(old) and _is_batch(new) and old[0] == new[0]):
        return None
    parts = _parts(old, new)
    if order is None or parts is None:
        order, after = _records_last(old), _records_last(new)
    else:
        after = tuple(itertools.chain.from_iterable(parts[axis] for axis in order))
    sizes = tuple(new[axis] for axis in after)
    return Faster(_in_order(lambda x: x.reshape(sizes), order, after), after)


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


def _is_batch(shape: tuple[int, ...]) -> bool:
    """Whether this may be a batch of images."""
    return len(shape) >= 4 and shape[0] >= RECORDS and 0 not in shape


# What works element by element


def _transposed(step: JaxprEqn, order: Order | None) -> Faster | None:
    """The values lie as before, under other names of the axes."""
    names = step.params["permutation"]
    return None if order is None else Faster(None, tuple(names.index(axis) for axis in order))


def _elementwise(step: JaxprEqn, order: Order | None) -> Faster | None:
    """The same in the order in which an argument lies."""
    if order is None or len(_shaped(step.outvars[0]).shape) != len(order):
        return None
    return Faster(_in_order(functools.partial(step.primitive.bind, **step.params), order), order)


def _relu_of(step: JaxprEqn, order: Order | None) -> Faster | None:
    """`jax.nn.relu`, whose derivative is its own; somebody else's function of that kind stays."""
    if order is None or step.params["call_jaxpr"].jaxpr.debug_info.func_src_info != _source_of_relu():
        return None
    return Faster(_in_order(jax.nn.relu, order), order)


@functools.cache
def _source_of_relu() -> str:
    (step,) = jax.make_jaxpr(jax.nn.relu)(jnp.float32(0)).jaxpr.eqns
    return str(step.params["call_jaxpr"].jaxpr.debug_info.func_src_info)


def _records_last(shape: Sequence[int]) -> Order:
    return (*range(1, len(shape)), 0)


def _in_order(work: Callable[..., Array], order: Order, after: Order | None = None) -> Callable[..., Array]:
    """`work` with the axes of its arguments in this order, and its result, which lies as `after` says, turned back."""
    after = order if after is None else after
    back = tuple(after.index(axis) for axis in range(len(after)))

    def turned(*values: Array) -> Array:
        return work(*(value.transpose(order) if value.ndim == len(order) else value for value in values)).transpose(
            back
        )

    return turned


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


ELEMENTWISE = (
    *(
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
    ),
    *(
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
    ),
    *("neg", "not", "or", "pow", "rsqrt", "select_n", "sign", "sin", "sqrt", "square", "stop_gradient", "sub", "tanh"),
)
ON_AN_ACCELERATOR: Forms = {"conv_general_dilated": _layer_of}
ON_A_CPU: Forms = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    "conv_general_dilated": _product_of,
    "reduce_window_max": _pool_of,
    "reduce_max": _maximum_of,
    "reshape": _reshape_of,
    "transpose": _transposed,
    "custom_jvp_call": _relu_of,
}
