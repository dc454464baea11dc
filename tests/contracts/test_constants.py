"""A function that holds arrays of its own is named on the certificate: nobody can see where they come from."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.algorithms.dp_sgd import DpSgd
from sordino.data.augmentation import AUGMENTATIONS
from sordino.models import from_loss, get, weighted_mean
from sordino.pytrees import pytree
from sordino.runs import Point
from sordino.runs.constants import with_warnings
from sordino.tasks import PROBLEMS
from tests.toys import toy

METHOD = so.dp_sgd(server_lr=0.1, bound=so.clip(1.0))
HELD = np.linspace(0, 1, 35, dtype=np.float32)


def loss_with(held):
    def my_loss(w, batch):
        return weighted_mean((batch.x @ w - jnp.sum(jnp.asarray(held))) ** 2, batch.weight)

    return my_loss


def said(task, method=METHOD, **options):
    plan = so.plan(method, rounds=1, **({"noise_multiplier": 1.0, "delta": 1e-4} | options))
    (point,) = with_warnings([Point(plan).for_task(task)], task)
    assert {warning.code for warning in point.about_code} <= {"holds-constants"}
    return [warning.message for warning in point.about_code]


@pytest.mark.parametrize("wrap", [lambda loss: loss, jax.jit, functools.partial, jax.checkpoint])
@pytest.mark.parametrize("held", [HELD, jnp.asarray(HELD)], ids=["numpy", "jax"])
def test_a_loss_that_holds_an_array_is_named(wrap, held):
    (text,) = said(toy(from_loss(lambda key: jnp.zeros(3), wrap(loss_with(held)))))
    assert "my_loss" in text
    assert "35" in text


def test_a_few_numbers_are_settings():
    assert said(toy(from_loss(lambda key: jnp.zeros(3), loss_with(HELD[:32])))) == []


def test_nothing_is_said_where_nothing_is_promised():
    holds = toy(from_loss(lambda key: jnp.zeros(3), loss_with(HELD)))
    assert said(holds, noise_multiplier=None, delta=None) == []


def test_an_augmentation_that_holds_an_array_is_named():
    def shifted(key, x):
        return x + jnp.sum(HELD)

    (text,) = said(dataclasses.replace(toy(), augment=shifted))
    assert "shifted" in text
    assert "35" in text


@pytree
@dataclasses.dataclass(frozen=True)
class Mine(DpSgd):
    def client(self, key, received, state, data):
        message, *rest = super().client(key, received, state, data)
        return message._replace(vector=message.vector * jnp.asarray(HELD)[0]), *rest


@pytree
@dataclasses.dataclass(frozen=True)
class Keeps(DpSgd):
    held: jax.Array | None = None


def test_a_method_of_ones_own_that_holds_an_array_is_named():
    own = {field.name: vars(METHOD)[field.name] for field in dataclasses.fields(METHOD)}
    for method in (Mine(**own), Keeps(**own, held=jnp.asarray(HELD))):
        (text,) = said(toy(), method)
        assert type(method).__name__ in text
        assert "35" in text
        assert "loss" not in text
    assert said(toy(), Keeps(**own)) == []


def test_what_is_traced_stands_on_the_certificate_of_the_run():
    task = toy(from_loss(lambda key: jnp.zeros(3), loss_with(HELD)))
    run = so.simulate(so.plan(METHOD, rounds=1, noise_multiplier=1.0, delta=1e-3), task)
    assert [warning.code for warning in run.certificate.warnings].count("holds-constants") == 1


@pytest.mark.parametrize("model", ["logistic", "mlp:40", "mlp:40,batch"])
def test_shipped_models_hold_nothing(model):
    assert said(toy(model)) == []


@pytest.mark.parametrize(("model", "shape"), [("cnn", (28, 28, 1)), ("resnet20", (32, 32, 3))])
def test_shipped_models_and_augmentations_of_images_hold_nothing(model, shape):
    task = toy()
    x = np.zeros((len(task.data.y), *shape), np.float32)
    images = dataclasses.replace(task, data=task.data._replace(x=x, x_test=x), model=get(model, shape, 2))
    for augment in (None, *AUGMENTATIONS.values()):
        assert said(dataclasses.replace(images, augment=augment)) == []


@pytest.mark.parametrize("name", PROBLEMS)
def test_shipped_problems_hold_nothing(name):
    assert said(so.task(name)) == []
