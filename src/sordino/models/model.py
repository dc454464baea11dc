"""A model: `init` makes parameters, `loss` is the weighted mean over a batch, `predict` gives logits.

Clients hold different numbers of records, so batches are padded to one length. A record of weight 0 is padding: it
changes neither the loss nor the gradient. L2 regularisation is not part of a model; local training decays weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from sordino.errors import require
from sordino.models._product_form import product_form
from sordino.types import Key, Vector

Params: TypeAlias = Any  # a pytree of float32 arrays
Array: TypeAlias = jax.Array


class Batch(NamedTuple):
    """n records."""

    x: Array  # [n, ...]
    y: Array  # [n]
    weight: Array  # [n], 0 marks the padding of ragged clients


class Linear(NamedTuple):
    """A model whose scores are affine in its parameters, a `Dense` layer: features(x) W^T + b."""

    features: Callable[[Array], Array]  # records -> [n, inputs]
    loss: Callable[[Array, Batch], Array]  # of the scores [n, outputs]: the weighted mean


class Model(NamedTuple):
    """A loss, its first parameters and its predictions."""

    init: Callable[[Key], Params]
    loss: Callable[[Params, Batch], Array]  # sum_i w_i l_i / sum_i w_i
    predict: Callable[[Params, Array], Array] | None  # x -> logits; None for a loss without classes
    name: str
    linear: Linear | None = None  # if the loss depends on the parameters through affine scores only
    smoothness: Callable[[float], float] | None = None  # bound on the features' norm -> beta of a record's loss
    leaves_padding_out: bool = False  # known to give records of weight 0 no part; other losses are tried before a run
    by_name: bool = False  # whether `models.get(name, ...)` made it, and makes it again


def from_loss(
    init: Callable[[Key], Params],
    loss: Callable[[Params, Batch], Array],
    predict: Callable[[Params, Array], Array] | None = None,
    name: str = "custom",
) -> Model:
    """Return a model made of your own functions.

    `loss` must weight records by `batch.weight`, for instance with `weighted_mean`; `init` must return float32.
    """
    for field, function in (("init", init), ("loss", loss)):
        require(callable(function), field, function, "pass a function")
    require(predict is None or callable(predict), "predict", predict, "pass a function or None")
    from sordino.models import MODELS, family  # they are made of this module

    free = isinstance(name, str) and family(name) not in MODELS
    require(free, "name", name, f"is a name of a model of Sordino's: give yours another, as 'my-{name}'")
    return Model(init, product_form(loss), predict, name)


def flat(model: Model, key: Key) -> tuple[Vector, Callable[[Vector], Params]]:
    """Return the first parameters as one vector, and the function from a vector to the model's shapes."""
    params = model.init(key)
    leaves = jax.tree.leaves(params)
    require(bool(leaves), "init", params, "return at least one array of parameters")
    for path, leaf in jax.tree.leaves_with_path(params):
        dtype = getattr(leaf, "dtype", type(leaf).__name__)
        name = f"parameter {jax.tree_util.keystr(path)}" if path else "parameters"
        require(dtype == jnp.float32, name, str(dtype), "return float32 arrays")
    return ravel_pytree(params)


@dataclass(frozen=True, eq=False)  # compared by identity, like a function, so that JAX compiles once for it
class FlatLoss:
    """A model's loss as a function of one vector."""

    loss: Callable[[Params, Batch], Array]
    unravel: Callable[[Vector], Params]
    linear: Linear | None = None

    def __call__(self, w: Vector, batch: Batch) -> Array:
        return self.loss(self.unravel(w), batch)


@dataclass(frozen=True, eq=False)  # compared by identity, as FlatLoss is
class FlatPredict:
    """A model's predictions as a function of one vector."""

    predict: Callable[[Params, Array], Array]
    unravel: Callable[[Vector], Params]

    def __call__(self, w: Vector, x: Array) -> Array:
        return self.predict(self.unravel(w), x)


def shapes_of(
    loss: Callable[[Vector, Batch], Array],
) -> tuple[Callable[[Vector], Params], Callable[[Params, Batch], Array]]:
    """(unravel, loss on the model's own shapes) of a loss of one vector; the identity if it has no shapes."""
    if isinstance(loss, FlatLoss):
        return loss.unravel, loss.loss
    return lambda w: w, loss


def linear_of(loss: Callable[[Vector, Batch], Array]) -> Linear | None:
    """The affine scores of a loss of one vector, or None."""
    return loss.linear if isinstance(loss, FlatLoss) else None


def weighted_mean(values: Array, weight: Array) -> Array:
    """sum_i w_i v_i / sum_i w_i, and 0 if no record has weight."""
    weight = weight.astype(values.dtype)
    return jnp.sum(weight * values) / jnp.maximum(jnp.sum(weight), jnp.finfo(values.dtype).tiny)


def cross_entropy(logits: Array, labels: Array) -> Array:
    """-log softmax(logits)[label] of each record; NaN, also in the gradient, for labels without a class."""
    require(jnp.issubdtype(labels.dtype, jnp.integer), "labels", str(labels.dtype), "use whole numbers from 0")
    classes = logits.shape[-1]
    chosen = jnp.sum(logits * jax.nn.one_hot(labels, classes, dtype=logits.dtype), axis=-1)
    known = jnp.where((labels >= 0) & (labels < classes), 1.0, jnp.nan).astype(logits.dtype)
    return known * (jax.nn.logsumexp(logits, axis=-1) - chosen)


def loss_of_scores(scores: Array, batch: Batch) -> Array:
    """The mean cross-entropy over a batch."""
    labels = jnp.where(batch.weight > 0, batch.y, 0)  # padding may carry any label
    return weighted_mean(cross_entropy(scores, labels), batch.weight)


def classifier(
    init: Callable[[Key], Params],
    logits: Callable[[Params, Array, Array], Array],
    name: str,
    *,
    input_shape: tuple[int, ...],
    chunk: int | None = None,
) -> Model:
    """Return the model of `logits(params, x, weight)` under cross-entropy.

    `predict` takes `chunk` records at a time, so that a large test set fits into memory.
    """

    def loss(params: Params, batch: Batch) -> Array:
        return loss_of_scores(logits(params, _records(batch.x, input_shape), batch.weight), batch)

    def predict(params: Params, x: Array) -> Array:
        x = _records(x, input_shape)
        if chunk is None or len(x) <= chunk:
            return logits(params, x, jnp.ones(len(x), x.dtype))
        chunks = math.ceil(len(x) / chunk)
        padded = jnp.pad(x, ((0, chunks * chunk - len(x)), *((0, 0) for _ in input_shape)))
        weight = jnp.ones(chunk, x.dtype)
        out = jax.lax.map(lambda part: logits(params, part, weight), padded.reshape(chunks, chunk, *input_shape))
        return out.reshape(chunks * chunk, -1)[: len(x)]

    return Model(init, loss, predict, name, leaves_padding_out=True)


def _records(x: Array, input_shape: tuple[int, ...]) -> Array:
    wanted = f"this model takes records of shape {input_shape}, stacked along a first axis"
    require(x.shape[1:] == input_shape, "shape of x", x.shape, wanted)
    return x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.float32)
