"""Digests of the files of a run, as the ledger and a signature hold them.

The ledger may be handed on. A plain digest of a file that is kept secret would let its readers check a guess: of the
seed in config.toml, or of the records behind metrics.jsonl. So those digests are keyed with a random salt, which stays
with the secret files.

    files that may be handed on    sha256:<hex>
    secret files                   hmac-sha256:<hex>, key = digests.salt
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from pathlib import Path

from sordino.errors import InvalidInput, require
from sordino.files import write_atomically
from sordino.privacy.ledger_record import LedgerRecord
from sordino.runs.names import OPEN, SALT, SECRET


def plain_digest(data: bytes) -> str:
    """The digest of a file that may be handed on."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def salted_digest(data: bytes, salt: bytes) -> str:
    """The digest of a secret file."""
    return f"hmac-sha256:{hmac.new(salt, data, hashlib.sha256).hexdigest()}"


def digest_of_file(path: Path, salt: bytes | None = None) -> str | None:
    """The digest of a file, salted if a salt is given; None if there is no such file."""
    if not path.exists():
        return None
    if salt is not None:
        return salted_digest(path.read_bytes(), salt)
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def new_salt() -> bytes:
    """A salt that nobody can guess."""
    return secrets.token_bytes(32)


def write_salt(folder: Path, salt: bytes) -> None:
    """Keep a salt beside the files that it is for."""
    write_atomically(folder / SALT, salt.hex().encode(), private=True)


def read_salt(folder: Path) -> bytes | None:
    """The salt of a folder; None if there is none."""
    path = folder / SALT
    try:
        return bytes.fromhex(path.read_text("ascii")) if path.exists() else None
    except ValueError:
        raise InvalidInput("run", str(path), "is damaged: restore it") from None


def digests_of(
    folder: Path, instead: Mapping[str, bytes] | None = None, *, make_salt: bool = False
) -> dict[str, str | None]:
    """The digests of the files of a run; None for a file that is not there, and for secret ones without a salt.

    Args:
      folder: of the run.
      instead: contents that secret files are about to have.
      make_salt: whether to make a salt where there is none, as for a run that an earlier version has begun.
    """
    salt = read_salt(folder)
    if salt is None and make_salt:
        salt = new_salt()
        write_salt(folder, salt)
    digests = {name: digest_of_file(folder / name) for name in OPEN}
    digests |= {name: None if salt is None else digest_of_file(folder / name, salt) for name in SECRET}
    coming = {} if salt is None else {name: salted_digest(data, salt) for name, data in (instead or {}).items()}
    return digests | coming


def require_first_files(folder: Path, record: LedgerRecord) -> None:
    """Refuse to go on where a file that the run began with is not the same any more."""
    first = record.first_files
    salted = any(first.get(name) is not None for name in SECRET)
    require(not salted or (folder / SALT).exists(), "resume", str(folder), f"{SALT} is missing: restore it")
    there = digests_of(folder) if first else {}
    for name, digest in first.items():
        require(there.get(name) == digest, "resume", str(folder), f"{name} has changed since the run began: restore it")
