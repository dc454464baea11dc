"""The ledger never forgets: after any crash or edit it counts at least as much, or says what is wrong."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
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


def create(path: Path) -> Ledger:
    return Ledger.create(
        path,
        unit="client",
        relation="zero-out",
        worst_release=WORST,
        description={"method": "sgd", "rounds": 3},
    )


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
        append(ledger, 4)
    return path.read_bytes(), head_before_last


# What is written is what is read


def test_round_trip(path: Path) -> None:
    with create(path) as ledger:
        ledger.append(round=0, release="client message", observers=[Observer.SERVER, "peer"], event=MESSAGE)
        ledger.append(round=1, release="model", observers=["model_user"], event=MODEL)
    record = read_ledger(path)
    assert (record.unit, record.relation) == (Unit.CLIENT, Relation.ZERO_OUT)
    assert record.description == {"method": "sgd", "rounds": 3}
    assert (record.worst_release, record.recovered) == (dict.fromkeys(Observer, WORST), 0)
    assert [(entry.round, entry.release, entry.event) for entry in record.entries] == [
        (0, "client message", MESSAGE),
        (1, "model", MODEL),
    ]
    assert record.spent("server") == record.spent(Observer.PEER) == Repeated(MESSAGE, 1)
    assert record.spent("model user") == Repeated(MODEL, 1)
    assert record.spent("outsider") == Composed(())


def test_lines_are_canonical_and_chained(path: Path, written: tuple[bytes, bytes]) -> None:
    previous = "0" * 64
    for seq, line in enumerate(written[0].splitlines()):
        entry = json.loads(line)
        assert line == json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()
        assert (entry["seq"], entry["previous"], entry["kind"]) == (
            seq,
            previous,
            "release" if seq else "open",
        )
        previous = entry.pop("hash")
        canonical = json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()
        assert previous == hashlib.sha256(canonical).hexdigest()


def test_open_continues_the_chain(path: Path, written: tuple[bytes, bytes]) -> None:
    with Ledger.open(path) as ledger:
        append(ledger, 5)
    assert path.read_bytes().startswith(written[0])
    assert [entry.round for entry in read_ledger(path).entries] == [0, 1, 2, 3, 4, 5]


@pytest.mark.slow
def test_ten_thousand_equal_releases_are_one_event(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda file: None)  # only to be quick
    with create(path) as ledger:
        for round in range(10_000):
            append(ledger, round)
    assert read_ledger(path).spent("server") == Repeated(MESSAGE, 10_000)


def test_a_description_with_odd_keys_can_be_read_back(path: Path) -> None:
    Ledger.create(
        path, unit="client", relation="zero-out", worst_release=WORST, description={9: "a", 10: "é\n"}
    ).close()
    assert read_ledger(path).description == {"9": "a", "10": "é\n"}


def test_a_description_that_json_cannot_hold_leaves_no_file(path: Path) -> None:
    with pytest.raises(LedgerError, match="give plain JSON values"):
        Ledger.create(path, unit="client", relation="zero-out", worst_release=WORST, description={"a": object()})
    assert list(path.parent.iterdir()) == []


def test_infinite_cost_survives(path: Path) -> None:
    with create(path) as ledger:
        append(ledger, 0, NonPrivate())
        append(ledger, 1, Pure(float("inf")))
    assert read_ledger(path).spent("server") == Composed((Repeated(NonPrivate(), 1), Repeated(Pure(float("inf")), 1)))


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
    ],
)
def test_a_wrong_argument_writes_nothing_and_breaks_nothing(path: Path, change: dict[str, Any]) -> None:
    with create(path) as ledger:
        with pytest.raises(InvalidInput):
            ledger.append(**{"round": 0, "release": "model", "observers": ["server"], "event": MODEL, **change})
        append(ledger, 0)
    assert len(read_ledger(path).entries) == 1


def test_a_misspelt_observer_is_not_told_that_nothing_was_spent(path: Path, written: tuple[bytes, bytes]) -> None:
    with pytest.raises(InvalidInput):
        read_ledger(path).spent("servr")


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


def test_every_changed_byte_is_found(path: Path, written: tuple[bytes, bytes]) -> None:
    data, _ = written
    for position in range(len(data) - 1):
        changed = bytearray(data)
        changed[position] ^= (0x01, 0x20, 0x80)[position % 3]
        path.write_bytes(changed)
        line = data[:position].count(b"\n") + 1
        with pytest.raises(LedgerError, match=f"line {line}:"):
            read_ledger(path)


def test_a_changed_byte_after_the_head_never_lowers_the_cost(
    path: Path, head: Path, written: tuple[bytes, bytes]
) -> None:
    data, head_before_last = written
    full = cost(read_ledger(path))
    head.write_bytes(head_before_last)
    refused = 0
    for position in range(len(data) - 1):
        changed = bytearray(data)
        changed[position] ^= (0x01, 0x20, 0x80)[position % 3]
        path.write_bytes(changed)
        try:
            assert cost(read_ledger(path)) >= full
        except LedgerError:
            refused += 1
    assert refused >= data[:-1].rindex(b"\n")  # all but the last line


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


def test_a_line_that_says_the_same_in_other_bytes_is_found(path: Path, written: tuple[bytes, bytes]) -> None:
    damaged(path, written[0].replace(b'":', b'": ', 1), line=1)
    damaged(path, written[0].replace(b"\n", b"\r\n"), line=1)


def test_a_cheaper_line_with_a_right_hash_is_found(path: Path, written: tuple[bytes, bytes]) -> None:
    lines = written[0].splitlines(keepends=True)
    for here in range(1, len(lines)):
        entry = json.loads(lines[here])
        entry["event"] = {"kind": "gaussian", "noise_multiplier": 99.0}
        del entry["hash"]
        entry["hash"] = hashlib.sha256(json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        forged = json.dumps(entry, sort_keys=True, separators=(",", ":")).encode() + b"\n"
        damaged(path, b"".join([*lines[:here], forged, *lines[here + 1 :]]))


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
    for wrong in (
        b"",
        b"{}",
        b"[]",
        good.replace(b'"count":6', b'"count":7'),
        good.replace(b'"count":6', b'"count":5'),
    ):
        head.write_bytes(wrong)
        damaged(path, written[0])


def test_removed_ledger_is_not_started_again(path: Path, written: tuple[bytes, bytes]) -> None:
    path.unlink()
    for look in (read_ledger, Ledger.open, create):
        with pytest.raises(LedgerError, match="treat the budget as spent"):
            look(path)
    assert not path.exists()


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


# A torn last line is counted


def test_every_tear_of_the_last_line_is_counted(path: Path, head: Path, written: tuple[bytes, bytes]) -> None:
    data, head_before_last = written
    head.write_bytes(head_before_last)
    start = data[:-1].rindex(b"\n") + 1
    path.write_bytes(data[:start])
    before = cost(read_ledger(path))
    for length in range(start + 1, len(data) - 1):
        path.write_bytes(data[:length])
        record = read_ledger(path)
        assert record.recovered == 1
        assert cost(record) - before == pytest.approx(1.0)
        assert cost(record, "outsider") == 1.0


@pytest.mark.parametrize("torn", [b"{", b'{"event":', b"\0" * 40, b"\0" * 40 + b"\n", b"\xff\xfe", b"7"])
def test_a_torn_line_stays_counted(path: Path, head: Path, written: tuple[bytes, bytes], torn: bytes) -> None:
    whole = cost(read_ledger(path))
    path.write_bytes(written[0] + torn)
    assert cost(read_ledger(path)) == pytest.approx(whole + 1)
    assert path.read_bytes() == written[0] + torn  # reading writes nothing
    with Ledger.open(path) as ledger:
        append(ledger, 5, MODEL)
    Ledger.open(path).close()
    record = read_ledger(path)
    assert (record.recovered, record.entries[-2].event, record.entries[-2].round) == (1, WORST, None)
    assert cost(record) == pytest.approx(whole + 1 + PRICE[MODEL])
    assert json.loads(path.read_bytes().splitlines()[-2])["torn_bytes"] == len(torn.rstrip(b"\n"))


def test_a_whole_line_without_newline_counts_as_itself(path: Path, head: Path, written: tuple[bytes, bytes]) -> None:
    data, head_before_last = written
    for known in (head.read_bytes(), head_before_last):
        head.write_bytes(known)
        path.write_bytes(data[:-1])
        assert (read_ledger(path).recovered, len(read_ledger(path).entries)) == (0, 5)
        Ledger.open(path).close()
        assert path.read_bytes() == data


def test_entries_beyond_the_head_count_and_the_head_catches_up(
    path: Path, head: Path, written: tuple[bytes, bytes]
) -> None:
    after = head.read_bytes()
    head.write_bytes(written[1])
    assert len(read_ledger(path).entries) == 5
    Ledger.open(path).close()
    assert head.read_bytes() == after


def test_a_torn_header_means_start_again(path: Path, head: Path) -> None:
    create(path).close()
    data = path.read_bytes()
    for length in range(len(data) - 1):
        path.write_bytes(data[:length])
        head.write_bytes(json.dumps({"count": 0, "hash": "0" * 64}).encode())
        for look in (read_ledger, Ledger.open):
            with pytest.raises(LedgerError, match="line 1: torn header; nothing was released: delete the file"):
                look(path)
    path.unlink()
    with create(path) as ledger:  # the remedy works
        append(ledger, 0)
    assert len(read_ledger(path).entries) == 1


# Crashes and full disks, at every step


class Crash(BaseException):
    """Stands for the end of the process: nothing may catch it."""


def fail_at(monkeypatch: pytest.MonkeyPatch, step: int, failure: BaseException) -> Callable[[], int]:
    """Let the step-th write, fsync or replace fail, a write after half its bytes; tell how many were made."""
    made = 0
    write = os.write

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            nonlocal made
            made += 1
            if made == step:
                if real is write:
                    write(arguments[0], arguments[1][: len(arguments[1]) // 2])
                raise failure
            return real(*arguments)

        return call

    for name in ("write", "fsync", "replace"):
        monkeypatch.setattr(os, name, failing(getattr(os, name)))
    return lambda: made


@pytest.mark.parametrize("step", range(1, 6))
@pytest.mark.parametrize("failure", [Crash(), OSError(errno.ENOSPC, "No space left on device")])
def test_append_that_fails_at_any_step(path: Path, step: int, failure: BaseException) -> None:
    ledger = create(path)
    append(ledger, 0)
    with pytest.MonkeyPatch.context() as patch:
        fail_at(patch, step, failure)
        with pytest.raises((Crash, LedgerError)) as caught:
            append(ledger, 1)
    assert isinstance(caught.value, LedgerError) == isinstance(failure, OSError)
    found = read_ledger(path)
    assert cost(found) >= PRICE[MESSAGE]
    with pytest.raises(LedgerError, match="an append failed"):
        append(ledger, 1)
    ledger.close()
    with Ledger.open(path) as again:
        append(again, 2)
    assert cost(read_ledger(path)) == pytest.approx(cost(found) + PRICE[MESSAGE])


def test_append_has_the_five_steps_that_can_fail(path: Path) -> None:
    with create(path) as ledger, pytest.MonkeyPatch.context() as patch:
        steps = fail_at(patch, 0, Crash())
        append(ledger, 0)
        assert steps() == 5


@pytest.mark.parametrize("step", range(1, 12))
@pytest.mark.parametrize("failure", [Crash(), OSError(errno.ENOSPC, "No space left on device")])
def test_creation_that_fails_at_any_step_can_be_repeated_or_continued(
    path: Path, step: int, failure: BaseException
) -> None:
    """Nothing was released: the next attempt must find no ledger, or a whole one."""
    with pytest.MonkeyPatch.context() as patch:
        steps = fail_at(patch, step, failure)
        with pytest.raises((Crash, LedgerError)):
            create(path)
        assert steps() == step
    with Ledger.open(path) if path.exists() else create(path) as ledger:
        append(ledger, 0)
    found = read_ledger(path)
    assert (len(found.entries), found.recovered) == (1, 0)


def test_creation_has_the_eleven_steps_that_can_fail(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        steps = fail_at(patch, 0, Crash())
        create(path).close()
        assert steps() == 11


@pytest.mark.parametrize("step", range(1, 9))
def test_repair_that_crashes_at_any_step(path: Path, written: tuple[bytes, bytes], step: int) -> None:
    path.write_bytes(written[0] + b'{"event":{"kind"')
    torn = cost(read_ledger(path))
    with pytest.MonkeyPatch.context() as patch:
        steps = fail_at(patch, step, Crash())
        with pytest.raises(Crash):
            Ledger.open(path)
        assert steps() == step
    assert cost(read_ledger(path)) == pytest.approx(torn)
    Ledger.open(path).close()
    assert (cost(read_ledger(path)), read_ledger(path).recovered) == (pytest.approx(torn), 1)


def test_the_line_is_synced_before_the_head_and_both_before_append_returns(
    path: Path, head: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, str, int]] = []  # what, to which file, and how long the ledger was
    fsync, replace = os.fsync, os.replace

    def recording_fsync(file: int) -> None:
        fsync(file)
        steps.append(("fsync", os.path.basename(os.readlink(f"/proc/self/fd/{file}")), path.stat().st_size))

    def recording_replace(source: Path, target: Path) -> None:
        steps.append(("replace", Path(target).name, path.stat().st_size))
        replace(source, target)

    with create(path) as ledger:
        monkeypatch.setattr(os, "fsync", recording_fsync)
        monkeypatch.setattr(os, "replace", recording_replace)
        append(ledger, 0)
        size = path.stat().st_size
        assert steps == [
            ("fsync", path.name, size),
            ("fsync", f"{head.name}.tmp", size),
            ("replace", head.name, size),
        ]


def test_creation_syncs_the_directory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}")))
    create(path).close()
    assert str(path.parent.resolve()) in synced


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
    assert read_ledger(path).spent("server") == Repeated(MESSAGE, 80)


@pytest.mark.filterwarnings("ignore:os.fork", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_forked_child_may_not_append(path: Path) -> None:
    with create(path) as ledger:
        child = os.fork()
        if child == 0:
            try:
                append(ledger, 0)
            except LedgerError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        append(ledger, 0)
    assert len(read_ledger(path).entries) == 1


WRITER = """
import sys
from sordino.privacy.events import Gaussian
from sordino.privacy.ledger import Ledger
ledger = Ledger.open(sys.argv[1])
for round in range(int(sys.argv[2]), 10**9):
    ledger.append(round=round, release="client message", observers=["server"], event=Gaussian(4.0))
    print(round, flush=True)
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
        rounds = [entry.round for entry in record.entries]
        assert printed <= set(rounds)
        assert len(rounds) <= len(printed) + life + 1  # at most one more for each death
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


def test_a_torn_release_of_a_sampled_round_is_not_cheaper_than_a_whole_one(path: Path) -> None:
    """Both releases of the round are about one sample and so are joint: a crash must not improve the figure."""
    release = Sampled(Gaussian(1.0), Poisson(0.01))
    with Ledger.create(path, unit="client", relation="add-remove", worst_release=release) as ledger:
        ledger.append(round=0, release="update", observers=["model user"], event=release)
        head = path.with_name(path.name + ".head").read_bytes()
        ledger.append(round=0, release="step size", observers=["model user"], event=release)
    whole = epsilon_of(read_ledger(path).spent("model user"), 1e-5)
    path.write_bytes(path.read_bytes()[:-20])
    path.with_name(path.name + ".head").write_bytes(head)
    record = read_ledger(path)
    assert record.recovered == 1
    assert epsilon_of(record.spent("model user"), 1e-5) >= whole > 0.8


WRAPPED = [lambda e: Composed((e,)), lambda e: Repeated(e, 1), lambda e: Assumed("a", "client", e)]


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_releases_from_one_sample_are_joint_or_refused(path: Path, wrapped: Callable[[Event], Event]) -> None:
    """Four releases about one sample of 1 % cost 4.4 over ten rounds; one by one they would seem to cost 0.5."""
    release = Sampled(Gaussian(1.0), Poisson(0.01))
    with Ledger.create(path, unit="client", relation="add-remove", worst_release=release) as ledger:
        for round in range(10):
            for part in range(4):
                ledger.append(round=round, release=f"part {part}", observers=["model user"], event=release)
        assert epsilon_of(read_ledger(path).spent("model user"), 1e-5) > 4.3
        ledger.append(round=10, release="first", observers=["model user"], event=wrapped(release))
        assert epsilon_of(read_ledger(path).spent("model user"), 1e-5) > 4.3
        ledger.append(round=10, release="second", observers=["model user"], event=release)
    with pytest.raises(LedgerError, match="record them as one event"):
        read_ledger(path).spent("model user")


def test_two_runs_that_count_rounds_alike_need_ledgers_of_their_own(path: Path) -> None:
    """Their samples are two: where delta is near q, one sample of both would cost nothing."""
    release = Sampled(Gaussian(0.05), Poisson(6e-6))
    with Ledger.create(path, unit="client", relation="add-remove", worst_release=release) as ledger:
        ledger.append(round=0, release="update", observers=["model user"], event=release)
        with pytest.raises(LedgerError, match="round 0 holds 'update' from a sample already"):
            ledger.append(round=0, release="update", observers=["model user"], event=release)
        ledger.append(round=1, release="update", observers=["model user"], event=release)
    with Ledger.open(path) as ledger, pytest.raises(LedgerError, match="round 1"):
        ledger.append(round=1, release="update", observers=["model user", "outsider"], event=release)
    record = read_ledger(path)
    assert epsilon_of(record.spent("model user"), 1e-5) > 100
    with pytest.raises(InvalidInput, match="name at least one"):
        record.after(round=2, release="update", observers=[], event=release)
    twice = record.after(round=1, release="update", observers=["model user"], event=release)
    with pytest.raises(LedgerError, match="numbers of its own"):
        twice.spent("model user")


def test_a_torn_line_counts_for_each_observer_as_what_it_would_have_seen(path: Path, head: Path) -> None:
    """A server sees everything here, a model user a private sample; of peers and outsiders nothing is known."""
    sample = Sampled(Gaussian(1.0), Poisson(0.1))
    worst = {Observer.SERVER: NonPrivate(), Observer.MODEL_USER: sample}
    with Ledger.create(path, unit="client", relation="add-remove", worst_release=worst) as ledger:
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
        Ledger.open(path).close()


def test_a_torn_line_tells_nothing_of_whom_no_release_names(path: Path, head: Path) -> None:
    """A peer sees more than this ledger knows: one torn line is not all that it has seen."""
    with create(path) as ledger:
        append(ledger, 0, MODEL, observers=("server", "model user"))
    with path.open("ab") as file:
        file.write(b"{")
    named = {each.observer for each in certify_ledger(read_ledger(path), 1e-5).guarantees}
    assert named == {Observer.SERVER, Observer.MODEL_USER}


def test_a_torn_line_that_fits_no_sample_is_counted_beside(path: Path) -> None:
    """Joined with the round being written it would be refused, and the ledger with it."""
    sample = Sampled(Gaussian(1.0), Poisson(0.1))
    other = Sampled(Gaussian(1.0), Poisson(0.2))
    for number, released in enumerate((Assumed("a", "client", sample), other)):
        torn = path.with_name(str(number))
        with Ledger.create(torn, unit="client", relation="add-remove", worst_release=sample) as ledger:
            ledger.append(round=0, release="model", observers=["model user"], event=released)
        alone = epsilon_of(read_ledger(torn).spent("model user"), 1e-5)
        with torn.open("ab") as file:
            file.write(b"[" * 200_000)
        assert epsilon_of(read_ledger(torn).spent("model user"), 1e-5) > alone


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


@pytest.mark.parametrize(
    "description",
    [{"units": 3.0}, {"warnings": ["x"]}, {"assumptions": ["x"]}, {"assumptions": {"server": "x"}}],
)
def test_a_description_that_could_not_be_read_leaves_no_file(path: Path, description: dict[str, Any]) -> None:
    (field,) = description
    with pytest.raises(LedgerError, match=f"{field} = .*: must be"):
        Ledger.create(path, unit="client", relation="zero-out", worst_release=WORST, description=description)
    assert not path.exists()


def test_only_observers_with_a_worst_release_may_see_one(path: Path) -> None:
    with pytest.raises(LedgerError, match="worst_release"):
        Ledger.create(path, unit="client", relation="zero-out", worst_release={})
    with Ledger.create(path, unit="client", relation="zero-out", worst_release={Observer.SERVER: WORST}) as ledger:
        append(ledger, 0, MODEL)
        with pytest.raises(InvalidInput, match="peer"):
            append(ledger, 1, MODEL, observers=("server", "peer"))
    assert cost(read_ledger(path)) == PRICE[MODEL]


def test_an_event_that_holds_too_many_others_is_refused(path: Path) -> None:
    deep: Event = MODEL
    for _ in range(600):
        deep = Repeated(deep, 1)
    with create(path) as ledger, pytest.raises(InvalidInput, match="event"):
        append(ledger, 0, deep)


def forged(path: Path, head: Path, changes: dict[int, dict[str, Any]]) -> None:
    """The ledger with fields of its lines changed, and every hash made right again."""
    previous, lines = "0" * 64, []
    for number, line in enumerate(path.read_bytes().splitlines()):
        entry = json.loads(line) | changes.get(number, {}) | {"previous": previous}
        entry.pop("hash")
        canonical = json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()
        previous = hashlib.sha256(canonical).hexdigest()
        lines.append(json.dumps(entry | {"hash": previous}, sort_keys=True, separators=(",", ":")).encode())
    path.write_bytes(b"\n".join(lines) + b"\n")
    head.write_bytes(json.dumps({"count": len(lines), "hash": previous}).encode())


DEEP: dict[str, Any] = {"kind": "pure", "epsilon": 1.0}
for _ in range(450):
    DEEP = {"kind": "repeated", "event": DEEP, "count": 1}

STRANGE: dict[str, tuple[dict[int, dict[str, Any]], str]] = {
    "description": ({0: {"description": None}}, "description = None: must be an object"),
    "units": ({0: {"description": {"units": 1.5}}}, "units = 1.5: must be a whole number"),
    "warnings": ({0: {"description": {"warnings": [1]}}}, "warnings = [1]: must be pairs"),
    "assumptions": ({0: {"description": {"assumptions": {"server": "all"}}}}, "must be lists of texts by observer"),
    "worst": ({0: {"worst_release": {"server": DEEP}}}, "an event holds too many others"),
    "worst of nobody": ({0: {"worst_release": {}}}, "worst_release = {}: name what each observer may see"),
    "nobody": ({1: {"observers": []}}, "observers = (): name at least one"),
    "round": ({1: {"round": [0]}}, "round = [0]: must be a whole number"),
    "round true": ({1: {"round": True}}, "round = True: must be a whole number"),
    "list": ({1: {"event": [1]}}, "event [1] is no object"),
    "text": ({1: {"event": {"kind": "composed", "events": "abc"}}}, "event 'a' is no object"),
    "sampling": (
        {1: {"event": {"kind": "sampled", "sampling": 0.2, "event": {"kind": "gaussian", "noise_multiplier": 1}}}},
        "sampling = '0.2': use full, poisson:Q",
    ),
    "true": ({1: {"event": {"kind": "gaussian", "noise_multiplier": True}}}, "noise_multiplier = True is no number"),
    "deep": ({1: {"event": DEEP}}, "an event holds too many others"),
}


@pytest.mark.parametrize(("change", "said"), STRANGE.values(), ids=STRANGE)
def test_strange_entries_are_said_to_be_so(
    path: Path, head: Path, written: tuple[bytes, bytes], change: dict[int, dict[str, Any]], said: str
) -> None:
    forged(path, head, {})
    read_ledger(path)
    forged(path, head, change)
    with pytest.raises(LedgerError, match=re.escape(said)):
        read_ledger(path)
