"""Data sets by name.

    dataset = load("mnist")
    dataset = load("mnist", standardize=False)
    dataset = load("csv:visits.csv")          # your own: see own.py

Public data sets are found or downloaded as `_files.py` describes. `CATALOGUE` states the contents of each, so that they
can be listed without loading.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sordino.data import _features, _files, _images, _tabular, _text
from sordino.data._records import Dataset
from sordino.data.on_disk import ON_DISK
from sordino.data.own import OWN_DATA
from sordino.errors import InvalidInput, did_you_mean, require, use_one_of


class Entry(NamedTuple):
    """The facts about a data set that are known without loading it; `clients` is the number of natural clients."""

    load: Callable[..., Dataset]
    source: _files.Source | None  # None: embedded
    records: int
    test_records: int
    shape: tuple[int, ...]
    classes: int
    clients: int | None


CATALOGUE = {
    "mnist": Entry(_images.load_mnist, _images.MNIST, 60000, 10000, (28, 28, 1), 10, None),
    "fashion-mnist": Entry(_images.load_fashion_mnist, _images.FASHION_MNIST, 60000, 10000, (28, 28, 1), 10, None),
    "cifar10": Entry(_images.load_cifar10, _images.CIFAR10, 50000, 10000, (32, 32, 3), 10, None),
    "cifar10-features": Entry(
        _features.load_cifar10_features, _features.CIFAR10_FEATURES, 50000, 10000, (512,), 10, None
    ),
    "cifar100": Entry(_images.load_cifar100, _images.CIFAR100, 50000, 10000, (32, 32, 3), 100, None),
    "heart-disease": Entry(_tabular.load_heart_disease, _tabular.HEART_DISEASE, 497, 243, (13,), 2, 4),
    "adult": Entry(_tabular.load_adult, _tabular.ADULT, 32561, 16281, (108,), 2, 15),
    "tiny-shakespeare": Entry(_text.load_tiny_shakespeare, _text.TINY_SHAKESPEARE, 86774, 8693, (80,), 65, 141),
    "digits": Entry(_images.load_digits, None, 1438, 359, (8, 8, 1), 10, 1438),
}


OWN_NAMES = ("csv:FILE", "parquet:FILE", "npz:FOLDER", "leaf:FOLDER", "hf:NAME", "disk:FOLDER")


def load(name: str, **options: object) -> Dataset:
    """The data set called `name`, or your own data: csv:FILE and the others of own.py."""
    kind, colon, place = name.partition(":")
    if colon and kind in OWN_DATA:
        check_options(kind, OWN_DATA[kind], options)
        dataset = OWN_DATA[kind](place, **options)
        # The name goes into ledgers and reports, which others read: a path stays in the run file alone.
        return dataset if kind == "hf" else dataset._replace(name=kind)
    loader = _entry(name).load
    check_options(name, loader, options)
    return loader(**options)


def fetch(name: str) -> Path | None:
    """Make sure that the files of a data set are here and correct; return their folder, None if it is embedded."""
    source = _entry(name).source
    return None if source is None else _files.obtain(source)[0].parent


def where(name: str) -> str | None:
    """The folder that holds a data set's files, "embedded", or None if it must be downloaded."""
    source = _entry(name).source
    if source is None:
        return "embedded"
    found = _files.find(source)
    return str(found[0]) if found else None


def _entry(name: str) -> Entry:
    if isinstance(name, str) and name.startswith(ON_DISK):
        raise InvalidInput("data set", name, "stays on the disk, and cannot be loaded: so.task trains on it there")
    if name not in CATALOGUE:
        kind = Path(name).suffix[1:] if isinstance(name, str) else ""
        yours = f"a file of yours is {kind}:{name}; " if kind in ("csv", "parquet") else ""
        raise InvalidInput("data set", name, f"unknown: {yours}{use_one_of(name, [*CATALOGUE, *OWN_NAMES])}")
    return CATALOGUE[name]


def check_options(
    name: str, loader: Callable[..., object], options: Mapping[str, object], also: Sequence[str] = ()
) -> None:
    """Refuse an option that the loader does not take; `also` are other names that may have been meant."""
    parameters = inspect.signature(loader).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    for option, value in options.items():
        meant = did_you_mean(option, [*known, *also])
        require(option in known, option, value, f"{meant}{name} takes {', '.join(known) or 'no options'}")
