"""What every model promises. A new entry of `sordino.models.MODELS` is enrolled by being there."""

import importlib
import pkgutil
import re
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino.models as models
from sordino.errors import InvalidInput
from sordino.models import Batch, Model

SPELLED = {"mlp": "mlp:8,6"}  # names that need sizes
pytestmark = pytest.mark.xdist_group("models")  # one worker compiles each model

SHAPES = {"resnet20": (8, 8, 3)}  # of one record, where it is not (28, 28)
VARIANTS = [("resnet20", {"norm": "batch"}), ("mlp", {"norm": "batch"})]  # options that change what is computed
CASES = [*((name, {}) for name in models.MODELS), *VARIANTS]
CLASSES = 4

HEAVY = {"resnet20"}  # takes seconds to compile: tests that need a program of their own leave it to `make test-all`


def enrol(*slow):
    marked = [pytest.param(*case, marks=[pytest.mark.slow] * (case[0] in slow)) for case in CASES]
    return pytest.mark.parametrize(("name", "options"), marked, ids=lambda part: str(part) if part else "")


every_model = enrol()
every_model_but_heavy_ones_slowly = enrol(*HEAVY)


def shape_of(name):
    return SHAPES.get(name, (28, 28))


def build(name, options):
    return models.get(SPELLED.get(name, name), shape_of(name), CLASSES, **options)


def some_batch(name, n=6, seed=0):
    """Records of a class differ from the others by a pattern that a line separates."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % CLASSES
    pattern = np.random.default_rng(7).normal(size=(CLASSES, *shape_of(name)))
    x = pattern[y] + 0.3 * rng.normal(size=(n, *shape_of(name)))
    return Batch(jnp.asarray(x, jnp.float32), jnp.asarray(y), jnp.ones(n, jnp.float32))


@cache
def compiled(name, options):
    """The model with compiled predictions, its first parameters, its compiled gradient, and how often that was traced.

    Most tests use six records, so that they share one program.
    """
    model = build(name, dict(options))
    model = model._replace(init=jax.jit(model.init), predict=jax.jit(model.predict))
    traces = []

    def counted(params, batch):
        traces.append(name)
        return model.loss(params, batch)

    return model, model.init(jax.random.key(1)), jax.jit(jax.value_and_grad(counted)), traces


def parts(name, options):
    return compiled(name, tuple(options.items()))


def assert_close(ours, theirs, tolerance=1e-5):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def test_the_registry_holds_every_file():
    of_tasks = {"model", "linear"}  # what models are made of; losses of problems, which are tasks by name
    files = {m.name for m in pkgutil.iter_modules(models.__path__) if not m.name.startswith("_")} - of_tasks
    for file in files:
        if file == "pytorch":  # `from_torch`: a module of the user's, and no model by name
            continue
        make = getattr(importlib.import_module(f"sordino.models.{file}"), file)
        assert models.MODELS[file.replace("_", "-")] is make


@pytest.mark.parametrize(
    ("name", "shape", "d"),
    [
        ("logistic", (784,), 7_850),
        ("mlp:300,300", (784,), 328_810),
        ("mlp:600,600", (3072,), 2_210_410),
        ("mlp:32,batch", (784,), 784 * 32 + 2 * 32 + 330),
        ("cnn", (28, 28), 5_046),
        ("cnn-small", (28, 28), 237),
        ("resnet20", (32, 32, 3), 269_722),
    ],
)
def test_the_number_of_parameters_is_that_of_the_papers(name, shape, d):
    model = models.get(name, shape, 10)
    vector, unravel = models.flat(model, jax.random.key(0))
    assert vector.shape == (d,)
    assert vector.dtype == jnp.float32
    assert model.name == name
    params = model.init(jax.random.key(0))
    assert jax.tree.structure(unravel(vector)) == jax.tree.structure(params)
    assert_close(unravel(vector), params, 0)


@every_model_but_heavy_ones_slowly
def test_is_a_model_in_float32(name, options):
    model, params, gradient, _ = parts(name, options)
    assert isinstance(model, Model)
    batch = some_batch(name)
    loss, grads = gradient(params, batch)
    assert loss.shape == ()
    assert {leaf.dtype for leaf in jax.tree.leaves((params, loss, grads))} == {jnp.dtype(jnp.float32)}
    assert jax.tree.structure(grads) == jax.tree.structure(params)
    logits = model.predict(params, batch.x)
    assert logits.shape == (6, CLASSES)
    assert logits.dtype == jnp.float32
    by_hand = -np.mean(np.asarray(jax.nn.log_softmax(logits))[np.arange(6), batch.y])
    assert float(loss) == pytest.approx(by_hand, rel=1e-5)


@every_model
def test_init_depends_on_its_key_only(name, options):
    model, params, _, _ = parts(name, options)
    assert_close(model.init(jax.random.key(1)), params, 0)
    other = model.init(jax.random.key(2))
    same = jax.tree.map(np.array_equal, other, params)
    assert jax.tree.all(same) == (name == "logistic")


@every_model
def test_a_second_call_does_not_trace_again(name, options):
    _, params, gradient, traces = parts(name, options)
    gradient(params, some_batch(name))
    gradient(params, some_batch(name))
    before = len(traces)
    gradient(jax.tree.map(lambda leaf: 0.9 * leaf, params), some_batch(name, seed=1))
    assert len(traces) == before


@every_model
def test_padding_changes_neither_loss_nor_gradient(name, options):
    _, params, gradient, _ = parts(name, options)
    full = some_batch(name)
    weight = jnp.asarray([1, 1, 0, 1, 0, 0], jnp.float32)
    kept = np.tile(np.flatnonzero(weight), 2)  # each twice: the mean is the same, and so is the compiled program
    padded = gradient(params, full._replace(weight=weight))
    garbage = full._replace(
        x=full.x.at[2].set(1e3).at[4:].set(-50.0), y=full.y.at[2].set(-1).at[5].set(99), weight=weight
    )
    assert_close(gradient(params, garbage), padded)
    assert_close(gradient(params, jax.tree.map(lambda leaf: leaf[kept], full)), padded, 2e-5)
    assert_close(gradient(params, full._replace(weight=3 * weight)), padded, 2e-5)


@every_model
def test_a_client_without_records_has_no_gradient(name, options):
    _, params, gradient, _ = parts(name, options)
    batch = some_batch(name)
    loss, grads = gradient(params, batch._replace(weight=jnp.zeros(6)))
    assert loss == 0
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(grads))


@every_model_but_heavy_ones_slowly
def test_the_gradient_is_the_slope(name, options):
    with jax.enable_x64(True):
        model = build(name, options)
        w0, unravel = models.flat(model, jax.random.key(3))
        rng = np.random.default_rng(0)
        w = jnp.asarray(np.asarray(w0, np.float64) + 0.01 * rng.normal(size=w0.shape))
        batch = some_batch(name, n=3)
        batch = Batch(batch.x.astype(jnp.float64), batch.y, jnp.asarray([1.0, 0.5, 0.0]))
        wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), unravel(w0))
        shapes = [leaf.shape for leaf in jax.tree.leaves(wide)]
        cuts = np.cumsum([np.prod(shape, dtype=int) for shape in shapes])[:-1]

        def loss(w):
            leaves = [part.reshape(shape) for part, shape in zip(jnp.split(w, cuts), shapes, strict=True)]
            return model.loss(jax.tree.unflatten(jax.tree.structure(wide), leaves), batch)

        value_and_grad = jax.jit(jax.value_and_grad(loss))
        value, grad = value_and_grad(w)
        assert value.dtype == jnp.float64
        for _ in range(3):
            direction = rng.normal(size=w.shape)
            direction /= np.linalg.norm(direction)
            step = 1e-6 * direction
            slope = (value_and_grad(w + step)[0] - value_and_grad(w - step)[0]) / 2e-6
            assert float(slope) == pytest.approx(float(grad @ direction), rel=1e-4, abs=1e-7)


@every_model_but_heavy_ones_slowly
def test_clients_with_their_own_weights_run_as_one(name, options):
    model, params, gradient, _ = parts(name, options)
    both = [params, jax.tree.map(lambda leaf: 0.9 * leaf + 0.01, params)]
    batches = [some_batch(name), some_batch(name, seed=1)]
    stack = lambda *leaves: jnp.stack(leaves)  # noqa: E731
    together = jax.jit(jax.vmap(jax.value_and_grad(model.loss)))(
        jax.tree.map(stack, *both), jax.tree.map(stack, *batches)
    )
    for client in range(2):
        alone = gradient(both[client], batches[client])
        assert_close(jax.tree.map(lambda leaf: leaf[client], together), alone, 1e-4)  # noqa: B023


@every_model
def test_gradient_descent_learns_what_a_line_separates(name, options):
    model, params, gradient, _ = parts(name, options)
    batch = some_batch(name)
    first = float(gradient(params, batch)[0])
    for _ in range(60):
        _, grads = gradient(params, batch)
        params = jax.tree.map(lambda p, g: p - 0.05 * g, params, grads)
    assert float(gradient(params, batch)[0]) < 0.5 * first
    assert np.mean(np.argmax(model.predict(params, batch.x), axis=1) == batch.y) > 0.8


@pytest.mark.parametrize("name", ["logistic", "mlp", "cnn", "cnn-small"])
def test_prediction_in_big_batches_is_prediction_record_by_record(name):
    model, params, _, _ = parts(name, {})
    x = some_batch(name, n=1203).x  # neither below nor a multiple of the chunk
    logits = model.predict(params, x)
    assert logits.shape == (1203, CLASSES)
    few = np.asarray([0, 499, 500, 1000, 1202])
    assert_close(model.predict(params, x[few]), logits[few], 1e-4)


def test_group_norm_keeps_records_apart_and_batch_norm_does_not():
    x = some_batch("resnet20").x
    other = x.at[1].set(5.0)
    for norm, apart in (("group", True), ("batch", False)):
        model, params, _, _ = parts("resnet20", {"norm": norm} if norm == "batch" else {})
        assert np.allclose(model.predict(params, x)[0], model.predict(params, other)[0], atol=1e-5) == apart


def test_batch_norm_of_an_mlp_is_that_of_the_book():
    """Two records count, the third is padding."""
    params = models.get("mlp:5,batch", (4,), 3).init(jax.random.key(0))
    hidden, last = params
    hidden = hidden._replace(norm=hidden.norm._replace(scale=jnp.arange(1.0, 6.0), shift=jnp.arange(5.0)))
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    scores = x[:2] @ np.asarray(hidden.weight).T
    standard = (scores - scores.mean(0)) / np.sqrt(scores.var(0) + 1e-5)
    logits = np.maximum(standard * np.arange(1, 6) + np.arange(5), 0) @ np.asarray(last.weight).T + last.bias
    by_hand = -np.mean(np.asarray(jax.nn.log_softmax(logits))[[0, 1], [2, 0]])
    batch = Batch(jnp.asarray(x), jnp.asarray([2, 0, 1]), jnp.asarray([1.0, 1.0, 0.0]))
    loss = models.get("mlp:5,batch", (4,), 3).loss((hidden, last), batch)
    assert float(loss) == pytest.approx(float(by_hand), rel=1e-4)


def test_dense_layers_start_as_in_pytorch():
    for layer, fan_in in zip(
        models.get("mlp:300,300", (784,), 10).init(jax.random.key(0)), (784, 300, 300), strict=True
    ):
        limit = fan_in**-0.5
        for leaf in layer:
            assert np.max(np.abs(leaf)) <= limit
            assert np.max(np.abs(leaf)) > 0.7 * limit
        assert np.std(layer.weight) == pytest.approx(limit / 3**0.5, rel=0.05)


def test_cross_entropy_survives_huge_logits_and_flags_unknown_labels():
    logits = jnp.asarray([[1e4, 0.0, -1e4]], jnp.float32)
    assert float(models.cross_entropy(logits, jnp.asarray([0]))[0]) == 0
    assert float(models.cross_entropy(logits, jnp.asarray([2]))[0]) == 2e4
    for label in (-1, 3):
        value, grad = jax.value_and_grad(lambda z, y: models.cross_entropy(z, y)[0])(logits, jnp.asarray([label]))
        assert np.isnan(value)
        assert np.all(np.isnan(grad))
    with pytest.raises(InvalidInput, match="whole numbers"):
        models.cross_entropy(logits, jnp.asarray([0.0]))


def test_images_may_be_bytes():
    model, params, _, _ = parts("cnn-small", {})
    x = jnp.arange(2 * 784, dtype=jnp.uint8).reshape(2, 28, 28)
    assert_close(model.predict(params, x), model.predict(params, x.astype(jnp.float32)), 0)


@pytest.mark.parametrize("shape", [(28, 28), (28, 28, 1), (1, 28, 28), (784,)])
def test_grey_images_may_have_any_shape(shape):
    model, params, _, _ = parts("cnn", {})
    x = some_batch("cnn").x
    same = models.get("cnn", shape, CLASSES)
    assert_close(same.predict(params, x.reshape(-1, *shape)), model.predict(params, x), 1e-6)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "options", "message"),
    [
        ("transformer", (28, 28), 10, {}, "'transformer': use one of cnn, cnn-small, logistic, mlp, resnet20"),
        ("cnn", (32, 32, 3), 10, {}, r"\(32, 32, 3\): cnn takes grey 28 x 28 images"),
        ("cnn-small", (27, 28), 10, {}, r"\(27, 28\): cnn-small takes grey 28 x 28 images"),
        ("resnet20", (3072,), 10, {}, r"\(3072,\): resnet20 takes \[height, width, channels\]"),
        ("resnet20", (3, 32, 32), 10, {}, "such as"),
        ("resnet20", (32, 32, 3), 10, {"norm": "layer"}, "'layer': use 'group' or 'batch'"),
        ("resnet20:batch,float16", (32, 32, 3), 10, {}, "'float16': use 'float32' or 'bfloat16'"),
        ("resnet20:batch,float32,8", (32, 32, 3), 10, {}, "at most norm, dtype may follow the colon"),
        ("mlp", (784,), 10, {}, "as in 'mlp:300,300'"),
        ("mlp:", (784,), 10, {}, "as in 'mlp:300,300'"),
        ("mlp:300,0", (784,), 10, {}, "positive"),
        ("mlp:x", (784,), 10, {}, "as in 'mlp:300,300'"),
        ("mlp:300,x", (784,), 10, {}, "norm = 'x': use 'none' or 'batch'"),
        ("mlp:300,batch,3", (784,), 10, {}, "at most norm may follow"),
        ("mlp:300", (784,), 10, {"hidden": (3,)}, "already"),
        ("logistic:3", (784,), 10, {}, "model = 'logistic:3'"),
        ("logistic", (784,), 1, {}, "2 or more"),
        ("logistic", (), 10, {}, "shape of one record"),
        ("cnn", (28, 28), 10, {"depth": 3}, "'depth': it has no options"),
        ("resnet20", (32, 32, 3), 10, {"depth": 3}, "'depth': its options are norm"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_remedy(name, shape, classes, options, message):
    with pytest.raises(InvalidInput, match=message):
        models.get(name, shape, classes, **options)


@pytest.mark.slow
def test_resnet20_in_bfloat16_has_gradients_in_float32_close_to_those_of_float32():
    rng = np.random.default_rng(0)
    batch = models.Batch(jnp.asarray(rng.normal(size=(32, 8, 8, 3)), jnp.float32), jnp.arange(32) % 4, jnp.ones(32))
    gradients = []
    for dtype in ("float32", "bfloat16"):
        model = models.get(f"resnet20:batch,{dtype}", (8, 8, 3), 4)
        tree = jax.jit(jax.grad(model.loss))(model.init(jax.random.key(0)), batch)
        assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(tree))
        gradients.append(np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]))
    exact, rounded = gradients
    assert 0 < np.linalg.norm(rounded - exact) < 0.3 * np.linalg.norm(exact)  # 20 layers of 8 bits on noise


def test_records_of_another_shape_are_refused():
    model, params, _, _ = parts("logistic", {})
    with pytest.raises(InvalidInput, match=r"\(2, 27\): this model takes records of shape \(28, 28\)"):
        model.predict(params, jnp.zeros((2, 27)))


def test_a_loss_of_your_own():
    def loss(w, batch):
        return models.weighted_mean(jnp.square(batch.x @ w - batch.y), batch.weight)

    model = models.from_loss(lambda key: jnp.zeros(3), loss)
    assert model.predict is None
    w0, unravel = models.flat(model, jax.random.key(0))
    assert unravel(w0).shape == (3,)
    with pytest.raises(InvalidInput, match="float32"):
        models.flat(models.from_loss(lambda key: {"w": jnp.zeros(3, jnp.bfloat16)}, loss), jax.random.key(0))
    with pytest.raises(InvalidInput, match="at least one"):
        models.flat(models.from_loss(lambda key: (), loss), jax.random.key(0))
    with pytest.raises(InvalidInput, match="pass a function"):
        models.from_loss(jnp.zeros(3), loss)


DOCUMENT = Path(__file__).parents[2] / "docs" / "models.md"
EXAMPLES = re.findall(r"## ([^\n]*)(?:(?!\n## ).)*?```python\n.*?```\s+prints\s+```\n", DOCUMENT.read_text(), re.S)


def test_there_is_an_example_for_every_library():
    assert EXAMPLES == [
        "A loss of your own, in plain JAX",
        "Arrays of your own",
        "A Flax network",
        "An Equinox network",
        "A PyTorch network",
        "Taking a model out",
    ]


def test_every_model_is_documented():
    text = DOCUMENT.read_text()
    assert all(f'"{SPELLED.get(name, name).split(":")[0]}' in text for name in models.MODELS)
