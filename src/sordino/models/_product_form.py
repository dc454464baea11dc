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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxpr_as_fun

from sordino.models._array_forms import (
    ELEMENTWISE,
    elementwise,
    maximum_of,
    pool_of,
    relu_of,
    reshape_of,
    transposed,
)
from sordino.models._convolution_forms import layer_of, product_of
from sordino.models._orders import Array, Faster, Order

Loss: TypeAlias = Callable[..., Array]
Forms: TypeAlias = Mapping[str, Callable[[JaxprEqn, Order | None], Faster | None]]  # by the names of operations


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


ON_AN_ACCELERATOR: Forms = {"conv_general_dilated": layer_of}
ON_A_CPU: Forms = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    "conv_general_dilated": product_of,
    "reduce_window_max": pool_of,
    "reduce_max": maximum_of,
    "reshape": reshape_of,
    "transpose": transposed,
    "custom_jvp_call": relu_of,
}
