"""A loss in another precision: other products of matrices, on a GPU alone, and nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.errors import InvalidInput
from sordino.models import in_precision


def products(loss, w, batch):
    """The precision of every product in the loss and its gradient."""
    program = jax.make_jaxpr(jax.grad(loss))(w, batch)
    return [str(step.params["precision"]) for step in program.jaxpr.eqns if step.primitive.name == "dot_general"]


def loss(w, batch):
    return jnp.sum(jnp.tanh(batch @ w) ** 2)


def test_a_gpu_multiplies_as_asked_in_a_loss_and_in_its_gradient(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    w, x = jnp.ones((3, 2)), jnp.ones((4, 3))
    plain, exact = (products(in_precision(loss, name), w, x) for name in ("default", "float32"))
    assert len(plain) == len(exact) == 2
    assert set(plain) == {"None"}
    assert all("HIGHEST" in name for name in exact)


def test_a_cpu_has_float32_alone():
    assert in_precision(loss, "float32") is loss
    plan = so.plan(so.fedavg(local_steps=2, local_lr=0.5, bound=so.clip(0.5)), rounds=3, noise_multiplier=1.0)
    runs = [so.simulate(plan, so.task("digits", clients=5, precision=name), seed=1) for name in ("default", "float32")]
    for ours, theirs in zip(*(jax.tree.leaves(run.params) for run in runs), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("wrong", ["half", "tf32", "", None, 32])
def test_other_precisions_are_refused(wrong):
    with pytest.raises(InvalidInput, match="use one of default, float32"):
        so.task("digits", clients=5, precision=wrong)
