"""The privacy ledger: what a run has released, written down before it is released.

Every line is one entry in canonical JSON and holds the hash of the entry before it. The side file
`<ledger>.head` remembers how many entries are complete and the hash of the last, so a lost tail is found too.

    append:  line -> fsync -> head -> only now may the release leave

A crash can therefore leave an entry that the head does not know yet, or part of one. A whole entry counts as
itself, even without its newline. A torn one has released nothing; it counts all the same, for each observer as
`worst_release`, the costliest that the run plans to show it, and the next writer replaces it by a "recovered" entry.
Any other difference is damage.
The chain has no secret: it finds accidents and careless edits, not somebody who rewrites both files.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import operator
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeAlias

from sordino.errors import InvalidInput, LedgerError, SordinoError, require
from sordino.privacy.events import Composed, Event, Repeated, Sampled, event_from_json, event_to_json, parts_of
from sordino.types import Observer, Relation, Unit

__all__ = ["Entry", "Ledger", "LedgerRecord", "of_one_round", "read_ledger"]

_Json: TypeAlias = dict[str, Any]
_Shown: TypeAlias = tuple[int | None, str, Observer]  # round and release, and who sees it
_NO_HASH = "0" * 64
NOBODY = "name at least one: what nobody sees is no release"
_RESTORE = "restore it and its .head file from a backup; until then treat the budget as spent"


@dataclass(frozen=True)
class Entry:
    """One release, or what a torn line counts as for some observers (`kind` "recovered", without a round)."""

    seq: int
    time: str
    kind: str
    round: int | None
    release: str
    observers: tuple[Observer, ...]
    event: Event


@dataclass(frozen=True)
class LedgerRecord:
    """What a ledger says: what it protects, and all that has been released."""

    unit: Unit
    relation: Relation
    description: dict[str, Any]
    worst_release: dict[Observer, Event]
    entries: tuple[Entry, ...]

    @property
    def recovered(self) -> int:
        """How many torn lines are counted as the worst release."""
        return len({entry.seq for entry in self.entries if entry.kind == "recovered"})

    def spent(self, observer: Observer | str) -> Event:
        """What the releases that `observer` saw cost, equal events grouped."""
        observer = Observer.parse(observer)
        rounds: dict[int | None, list[Event]] = {}
        shown: set[_Shown] = set()
        apart: list[Event] = []
        latest = None
        for entry in (entry for entry in self.entries if observer in entry.observers):
            new = _shown(entry.round, entry.release, (observer,), entry.event)
            if shown & new:
                raise _shown_twice(entry.round, entry.release)
            shown |= new
            latest = latest if entry.round is None else entry.round
            group = rounds.setdefault(latest, [])
            # A torn line belonged to the round being written, and perhaps to the same sample.
            (group if entry.round is not None or _of_the_sample(group, entry.event) else apart).append(entry.event)
        counts = Counter(apart + [event for events in rounds.values() for event in of_one_round(events)])
        groups = tuple(Repeated(event, count) for event, count in counts.items())
        return groups[0] if len(groups) == 1 else Composed(groups)

    def after(self, *, round: int, release: str, observers: Iterable[Observer | str], event: Event) -> LedgerRecord:
        """What the ledger would say with one more release, for a budget to look at before it is made."""
        eyes = tuple(Observer.parse(observer) for observer in observers)
        require(bool(eyes), "observers", eyes, NOBODY)
        entry = Entry(len(self.entries) + 1, "", "release", round, release, eyes, event)
        return dataclasses.replace(self, entries=(*self.entries, entry))

    @property
    def units(self) -> int | None:
        """How many units are protected, where the description says so."""
        return self.description.get("units")


def _is_sampled(event: Event) -> bool:
    return any(isinstance(part, Sampled) for part in parts_of(event))


def _of_the_sample(group: list[Event], event: Event) -> bool:
    """Whether an event is about the one sample that a round has shown."""
    shown = [other for other in group if _is_sampled(other)]
    return isinstance(event, Sampled) and all(
        isinstance(other, Sampled) and other.sampling == event.sampling for other in shown
    )


def _shown(round: int | None, release: str, observers: Iterable[Observer], event: Event) -> set[_Shown]:
    """What a release shows of a round's sample, and to whom; nothing of a torn line, which has no round."""
    seen = observers if round is not None and _is_sampled(event) else ()
    return {(round, release, observer) for observer in seen}


def _shown_twice(round: int | None, release: str) -> LedgerError:
    """Two runs that count their rounds alike drew two samples, which cost other than one sample shown twice."""
    remedy = "give every run a ledger of its own, or numbers of its own to its rounds"
    return LedgerError(f"round {round} holds {release!r} from a sample already: {remedy}")


def of_one_round(events: list[Event]) -> list[Event]:
    """Releases about the same sample of a round are one joint release: sampled once, not once each."""
    sampled = [event for event in events if _is_sampled(event)]
    nested = [event.kind for event in sampled if not isinstance(event, Sampled)]
    if len(sampled) > 1 and nested:
        raise LedgerError(
            f"one round holds {len(sampled)} releases from a sample, one of them inside a {nested[0]} event: record "
            "them as one event"
        )
    joint: dict[str, list[Event]] = {}
    rest = []
    for event in events:
        if isinstance(event, Sampled):
            joint.setdefault(str(event_to_json(event)["sampling"]), []).append(event)
        else:
            rest.append(event)
    for group in joint.values():
        first = group[0]
        assert isinstance(first, Sampled)
        inner = tuple(event.event for event in group if isinstance(event, Sampled))
        rest.append(first if len(group) == 1 else Sampled(Composed(inner), first.sampling))
    if len(joint) > 1:
        names = ", ".join(joint)
        raise LedgerError(
            f"one round holds releases from different samples ({names}): record them in rounds of their own"
        )
    return rest


def read_ledger(path: str | os.PathLike[str]) -> LedgerRecord:
    """Check the whole ledger and return what it says. Takes no lock and writes nothing."""
    path = _locate(path)
    entries, _ = _load(path)
    return _record(path, entries)


class Ledger:
    """The only writer of a ledger, from `create` or `open` until `close` or the end of the process."""

    def __init__(self, path: Path, file: int, count: int, last_hash: str, record: LedgerRecord) -> None:
        self.path = path
        self._shown = {
            one for each in record.entries for one in _shown(each.round, each.release, each.observers, each.event)
        }
        self._observers = record.worst_release.keys()
        self._file, self._size = file, os.fstat(file).st_size
        self._count, self._last_hash = count, last_hash
        self._process = os.getpid()
        self._turn = threading.RLock()  # a signal handler may close in the middle of an append
        self._refusal = ""  # why nothing can be appended any more
        self._resources = ExitStack()

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        unit: Unit | str,
        relation: Relation | str,
        worst_release: Event | Mapping[Observer, Event],
        description: Mapping[str, Any] | None = None,
    ) -> Self:
        """Start a ledger. A torn line will count as `worst_release`, the costliest planned, perhaps by observer."""
        worst = worst_release if isinstance(worst_release, Mapping) else dict.fromkeys(Observer, worst_release)
        header = {
            "unit": Unit.parse(unit),
            "relation": Relation.parse(relation),
            "description": dict(description or {}),
            "worst_release": {str(Observer.parse(eye)): _plain_event(event) for eye, event in worst.items()},
        }
        first = _seal(0, _NO_HASH, "open", header)  # refuses what JSON cannot hold, before there is a file
        path = _locate(path)
        record = _record(path, [first])
        with _os_errors(path, "choose a file in a directory that can be written"), ExitStack() as resources:
            _lock(path, resources)
            _require_new(path)
            _write_head(path, 0, _NO_HASH)
            _sync_directory(path)
            # The file appears with its header whole: after a crash it can be opened, or it can be created.
            _replace(path, _canonical(first) + b"\n")
            _sync_directory(path)
            file = resources.enter_context(_opened(path, os.O_WRONLY | os.O_APPEND))
            _write_head(path, 1, first["hash"])
            ledger = cls(path, file, 1, first["hash"], record)
            ledger._resources = resources.pop_all()
        return ledger

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Continue a ledger, first making good, durably, what a crash has left half-written."""
        path = _locate(path)
        with _os_errors(path, "make the ledger writable"), ExitStack() as resources:
            _require_there(path)
            _lock(path, resources)
            entries, data = _load(path)
            record = _record(path, entries)
            whole = b"".join(_canonical(entry) + b"\n" for entry in entries)
            if whole != data:
                _replace(path, whole)
                _sync_directory(path)
            file = resources.enter_context(_opened(path, os.O_WRONLY | os.O_APPEND))
            os.fsync(file)  # entries that the head does not know may be in memory only
            _write_head(path, len(entries), entries[-1]["hash"])
            ledger = cls(path, file, len(entries), entries[-1]["hash"], record)
            ledger._resources = resources.pop_all()
        return ledger

    def append(self, *, round: int, release: str, observers: Iterable[Observer | str], event: Event) -> None:
        """Record a release. It may leave once this has returned: the entry is then on disk.

        Releases of one round that come from samples come from the same one; another sample needs another round.
        """
        require(not isinstance(observers, str), "observers", observers, "give a list of observers")
        eyes = [Observer.parse(observer) for observer in observers]
        require(bool(eyes), "observers", eyes, NOBODY)
        strange = [str(observer) for observer in eyes if observer not in self._observers]
        require(not strange, "observers", strange, "the ledger has no worst_release for them: name it in `create`")
        cost = _plain_event(event)
        number = operator.index(round)
        shown = _shown(number, release, eyes, event)
        with self._turn:
            if shown & self._shown:
                raise _shown_twice(number, release)
            self._write("release", {"round": number, "release": release, "observers": eyes, "event": cost})
            self._shown |= shown

    def close(self) -> None:
        """Let another writer in."""
        with self._turn:
            self._refusal = self._refusal or "it is closed; open it again"
            self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Put an entry on disk, or refuse all later ones: after a failure nobody knows what is there."""
        with self._turn:
            if self._process != os.getpid():
                raise LedgerError(f"{self.path}: opened before a fork; append in the process that opened it")
            if self._refusal:
                raise LedgerError(f"{self.path}: {self._refusal}")
            entry = _seal(self._count, self._last_hash, kind, fields)
            line = _canonical(entry) + b"\n"
            remedy = "make no release, close the ledger, remove the cause and open it again"
            self._refusal = f"an append failed and may have left part of a line; {remedy}"
            with _os_errors(self.path, remedy):
                self._require_untouched()
                _write_all(self._file, line)
                os.fsync(self._file)
                _write_head(self.path, self._count + 1, entry["hash"])
            self._count, self._size, self._last_hash = self._count + 1, self._size + len(line), entry["hash"]
            self._refusal = ""

    def _require_untouched(self) -> None:
        """Stop before the release if the file was moved or edited meanwhile: it would not hold the entry."""
        mine = os.fstat(self._file)
        if not os.path.samestat(mine, os.stat(self.path)) or mine.st_size != self._size:
            raise LedgerError(f"{self.path}: changed while this process was writing to it; {_RESTORE}")


# Entries and their chain


def _canonical(entry: _Json) -> bytes:
    return json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()


def _hash(entry: _Json) -> str:
    return hashlib.sha256(_canonical({name: entry[name] for name in entry if name != "hash"})).hexdigest()


def _seal(seq: int, previous: str, kind: str, fields: Mapping[str, Any]) -> _Json:
    """The next entry of the chain, exactly as it will be read back."""
    chain = {"seq": seq, "time": datetime.now(UTC).isoformat(), "kind": kind, "previous": previous}
    try:
        entry: _Json = json.loads(_canonical({**fields, **chain}))
    except TypeError as error:
        raise LedgerError(f"{kind} entry: {error}; give plain JSON values") from error
    return {**entry, "hash": _hash(entry)}


def _plain_event(event: Event) -> _Json:
    """The event as JSON, provided that a reader will get the same event back."""
    try:
        plain: _Json = json.loads(json.dumps(event_to_json(event)))
        same = event_from_json(plain) == event
    except RecursionError:  # whose event cannot be printed either
        raise InvalidInput("event", event.kind, "holds too many others, one in another: flatten it") from None
    except (TypeError, SordinoError):
        same = False
    require(same, "event", event, "changes when read back from JSON; build it from plain numbers and tuples")
    return plain


def _load(path: Path) -> tuple[list[_Json], bytes]:
    """Check every line against the chain and the head; return the entries, and the file as it is.

    In place of a torn last line stands the recovered entry that a writer would make of it.
    """
    with _os_errors(path, "make the ledger and its .head file readable"):
        _require_there(path)
        count, last_hash = _read_head(path)  # before the ledger, which may grow meanwhile
        data = path.read_bytes()
    entries: list[_Json] = []
    lines = data.removesuffix(b"\n").split(b"\n")
    for seq, line in enumerate(lines):
        entry = _parse(line)
        if entry is None and seq >= count and seq == len(lines) - 1:
            entries.append(_recover(path, entries, line))
        elif entry is not None and _canonical(entry) == line and _continues(entries, entry):
            entries.append(entry)
        else:
            raise _damage(path, seq + 1, "changed, removed, inserted or out of order")
    if len(entries) < count:
        raise _damage(path, len(entries) + 1, f"truncated: {count} lines were written, {len(entries)} are left")
    if count and entries[count - 1]["hash"] != last_hash:
        raise _damage(path, count, "changed: not the entry that the .head file remembers")
    return entries, data


def _parse(line: bytes) -> _Json | None:
    """The JSON object on a line, or None if the line is torn."""
    try:
        entry = json.loads(line.decode("ascii"))
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _continues(entries: list[_Json], entry: _Json) -> bool:
    seq = len(entries)
    previous = entries[-1]["hash"] if entries else _NO_HASH
    linked = entry.get("seq") == seq and entry.get("previous") == previous and entry.get("hash") == _hash(entry)
    return linked and (entry.get("kind") == "open") == (seq == 0)


def _recover(path: Path, entries: list[_Json], torn: bytes) -> _Json:
    if not entries:
        raise LedgerError(f"{path}, line 1: torn header; nothing was released: delete the file and start again")
    fields = {"events": entries[0]["worst_release"], "torn_bytes": len(torn)}
    return _seal(len(entries), entries[-1]["hash"], "recovered", fields)


def _record(path: Path, entries: list[_Json]) -> LedgerRecord:
    header, *releases = entries
    try:
        return LedgerRecord(
            unit=Unit.parse(header["unit"]),
            relation=Relation.parse(header["relation"]),
            description=_described(header["description"]),
            worst_release=_by_observer(header["worst_release"]),
            entries=tuple(each for entry in releases for each in _entries(entry)),
        )
    except RecursionError:
        raise LedgerError(f"{path}: an event holds too many others; restore it from a backup") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise LedgerError(f"{path}: {error}; read it with the version of sordino that wrote it") from error


def _entries(entry: _Json) -> list[Entry]:
    seq, time, kind = entry["seq"], entry["time"], entry["kind"]
    if kind == "recovered":
        alike: dict[Event, list[Observer]] = {}
        for observer, event in _by_observer(entry["events"]).items():
            alike.setdefault(event, []).append(observer)
        return [Entry(seq, time, kind, None, "torn line", tuple(eyes), event) for event, eyes in alike.items()]
    observers = tuple(Observer.parse(observer) for observer in entry["observers"])
    require(bool(observers), "observers", observers, NOBODY)
    event, round = event_from_json(entry["event"]), entry["round"]
    require(type(round) is int, "round", round, "must be a whole number")
    return [Entry(seq, time, kind, round, str(entry["release"]), observers, event)]


def _by_observer(events: dict[str, _Json]) -> dict[Observer, Event]:
    require(bool(events), "worst_release", events, "name what each observer may see")
    return {Observer.parse(observer): event_from_json(event) for observer, event in events.items()}


def _described(description: Any) -> dict[str, Any]:
    """What a certificate takes from it is of the right kind."""
    require(isinstance(description, dict), "description", description, "must be an object")
    units, warnings = description.get("units"), description.get("warnings", [])
    for name, value in (("units", units), ("rounds", description.get("rounds"))):
        require(value is None or type(value) is int, name, value, "must be a whole number")
    pairs = isinstance(warnings, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in warnings)
    require(pairs, "warnings", warnings, "must be pairs of a code and a text")
    assumptions = description.get("assumptions", {})
    lists = isinstance(assumptions, dict) and all(isinstance(texts, list) for texts in assumptions.values())
    require(lists, "assumptions", assumptions, "must be lists of texts by observer")
    return dict(description)


# Files


def _locate(path: str | os.PathLike[str]) -> Path:
    """The one true path, so that links to a ledger share its lock and head."""
    path = Path(path).resolve()
    if os.path.isdir(path):
        raise LedgerError(f"{path}: a directory, not a ledger; give the path of a file")
    return path


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _damage(path: Path, line: int, what: str) -> LedgerError:
    return LedgerError(f"{path}, line {line}: {what}; {_RESTORE}")


@contextmanager
def _os_errors(path: Path, remedy: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LedgerError(f"{path}: {error.strerror or error}; {remedy}") from error


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    file = os.open(path, flags, 0o666)
    try:
        yield file
    finally:
        os.close(file)


def _lock(path: Path, resources: ExitStack) -> None:
    """Keep other writers out. The lock file stays: were it deleted, two writers could lock two files."""
    lock = resources.enter_context(_opened(_beside(path, ".lock"), os.O_RDWR | os.O_CREAT))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise LedgerError(f"{path}: another process is writing to it; wait, or use another ledger") from error


def _require_there(path: Path) -> None:
    if not path.exists() and _beside(path, ".head").exists():
        raise LedgerError(f"{path}: removed, though its .head file is still there; {_RESTORE}")
    if not path.exists():
        raise LedgerError(f"{path}: there is no such ledger; check the path, or create the ledger first")


def _require_new(path: Path) -> None:
    if path.exists():
        raise LedgerError(f"{path}: exists already; open it to continue, or choose another path")
    if _beside(path, ".head").exists() and _read_head(path)[0] > 0:
        raise LedgerError(f"{path}: removed, though its .head file counts releases; {_RESTORE}")


def _read_head(path: Path) -> tuple[int, str]:
    try:
        head = json.loads(_beside(path, ".head").read_bytes())
        return operator.index(head["count"]), str(head["hash"])
    except FileNotFoundError as error:
        raise LedgerError(f"{path}: its .head file is missing; {_RESTORE}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise LedgerError(f"{path}: its .head file is damaged; {_RESTORE}") from error


def _write_head(path: Path, count: int, last_hash: str) -> None:
    _replace(_beside(path, ".head"), _canonical({"count": count, "hash": last_hash}) + b"\n")


def _replace(path: Path, data: bytes) -> None:
    """Change a file at one stroke: a crash leaves the old content or the new."""
    temporary = _beside(path, ".tmp")
    with _opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
        _write_all(file, data)
        os.fsync(file)
    os.replace(temporary, path)


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def _sync_directory(path: Path) -> None:
    with _opened(path.parent, os.O_RDONLY) as directory:
        os.fsync(directory)
