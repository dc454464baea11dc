"""A loss with its convolutions as matrix products gives what it gives as it was written, gradients included."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import sordino as so
from sordino.data import FederatedData
from sordino.models import _convolution_forms, from_loss, weighted_mean
from sordino.models import _product_form as form
from sordino.models._array_forms import largest
from sordino.models._product_form import product_form
from sordino.models.model import cross_entropy
from sordino.tasks import Task

# (shape of x, shape of the kernel, arguments): records innermost or first, kept patches or pieces
CONVOLUTIONS = {
    "same": ((5, 6, 7, 3), (3, 3, 3, 4), {"padding": "SAME"}),
    "records innermost": ((9, 6, 7, 3), (3, 3, 3, 4), {"padding": "SAME", "window_strides": (2, 2)}),
    "few channels, many records": ((33, 6, 6, 1), (3, 2, 1, 4), {"padding": "VALID"}),
    "strides": ((4, 9, 8, 2), (3, 3, 2, 5), {"padding": ((1, 2), (0, 1)), "window_strides": (2, 3)}),
    "dilated": ((4, 9, 8, 2), (3, 2, 2, 5), {"padding": ((2, 2), (0, 0)), "rhs_dilation": (2, 3)}),
    "cropped": ((4, 9, 8, 2), (3, 2, 2, 5), {"padding": ((-1, 0), (0, -2))}),
    "torch": ((4, 2, 9, 8), (5, 2, 3, 3), {"padding": "SAME", "dimension_numbers": ("NCHW", "OIHW", "NCHW")}),
    "mixed layouts": ((9, 4, 2, 8), (3, 5, 2, 3), {"padding": "SAME", "dimension_numbers": ("HNCW", "HOIW", "WCNH")}),
    "one axis": ((4, 9, 2), (3, 2, 5), {"padding": "SAME", "dimension_numbers": ("NWC", "WIO", "NWC")}),
    "three axes": ((2, 4, 5, 4, 2), (2, 3, 2, 2, 3), {"dimension_numbers": ("NDHWC", "DHWIO", "NDHWC")}),
}
STAYS = {
    "grouped": ((4, 6, 6, 4), (3, 3, 2, 4), {"feature_group_count": 2}),
    "transposed": ((4, 6, 6, 2), (3, 3, 2, 4), {"lhs_dilation": (2, 2), "padding": ((0, 0), (0, 0))}),
    "precise": ((4, 6, 6, 2), (3, 3, 2, 4), {"precision": lax.Precision.HIGHEST}),
}

OTHER_RANK, UNEVEN = {"one axis", "three axes"}, {"strides", "dilated"}  # for which there is no layer


def convolved(x, kernel, how):
    how = {
        "window_strides": (1,) * (x.ndim - 2),
        "padding": "VALID",
        "dimension_numbers": ("NHWC", "HWIO", "NHWC"),
    } | how
    return lax.conv_general_dilated(x, kernel, **how)


def draw(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]


def operations(loss, *arguments):
    return str(jax.make_jaxpr(loss)(*arguments))


def assert_same(loss, *arguments):
    """Values and gradients, for several clients, each with arguments of its own."""
    stacked = [jnp.stack([a, 0.5 * a + 0.1]) for a in arguments]
    argnums = tuple(range(len(arguments)))
    both = (jax.jit(jax.vmap(jax.value_and_grad(each, argnums=argnums))) for each in (product_form(loss), loss))
    ours, theirs = (each(*stacked) for each in both)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name, pieces, monkeypatch):
    if pieces:  # eight records at a time: also numbers that pieces do not divide
        monkeypatch.setattr(_convolution_forms, "KEPT", 0)
        monkeypatch.setattr(_convolution_forms, "PIECE", 20_000)
    shape_x, shape_kernel, how = CONVOLUTIONS[name]

    def loss(x, kernel):
        out = convolved(x, kernel, how)
        return jnp.sum(jnp.sin(out)) / out.size

    arguments = draw(shape_x, shape_kernel)
    assert "conv_general_dilated" not in operations(product_form(loss), *arguments)
    assert_same(loss, *arguments)


@pytest.mark.parametrize("name", [name for name in CONVOLUTIONS if name not in OTHER_RANK | UNEVEN])
def test_on_an_accelerator_convolutions_are_layers(name, monkeypatch):
    shape_x, shape_kernel, how = CONVOLUTIONS[name]

    def loss(x, kernel):
        return jnp.mean(jnp.sin(convolved(x, kernel, how)))

    arguments = draw(shape_x, shape_kernel)
    expected = jax.value_and_grad(loss, argnums=(0, 1))(*arguments)
    monkeypatch.setattr(form, "ON_A_CPU", form.ON_AN_ACCELERATOR)
    assert "conv_general_dilated" not in operations(product_form(loss), *arguments)
    assert "custom_vjp_call" in operations(product_form(loss), *arguments)
    assert_same(loss, *arguments)
    found = jax.value_and_grad(product_form(loss), argnums=(0, 1))(*arguments)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(_convolution_forms, "KEPT", 0)  # patches that would take too much room
    assert "conv_general_dilated" in operations(product_form(loss), *arguments)


@pytest.mark.parametrize("name", STAYS)
def test_what_has_no_other_form_stays(name):
    shape_x, shape_kernel, how = STAYS[name]

    def loss(x, kernel):
        return jnp.sum(convolved(x, kernel, how))

    arguments = draw(shape_x, shape_kernel)
    assert operations(product_form(loss), *arguments) == operations(loss, *arguments)


def after_convolution(pool):
    """A loss of a pool of images, which a convolution that changes nothing makes a loss with convolutions."""

    def loss(x):
        return jnp.sum(jnp.sin(pool(convolved(x, jnp.eye(x.shape[-1])[None, None], {}))))

    return loss


def window_max(window):
    return lambda x: lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")


@pytest.mark.parametrize("records", [4, 9])
@pytest.mark.parametrize("window", [(1, 2, 2, 1), (1, 3, 2, 1), (2, 1, 1, 3)])
def test_pools(window, records):
    loss = after_convolution(window_max(window))
    (x,) = draw((records, 7, 6, 3))
    assert "reduce_window" not in operations(product_form(loss), x)
    assert_same(loss, x)
    assert_same(loss, jnp.round(x))  # with ties, of which the first element gets the gradient
    assert_same(loss, jnp.zeros_like(x))


@pytest.mark.parametrize(
    ("shape", "axes"), [((9, 3, 2, 3, 2, 5), (2, 4)), ((9, 4, 3, 3, 5), (2,)), ((9, 2, 3, 2, 2), (1, 4))]
)
def test_pools_by_reshape(shape, axes):
    images = (shape[0], 6, math.prod(shape[1:-1]) // 6, shape[-1])
    loss = after_convolution(lambda x: jnp.max(x.reshape(shape), axes))
    (x,) = draw(images)
    assert "reduce_max" not in operations(product_form(loss), x)
    assert_same(loss, x)
    assert_same(loss, jnp.round(x))  # with ties, which share the gradient
    assert_same(loss, jnp.zeros_like(x))
    hessians = [jax.jvp(jax.grad(each), (x,), (x,))[1] for each in (loss, product_form(loss))]
    np.testing.assert_allclose(*hessians, rtol=1e-5, atol=1e-5)


def test_maxima_over_records_or_long_axes_stay():
    loss = after_convolution(lambda x: jnp.max(x, 0).sum() + jnp.max(x, 2).sum())
    (x,) = draw((9, 3, 17, 5))
    assert operations(product_form(loss), x).count("reduce_max[") == operations(loss, x).count("reduce_max[") == 2


def test_losses_without_convolutions_stay():
    def loss(x):
        return jnp.sum(jnp.max(x.reshape(9, 3, 2, 3, 2, 5), (2, 4))) + jnp.sum(window_max((1, 2, 2, 1))(x))

    (x,) = draw((9, 6, 6, 5))
    assert operations(product_form(loss), x) == operations(loss, x)


def test_pools_of_overlapping_windows_stay():
    loss = after_convolution(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"))
    (x,) = draw((4, 7, 6, 3))
    assert "reduce_window_max" in operations(product_form(loss), x)
    assert_same(loss, x)


def test_a_pool_hands_a_nan_on():
    (x,) = draw((1, 4, 4, 1))
    x = x.at[0, 1, 0, 0].set(jnp.nan)
    out = largest(x, (1, 2, 2, 1))
    assert np.isnan(out).sum() == np.isnan(out[0, 0, 0, 0]) == 1


WRAPPERS = {
    "jit": jax.jit,
    "checkpoint": jax.checkpoint,
    "scan": lambda f: lambda x, w: lax.scan(lambda total, _: (total + f(x, w), None), 0.0, length=2)[0],
    "branches": lambda f: lambda x, w: lax.cond(w.sum() > 0, f, lambda x, w: 2 * f(x, w), x, w),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_inside_of_other_functions(wrapper):
    def inner(x, w):
        return jnp.mean(jnp.tanh(convolved(x, w, {})))

    loss = WRAPPERS[wrapper](inner)
    arguments = draw((3, 6, 6, 2), (3, 3, 2, 4))
    assert "conv_general_dilated" not in operations(product_form(loss), *arguments)
    assert_same(loss, *arguments)


def test_functions_with_derivatives_of_their_own_keep_them():
    @jax.custom_vjp
    def own(x, w):
        return jnp.mean(convolved(x, w, {}))

    own.defvjp(lambda x, w: (own(x, w), (x, w)), lambda saved, out: (0 * saved[0], out * jnp.ones_like(saved[1])))
    assert_same(own, *draw((3, 6, 6, 2), (3, 3, 2, 4)))


def test_a_loss_without_convolutions_runs_as_it_is():
    calls = []

    def loss(w):
        calls.append(type(w))
        return jnp.sum(w**2)

    (w,) = draw((4,))
    assert operations(product_form(loss), w) == operations(loss, w)
    assert product_form(loss).__wrapped__ is loss


def test_a_loss_is_debugged_as_it_was_written():
    seen = []

    def loss(x, w):
        seen.append(float(w.sum()))  # a tracer has no value
        return jnp.mean(convolved(x, w, {}))

    with jax.disable_jit():
        product_form(loss)(*draw((3, 6, 6, 2), (3, 3, 2, 4)))
    assert len(seen) == 1


def test_derivatives_of_any_order_and_kind():
    def loss(x, w):
        return jnp.mean(jnp.tanh(convolved(x, w, {})))

    x, w = draw((3, 6, 6, 2), (3, 3, 2, 4))
    hessians = [jax.jvp(jax.grad(each, argnums=1), (x, w), (x, w))[1] for each in (loss, product_form(loss))]
    np.testing.assert_allclose(*hessians, rtol=1e-5, atol=1e-6)


def test_a_run_is_the_run_of_the_plain_loss(monkeypatch):
    """A user's network, through the whole engine."""
    runs = []
    for door in (form.product_form, lambda loss: loss):
        monkeypatch.setattr("sordino.models.model.product_form", door)
        method = so.fedavg(local_steps=2, local_lr=0.1, bound=so.clip(1.0), batch_size=3)
        plan = so.plan(method, rounds=2, cohort="full", noise_multiplier=0.5)
        runs.append(so.simulate(plan, users_task(), seed=0, chunk=2))
    for a, b in zip(*(jax.tree.leaves(run.params) for run in runs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def users_task():
    x, w1, w2, w3 = draw((40, 8, 8, 1), (3, 3, 1, 4), (3, 3, 4, 6), (24, 3))
    y = np.arange(40, dtype=np.int32) % 3

    def logits(params, x):
        for kernel in params[:2]:
            x = jax.nn.relu(convolved(x, kernel, {"padding": "SAME"}))
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return x.reshape(len(x), -1) @ params[2]

    def loss(params, batch):
        return weighted_mean(cross_entropy(logits(params, batch.x), batch.y), batch.weight)

    start, size = np.array([0, 10, 17, 25], np.int32), np.array([10, 7, 8, 15], np.int32)
    data = FederatedData(np.asarray(x), y, start, size, np.asarray(x[:6]), y[:6], 3)
    return Task("users", data, from_loss(lambda key: (0.3 * w1, 0.3 * w2, 0.3 * w3), loss, logits))
