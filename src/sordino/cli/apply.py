"""`sordino predict`, `sordino evaluate` and `sordino export`: what a run has trained, used."""

from __future__ import annotations

import csv
import io
import json as text_of
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sordino.cli.output import Json, require_file, show
from sordino.cli.progress import working
from sordino.errors import InvalidInput, require
from sordino.files import write_atomically

if TYPE_CHECKING:
    from sordino.tasks import Predictor

MOST_PROBABILITIES = 20  # classes whose probabilities are written

Run = Annotated[Path, typer.Argument(help="The folder of a run, or of a point of a sweep.")]
Data = Annotated[str, typer.Argument(help="Records: FILE.csv or FILE.parquet as in training, or FILE.npz.")]
Encoding = Annotated[str | None, typer.Option(help="Of a CSV file; that of training if left out.")]


class Format(StrEnum):
    """What a model is exported as."""

    SAFETENSORS = "safetensors"
    ONNX = "onnx"
    TORCH = "torch"


SUFFIXES = {Format.SAFETENSORS: ".safetensors", Format.ONNX: ".onnx", Format.TORCH: ".torch.safetensors"}


def predict_command(
    run: Run,
    data: Data,
    out: Annotated[Path, typer.Option(help="File of the predictions; it must not exist.")] = Path("predictions.csv"),
    encoding: Encoding = None,
    json: Json = False,
) -> None:
    """Predict the label of every record; writes a CSV file with the row, the label and its probabilities."""
    from sordino.data.new_records import read_records
    from sordino.runs import load_run

    _require_new(out)
    trained = load_run(run).model
    with working("predicting"):
        records = read_records(data, trained.reading, encoding)
        chosen, shares = trained.predict(records.x), trained.probabilities(records.x)
    names = [f"probability of {label}" for label in trained.labels] if len(trained.labels) <= MOST_PROBABILITIES else []
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", "prediction", *names])
    for row, label, each in zip(records.rows, chosen, shares, strict=True):
        writer.writerow([row, label, *(f"{share:.6f}" for share in (each if names else ()))])
    write_atomically(out, text.getvalue().encode(), private=True)
    show(f"Predictions of {run}", {"records": len(chosen), "predictions": str(out)}, as_json=json)


def evaluate_command(run: Run, data: Data, encoding: Encoding = None, json: Json = False) -> None:
    """Accuracy and loss on labelled records. The figures depend on these records, and no certificate covers them."""
    from sordino.data.new_records import read_records
    from sordino.runs import load_run
    from sordino.tasks.predictor import PRIVATE_FIGURES

    trained = load_run(run).model
    with working("evaluating"):
        records = read_records(data, trained.reading, encoding)
        found = trained.evaluate(records.x, records.y)
    result = {"records": found.records, "accuracy": found.accuracy, "loss": found.loss, "note": PRIVATE_FIGURES}
    show(f"{run} on {data}", result, as_json=json)


def export_command(
    run: Run,
    format: Annotated[
        Format,
        typer.Option(
            help="safetensors: arrays by readable names; torch: by PyTorch's names and layouts; onnx: a graph."
        ),
    ] = Format.SAFETENSORS,
    out: Annotated[Path | None, typer.Option(help="The file; RUN's name in this folder if left out.")] = None,
    json: Json = False,
) -> None:
    """Write the model of a run for other programs."""
    from sordino.runs import load_run

    trained = load_run(run).model
    path = out or Path(Path(run).resolve().name + SUFFIXES[format])
    wanted = "." + SUFFIXES[format].rpartition(".")[2]  # Path(".onnx") is a name without a suffix
    require(path.suffix == wanted, "out", str(path), f"a file of format {format.value} ends in {wanted}")
    _require_new(path)
    contents = _exported(trained, format)
    write_atomically(path, contents)
    result: dict[str, object] = {
        "model": trained.model.name,
        "format": format.value,
        "file": str(path),
        "bytes": len(contents),
    }
    result |= _about(trained) if json else {"labels": _about(trained).get("labels")}
    show(f"Model of {run}", result, as_json=json)


def _exported(trained: Predictor, format: Format) -> bytes:
    from safetensors.numpy import save

    from sordino.models._naming import parameters_by_name, torch_state_dict
    from sordino.models._onnx_graph import onnx_bytes

    name, params = trained.model.name, trained.params
    if format is Format.ONNX:
        about = {key: text_of.dumps(value) for key, value in _about(trained).items()}
        return onnx_bytes(name, params, trained.input_shape, about)
    return save(torch_state_dict(name, params) if format is Format.TORCH else parameters_by_name(params))


def _about(trained: Predictor) -> dict[str, object]:
    """What a user of the file needs: labels and columns, unless they were counted in the records."""
    reading = trained.reading
    if reading is None:
        return {"records": f"arrays of shape {trained.input_shape}"}
    if reading.counted:
        return {"labels": f"not written: words of {', '.join(reading.counted)} were counted in private data"}
    about: dict[str, object] = {"labels": list(trained.labels)}
    if reading.scale is not None:
        about["scale"] = f"bytes of images are divided by {reading.scale:g}"
    if reading.features:
        about["columns"] = [asdict(feature) for feature in reading.features]
    return about


def _require_new(path: Path) -> None:
    require(not path.exists(), "out", str(path), "exists already: name another file with --out")
    if path.name in ("", ".", ".."):
        raise InvalidInput("out", str(path), "must be the name of a file")
    require_file("out", path)
