"""`sordino certify RUN`: the certificate again, recomputed from the ledger; of a sweep, for each of its points."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from sordino.cli.output import Json, print_json, print_rows, show_with_certificate, working
from sordino.errors import InvalidInput, require
from sordino.privacy.certification import certify_ledger
from sordino.privacy.guarantee import Certificate
from sordino.privacy.ledger import read_ledger
from sordino.privacy.wording import SELECTION_NOT_COVERED, format_delta, format_epsilon


class Recomputed(NamedTuple):
    """What a ledger shows to have been spent."""

    facts: dict[str, Any]  # where it comes from
    certificate: Certificate


def certify_command(
    run: Annotated[Path, typer.Argument(help="The folder of a run, a sweep or one of its points, or a ledger file.")],
    delta: Annotated[float | None, typer.Option(help="delta; the one that the ledger names, if left out.")] = None,
    json: Json = False,
) -> None:
    """Check a ledger line by line and say what has been spent, for each observer."""
    from sordino.runs.store import LEDGER, point_folders

    points = [folder for folder in point_folders(run) if any(folder.glob(f"{LEDGER}*"))]  # the others have not begun
    with working("accounting"):
        found = [_recomputed(path, delta) for path in points or [run]]
    if not points:
        show_with_certificate("Recomputed from the ledger", *found[0], as_json=json)
    elif json:
        rows = [
            {"point": int(path.name)} | facts | certificate.to_json()
            for path, (facts, certificate) in zip(points, found, strict=True)
        ]
        print_json({"sweep": str(run), "points": rows, "choosing": {"note": SELECTION_NOT_COVERED}})
    else:
        _print_sweep(run, [path.name for path in points], found)


def _print_sweep(run: Path, numbers: list[str], found: list[Recomputed]) -> None:
    """A line for each point, and each certificate once."""
    table, alike = [], dict[str, list[str]]()
    for number, (facts, certificate) in zip(numbers, found, strict=True):
        totals = {
            f"epsilon, {each.observer}": f"{format_epsilon(each.epsilon)} at delta {format_delta(each.delta)}"
            for each in certificate.guarantees
            if each.client is None
        }
        table.append({"point": number, "releases": facts["releases"]} | totals)
        alike.setdefault(str(certificate), []).append(number)
    print_rows(table, title=f"Recomputed from the ledgers of {run}")
    for text, some in alike.items():
        print(f"\nPoint {some[0]}:" if len(some) == 1 else f"\nEach of {len(some)} points, from {some[0]} on:")
        print(text)
    print(f"\n{SELECTION_NOT_COVERED}")


def _recomputed(run: Path, delta: float | None) -> Recomputed:
    path = _ledger_of(run)
    record = read_ledger(path)
    chosen = delta if delta is not None else record.description.get("delta")
    if chosen is None:
        raise InvalidInput("delta", None, f"{path} names none: give --delta")
    if not isinstance(chosen, int | float):
        raise InvalidInput("delta", chosen, f"{path} names no number: give --delta")
    certificate = certify_ledger(record, float(chosen))
    require(bool(certificate.guarantees), "ledger", str(path), "holds no release yet: nothing has been spent")
    releases = sum(1 if entry.rounds is None else len(entry.rounds) for entry in record.entries)
    return Recomputed({"ledger": str(path), "releases": releases}, certificate)


def _ledger_of(run: Path) -> Path:
    """The ledger of a run's folder, or the file itself; damage is the ledger's own matter."""
    from sordino.runs.store import LEDGER

    path = run / LEDGER if run.is_dir() else run
    counted = path.with_name(f"{path.name}.head").exists()
    require(counted or path.exists(), "run", str(run), "there is no run here: check the path")
    if not counted:
        with path.open("rb") as file:
            require(file.read(1) == b"{", "run", str(run), "is no ledger: give a run's folder, or its ledger.jsonl")
    return path
