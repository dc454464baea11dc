"""A trained model applied, kept, and handed to other programs."""

from __future__ import annotations

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.errors import InvalidInput
from sordino.keys import key_of
from sordino.models import from_loss, get, weighted_mean
from sordino.models._naming import parameters_by_name, torch_state_dict
from sordino.models._onnx_graph import onnx_bytes
from sordino.runs import Options, Point, sweep
from sordino.runs.model_file import Card, model_bytes, model_of, params_of, read_card
from sordino.tasks.predictor import PRIVATE_FIGURES
from tests import patients

METHOD = so.fedavg(local_steps=10, local_lr=0.3, bound=so.clip(1.0))
PLAN = so.plan(METHOD, rounds=10, noise_multiplier=0.5, delta=1e-3)


@pytest.fixture(scope="module")
def task():
    return so.task(patients.columns(), **patients.OPTIONS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("runs") / "patients")


@pytest.fixture(scope="module")
def run(task, folder):
    return so.simulate(PLAN, task, seed=0, folder=folder)


def records(number: int) -> dict[str, list[object]]:
    """The first patients, without their diagnosis."""
    return {name: values[:number] for name, values in patients.columns().items() if name != "diagnosis"}


# --- Applying a run --------------------------------------------------------------------------------------------------


def test_predictions_are_names_and_agree_with_the_metrics(run, task):
    everybody = patients.columns()
    assert set(run.predict(records(569))) == {"benign", "malignant"}
    right = np.mean(run.predict(records(569)) == np.array(everybody["diagnosis"]))
    found = run.evaluate(everybody)
    assert found.records == 569
    assert found.accuracy == pytest.approx(right)
    assert found.accuracy == run.evaluate(records(569), everybody["diagnosis"]).accuracy
    assert PRIVATE_FIGURES in str(found)
    on_test = run.model._evaluation(task.data.x_test, task.data.y_test)
    assert on_test.accuracy == pytest.approx(run.accuracy)
    assert on_test.loss == pytest.approx(run.history[-1]["test_loss"], rel=1e-5)


def test_one_record_alone_is_predicted_as_among_others(run):
    shares = run.model.probabilities(records(50))
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    np.testing.assert_allclose(run.model.probabilities(records(1)), shares[:1], atol=1e-6)


def test_each_client_is_evaluated_on_its_own_records(run, task):
    found = run.evaluate_clients(task)
    assert [row.client for row in found] == list(task.data.names)
    assert [row.records for row in found] == task.data.size.tolist()
    row, start = found.rows[3], int(task.data.start[3])
    mine = slice(start, start + row.records)
    alone = run.model._evaluation(task.data.x[mine], task.data.y[mine])
    assert (row.accuracy, row.loss) == (pytest.approx(alone.accuracy), pytest.approx(alone.loss, rel=1e-6))
    assert str(found).endswith(PRIVATE_FIGURES)


def test_more_records_than_a_batch():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2345, 4)), rng.integers(0, 3, 2345)
    run = so.simulate(so.plan(METHOD, rounds=1), so.task(x, y, clients=5, classes=3, test=(x, y)), seed=0)
    parts = np.concatenate([run.predict(x[:1000]), run.predict(x[1000:2000]), run.predict(x[2000:])])
    np.testing.assert_array_equal(run.predict(x), parts)
    assert run.predict(x).dtype.kind == "i"
    assert run.evaluate(x, y).accuracy == pytest.approx(run.accuracy)


def test_a_run_prints_as_a_paragraph(run, folder):
    for shown in (repr(run), str(so.load_run(folder))):
        assert "\n" not in shown
        assert len(shown) < 900
        assert "accuracy" in shown
        assert "epsilon = " in shown
        assert "array" not in shown


# --- A run from its folder -------------------------------------------------------------------------------------------


def test_a_loaded_run_is_the_run(run, folder):
    stored = so.load_run(folder)
    np.testing.assert_array_equal(stored.predict(records(569)), run.predict(records(569)))
    assert stored.evaluate(patients.columns()) == run.evaluate(patients.columns())
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), stored.params, run.params))
    assert stored.certificate == run.certificate
    assert stored.metrics == run.history
    assert stored.ledger.rounds() == 10
    assert stored.config is None
    assert stored.finished


def test_what_is_kept_was_declared(run, folder, task):
    """Nothing of the records: the same for a table with other records and the same declarations."""
    text = (so.load_run(folder).folder / "reading.json").read_text()
    half = so.task(patients.columns(200), **patients.OPTIONS)
    assert json.loads(text) == json.loads(json.dumps(half.data.reading.to_json()))
    model = (so.load_run(folder).folder / "model.safetensors").read_bytes()
    assert b"benign" not in model  # a model may be handed on


OPTIONS = ("logistic", "mlp:8", "mlp:8,batch", "cnn", "resnet20", "resnet20:batch", "resnet20:batch,bfloat16")


@pytest.mark.parametrize("name", OPTIONS)
def test_every_model_is_built_again_from_its_file(name, tmp_path):
    shape = (28, 28) if name == "cnn" else (8, 8, 3)
    model, params, _ = made(name, shape)
    (tmp_path / "model").write_bytes(model_bytes(params, Card(model.name, shape, 10, model.by_name)))
    card = read_card(tmp_path / "model")
    again = model_of(tmp_path / "model", card)
    assert again.name == model.name == name
    found = params_of(tmp_path / "model", again)
    assert jax.tree.structure(found) == jax.tree.structure(params)
    assert jax.tree.all(jax.tree.map(lambda one, other: bool((one == other).all()), found, params))


def test_a_model_of_ones_own_is_given_again(tmp_path):
    def loss(w, batch):
        return weighted_mean((batch.x @ w["slope"] - batch.y) ** 2, batch.weight)

    own = from_loss(lambda key: {"slope": jnp.zeros(2)}, loss, name="line")
    x = np.random.default_rng(0).normal(size=(20, 2))
    task = so.task(x, x[:, 0], clients=2, test=(x, x[:, 0]), model=own)
    run = so.simulate(so.plan(so.fedavg(local_steps=2, local_lr=0.1), rounds=2), task, seed=0, folder=tmp_path / "run")
    with pytest.raises(InvalidInput, match="is not one of Sordino's models: give it"):
        so.load_run(tmp_path / "run").evaluate(x, x[:, 0])
    stored = so.load_run(tmp_path / "run", model=own)
    np.testing.assert_array_equal(stored.params["slope"], run.params["slope"])
    assert stored.evaluate(x, x[:, 0]).loss == pytest.approx(run.history[-1]["test_loss"], rel=1e-5)
    with pytest.raises(InvalidInput, match="does not fit the file"):
        _ = so.load_run(tmp_path / "run", model=get("logistic", (2,), 2)).params


def test_a_model_of_ones_own_is_never_taken_for_one_of_ours(tmp_path):
    ours = get("mlp:8", (2,), 2)

    def predict(params, x):
        return -ours.predict(params, x)

    for name in ("mlp:8", "MLP", "cnn_small", " logistic"):
        with pytest.raises(InvalidInput, match="give yours another"):
            from_loss(ours.init, ours.loss, predict, name=name)
    own = from_loss(ours.init, ours.loss, predict)._replace(name="mlp:8")
    x = np.random.default_rng(0).normal(size=(20, 2))
    task = so.task(x, [0, 1] * 10, clients=2, classes=2, test_share=0.2, model=own)
    plan = so.plan(so.fedavg(local_steps=2, local_lr=0.1), rounds=2)
    run = so.simulate(plan, task, seed=0, folder=tmp_path / "run")
    with pytest.raises(InvalidInput, match=r"give it, so\.load_run"):
        so.load_run(tmp_path / "run").predict(x)
    again = so.load_run(tmp_path / "run", model=own)
    np.testing.assert_array_equal(again.model.scores(x), run.model.scores(x))


def test_a_point_of_a_sweep_is_a_run(task, tmp_path):
    points = [Point(PLAN, seed, folder=tmp_path / "points" / f"{seed:05d}") for seed in (0, 1)]
    runs = sweep(points, task, Options(models=True))
    stored = so.load_run(tmp_path / "points" / "00001")
    np.testing.assert_array_equal(stored.predict(records(20)), runs[1].predict(records(20)))
    with pytest.raises(InvalidInput, match="holds a sweep: give one of its points"):
        so.load_run(tmp_path)


# --- Exports ---------------------------------------------------------------------------------------------------------

SHAPES = {
    "logistic": (5,),
    "mlp:16,8": (4, 3),
    "cnn": (28, 28, 1),
    "cnn-small": (28, 28),
    "resnet20": (16, 16, 3),
}


def made(name: str, shape: tuple[int, ...]):
    """A model with parameters that are all different from zero."""
    model = get(name, shape, 10)
    params = model.init(key_of(0))
    keys = iter(jax.random.split(key_of(1), len(jax.tree.leaves(params))))
    params = jax.tree.map(lambda leaf: leaf + 0.05 * jax.random.normal(next(keys), leaf.shape), params)
    return model, params, np.random.default_rng(0).normal(size=(7, *shape)).astype(np.float32)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "resnet20" else ()) for name in SHAPES]
)
def test_a_graph_has_the_scores_of_the_model(name):
    runtime = pytest.importorskip("onnxruntime")
    model, params, x = made(name, SHAPES[name])
    session = runtime.InferenceSession(onnx_bytes(model.name, params, SHAPES[name]), providers=["CPUExecutionProvider"])
    with jax.default_matmul_precision("highest"):
        wanted = np.asarray(model.predict(params, jnp.asarray(x)))
    assert np.abs(wanted).max() > 0.1
    for some in (x, x[:1]):  # any number of records
        (found,) = session.run(["scores"], {"x": some})
        np.testing.assert_allclose(found, wanted[: len(some)], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["mlp:8,batch", "resnet20:batch", "resnet20:group,bfloat16"])
def test_a_graph_that_would_differ_is_refused(name):
    model, params, _ = made(name, (16, 16, 3))
    with pytest.raises(InvalidInput, match="would not give again"):
        onnx_bytes(model.name, params, (16, 16, 3))


def test_without_onnx_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    model, params, _ = made("logistic", (5,))
    with pytest.raises(InvalidInput, match="needs the package `onnx`"):
        onnx_bytes(model.name, params, (5,))


def test_parameters_have_readable_names():
    names = {name: set(parameters_by_name(made(name, shape)[1])) for name, shape in SHAPES.items()}
    assert names["logistic"] == {"weight", "bias"}
    assert {"0.weight", "2.bias"} <= names["mlp:16,8"]
    assert {"first.kernel", "dense.1.bias"} <= names["cnn"]
    assert {"kernel", "blocks.8.norm2.shift", "dense.weight"} <= names["resnet20"]


def test_layouts_of_pytorch_by_hand():
    _, params, _ = made("cnn", (28, 28))
    arrays = torch_state_dict("cnn", params)
    assert arrays["conv2.weight"].shape == (8, 4, 4, 4)
    assert arrays["conv2.weight"][5, 2, 1, 3] == params.second.kernel[1, 3, 2, 5]
    assert sum(array.size for array in arrays.values()) == 5046
    with pytest.raises(InvalidInput, match="not one of Sordino's"):
        torch_state_dict("mine", {"slope": np.zeros(3)})


@pytest.mark.parametrize("name", SHAPES)
def test_pytorch_computes_the_same(name):
    torch = pytest.importorskip("torch")
    model, params, x = made(name, SHAPES[name])
    arrays = {key: torch.tensor(np.array(value)) for key, value in torch_state_dict(model.name, params).items()}
    wanted = np.asarray(model.predict(params, jnp.asarray(x)))
    found = in_pytorch(torch.nn.functional, name, arrays, torch.tensor(x)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def in_pytorch(nn, name, arrays, x):
    """The networks of docs/models.md."""
    if name == "logistic":
        return nn.linear(x.flatten(1), arrays["linear.weight"], arrays["linear.bias"])
    if name.startswith("mlp"):
        x = x.flatten(1)
        for place in range(3):
            x = nn.linear(x, arrays[f"layers.{place}.weight"], arrays[f"layers.{place}.bias"])
            x = nn.relu(x) if place < 2 else x
        return x
    if name.startswith("cnn"):
        x = x.reshape(len(x), 1, 28, 28)
        for place in ("conv1", "conv2"):
            x = nn.max_pool2d(nn.conv2d(x, arrays[f"{place}.weight"], arrays[f"{place}.bias"]), 2)
        x, layers = x.flatten(1), sorted({key.rpartition(".")[0] for key in arrays if key.startswith("dense")})
        for layer in layers:
            x = nn.linear(x, arrays[f"{layer}.weight"], arrays[f"{layer}.bias"])
            x = nn.relu(x) if layer != layers[-1] else x
        return x

    def layer(x, conv, norm, stride=1):
        x = nn.conv2d(x, arrays[f"{conv}.weight"], stride=stride, padding=1)
        return nn.group_norm(x, 8, arrays[f"{norm}.weight"], arrays[f"{norm}.bias"], eps=1e-5)

    x = nn.relu(layer(x.permute(0, 3, 1, 2), "conv", "norm"))
    for place in range(9):
        block = f"blocks.{place}"
        outputs, inputs = arrays[f"{block}.conv1.weight"].shape[:2]
        shortcut, stride = x, 1
        if outputs != inputs:
            extra, stride = outputs - inputs, 2
            shortcut = nn.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, extra // 2, extra - extra // 2))
        x = nn.relu(layer(x, f"{block}.conv1", f"{block}.norm1", stride))
        x = nn.relu(layer(x, f"{block}.conv2", f"{block}.norm2") + shortcut)
    return nn.linear(x.mean((2, 3)), arrays["linear.weight"], arrays["linear.bias"])


# --- Mistakes --------------------------------------------------------------------------------------------------------

MISTAKES = {
    "an array for a table": (lambda run, task: run.predict(np.zeros((3, 8))), "x"),
    "a missing column": (lambda run, task: run.predict({"age": [50.0]}), "x: columns"),
    "an unknown category": (lambda run, task: run.predict(records(1) | {"stage": ["IV"]}), "x: row 0, column `stage`"),
    "a missing value": (lambda run, task: run.predict(records(1) | {"age": [None]}), "x: row 0, column `age`"),
    "no labels": (lambda run, task: run.evaluate(records(3)), "x: label"),
    "an unknown label": (lambda run, task: run.evaluate(records(1), ["healthy"]), "y"),
    "fewer labels": (lambda run, task: run.evaluate(records(3), ["benign"]), "y"),
    "no task": (lambda run, task: run.evaluate_clients("patients"), "task"),
    "another task": (lambda run, task: run.evaluate_clients(so.task("digits", clients=3)), "task"),
    "another reading": (
        lambda run, task: run.evaluate_clients(
            so.task(patients.columns(), **(patients.OPTIONS | {"labels": ["malignant", "benign"]}))
        ),
        "task",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_of_ours(name, run, task):
    mistake, field = MISTAKES[name]
    with pytest.raises(InvalidInput) as caught:
        mistake(run, task)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)
