"""The signature of a finished run: a statement about its files, in signature.dsse.json.

    subject       name and digest of every file
    predicate     the certificate, the ledger's last hash, and the time of signing by the signer's clock

Secret files appear with salted digests (`runs.digests`): certificate, ledger, model and signature may be handed on
without them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from sordino.errors import SordinoError, require
from sordino.files import write_atomically
from sordino.privacy.ledger_record import LedgerRecord
from sordino.privacy.signing import SignatureError, SigningKey, VerifyingKey, sign, statement, subjects_of, verify
from sordino.runs.agreement import Agreement, Disagreement, absent_with_reason, compare_run
from sordino.runs.digests import digest_of_file, digests_of
from sordino.runs.names import CERTIFICATE, CONFIG, HEAD, LEDGER, OPEN, SALT, SECRET, SIGNATURE

Json: TypeAlias = dict[str, Any]
PREDICATE_TYPE = "https://sordino.dev/certificate/v1"


@dataclass(frozen=True)
class Verified:
    """Who signed a run, and when by their clock; or what is wrong."""

    key_id: str
    signed_at: str | None  # None if the signature does not hold
    notes: tuple[str, ...]
    disagreements: tuple[Disagreement, ...]


def sign_run(folder: Path, key: SigningKey, agreement: Agreement | None = None) -> Path:
    """Sign a finished run whose files all agree; return the path of the signature."""
    agreement = agreement or compare_run(folder)
    faults = "; ".join(map(str, agreement.disagreements))
    require(not faults, "sign", str(folder), f"its files do not agree, and are not signed: {faults}")
    record = agreement.record
    assert record is not None
    again = f"sordino run {folder / CONFIG} --name {folder.name} --resume"
    require(record.finish is not None, "sign", str(folder), f"the run is not finished: go on with `{again}`")
    predicate = _predicate(folder, record) | {"signedAt": datetime.now(UTC).isoformat(timespec="seconds")}
    envelope = sign(statement(_subjects(folder), PREDICATE_TYPE, predicate), key)
    write_atomically(folder / SIGNATURE, json.dumps(envelope, indent=2).encode())
    return folder / SIGNATURE


def verify_run(folder: Path, key: VerifyingKey, agreement: Agreement) -> Verified:
    """Check the signature of a run, whose files were compared already, and that it is about these files."""
    path = folder / SIGNATURE
    if not path.exists():
        return _refused(key, "unsigned", "is missing: the run is not signed; ask for it, or sign with --sign")
    try:
        envelope = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return _refused(key, "envelope-changed", "is no JSON object; restore it, or sign again")
    try:
        stated = verify(envelope, key, PREDICATE_TYPE)
        signed = subjects_of(stated)
    except SignatureError as error:
        return _refused(key, error.code, error.message)
    notes: list[str] = []
    faulty = {each.file for each in agreement.disagreements}
    try:
        found = [each for each in _unsigned_files(folder, signed, notes) if each.file not in faulty]
        said = None if agreement.record is None else _predicate(folder, agreement.record)
    except (SordinoError, ValueError, OSError):  # a file that cannot be read
        found, said = [], None
    predicate = stated.get("predicate")
    predicate = predicate if isinstance(predicate, dict) else {}
    same = said is not None and said == {name: predicate.get(name) for name in said}
    if not same and not found and not faulty:
        found = [Disagreement(SIGNATURE, "other-statement", "states another certificate or ledger; sign again")]
    signed_at = None if found or faulty else str(predicate.get("signedAt"))
    return Verified(key.id, signed_at, tuple(notes), tuple(found))


def _unsigned_files(folder: Path, signed: dict[str, dict[str, str]], notes: list[str]) -> Iterator[Disagreement]:
    """Files that are not those which were signed; reasons for absent ones go to the notes."""
    there, without_salt = _subjects(folder), not (folder / SALT).exists()
    for name in dict.fromkeys((*there, *signed)):
        if name not in there:
            if name in SECRET and without_salt and (folder / name).exists():
                continue  # the missing salt has been reported; the ledger names the file
            reason = absent_with_reason(folder, name)
            if reason is None:
                yield Disagreement(name, "missing", "is missing, though it was signed; restore it from a backup")
            elif reason not in notes:
                notes.append(reason)
        elif name not in signed:
            yield Disagreement(name, "not-signed", "is not among the files that were signed; sign again, or remove it")
        elif signed[name] != there[name]:
            yield Disagreement(name, "changed", "has changed since it was signed; restore it from a backup")


def _refused(key: VerifyingKey, code: str, message: str) -> Verified:
    return Verified(key.id, None, (), (Disagreement(SIGNATURE, code, message),))


def _subjects(folder: Path) -> dict[str, dict[str, str]]:
    """The digests of the files that are there, as in-toto writes them."""
    digests = {name: digest_of_file(folder / name) for name in (LEDGER, HEAD)} | digests_of(folder)
    ordered = [(name, digests[name]) for name in (*OPEN, LEDGER, HEAD, *SECRET)]
    split = [(name, digest.partition(":")) for name, digest in ordered if digest is not None]
    return {name: {algorithm: value} for name, (algorithm, _, value) in split}


def _predicate(folder: Path, record: LedgerRecord) -> Json:
    return {"certificate": json.loads((folder / CERTIFICATE).read_bytes()), "ledgerHash": record.last_hash}
