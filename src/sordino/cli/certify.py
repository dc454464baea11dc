"""`sordino certify RUN`: the certificate again, recomputed from the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sordino.cli.output import show, working
from sordino.errors import InvalidInput
from sordino.privacy.accountants import account_of
from sordino.privacy.guarantee import Certificate, Guarantee, Warning
from sordino.privacy.ledger import LedgerRecord, read_ledger
from sordino.types import Observer

__all__ = ["certify_command"]


def certify_command(
    run: Annotated[Path, typer.Argument(help="A run's folder, or a ledger file.")],
    delta: Annotated[float | None, typer.Option(help="delta; the one that the ledger names, if left out.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a ledger line by line and say what has been spent, for each observer."""
    path = run / "ledger.jsonl" if run.is_dir() else run
    record = read_ledger(path)
    chosen = delta if delta is not None else record.description.get("delta")
    if chosen is None:
        raise InvalidInput("delta", None, f"{path} names none: give --delta")
    with working("accounting"):
        certificate = ledger_certificate(record, float(chosen))
    result = {"ledger": str(path), "releases": len(record.entries)}
    if json:
        show("", result | certificate.to_json(), as_json=True)
        return
    show("Recomputed from the ledger", result, as_json=False)
    print(certificate)


def ledger_certificate(record: LedgerRecord, delta: float) -> Certificate:
    """The total spent, against each observer that saw anything."""
    seen = [observer for observer in Observer if any(observer in entry.observers for entry in record.entries)]
    rounds = len({entry.round for entry in record.entries})
    guarantees, warnings = [], []
    for observer in seen:
        account = account_of(record.spent(observer), record.relation)
        units = record.description.get("units")
        guarantees.append(
            Guarantee(
                unit=record.unit,
                relation=record.relation,
                observer=observer,
                scope="all rounds",
                rounds=rounds,
                epsilon=account.epsilon(delta),
                delta=delta,
                accountant=account.accountant,
                assumptions=tuple(record.description.get("assumptions", ())),
                units=units,
            )
        )
        warnings += [Warning("no-valid-guarantee", claim) for claim in account.claims]
    if record.recovered:
        text = f"{record.recovered} torn line(s) after a crash, each counted as the costliest release"
        warnings.append(Warning("recovered", text))
    return Certificate(tuple(guarantees), tuple(dict.fromkeys(warnings)))
