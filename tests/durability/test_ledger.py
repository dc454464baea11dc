"""The ledger never forgets: after any crash or edit it counts at least as much, or says what is wrong."""

from __future__ import annotations

import dataclasses
import errno
import functools
import hashlib
import itertools
import json
import math
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sordino.errors import InvalidInput, LedgerError
from sordino.privacy.accountants import epsilon_of
from sordino.privacy.certification import certify_ledger
from sordino.privacy.events import Assumed, Composed, Event, Gaussian, NonPrivate, Poisson, Pure, Repeated, Sampled
from sordino.privacy.ledger import Ledger, LedgerRecord, read_ledger
from sordino.types import Observer, Relation, Unit

WORST = Gaussian(1.0)
MESSAGE = Sampled(Gaussian(2.7), Poisson(0.1))
MODEL = Gaussian(4.0)
PRICE = {WORST: 1.0, MESSAGE: 0.5, MODEL: 0.2}  # any prices will do that make the worst release the dearest
LONGEST = 3
TORN = LONGEST * PRICE[WORST]
WORDS = {"unit": Unit.CLIENT, "relation": Relation.ZERO_OUT}  # of the ledgers here, and so of what they say was spent


def create(path: Path, **options: Any) -> Ledger:
    usual = {"unit": "client", "relation": "zero-out", "worst_release": WORST, "longest": LONGEST}
    return Ledger.create(path, **usual | {"description": {"method": "sgd", "rounds": 3}} | options)


def append(ledger: Ledger, round: int, event: Event = MESSAGE, observers: tuple[str, ...] = ("server",)) -> None:
    ledger.append(round=round, release="client message", observers=observers, event=event)


def cost(record: LedgerRecord, observer: str = "server") -> float:
    spent = record.spent(observer)
    groups = spent.events if isinstance(spent, Composed) else (spent,)
    return sum(PRICE[group.event] * group.count for group in groups)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.ledger"


@pytest.fixture
def head(path: Path) -> Path:
    return path.with_name("run.ledger.head")


@pytest.fixture
def written(path: Path, head: Path) -> tuple[bytes, bytes]:
    """A finished ledger of a header and five releases: its bytes, and the head as it was before the last."""
    with create(path) as ledger:
        for round in range(4):
            append(ledger, round, MESSAGE if round % 2 else MODEL)
        head_before_last = head.read_bytes()
        ledger.append(rounds=range(4, 7), release="client message", observers=["server"], event=MESSAGE)
    return path.read_bytes(), head_before_last


# What is written is what is read


INFINITE = (NonPrivate(), Pure(float("inf")))


def test_round_trip(path: Path) -> None:
    with create(path.with_name("empty")), create(path) as ledger:
        ledger.append(round=0, release="client message", observers=[Observer.SERVER, "peer"], event=MESSAGE)
        ledger.append(rounds=range(1, 3), release="model", observers=["model_user"], event=MODEL)
        for round, event in enumerate(INFINITE):
            ledger.append(round=round, release="all", observers=["outsider"], event=event)
    record = read_ledger(path)
    assert (record.unit, record.relation) == (Unit.CLIENT, Relation.ZERO_OUT)
    assert record.description == {"method": "sgd", "rounds": 3}
    assert (record.worst_release, record.longest, record.recovered) == (dict.fromkeys(Observer, WORST), LONGEST, 0)
    assert [(entry.rounds, entry.release, entry.event) for entry in record.entries[:2]] == [
        (range(1), "client message", MESSAGE),
        (range(1, 3), "model", MODEL),
    ]
    assert record.spent("server") == record.spent(Observer.PEER) == Repeated(MESSAGE, 1, **WORDS)
    assert record.spent("model user") == Repeated(MODEL, 2, **WORDS)
    assert record.spent("outsider") == Composed(tuple(Repeated(event, 1) for event in INFINITE), **WORDS)
    assert read_ledger(path.with_name("empty")).spent("outsider") == Composed((), **WORDS)
    with pytest.raises(InvalidInput):
        record.spent("servr")  # a misspelt observer is not told that nothing was spent
    assert (record.rounds(), record.rounds("server"), record.rounds("outsider")) == (3, 1, 2)


def test_lines_are_canonical_and_chained(written: tuple[bytes, bytes]) -> None:
    previous = "0" * 64
    for seq, line in enumerate(written[0].splitlines()):
        entry = json.loads(line)
        assert line == canonical(entry)
        assert (entry["seq"], entry["previous"], entry["kind"]) == (seq, previous, "release" if seq else "open")
        previous = entry.pop("hash")
        assert previous == hashlib.sha256(canonical(entry)).hexdigest()


def canonical(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()


def test_open_continues_the_chain(path: Path, written: tuple[bytes, bytes]) -> None:
    with Ledger.open(path) as ledger:
        append(ledger, 7)
    assert path.read_bytes().startswith(written[0])
    assert read_ledger(path).rounds() == 8


def test_a_segment_costs_what_its_rounds_cost_one_by_one(path: Path) -> None:
    """Also where only some of its rounds have another release about their sample."""
    step = Sampled(Gaussian(9.0), Poisson(0.1))
    with create(path, longest=10_000) as whole, create(path.with_name("b")) as single:
        whole.append(rounds=range(20), release="message", observers=["server"], event=MESSAGE)
        whole.append(rounds=range(5, 15), release="step size", observers=["server"], event=step)
        for round in range(20):
            single.append(round=round, release="message", observers=["server"], event=MESSAGE)
        for round in range(5, 15):
            single.append(round=round, release="step size", observers=["server"], event=step)
    spent = read_ledger(path).spent("server")
    assert spent == read_ledger(path.with_name("b")).spent("server")
    joint = Sampled(Composed((MESSAGE.event, step.event)), MESSAGE.sampling)
    assert spent == Composed((Repeated(MESSAGE, 10), Repeated(joint, 10)), **WORDS)


def test_releases_of_a_segment_are_one_line(path: Path) -> None:
    with create(path, longest=1000) as ledger:
        before = path.read_bytes().count(b"\n")
        ledger.append_all(
            range(1000), [("update", (Observer.SERVER,), MODEL), ("model", (Observer.MODEL_USER,), MESSAGE)]
        )
    assert path.read_bytes().count(b"\n") == before + 1
    assert read_ledger(path).spent("server") == Repeated(MODEL, 1000, **WORDS)
    assert read_ledger(path).spent("model user") == Repeated(MESSAGE, 1000, **WORDS)


@pytest.mark.parametrize(
    "description",
    [{"a": object()}, {"units": 3.0}, {"warnings": ["x"]}, {"assumptions": ["x"]}, {"assumptions": {"server": "x"}}],
    ids=["no JSON", "units", "warnings", "assumptions", "assumptions of an observer"],
)
def test_a_description_that_could_not_be_read_leaves_no_file(path: Path, description: dict[str, Any]) -> None:
    with pytest.raises(LedgerError):
        create(path, description=description)
    assert list(path.parent.iterdir()) == []


class Unknown(Event):
    kind = "unknown"


@pytest.mark.parametrize(
    "change",
    [
        {"observers": "server"},
        {"observers": []},
        {"observers": ["servr"]},
        {"event": Unknown()},
        {"event": None},
        {"event": functools.reduce(lambda event, _: Repeated(event, 1), range(600), MODEL)},
        {"round": None},
        {"rounds": range(3)},
        {"round": None, "rounds": range(0)},
        {"round": None, "rounds": range(0, 4, 2)},
        {"round": None, "rounds": range(LONGEST + 1)},
    ],
)
def test_a_wrong_argument_writes_nothing_and_breaks_nothing(path: Path, change: dict[str, Any]) -> None:
    with create(path) as ledger:
        with pytest.raises(InvalidInput):
            ledger.append(**{"round": 0, "release": "model", "observers": ["server"], "event": MODEL, **change})
        append(ledger, 0)
    assert len(read_ledger(path).entries) == 1


def test_only_observers_with_a_worst_release_may_see_one(path: Path) -> None:
    with pytest.raises(LedgerError, match="worst_release"):
        create(path, worst_release={})
    with create(path, worst_release={Observer.SERVER: WORST}) as ledger:
        append(ledger, 0, MODEL)
        with pytest.raises(InvalidInput, match="peer"):
            append(ledger, 1, MODEL, observers=("server", "peer"))
    assert cost(read_ledger(path)) == PRICE[MODEL]


# Damage is found


def damaged(path: Path, data: bytes, line: int | None = None) -> None:
    """Reading and opening both refuse, name file, line and remedy, and leave the file alone."""
    path.write_bytes(data)
    for look in (read_ledger, Ledger.open):
        with pytest.raises(LedgerError, match="treat the budget as spent") as caught:
            look(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
        if line is not None:
            assert f"line {line}:" in str(caught.value)
    assert path.read_bytes() == data


def test_every_changed_byte_is_found_or_counted(path: Path, head: Path, written: tuple[bytes, bytes]) -> None:
    """Behind the head, in the last line, a changed byte may look like a torn line: that never lowers the cost."""
    data, head_before_last = written
    full, head_after = cost(read_ledger(path)), head.read_bytes()
    last_line = data[:-1].rindex(b"\n")
    for position in range(len(data) - 1):
        changed = bytearray(data)
        changed[position] ^= (0x01, 0x20, 0x80)[position % 3]
        path.write_bytes(changed)
        head.write_bytes(head_after)
        line = data[:position].count(b"\n") + 1
        with pytest.raises(LedgerError, match=f"line {line}:"):
            read_ledger(path)
        head.write_bytes(head_before_last)
        try:
            assert cost(read_ledger(path)) >= full
            assert position > last_line
        except LedgerError:
            pass


def test_removed_swapped_repeated_and_inserted_lines_are_found(path: Path, written: tuple[bytes, bytes]) -> None:
    lines = written[0].splitlines(keepends=True)
    for here in range(len(lines)):
        damaged(path, b"".join(lines[:here] + lines[here + 1 :]), here + 1)
        damaged(path, b"".join([*lines[: here + 1], *lines[here:]]), here + 2)
        damaged(path, b"".join([*lines[:here], b"{}\n", *lines[here:]]), here + 1)
        for there in range(here + 1, len(lines)):
            swapped = lines.copy()
            swapped[here], swapped[there] = lines[there], lines[here]
            damaged(path, b"".join(swapped), here + 1)
    damaged(path, written[0].replace(b'":', b'": ', 1), line=1)  # the same in other bytes
    damaged(path, written[0].replace(b"\n", b"\r\n"), line=1)


def test_a_cheaper_line_with_a_right_hash_is_found(path: Path, written: tuple[bytes, bytes]) -> None:
    lines = written[0].splitlines(keepends=True)
    for here in range(1, len(lines)):
        entry = json.loads(lines[here])
        entry["releases"][0]["event"] = {"kind": "gaussian", "noise_multiplier": 99.0}
        del entry["hash"]
        entry["hash"] = hashlib.sha256(canonical(entry)).hexdigest()
        damaged(path, b"".join([*lines[:here], canonical(entry) + b"\n", *lines[here + 1 :]]))


def test_truncation_never_lowers_the_cost(path: Path, written: tuple[bytes, bytes]) -> None:
    data, _ = written
    full = cost(read_ledger(path))
    for length in range(len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(LedgerError, match="treat the budget as spent"):
            read_ledger(path)
    path.write_bytes(data[:-1])  # only the newline is gone
    assert cost(read_ledger(path)) == full


def test_head_missing_damaged_or_of_another_run(path: Path, head: Path, written: tuple[bytes, bytes]) -> None:
    good = head.read_bytes()
    head.unlink()
    damaged(path, written[0])
    others = (good.replace(b'"count":6', b'"count":7'), good.replace(b'"count":6', b'"count":5'))
    for wrong in (b"", b"{}", b"[]", *others):
        head.write_bytes(wrong)
        damaged(path, written[0])


def test_wrong_paths(path: Path, tmp_path: Path, written: tuple[bytes, bytes]) -> None:
    for look in (read_ledger, Ledger.open):
        with pytest.raises(LedgerError, match="there is no such ledger"):
            look(tmp_path / "other")
    for look in (read_ledger, Ledger.open, create):
        with pytest.raises(LedgerError, match="a directory"):
            look(tmp_path)
    with pytest.raises(LedgerError, match="choose a file in a directory"):
        create(tmp_path / "nowhere" / "run.ledger")
    with pytest.raises(LedgerError, match="exists already"):
        create(path)
    assert path.read_bytes() == written[0]
    assert not (tmp_path / "other.lock").exists()
    assert not (tmp_path / "nowhere").exists()
    path.unlink()  # a removed ledger is not started again
    for look in (read_ledger, Ledger.open, create):
        with pytest.raises(LedgerError, match="treat the budget as spent"):
            look(path)
    assert not path.exists()


# A torn last line is counted


def test_every_tear_of_the_last_line_is_counted(path: Path, head: Path, written: tuple[bytes, bytes]) -> None:
    data, head_before_last = written
    full = cost(read_ledger(path))
    head.write_bytes(head_before_last)
    start = data[:-1].rindex(b"\n") + 1
    path.write_bytes(data[:start])
    before = cost(read_ledger(path))
    for length in range(start + 1, len(data) - 1):
        path.write_bytes(data[:length])
        record = read_ledger(path)
        assert record.recovered == 1
        assert cost(record) - before == pytest.approx(TORN)
        assert cost(record, "outsider") == TORN
    assert before + TORN >= full  # the torn line was a segment of LONGEST rounds


@pytest.mark.parametrize("torn", [b"{", b'{"event":', b"\0" * 40, b"\0" * 40 + b"\n", b"\xff\xfe", b"7"])
def test_a_torn_line_stays_counted(path: Path, written: tuple[bytes, bytes], torn: bytes) -> None:
    whole = cost(read_ledger(path))
    path.write_bytes(written[0] + torn)
    assert cost(read_ledger(path)) == pytest.approx(whole + TORN)
    assert path.read_bytes() == written[0] + torn  # reading writes nothing
    with Ledger.open(path) as ledger:
        append(ledger, 7, MODEL)
    Ledger.open(path).close()
    record = read_ledger(path)
    assert (record.recovered, record.entries[-2].event, record.entries[-2].rounds) == (1, WORST, None)
    assert cost(record) == pytest.approx(whole + TORN + PRICE[MODEL])
    assert json.loads(path.read_bytes().splitlines()[-2])["torn_bytes"] == len(torn.rstrip(b"\n"))


def test_a_whole_line_counts_as_itself(path: Path, head: Path, written: tuple[bytes, bytes]) -> None:
    """Without its newline, and not yet in the head: the next writer completes both."""
    data, head_before_last = written
    head_after = head.read_bytes()
    for known, there in itertools.product((head_after, head_before_last), (data, data[:-1])):
        head.write_bytes(known)
        path.write_bytes(there)
        assert (read_ledger(path).recovered, read_ledger(path).rounds()) == (0, 7)
        Ledger.open(path).close()
        assert (path.read_bytes(), head.read_bytes()) == (data, head_after)


def test_a_torn_header_means_start_again(path: Path, head: Path) -> None:
    create(path).close()
    data = path.read_bytes()
    for length in range(len(data) - 1):
        path.write_bytes(data[:length])
        head.write_bytes(json.dumps({"count": 0, "hash": "0" * 64}).encode())
        for look in (read_ledger, Ledger.open):
            with pytest.raises(LedgerError, match="nothing was released: delete the file"):
                look(path)
    path.unlink()
    with create(path) as ledger:  # the remedy works
        append(ledger, 0)
    assert len(read_ledger(path).entries) == 1


def test_a_torn_release_of_a_sampled_round_is_not_cheaper_than_a_whole_one(path: Path, head: Path) -> None:
    """Both releases of a round are about one sample and so are joint: a crash must not improve the figure."""
    release = Sampled(Gaussian(1.0), Poisson(0.01))
    for rounds in (range(1), range(4)):
        own = path.with_name(f"{len(rounds)}.ledger")
        with create(own, relation="add-remove", worst_release=release, longest=len(rounds)) as ledger:
            ledger.append(rounds=rounds, release="update", observers=["model user"], event=release)
            head_before = own.with_name(own.name + ".head").read_bytes()
            ledger.append(rounds=rounds, release="step size", observers=["model user"], event=release)
        whole = epsilon_of(read_ledger(own).spent("model user"), 1e-5)
        own.write_bytes(own.read_bytes()[:-20])
        own.with_name(own.name + ".head").write_bytes(head_before)
        record = read_ledger(own)
        assert record.recovered == 1
        assert epsilon_of(record.spent("model user"), 1e-5) >= whole > 0.8


def test_a_torn_line_counts_for_each_observer_as_what_it_would_have_seen(path: Path) -> None:
    """A server sees everything here, a model user a private sample; of peers and outsiders nothing is known."""
    sample = Sampled(Gaussian(1.0), Poisson(0.1))
    worst = {Observer.SERVER: NonPrivate(), Observer.MODEL_USER: sample}
    with create(path, relation="add-remove", worst_release=worst, longest=1) as ledger:
        for round in range(3):
            ledger.append(round=round, release="messages", observers=["server"], event=NonPrivate())
            ledger.append(round=round, release="model", observers=["model user"], event=sample)
    before = {each.observer: each.epsilon for each in certify_ledger(read_ledger(path), 1e-5).guarantees}
    with path.open("ab") as file:
        file.write(b'{"event":')
    for _ in range(2):  # as it is found, and as the next writer leaves it
        record = read_ledger(path)
        certificate = certify_ledger(record, 1e-5)
        after = {each.observer: each.epsilon for each in certificate.guarantees}
        assert record.recovered == 1
        assert after.keys() == before.keys() == {Observer.SERVER, Observer.MODEL_USER}
        assert after[Observer.SERVER] == math.inf
        assert before[Observer.MODEL_USER] < after[Observer.MODEL_USER] < 2 * before[Observer.MODEL_USER]
        assert "recovered" in {warning.code for warning in certificate.warnings}
        # A torn line is not all that observers have seen whom no release names: nothing is said of them.
        everybody = dataclasses.replace(record.entries[-1], observers=tuple(Observer))
        named = certify_ledger(dataclasses.replace(record, entries=(*record.entries, everybody)), 1e-5).guarantees
        assert {each.observer for each in named} == before.keys()
        Ledger.open(path).close()


def test_a_torn_line_that_fits_no_sample_is_counted_beside(path: Path) -> None:
    """Joined with the round before, it would be refused, and the ledger with it."""
    sample = Sampled(Gaussian(1.0), Poisson(0.1))
    other = Sampled(Gaussian(1.0), Poisson(0.2))
    for number, released in enumerate((Assumed("a", sample, unit=Unit.CLIENT), other)):
        torn = path.with_name(str(number))
        with create(torn, relation="add-remove", worst_release=sample) as ledger:
            ledger.append(round=0, release="model", observers=["model user"], event=released)
        alone = epsilon_of(read_ledger(torn).spent("model user"), 1e-5)
        with torn.open("ab") as file:
            file.write(b"[" * 200_000)
        assert epsilon_of(read_ledger(torn).spent("model user"), 1e-5) > alone


# Crashes and full disks


class Crash(BaseException):
    """Stands for the end of the process: nothing may catch it."""


def failures(failure: BaseException, prepare: Callable[[], Any] = lambda: None) -> Iterator[Any]:
    """After `prepare`, let the first, the second, ... fsync or rename fail, until there is none left to fail."""
    for step in itertools.count(1):
        prepared, made = prepare(), 0

        def failing(real: Callable[..., Any], step: int = step) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                nonlocal made
                made += 1
                if made == step:
                    raise failure
                return real(*arguments)

            return call

        with pytest.MonkeyPatch.context() as patch:
            for name in ("fsync", "replace"):
                patch.setattr(os, name, failing(getattr(os, name)))
            yield prepared, patch
        if made < step:
            assert step > 2, "nothing could fail: the test means nothing"
            return


@contextmanager
def disk_full_at(size: int) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


BOTH = pytest.mark.parametrize("failure", [Crash(), OSError(errno.ENOSPC, "No space left on device")], ids=repr)


@BOTH
def test_an_append_that_fails_anywhere_refuses_all_later_ones(tmp_path: Path, failure: BaseException) -> None:
    numbers = itertools.count()

    def begun() -> Ledger:
        ledger = create(tmp_path / str(next(numbers)))
        append(ledger, 0)
        return ledger

    for ledger, patch in failures(failure, begun):
        failed = True
        with suppress(LedgerError if isinstance(failure, OSError) else Crash):
            append(ledger, 1)
            failed = False
        patch.undo()
        found = read_ledger(ledger.path)
        assert cost(found) >= PRICE[MESSAGE] * (1 if failed else 2)
        if failed:
            with pytest.raises(LedgerError, match="an append failed"):
                append(ledger, 1)
        ledger.close()
        with Ledger.open(ledger.path) as again:
            append(again, 2)
        assert cost(read_ledger(ledger.path)) == pytest.approx(cost(found) + PRICE[MESSAGE])


def test_a_power_cut_after_an_append_loses_nothing(path: Path, head: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk keeps what was synced: that must be the line before the head counts it, and both before the release."""
    synced: dict[int, bytes] = {}  # what the disk holds of a file, by inode; a folder holds its names
    fsync, replace = os.fsync, os.replace

    def recording_fsync(file: int) -> None:
        fsync(file)
        place = Path(os.readlink(f"/proc/self/fd/{file}"))
        held = ",".join(sorted(os.listdir(place))).encode() if place.is_dir() else place.read_bytes()
        synced[os.fstat(file).st_ino] = held

    def recording_replace(source: Path, target: Path) -> None:
        assert synced[os.stat(source).st_ino] == Path(source).read_bytes()  # no empty file after a power cut
        if target == head:
            lines = synced.get(path.stat().st_ino, b"").count(b"\n") if path.exists() else 0
            assert json.loads(Path(source).read_bytes())["count"] <= lines
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recording_fsync)
    monkeypatch.setattr(os, "replace", recording_replace)
    with create(path) as ledger:
        assert path.name in synced[path.parent.stat().st_ino].decode().split(",")
        for round in range(3):
            append(ledger, round)
            assert synced[path.stat().st_ino] == path.read_bytes()
            assert json.loads(synced[head.stat().st_ino])["count"] == round + 2


@pytest.mark.parametrize("bytes_left", [0, 1, 40, 200])
def test_a_disk_that_is_full_in_the_middle_of_a_line(path: Path, head: Path, bytes_left: int) -> None:
    ledger = create(path)
    append(ledger, 0)
    with disk_full_at(path.stat().st_size + bytes_left), pytest.raises(LedgerError, match="make no release"):
        append(ledger, 1)
    assert cost(read_ledger(path)) == PRICE[MESSAGE] + TORN * (bytes_left > 0)
    with pytest.raises(LedgerError, match="an append failed"):
        append(ledger, 1)
    ledger.close()
    with Ledger.open(path) as again:
        append(again, 1)
    assert cost(read_ledger(path)) == pytest.approx(2 * PRICE[MESSAGE] + TORN * (bytes_left > 0))


@BOTH
def test_creation_that_fails_anywhere_can_be_repeated_or_continued(tmp_path: Path, failure: BaseException) -> None:
    """Nothing was released: the next attempt must find no ledger, or a whole one."""
    for number, (_, patch) in enumerate(failures(failure)):
        path = tmp_path / str(number)
        with suppress(Crash, LedgerError):
            create(path).close()
        patch.undo()
        with Ledger.open(path) if path.exists() else create(path) as ledger:
            append(ledger, 0)
        found = read_ledger(path)
        assert (len(found.entries), found.recovered) == (1, 0)


def test_repair_that_crashes_anywhere_forgets_nothing(path: Path, head: Path, written: tuple[bytes, bytes]) -> None:
    known = head.read_bytes()
    for _, patch in failures(Crash()):
        path.write_bytes(written[0] + b'{"event":{"kind"')
        head.write_bytes(known)
        torn = cost(read_ledger(path))
        with suppress(Crash):
            Ledger.open(path).close()
        patch.undo()
        assert cost(read_ledger(path)) == pytest.approx(torn)
        Ledger.open(path).close()
        assert (cost(read_ledger(path)), read_ledger(path).recovered) == (pytest.approx(torn), 1)


@pytest.mark.parametrize(
    "meddle", [Path.unlink, lambda path: path.write_bytes(b""), lambda path: path.rename(f"{path}.old")]
)
def test_a_ledger_taken_away_stops_the_run(path: Path, meddle: Callable[[Path], Any]) -> None:
    with create(path) as ledger:
        append(ledger, 0)
        meddle(path)
        with pytest.raises(LedgerError, match=r"run\.ledger: "):
            append(ledger, 1)


def test_closed_means_closed(path: Path) -> None:
    ledger = create(path)
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="it is closed; open it again"):
        append(ledger, 0)


# The end of a ledger


FILES = {"model": "sha256:00", "config": None}


def test_a_finished_ledger_names_files_and_takes_no_further_release(path: Path) -> None:
    with create(path) as ledger:
        append(ledger, 0)
        ledger.finish(FILES, {"seconds": 1.5})
        assert ledger.finish_entry is not None
        for more in (lambda: append(ledger, 1), lambda: ledger.finish(FILES)):
            with pytest.raises(LedgerError, match="finished"):
                more()
    before = path.read_bytes()
    with Ledger.open(path) as ledger:
        assert ledger.finish_entry is not None
        for more in (lambda: append(ledger, 1), lambda: ledger.finish(FILES)):
            with pytest.raises(LedgerError, match="finished"):
                more()
    assert path.read_bytes() == before
    record = read_ledger(path)
    assert record.finish is not None
    assert (record.finish.files, record.finish.description) == (FILES, {"seconds": 1.5})
    assert (cost(record), record.rounds(), len(record.entries)) == (PRICE[MESSAGE], 1, 1)
    assert record.last_hash == json.loads(before.splitlines()[-1])["hash"]


@BOTH
def test_an_end_that_fails_anywhere_is_there_or_not_and_never_counts_as_a_release(
    tmp_path: Path, failure: BaseException
) -> None:
    numbers, ended = itertools.count(), set()

    def begun() -> Ledger:
        ledger = create(tmp_path / str(next(numbers)))
        append(ledger, 0)
        return ledger

    for ledger, patch in failures(failure, begun):
        with suppress(LedgerError if isinstance(failure, OSError) else Crash):
            ledger.finish(FILES)
        patch.undo()
        ledger.close()
        with Ledger.open(ledger.path) as again:
            ended.add(again.finish_entry is None)
            if again.finish_entry is None:
                again.finish(FILES)
        record = read_ledger(ledger.path)
        assert record.finish is not None
        assert (cost(record), record.recovered) == (PRICE[MESSAGE], 0)
    assert ended == {True, False}


def test_a_torn_line_after_the_end_is_counted_and_a_release_there_is_refused(path: Path, head: Path) -> None:
    with create(path) as ledger:
        append(ledger, 0)
        ledger.finish(FILES)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"event"')
    assert cost(read_ledger(path)) == PRICE[MESSAGE] + TORN
    lines = [json.loads(line) for line in whole.splitlines()]
    release = {name: value for name, value in lines[1].items() if name != "hash"}
    release |= {"seq": 3, "previous": lines[2]["hash"], "rounds": [1, 2]}
    sealed = release | {"hash": hashlib.sha256(canonical(release)).hexdigest()}
    path.write_bytes(whole + canonical(sealed) + b"\n")
    with pytest.raises(LedgerError, match="finished"):
        read_ledger(path)


@pytest.mark.parametrize("files", [[], {"model": 3}, "model"])
def test_files_are_named_by_digests(path: Path, files: object) -> None:
    with pytest.raises(LedgerError, match="files"):
        create(path, description={"files": files})
    assert not path.exists()


# Several writers


def test_threads_take_turns(path: Path) -> None:
    with create(path) as ledger:
        threads = [
            threading.Thread(target=lambda first=first: [append(ledger, first + i) for i in range(20)])
            for first in (0, 20, 40, 60)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert read_ledger(path).spent("server") == Repeated(MESSAGE, 80, **WORDS)


@pytest.mark.filterwarnings("ignore:os.fork", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_forked_child_may_not_append_and_lets_nobody_in(path: Path) -> None:
    with create(path) as ledger:
        child = os.fork()
        if child == 0:
            try:
                append(ledger, 0)
            except LedgerError:
                ledger.close()  # as when the child's objects are thrown away
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        with pytest.raises(LedgerError, match="another process"):
            Ledger.open(path)
        append(ledger, 0)
    assert len(read_ledger(path).entries) == 1


WRITER = """
import sys
from sordino.privacy.events import Gaussian
from sordino.privacy.ledger import Ledger
ledger = Ledger.open(sys.argv[1])
for first in range(int(sys.argv[2]), 10**9, 3):
    ledger.append(rounds=range(first, first + 3), release="message", observers=["server"], event=Gaussian(4.0))
    print(first, flush=True)
"""


def start_writer(path: Path, first_round: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), str(first_round)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_kill_at_any_moment_loses_nothing(path: Path) -> None:
    create(path).close()
    moments = random.Random(0)
    printed: set[int] = set()
    for life in range(5):
        with start_writer(path, 1_000_000 * life) as writer:
            assert writer.stdout is not None
            printed.update(int(writer.stdout.readline()) for _ in range(moments.randint(1, 9)))
            time.sleep(moments.uniform(0, 0.01))
            writer.send_signal(signal.SIGKILL)
            printed.update(int(line) for line in writer.stdout.read().split("\n")[:-1])
        record = read_ledger(path)
        entered = [entry.rounds.start for entry in record.entries if entry.rounds is not None]
        assert printed <= set(entered)
        assert len(record.entries) <= len(printed) + life + 1  # at most one more for each death
        Ledger.open(path).close()
        assert cost(read_ledger(path)) == cost(record)


def test_a_second_writer_is_refused_until_the_first_is_dead(path: Path) -> None:
    create(path).close()
    with start_writer(path, 0) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        for look in (Ledger.open, create):
            with pytest.raises(LedgerError, match=r"run\.ledger: another process is writing to it"):
                look(path)
        read_ledger(path)  # readers need no lock
        writer.send_signal(signal.SIGKILL)
    with Ledger.open(path) as ledger:
        append(ledger, 1, MODEL)


def test_a_link_to_the_ledger_shares_its_lock(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    with create(path), pytest.raises(LedgerError, match="another process"):
        Ledger.open(link)
    assert read_ledger(link) == read_ledger(path)


def test_a_reader_beside_a_writer_sees_no_damage(path: Path) -> None:
    """The head is read first, and the ledger may grow by many entries before it is."""
    done = threading.Event()

    def write() -> None:
        try:
            with create(path) as ledger:
                for round in range(300):
                    append(ledger, round, MODEL)
        finally:
            done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not path.exists() and not done.is_set():
        time.sleep(0.001)
    seen = []
    while not done.is_set():
        seen.append(len(read_ledger(path).entries))
    writer.join()
    assert seen == sorted(seen)
    assert len(read_ledger(path).entries) == 300


# Samples

WRAPPED = [lambda e: Composed((e,)), lambda e: Repeated(e, 1), lambda e: Assumed("a", e, unit=Unit.CLIENT)]


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_releases_from_one_sample_are_joint_or_refused(path: Path, wrapped: Callable[[Event], Event]) -> None:
    """Four releases about one sample of 1 % cost 4.4 over ten rounds; one by one they would seem to cost 0.5."""
    release = Sampled(Gaussian(1.0), Poisson(0.01))
    with create(path, relation="add-remove", worst_release=release, longest=10) as ledger:
        for part in range(4):
            ledger.append(rounds=range(10), release=f"part {part}", observers=["model user"], event=release)
        assert epsilon_of(read_ledger(path).spent("model user"), 1e-5) > 4.3
        ledger.append(round=10, release="first", observers=["model user"], event=wrapped(release))
        assert epsilon_of(read_ledger(path).spent("model user"), 1e-5) > 4.3
        ledger.append(round=10, release="second", observers=["model user"], event=release)
    with pytest.raises(LedgerError, match="record them as one event"):
        read_ledger(path).spent("model user")


def test_two_runs_that_count_rounds_alike_need_ledgers_of_their_own(path: Path) -> None:
    """Their samples are two: where delta is near q, one sample of both would cost nothing."""
    release = Sampled(Gaussian(0.05), Poisson(6e-6))
    with create(path, relation="add-remove", worst_release=release, longest=9) as ledger:
        ledger.append(rounds=range(5), release="update", observers=["model user"], event=release)
        for again in (range(5), range(4, 6), range(2, 3)):
            with pytest.raises(LedgerError, match=f"round {again.start} holds 'update' from a sample already"):
                ledger.append(rounds=again, release="update", observers=["model user"], event=release)
        ledger.append(round=5, release="update", observers=["model user"], event=release)
    with Ledger.open(path) as ledger, pytest.raises(LedgerError, match="round 5"):
        ledger.append(rounds=range(5, 9), release="update", observers=["model user", "outsider"], event=release)
    record = read_ledger(path)
    assert epsilon_of(record.spent("model user"), 1e-5) > 100
    with pytest.raises(InvalidInput, match="observers"):
        record.after(round=7, release="update", observers=[], event=release)
    twice = record.after(rounds=range(3, 9), release="update", observers=["model user"], event=release)
    with pytest.raises(LedgerError, match="numbers of its own"):
        twice.spent("model user")


# Strange contents


def forged(path: Path, head: Path, changes: dict[int, dict[str, Any]]) -> None:
    """The ledger with fields of its lines changed, and every hash made right again."""
    previous, lines = "0" * 64, []
    for number, line in enumerate(path.read_bytes().splitlines()):
        entry = json.loads(line) | changes.get(number, {}) | {"previous": previous}
        entry.pop("hash")
        previous = hashlib.sha256(canonical(entry)).hexdigest()
        lines.append(canonical(entry | {"hash": previous}))
    path.write_bytes(b"\n".join(lines) + b"\n")
    head.write_bytes(json.dumps({"count": len(lines), "hash": previous}).encode())


DEEP: dict[str, Any] = {"kind": "pure", "epsilon": 1.0}
for _ in range(450):
    DEEP = {"kind": "repeated", "event": DEEP, "count": 1}


def release_of(event: Any, observers: Any = ("server",)) -> dict[int, dict[str, Any]]:
    return {1: {"releases": [{"release": "model", "observers": observers, "event": event}]}}


GAUSSIAN = {"kind": "gaussian", "noise_multiplier": 1}
STRANGE: dict[str, tuple[dict[int, dict[str, Any]], str]] = {
    "description": ({0: {"description": None}}, "description"),
    "units": ({0: {"description": {"units": 1.5}}}, "units"),
    "warnings": ({0: {"description": {"warnings": [1]}}}, "warnings"),
    "assumptions": ({0: {"description": {"assumptions": {"server": "all"}}}}, "assumptions"),
    "worst": ({0: {"worst_release": {"server": DEEP}}}, "holds too many others"),
    "worst of nobody": ({0: {"worst_release": {}}}, "worst_release"),
    "longest": ({0: {"longest": 0}}, "longest"),
    "nobody": (release_of(GAUSSIAN, []), "observers"),
    "round": ({1: {"rounds": [0, [1]]}}, "round"),
    "round true": ({1: {"rounds": [0, True]}}, "round"),
    "no rounds": ({1: {"rounds": [3, 3]}}, "rounds"),
    "one round": ({1: {"rounds": 3}}, "int"),
    "list": (release_of([1]), "is not an object"),
    "text": (release_of({"kind": "composed", "events": "abc"}), "is not an object"),
    "sampling": (release_of({"kind": "sampled", "sampling": 0.2, "event": GAUSSIAN}), "cohort"),
    "true": (release_of({"kind": "gaussian", "noise_multiplier": True}), "noise_multiplier"),
    "deep": (release_of(DEEP), "holds too many others"),
}


@pytest.mark.parametrize(("change", "field"), STRANGE.values(), ids=STRANGE)
def test_strange_entries_are_said_to_be_so(
    path: Path, head: Path, written: tuple[bytes, bytes], change: dict[int, dict[str, Any]], field: str
) -> None:
    forged(path, head, {})
    read_ledger(path)
    forged(path, head, change)
    with pytest.raises(LedgerError, match=field):
        read_ledger(path)
