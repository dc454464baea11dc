"""What happens to a node's machine: a full disk, locks, clocks that are off, files that are lost or edited."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from errno import ENOSPC
from pathlib import Path

import numpy as np
import pytest

from sordino.deploy.node import REGISTER, Node
from sordino.deploy.node_study import ANSWERS, LEDGER
from sordino.deploy.seam import Reason
from sordino.deploy.statements import rounds_in
from sordino.deploy.wire import Frame
from sordino.errors import InvalidInput, LedgerInUse, SordinoError
from sordino.privacy.ledger import Ledger, read_ledger
from tests.deploy.clinic import CLIENTS, LOCAL, NAMES, Caller, Clinics, body_of
from tests.deploy.ended import told_by_node
from tests.deploy.faults import Steps

pytestmark = pytest.mark.usefixtures("shared_programs", "no_power_cuts")

FULL = OSError(ENOSPC, "No space left on device")
LONG = LOCAL.replace("rounds = 3", "rounds = 60").replace("epsilon = 8.0", "epsilon = 50.0")


@pytest.fixture
def clinics(tmp_path: Path) -> Iterator[Clinics]:
    made = Clinics(tmp_path / "all", **CLIENTS)
    yield made
    made.close()


def begun(clinics: Clinics, rounds: int, text: str = LOCAL) -> tuple[Node, Caller, list[bytes]]:
    """A node that has answered some rounds."""
    node, caller = clinics.open("east"), Caller(clinics, text)
    body_of(caller.start(node))
    return node, caller, [body_of(caller.round(node, round)) for round in range(1, rounds + 1)]


def folder_of(clinics: Clinics, caller: Caller) -> Path:
    return clinics.home("east") / "state" / "studies" / caller.description.digest.hex()


def entered(clinics: Clinics, caller: Caller) -> int:
    return read_ledger(folder_of(clinics, caller) / LEDGER).rounds()


# --- A full disk -----------------------------------------------------------------------------------------------------


def test_a_full_disk_releases_nothing_and_passes(clinics: Clinics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Full at each durable step of a round in turn; then there is room again."""
    node, caller, received = begun(clinics, 1, LONG)
    step, refused = 0, True
    while refused:
        step += 1
        round = len(received) + 1
        with monkeypatch.context() as patch:
            Steps(patch, step, error=FULL)
            answer = caller.round(node, round)
        refused = answer is Reason.STORAGE
        assert refused or isinstance(answer, Frame)
        assert entered(clinics, caller) in (len(received), round)
        received.append(body_of(caller.round(node, round)))
        assert entered(clinics, caller) == round
        assert body_of(caller.round(node, round)) == received[-1]
    assert step >= 4  # the answer, the ledger's line, its head


def test_an_answer_that_was_entered_before_the_disk_was_full_counts_against_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head of one study's ledger cannot be written: its message has not left, and another study asks for more."""
    clinics = Clinics(tmp_path / "all", **CLIENTS, epsilon=8.1)
    node, first, _ = begun(clinics, 0)
    second = Caller(clinics, LOCAL)
    body_of(second.start(node))
    with monkeypatch.context() as patch:
        patch.setattr("sordino.privacy.ledger._write_head", _full)
        assert first.round(node, 1) is Reason.STORAGE
    answers = [second.round(node, round) for round in (1, 2, 3)]
    assert [isinstance(each, Frame) for each in answers] == [True, True, False]
    assert answers[2] is Reason.BUDGET
    body_of(first.round(node, 1))
    assert entered(clinics, first) + entered(clinics, second) == 3
    clinics.close()


def _full(*_: object) -> None:
    raise FULL


def test_a_small_disk_that_fills_up(clinics: Clinics, tmp_path: Path) -> None:
    """A file system of 64 KiB, where one may be mounted."""
    state = clinics.home("east") / "state"
    state.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", state]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        node, caller, received = begun(clinics, 0, LONG)
        while isinstance(answer := caller.round(node, len(received) + 1), Frame):
            received.append(answer.body)
        assert answer is Reason.STORAGE
        assert caller.round(node, len(received) + 1) is Reason.STORAGE
        assert entered(clinics, caller) >= len(received) > 3
        subprocess.run(["mount", "-o", "remount,size=1m", state], check=True)
        received.append(body_of(caller.round(node, len(received) + 1)))
        assert entered(clinics, caller) + read_ledger(folder_of(clinics, caller) / LEDGER).recovered >= len(received)
    finally:
        clinics.close()
        subprocess.run(["umount", state], check=True)


def test_a_study_goes_on_without_a_node_whose_disk_is_full(clinics: Clinics, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node may have entered what it could not send: both sides count it, and nobody accuses the other."""
    clinics.open_all()
    west = clinics.nodes["west"].handle

    def reply(round: int, data: bytes) -> bytes:
        with monkeypatch.context() as patch:
            if round == 2:
                patch.setattr("sordino.privacy.ledger._write_head", _full)
            return west(data)

    clinics.exchange.broken["west"] = reply
    kept = clinics.run(LOCAL)
    assert [line.missing for line in kept.lines] == [{}, {"west": "STORAGE"}, {}]
    stated = told_by_node(clinics, kept, "west")
    assert list(rounds_in(stated["rounds"], 3)) == [1, 2, 3]
    assert stated["disagreements"] == []


# --- Locks -----------------------------------------------------------------------------------------------------------


def test_two_nodes_on_one_state_folder(clinics: Clinics) -> None:
    begun(clinics, 1)
    with pytest.raises(InvalidInput, match=r"state.*another process uses it"):
        Node.read(clinics.home("east") / "node.toml")


def test_a_ledger_that_another_process_holds(clinics: Clinics, monkeypatch: pytest.MonkeyPatch) -> None:
    node, caller, _ = begun(clinics, 1)
    with monkeypatch.context() as patch:
        Steps(patch, 1, error=FULL)
        assert caller.round(node, 2) is Reason.STORAGE  # the node lets go of the ledger
    path = folder_of(clinics, caller) / LEDGER
    with Ledger.open(path):
        assert caller.round(node, 2) is Reason.BUSY
    body_of(caller.round(node, 2))
    clinics.close()
    with Ledger.open(path), pytest.raises(LedgerInUse):
        clinics.open("east")
    assert entered(clinics, caller) == 2


# --- Clocks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("off", [-3600.0, 3600.0], ids=["an hour behind", "an hour ahead"])
def test_a_clock_that_is_an_hour_off(off: float, tmp_path: Path) -> None:
    """The node is started anew with a clock that another hour is off: it goes on, and counts everything."""
    clinics = Clinics(tmp_path / "all", **CLIENTS, epsilon=8.1)
    clinics.open_all()
    for name in ("east", "west"):
        clinics.restart(name, clock=lambda: time.time() + off)

    def reply(round: int, data: bytes) -> bytes:
        if round == 2 and "restarted" not in seen:
            seen.append("restarted")
            clinics.restart("west", clock=lambda: time.time() - off)
        return clinics.nodes["west"].handle(data)

    seen: list[str] = []
    clinics.exchange.broken["west"] = reply
    kept = clinics.run(LOCAL)
    assert [line.missing for line in kept.lines] == [{}, {}, {}]
    for name in NAMES:
        assert told_by_node(clinics, kept, name)["rounds"] == [[1, 3]]
        caller = Caller(clinics, LOCAL)
        if name == "east":
            assert caller.start(clinics.nodes[name]) is Reason.BUDGET  # all three rounds count
    clinics.close()


def test_a_clock_that_was_never_set(clinics: Clinics) -> None:
    """A computer without a battery wakes up in 1970: nothing is released before its clock is set."""
    _, caller, _ = begun(clinics, 1)
    node = clinics.restart("east", clock=lambda: 60.0)
    assert caller.round(node, 2) is Reason.CLOCK
    body_of(caller.round(clinics.restart("east"), 2))


# --- Lost and edited files -------------------------------------------------------------------------------------------


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def edit(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


def another_state(state: Path, study: Path) -> None:
    """Somebody swaps the ledgers of two studies."""
    (other,) = (each for each in study.parent.iterdir() if each != study)
    for name in (LEDGER, LEDGER + ".head"):
        (study / name).write_bytes((other / name).read_bytes())


def last_answer(study: Path) -> Path:
    return max((study / ANSWERS).glob("*.npz"))


DAMAGE: dict[str, Callable[[Path, Path], object]] = {  # state folder, study folder
    "no ledger": lambda state, study: (study / LEDGER).unlink(),
    "no head": lambda state, study: (study / f"{LEDGER}.head").unlink(),
    "ledger without its last line": lambda state, study: cut(
        study / LEDGER, (study / LEDGER).read_bytes()[:-1].rfind(b"\n") + 1
    ),
    "edited cost": lambda state, study: edit(study / LEDGER, b'"rounds":[1,2]', b'"rounds":[7,8]'),
    "edited head": lambda state, study: edit(study / f"{LEDGER}.head", b'"count":3', b'"count":1'),
    "another study's ledger": another_state,
    "no study": lambda state, study: shutil.rmtree(study),
    "no description": lambda state, study: (study / "description.json").unlink(),
    "edited description": lambda state, study: edit(study / "description.json", b"rounds = 3", b"rounds = 4"),
    "no answer": lambda state, study: last_answer(study).unlink(),
    "half an answer": lambda state, study: cut(last_answer(study), 100),
    "an earlier answer": lambda state, study: shutil.copy(min((study / ANSWERS).glob("*.npz")), last_answer(study)),
    "no register": lambda state, study: (state / REGISTER).unlink(),
    "edited register": lambda state, study: (state / REGISTER).write_text("[]"),
    "broken register": lambda state, study: (state / REGISTER).write_text("{"),
    "register with another study": lambda state, study: (state / REGISTER).write_text(json.dumps(["f" * 64])),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_node_does_not_start_on_files_that_were_lost_or_edited(
    damage: Callable[[Path, Path], object], clinics: Clinics
) -> None:
    node, caller, _ = begun(clinics, 2)
    other = Caller(clinics, LOCAL)
    body_of(other.start(node))
    body_of(other.round(node, 1))
    clinics.close()
    state, study = clinics.home("east") / "state", folder_of(clinics, caller)
    damage(state, study)
    with pytest.raises(SordinoError, match=r"(?s)state.*(restore|another study)"):
        clinics.open("east")


def test_records_that_are_gone(clinics: Clinics) -> None:
    begun(clinics, 1)
    clinics.close()
    (clinics.home("east") / "records.npz").unlink()
    with pytest.raises(InvalidInput, match=r"\[data\] file"):
        clinics.open("east")


def test_a_stored_state_of_other_shapes_is_not_used(clinics: Clinics) -> None:
    """An answer that was put there by hand, as one of another study."""
    node, caller, _ = begun(clinics, 2)
    clinics.close()
    path = last_answer(folder_of(clinics, caller))
    with np.load(path) as kept:
        arrays = dict(kept)
    np.savez(path, **arrays | {"leaves": np.int64(1), "leaf0": np.zeros(3)})
    node = clinics.open("east")
    assert caller.round(node, 3) is Reason.FAILED
    assert entered(clinics, caller) == 2


def test_a_torn_ledger_line_is_no_damage(clinics: Clinics) -> None:
    """It counts as a round, though nothing has left."""
    _, caller, _ = begun(clinics, 1)
    clinics.close()
    with (folder_of(clinics, caller) / LEDGER).open("ab") as file:
        file.write(b'{"event":{"ki')
    node = clinics.open("east")
    body_of(caller.round(node, 2))
    record = read_ledger(folder_of(clinics, caller) / LEDGER)
    assert (record.rounds(), record.recovered) == (2, 1)
