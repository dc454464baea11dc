"""How exactly a loss multiplies matrices: TensorFloat-32 on a GPU that has it, float32 everywhere else.

Only what a client trains with is rounded so: bounds, sums and noise, on which promises rest, stay in float32, and so do
the scores that are reported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import jax

from sordino.errors import require

Loss: TypeAlias = Callable[..., jax.Array]

PRECISIONS = ("float32", "tf32")


def in_precision(loss: Loss, precision: str) -> Loss:
    """The same loss. With "tf32" a GPU keeps 10 of the 23 bits of what it multiplies, and adds up in float32."""
    require(precision in PRECISIONS, "precision", precision, f"use one of {', '.join(PRECISIONS)}")
    if precision == "float32" or jax.default_backend() == "cpu":
        return loss

    @functools.wraps(loss)
    def rounded(*args: Any) -> jax.Array:
        with jax.default_matmul_precision("TF32_TF32_F32"):  # of gradients too: a product hands it on
            return loss(*args)

    return rounded
