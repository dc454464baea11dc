"""What a server keeps of one study, so that it goes on after a kill where it stopped.

    studies/<name>/description.json, study.toml    the study
                   journal.jsonl                   a line a round: whose messages were used, and why others were not
                   checkpoint.npz                  the round that is done, and the server's state after it
                   asked.json                      the round in progress, and who was asked in it
                   status.json                     for people who look on
                   model.safetensors               the model, at the end
                   certificate.dsse.json           what the server states of all members, signed
                   members/<node>.dsse.json        what each member states, signed

A round's line is on disk before its checkpoint, and the checkpoint before the next request. A line without a checkpoint
is dropped: the round is asked for again, and nodes answer with the messages that they stored.
"""

from __future__ import annotations

import io
import json
import os
import time
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from sordino.deploy.statements import Used
from sordino.deploy.status import MemberStatus, StudyStatus, write_status
from sordino.deploy.study import DESCRIPTION, Description, Study
from sordino.errors import InvalidInput, SordinoError, require
from sordino.files import HeldOpen, held, sync_folder, write_atomically
from sordino.runs.names import CHECKPOINT as CHECKPOINT
from sordino.runs.names import JOURNAL as JOURNAL
from sordino.runs.names import MODEL as MODEL
from sordino.runs.names import STATEMENT as STATEMENT

STOP = "stop"
ASKED = "asked.json"
STUDIES = "studies"
MEMBERS = "members"


@dataclass(frozen=True)
class RoundLine:
    """One round in the journal."""

    round: int
    used: dict[str, str]  # member -> hash of the ledger entry behind its message
    missing: dict[str, str]  # member -> why its message was not used
    unused: list[str]  # members whose message may have left without being used
    seconds: float
    measured: dict[str, float] = field(default_factory=dict)  # on the server's own test records

    def to_bytes(self) -> bytes:
        """One line."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode() + b"\n"


class Told(NamedTuple):
    """What the process that drives a study tells of it."""

    state: str  # running, finished, stopped, interrupted
    latest: Mapping[str, str]  # member -> "used", or why its last message was not
    why: str = ""  # the study does not go on


class ServerStudy(HeldOpen):
    """One study on the server, which this process alone drives until `close`."""

    def __init__(self, study: Study, folder: Path, resources: ExitStack) -> None:
        self.study, self.folder = study, folder
        self.done, self.leaves = self._read_checkpoint()
        self.lines = self._read_journal()
        self._resources = resources.pop_all()

    @classmethod
    def create(cls, description: Description, folder: Path) -> Self:
        """A new study."""
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as resources:
            resources.enter_context(_alone(folder))
            remedy = "there is a study of this name: choose another with --name, or go on with `deploy resume`"
            require(not (folder / DESCRIPTION).exists(), "name", folder.name, remedy)
            (folder / MEMBERS).mkdir(exist_ok=True)
            try:
                study = Study.resolve(description, folder)
            except SordinoError:
                (folder / DESCRIPTION).unlink(missing_ok=True)  # the name is free for a better run file
                raise
            return cls(study, folder, resources)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Take up a study again."""
        require(
            (folder / DESCRIPTION).exists(), "study", folder.name, "there is none of this name: see `deploy status`"
        )
        with ExitStack() as resources:
            resources.enter_context(_alone(folder))
            return cls(Study.read(folder), folder, resources)

    def enter(self, line: RoundLine, leaves: list[NDArray[Any]]) -> None:
        """A round is done: its line, then the state after it."""
        with (self.folder / JOURNAL).open("ab") as file:
            file.write(line.to_bytes())
            file.flush()
            os.fsync(file.fileno())
        arrays: dict[str, Any] = {f"leaf{i}": leaf for i, leaf in enumerate(leaves)}
        buffer = io.BytesIO()
        np.savez(buffer, round=line.round, leaves=len(leaves), **arrays)
        write_atomically(self.folder / CHECKPOINT, buffer.getvalue(), private=True)
        sync_folder(self.folder)
        self.done, self.leaves = line.round, leaves
        self.lines.append(line)

    def ask(self, round: int, names: Iterable[str]) -> None:
        """Note who is asked, before they are: if this process is killed, their messages may have left all the same."""
        everybody = sorted(self.asked(round) | {*names})
        write_atomically(self.folder / ASKED, json.dumps({"round": round, "members": everybody}).encode())

    def asked(self, round: int) -> set[str]:
        """Who was asked in this round, by this process or by one that was killed."""
        path = self.folder / ASKED
        if not path.exists():
            return set()
        try:
            noted = json.loads(path.read_bytes())
            return {name for name in noted["members"] if noted["round"] == round and name in self.study.members}
        except (ValueError, KeyError, TypeError, RecursionError):
            raise SordinoError(f"{path}: is damaged; restore it from a backup, or delete it") from None

    def used(self) -> dict[str, Used]:
        """What was used of each member so far."""
        rounds: dict[str, list[int]] = {name: [] for name in self.study.members}
        unused: dict[str, list[int]] = {name: [] for name in self.study.members}
        entries = dict.fromkeys(self.study.members, "")
        for line in self.lines:
            for name, entry in line.used.items():
                rounds[name].append(line.round)
                entries[name] = entry
            for name in line.unused:
                unused[name].append(line.round)
        return {name: Used(tuple(rounds[name]), entries[name], tuple(unused[name])) for name in self.study.members}

    @property
    def stop_wanted(self) -> bool:
        """Whether somebody asked to stop after the present round."""
        return (self.folder / STOP).exists()

    def tell(self, told: Told) -> None:
        """Write where the study stands, and what is known of each member."""
        counts = {name: len(each.rounds) for name, each in self.used().items()}
        status = StudyStatus(
            name=self.study.description.name,
            state=told.state,
            round=self.done,
            rounds=self.study.rounds,
            members={name: MemberStatus(counts[name], told.latest.get(name, "")) for name in self.study.members},
            measured=self.lines[-1].measured if self.lines else {},
            updated=time.time(),
            why=told.why,
        )
        write_status(self.folder, status)

    def _read_checkpoint(self) -> tuple[int, list[NDArray[Any]]]:
        path = self.folder / CHECKPOINT
        if not path.exists():
            return 0, []
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
                return int(kept["round"]), [kept[f"leaf{i}"] for i in range(int(kept["leaves"]))]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            raise SordinoError(f"{path}: is damaged; restore it from a backup") from None

    def _read_journal(self) -> list[RoundLine]:
        """The lines of all rounds that are done; later ones are dropped."""
        path = self.folder / JOURNAL
        lines = []
        for text in path.read_bytes().splitlines() if path.exists() else []:
            try:
                line = RoundLine(**json.loads(text))
            except (ValueError, TypeError, RecursionError):
                break  # torn by a crash: the line of a round without a checkpoint
            lines.append(line)
        kept = [line for line in lines if line.round <= self.done]
        if [line.round for line in kept] != list(range(1, self.done + 1)):
            raise SordinoError(f"{path}: lacks rounds before {self.done}; restore it from a backup")
        if len(lines) > self.done + 1:
            checkpoint = self.folder / CHECKPOINT
            raise SordinoError(f"{checkpoint}: is older than {path}, or gone; restore it from a backup")
        if path.exists():
            write_atomically(path, b"".join(line.to_bytes() for line in kept))
        return kept


def studies_in(state: Path) -> list[Path]:
    """The folders of all studies of a server, the newest last."""
    found = [path.parent for path in (state / STUDIES).glob(f"*/{DESCRIPTION}")]
    return sorted(found, key=lambda folder: ((folder / DESCRIPTION).stat().st_mtime, folder.name))


def last_entries(folder: Path) -> dict[str, str]:
    """Member -> the hash of the ledger entry behind its last message that a study used; reads and changes nothing."""
    path, found = folder / JOURNAL, dict[str, str]()
    for text in path.read_bytes().splitlines() if path.exists() else []:
        try:
            found |= RoundLine(**json.loads(text)).used
        except (ValueError, TypeError, RecursionError):
            break  # torn by a crash
    return found


def _alone(folder: Path) -> Any:
    in_use = InvalidInput("study", folder.name, "another process drives it: wait, or stop it with `deploy stop`")
    return held(folder / ".lock", in_use)
