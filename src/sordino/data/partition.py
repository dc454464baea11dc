"""Partitions of the records into clients.

    iid          at random, sizes equal to within one record
    shards:k     sorted by label and cut into k n shards, k random shards for each client (McMahan et al. 2017)
    dirichlet:a  equal sizes, label proportions of each client from Dirichlet(a, ..., a) (Hsu et al. 2019)
    quantity:a   sizes from Dirichlet(a, ..., a) over the clients, labels at random
    natural      the clients of the data set itself

iid, shards, quantity and natural use every record exactly once; dirichlet leaves out the remainder of
records / clients. A partition depends only on the data, the scheme, the number of clients and the seed.
"""

from __future__ import annotations

from os import PathLike

import numpy as np
from numpy.typing import NDArray

from sordino.data._records import Dataset, FederatedData, Labels
from sordino.errors import InvalidInput, require, require_count, use_one_of

Indices = NDArray[np.int64]
Dealt = tuple[Indices, Indices]  # the record numbers, sorted by client, and the size of each client

_MOST_BARS = 50
_MOST_NAMES = 20  # of clients, below their bars


def partition(dataset: Dataset, scheme: str, clients: int | None = None, seed: int = 0) -> FederatedData:
    """Assign the training records of a data set to `clients` clients; leave the number out for "natural"."""
    require(seed >= 0, "seed", seed, "use 0 or more")
    natural = scheme == "natural"
    order, size = _natural(dataset, clients) if natural else _deal(scheme, dataset, clients, seed)
    return FederatedData(
        dataset.x[order],
        dataset.y[order],
        _starts(size).astype(np.int32),
        size.astype(np.int32),
        dataset.x_test,
        dataset.y_test,
        dataset.classes,
        names=dataset.client_names if natural else (),
        classes_counted=dataset.classes_counted,
        tests_clients=dataset.tests_clients if natural else False,
        tests_held_out=dataset.tests_held_out,
        overlapping=dataset.overlapping,
        dealt_anew=dataset.client is not None and not natural,
        dealt_by_label=dataset.split_by_label or scheme.startswith(("shards", "dirichlet")),
        reading=dataset.reading,
    )


def label_histogram(data: FederatedData) -> NDArray[np.int64]:
    """The number of records of each class of each client, [clients, classes]. Private: never release it."""
    clients = len(data.size)
    cell = np.repeat(np.arange(clients), data.size) * data.classes + data.y
    return np.bincount(cell, minlength=clients * data.classes).reshape(clients, data.classes)


def plot_label_histogram(data: FederatedData, path: str | PathLike[str], *, private: bool = False) -> None:
    """Draw the labels of the first (at most 50) clients as stacked bars; `private` marks the picture."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure  # rather than pyplot: no window system, no global state

    counts = label_histogram(data)[:_MOST_BARS]
    clients = np.arange(len(counts))
    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.add_subplot()
    bottom = np.zeros(len(counts))
    colours = colormaps["turbo"](np.linspace(0.05, 0.95, data.classes))
    for label in range(data.classes):
        name = str(label) if data.reading is None else data.reading.classes.name(label)
        axes.bar(clients, counts[:, label], bottom=bottom, color=colours[label], width=0.9, label=name)
        bottom += counts[:, label]
    axes.set(xlabel="client", ylabel="records", title=f"Labels of {len(counts)} of {len(data.size)} clients")
    if data.names and len(counts) <= _MOST_NAMES:
        axes.set_xticks(clients, data.names[: len(counts)], rotation=45, ha="right")
    if data.classes <= 10:
        axes.legend(title="label", loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    if private:
        figure.supxlabel("Computed from private data: show it only to people who may see the records", fontsize="small")
    figure.savefig(path, dpi=150)


def _checked_clients(dataset: Dataset, clients: int | None) -> int:
    records = len(dataset.y)
    if clients is None:
        raise InvalidInput("clients", None, "give the number of clients; only the natural partition has one of its own")
    require_count(clients, "clients", "use a whole number, 1 or more")
    remedy = f"{dataset.name} has {records} records: use at most one client each"
    require(clients <= records, "clients", clients, remedy)
    return clients


def _natural(dataset: Dataset, clients: int | None) -> Dealt:
    if dataset.client is None:
        remedy = f"{dataset.name} has no natural clients: use one of {', '.join(SCHEMES)} with a number of clients"
        raise InvalidInput("partition", "natural", remedy)
    count = len(dataset.client_names)
    remedy = f"{dataset.name} has {count} natural clients: leave the number out, or choose another partition"
    require(clients in (None, count), "clients", clients, remedy)
    return np.argsort(dataset.client, kind="stable"), np.bincount(dataset.client, minlength=count)


# --- Schemes with a number of clients ----------------------------------------------------------------------------


def _iid(dataset: Dataset, clients: int, rng: np.random.Generator, _: float) -> Dealt:
    return rng.permutation(len(dataset.y)), _even(len(dataset.y), clients)


def _quantity(dataset: Dataset, clients: int, rng: np.random.Generator, concentration: float) -> Dealt:
    records = len(dataset.y)
    share = rng.dirichlet(np.full(clients, concentration))
    # One record each; the rest by share, rounding the cumulative sum of the shares down.
    edges = np.floor(np.cumsum(share) * (records - clients)).astype(np.int64)
    edges[-1] = records - clients
    return rng.permutation(records), 1 + np.diff(np.minimum(edges, records - clients), prepend=0)


def _shards(dataset: Dataset, clients: int, rng: np.random.Generator, each: float) -> Dealt:
    """If a class is not a multiple of the shard, a shard holds two classes and a client may have more than k."""
    records, per_client = len(dataset.y), int(each)
    shards = per_client * clients
    remedy = f"{clients} clients need {shards} shards of {records} records: use fewer clients or shards"
    require(shards <= records, "partition", f"shards:{per_client}", remedy)
    length = _even(records, shards)
    dealt = rng.permutation(shards)
    order = _shuffled_by_label(dataset.y, rng)[_ranges(_starts(length)[dealt], length[dealt])]
    size = length[dealt].reshape(clients, per_client).sum(axis=1)
    return _shuffled_within(order, size, rng), size


def _dirichlet(dataset: Dataset, clients: int, rng: np.random.Generator, concentration: float) -> Dealt:
    sizes = np.full(clients, len(dataset.y) // clients)
    pool = np.bincount(dataset.y, minlength=dataset.classes)
    proportions = rng.dirichlet(np.full(dataset.classes, concentration), clients)
    count = _label_counts(proportions, sizes, pool, rng)
    start = _starts(pool) + np.cumsum(count, axis=0) - count  # of each client's run in each class's pool
    order = _shuffled_by_label(dataset.y, rng)[_ranges(start.ravel(), count.ravel())]
    return _shuffled_within(order, sizes, rng), sizes


# By their spelling: K is a whole number, A a number.
SCHEMES = {"iid": _iid, "shards:K": _shards, "dirichlet:A": _dirichlet, "quantity:A": _quantity}


def _deal(scheme: str, dataset: Dataset, clients: int | None, seed: int) -> Dealt:
    name, _, text = scheme.partition(":")
    spelling = next((known for known in SCHEMES if known == scheme or known.startswith(f"{name}:")), None)
    if spelling is None:
        raise InvalidInput("partition", scheme, f"unknown: {use_one_of(scheme, [*SCHEMES, 'natural'])}")
    parameter = 0.0 if spelling == name else _parameter(scheme, text, whole=spelling.endswith("K"))
    return SCHEMES[spelling](dataset, _checked_clients(dataset, clients), np.random.default_rng(seed), parameter)


def _parameter(scheme: str, text: str, *, whole: bool) -> float:
    example, kind = ("shards:5", "a whole number") if whole else (f"{scheme.partition(':')[0]}:0.3", "a number")
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    good = 0 < value < np.inf and (not whole or value == int(value))
    require(good, "partition", scheme, f"needs {kind} above 0 after the colon, as in {example}")
    return value


def _label_counts(
    proportions: NDArray[np.float64], size: Indices, pool: Indices, rng: np.random.Generator
) -> NDArray[np.int64]:
    """The number of records of each class of each client, drawn without replacement from the `pool` of each class.

    Clients draw in turn. A client that meets an empty pool draws again, in its own proportions, from the classes that
    are left. Each pass either serves all clients or empties one more pool.
    """
    taken = np.zeros(proportions.shape, np.int64)
    left = pool.copy()
    waiting, wanted = np.arange(len(size)), size
    while len(waiting):
        weights = proportions[waiting] * (left > 0)
        weights[weights.sum(axis=1) < np.finfo(np.float64).tiny] = left  # no class with a positive proportion is left
        asked = rng.multinomial(wanted, weights / weights.sum(axis=1, keepdims=True))
        given = np.clip(left - (np.cumsum(asked, axis=0) - asked), 0, asked)
        taken[waiting] += given
        left -= given.sum(axis=0)
        wanted = wanted - given.sum(axis=1)
        waiting, wanted = waiting[wanted > 0], wanted[wanted > 0]
    return taken


# --- Vectorised helpers ------------------------------------------------------------------------------------------


def _even(records: int, parts: int) -> Indices:
    """The sizes of `parts` parts, which differ by at most one."""
    return np.diff(np.arange(parts + 1) * records // parts)


def _starts(size: Indices) -> Indices:
    return np.cumsum(size) - size


def _ranges(start: Indices, length: Indices) -> Indices:
    """start[0], start[0] + 1, ... (length[0] of them), start[1], ..."""
    return np.repeat(start - _starts(length), length) + np.arange(length.sum())


def _shuffled_by_label(y: Labels, rng: np.random.Generator) -> Indices:
    """Record numbers sorted by label, in random order within each label."""
    order = rng.permutation(len(y))
    narrow = y[order].astype(np.min_scalar_type(y.max()))  # NumPy sorts up to 16 bits by radix sort
    return order[np.argsort(narrow, kind="stable")]


def _shuffled_within(order: Indices, size: Indices, rng: np.random.Generator) -> Indices:
    """The same partition with the records of each client in random order, so that batches mix labels."""
    start, mixed = _starts(size), order.copy()
    for length in np.unique(size):  # there are only a few different sizes
        place = start[size == length, None] + np.arange(length)
        mixed[place] = rng.permuted(order[place], axis=1)
    return mixed
