"""How an older copy of a node's state folder is noticed: what others remember of it is compared with what is there.

    the server   tells with every request which ledger entry it saw last from each member, and with a START the same of
                 all its earlier studies. An entry that is not in the node's ledger was lost with a newer state.
    the node     counts the rounds that it has answered in a file beside node.toml. A state with fewer is older.

The first finds that a whole machine was set back, if the server is honest and used one of the lost messages. The second
needs nobody, and finds that the state folder alone was. A machine that is set back as a whole, and whose server keeps
silent, cannot notice.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sordino.deploy.server_study import last_entries
from sordino.deploy.study import DESCRIPTION, Description
from sordino.errors import InvalidInput, SordinoError, require
from sordino.files import write_atomically

log = logging.getLogger(__name__)
HASH = 32  # bytes
PAIR = 2 * HASH  # a study, and an entry of its ledger
MOST_EARLIER = 10_000  # studies of which a START speaks
REMEDY = (
    "restore the newest copy of the state folder; if there is none, let the server list this node under a new name and "
    "key, with a budget that is smaller by what may have been spent"
)


# --- What the server remembers ---------------------------------------------------------------------------------------


def as_words(hashes: Sequence[str]) -> NDArray[np.uint32]:
    """[members, 8] of a request: the last entry of each member, zeros where there is none."""
    return np.frombuffer(b"".join(bytes.fromhex(each) or bytes(HASH) for each in hashes), "<u4").reshape(-1, 8)


def entry_at(words: NDArray[np.uint32], i: int) -> str | None:
    """What a request says of member i."""
    data = words[i].astype("<u4").tobytes()
    return None if data == bytes(HASH) else data.hex()


def earlier_entries(folders: Iterable[Path]) -> dict[str, dict[bytes, str]]:
    """Key of a member -> study -> its last entry, of the newest studies in a server's folders."""
    found: dict[str, dict[bytes, str]] = {}
    for folder in [*folders][-MOST_EARLIER:]:
        try:
            description = Description.of((folder / DESCRIPTION).read_bytes())
        except (OSError, SordinoError) as error:
            log.warning("%s cannot be read, so nodes are not reminded of it: %s", folder, error)
            continue
        entries = last_entries(folder)
        for member in description.members:
            if member.name in entries:
                found.setdefault(member.key, {})[description.digest] = entries[member.name]
    return found


def pack_start(description: bytes, earlier: Mapping[bytes, str]) -> bytes:
    """The body of a START: the length of the description, the description, and pairs of a study and an entry."""
    pairs = b"".join(study + bytes.fromhex(entry) for study, entry in earlier.items())
    return len(description).to_bytes(4, "little") + description + pairs


def unpack_start(body: bytes) -> tuple[bytes, dict[bytes, str]]:
    """The description and the pairs in a START; raises ValueError where the lengths do not fit."""
    end = 4 + int.from_bytes(body[:4], "little")
    if len(body) < end or (len(body) - end) % PAIR or len(body) - end > MOST_EARLIER * PAIR:
        raise ValueError("lengths that do not fit")
    pairs = (body[at : at + PAIR] for at in range(end, len(body), PAIR))
    return body[4:end], {pair[:HASH]: pair[HASH:].hex() for pair in pairs}


# --- What the node counts --------------------------------------------------------------------------------------------


def count_file(folder: Path, name: str) -> Path:
    """Where a node keeps the number of rounds that it has answered; it lies outside of the state folder."""
    return folder / f"{name}.count"


def rounds_counted(path: Path) -> int:
    """The number in that file; 0 where there is none."""
    try:
        return int(json.loads(path.read_bytes())) if path.exists() else 0
    except (ValueError, TypeError, RecursionError):
        raise InvalidInput("state", str(path), "is not a number: restore it from a backup") from None


def require_newest(state: Path, answered: int, counted: int) -> None:
    """Refuse a state folder whose ledgers hold fewer rounds than were counted."""
    older = f"holds {answered} answered rounds, and {counted} were counted outside of it: it is an older copy; "
    require(answered >= counted, "state", str(state), older + REMEDY)


class AnsweredCount:
    """The number of rounds that a node has answered, kept up to date."""

    def __init__(self, path: Path, state: Path, answered: int) -> None:
        require_newest(state, answered, rounds_counted(path))
        self._path, self._count = path, answered
        try:
            self._write()
        except OSError as error:
            raise InvalidInput("state", str(path), f"cannot be written ({error.strerror}): make it writable") from None

    def add(self) -> None:
        """One more round, before its message leaves."""
        self._count += 1
        self._write()

    def _write(self) -> None:
        write_atomically(self._path, json.dumps(self._count).encode())
