"""Random changes to a batch of images before a gradient is taken, by name.

A client changes its own records with its own key and nobody else's: what it sends is bounded afterwards as ever, so no
guarantee depends on it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from sordino.errors import require
from sordino.types import Key

__all__ = ["AUGMENTATIONS", "crop_flip", "flip"]

PADDING = 4


def crop_flip(key: Key, x: jax.Array) -> jax.Array:
    """Images [n, height, width, channels], each shifted by up to 4 pixels into zeros and mirrored every other time."""
    _require_images(x, "crop-flip")
    n, height, width, _ = x.shape
    key_crop, key_flip = jax.random.split(key)
    corner = jax.random.randint(key_crop, (n, 2, 1), 0, 2 * PADDING + 1)
    rows, columns = corner[:, 0] + jnp.arange(height), corner[:, 1] + jnp.arange(width)
    mirrored = jax.random.bernoulli(key_flip, 0.5, (n, 1))
    columns = jnp.where(mirrored, columns[:, ::-1], columns)
    padded = jnp.pad(x, ((0, 0), (PADDING, PADDING), (PADDING, PADDING), (0, 0)))
    return padded[jnp.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]]


def flip(key: Key, x: jax.Array) -> jax.Array:
    """Images [n, height, width, channels], each mirrored every other time."""
    _require_images(x, "flip")
    mirrored = jax.random.bernoulli(key, 0.5, (len(x), 1, 1, 1))
    return jnp.where(mirrored, x[:, :, ::-1], x)


def _require_images(x: jax.Array, name: str) -> None:
    require(x.ndim == 4, "shape of x", x.shape, f"{name} takes images [records, height, width, channels]")


AUGMENTATIONS = {"crop-flip": crop_flip, "flip": flip}
