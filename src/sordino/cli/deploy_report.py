"""What comes of studies: both sides' statements beside each other, a node's own account, where studies stand."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from sordino.cli.output import print_json, print_rows
from sordino.deploy.both_sides import Account, BothSides
from sordino.deploy.look import measured
from sordino.deploy.own_account import OwnAccount
from sordino.deploy.status import StudyStatus
from sordino.errors import one_line
from sordino.privacy.guarantee import Certificate
from sordino.privacy.wording import format_delta, format_epsilon


def show_both_sides(found: BothSides, *, as_json: bool) -> None:
    """Both sides of a study; every promise once; one line for each fault on stderr, and then exit code 1."""
    if as_json:
        print_json(found.to_json())
    else:
        caption = _whose([each.certificate for each in found.accounts])
        rows = [_row(each, brief=caption is not None) for each in found.accounts]
        print_rows(rows, title=f"Study {found.study}, as both sides sign it", caption=caption)
        print_promises((each.certificate, each.name) for each in found.accounts)
        if found.model.exists():
            print(f"\nThe model: {found.model}")
    print_faults(found.faults)


def show_own_account(found: OwnAccount, *, as_json: bool) -> None:
    """A node's studies and what is spent of its budget."""
    if as_json:
        print_json(found.to_json())
    else:
        caption = _whose([each.certificate for each in found.studies])
        rows = [
            {
                "study": each.name,
                "rounds answered": f"{each.answered} of {each.rounds}",
                **_spent(each.certificate, brief=caption is not None),
                "state": "ended" if each.ended else "goes on",
            }
            for each in found.studies
        ]
        if rows:
            print_rows(rows, title=f"Studies of {found.node}, by its own ledgers", caption=caption)
        else:
            print(f"{found.node} has taken part in no study yet.")
        print_promises((each.certificate, each.name) for each in found.studies)
        print(
            f"\nBudget: {100 * found.spent:.1f} % of epsilon = {format_epsilon(found.epsilon)} at delta = "
            f"{format_delta(found.delta)} is spent in the present {found.period_days:g} days, all studies together."
        )
    print_faults(found.faults)


def show_studies(studies: Sequence[StudyStatus], place: Path, *, as_json: bool) -> None:
    """Where every study stands."""
    if as_json:
        print_json({"studies": [study.to_json() for study in studies]})
    elif not studies:
        print(f"no study yet in {place}: start one with `sordino deploy run`")
    else:
        print_rows([_study_row(study) for study in studies], title=f"Studies in {place}")
        for study in studies:
            if study.why:
                print(f"{study.name}: {study.why}")


def _row(account: Account, *, brief: bool) -> dict[str, Any]:
    return {
        "node": account.name,
        "records": account.records,
        "rounds used": len(account.used),
        "answered": len(account.answered) if account.signed else None,
        "own ledger": account.ledger,
        **_spent(account.certificate, brief=brief),
        "signature": "valid" if account.signed else "none",
        "sides": "DISAGREE" if account.faults else "agree" if account.signed else None,
    }


def _spent(certificate: Certificate | None, *, brief: bool) -> dict[str, str]:
    """A column of totals: epsilon alone where the caption says the rest."""
    totals = () if certificate is None else certificate.totals
    if brief:
        return {"epsilon": "; ".join(dict.fromkeys(format_epsilon(total.epsilon) for total in totals)) or "-"}
    alike: dict[str, list[str]] = {}
    for total in totals:
        alike.setdefault(f"{format_epsilon(total.epsilon)} at {format_delta(total.delta)}", []).append(total.observer)
    return {"epsilon at delta": "; ".join(f"{figure} ({', '.join(eyes)})" for figure, eyes in alike.items()) or "-"}


def _whose(certificates: Iterable[Certificate | None]) -> str | None:
    """The words for a column of epsilons; None where one certificate has several, or where they differ in more."""
    found = set()
    for totals in (each.totals for each in certificates if each is not None):
        figures = {(format_epsilon(total.epsilon), format_delta(total.delta)) for total in totals}
        if len(figures) != 1:
            return None
        delta, eyes = figures.pop()[1], ", ".join(dict.fromkeys(str(total.observer) for total in totals))
        one = f"one {totals[0].unit} ({totals[0].relation})"
        found.add(f"epsilon for {one} at delta = {delta}, over all rounds answered, against: {eyes}")
    return found.pop() if len(found) == 1 else None


def _study_row(study: StudyStatus) -> dict[str, Any]:
    return {
        "study": study.name,
        "state": study.state,
        "round": f"{study.round} of {study.rounds}",
        "nodes": ", ".join(f"{name} {each.rounds} ({each.latest or '-'})" for name, each in study.members.items()),
        "measured": measured(study) or None,
        "updated": study.when.strftime("%Y-%m-%d %H:%M"),
    }


def print_promises(parts: Iterable[tuple[Certificate | None, str]]) -> None:
    """Each distinct certificate once. Where several differ in the number of records alone, it does not name that."""
    alike: dict[str, list[tuple[str, str]]] = {}
    for certificate, name in parts:
        if certificate is not None:
            alike.setdefault(str(_without_units(certificate)), []).append((str(certificate), name))
    for common, several in alike.items():
        texts = {text for text, _ in several}
        print(f"\n{', '.join(name for _, name in several)}:\n{texts.pop() if len(texts) == 1 else common}")


def _without_units(certificate: Certificate) -> Certificate:
    return replace(certificate, guarantees=tuple(replace(each, units=None) for each in certificate.guarantees))


def print_faults(faults: Iterable[str]) -> None:
    """One line each on stderr, and then exit code 1."""
    lines = list(faults)
    for fault in lines:
        print(f"fault: {one_line(fault)}", file=sys.stderr)  # a part may be the words of another party
    if lines:
        raise typer.Exit(1)
