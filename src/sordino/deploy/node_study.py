"""What a node keeps of one study, so that it survives kills, restarts and full disks.

    studies/<digest>/description.json, study.toml    the study
                     ledger.jsonl, .head             every round that it answered, before the answer left
                     answers/0000007.npz             the last answer and the one before: request, message, next state
                     certificate.server.dsse.json    what the server stated at the end
                     certificate.dsse.json           what this node stated

An answer is stored whole, then entered in the ledger, and only then sent. After a crash in between it is not in the
ledger: nothing has left, and it is forgotten. After one behind the entry it is there, and is sent again as it is.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sordino.deploy.study import Study
from sordino.errors import LedgerError, SordinoError
from sordino.files import sync_folder, write_atomically
from sordino.privacy.ledger import Ledger, read_ledger
from sordino.privacy.ledger_record import LedgerRecord, Release, joint_release
from sordino.types import Observer, Trust

LEDGER, ANSWERS = "ledger.jsonl", "answers"
OWN_STATEMENT, SERVER_STATEMENT = "certificate.dsse.json", "certificate.server.dsse.json"
HASH_BYTES = 32


@dataclass(frozen=True)
class Answer:
    """A round that was answered, or will be once the ledger has it."""

    round: int
    request: bytes  # digest of the request's body
    update: bytes  # the body of the message, with zeros where the hash of the ledger entry goes
    state: list[NDArray[Any]]  # the member's own, after the round

    def body(self, entry: str) -> bytes:
        """The body with the hash of its ledger entry."""
        return bytes.fromhex(entry) + self.update[HASH_BYTES:]

    def write(self, path: Path) -> None:
        """Store it durably."""
        arrays: dict[str, Any] = {f"leaf{i}": leaf for i, leaf in enumerate(self.state)}
        arrays |= {"request": np.frombuffer(self.request, np.uint8), "update": np.frombuffer(self.update, np.uint8)}
        buffer = io.BytesIO()
        np.savez(buffer, round=self.round, leaves=len(self.state), **arrays)
        write_atomically(path, buffer.getvalue(), private=True)
        sync_folder(path.parent)

    @classmethod
    def read(cls, path: Path) -> Self:
        """The stored answer."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
                state = [kept[f"leaf{i}"] for i in range(int(kept["leaves"]))]
                return cls(int(kept["round"]), kept["request"].tobytes(), kept["update"].tobytes(), state)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            raise SordinoError(f"{path}: is damaged; restore it from a backup") from None


def releases(study: Study, i: int) -> tuple[Release, ...]:
    """What one answered round of member i shows, to whom, and what it costs."""
    plan = study.plan
    if plan.resolved.trust is Trust.CENTRAL:  # no peer sees another one's update
        return (("update", (Observer.SERVER,), plan.costs[i]), ("model", (Observer.MODEL_USER,), plan.model_costs[i]))
    return (("message", (Observer.SERVER, Observer.PEER, Observer.MODEL_USER), plan.costs[i]),)


class NodeStudy:
    """One study on a node. `open` makes or continues it; this process alone writes to it until `close`."""

    def __init__(self, study: Study, i: int, folder: Path, ledger: Ledger, entries: dict[int, str]) -> None:
        self.study, self.i, self.folder = study, i, folder
        self._ledger = ledger
        self.entries = entries  # round -> hash of its ledger entry
        self._releases = releases(study, i)
        self.last = self._last_answer()

    @classmethod
    def open(cls, study: Study, i: int, folder: Path) -> Self:
        """The study's folder with its ledger."""
        (folder / ANSWERS).mkdir(parents=True, exist_ok=True)
        path = folder / LEDGER
        if path.exists():
            ledger = Ledger.open(path)
        else:
            ledger = Ledger.create(
                path,
                unit=study.plan.unit,
                relation=study.plan.relation,
                worst_release=joint_release(releases(study, i)),
                description=_description(study, i),
            )
        try:
            record = read_ledger(path)
            if record.description.get("digest") != study.description.digest.hex():
                raise LedgerError(f"{path}: is the ledger of another study; restore it from a backup")
            return cls(study, i, folder, ledger, entries_of(record))
        except BaseException:
            ledger.close()
            raise

    @property
    def record(self) -> LedgerRecord:
        """The ledger, checked line by line."""
        return read_ledger(self.folder / LEDGER)

    @property
    def finished(self) -> bool:
        """Whether the study has ended here."""
        return self._ledger.finish_entry is not None

    def answer(self, answer: Answer) -> bytes:
        """Store an answer, enter it in the ledger -> the body that may leave."""
        path = self._path(answer.round)
        answer.write(path)
        self._ledger.append_all(range(answer.round, answer.round + 1), self._releases)
        self.entries[answer.round] = self._ledger.last_hash
        before, self.last = self.last, answer
        for kept in (self.folder / ANSWERS).glob("*.npz"):
            if kept not in (path, None if before is None else self._path(before.round)):
                kept.unlink(missing_ok=True)
        return answer.body(self._ledger.last_hash)

    def again(self) -> bytes:
        """The body of the last answer."""
        assert self.last is not None
        return self.last.body(self.entries[self.last.round])

    def finish(self, files: dict[str, str | None]) -> None:
        """No round follows."""
        if not self.finished:
            self._ledger.finish(files)

    def close(self) -> None:
        """Let go of the ledger."""
        self._ledger.close()

    def _path(self, round: int) -> Path:
        return self.folder / ANSWERS / f"{round:07d}.npz"

    def _last_answer(self) -> Answer | None:
        """The answer of the last round in the ledger. Others after it never left."""
        for path in (self.folder / ANSWERS).glob("*.npz"):
            if path.stem.isdigit() and int(path.stem) not in self.entries:
                path.unlink()
        if not self.entries:
            return None
        last = max(self.entries)
        if not self._path(last).exists():
            raise SordinoError(f"{self._path(last)}: is missing, though the ledger has round {last}; restore it")
        found = Answer.read(self._path(last))
        if found.round != last:
            raise SordinoError(f"{self._path(last)}: holds round {found.round}; restore it from a backup")
        return found


def entries_of(record: LedgerRecord) -> dict[int, str]:
    """Round -> hash of its ledger entry."""
    return {each.rounds.start: each.hash for each in record.entries if each.rounds is not None}


def _description(study: Study, i: int) -> dict[str, Any]:
    """What `sordino certify` needs to account the ledger by itself."""
    certificate = study.plan.certificate(i, study.rounds)
    return {
        "study": study.description.name,
        "digest": study.description.digest.hex(),
        "node": study.description.members[i].name,
        "rounds": study.rounds,
        "delta": certificate.totals[0].delta,
        "units": certificate.totals[0].units,
        "assumptions": {str(total.observer): list(total.assumptions) for total in certificate.totals},
        "warnings": [[warning.code, warning.message] for warning in certificate.warnings],
        "draws": certificate.draws,
        "assumed_by_all": list(certificate.assumptions),
    }
