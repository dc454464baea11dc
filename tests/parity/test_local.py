"""Local training: the span of the records against plain gradient descent, the model's shapes against one vector."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sordino.algorithms.local import ClientData, LocalTraining
from sordino.algorithms.schedules import constant
from sordino.models import FlatLoss, flat, get

INPUTS, CLASSES, RECORDS = 40, 3, 7


def trained(loss, w, *, momentum, weight_decay, size=RECORDS, proximal=None):
    key_x, key_y = jax.random.split(jax.random.key(1))
    x = jax.random.normal(key_x, (20, INPUTS))
    y = jax.random.randint(key_y, (20,), 0, CLASSES)
    local = LocalTraining(constant(0.3), momentum, weight_decay, 12, None, proximal)
    return train(local, w, x, y, size, loss=loss)


@functools.partial(jax.jit, static_argnames="loss")
def train(local, w, x, y, size, *, loss):
    """One program for all weight decays and sizes."""
    return local(jax.random.key(0), w, ClientData(loss, x, y, jnp.int32(3), size, RECORDS), jnp.int32(0))


@functools.cache
def logistic():
    """(model, its loss with the linear scores known, its loss without, a start)."""
    model = get("logistic", (INPUTS,), CLASSES)
    w, unravel = flat(model, jax.random.key(0))
    return model, FlatLoss(model.loss, unravel, model.linear), FlatLoss(model.loss, unravel), w


@pytest.mark.parametrize("momentum", [None, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize(("size", "proximal"), [(RECORDS, None), (4, None), (4, 0.5)])
def test_a_linear_model_in_the_span_of_its_records_is_the_same(momentum, weight_decay, size, proximal) -> None:
    model, fast_loss, plain_loss, w = logistic()
    w = w + 0.1 * jax.random.normal(jax.random.key(2), w.shape)
    assert model.linear is not None
    assert w.shape[0] > 2 * RECORDS
    how = {"momentum": momentum, "weight_decay": weight_decay, "size": size, "proximal": proximal}
    fast, plain = trained(fast_loss, w, **how), trained(plain_loss, w, **how)
    assert np.abs(plain - w).max() > 0.1
    np.testing.assert_allclose(fast, plain, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("momentum", [None, 0.5])
def test_the_model_s_own_shapes_inside_change_nothing(momentum) -> None:
    model = get("mlp:5", (INPUTS,), CLASSES)
    w, unravel = flat(model, jax.random.key(0))
    shaped = FlatLoss(model.loss, unravel)
    how = {"momentum": momentum, "weight_decay": 0.1, "proximal": 0.2}
    np.testing.assert_allclose(
        trained(shaped, w, **how), trained(lambda w, batch: shaped(w, batch), w, **how), atol=1e-6, rtol=1e-5
    )
