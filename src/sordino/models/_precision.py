"""How exactly a loss multiplies matrices, on devices that can do it less exactly than float32.

Only what a client trains with may be rounded so: bounds, sums and noise, on which promises rest, are float32
everywhere, and so are the scores that are reported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import jax

from sordino.errors import require

Loss: TypeAlias = Callable[..., jax.Array]

PRECISIONS = ("default", "float32")


def in_precision(loss: Loss, precision: str) -> Loss:
    """The same loss with its products as JAX chooses for the device, TensorFloat-32 on recent GPUs, or in float32."""
    require(precision in PRECISIONS, "precision", precision, f"use one of {', '.join(PRECISIONS)}")
    if precision == "default" or jax.default_backend() == "cpu":
        return loss

    @functools.wraps(loss)
    def exact(*args: Any) -> jax.Array:
        with jax.default_matmul_precision("float32"):  # of gradients too: a product hands it on
            return loss(*args)

    return exact
