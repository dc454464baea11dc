"""ResNet-20 written down once more, by the textbook: the same scores, and weights that start as its authors' do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from sordino.models import get


def layer(x, kernel, norm, stride=1):
    """Images [N, H, W, C]: a 3 x 3 convolution with one pixel of zeros around, then batch normalization."""
    layout = ("NHWC", "HWIO", "NHWC")
    x = lax.conv_general_dilated(x, kernel, (stride, stride), [(1, 1), (1, 1)], dimension_numbers=layout)
    standard = (x - jnp.mean(x, (0, 1, 2))) / jnp.sqrt(jnp.var(x, (0, 1, 2)) + 1e-5)
    return norm.scale * standard + norm.shift


def textbook(params, x):
    x = jax.nn.relu(layer(x, params.kernel, params.norm))
    for number, block in enumerate(params.blocks):
        halves = number in (3, 6)
        inner = jax.nn.relu(layer(x, block.kernel1, block.norm1, 2 if halves else 1))
        if halves:  # every second pixel, and as many channels of zeros in front as behind
            quarter = block.kernel1.shape[-1] // 4
            x = jnp.pad(x[:, ::2, ::2], ((0, 0), (0, 0), (0, 0), (quarter, quarter)))
        x = jax.nn.relu(layer(inner, block.kernel2, block.norm2) + x)
    return jnp.mean(x, (1, 2)) @ params.dense.weight.T + params.dense.bias


@pytest.fixture(scope="module")
def network():
    model = get("resnet20:batch", (12, 12, 3), 10)
    return model, model.init(jax.random.key(0))


@pytest.mark.slow
def test_scores_are_the_textbooks(network):
    model, params = network
    keys = iter(jax.random.split(jax.random.key(1), 99))
    params = jax.tree.map(lambda leaf: leaf + 0.1 * jax.random.normal(next(keys), leaf.shape), params)
    x = jax.random.normal(jax.random.key(2), (16, 12, 12, 3))
    np.testing.assert_allclose(model.predict(params, x), textbook(params, x), rtol=2e-3, atol=2e-3)


def test_weights_start_with_the_variance_of_he(network):
    _, params = network
    kernels = [params.kernel, *(kernel for block in params.blocks for kernel in (block.kernel1, block.kernel2))]
    for kernel in kernels:
        spread = np.std(kernel) * np.sqrt(kernel.shape[2] * 9 / 2)
        assert spread == pytest.approx(1, abs=4 / np.sqrt(2 * kernel.size))
    weight = params.dense.weight
    assert np.std(weight) * np.sqrt(64 / 2) == pytest.approx(1, abs=4 / np.sqrt(2 * weight.size))
    assert np.max(np.abs(params.dense.bias)) <= 1 / 8
