"""Batch statistics as PyTorch averages them, by hand, for an evaluation of Table 3 of paper 4."""

from __future__ import annotations

import dataclasses
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.paper4 import evaluations
from experiments.paper4.evaluations import Statistics, accuracy, of_batch, running, standardized
from sordino.data import FederatedData
from sordino.data.augmentation import crop_flip
from sordino.models import get
from sordino.models.resnet20 import scores
from sordino.tasks import Task

pytestmark = pytest.mark.slow  # ResNet-20 compiles long, and only an experiment asks for this

SHAPE = (8, 8, 3)


@pytest.fixture(scope="module")
def task() -> Task:
    """One worker whose records are one image, so that every batch is the same; 20 other test images."""
    rng = np.random.default_rng(0)
    image = rng.standard_normal((1, *SHAPE), dtype=np.float32)
    test = rng.standard_normal((20, *SHAPE), dtype=np.float32)
    x, y = np.repeat(image, 4, axis=0), np.zeros(4, np.int32)
    data = FederatedData(x, y, np.zeros(1, np.int32), np.full(1, 4, np.int32), test, np.arange(20) % 3, 3)
    return Task("one image", data, get("resnet20:batch", SHAPE, 3))


def models(task: Task) -> jax.Array:
    return jnp.stack([task.initial(jax.random.key(seed)) for seed in (1, 2)])


def test_statistics_of_a_batch_are_the_models_own(task):
    """Standardised by them, the unbiased variance taken back, the batch has the scores that the model gives it."""
    w, x = models(task)[0], task.test[0]
    s = of_batch(task.params(w), x, "float32")
    assert len(s) == 19  # every layer but the last

    layers = iter(s)

    def biased(x: jax.Array) -> jax.Array:
        mean, variance = next(layers)
        return standardized(x, Statistics(mean, variance * (1 - 1 / x[0].size)))

    np.testing.assert_allclose(scores(task.params(w), x, biased), task.predict(w, x), atol=1e-4)


def test_a_variance_by_hand(task):
    w, x = models(task)[0], task.records.x
    first = of_batch(task.params(w), x, "float32")[0]
    kernel = np.asarray(task.params(w).kernel, np.float64)
    padded = np.pad(np.asarray(x[0], np.float64), ((1, 1), (1, 1), (0, 0)))
    patches = np.stack([padded[i : i + 8, j : j + 8] for i in range(3) for j in range(3)])  # [9, 8, 8, 3]
    found = np.einsum("khwc,kco->ohw", patches, kernel.reshape(9, 3, -1)).reshape(16, -1)
    four_times = np.repeat(found, 4, axis=1)
    np.testing.assert_allclose(first.mean, found.mean(axis=1), atol=1e-5)
    np.testing.assert_allclose(first.variance, four_times.var(axis=1, ddof=1), rtol=1e-4)


def test_running_averages_weigh_the_newer_round_more(task):
    w = models(task)
    old, new = (of_batch(task.params(each), task.records.x[:2], "float32") for each in w)
    s = running(task, task.records, w, jax.random.key(0), batch_size=2, dtype="float32")
    for layer, before, after in zip(s, old, new, strict=True):
        for found, first, second in zip(layer, before, after, strict=True):
            np.testing.assert_allclose(found, (0.1 * 0.9 * first + 0.1 * second) / 0.19, rtol=1e-4, atol=1e-5)


def test_accuracy_by_statistics_of_other_images_differs(task):
    w, (x, y) = models(task)[0], task.test
    own = accuracy(task, w, of_batch(task.params(w), x, "float32"), "float32")
    right = float(jnp.mean(jnp.argmax(task.predict(w, x), axis=1) == y))
    assert own == pytest.approx(right, abs=0.051)  # variances are a little larger than the model's: one image at most
    others = [Statistics(s.mean + 3, s.variance) for s in of_batch(task.params(w), x, "float32")]
    layers = iter(others)
    found = scores(task.params(w), x, lambda x: standardized(x, next(layers)))
    assert accuracy(task, w, others, "float32") == pytest.approx(float(jnp.mean(jnp.argmax(found, axis=1) == y)))


def test_augmented_test_images_are_named_otherwise(task):
    task = dataclasses.replace(task, augment=crop_flip)
    w, (x, y) = models(task)[0], task.test
    found = []
    for key in jax.random.split(jax.random.key(3), 4):
        changed = crop_flip(jax.random.fold_in(key, 0), x)
        right = float(jnp.mean(jnp.argmax(task.predict(w, changed), axis=1) == y))
        found.append(accuracy(task, w, None, "float32", key))
        assert found[-1] == pytest.approx(right)
    assert len({accuracy(task, w, None, "float32"), *found}) > 1


def test_the_command_evaluates_in_four_ways(needs, tmp_path, monkeypatch, capsys):
    needs("cifar10")
    out = tmp_path / "found.json"
    changes = ("run.rounds=5", "algorithm.batch_size=2", "task.model=resnet20:batch")
    arguments = ["--only", "^beta 1, dp-sgd$", *(part for change in changes for part in ("--set", change))]
    monkeypatch.setattr(sys, "argv", ["evaluations", *arguments, "--out", str(out)])
    evaluations.main()
    result = json.loads(out.read_text())
    assert [row["column"] for row in result["rows"]] == [f"dp-sgd{way}" for way in evaluations.WAYS]
    assert all(5 < row["mean"] < 30 for row in result["rows"])  # five short rounds: next to chance
    assert "dp-sgd, running averages" in capsys.readouterr().out


def test_a_folder_is_refused_before_anything_is_computed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["evaluations", "--out", str(tmp_path)])
    monkeypatch.setattr(evaluations, "sweep", None)
    with pytest.raises(SystemExit, match="2"):
        evaluations.main()
    assert "is a folder: name a file" in capsys.readouterr().err
