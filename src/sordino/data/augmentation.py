"""Random changes to a batch of images before a gradient is taken, by name.

A client changes its own records with its own key. Its message is bounded afterwards, so no guarantee depends on the
changes. Each function is called as change(key, x, black=...) with the data set's value of a black pixel.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from sordino.errors import require
from sordino.types import Key

Pixel = tuple[float, ...]  # one value for each channel, or one for all
PADDING = 4


def crop(key: Key, x: jax.Array, black: Pixel = (0.0,)) -> jax.Array:
    """Images [n, height, width, channels], each shifted by up to 4 pixels; the new border is black."""
    _require_images(x, "crop")
    n, height, width, channels = x.shape
    corner = jax.random.randint(key, (n, 2, 1), 0, 2 * PADDING + 1)
    rows, columns = corner[:, 0] + jnp.arange(height), corner[:, 1] + jnp.arange(width)
    frame = jnp.broadcast_to(jnp.asarray(black, x.dtype), (n, height + 2 * PADDING, width + 2 * PADDING, channels))
    padded = frame.at[:, PADDING:-PADDING, PADDING:-PADDING].set(x)
    return padded[jnp.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]]


def flip(key: Key, x: jax.Array, black: Pixel = (0.0,)) -> jax.Array:
    """Images [n, height, width, channels], each mirrored with probability 1/2."""
    del black
    _require_images(x, "flip")
    mirrored = jax.random.bernoulli(key, 0.5, (len(x), 1, 1, 1))
    return jnp.where(mirrored, x[:, :, ::-1], x)


def crop_flip(key: Key, x: jax.Array, black: Pixel = (0.0,)) -> jax.Array:
    """Images [n, height, width, channels], each shifted and then mirrored with probability 1/2."""
    key_crop, key_flip = jax.random.split(key)
    return flip(key_flip, crop(key_crop, x, black))


def _require_images(x: jax.Array, name: str) -> None:
    require(x.ndim == 4, "shape of x", x.shape, f"{name} takes images [records, height, width, channels]")


AUGMENTATIONS = {"crop-flip": crop_flip, "crop": crop, "flip": flip}
