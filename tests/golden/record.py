"""Run the files of `recorded/` and keep their results beside them, for `test_recorded_runs.py`.

`python -m tests.golden.record` writes every JSON file again, `python -m tests.golden.record NAME ...` only those named,
both under the settings of the test suite. Record again only after an intended change of results.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded"


def results_of(file: Path, runs: Path) -> dict[str, Any]:
    """Run a file with `sordino run`, in this process, and read the results from the run's folder."""
    from typer.testing import CliRunner

    from sordino.cli.app import app

    folder = runs / file.stem
    command = ["run", str(file), "--runs", str(runs), "--name", file.stem]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    if (folder / "points").exists():
        return {"points": [_results_in(point) for point in sorted((folder / "points").iterdir())]}
    return _results_in(folder) | {"model": _model(folder / "model.safetensors")}


def _results_in(folder: Path) -> dict[str, Any]:
    """What a run, or a point of a sweep, left in its folder."""
    return {
        "metrics": [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()],
        "certificate": json.loads((folder / "certificate.json").read_text()),
    }


def _model(path: Path) -> dict[str, Any]:
    """Shape and values of every array; nine digits tell all float32 numbers apart."""
    from safetensors.numpy import load_file

    return {
        name: {"shape": list(array.shape), "values": [float(f"{value:.9g}") for value in array.ravel().tolist()]}
        for name, array in sorted(load_file(path).items())
    }


def _text(value: Any, indent: str = "") -> str:
    """JSON with one line for each row, guarantee and array, so that a difference between two files can be read."""
    if _height(value) <= 2:
        return json.dumps(value, allow_nan=False)
    deeper = indent + " "
    if isinstance(value, dict):
        begin, end = "{}"
        parts = [f"{json.dumps(name)}: {_text(inner, deeper)}" for name, inner in value.items()]
    else:
        begin, end = "[]"
        parts = [_text(inner, deeper) for inner in value]
    return f"{begin}\n{deeper}" + f",\n{deeper}".join(parts) + f"\n{indent}{end}"


def _height(value: Any) -> int:
    """How many containers lie inside each other."""
    if not isinstance(value, dict | list):
        return 0
    return 1 + max((_height(inner) for inner in (value.values() if isinstance(value, dict) else value)), default=0)


def main(names: list[str]) -> None:
    files = [RECORDED / f"{name}.toml" for name in names] or sorted(RECORDED.glob("*.toml"))
    with tempfile.TemporaryDirectory() as runs:
        for file in files:
            file.with_suffix(".json").write_text(_text(results_of(file, Path(runs))) + "\n")
            print(file.stem)


if __name__ == "__main__":
    import tests.conftest  # noqa: F401  the suite's settings of XLA, set before JAX is imported

    main(sys.argv[1:])
