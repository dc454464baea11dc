"""Normalization: the statistics of a batch, and the scale and shift after it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from sordino.models.model import Array


class Norm(NamedTuple):
    """The scale and shift of each channel after its standardisation."""

    scale: Array
    shift: Array


def identity(channels: int) -> Norm:
    """Scale 1 and shift 0, the start of training."""
    return Norm(jnp.ones(channels, jnp.float32), jnp.zeros(channels, jnp.float32))


def by_batch(x: Array, weight: Array) -> Array:
    """[C, ..., N], each channel with mean 0 and variance 1 over pixels and records that are not padding, if any."""
    weight = weight.astype(x.dtype)
    total = jnp.sum(weight)
    share = jnp.where(total > 0, weight / jnp.maximum(total, jnp.finfo(x.dtype).tiny), 1 / len(weight))
    pixels = tuple(range(1, x.ndim - 1))
    channel = (slice(None), *(None for _ in x.shape[1:]))
    mean = jnp.mean(x, axis=pixels) @ share
    centred = x - mean[channel]
    variance = jnp.mean(jnp.square(centred), axis=pixels) @ share
    return centred * jax.lax.rsqrt(variance + 1e-5)[channel]
