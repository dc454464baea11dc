"""A PyTorch module as a model. Where PyTorch or torchax is missing, only their absence is tested."""

from __future__ import annotations

import importlib
import sys
from contextlib import redirect_stdout
from io import StringIO
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.errors import InvalidInput
from sordino.keys import key_of
from sordino.models import Batch, flat, from_torch
from tests.pages import ROOT, blocks_of

PAGE = ROOT / "docs" / "models.md"


@pytest.mark.parametrize("missing", ["torch", "torchax"])
def test_without_the_packages_the_extra_is_named(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InvalidInput, match=r"sordino\[torch\]"):
        from_torch(None)


@pytest.fixture(scope="module")
def torch():
    found = pytest.importorskip("torch")
    try:
        importlib.import_module("torchax")
    except (ImportError, AttributeError) as error:  # or one that looks for operations which this PyTorch has not
        pytest.skip(f"needs torchax, and a PyTorch that it fits: {error}")
    return found


@pytest.fixture(scope="module")
def network(torch):
    """Convolution, group norm, pool, and a batch norm whose averages are not those of a new one."""
    nn = torch.nn
    torch.manual_seed(0)
    layers = nn.Sequential(
        nn.Flatten(),
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 16),
        nn.BatchNorm1d(16),
        nn.GELU(),
        nn.Dropout(0.5),
        nn.Linear(16, 10),
    )
    layers(torch.randn(50, 8, 8))  # moves the averages
    return layers.eval()


IMAGES = np.random.default_rng(0).normal(size=(6, 8, 8)).astype(np.float32)
LABELS = np.arange(6) % 4


def test_outputs_and_gradients_are_those_of_pytorch_also_under_vmap(torch, network):
    model = from_torch(network)
    w, unravel = flat(model, key_of(0))
    batch = Batch(jnp.asarray(IMAGES), jnp.asarray(LABELS), jnp.ones(6))
    outputs = network(torch.from_numpy(IMAGES))
    np.testing.assert_allclose(jax.jit(model.predict)(unravel(w), batch.x), outputs.detach().numpy(), atol=1e-5)

    network.zero_grad()
    torch.nn.functional.cross_entropy(outputs, torch.from_numpy(LABELS)).backward()
    gradient = jax.grad(lambda w: model.loss(unravel(w), batch))
    for found in (jax.jit(gradient)(w), jax.jit(jax.vmap(gradient))(jnp.stack([2 * w, w]))[1]):
        for name, value in unravel(found).items():
            np.testing.assert_allclose(value, network.get_parameter(name).grad.numpy(), atol=1e-5, err_msg=name)


def test_a_run_trains_it_and_load_state_dict_takes_it_back(torch, network, tmp_path):
    for parameter in network[2].parameters():  # the convolution stays as it is
        parameter.requires_grad_(False)
    model = from_torch(network)
    task = so.task("digits", clients=5, model=model)
    assert task.d == sum(each.numel() for each in network.parameters() if each.requires_grad)
    method = so.fedavg(local_steps=2, local_lr=0.1, batch_size=16)
    run = so.simulate(so.plan(method, rounds=2), task, seed=0, folder=tmp_path / "run")
    network.load_state_dict({name: torch.tensor(np.array(each)) for name, each in run.params.items()}, strict=False)
    images = np.asarray(task.data.x_test[:50])
    found = network(torch.from_numpy(images)).argmax(1).numpy()
    np.testing.assert_array_equal(found, run.predict(images))
    np.testing.assert_array_equal(found, so.load_run(tmp_path / "run", model=model).predict(images))
    assert not np.allclose(model.init(key_of(0))["6.weight"], run.params["6.weight"])  # later changes do not reach it


def test_losses_of_ones_own(torch):
    model = from_torch(torch.nn.Linear(2, 1).eval(), lambda outputs, y: (outputs[:, 0] - y) ** 2)
    assert model.predict is None
    params = {"weight": jnp.array([[1.0, 2.0]]), "bias": jnp.array([0.5])}
    batch = Batch(jnp.ones((2, 2)), jnp.array([3.5, 1.5]), jnp.array([1.0, 3.0]))
    assert float(model.loss(params, batch)) == pytest.approx(3.0)  # (1 * 0 + 3 * 4) / 4


def test_a_forward_pass_that_fails_names_the_shape(torch):
    model = from_torch(torch.nn.Linear(2, 1).eval())
    with pytest.raises(InvalidInput, match=r"shape \(4, 3\)"):
        model.predict(model.init(key_of(0)), jnp.ones((4, 3)))


@pytest.mark.parametrize("mistake", ["training", "function", "frozen", "float64", "losses"])
def test_a_mistake_is_one_line_of_ours(torch, mistake):
    linear = torch.nn.Linear(2, 2)
    given = {
        "training": (linear,),
        "function": (lambda x: x,),
        "frozen": (torch.nn.Linear(2, 2).requires_grad_(False).eval(),),
        "float64": (torch.nn.Linear(2, 2).double().eval(),),
        "losses": (torch.nn.Linear(2, 2).eval(), "mse"),
    }
    with pytest.raises(InvalidInput) as caught:
        from_torch(*given[mistake])
    assert "\n" not in str(caught.value)


def test_the_example_of_the_documents(torch):
    (block,) = [each for each in blocks_of(PAGE) if each.value.endswith("test_from_torch.py")]
    out = StringIO()
    with redirect_stdout(out):
        exec(compile(block.text, block.name, "exec"), {"__name__": "__main__"})
    assert block.printed is not None
    assert out.getvalue() == block.printed
