"""The privacy ledger: what a run releases, written down durably before it is released.

Each line is one entry in canonical JSON that holds the hash of the entry before it. An entry covers a segment of rounds
with the same releases. The side file `<ledger>.head` holds the number of complete entries and the hash of the last one,
so that a lost tail is found too.

    append:  line -> fsync -> head -> only now may the segment be released

A crash can therefore leave an entry that the head does not count yet, or a torn one. A whole entry counts as itself,
even without its newline. A torn entry has released nothing, but it is counted all the same: as `longest` rounds of
`worst_release`, the costliest release planned for each observer. The next writer replaces it by a "recovered" entry.
Any other difference is damage and is refused.
A "finished" entry with the digests of the run's files ends the ledger: no release follows it.
The chain has no secret: it finds accidents and careless edits, but not somebody who rewrites both files; a signature
(`signing`) does.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Any, Self

from sordino.errors import InvalidInput, LedgerError, LedgerInUse, Refused, SordinoError, require, require_count
from sordino.files import held, sync_folder, write_atomically
from sordino.privacy.events import event_from_json, event_to_json
from sordino.privacy.ledger_record import (
    Finish,
    Json,
    LedgerRecord,
    Names,
    Release,
    SampledRounds,
    observers_of,
    rounds_of,
)
from sordino.privacy.stated import require_stated
from sordino.types import Event, Observer, Relation, Unit

_NO_HASH = "0" * 64
_RESTORE = "restore it and its .head file from a backup; until then treat the budget as spent"


def read_ledger(path: str | os.PathLike[str]) -> LedgerRecord:
    """Check the whole ledger and return what it says. Takes no lock and writes nothing."""
    path = _locate(path)
    entries, _ = _load(path)
    return _record(path, entries)


class Ledger:
    """The only writer of a ledger, from `create` or `open` until `close` or the end of the process."""

    def __init__(self, path: Path, entries: list[Json], resources: ExitStack) -> None:
        record = _record(path, entries)
        self.path, self._longest, self._observers = path, record.longest, record.worst_release.keys()
        self._unit, self._relation = record.unit, record.relation
        self.finish_entry = record.finish  # None until `finish`
        self._shown = SampledRounds()
        for entry in record.entries:
            if entry.rounds is not None:
                self._shown.add(entry.rounds, entry.release, entry.observers, entry.event)
        self._count, self._last_hash = len(entries), str(entries[-1]["hash"])
        self._file: FileIO = resources.enter_context(path.open("ab", buffering=0))
        self._size = os.fstat(self._file.fileno()).st_size
        os.fsync(self._file.fileno())  # entries that the head does not count may be in memory only
        _write_head(path, self._count, self._last_hash)
        self._process = os.getpid()
        self._turn = threading.RLock()  # a signal handler may close the ledger during an append
        self._refusal = ""  # why nothing can be appended any more
        self._resources = resources.pop_all()

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        unit: Unit | str,
        relation: Relation | str,
        worst_release: Event | Mapping[Observer, Event],
        longest: int = 1,
        description: Mapping[str, Any] | None = None,
        prepare: Callable[[], None] | None = None,
    ) -> Self:
        """Start a ledger.

        Args:
          path: of the new file.
          unit: what is protected.
          relation: which data sets are neighbours.
          worst_release: the costliest release planned for one round, for all observers or for each.
          longest: the most rounds of one entry; a torn line counts as so many rounds of `worst_release`.
          description: plain values for readers.
          prepare: called under the lock, once no other ledger can be here, and before this one appears.
        """
        require_count(longest, "longest")
        worst = worst_release if isinstance(worst_release, Mapping) else dict.fromkeys(Observer, worst_release)
        header = {
            "unit": Unit.parse(unit),
            "relation": Relation.parse(relation),
            "description": dict(description or {}),
            "worst_release": {str(Observer.parse(eye)): _plain_event(event) for eye, event in worst.items()},
            "longest": longest,
        }
        first = _seal(0, _NO_HASH, "open", header)  # refuses what JSON cannot hold, before there is a file
        path = _locate(path)
        _record(path, [first])
        with _os_errors(path, "choose a file in a directory that can be written"), ExitStack() as resources:
            resources.enter_context(_sole_writer(path))
            if path.exists():
                raise LedgerError(f"{path}: exists already; open it to continue, or choose another path")
            if _beside(path, ".head").exists() and _read_head(path)[0] > 0:
                raise LedgerError(f"{path}: removed, though its .head file counts releases; {_RESTORE}")
            if prepare is not None:
                prepare()
            _write_head(path, 0, _NO_HASH)
            sync_folder(path.parent)
            # The file appears with its header whole: after a crash it can be opened, or it can be created.
            write_atomically(path, _canonical(first) + b"\n")
            sync_folder(path.parent)
            return cls(path, [first], resources)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Continue a ledger, after durably repairing what a crash has left half-written."""
        path = _locate(path)
        with _os_errors(path, "make the ledger writable"), ExitStack() as resources:
            _require_there(path)
            resources.enter_context(_sole_writer(path))
            entries, data = _load(path)
            whole = b"".join(_canonical(entry) + b"\n" for entry in entries)
            if whole != data:
                write_atomically(path, whole)
                sync_folder(path.parent)
            return cls(path, entries, resources)

    @property
    def last_hash(self) -> str:
        """Of the last entry."""
        return self._last_hash

    def append(
        self, *, release: str, observers: Names, event: Event, round: int | None = None, rounds: range | None = None
    ) -> None:
        """Record one release of one round, or of each of several rounds: see `append_all`."""
        self.append_all(rounds_of(round, rounds), [(release, observers_of(observers), event)])

    def append_all(self, rounds: range, releases: Iterable[Release]) -> None:
        """Record the releases of each of these rounds as one entry. They may leave once this has returned.

        Releases of one round that come from samples come from the same sample; another sample needs another round. An
        event that is stated for another unit or relation than the ledger's is refused.
        """
        releases = list(releases)
        remedy = f"a torn line of this ledger is counted as {self._longest} rounds: append at most so many at a time"
        require(len(rounds) <= self._longest, "rounds", rounds, remedy)
        require(bool(releases), "releases", releases, "give at least one release")
        strange = [str(each) for _, observers, _ in releases for each in observers if each not in self._observers]
        require(not strange, "observers", strange, "the ledger has no worst_release for them: name it in `create`")
        plain = [
            {"release": name, "observers": list(observers), "event": _plain_event(event)}
            for name, observers, event in releases
        ]
        for _, _, event in releases:
            require_stated(event, self._unit, self._relation)
        with self._turn:
            for name, observers, event in releases:
                self._shown.require_new(rounds, name, observers, event)
            self._write("release", {"rounds": [rounds.start, rounds.stop], "releases": plain})
            for name, observers, event in releases:
                self._shown.add(rounds, name, observers, event)

    def finish(self, files: Mapping[str, str | None], description: Mapping[str, Any] | None = None) -> None:
        """End the ledger by an entry with the digests of the files that belong to it; no release may follow.

        The file is replaced as a whole: a crash cannot tear this line, and so cannot make it count as a release.
        """
        with self._turn:
            self._write("finished", {"files": dict(files), "description": dict(description or {})}, whole=True)

    def close(self) -> None:
        with self._turn:
            self._refusal = self._refusal or "it is closed; open it again"
            self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, kind: str, fields: Mapping[str, Any], *, whole: bool = False) -> None:
        """Put an entry on disk, or refuse all later ones: after a failure the file's contents are not known."""
        if self._process != os.getpid():
            raise LedgerError(f"{self.path}: opened before a fork; append in the process that opened it")
        if self._refusal:
            raise LedgerError(f"{self.path}: {self._refusal}")
        if self.finish_entry is not None:
            raise LedgerError(f"{self.path}: its run is finished, and no release may follow; start another ledger")
        entry = _seal(self._count, self._last_hash, kind, fields)
        line = _canonical(entry) + b"\n"
        remedy = "make no release, close the ledger, remove the cause and open it again"
        self._refusal = f"an append failed and may have left part of a line; {remedy}"
        with _os_errors(self.path, remedy):
            mine = os.fstat(self._file.fileno())
            if not os.path.samestat(mine, os.stat(self.path)) or mine.st_size != self._size:
                raise LedgerError(f"{self.path}: changed while this process was writing to it; {_RESTORE}")
            if whole:
                write_atomically(self.path, self.path.read_bytes() + line)
                sync_folder(self.path.parent)
            else:
                self._append_line(line)
            _write_head(self.path, self._count + 1, entry["hash"])
        self._count, self._size, self._last_hash = self._count + 1, self._size + len(line), entry["hash"]
        self._refusal = ""
        if kind == "finished":
            self.finish_entry = Finish.of(entry)

    def _append_line(self, line: bytes) -> None:
        written = 0
        while written < len(line):  # a raw file may take a part
            written += self._file.write(line[written:]) or 0
        os.fsync(self._file.fileno())


# Entries and their chain


def _canonical(entry: Json) -> bytes:
    return json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()


def _hash(entry: Json) -> str:
    return hashlib.sha256(_canonical({name: entry[name] for name in entry if name != "hash"})).hexdigest()


def _seal(seq: int, previous: str, kind: str, fields: Mapping[str, Any]) -> Json:
    """The next entry of the chain, exactly as it will be read back."""
    chain = {"seq": seq, "time": datetime.now(UTC).isoformat(), "kind": kind, "previous": previous}
    try:
        entry: Json = json.loads(_canonical({**fields, **chain}))
    except TypeError as error:
        raise LedgerError(f"{kind} entry: {error}; give plain JSON values") from error
    return {**entry, "hash": _hash(entry)}


def _plain_event(event: Event) -> Json:
    """The event as JSON, provided that a reader will get the same event back."""
    try:
        plain: Json = json.loads(json.dumps(event_to_json(event)))
        same = event_from_json(plain) == event
    except RecursionError:  # such an event cannot be printed either
        raise InvalidInput("event", event.kind, "holds too many others, one in another: flatten it") from None
    except (TypeError, SordinoError):
        same = False
    require(same, "event", event, "changes when read back from JSON; build it from plain numbers and tuples")
    return plain


def _load(path: Path) -> tuple[list[Json], bytes]:
    """Check every line against the chain and the head; return the entries, and the file as it is.

    A torn last line is replaced by the recovered entry that a writer would make of it.
    """
    with _os_errors(path, "make the ledger and its .head file readable"):
        _require_there(path)
        count, last_hash = _read_head(path)  # before the ledger, which may grow meanwhile
        data = path.read_bytes()
    entries: list[Json] = []
    lines = data.removesuffix(b"\n").split(b"\n")
    for seq, line in enumerate(lines):
        entry = _parse(line)
        if entry is None and seq >= count and seq == len(lines) - 1:
            entries.append(_recover(path, entries, line))
        elif entry is not None and _canonical(entry) == line and _continues(entries, entry):
            entries.append(entry)
        else:
            raise LedgerError(f"{path}, line {seq + 1}: changed, removed, inserted or out of order; {_RESTORE}")
    if len(entries) < count:
        lost = f"truncated: {count} lines were written, {len(entries)} are left"
        raise LedgerError(f"{path}, line {len(entries) + 1}: {lost}; {_RESTORE}")
    if count and entries[count - 1]["hash"] != last_hash:
        raise LedgerError(f"{path}, line {count}: changed: not the entry that the .head file remembers; {_RESTORE}")
    return entries, data


def _parse(line: bytes) -> Json | None:
    """The JSON object on a line, or None if the line is torn."""
    try:
        entry = json.loads(line.decode("ascii"))
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _continues(entries: list[Json], entry: Json) -> bool:
    seq = len(entries)
    previous = entries[-1]["hash"] if entries else _NO_HASH
    linked = entry.get("seq") == seq and entry.get("previous") == previous and entry.get("hash") == _hash(entry)
    return linked and (entry.get("kind") == "open") == (seq == 0)


def _recover(path: Path, entries: list[Json], torn: bytes) -> Json:
    if not entries:
        raise LedgerError(f"{path}, line 1: torn header; nothing was released: delete the file and start again")
    worst = {"events": entries[0].get("worst_release"), "torn_rounds": entries[0].get("longest")}
    return _seal(len(entries), entries[-1]["hash"], "recovered", worst | {"torn_bytes": len(torn)})


def _record(path: Path, entries: list[Json]) -> LedgerRecord:
    try:
        return LedgerRecord.of(entries)
    except Refused as error:
        raise Refused(f"{path}: {error.reason}", error.remedy) from error
    except RecursionError:
        raise LedgerError(f"{path}: an event holds too many others; restore it from a backup") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LedgerError(f"{path}: {error}; read it with the version of sordino that wrote it") from error


# Files


def _locate(path: str | os.PathLike[str]) -> Path:
    """The resolved path, so that links to a ledger share its lock and head."""
    path = Path(path).resolve()
    if path.is_dir():
        raise LedgerError(f"{path}: a directory, not a ledger; give the path of a file")
    return path


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


@contextmanager
def _os_errors(path: Path, remedy: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LedgerError(f"{path}: {error.strerror or error}; {remedy}") from error


def _sole_writer(path: Path) -> AbstractContextManager[None]:
    refusal = LedgerInUse(f"{path}: another process is writing to it; wait, or use another ledger")
    return held(_beside(path, ".lock"), refusal)


def _require_there(path: Path) -> None:
    if not path.exists() and _beside(path, ".head").exists():
        raise LedgerError(f"{path}: removed, though its .head file is still there; {_RESTORE}")
    if not path.exists():
        raise LedgerError(f"{path}: there is no such ledger; check the path, or create the ledger first")


def _read_head(path: Path) -> tuple[int, str]:
    try:
        head = json.loads(_beside(path, ".head").read_bytes())
        return operator.index(head["count"]), str(head["hash"])
    except FileNotFoundError as error:
        raise LedgerError(f"{path}: its .head file is missing; {_RESTORE}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerError(f"{path}: its .head file is damaged; {_RESTORE}") from error


def _write_head(path: Path, count: int, last_hash: str) -> None:
    write_atomically(_beside(path, ".head"), _canonical({"count": count, "hash": last_hash}) + b"\n")
