"""Tasks by name, or from records in memory."""

from __future__ import annotations

import operator
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from sordino.data import Dataset, load
from sordino.data import partition as deal
from sordino.data._arrow import is_frame
from sordino.data.augmentation import AUGMENTATIONS
from sordino.data.datasets import check_options
from sordino.data.hub import Partitioned, from_hub, is_hub_data
from sordino.data.in_memory import Array, Frame, from_arrays, from_frame
from sordino.data.on_disk import ON_DISK, open_records
from sordino.errors import InvalidInput, require, require_count, use_one_of
from sordino.models import PRECISIONS, Model, get
from sordino.tasks.problems import PROBLEMS
from sordino.tasks.task import Task

TASK_KEYS = ("clients", "partition", "model", "partition_seed", "augment", "precision")
Clients: TypeAlias = int | Array  # how many, or whose each record is


def task(
    data: str | Array | Frame = "digits",
    y: Array | None = None,
    *,
    clients: Clients | None = None,
    partition: str | None = None,
    model: str | Model | None = None,
    partition_seed: int = 0,
    augment: str | None = None,
    precision: str = "default",
    **options: Any,
) -> Task:
    """A task: records, how they are dealt to clients, and a model.

    "quadratics", "linear", "linear-regression", "opposed-parabolas" and "robust-regression" are problems instead, with
    their own losses.

    Args:
      data: the name of a data set (see `sordino data list`), csv:FILE, parquet:FILE, npz:FOLDER, leaf:FOLDER, hf:NAME,
        disk:FOLDER, or a problem; or arrays x with labels y; or a data frame (pandas, polars, Arrow) or a mapping of
        columns; or a data set of the Hugging Face hub, or anything with `load_partition` (flwr-datasets).
      y: the labels of x, or of a data frame without a column of labels.
      clients: how many; or, of arrays and data frames, whose each record is; with a natural partition, left out.
      partition: "iid", "shards:K", "dirichlet:A", "quantity:A" or "natural" (the default where there is one).
      model: "logistic" (the default of a data set), "mlp:300,300", "cnn", "resnet20:batch", ..., or a model of your own
        from `sordino.models.from_loss`.
      partition_seed: of the dealing.
      augment: "crop-flip", "crop" or "flip" changes a client's images at random before each gradient; "none" does not.
      precision: of the matrix products in a gradient: "default", as JAX chooses for the device, or "float32".
      options: for the data set's loader (docs/run_file.md), and of records in memory (docs/own_data.md): `test`,
        `test_share`, `labels`, `classes`, `label`, `client`, `features`, `ignore`, `categories`, `ranges`, `missing`.
    """
    require(precision in PRECISIONS, "precision", precision, use_one_of(precision, PRECISIONS))
    augment = None if augment == "none" else augment  # a change of a run file cannot take a key away
    known = f"{use_one_of(augment, [*AUGMENTATIONS, 'none'])}, or leave it out"
    require(augment is None or augment in AUGMENTATIONS, "augment", augment, known)
    if isinstance(data, str) and data in PROBLEMS:
        _require_none_given(partition, partition_seed, model, augment, y)
        check_options(data, PROBLEMS[data], options)
        _require_number(clients)
        made = PROBLEMS[data](clients, **options)
        return replace(made, assignment=f"{data}, {clients}, {options}", precision=precision)
    own_loss = isinstance(model, Model) and model.predict is None
    if isinstance(data, str) and data.startswith(ON_DISK):
        require(clients is None, "clients", clients, "the folder says whose each record is: leave out")
        require(
            partition in (None, "natural"), "partition", partition, "the folder says whose each record is: leave out"
        )
        require(partition_seed == 0, "partition_seed", partition_seed, "nothing is dealt: leave out")
        require(y is None, "y", type(y).__name__, "the folder has labels of its own: leave it out")
        check_options("disk", open_records, options)
        return _of_folder(data.removeprefix(ON_DISK), model, augment)
    dataset, number = _dataset(data, y, clients, options, own_loss)
    scheme = partition or ("natural" if dataset.client is not None and number is None else "iid")
    require(isinstance(scheme, str), "partition", scheme, "must be iid, shards:K, dirichlet:A, quantity:A or natural")
    if scheme != "natural" and number is None:
        remedy = "give the number of clients" + ("" if isinstance(data, str) else ", or each record's client")
        if isinstance(data, str) and data.startswith(("csv:", "parquet:")):
            remedy += ', or name the column that tells: options = { client = "..." }'
        raise InvalidInput("clients", number, remedy)
    require(not own_loss or not scheme.startswith(("shards", "dirichlet")), "partition", scheme, "needs classes")
    dealt = deal(dataset, scheme, number, partition_seed)
    change = None if augment is None else partial(AUGMENTATIONS[augment], black=dataset.black)
    return Task(
        dataset.name,
        dealt,
        model if isinstance(model, Model) else _model(model, dataset),
        augment=change,
        precision=precision,
        # A user's own records may be others, or other clients', the next time.
        assignment=f"{data}, {scheme}, {number}, {partition_seed}, {options}" if _is_public(data) else "",
    )


def _of_folder(folder: str, model: str | Model | None, augment: str | None) -> Task:
    """A task whose records stay on the disk."""
    held = open_records(folder)
    assert held.folder is not None
    change = None if augment is None else partial(AUGMENTATIONS[augment], black=held.folder.black)
    if not isinstance(model, Model):
        remedy = "holds numbers, not classes: give a model with a loss of your own"
        require(held.classes > 0, "disk", folder, remedy)
        model = _model(model, Dataset("disk", held.x, held.y, held.x_test, held.y_test, held.classes))
    return Task("disk", held, model, augment=change)


def _dataset(
    data: str | Array | Frame, y: Array | None, clients: Clients | None, options: dict[str, Any], own_loss: bool
) -> tuple[Dataset, int | None]:
    """The records, and the number of clients that they are dealt to, if it is given."""
    if isinstance(data, str):
        require(y is None, "y", type(y).__name__, f"{data} has labels of its own: leave it out")
        _require_number(clients)
        return load(data, **options), clients
    require(data is not None and not isinstance(data, Task), "data", type(data).__name__, "give a name, or arrays x, y")
    number, owners = _number_or_owners(clients)
    if is_hub_data(data):
        require(y is None, "y", type(y).__name__, "name the column of the labels instead, label=...")
        _require_number(clients)
        check_options("a data set of the hub", from_hub, options)
        return from_hub(data, number, **options), None if isinstance(data, Partitioned) else number
    if is_frame(data):
        check_options("a data frame", from_frame, options)
        return from_frame(data, y, owners, **options), number
    if y is None:
        raise InvalidInput("y", None, "give the labels of x, so.task(x, y, clients=...)")
    check_options("so.task(x, y)", from_arrays, options, TASK_KEYS)
    return from_arrays(data, y, owners, own_loss, **options), number


def _number_or_owners(clients: Clients | None) -> tuple[int | None, Array | None]:
    """How many clients records are dealt to, or whose each record is."""
    if clients is None or not np.isscalar(clients):
        return None, clients
    require_count(clients, "clients", "must be a whole number, at least 1, or an array with each record's client")
    return operator.index(clients), None  # type: ignore[arg-type]  # a count


def _model(name: str | None, dataset: Dataset) -> Model:
    """A model by its name, for these records."""
    require(name is None or isinstance(name, str), "model", name, "give a name, as mlp:300,300, or a Model")
    remedy = "there is one label alone: a model needs two; declare those that could come, labels = [...]"
    require(dataset.classes > 1, "labels", dataset.classes, remedy)
    return get(name or "logistic", tuple(np.shape(dataset.x)[1:]), dataset.classes)


def _is_public(data: object) -> bool:
    """Whether a text stands for the same records for good."""
    return isinstance(data, str) and ":" not in data


def _require_number(clients: Clients | None) -> None:
    number = clients is None or (isinstance(clients, int) and not isinstance(clients, bool))
    remedy = "must be a whole number: who holds a record is said beside arrays, or in a column"
    require(number, "clients", clients, remedy)


def _require_none_given(
    partition: str | None, partition_seed: int, model: str | Model | None, augment: str | None, y: Array | None
) -> None:
    """Problems have clients, records and a loss of their own."""
    dealt = "the clients of this problem have their own records: leave out"
    require(partition is None, "partition", partition, dealt)
    require(partition_seed == 0, "partition_seed", partition_seed, dealt)
    require(model is None, "model", model, "this problem has its own loss: leave out")
    require(augment is None, "augment", augment, "is for images: leave out")
    require(y is None, "y", type(y).__name__, "this problem has its own records: leave out")
