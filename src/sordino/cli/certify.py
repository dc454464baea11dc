"""`sordino certify RUN`: the certificate again, recomputed from the ledger, and the files of the run beside it.

Of a sweep, each point is checked. With a disagreement no certificate is printed: one of the files is not what it was.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from sordino.cli.output import Json, json_text, print_json, print_rows, show_with_certificate
from sordino.cli.progress import working
from sordino.errors import InvalidInput, require
from sordino.privacy.certification import certify_ledger
from sordino.privacy.guarantee import Certificate
from sordino.privacy.ledger import read_ledger
from sordino.privacy.ledger_record import LedgerRecord
from sordino.privacy.wording import SELECTION_NOT_COVERED, format_delta, format_epsilon

if TYPE_CHECKING:
    from sordino.privacy.signing import SigningKey, VerifyingKey
    from sordino.runs.agreement import Disagreement

SignWith = Annotated[
    Path | None, typer.Option("--sign", help="Sign with this private key (Ed25519 or ECDSA; OpenSSH or PEM).")
]


class Format(StrEnum):
    """Forms of a certificate for people who do not have the run."""

    JSON = "json"
    REGISTRY = "registry"
    CARD = "card"


class Checked(NamedTuple):
    """What a ledger shows to have been spent, and what does not agree with it."""

    facts: dict[str, Any]  # where it comes from
    certificate: Certificate | None  # None if something disagrees
    disagreements: tuple[Disagreement, ...] = ()

    def to_json(self) -> dict[str, Any]:
        stated = {} if self.certificate is None else self.certificate.to_json()
        return self.facts | stated | {"disagreements": [each.to_json() for each in self.disagreements]}


def certify_command(
    run: Annotated[
        Path, typer.Argument(help="Folder of a run, a sweep or a point; a ledger; or a signed FILE.dsse.json.")
    ],
    delta: Annotated[float | None, typer.Option(help="delta; the one that the ledger names, if left out.")] = None,
    sign: SignWith = None,
    verify: Annotated[
        Path | None, typer.Option(help="Check that this public key (OpenSSH or PEM) signed the files as they are.")
    ] = None,
    format: Annotated[
        Format | None,
        typer.Option(help="Print the certificate for others: JSON (docs/schema), a registry's YAML, or a model card."),
    ] = None,
    json: Json = False,
) -> None:
    """Recompute from the ledger what has been spent, and compare all files of the run with it.

    Of a statement that a node or a server of a deployment has signed, --verify checks the signature.
    The exit code is 1 if certificate, ledger, model, run file, metrics, environment or signature disagree.
    """
    from sordino.cli.statement import SUFFIX, show_statement
    from sordino.runs.agreement import was_run
    from sordino.runs.store import point_folders

    if format is not None:
        alone = sign is None and delta is None and not json
        require(alone, "format", format.value, "takes no other option but --verify")
        print(_exported(run, format, None if verify is None else _verifying_key(verify)), end="")
        return
    if run.name.endswith(SUFFIX) and not run.is_dir():
        require(sign is None and delta is None, "run", str(run), "is signed already: --verify alone goes with it")
        show_statement(run, None if verify is None else _verifying_key(verify), as_json=json)
        return
    require(sign is None or verify is None, "verify", str(verify), "sign first, and verify with another command")
    signing = None if sign is None else signing_key(sign)
    verifying = None if verify is None else _verifying_key(verify)
    points = [folder for folder in point_folders(run) if was_run(folder)]  # the others have not begun
    points = [] if was_run(run) else points  # the folder of a run that also has points is no sweep
    with working("accounting"):
        if run.is_dir() and (points or was_run(run)):
            found = [_checked_run(path, delta, signing, verifying) for path in points or [run]]
        else:
            require(
                sign is None and verify is None,
                "run",
                str(run),
                "is not a run: give the folder of one to sign or verify",
            )
            found = [_checked_ledger(run, delta)]
    if not points:
        _show_run(found[0], as_json=json)
    elif json:
        rows = [{"point": int(path.name)} | each.to_json() for path, each in zip(points, found, strict=True)]
        faults = [
            _in_sweep(path, fault).to_json()
            for path, each in zip(points, found, strict=True)
            for fault in each.disagreements
        ]
        note = {"note": SELECTION_NOT_COVERED}
        print_json({"sweep": str(run), "points": rows, "choosing": note, "disagreements": faults})
    else:
        _print_sweep(run, points, found)
    if any(each.disagreements for each in found):
        raise typer.Exit(1)


def signing_key(path: Path) -> SigningKey:
    """A private key; its passphrase is asked for on a terminal."""
    from sordino.privacy.signing import read_signing_key

    def ask() -> bytes:
        return str(typer.prompt(f"Passphrase of {path}", hide_input=True, err=True)).encode()

    return read_signing_key(path, ask if sys.stdin.isatty() else None)


def _verifying_key(path: Path) -> VerifyingKey:
    from sordino.privacy.signing import read_verifying_key

    return read_verifying_key(path)


def _exported(run: Path, format: Format, key: VerifyingKey | None) -> str:
    """A finished run, whose files agree, in one of the forms."""
    from sordino.report.card import card_markdown
    from sordino.report.exported import export, export_json
    from sordino.report.registry import registry_yaml
    from sordino.runs.agreement import was_run

    require(
        run.is_dir() and was_run(run), "run", str(run), "is not a run: give the folder of one, or a point of a sweep"
    )
    found = export(run, key)
    if format is Format.JSON:
        return json_text(export_json(found)) + "\n"
    return registry_yaml(found) if format is Format.REGISTRY else card_markdown(found)


# --- Checks ----------------------------------------------------------------------------------------------------------


def _checked_run(
    folder: Path, delta: float | None, signing: SigningKey | None, verifying: VerifyingKey | None
) -> Checked:
    """The files of one run, or of one point of a sweep."""
    from sordino.runs.agreement import compare_run
    from sordino.runs.names import LEDGER
    from sordino.runs.signature import sign_run, verify_run

    agreement = compare_run(folder)
    faults, notes = agreement.disagreements, agreement.notes
    facts: dict[str, Any] = {"ledger": str(folder / LEDGER)}
    if verifying is not None:
        verified = verify_run(folder, verifying, agreement)
        faults, notes = (*faults, *verified.disagreements), (*notes, *verified.notes)
        if verified.signed_at is not None:
            facts |= {"signed_by": verified.key_id, "signed_at": verified.signed_at}
    facts |= {"agree": list(agreement.compared), "notes": list(dict.fromkeys(notes))}
    if faults or agreement.record is None:
        return Checked(facts, None, faults)
    spent = _spent(folder / LEDGER, agreement.record, delta)
    if signing is not None:
        facts |= {"signature": str(sign_run(folder, signing, agreement)), "signed_by": signing.id}
    return Checked(spent.facts | facts, spent.certificate)


def _checked_ledger(run: Path, delta: float | None) -> Checked:
    """A ledger alone."""
    path = _ledger_of(run)
    spent = _spent(path, read_ledger(path), delta)
    return Checked(
        spent.facts | {"agree": [], "notes": ["a ledger alone: there is nothing to compare it with"]}, spent.certificate
    )


def _spent(path: Path, record: LedgerRecord, delta: float | None) -> Checked:
    chosen = delta if delta is not None else record.description.get("delta")
    if chosen is None:
        raise InvalidInput("delta", None, f"{path} names none: give --delta")
    if not isinstance(chosen, int | float):
        raise InvalidInput("delta", chosen, f"{path} names no number: give --delta")
    certificate = certify_ledger(record, float(chosen))
    require(bool(certificate.guarantees), "ledger", str(path), "holds no release yet: nothing has been spent")
    releases = sum(1 if entry.rounds is None else len(entry.rounds) for entry in record.entries)
    return Checked({"ledger": str(path), "releases": releases}, certificate)


def _ledger_of(run: Path) -> Path:
    """The ledger of a folder, or the file itself; damage is the ledger's own matter."""
    from sordino.runs.names import LEDGER

    path = run / LEDGER if run.is_dir() else run
    counted = path.with_name(f"{path.name}.head").exists()
    require(counted or path.exists(), "run", str(run), "there is no run here: check the path")
    if not counted:
        with path.open("rb") as file:
            require(file.read(1) == b"{", "run", str(run), "is not a ledger: give a run's folder, or its ledger.jsonl")
    return path


# --- Output ----------------------------------------------------------------------------------------------------------


def _show_run(found: Checked, *, as_json: bool) -> None:
    if as_json:
        print_json(found.to_json())
    elif found.certificate is None:
        _print_faults(found.disagreements)
    else:
        show_with_certificate("Recomputed from the ledger", found.facts, found.certificate, as_json=False)


def _print_sweep(run: Path, points: list[Path], found: list[Checked]) -> None:
    """A line for each point, and each certificate once; or every disagreement."""
    faults = [_in_sweep(path, fault) for path, each in zip(points, found, strict=True) for fault in each.disagreements]
    if faults:
        _print_faults(faults)
        return
    table, alike, notes = [], dict[str, list[str]](), dict[str, list[str]]()
    for path, each in zip(points, found, strict=True):
        assert each.certificate is not None
        totals = {
            f"epsilon, {total.observer}": f"{format_epsilon(total.epsilon)} at delta {format_delta(total.delta)}"
            for total in each.certificate.guarantees
            if total.client is None
        }
        table.append({"point": path.name, "releases": each.facts["releases"]} | totals)
        alike.setdefault(str(each.certificate), []).append(path.name)
        for note in each.facts["notes"]:
            notes.setdefault(note, []).append(path.name)
    print_rows(table, title=f"Recomputed from the ledgers of {run}")
    for text, some in alike.items():
        print(f"\n{_points(some)}:\n{text}")
    for note, some in notes.items():
        print(f"\n{_points(some)}: {note}")
    signers = sorted({each.facts["signed_by"] for each in found if "signed_by" in each.facts})
    if signers:
        print(f"\nAll points are signed by {', '.join(signers)}")
    print(f"\n{SELECTION_NOT_COVERED}")


def _points(numbers: list[str]) -> str:
    return f"Point {numbers[0]}" if len(numbers) == 1 else f"Each of {len(numbers)} points, from {numbers[0]} on"


def _in_sweep(point: Path, fault: Disagreement) -> Disagreement:
    """The disagreement with the file's path in the folder of the sweep."""
    return replace(fault, file=f"{point.parent.name}/{point.name}/{fault.file}")


def _print_faults(faults: tuple[Disagreement, ...] | list[Disagreement]) -> None:
    for fault in faults:
        print(f"disagreement ({fault.code}): {fault}", file=sys.stderr)
