"""Whether a task can be trained on at all: a loss that is one number, features within the bound that is assumed."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp

from sordino.data._scaling import feature_norms
from sordino.data.on_disk import blocks_of
from sordino.errors import InvalidInput, SordinoWarning
from sordino.keys import key_of
from sordino.models import Batch
from sordino.tasks.task import Task

SLACK = 1.01  # a norm above so many times the bound is far outside


def require_scalar_loss(task: Task) -> None:
    """Refuse a loss of one's own that is no single number, before JAX does so in its own words."""
    if task.model.leaves_padding_out:  # Sordino's
        return
    data = task.data
    batch = Batch(jnp.asarray(data.x[:1]), jnp.asarray(data.y[:1]), jnp.ones(1))
    w = jax.eval_shape(task.initial, key_of(0))
    found = jax.eval_shape(task.loss, w, batch)
    good = isinstance(found, jax.ShapeDtypeStruct) and found.shape == () and jnp.issubdtype(found.dtype, jnp.floating)
    if not good:
        shape = (
            f"shape {found.shape}, {found.dtype}" if isinstance(found, jax.ShapeDtypeStruct) else type(found).__name__
        )
        remedy = "must return one number, the mean over the batch: weighted_mean(values, batch.weight)"
        raise InvalidInput(f"loss of {task.model.name}", shape, remedy)


def warn_of_features(task: Task, bound: float) -> None:
    """Warn where training records have features beyond the bound that step sizes assume."""
    outside, largest = 0, 0.0
    for block in blocks_of(task.data):
        norms = feature_norms(block)
        outside, largest = outside + int((norms > SLACK * bound).sum()), max(largest, float(norms.max()))
    if outside:
        text = (
            f"feature_bound = {bound:g}: {outside} of {len(task.data.x)} training records have features of a "
            f"larger norm, up to {largest:.4g}: declare public ranges, or a larger bound. "
            "Privacy does not rest on it. (Computed from private data.)"
        )
        warnings.warn(text, SordinoWarning, stacklevel=4)
