"""How the values of a batch lie in memory while a loss is rewritten: what `_product_form` and its forms share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax

Array: TypeAlias = jax.Array
Order: TypeAlias = tuple[int, ...]  # the axes of a value as they lie in memory, records last

RECORDS = 8  # so many of a batch, or more, lie innermost


class Faster(NamedTuple):
    """An operation in its other form, None where it stays, and the order of axes in which it leaves its result."""

    form: Callable[..., Array] | None
    order: Order | None


def shaped(value: Any) -> jax.ShapeDtypeStruct:
    """Shape and type of a value of a program."""
    return jax.ShapeDtypeStruct(value.aval.shape, value.aval.dtype)


def is_batch(shape: tuple[int, ...]) -> bool:
    """Whether this may be a batch of images."""
    return len(shape) >= 4 and shape[0] >= RECORDS and 0 not in shape


def records_last(shape: Sequence[int]) -> Order:
    return (*range(1, len(shape)), 0)


def in_order(work: Callable[..., Array], order: Order, after: Order | None = None) -> Callable[..., Array]:
    """`work` with the axes of its arguments in this order, and its result, which lies as `after` says, turned back."""
    after = order if after is None else after
    back = tuple(after.index(axis) for axis in range(len(after)))

    def turned(*values: Array) -> Array:
        return work(*(value.transpose(order) if value.ndim == len(order) else value for value in values)).transpose(
            back
        )

    return turned
