"""Parts that several methods share: bounding a message, and checks of arguments."""

from __future__ import annotations

from collections.abc import Collection

import jax.numpy as jnp

from sordino.bounding import AdaptiveClip
from sordino.errors import require, require_count, require_float32, require_known
from sordino.types import Bounder, BoundInfo, Scalar, Vector


def bounded(vector: Vector, bound: Bounder | None, share: Scalar = 1.0) -> tuple[Vector, BoundInfo]:
    """The vector within its bound. Without a bound only a vector that is not finite changes: it becomes zero.

    Where the bound is `share` times what it was made for, what is returned, times `share`, is the vector within it.
    """
    if bound is not None:
        vector, info = bound(vector / share)
        return vector, info._replace(norm=share * info.norm)
    finite = jnp.all(jnp.isfinite(vector))
    return jnp.where(finite, vector, 0.0), BoundInfo(jnp.linalg.norm(vector), jnp.bool_(False), ~finite)


def require_local_training(
    local_steps: int, batch_size: int | None, weight_decay: float, proximal: float = 0.0, sam_radius: float = 0.0
) -> None:
    """Check the arguments of local training."""
    require_count(local_steps, "local_steps")
    require_batch_size(batch_size)
    require_float32("weight_decay", weight_decay, or_zero=True)
    require_float32("proximal", proximal, or_zero=True)
    require_float32("sam_radius", sam_radius, or_zero=True)


def require_batch_size(batch_size: int | None) -> None:
    """Check the number of records of a step; None stands for all of a client's records."""
    if batch_size is not None:
        require_count(batch_size, "batch_size", "must be a whole number, at least 1, or left out")


def require_choice(field: str, value: str, choices: Collection[str]) -> None:
    """Check a word against a list."""
    require_known(field, value, choices)


def require_fixed_bound(bound: Bounder | None, remedy: str) -> None:
    """Refuse a bound that moves from round to round."""
    require(not isinstance(bound, AdaptiveClip), "bound", "adaptive_clip", remedy)
