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
from sordino.data.partition import plot_label_histogram
from sordino.errors import InvalidInput, require

app = typer.Typer(help="List, fetch and describe data sets, and their partition into clients.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A data set's name, or npz:FOLDER, csv:FILE or hf:NAME for your own.")]


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
    print("your own: npz:FOLDER, csv:FILE or hf:NAME in place of a name")


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
    seed: Annotated[int, typer.Option(min=0, help="Seed of the partition.")] = 0,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the clients' labels into this file (.png, .svg, .pdf).")
    ] = None,
    json: Json = False,
) -> None:
    """Describe a data set and, with --clients or --partition, the records that clients would get."""
    dealt = clients is not None or scheme is not None
    require(dealt or plot is None, "plot", str(plot), "draws the labels of clients: add --partition and --clients")
    with working(f"loading {name}"):
        dataset = load(name)
        data = partition(dataset, scheme or "iid", clients, seed) if dealt else None
    result = _facts(dataset)
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
        _plot(data, plot)
        result["plot"] = str(plot)
    show(f"Data set {name}", result, as_json=json)


def _facts(dataset: Dataset) -> dict[str, object]:
    counts = np.bincount(dataset.y, minlength=dataset.classes)
    return {
        "records": len(dataset.y),
        "test records": len(dataset.y_test),
        "features": _shape(dataset.x.shape[1:]),
        "type": str(dataset.x.dtype),
        "classes": dataset.classes,
        "records a class": counts.tolist() if dataset.classes <= 20 else _spread(counts),
        "natural clients": len(dataset.client_names) or None,
    }


def _spread(values: NDArray[np.integer[Any]]) -> dict[str, float]:
    return {"least": int(values.min()), "median": float(np.median(values)), "most": int(values.max())}


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(str(length) for length in shape)


def _plot(data: FederatedData, path: Path) -> None:
    try:
        plot_label_histogram(data, path)
    except (OSError, ValueError) as error:  # no such folder; no such format
        remedy = f"could not be written ({error}): use FILE.png in a folder that exists"
        raise InvalidInput("plot", str(path), remedy) from error
