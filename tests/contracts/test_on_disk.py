"""Folders of records that stay on the disk: what is written is read back, and what was changed is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.data.on_disk import open_records
from sordino.data.writing import write_data
from sordino.errors import InvalidInput
from sordino.models import from_loss, weighted_mean
from tests.toys import toy

SIZES = (3, 1, 7, 2, 5, 4, 1, 6, 2, 3)


@pytest.fixture
def folder(tmp_path) -> Path:
    write_data(tmp_path / "kept", toy(sizes=SIZES).data)
    return tmp_path / "kept"


def records_of(folder: Path, clients: list[int]) -> tuple[np.ndarray, np.ndarray]:
    held = open_records(folder).folder
    rows = int(held.size[clients].sum())
    x, y = np.zeros((rows, *held.shape), held.types[0]), np.zeros(rows, held.types[1])
    with held.open() as reader:
        reader.read(np.array(clients), x, y)
    return x, y


@pytest.mark.parametrize("clients", [[0], [3], [9], [0, 1, 2], [1, 4, 5, 9], list(range(10))])
def test_any_clients_are_read(folder, clients):
    data = toy(sizes=SIZES).data
    rows = np.concatenate([np.arange(data.start[c], data.start[c] + data.size[c]) for c in clients])
    x, y = records_of(folder, clients)
    np.testing.assert_array_equal(x, data.x[rows])
    np.testing.assert_array_equal(y, data.y[rows])


def test_a_writer_takes_clients_one_by_one_and_many_at_once(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 4, 2)), rng.integers(0, 3, 12)
    with so.write_records(tmp_path / "a", classes=3) as writer:
        writer.add(x[:3], y[:3])
        writer.add(x[3:], y[3:].astype(float), sizes=[4, 1, 4])
        writer.test(x[:2], y[:2])
    data = open_records(tmp_path / "a")
    assert data.size.tolist() == [3, 4, 1, 4]
    assert data.start.tolist() == [0, 3, 7, 8]
    assert (data.classes, data.classes_counted, data.tests_clients) == (3, False, None)
    np.testing.assert_array_equal(data.x, x.astype(np.float32))  # NumPy reads the files as they are
    np.testing.assert_array_equal(np.load(tmp_path / "a" / "y.npy"), y)
    task = so.task(f"disk:{tmp_path / 'a'}", model="logistic")
    assert (task.clients, task.largest, task.name) == (4, 4, "disk")
    assert "disk" not in repr(task.population.assignment)
    with pytest.raises(InvalidInput, match="all records at once"):
        _ = task.records


def test_what_is_not_declared_is_counted_and_facts_are_kept(tmp_path):
    with so.write_records(tmp_path / "a") as writer:
        writer.add([[1.0], [2.0]], [0, 4])
        writer.test([[1.0]], [1])
    assert open_records(tmp_path / "a")[6:9] == (5, (), True)
    data = toy(sizes=(2, 3)).data._replace(names=("Bern", "Orléans"), overlapping=True, tests_held_out=True)
    write_data(tmp_path / "b", data)
    kept = open_records(tmp_path / "b")
    assert kept.names == data.names
    assert (kept.overlapping, kept.tests_held_out, kept.tests_clients) == (True, True, False)


def test_numbers_for_a_loss_of_ones_own(tmp_path):
    with so.write_records(tmp_path / "a", targets=True) as writer:
        writer.add([[1.0], [2.0]], [0.5, -3])
        writer.test([[1.0]], [1.5])
    assert open_records(tmp_path / "a").y.tolist() == [0.5, -3]
    with pytest.raises(InvalidInput, match="a loss of your own"):
        so.task(f"disk:{tmp_path / 'a'}")

    def squared(w, batch):
        return weighted_mean((batch.x @ w - batch.y) ** 2, batch.weight)

    own = from_loss(lambda key: jnp.zeros(1), squared)
    assert so.task(f"disk:{tmp_path / 'a'}", model=own).d == 1


def test_clients_in_any_order_are_written_in_theirs(tmp_path):
    data = toy(sizes=(2, 3, 4)).data
    swapped = data._replace(start=data.start[[2, 0, 1]], size=data.size[[2, 0, 1]])
    write_data(tmp_path / "a", swapped)
    np.testing.assert_array_equal(open_records(tmp_path / "a").x, np.concatenate([data.x[5:], data.x[:5]]))


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["x.npy", "y.npy", "size.npy", "checksum.npy", "x_test.npy", "y_test.npy"])
def test_a_file_of_another_length_or_none_is_refused(folder, name):
    shorten(folder / name)
    with pytest.raises(InvalidInput, match=rf"{name}.*bytes where"):
        open_records(folder)
    (folder / name).unlink()
    with pytest.raises(InvalidInput, match=rf"{name}.*is missing"):
        open_records(folder)


@pytest.mark.parametrize("name", ["size.npy", "checksum.npy", "x_test.npy", "y_test.npy"])
def test_a_changed_small_file_is_refused(folder, name):
    flip(folder / name)
    with pytest.raises(InvalidInput, match=rf"{name}.*has changed"):
        open_records(folder)


@pytest.mark.parametrize("name", ["x.npy", "y.npy"])
def test_changed_records_are_refused_when_they_are_read(folder, name):
    flip(folder / name)
    assert len(records_of(folder, [0, 8])[0]) == 5  # others are as they were
    with pytest.raises(InvalidInput, match=r"client 9.*has changed"):
        records_of(folder, [8, 9])


def test_the_identity_is_that_of_the_records(folder, tmp_path):
    identity = open_records(folder).folder.identity
    shutil.copytree(folder, tmp_path / "copy")
    assert open_records(tmp_path / "copy").folder.identity == identity
    data = toy(sizes=SIZES).data
    data.x[3] += 1
    write_data(tmp_path / "other", data)
    assert open_records(tmp_path / "other").folder.identity != identity


def test_a_damaged_or_unfinished_folder_is_refused(folder, tmp_path):
    manifest = json.loads((folder / "records.json").read_text())
    for text, words in [
        ("{", "is damaged"),
        ("[1]", "is damaged"),
        (json.dumps(manifest | {"format": 2}), "format 1"),
        (json.dumps({name: value for name, value in manifest.items() if name != "classes"}), "is damaged"),
        *((json.dumps(manifest | {name: [[]]}), "is damaged") for name in manifest if name not in ("format", "facts")),
        (json.dumps(manifest | {"classes": float("inf")}), "is damaged"),
        (json.dumps(manifest | {"bytes": {}}), "is damaged"),
        (json.dumps(manifest | {"facts": {"overlapping": "no"}}), "is damaged"),
        (json.dumps(manifest | {"more": 1}), "is damaged"),
    ]:
        (folder / "records.json").write_text(text)
        with pytest.raises(InvalidInput, match=words):
            open_records(folder)
    with pytest.raises(InvalidInput, match="one label"), so.write_records(tmp_path / "half") as writer:
        writer.add([[1.0]], [])
    with pytest.raises(InvalidInput, match="not written to its end"):
        open_records(tmp_path / "half")
    with pytest.raises(InvalidInput, match="no such folder"):
        open_records(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (lambda w: w.add([[1.0]], [2]), "there are 2 classes"),
        (lambda w: w.add([[np.nan]], [1]), "NaN"),
        (lambda w: w.add([1.0], [1]), "one row for each record"),
        (lambda w: w.add([[1.0]], [1, 0]), "one label for each"),
        (lambda w: w.add([[1.0], [2.0]], [1, 0], sizes=[1]), "add up to 1"),
        (lambda w: w.add([[1.0], [2.0]], [1, 0], sizes=[2, 0]), "at least 1"),
        (lambda w: (w.add([[1.0]], [1]), w.add([[1.0, 2.0]], [1])), "use one shape"),
        (lambda w: (w.add([[1.0]], [1]), w.add(np.ones((1, 1), np.int32), [1])), "use one type"),
        (lambda w: (w.test([[1.0]], [1]), w.test([[1.0]], [1])), "test records already"),
        (lambda w: w.test([[1.0]], [1]), "there is no client"),
        (lambda w: w.add([[1.0]], [1]), "there are no test records"),
    ],
)
def test_mistakes_of_writing(tmp_path, written, words):
    with pytest.raises(InvalidInput, match=words), so.write_records(tmp_path / "a", classes=2) as writer:
        written(writer)
    assert not (tmp_path / "a" / "records.json").exists()


def test_nothing_is_overwritten(folder):
    with pytest.raises(InvalidInput, match="holds files already"), so.write_records(folder):
        pass


@pytest.mark.parametrize(
    "given", [{"clients": 3}, {"partition": "iid"}, {"partition_seed": 1}, {"y": [1]}, {"test_share": 0.1}]
)
def test_a_folder_is_dealt_already(folder, given):
    with pytest.raises(InvalidInput, match=r"leave|takes no options"):
        so.task(f"disk:{folder}", **given)


@pytest.mark.parametrize("kind", [b"'<i4'", b"'>f4'"])
def test_a_header_that_says_something_else_is_refused(folder, kind):
    data = (folder / "x.npy").read_bytes()
    assert data.count(b"'<f4'") == 1
    (folder / "x.npy").write_bytes(data.replace(b"'<f4'", kind))
    with pytest.raises(InvalidInput, match="has changed"):
        open_records(folder)
