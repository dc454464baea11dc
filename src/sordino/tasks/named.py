"""Tasks by name."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from sordino.data import load
from sordino.data import partition as deal
from sordino.data.augmentation import AUGMENTATIONS
from sordino.data.datasets import check_options
from sordino.errors import require
from sordino.models import get
from sordino.tasks.problems import PROBLEMS
from sordino.tasks.task import Task


def task(
    name: str = "digits",
    *,
    clients: int | None = None,
    partition: str | None = None,
    model: str | None = None,
    partition_seed: int = 0,
    augment: str | None = None,
    **options: Any,
) -> Task:
    """A task by name: a data set (see `sordino data list`), how it is dealt to clients, and a model.

    "quadratics", "linear", "linear-regression", "opposed-parabolas" and "robust-regression" are problems instead, with
    their own losses.

    Args:
      name: of the data set, or npz:FOLDER, csv:FILE, hf:NAME; or of a problem.
      clients: how many; with a natural partition, as many as there are.
      partition: "iid", "shards:K", "dirichlet:A", "quantity:A" or "natural" (the default where there is one).
      model: "logistic" (the default of a data set), "mlp:300,300", "cnn", "resnet20:batch", ...
      partition_seed: of the dealing.
      augment: "crop-flip", "crop" or "flip" changes a client's images at random before each gradient; "none" does not.
      options: for the data set's loader; of quadratics `d`, `rank`, `scale` (how far off w_0 is) and `seed`; of
        linear-regression `d`, `u_variance` and `seed`; of opposed-parabolas `start`; of robust-regression `d`,
        `records`, `regularisation` and `seed`; of linear `loss`, `records`, `d`, `l2`, `smoothing`, `spread`, `noise`
        and `seed`.
    """
    augment = None if augment == "none" else augment  # a change of a run file cannot take a key away
    known = f"use one of {', '.join(AUGMENTATIONS)}, none, or leave it out"
    require(augment is None or augment in AUGMENTATIONS, "augment", augment, known)
    if name in PROBLEMS:
        dealt = "the clients of this problem have their own records: leave out"
        require(partition is None, "partition", partition, dealt)
        require(partition_seed == 0, "partition_seed", partition_seed, dealt)
        require(model is None, "model", model, "this problem has its own loss: leave out")
        require(augment is None, "augment", augment, "is for images: leave out")
        check_options(name, PROBLEMS[name], options)
        return replace(PROBLEMS[name](clients, **options), assignment=f"{name}, {clients}, {options}")
    dataset = load(name, **options)
    scheme = partition or ("natural" if dataset.client is not None and clients is None else "iid")
    if scheme != "natural":
        require(clients is not None, "clients", clients, f"say how many clients {name} is dealt to")
    data = deal(dataset, scheme, clients, partition_seed)
    made = get(model or "logistic", tuple(np.shape(data.x)[1:]), data.classes)
    change = None if augment is None else partial(AUGMENTATIONS[augment], black=dataset.black)
    return Task(
        name,
        data,
        made,
        augment=change,
        # A user's own files may hold other records, or other clients', the next time.
        assignment="" if ":" in name else f"{name}, {scheme}, {clients}, {partition_seed}, {options}",
    )
