"""A loss that counts the padding of smaller clients is refused before anything is trained with it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import sordino as so
from sordino.errors import InvalidInput
from sordino.models import cross_entropy, from_loss, get, weighted_mean
from sordino.tasks.padding import require_padding_left_out
from tests.toys import toy

LOGISTIC = get("logistic", (3,), 2)
FEDAVG = so.fedavg(local_steps=1, local_lr=0.1)


def each(w, batch):
    return cross_entropy(w(batch.x), batch.y)


def standardised(w, batch):
    """Scores that depend on the statistics of the whole batch, padding and all."""
    x = (batch.x - batch.x.mean(axis=0)) / (1 + batch.x.std(axis=0))
    return weighted_mean(cross_entropy(w(x), batch.y), batch.weight)


RIGHT = {
    "weighted mean": lambda w, batch: weighted_mean(each(w, batch), batch.weight),
    "by hand": lambda w, batch: jnp.vdot(each(w, batch), batch.weight) / jnp.maximum(batch.weight.sum(), 1),
    "one by one": lambda w, batch: weighted_mean(
        jax.vmap(lambda x, y: cross_entropy(w(x[None]), y[None])[0])(batch.x, batch.y), batch.weight
    ),
}
WRONG = {
    "mean": lambda w, batch: each(w, batch).mean(),
    "sum": lambda w, batch: each(w, batch).sum(),
    "mean of weighted": lambda w, batch: (batch.weight * each(w, batch)).mean(),
    "statistics of all": standardised,
}


def model_of(loss):
    return from_loss(LOGISTIC.init, loss, LOGISTIC.predict, name="my own")


@pytest.mark.parametrize("name", WRONG)
def test_a_loss_that_counts_padding_is_refused_with_a_remedy(name):
    task = toy(model_of(WRONG[name]))
    for plan in (so.plan(FEDAVG, rounds=1), so.plan(so.dp_sgd(server_lr=0.1), rounds=1)):
        with pytest.raises(InvalidInput, match=r"loss = 'my own'.*weighted_mean"):
            so.simulate(plan, task)


@pytest.mark.parametrize("name", RIGHT)
def test_a_loss_that_leaves_padding_out_runs(name):
    so.simulate(so.plan(FEDAVG, rounds=1), toy(model_of(RIGHT[name])))


@pytest.mark.parametrize("name", WRONG)
def test_where_nothing_is_padded_nothing_is_asked(name):
    require_padding_left_out(toy(model_of(WRONG[name]), sizes=(3, 3, 3)))
    sgd = so.noisy_mb_sgd(lipschitz=1.0, radius=5.0, smoothness=1.0, step_size=0.1)
    if name == "mean":  # gradients of records are taken one by one
        so.simulate(so.plan(sgd, rounds=1), toy(model_of(WRONG[name])))


@pytest.mark.parametrize("name", ["logistic", "mlp:4", "mlp:4,batch"])
def test_models_of_the_package_pass(name):
    task = toy(get(name, (3,), 2)._replace(leaves_padding_out=False))
    require_padding_left_out(task)
