"""Partitions: who gets which records, by properties that each scheme promises and by small cases worked by hand."""

from __future__ import annotations

import time

import numpy as np
import pytest

from sordino.data import Dataset, label_histogram, partition, plot_label_histogram
from sordino.data.partition import _label_counts
from sordino.errors import InvalidInput

SCHEMES = ("iid", "shards:2", "dirichlet:0.3", "quantity:0.5")


def numbered(records: int, classes: int = 10, clients: int | None = None) -> Dataset:
    """Record i has x = i and label i mod classes, so that a record can be recognised after it is dealt."""
    number = np.arange(records)
    return Dataset(
        "numbered",
        number.astype(np.float32)[:, None],
        (number % classes).astype(np.int32),
        np.zeros((0, 1), np.float32),
        np.zeros(0, np.int32),
        classes,
        None if clients is None else (number * 7 % clients).astype(np.int32),
        () if clients is None else tuple(f"c{i}" for i in range(clients)),
    )


def records_of(data, client: int) -> list[int]:
    start, size = data.start[client], data.size[client]
    return data.x[start : start + size, 0].astype(int).tolist()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("records", "clients"), [(600, 30), (603, 30), (97, 13), (40, 1)])
def test_every_record_is_dealt_once(scheme, records, clients):
    data = partition(numbered(records), scheme, clients, seed=3)
    dealt = np.sort(data.x[:, 0].astype(int))
    if scheme.startswith("dirichlet"):
        assert len(np.unique(dealt)) == len(dealt) == records // clients * clients
    else:
        np.testing.assert_array_equal(dealt, np.arange(records))
    np.testing.assert_array_equal(data.y, data.x[:, 0].astype(int) % 10)  # labels went along with their records
    np.testing.assert_array_equal(data.start, np.cumsum(data.size) - data.size)
    assert len(data.size) == clients
    assert data.size.min() >= 1
    assert data.size.sum() == len(data.y)
    assert (data.start.dtype, data.size.dtype, data.y.dtype) == (np.int32, np.int32, np.int32)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_seed_decides(scheme):
    dataset = numbered(500)
    one, same, other = (partition(dataset, scheme, 20, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.x, same.x)
    np.testing.assert_array_equal(one.size, same.size)
    assert (len(one.x) != len(other.x)) or (one.x != other.x).any()


def test_iid_sizes_differ_by_at_most_one():
    size = partition(numbered(1003), "iid", 100).size
    assert set(size.tolist()) == {10, 11}
    assert (size == 11).sum() == 3


@pytest.mark.parametrize("k", [1, 2, 5])
def test_a_client_of_k_shards_sees_at_most_k_classes(k):
    histogram = label_histogram(partition(numbered(3000), f"shards:{k}", 30, seed=k))
    assert (histogram.sum(axis=1) == 100).all()
    assert ((histogram > 0).sum(axis=1) <= k).all()
    assert (histogram > 0).sum(axis=1).max() == k
    assert set(np.unique(histogram)) <= {i * 100 // k for i in range(k + 1)}  # whole shards only


def test_shards_are_mixed_within_a_client():
    data = partition(numbered(1000), "shards:5", 2, seed=0)
    labels = data.y[: data.size[0]]
    assert (np.diff(labels) != 0).sum() > 100  # five runs would give four changes


def test_dirichlet_has_equal_sizes_and_small_concentration_separates():
    classes_held = {}
    for concentration in ("0.05", "0.3", "100"):
        data = partition(numbered(60_000), f"dirichlet:{concentration}", 1000, seed=5)
        assert (data.size == 60).all()
        share = label_histogram(data) / 60
        classes_held[concentration] = 1 / (share**2).sum(axis=1).mean()
    # E sum_c p_c^2 = (a + 1) / (10 a + 1) for Dirichlet(a) over 10 classes, plus (1 - that) / 60 by the draws of 60.
    for concentration, effective in classes_held.items():
        a = float(concentration)
        squares = (a + 1) / (10 * a + 1)
        # Pools that run dry make clients a little more mixed than the law.
        assert effective == pytest.approx(1 / (squares + (1 - squares) / 60), rel=0.12), concentration


def test_dirichlet_falls_back_when_a_pool_is_empty():
    """Three clients that want class 0 alone, four records of it: first come, first served, then what is left."""
    rng = np.random.default_rng(0)
    only_first = np.array([[1.0, 0, 0]] * 3)
    taken = _label_counts(only_first, np.array([3, 3, 3]), np.array([4, 2, 3]), rng)
    np.testing.assert_array_equal(taken[:, 0], [3, 1, 0])
    np.testing.assert_array_equal(taken.sum(axis=0), [4, 2, 3])
    np.testing.assert_array_equal(taken.sum(axis=1), [3, 3, 3])


def test_dirichlet_serves_clients_in_their_own_proportions_while_it_can():
    proportions = np.eye(3)
    taken = _label_counts(proportions, np.array([5, 5, 5]), np.array([9, 9, 9]), np.random.default_rng(0))
    np.testing.assert_array_equal(taken, 5 * np.eye(3))


@pytest.mark.parametrize("scheme", ["dirichlet:1e-9", "quantity:1e-9", "dirichlet:1e9", "quantity:1e9"])
def test_extreme_concentrations(scheme):
    data = partition(numbered(1000), scheme, 50)
    assert data.size.sum() == 1000
    assert data.size.min() >= 1


def test_quantity_skews_the_sizes_more_when_the_concentration_is_small():
    spread = [partition(numbered(20_000), f"quantity:{a}", 100, seed=1).size.std() for a in (0.1, 1, 100)]
    assert spread[0] > 1.5 * spread[1] > 5 * spread[2]


def test_natural_keeps_the_data_sets_clients():
    data = partition(numbered(50, clients=7), "natural")
    assert len(data.size) == 7
    for client in range(7):
        assert records_of(data, client) == [i for i in range(50) if i * 7 % 7 == client]
    assert partition(numbered(50, clients=7), "natural", clients=7).size.tolist() == data.size.tolist()


def test_label_histogram_by_hand():
    dataset = numbered(6, classes=3)._replace(client=np.array([1, 0, 1, 1, 1, 0], np.int32), client_names=("a", "b"))
    np.testing.assert_array_equal(label_histogram(partition(dataset, "natural")), [[0, 1, 1], [2, 1, 1]])


def test_plot(tmp_path):
    plot_label_histogram(partition(numbered(2000), "dirichlet:0.3", 100), tmp_path / "labels.png")
    assert (tmp_path / "labels.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("scheme", ["iid", "shards:2", "dirichlet:0.3", "quantity:1"])
def test_a_million_clients(scheme):
    started = time.process_time()
    data = partition(numbered(3_000_000), scheme, 1_000_000)
    assert time.process_time() - started < 20  # a loop over clients takes minutes
    assert len(data.size) == 1_000_000


@pytest.mark.parametrize(
    ("scheme", "clients", "seed", "message"),
    [
        ("iid", 101, 0, "clients = 101: numbered has 100 records"),
        ("iid", 0, 0, "clients = 0: use a whole number, 1 or more"),
        ("iid", None, 0, "clients = None: give the number of clients"),
        ("iid", 10, -1, "seed = -1: use 0 or more"),
        ("random", 10, 0, "'random': unknown: use one of iid, shards:K, dirichlet:A, quantity:A, natural"),
        ("iid:3", 10, 0, "'iid:3': unknown"),
        ("shards", 10, 0, "'shards': needs a whole number above 0 after the colon, as in shards:5"),
        ("shards:2.5", 10, 0, "needs a whole number"),
        ("shards:0", 10, 0, "needs a whole number above 0"),
        ("shards:20", 10, 0, "10 clients need 200 shards of 100 records"),
        ("dirichlet:x", 10, 0, "'dirichlet:x': needs a number above 0 after the colon, as in dirichlet:0.3"),
        ("dirichlet:-1", 10, 0, "needs a number above 0"),
        ("quantity:inf", 10, 0, "as in quantity:0.3"),
        ("natural", None, 0, "partition = 'natural': numbered has no natural clients"),
    ],
)
def test_errors_name_the_remedy(scheme, clients, seed, message):
    with pytest.raises(InvalidInput) as error:
        partition(numbered(100), scheme, clients, seed)
    assert message in str(error.value)


def test_natural_refuses_another_number_of_clients():
    with pytest.raises(InvalidInput, match="numbered has 7 natural clients: leave the number out"):
        partition(numbered(50, clients=7), "natural", clients=8)
