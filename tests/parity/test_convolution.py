"""Convolution as a matrix product gives what `lax.conv_general_dilated` gives, gradients included."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from sordino.errors import InvalidInput
from sordino.models._convolution import conv2d, max_pool2d

CLIENTS = 3
CASES = [
    pytest.param(
        size, kernel, stride, padding, id=f"{size[0]}x{size[1]} by {kernel[0]}x{kernel[1]} /{stride} {padding}"
    )
    for size, kernel in [((8, 9), (4, 4)), ((7, 6), (3, 2)), ((5, 5), (1, 1))]
    for stride in (1, 2)
    for padding in (0, 1)
]


def reference(x, kernel, bias, *, stride, padding):
    layout = ("CHWN", "HWIO", "CHWN")
    out = lax.conv_general_dilated(x, kernel, (stride, stride), [(padding, padding)] * 2, dimension_numbers=layout)
    return out + bias[:, None, None, None]


def draw(size, kernel, lead=()):
    rng = np.random.default_rng(0)
    shapes = ((3, *size, 5), (*kernel, 3, 4), (4,))
    return [jnp.asarray(rng.normal(size=(*lead, *shape)), jnp.float32) for shape in shapes]


@functools.cache  # one program for each shape, whichever test asks
def value_and_gradients(conv, **how):
    def total(x, kernel, bias):
        out = conv(x, kernel, bias, **how)
        return jnp.sum(jnp.sin(out)) / out.size**0.5, out

    return jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True))


def assert_same(ours, theirs):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype == jnp.float32
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("size", "kernel", "stride", "padding"), CASES)
def test_equals_lax(size, kernel, stride, padding):
    how = {"stride": stride, "padding": padding}
    arguments = draw(size, kernel)
    assert_same(value_and_gradients(conv2d, **how)(*arguments), value_and_gradients(reference, **how)(*arguments))


@pytest.mark.parametrize(("size", "kernel", "stride", "padding"), CASES)
def test_equals_lax_when_every_client_has_its_own_weights(size, kernel, stride, padding):
    how = {"stride": stride, "padding": padding}
    arguments = draw(size, kernel, lead=(CLIENTS,))
    together = jax.jit(jax.vmap(value_and_gradients(conv2d, **how)))(*arguments)
    for client in range(CLIENTS):
        alone = value_and_gradients(reference, **how)(*(a[client] for a in arguments))
        assert_same(jax.tree.map(lambda leaf: leaf[client], together), alone)  # noqa: B023


@pytest.mark.parametrize("nested", [False, True], ids=["clients", "runs of clients"])
@pytest.mark.parametrize("batched", ["images", "weights"])
def test_equals_lax_where_clients_share_the_weights_or_the_images(batched, nested):
    """The kernel is repeated then; two axes stand for a sweep's runs and its clients."""
    how, lead = {"stride": 2, "padding": 1}, (2, CLIENTS) if nested else (CLIENTS,)
    many, one = draw((8, 9), (3, 3), lead=lead), draw((8, 9), (3, 3))
    arguments = [many[0], *one[1:]] if batched == "images" else [one[0], *many[1:]]
    in_axes = (0, None, None) if batched == "images" else (None, 0, 0)
    ours, theirs = value_and_gradients(conv2d, **how), value_and_gradients(reference, **how)
    for _ in lead:
        ours, theirs = jax.vmap(ours, in_axes=in_axes), jax.vmap(theirs, in_axes=in_axes)
    assert_same(jax.jit(ours)(*arguments), jax.jit(theirs)(*arguments))


def test_can_be_differentiated_twice():
    x, kernel, bias = draw((5, 5), (3, 3))

    def penalty(conv):
        gradient = jax.grad(lambda x: jnp.sum(jnp.sin(conv(x, kernel, bias, stride=1, padding=1))))
        return jax.grad(lambda x: jnp.sum(gradient(x) ** 2))

    ours, theirs = (jax.jit(penalty(conv))(x) for conv in (conv2d, reference))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_clients_become_one_batched_product_and_no_convolution():
    program = jax.jit(jax.vmap(conv2d)).lower(*draw((8, 8), (4, 4), lead=(CLIENTS,))).as_text()
    assert program.count("stablehlo.dot_general") == 1
    assert "stablehlo.convolution" not in program


@pytest.mark.parametrize("size", [(8, 8), (9, 7)])
@pytest.mark.parametrize("window", [2, 3])
def test_the_pool_equals_reduce_window(size, window):
    x = draw(size, (1, 1))[0]
    box = (1, window, window, 1)
    largest = lax.reduce_window(x, -jnp.inf, lax.max, box, box, "VALID")
    np.testing.assert_array_equal(max_pool2d(x, window), largest)


def test_shapes_that_do_not_fit_are_refused():
    x, kernel, bias = draw((3, 8), (4, 4))
    with pytest.raises(InvalidInput, match="at least 4 x 4"):
        conv2d(x, kernel, bias)
    with pytest.raises(InvalidInput, match="the kernel takes"):
        conv2d(x[:2], kernel, bias)
    with pytest.raises(InvalidInput, match="must not be negative"):
        conv2d(x, kernel, bias, padding=-1)
