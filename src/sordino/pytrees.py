"""Frozen dataclasses as JAX pytrees: numbers are leaves that can be traced, fields marked static are not.

`jax.tree_util.register_dataclass` would do, but two classes with the same fields then have tree structures that compare
equal, and a compiled program of one (a clip, Gaussian noise) can be taken for the other's (a normalization, Laplace
noise). Here the class is part of the structure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeVar

import jax

Class = TypeVar("Class", bound=type)


def pytree(cls: Class) -> Class:
    """Register a dataclass; `field(metadata={"static": True})` keeps a field out of the leaves."""
    fields = dataclasses.fields(cls)
    leaves = [field.name for field in fields if not field.metadata.get("static")]
    static = [field.name for field in fields if field.metadata.get("static")]

    def structure(node: Any) -> tuple[Any, ...]:
        return (cls, *(getattr(node, name) for name in static))

    def flatten(node: Any) -> tuple[list[Any], tuple[Any, ...]]:
        return [getattr(node, name) for name in leaves], structure(node)

    def flatten_with_keys(node: Any) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        return [(jax.tree_util.GetAttrKey(name), getattr(node, name)) for name in leaves], structure(node)

    def unflatten(aux: tuple[Any, ...], children: Iterable[Any]) -> Any:
        node: Any = object.__new__(cls)
        for name, value in zip((*leaves, *static), (*children, *aux[1:]), strict=True):
            object.__setattr__(node, name, value)
        return node

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls
