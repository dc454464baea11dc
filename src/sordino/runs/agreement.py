"""Whether the files of a run agree with its ledger: certificate, model, run file, metrics and environment.

The ledger names the digests of the files that the run began with, and at its end those of all files. The figures of
the certificate are computed again from the ledger's releases.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sordino.errors import InvalidInput, LedgerError, Refused
from sordino.privacy.differences import differences, is_whole
from sordino.privacy.guarantee import Certificate
from sordino.privacy.ledger import read_ledger
from sordino.privacy.ledger_record import LedgerRecord
from sordino.runs.digests import digests_of
from sordino.runs.metrics import read_rows
from sordino.runs.names import (
    CERTIFICATE,
    CHECKPOINT,
    ENVIRONMENT,
    HEAD,
    LEDGER,
    METRICS,
    MODEL,
    OPEN,
    POINTS,
    SALT,
    SECRET,
    SIGNATURE,
)

_RESTORE = "restore it from a backup"


@dataclass(frozen=True)
class Disagreement:
    """A file that does not agree with the others: its name, a stable code, and a sentence with the remedy."""

    file: str
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}: {self.message}"

    def to_json(self) -> dict[str, str]:
        """Plain values."""
        return {"file": self.file, "code": self.code, "message": self.message}


@dataclass(frozen=True)
class Agreement:
    """What a folder's ledger says, and how the other files agree with it."""

    record: LedgerRecord | None  # None if the ledger is damaged
    compared: tuple[str, ...] = ()  # files that agree with the ledger
    notes: tuple[str, ...] = ()  # what could not be compared, for a reason that is no fault
    disagreements: tuple[Disagreement, ...] = ()


def was_run(folder: Path) -> bool:
    """Whether something has run in this folder, whatever has become of its ledger."""
    return any((folder / name).exists() for name in (LEDGER, HEAD, MODEL, METRICS, CHECKPOINT, CERTIFICATE, SIGNATURE))


def compare_run(folder: Path) -> Agreement:
    """Compare all files of a run with its ledger. Takes no lock and writes nothing."""
    if not (folder / LEDGER).exists() and not (folder / HEAD).exists():
        lost = Disagreement(LEDGER, "missing", f"is missing, though something has run here; {_RESTORE}")
        return Agreement(None, disagreements=(lost,))
    try:
        record = read_ledger(folder / LEDGER)
    except (LedgerError, Refused) as error:  # refused: entries about another unit or relation than the header's
        return Agreement(None, disagreements=(Disagreement(LEDGER, "damaged", str(error)),))
    notes: list[str] = []
    found = list(_differing_files(folder, record, notes))
    if (folder / CERTIFICATE).exists():
        certified_by_ledger = CERTIFICATE in record.first_files and all(each.file != CERTIFICATE for each in found)
        found += _differing_figures(folder, record, certified_by_ledger)
    found += _differing_progress(folder, record)
    if (folder / POINTS).exists():
        found.append(Disagreement(POINTS, "unexpected", "is here beside a run, which has no points; remove it"))
    named = [
        name for name in (*OPEN, *SECRET) if (record.finish.files if record.finish else record.first_files).get(name)
    ]
    faulty = {each.file for each in found}
    unread = SECRET if not (folder / SALT).exists() else ()
    compared = [name for name in named if (folder / name).exists() and name not in faulty and name not in unread]
    if not named and (folder / CERTIFICATE).exists() and CERTIFICATE not in faulty:
        compared = [CERTIFICATE]
    return Agreement(record, tuple(compared), tuple(notes), tuple(found))


def absent_with_reason(folder: Path, name: str) -> str | None:
    """Why a file of a run may be absent: a note; None if it must be there."""
    if name == MODEL and folder.resolve().parent.name == POINTS:
        return f"{MODEL} is not here: a sweep keeps the models of its best points only"
    if name in SECRET and not any((folder / each).exists() for each in (*SECRET, SALT)):
        return f"{', '.join(SECRET)} were not handed on, and were not compared"
    return None


# --- Digests ---------------------------------------------------------------------------------------------------------


def _differing_files(folder: Path, record: LedgerRecord, notes: list[str]) -> Iterator[Disagreement]:
    """Files that are not those which the ledger names; reasons for absent ones go to the notes."""
    first, last = record.first_files, record.finish.files if record.finish else {}
    if not first and not last:
        notes.append(f"{LEDGER} names no files: it has nothing to compare them with")
        return
    try:
        there = digests_of(folder)
    except InvalidInput as error:
        yield Disagreement(SALT, "damaged", str(error))
        return
    without_salt = []
    for name in (*OPEN, *SECRET):
        named = {digests[name] for digests in (first, last) if name in digests}
        if not (folder / name).exists():
            if named - {None}:
                reason = absent_with_reason(folder, name)
                if reason is None:
                    yield Disagreement(name, "missing", f"is missing, though {LEDGER} names it; {_RESTORE}")
                elif reason not in notes:
                    notes.append(reason)
        elif name in SECRET and named - {None} and not (folder / SALT).exists():
            without_salt.append(name)
        elif named and named != {there[name]}:
            crashed = name == ENVIRONMENT and not _says_finished(folder)  # after the ledger's end was written
            remedy = "resume the run, which completes it" if crashed else _RESTORE
            yield Disagreement(name, "changed", f"is not the file that {LEDGER} names; {remedy}")
    if without_salt:
        names = ", ".join(without_salt)
        yield Disagreement(SALT, "missing", f"is missing, so that {names} cannot be compared; {_RESTORE}")


# --- Figures and rounds ----------------------------------------------------------------------------------------------


def _differing_figures(folder: Path, record: LedgerRecord, certified_by_ledger: bool) -> Iterator[Disagreement]:
    """Figures of the certificate that the ledger does not give again."""
    try:
        stated = Certificate.from_json(json.loads((folder / CERTIFICATE).read_bytes()))
    except (ValueError, RecursionError) as error:  # also InvalidInput
        yield Disagreement(CERTIFICATE, "damaged", f"cannot be read ({error}); {_RESTORE}")
        return
    # Where the ledger names this very certificate, it is the releases that do not fit; torn lines are no fault of them.
    suspect = LEDGER if certified_by_ledger and not record.recovered else CERTIFICATE
    for code, message in differences(stated, record):
        yield Disagreement(suspect, code, message)


def _differing_progress(folder: Path, record: LedgerRecord) -> Iterator[Disagreement]:
    """Files that belong to rounds which the ledger does not hold."""
    planned, entered = record.description.get("rounds"), record.rounds()
    if record.finish is not None:
        if planned is not None and entered < planned:
            message = f"is finished, but holds {entered} of {planned} planned rounds; {_RESTORE}"
            yield Disagreement(LEDGER, "rounds-missing", message)
        return
    if not record.first_files:  # an earlier version ended no ledger
        return
    if _says_finished(folder):
        message = f"is not finished, though {ENVIRONMENT} says that the run is; {_RESTORE}"
        yield Disagreement(LEDGER, "rounds-missing", message)
    if (folder / MODEL).exists() and not is_whole(record):
        message = f"is the model of all {planned} rounds, but {LEDGER} holds {entered}; restore both from a backup"
        yield Disagreement(MODEL, "rounds-missing", message)
    elif (folder / MODEL).exists():
        yield Disagreement(MODEL, "unnamed", f"is here, though {LEDGER} names no model yet; resume the run")
    try:
        measured = max((int(row["round"]) for row in read_rows(folder / METRICS)), default=0)
    except (InvalidInput, KeyError, TypeError, ValueError):
        yield Disagreement(METRICS, "damaged", "cannot be read; resume the run, which writes it anew")
        return
    if measured > entered:
        message = f"holds round {measured}, but {LEDGER} holds {entered} rounds; restore both from a backup"
        yield Disagreement(METRICS, "rounds-missing", message)


def _says_finished(folder: Path) -> bool:
    try:
        return "seconds" in json.loads((folder / ENVIRONMENT).read_bytes())
    except (OSError, ValueError, TypeError):
        return False
