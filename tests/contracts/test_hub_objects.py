"""Real objects of `datasets` and flwr-datasets as tasks, made on this machine; nothing is fetched."""

from __future__ import annotations

import numpy as np
import pytest

import sordino as so
from tests import patients

datasets = pytest.importorskip("datasets")
LABELS = ["benign", "malignant"]


@pytest.fixture(autouse=True)
def nothing_is_fetched(monkeypatch, tmp_path):
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def as_dict() -> dict[str, list[object]]:
    return {name: values for name, values in patients.columns().items() if name not in ("sex", "stage")}


@pytest.fixture
def table():
    return datasets.Dataset.from_dict(as_dict())


def images(count: int):
    """Grey images whose label is that of their brightness."""
    labels = np.arange(count) % 2
    pictures = [np.full((4, 4), 200 * label + 20, np.uint8) for label in labels]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["dark", "bright"])})
    return datasets.Dataset.from_dict({"image": pictures, "label": labels.tolist()}, features=features)


def test_a_dataset_is_read_as_the_columns_that_it_was_made_of(table):
    told = {"label": "diagnosis", "labels": LABELS, "client": "clinic", "test_share": 0.2}
    found = so.task(table, **told).data
    same = so.task(as_dict(), **told).data
    assert found.names == same.names == tuple(sorted(patients.CLINICS))
    np.testing.assert_array_equal(found.x, same.x)
    np.testing.assert_array_equal(found.y_test, same.y_test)


def test_splits_with_a_test_split(table):
    splits = table.train_test_split(0.25, seed=0)
    task = so.task(splits, label="diagnosis", labels=LABELS, client="clinic")
    assert (len(task.data.x), len(task.data.x_test)) == (len(splits["train"]), len(splits["test"]))
    assert task.clients == 12


def test_images_are_scaled_and_shown_as_arrays():
    task = so.task(datasets.DatasetDict(train=images(20), test=images(6)), clients=4, classes=2)
    assert task.data.x.shape == (20, 4, 4)
    assert sorted(set(np.round(task.data.x.ravel() * 255).astype(int).tolist())) == [20, 220]
    np.testing.assert_array_equal(task.data.x[:, 0, 0] > 0.5, task.data.y == 1)


def test_formatted_as_numpy(table):
    task = so.task(table.with_format("numpy"), label="diagnosis", labels=LABELS, client="clinic", test_share=0.2)
    assert task.data.x.shape[1] == 3


def test_a_partitioner_and_one_partition_of_it(table):
    partitioners = pytest.importorskip("flwr_datasets.partitioner")
    partitioner = partitioners.NaturalIdPartitioner(partition_by="clinic")
    partitioner.dataset = table
    told = {"label": "diagnosis", "labels": LABELS, "features": ["age", "radius", "area"], "test_share": 0.2}
    task = so.task(partitioner, **told)
    assert task.clients == 12
    assert len(task.data.x) + len(task.data.x_test) == 569
    one = so.task(partitioner.load_partition(0), client="clinic", **told)
    assert (one.clients, one.data.size.tolist()) == (1, task.data.size[:1].tolist())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # `datasets` leaves files open
def test_a_federated_dataset_from_files(table, tmp_path):
    federated = pytest.importorskip("flwr_datasets").FederatedDataset
    splits = table.train_test_split(0.25, seed=0)
    files = {}
    for name, split in splits.items():
        files[name] = str(tmp_path / f"{name}.csv")
        split.to_csv(files[name])
    source = federated(dataset="csv", partitioners={"train": 5}, data_files=files)
    task = so.task(source, label="diagnosis", labels=LABELS, features=["age", "radius", "area"])
    assert (task.clients, len(task.data.x_test)) == (5, len(splits["test"]))
    method = so.fedavg(local_steps=2, local_lr=0.1, bound=so.clip(1.0))
    run = so.simulate(so.plan(method, rounds=2, noise_multiplier=1.0, delta=1e-3), task, seed=0)
    assert set(run.predict({"age": [50.0], "radius": [20.0], "area": [900.0]})) <= set(LABELS)
