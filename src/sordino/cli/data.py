"""`sordino data ...`: list, fetch and describe data sets and their partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from sordino.cli.output import Json, print_json, print_rows, show
from sordino.cli.progress import working
from sordino.data import CATALOGUE, Dataset, FederatedData, fetch, label_histogram, load, partition, where
from sordino.data._scaling import feature_norms
from sordino.data.datasets import OWN_NAMES
from sordino.data.on_disk import ON_DISK, open_records
from sordino.data.partition import plot_label_histogram
from sordino.data.reading import Number, Reading
from sordino.data.writing import write_data
from sordino.errors import InvalidInput, require

app = typer.Typer(help="List, fetch and describe data sets, and their partition into clients.", no_args_is_help=True)

Name = Annotated[
    str,
    typer.Argument(help=f"A data set's name, {', '.join(OWN_NAMES)}, FILE.csv, FILE.parquet, or a run file (.toml)."),
]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of the partition; the run file's, or 0, if left out.")]
PRIVATE = "private data: show these figures only to people who may see the records"
MOST_CLIENTS = 50  # that are listed
BAR, SHADES = 24, "█▓▒░"  # the longest bar, and the marks of the first labels


@app.command("list")
def list_command(json: Json = False) -> None:
    """List the data sets, their natural clients if any, and their folder if they are here."""
    rows = [
        {
            "name": name,
            "records": entry.records,
            "test": entry.test_records,
            "features": _shape(entry.shape),
            "classes": entry.classes,
            "clients": entry.clients,
            "found": where(name),
        }
        for name, entry in CATALOGUE.items()
    ]
    if json:
        print_json({"data sets": rows})
        return
    print_rows(rows, boxed=False)
    print("get one: sordino data fetch NAME, or put its files into $SORDINO_DATA/NAME")
    print(f"your own: {', '.join(OWN_NAMES)} in place of a name")


@app.command("fetch")
def fetch_command(
    name: Annotated[str, typer.Argument(help="A data set's name, as `sordino data list` shows.")],
) -> None:
    """Download a data set into the cache, unless it is here already, and check its files."""
    folder = fetch(name)
    print(f"{name}: embedded, nothing to fetch" if folder is None else f"{name}: complete in {folder}")


@app.command("info")
def info_command(
    name: Name,
    clients: Annotated[int | None, typer.Option(help="Partition the records into this many clients.")] = None,
    scheme: Annotated[
        str | None,
        typer.Option("--partition", help="iid, shards:K, dirichlet:A, quantity:A or natural (iid if left out)."),
    ] = None,
    seed: Seed = None,
    option: Annotated[
        list[str] | None, typer.Option(help="An option of your own data: label=diagnosis. May be repeated.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the clients' labels into this file (.png, .svg, .pdf).")
    ] = None,
    json: Json = False,
) -> None:
    """Describe a data set and the records of its clients: natural ones, or those of --clients and --partition."""
    if (folder := _on_disk(name)) is not None:
        dealing = {"clients": clients, "partition": scheme, "seed": seed, "option": option, "plot": plot}
        remedy = "the records of the folder's clients stay where they are: leave out"
        for argument, value in dealing.items():
            require(value is None or value == [], argument, str(value), remedy)
        facts = _facts_of_folder(folder)
        if json:
            print_json(facts)
        else:
            show(f"Data set {name}", facts)
        return
    with working(f"loading {name}"):
        dataset, given = _loaded(name, option)
        clients, scheme, seed = given.unless(clients, scheme, seed)
        own = dataset.name not in CATALOGUE
        scheme = scheme or ("natural" if own and dataset.client is not None and clients is None else None)
        dealt = clients is not None or scheme is not None
        require(dealt or plot is None, "plot", str(plot), "draws the labels of clients: add --partition and --clients")
        data = partition(dataset, scheme or "iid", clients, seed) if dealt else None
    result = ({"computed from": PRIVATE} if own else {}) | _facts(dataset)
    if data is not None:
        result |= {
            "partition": scheme or "iid",
            "seed": seed,
            "clients": len(data.size),
            "records a client": _spread(data.size),
            "classes a client": _spread((label_histogram(data) > 0).sum(axis=1)),
            "records dealt": int(data.size.sum()),
        }
    if data is not None and plot is not None:
        _plot(data, plot, private=own)
        result["plot"] = str(plot)
    if json:
        each = {"each client": _clients(data, bars=False)} if data is not None else {}
        columns = {"columns": _columns(dataset.reading)} if dataset.reading is not None else {}
        print_json(result | columns | each)
        return
    show(f"Data set {name}", result)
    if dataset.reading is not None and dataset.reading.features:
        print_rows(_columns(dataset.reading), title="features", boxed=False)
    if data is not None:
        _print_clients(data, private=own)


@app.command("convert")
def convert_command(
    name: Name,
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    clients: Annotated[int | None, typer.Option(help="Deal the records to this many clients.")] = None,
    scheme: Annotated[
        str | None,
        typer.Option("--partition", help="iid, shards:K, dirichlet:A, quantity:A or natural (the default, if any)."),
    ] = None,
    seed: Seed = None,
    option: Annotated[
        list[str] | None, typer.Option(help="An option of your own data: label=diagnosis. May be repeated.")
    ] = None,
    json: Json = False,
) -> None:
    """Write a data set as a folder whose records stay on the disk during training: `disk:FOLDER` in a run file.

    The data set is loaded for it. What does not fit into memory is written in Python, with `so.write_records`.
    """
    require(_on_disk(name) is None, "name", name, "is such a folder already: copy it")
    with working(f"writing {folder}"):
        dataset, given = _loaded(name, option)
        clients, scheme, seed = given.unless(clients, scheme, seed)
        scheme = scheme or ("natural" if dataset.client is not None and clients is None else "iid")
        data = partition(dataset, scheme, clients, seed)
        remedy = "has no test records, on which models are measured: hold some out, --option test_share=0.2"
        require(len(data.y_test) > 0, "data set", name, remedy)
        write_data(folder, data, dataset.black)
    facts = _facts_of_folder(str(folder))
    if json:
        print_json(facts)
        return
    show(f"Written: {folder}", facts)
    print(f'train on it: name = "{ON_DISK}{folder}" in [task]')


def _on_disk(name: str) -> str | None:
    """The folder of disk:FOLDER, and of a run file that names one."""
    from sordino.config import load_config

    name = load_config(Path(name)).file.task.name if name.endswith(".toml") else name
    return name.removeprefix(ON_DISK) if name.startswith(ON_DISK) else None


def _facts_of_folder(folder: str) -> dict[str, Any]:
    """What a folder says of itself, without a look at the records."""
    data = open_records(folder)
    assert data.folder is not None
    return {
        "computed from": PRIVATE,
        "records": len(data.x),
        "test records": len(data.y_test),
        "features": _shape(data.x.shape[1:]),
        "type": str(data.x.dtype),
        "classes": data.classes,
        "clients": len(data.size),
        "records a client": _spread(data.size),
        "bytes of records": len(data.x) * sum(data.folder.row_bytes),
    }


class _Given:
    """What a run file says of the clients."""

    def __init__(self, clients: int | None = None, partition: str | None = None, partition_seed: int = 0) -> None:
        self.clients, self.partition, self.partition_seed = clients, partition, partition_seed

    def unless(
        self, clients: int | None, partition: str | None, seed: int | None
    ) -> tuple[int | None, str | None, int]:
        """Clients, partition and seed: those of the command line, where it gives them; 0 is given too."""
        return (
            self.clients if clients is None else clients,
            self.partition if partition is None else partition,
            self.partition_seed if seed is None else seed,
        )


def _loaded(name: str, options: list[str] | None) -> tuple[Dataset, _Given]:
    """The data set of a name, of a file, or of the [task] of a run file."""
    from sordino.config import load_config

    if name.endswith(".toml"):
        require(not options, "option", options, "the run file has options: use one of the two")
        config = load_config(Path(name))
        task = config.file.task
        with config.located("task"):
            return load(task.name, **task.options), _Given(task.clients, task.partition, task.partition_seed)
    kind = Path(name).suffix[1:]
    file = kind in ("csv", "parquet") and not name.startswith(("csv:", "parquet:"))
    return load(f"{kind}:{name}" if file else name, **dict(_option(text) for text in options or ())), _Given()


def _option(text: str) -> tuple[str, object]:
    from sordino.config.locate import literal_value

    key, equals, value = text.partition("=")
    require(bool(equals and key.strip()), "option", text, "write KEY=VALUE, for instance label=diagnosis")
    return key.strip(), literal_value(value).unwrap()


def _facts(dataset: Dataset) -> dict[str, Any]:
    counts = np.bincount(dataset.y, minlength=dataset.classes)
    of_table = dataset.reading is not None and bool(dataset.reading.features)
    hint = "none: name their column, --option client=COLUMN" if of_table else None
    return {
        "records": len(dataset.y),
        "test records": len(dataset.y_test),
        "features": _shape(dataset.x.shape[1:]),
        "type": str(dataset.x.dtype),
        "classes": dataset.classes,
        "labels": None if dataset.reading is None else list(dataset.reading.classes.names),
        "records a class": counts.tolist() if dataset.classes <= 20 else _spread(counts),
        "natural clients": len(dataset.client_names) or hint,
        "largest norm of features": float(feature_norms(dataset.x).max()),
    }


def _columns(reading: Reading) -> list[dict[str, object]]:
    """How every column is read."""
    return [
        {
            "column": feature.name,
            "is": "number" if isinstance(feature, Number) else "word",
            "range": feature.range if isinstance(feature, Number) else None,
            "categories": None if isinstance(feature, Number) else list(feature.categories),
            "counted": not isinstance(feature, Number) and feature.counted,
        }
        for feature in reading.features
    ]


def _clients(data: FederatedData, *, bars: bool) -> list[dict[str, object]]:
    """Sizes and labels of the clients, with bars of their records."""
    counts = label_histogram(data)
    names = data.names or tuple(f"client {number}" for number in range(len(counts)))
    labels = [data.reading.classes.name(k) if data.reading else str(k) for k in range(data.classes)]
    rows: list[dict[str, object]] = []
    for name, each in zip(names, counts, strict=True):
        row: dict[str, object] = {"client": name, "records": int(each.sum())}
        if bars:
            row |= {"labels": _said(labels, each), " ": _bar(each, int(counts.sum(axis=1).max()))}
        else:
            row |= {"labels": dict(zip(labels, each.tolist(), strict=True))}
        rows.append(row)
    return rows


def _print_clients(data: FederatedData, *, private: bool) -> None:
    rows = _clients(data, bars=True)
    left = f", and {len(rows) - MOST_CLIENTS} more" if len(rows) > MOST_CLIENTS else ""
    print_rows(rows[:MOST_CLIENTS], title=f"labels of {min(len(rows), MOST_CLIENTS)} clients{left}", boxed=False)
    if private:
        print(f"computed from {PRIVATE}")


def _said(labels: list[str], counts: NDArray[np.int64]) -> str:
    most = np.argsort(-counts, kind="stable")[:4]
    said = ", ".join(f"{labels[k]} {counts[k]}" for k in sorted(most) if counts[k])
    return said + (", ..." if (counts > 0).sum() > 4 else "")


def _bar(counts: NDArray[np.int64], most: int) -> str:
    """A part for each of the first labels, the last mark for all others."""
    edges = np.rint(np.cumsum(counts) * BAR / most).astype(int)
    return "".join(
        SHADES[min(k, len(SHADES) - 1)] * (stop - start)
        for k, (start, stop) in enumerate(zip([0, *edges[:-1]], edges, strict=True))
    )


def _spread(values: NDArray[np.integer[Any]]) -> dict[str, float]:
    return {"least": int(values.min()), "median": float(np.median(values)), "most": int(values.max())}


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(str(length) for length in shape)


def _plot(data: FederatedData, path: Path, *, private: bool) -> None:
    try:
        plot_label_histogram(data, path, private=private)
    except (OSError, ValueError) as error:  # no such folder; no such format
        remedy = f"could not be written ({error}): use FILE.png in a folder that exists"
        raise InvalidInput("plot", str(path), remedy) from error
