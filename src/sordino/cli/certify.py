"""`sordino certify RUN`: the certificate again, recomputed from the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sordino.cli.output import show, working
from sordino.errors import InvalidInput, require
from sordino.privacy.certification import certify_ledger
from sordino.privacy.ledger import read_ledger

__all__ = ["certify_command"]


def certify_command(
    run: Annotated[Path, typer.Argument(help="A run's folder, or a ledger file.")],
    delta: Annotated[float | None, typer.Option(help="delta; the one that the ledger names, if left out.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a ledger line by line and say what has been spent, for each observer."""
    path = _ledger_of(run)
    record = read_ledger(path)
    chosen = delta if delta is not None else record.description.get("delta")
    if chosen is None:
        raise InvalidInput("delta", None, f"{path} names none: give --delta")
    with working("accounting"):
        certificate = certify_ledger(record, _number(chosen, path))
    if not certificate.guarantees:
        raise InvalidInput("ledger", str(path), "holds no release yet: nothing has been spent")
    result = {"ledger": str(path), "releases": len(record.entries)}
    if json:
        show("", result | certificate.to_json(), as_json=True)
        return
    show("Recomputed from the ledger", result, as_json=False)
    print(certificate)


def _ledger_of(run: Path) -> Path:
    """The ledger of a run's folder, or the file itself; what is damaged is the ledger's own matter."""
    if (run / "points").is_dir():
        raise InvalidInput("run", str(run), "is a sweep, which keeps no ledger: its guarantees are in points/")
    path = run / "ledger.jsonl" if run.is_dir() else run
    counted = path.with_name(f"{path.name}.head").exists()
    require(counted or path.exists(), "run", str(run), "there is no run here: check the path")
    if not counted:
        with path.open("rb") as file:
            require(file.read(1) == b"{", "run", str(run), "is no ledger: give a run's folder, or its ledger.jsonl")
    return path


def _number(value: object, path: Path) -> float:
    if isinstance(value, int | float):
        return float(value)
    raise InvalidInput("delta", value, f"{path} names no number: give --delta")
