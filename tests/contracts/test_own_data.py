"""Records in memory: what becomes of them, and every way of giving them wrongly."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections import Counter

import jax.numpy as jnp
import numpy as np
import pyarrow
import pytest

import sordino as so
from sordino.data import load
from sordino.data.new_records import read_records
from sordino.data.reading import Reading
from sordino.errors import InvalidInput, SordinoWarning
from sordino.models import from_loss, weighted_mean
from sordino.tasks import Task
from tests import patients

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = (X[:, 0] > 0).astype(int)
OWNERS = np.array(["north", "south", "west"])[np.arange(60) % 3]
METHOD = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(1.0))


def warned(task: Task) -> list[str]:
    certificate = so.plan(METHOD, rounds=1, noise_multiplier=1.0).resolve(task.population).certificate
    return [warning.message for warning in certificate.warnings if warning.code == "shape-depends-on-data"]


# --- Arrays ----------------------------------------------------------------------------------------------------------


def test_arrays_with_an_owner_for_each_record():
    task = so.task(X, Y, clients=OWNERS, classes=2, test_share=0.2)
    assert task.data.names == ("north", "south", "west")
    assert task.data.size.tolist() == [16, 16, 16]  # four of each client's twenty are held out
    assert len(task.data.x_test) == 12
    assert task.data.tests_clients is True
    everything = np.concatenate([task.data.x, task.data.x_test])
    np.testing.assert_array_equal(np.sort(everything, axis=0), np.sort(X.astype(np.float32), axis=0))
    north = {tuple(row) for row in X[OWNERS == "north"].astype(np.float32).tolist()}
    assert {tuple(row) for row in task.data.x[:16].tolist()} <= north


def test_a_clients_split_does_not_depend_on_the_others():
    def test_records(keep: np.ndarray) -> set[float]:
        task = so.task(X[keep], Y[keep], clients=OWNERS[keep], classes=2, test_share=0.2)
        return {float(value) for value in task.data.x_test[:, 0]}

    everybody, without_west = np.ones(60, bool), OWNERS != "west"
    north = {float(value) for value in X[OWNERS == "north"].astype(np.float32)[:, 0]}
    assert test_records(everybody) & north == test_records(without_west) & north != set()


def test_another_split_seed_holds_out_others():
    first, same, other = (
        so.task(X, Y, clients=3, classes=2, test_share=0.3, split_seed=seed).data.x_test for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


def test_arrays_of_other_libraries_are_the_same():
    wanted = so.task(X, Y, clients=3, classes=2, test=(X, Y)).data
    for x, y in ((X.tolist(), Y.tolist()), (jnp.asarray(X), jnp.asarray(Y)), (X.astype(np.float32), Y.astype(np.int8))):
        data = so.task(x, y, clients=3, classes=2, test=(X, Y)).data
        np.testing.assert_allclose(data.x, wanted.x, rtol=1e-6)
        np.testing.assert_array_equal(data.y, wanted.y)


def test_words_as_labels_in_the_declared_order():
    words = np.where(Y == 1, "ill", "well")
    declared = so.task(X, words, clients=3, labels=["well", "ill"], test=(X, words))
    assert declared.data.y_test.tolist() == Y.tolist()
    assert warned(declared) == []
    counted = so.task(X, words, clients=3, test=(X, words))
    assert counted.data.y_test.tolist() == (1 - Y).tolist()  # sorted: ill, well
    assert "`y`" in warned(counted)[0]


def test_minus_one_and_one_are_labels_if_they_are_declared():
    signs = 2 * Y - 1
    task = so.task(X, signs, clients=3, labels=[-1, 1], test=(X, signs))
    assert task.data.y_test.tolist() == Y.tolist()


def test_a_loss_of_ones_own_takes_numbers():
    def loss(w, batch):
        return weighted_mean((batch.x @ w - batch.y) ** 2, batch.weight)

    target = X @ np.array([1.0, 2.0, 3.0])
    task = so.task(X, target, clients=3, test=(X, target), model=from_loss(lambda key: jnp.zeros(3), loss))
    run = so.simulate(so.plan(so.fedavg(local_steps=20, local_lr=0.1), rounds=20), task, seed=0)
    np.testing.assert_allclose(run.params, [1, 2, 3], atol=1e-2)
    assert run.evaluate(X, target).accuracy is None


# --- Tables ----------------------------------------------------------------------------------------------------------


def frames() -> dict[str, object]:
    """The same table as libraries have it."""
    columns = patients.columns()
    found: dict[str, object] = {"mapping": columns, "arrow": pyarrow.table(columns)}
    for name in ("pandas", "polars"):
        try:
            found[name] = __import__(name).DataFrame(columns)
        except ImportError:
            continue
    return found


@pytest.mark.parametrize("kind", ["mapping", "arrow", "pandas", "polars"])
def test_every_table_is_read_alike(kind, tmp_path):
    given = frames()
    if kind not in given:
        pytest.skip(f"{kind} is not installed")
    task = so.task(given[kind], **patients.OPTIONS)
    path = patients.write(tmp_path / "patients.csv")
    wanted = load(f"csv:{path}", encoding="latin-1", ignore=[""], **patients.OPTIONS)
    assert task.data.names == wanted.client_names == tuple(sorted(patients.CLINICS))
    np.testing.assert_array_equal(task.data.x_test, wanted.x_test)
    assert task.data.reading.features == wanted.reading.features
    assert warned(task) == []


def test_parquet_is_read_as_csv_is(tmp_path):
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(patients.columns()), tmp_path / "patients.parquet")
    parquet = so.task(f"parquet:{tmp_path / 'patients.parquet'}", **patients.OPTIONS).data
    path = patients.write(tmp_path / "patients.csv", encoding="utf-8-sig")  # with the mark that Excel writes
    table = so.task(f"csv:{path}", ignore=[""], **patients.OPTIONS).data
    np.testing.assert_array_equal(parquet.x, table.x)
    np.testing.assert_array_equal(parquet.y_test, table.y_test)


def test_features_are_made_by_hand():
    table = {
        "client": ["a", "a", "b"],
        "age": [18.0, 59.0, 300.0],
        "sex": ["male", "female", None],
        "dose": [1.5, None, 2.0],
        "label": [1, 0, 1],
    }
    with pytest.warns(SordinoWarning, match=r"age in 1 of 3 records\..*Computed from private data"):
        task = so.task(
            table,
            ranges={"age": [18, 100]},
            categories={"sex": ["female", "male"]},
            missing={"sex": "female", "dose": 0.5},
            classes=2,
            test_share=0.5,
        )
    rows = np.concatenate([task.data.x, task.data.x_test]).tolist()
    assert sorted(rows) == [[-1, 0, 1, 1.5], [0, 1, 0, 0.5], [1, 1, 0, 2]]  # 300 is cut to the end of the range


def test_values_within_their_ranges_are_not_warned_about():
    with warnings.catch_warnings():
        warnings.simplefilter("error", SordinoWarning)
        so.task(patients.columns(), **patients.OPTIONS)


def test_a_task_is_printed_without_its_records():
    task = so.task(np.full((6, 2), 0.5625), [0, 1] * 3, clients=["Bern"] * 4 + ["Cork"] * 2, classes=2, test_share=0.5)
    for printed in (repr(task), str(task.data), str([load("digits")])):
        assert "array" not in printed
        assert "0.5625" not in printed
        assert len(printed) < 200
    assert "2 clients with 1 to 2 records of 2 features, 2 classes, 3 test records, model logistic" in str(task)


def test_categories_that_are_not_declared_are_counted_and_the_certificate_says_so():
    options = {key: value for key, value in patients.OPTIONS.items() if key not in ("categories", "labels")}
    (said,) = warned(so.task(patients.columns(), **options))
    assert "`sex`, `stage`, `diagnosis`" in said


def test_a_reading_survives_json():
    reading = so.task(patients.columns(), **patients.OPTIONS).data.reading
    assert Reading.from_json(reading.to_json()) == reading
    with pytest.raises(InvalidInput, match="damaged"):
        Reading.from_json({"classes": {}})


def test_labels_and_clients_may_stand_beside_a_table():
    columns = patients.columns()
    y, clinics = columns.pop("diagnosis"), columns.pop("clinic")
    options = {key: value for key, value in patients.OPTIONS.items() if key not in ("client", "label")}
    task = so.task(columns, y, clients=clinics, **options)
    assert task.data.names == tuple(sorted(patients.CLINICS))
    assert len(task.data.x) + len(task.data.x_test) == 569


# --- Data sets in partitions, and LEAF -------------------------------------------------------------------------------


class Columns(dict):
    """Stands in for a data set of the hub."""

    @property
    def column_names(self):
        return list(self)

    def with_format(self, kind=None):
        return self


class Partitions:
    """Stands in for a Partitioner of flwr-datasets."""

    num_partitions = 3

    def load_partition(self, number):
        mine = np.arange(60) % 3 == number
        return Columns(image=[np.full((2, 2), 51 * number, np.uint8)] * int(mine.sum()), label=Y[mine].tolist())


def test_partitions_are_clients():
    task = so.task(Partitions(), classes=2, test_share=0.25)
    assert task.data.names == ("partition 0", "partition 1", "partition 2")
    assert task.data.size.tolist() == [15, 15, 15]
    np.testing.assert_allclose(task.data.x[:, 0, 0], np.repeat([0, 0.2, 0.4], 15), rtol=1e-6)
    assert so.task(Partitions(), clients=2, classes=2, test_share=0.25).clients == 2


def test_the_test_split_of_a_federated_data_set_is_used():
    class Federated(Partitions):
        def load_split(self, name):
            assert name == "test"
            return Columns(image=[np.full((2, 2), 255, np.uint8)] * 4, label=[0, 1, 0, 1])

    task = so.task(Federated(), classes=2)
    assert task.data.x_test.shape == (4, 2, 2)
    assert task.data.x_test.max() == 1
    assert task.data.tests_clients is None  # nobody says whose they are


def test_a_table_of_the_hub():
    columns = {name: values for name, values in patients.columns().items() if name != "stage"}
    task = so.task(Columns(columns), label="diagnosis", client="clinic", labels=["benign", "malignant"], test_share=0.2)
    assert task.clients == 12


def test_bytes_of_images_are_scaled_in_use_as_in_training(tmp_path):
    images = RNG.integers(0, 256, (60, 4, 4), dtype=np.uint8)
    labels = (images[:, 0, 0] > 127).astype(int)
    columns = Columns(image=list(images), label=labels.tolist())
    task = so.task(columns, clients=3, classes=2, test_share=0.2)
    np.testing.assert_allclose(task.data.x.max(), 1, atol=0.02)
    run = so.simulate(so.plan(METHOD, rounds=2, noise_multiplier=0.5), task, seed=0, folder=tmp_path / "run")
    expected = run.model.scores(images / 255)
    np.testing.assert_allclose(run.model.scores(images), expected, rtol=1e-5)
    kept = so.load_run(tmp_path / "run").model
    np.testing.assert_allclose(kept.scores(images), expected, rtol=1e-5)
    np.savez(tmp_path / "new.npz", x=images, y=labels)
    read = read_records(str(tmp_path / "new.npz"), kept.reading)
    np.testing.assert_allclose(kept.scores(read.x), expected, rtol=1e-5)
    with pytest.raises(InvalidInput, match="bytes are not scaled"):
        read_records(str(tmp_path / "new.npz"), None)


def test_large_numbers_of_clients_stay_apart():
    names = [2**60, 2**60 + 1] * 10
    columns = {"client": names, "age": RNG.normal(size=20), "label": [0, 1] * 10}
    assert so.task(columns, classes=2, test_share=0.2).data.names == (str(2**60), str(2**60 + 1))
    beside = {name: values for name, values in columns.items() if name != "client"}
    assert so.task(beside, clients=np.array(names), classes=2, test_share=0.2).clients == 2


def test_one_client_has_one_spelling():
    columns = {"age": RNG.normal(size=20), "label": [0, 1] * 10}
    composed = so.task({**columns, "client": ["Orl\u00e9ans", "Orle\u0301ans "] * 10}, classes=2, test_share=0.2)
    assert composed.data.names == ("Orl\u00e9ans",)
    rows = Columns(image=[np.ones((2, 2))] * 20, label=[0, 1] * 10, who=[1, " 1", 1.0, "2"] * 5)
    assert so.task(rows, client="who", classes=2, test_share=0.2).data.names == ("1", "2")


def test_categories_are_numbers_in_any_spelling():
    columns = {"client": ["a", "b"] * 4, "zip": ["007", "7.0", "12", "012"] * 2, "label": [0, 1] * 4}
    task = so.task(columns, classes=2, categories={"zip": ["007", "012"]}, test_share=0.2)
    everything = np.concatenate([task.data.x, task.data.x_test])
    assert everything.sum(axis=0).tolist() == [4, 4]


def test_leaf(tmp_path):
    for split, users in (("train", {"f1": 3, "f0": 2}), ("test", {"f0": 1})):
        (tmp_path / split).mkdir()
        data = {user: {"x": [[0.5, 1.0]] * n, "y": [0, 1, 1][:n]} for user, n in users.items()}
        text = {"users": list(users), "num_samples": list(users.values()), "user_data": data}
        (tmp_path / split / "all.json").write_text(json.dumps(text))
    task = so.task(f"leaf:{tmp_path}", classes=2)
    assert dict(zip(task.data.names, task.data.size.tolist(), strict=True)) == {"f0": 2, "f1": 3}
    assert len(task.data.y_test) == 1
    assert task.data.tests_clients is True


# --- Warnings, and what nothing loads --------------------------------------------------------------------------------


def test_features_far_outside_the_bound_are_warned_about():
    method = so.noisy_mb_sgd(lipschitz=1.0, radius=1.0, feature_bound=2.0, batch_size=4)
    plan = so.plan(method, rounds=1, noise_multiplier=9.0, trust="local")
    task = so.task(1000 * X, Y, clients=OWNERS, classes=2, test=(X, Y))
    with pytest.warns(SordinoWarning, match=r"feature_bound = 2: .*\(Computed from private data"):
        so.simulate(plan, task, seed=0)
    within = so.task(np.tanh(X), Y, clients=OWNERS, classes=2, test=(X, Y))
    with warnings.catch_warnings():
        warnings.simplefilter("error", SordinoWarning)
        so.simulate(plan, within, seed=0)


def test_own_data_are_read_without_jax_and_arrays_without_arrow():
    work = (
        "import sys, numpy as np; from sordino.data.in_memory import from_arrays;"
        "from_arrays(np.zeros((4, 2)), [0, 1, 0, 1], classes=2);"
        "sys.exit('jax' in sys.modules or 'pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", work]).returncode == 0


# --- Mistakes --------------------------------------------------------------------------------------------------------


def vector_loss(w, batch):
    return (batch.x @ w - batch.y) ** 2


def simulate(*arguments, **options):
    return so.simulate(*arguments, **options)


def small_task() -> Task:
    return so.task(X, Y, clients=3, classes=2, test=(X, Y))


TABLE = {"client": ["a"] * 4, "age": [1.0, 2.0, 3.0, 4.0], "sex": ["f", "m", "f", "m"], "label": [0, 1, 0, 1]}


def table(**changes):
    """so.task of a small table with other columns or options."""
    columns = {**TABLE, **{key: changes.pop(key) for key in [*TABLE, "id", "", "when"] if key in changes}}
    given = {"classes": 2, "test_share": 0.25} | changes
    return so.task({name: values for name, values in columns.items() if values is not None}, **given)


MIXED = np.array(["a", "b"] * 999 + [np.nan, "a"], dtype=object)
TALL = RNG.normal(size=(2000, 2))
IMAGES = Columns(image=[np.zeros((2, 2), np.uint8)] * 4, label=[0, 1] * 2)


MISTAKES = {
    "a missing word after many": (lambda: so.task(TALL, MIXED, clients=3), "y"),
    "a number among words": (lambda: so.task(X[:2], ["a", 1], clients=1), "y"),
    "a masked array": (lambda: so.task(np.ma.masked_array(X, mask=X > 1), Y, clients=3), "x"),
    "bytes in a row": (lambda: so.task(np.zeros((4, 2), np.uint8), [0, 1, 0, 1], clients=2), "x"),
    "images of two types": (
        lambda: so.task({"train": IMAGES, "test": Columns(image=[np.ones((2, 2))] * 2, label=[0, 1])}, clients=2),
        "hub: image",
    ),
    "a client as a large float": (lambda: table(client=[2.0**53] * 4), "own data: row 0, column `client`"),
    "a client that is a number twice": (lambda: table(client=["1", "01", "1", "2"]), "own data: client"),
    "a client in two cases": (lambda: so.task(X[:3], Y[:3], clients=["A", "a", "b"]), "own data: client"),
    "nobody's record of the hub": (
        lambda: so.task(Columns(image=[X] * 2, label=[0, 1], who=["a", None]), client="who"),
        "hub: client",
    ),
    "categories of one number": (lambda: table(categories={"age": ["1", "01"]}), "categories.age"),
    "a range beyond floats": (lambda: table(ranges={"age": [-1e308, 1e308]}), "ranges.age"),
    "no labels": (lambda: so.task(X, clients=3), "y"),
    "fewer labels": (lambda: so.task(X, Y[:-1], clients=3), "y"),
    "one-hot labels": (lambda: so.task(X, np.eye(2)[Y], clients=3), "y"),
    "x and y swapped": (lambda: so.task(Y, X, clients=3), "x"),
    "one number a record": (lambda: so.task(X[:, 0], Y, clients=3), "x"),
    "words as features": (lambda: so.task(X.astype(str), Y, clients=3), "x"),
    "not a number": (lambda: so.task(np.where(X > 1, np.nan, X), Y, clients=3), "x"),
    "infinite in float32": (lambda: so.task(X * 1e300, Y, clients=3), "x"),
    "ragged": (lambda: so.task([[1, 2], [3]], [0, 1], clients=1), "x"),
    "no records": (lambda: so.task(X[:0], Y[:0], clients=1), "x"),
    "bytes of images": (lambda: so.task(np.zeros((4, 2, 2), np.uint8), [0, 1, 0, 1], clients=2), "x"),
    "nothing": (lambda: so.task(None, Y), "data"),
    "a task again": (lambda: so.task(small_task()), "data"),
    "labels below zero": (lambda: so.task(X, 2 * Y - 1, clients=3), "y"),
    "labels between": (lambda: so.task(X, Y + 0.5, clients=3), "y"),
    "labels far apart": (lambda: so.task(X, 2000 + Y, clients=3), "y"),
    "a label that is not declared": (lambda: so.task(X, Y, clients=3, labels=["0"]), "y"),
    "a label too large": (lambda: so.task(X, Y, clients=3, classes=1), "classes"),
    "classes and labels": (lambda: so.task(X, Y, clients=3, classes=2, labels=[0, 1]), "classes"),
    "labels named twice": (lambda: so.task(X, Y, clients=3, labels=[0, 0]), "labels"),
    "labels as one word": (lambda: so.task(X, Y, clients=3, labels="ab"), "labels"),
    "one label alone": (lambda: so.task(X, 0 * Y, clients=3, test_share=0.2), "labels"),
    "no clients": (lambda: so.task(X, Y), "clients"),
    "half a client": (lambda: so.task(X, Y, clients=2.5), "clients"),
    "True clients": (lambda: so.task(X, Y, clients=True), "clients"),
    "no client at all": (lambda: so.task(X, Y, clients=0, test_share=0.2), "clients"),
    "more clients than records": (lambda: so.task(X, Y, clients=61, test_share=0.2), "clients"),
    "owners of fewer": (lambda: so.task(X, Y, clients=OWNERS[:-1]), "clients"),
    "owners that are no names": (lambda: so.task(X, Y, clients=X), "clients"),
    "a list for clients of a name": (lambda: so.task("digits", clients=[1, 2]), "clients"),
    "an array for clients of a name": (lambda: so.task("digits", clients=np.arange(3)), "clients"),
    "labels beside a name": (lambda: so.task("digits", Y), "y"),
    "no such option": (lambda: so.task(X, Y, clients=3, tests=0.2), "tests"),
    "an option of ours": (lambda: so.task(X, Y, clients=3, targets=True), "targets"),
    "a long text": (lambda: table(sex=["f" * 2000, "m", "f", "m"]), "own data: column `sex`"),
    "no test records": (lambda: so.task(X, Y, clients=3, classes=2), "task"),
    "a share of one": (lambda: so.task(X, Y, clients=3, test_share=1.0), "test_share"),
    "a share in words": (lambda: so.task(X, Y, clients=3, test_share="20%"), "test_share"),
    "a share of nothing": (lambda: so.task(X, Y, clients=OWNERS, test_share=0.001), "test_share"),
    "a seed without a share": (lambda: so.task(X, Y, clients=3, split_seed=3), "split_seed"),
    "a seed below zero": (lambda: so.task(X, Y, clients=3, test_share=0.2, split_seed=-1), "split_seed"),
    "a share and a test set": (lambda: so.task(X, Y, clients=3, test=(X, Y), test_share=0.2), "test_share"),
    "half a test set": (lambda: so.task(X, Y, clients=3, test=X), "test"),
    "a test set of other shape": (lambda: so.task(X, Y, clients=3, test=(X[:, :2], Y)), "test x"),
    "test labels in words": (lambda: so.task(X, Y, clients=3, test=(X, Y.astype(str))), "test y"),
    "a model that is none": (lambda: so.task(X, Y, clients=3, test=(X, Y), model=3), "model"),
    "no such model": (lambda: so.task(X, Y, clients=3, test=(X, Y), model="transformer"), "model"),
    "a partition that is none": (lambda: so.task(X, Y, clients=3, test=(X, Y), partition=3), "partition"),
    "natural without clients": (lambda: so.task(X, Y, partition="natural", test=(X, Y)), "partition"),
    "a name in a dotted file": (lambda: so.task("patients.csv"), "data set"),
    "no such label column": (lambda: so.task(TABLE, label="diagnosis"), "own data: label"),
    "no such client column": (lambda: so.task(TABLE, client="clinic"), "own data: client"),
    "the label as client": (lambda: so.task(TABLE, client="label"), "client"),
    "no such feature": (lambda: table(features=["weight"]), "own data: features"),
    "a feature twice": (lambda: table(features=["age", "age"]), "features"),
    "the label as feature": (lambda: table(features=["age", "label"]), "features"),
    "no such column to ignore": (lambda: table(ignore=["id"]), "ignore"),
    "one word to ignore": (lambda: table(ignore="age"), "ignore"),
    "columns of two lengths": (lambda: table(age=[1.0]), "own data"),
    "an index": (lambda: table(**{"": [0, 1, 2, 3]}), "own data: columns"),
    "dates": (lambda: table(when=np.array(["2020-01-01"] * 4, "M8[D]").tolist()), "own data: column `when`"),
    "a missing number": (lambda: table(age=[1.0, None, 3.0, 4.0]), "own data: row 1, column `age`"),
    "a missing word": (lambda: table(sex=["f", None, "f", "m"]), "own data: row 1, column `sex`"),
    "a missing label": (lambda: table(label=[0, None, 0, 1]), "own data: row 1, column `label`"),
    "a missing client": (lambda: table(client=["a", None, "a", "b"]), "own data: row 1, column `client`"),
    "a word that spells missing": (lambda: table(sex=["f", "NA", "f", "m"]), "own data: row 1, column `sex`"),
    "a word among numbers": (lambda: table(age=["1", "old", "3", "4"]), "own data: row 1, column `age`"),
    "an infinite number": (lambda: table(age=[1.0, np.inf, 3.0, 4.0]), "own data: row 1, column `age`"),
    "an unknown category": (lambda: table(categories={"sex": ["f"]}), "own data: row 1, column `sex`"),
    "categories of no column": (lambda: table(categories={"sexes": ["f"]}), "own data: categories"),
    "categories of the label": (lambda: table(categories={"label": ["0", "1"]}), "categories"),
    "categories without a list": (lambda: table(categories={"sex": "fm"}), "categories.sex"),
    "categories without a column": (lambda: table(categories=["f", "m"]), "categories"),
    "a range of words": (lambda: table(ranges={"sex": [0, 1]}), "own data: row 0, column `sex`"),
    "a range the wrong way": (lambda: table(ranges={"age": [9, 1]}), "ranges.age"),
    "a range of three": (lambda: table(ranges={"age": [1, 2, 3]}), "ranges.age"),
    "a range and categories": (lambda: table(ranges={"sex": [0, 1]}, categories={"sex": ["f", "m"]}), "ranges"),
    "a word for a missing number": (lambda: table(missing={"age": "unknown"}), "missing.age"),
    "a constant of no category": (
        lambda: table(missing={"sex": "x"}, categories={"sex": ["f", "m"]}),
        "missing.sex",
    ),
    "too many words": (
        lambda: so.task({"name": [f"p{n}" for n in range(300)], "label": [0, 1] * 150}, clients=3, test_share=0.2),
        "own data: column `name`",
    ),
    "row numbers": (
        lambda: so.task({"id": range(40), "age": [1.0] * 40, "label": [0, 1] * 20}, clients=3, test_share=0.2),
        "own data: columns",
    ),
    "labels beside labels": (lambda: so.task(TABLE, [0, 1, 0, 1]), "y"),
    "a share of a cohort": (lambda: so.plan(METHOD, rounds=1, cohort=0.2), "cohort"),
    "noise in words": (lambda: so.plan(METHOD, rounds=1, noise_multiplier="1"), "noise_multiplier"),
    "a folder that is a number": (lambda: simulate(so.plan(METHOD, rounds=1), small_task(), folder=3), "folder"),
    "nothing to go on from": (lambda: simulate(so.plan(METHOD, rounds=1), small_task(), resume=True), "resume"),
    "a task for a population": (lambda: so.plan(METHOD, rounds=1).resolve(small_task()), "population"),
    "no such model file": (lambda: so.load_model("nowhere.safetensors"), "model"),
    "a number for an event": (lambda: so.epsilon_of(3, 1e-5), "event"),
    "an array of float64 for a model": (
        lambda: so.task(X, Y, clients=3, test=(X, Y), model=from_loss(lambda key: np.zeros(3), vector_loss)).d,
        "parameters",
    ),
    "plan and task swapped": (lambda: simulate(small_task(), so.plan(METHOD, rounds=1)), "plan"),
    "a method for a plan": (lambda: simulate(METHOD, small_task()), "plan"),
    "a name for a task": (lambda: simulate(so.plan(METHOD, rounds=1), "digits"), "task"),
    "a loss that is a vector": (
        lambda: simulate(
            so.plan(METHOD, rounds=1),
            so.task(X, X[:, 0], clients=3, test=(X, X[:, 0]), model=from_loss(lambda key: jnp.zeros(3), vector_loss)),
        ),
        "loss of custom",
    ),
    "no such partition number": (lambda: so.task(Partitions(), clients=99, test_share=0.2, label="class"), None),
    "no such column in partitions": (lambda: so.task(Partitions(), label="class", test_share=0.2), "partitions: label"),
    "no such run": (lambda: so.load_run("runs/never"), "run"),
    "a number for a run": (lambda: so.load_run(3), "run"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_of_ours(name):
    mistake, field = MISTAKES[name]
    with pytest.raises(InvalidInput) as caught:
        mistake()
    assert field is None or caught.value.field == field
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


def test_there_are_enough_mistakes():
    assert len(MISTAKES) >= 80
    assert max(Counter(field for _, field in MISTAKES.values()).values()) < 12  # of many kinds


def test_a_constant_for_missing_values_lies_within_its_range():
    frame = {"age": [40.0, None, 60.0, 50.0], "label": [0, 1, 0, 1]}
    told = {"clients": 2, "classes": 2, "test_share": 0.5, "ranges": {"age": [18, 100]}}
    with pytest.raises(InvalidInput, match=r"missing.age = 5000.*outside of its range"):
        so.task(frame, missing={"age": 5000}, **told)


def test_a_misspelt_argument_is_named_with_the_one_that_was_meant():
    with pytest.raises(InvalidInput) as error:
        so.task(np.zeros((3000, 2)), np.zeros(3000, int), client=np.arange(3000).reshape(-1, 1))
    said = str(error.value)
    assert "did you mean clients? " in said
    assert "\n" not in said
    assert len(said) < 500
    with pytest.raises(InvalidInput, match=r"^local_step = 1: did you mean local_steps\? fedavg takes "):
        so.fedavg(local_step=1, local_lr=0.1)
    for wrong in (2.5, float("nan"), True, "3"):
        with pytest.raises(InvalidInput, match=r"^clients = .*: must be a whole number, at least 1"):
            so.task(X, Y, clients=wrong)
    assert so.task(X, Y, clients=np.int64(3), test_share=0.2).clients == 3


def test_what_is_refused_is_not_warned_of_too():
    frame = pyarrow.table({"age": [150.0, 30.0, 40.0, 50.0], "label": [0, 1, 0, 1]})
    with warnings.catch_warnings():
        warnings.simplefilter("error", SordinoWarning)
        for share in (1.0, -0.2):
            with pytest.raises(InvalidInput, match=r"^test_share"):
                so.task(frame, clients=2, classes=2, ranges={"age": [0, 100]}, test_share=share)
    with pytest.warns(SordinoWarning, match="Do not widen a range because of this warning"):
        so.task(frame, clients=1, classes=2, ranges={"age": [0, 100]}, test_share=0.5)
