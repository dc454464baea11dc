"""Whether a loss leaves out the records of weight 0 that fill up the batches of smaller clients.

A loss that counts them trains another model, silently. Its gradient shows it, on some of the task's own records:

    content   [1, 1, 0, 0] with other records of weight 0 must give the same gradient
    number    [1, 1, 0, 0] must give the gradient of the first two records alone
"""

from __future__ import annotations

import weakref

import jax
import jax.numpy as jnp
import numpy as np

from sordino.errors import InvalidInput
from sordino.keys import key_of
from sordino.models import Batch
from sordino.tasks.task import Task

SAME_SHAPE, OTHER_SHAPE = 1e-3, 0.05  # relative tolerances: in bfloat16 a batch of another size rounds differently

_TRIED: weakref.WeakSet[Task] = weakref.WeakSet()  # once a task


def require_padding_left_out(task: Task) -> None:
    """Refuse a loss that padding changes, where clients hold different numbers of records."""
    padded_ones = int(task.data.size.min()) < task.largest
    if task in _TRIED or task.model.leaves_padding_out or not padded_ones:
        return
    w = task.initial(key_of(0))
    w = w + 0.01 * jax.random.normal(key_of(1), w.shape)  # a first model may have no gradient at all
    rows = np.linspace(0, len(task.data.x) - 1, 6).round().astype(int)
    x, y, pair = jnp.asarray(task.data.x[rows]), jnp.asarray(task.data.y[rows]), jnp.arange(2)
    first, other = (jnp.append(pair, jnp.asarray(rest)) for rest in ([2, 3], [5, 4]))
    weight = jnp.asarray([1.0, 1.0, 0.0, 0.0])
    gradient = jax.jit(jax.grad(task.loss))
    padded, otherwise = (np.asarray(gradient(w, Batch(x[at], y[at], weight))) for at in (first, other))
    alone = np.asarray(gradient(w, Batch(x[pair], y[pair], jnp.ones(2))))
    for found, wanted, tolerance in ((otherwise, padded, SAME_SHAPE), (padded, alone, OTHER_SHAPE)):
        if np.linalg.norm(found - wanted) > tolerance * np.linalg.norm(wanted):  # a NaN shows nothing
            remedy = (
                "its gradient changes with records of weight 0, which only fill up the batches of smaller clients: "
                "weight the records, for instance with weighted_mean(values, batch.weight)"
            )
            raise InvalidInput("loss", task.model.name, remedy)
    _TRIED.add(task)
