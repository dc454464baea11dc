"""Older copies of a state folder, put back by a backup: what is remembered elsewhere gives them away."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sordino.deploy.conduct import Conduct, TooFewReplies
from sordino.deploy.node import Node
from sordino.deploy.own_account import own_account
from sordino.deploy.places import NodePlace
from sordino.deploy.rollback import MOST_EARLIER, PAIR, pack_start, unpack_start
from sordino.deploy.seam import Reason, Reply
from sordino.deploy.statements import rounds_in
from sordino.deploy.wire import Kind, pack_arrays
from sordino.errors import InvalidInput
from tests.deploy.clinic import CLIENTS, LOCAL, NAMES, Caller, Clinics, body_of
from tests.deploy.ended import is_round, told_by_node, told_by_server
from tests.toys import Killed

pytestmark = pytest.mark.usefixtures("shared_programs", "no_power_cuts")


@pytest.fixture
def clinics(tmp_path: Path) -> Iterator[Clinics]:
    made = Clinics(tmp_path / "all", **CLIENTS)
    made.open_all()
    yield made
    made.close()


class Backup:
    """A copy of folders, as they are now."""

    def __init__(self, *folders: Path) -> None:
        self.folders = {folder: folder.with_name(f"{folder.name}-copy") for folder in folders}
        for folder, copy in self.folders.items():
            shutil.copytree(folder, copy)

    def restore(self) -> None:
        for folder, copy in self.folders.items():
            shutil.rmtree(folder)
            shutil.copytree(copy, folder)


def node_set_back(clinics: Clinics, backup: Backup, name: str, *, counted: bool) -> Node:
    """A node whose folders were restored; with `counted` the number of answered rounds beside its state is lost too."""
    clinics.nodes.pop(name).close()
    backup.restore()
    if counted:
        (clinics.home(name) / f"{name}.count").unlink()
    return clinics.open(name)


def test_a_state_folder_that_lost_rounds_does_not_open(clinics: Clinics) -> None:
    """Nobody else is needed to find it."""
    node, caller = clinics.nodes["east"], Caller(clinics, LOCAL)
    body_of(caller.start(node))
    body_of(caller.round(node, 1))
    backup = Backup(clinics.home("east") / "state")
    body_of(caller.round(node, 2))
    with pytest.raises(InvalidInput, match=r"1 answered rounds, and 2 were counted.*older copy.*newest"):
        node_set_back(clinics, backup, "east", counted=False)
    with pytest.raises(InvalidInput, match="older copy"):
        own_account(NodePlace(clinics.home("east") / "node.toml"))  # it would show more budget than is left


def test_a_damaged_count_is_named(clinics: Clinics) -> None:
    clinics.nodes.pop("east").close()
    (clinics.home("east") / "east.count").write_text("many")
    with pytest.raises(InvalidInput, match=r"east\.count"):
        clinics.open("east")


def test_a_node_that_is_set_back_within_a_study_takes_no_further_part(clinics: Clinics) -> None:
    """Its whole machine is: the server has seen what its ledger has lost."""
    state, west = clinics.home("west") / "state", clinics.nodes["west"].handle
    backups: list[Backup] = []

    def reply(round: int, data: bytes) -> Reply:
        if is_round(data) and round == 2:
            backups.append(Backup(state))
        if is_round(data) and round == 3:
            return node_set_back(clinics, backups[0], "west", counted=True).handle(data)
        return west(data)

    clinics.exchange.broken["west"] = reply
    kept = clinics.run(LOCAL)
    assert [line.missing for line in kept.lines] == [{}, {}, {"west": Reason.OLD_STATE.name}]
    assert [rounds_in(told_by_server(clinics, kept)[name]["rounds"], 3) for name in NAMES] == [(1, 2, 3)] * 2 + [(1, 2)]


def test_a_node_that_is_set_back_between_studies_takes_no_part_in_later_ones(clinics: Clinics) -> None:
    """With its ledgers it would have forgotten what the first study cost."""
    backup = Backup(clinics.home("west") / "state")
    clinics.run(LOCAL, "first")
    node_set_back(clinics, backup, "west", counted=True)
    kept = clinics.run(LOCAL, "second")
    assert [line.missing for line in kept.lines] == [{"west": Reason.OLD_STATE.name}] * 3
    assert clinics.server().resume("first").done == 3  # asks nobody for anything


def test_a_restart_is_no_older_copy(clinics: Clinics) -> None:
    clinics.run(LOCAL, "first")
    for name in NAMES:
        clinics.restart(name)
    kept = clinics.run(LOCAL, "second")
    assert [line.missing for line in kept.lines] == [{}, {}, {}]


def test_a_server_that_is_set_back_behind_its_end_is_told(clinics: Clinics) -> None:
    folder, west = clinics.folder / "server" / "state" / "studies" / "trial", clinics.nodes["west"].handle
    backups: list[Backup] = []

    def reply(round: int, data: bytes) -> Reply:
        if is_round(data) and round == 2 and not backups:
            backups.append(Backup(folder))
        return west(data)

    clinics.exchange.broken["west"] = reply
    clinics.run(LOCAL)
    backups[0].restore()
    with pytest.raises(TooFewReplies, match=r"FINISHED.*older copy"):
        clinics.server().resume("trial")


def test_a_server_that_is_set_back_signs_no_less_than_what_left(
    clinics: Clinics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """East has answered all rounds, the others none; then the server, set back to the first round, goes on with all."""
    folder = clinics.folder / "server" / "state" / "studies" / "trial"
    handles, backups = {name: node.handle for name, node in clinics.nodes.items()}, list[Backup]()

    def alone(name: str) -> Callable[[int, bytes], Reply]:
        def reply(round: int, data: bytes) -> Reply:
            if is_round(data) and round == 2 and not backups:
                backups.append(Backup(folder))
            return Reason.LOST if is_round(data) and name != "east" else handles[name](data)

        return reply

    clinics.exchange.broken = {name: alone(name) for name in NAMES}
    with monkeypatch.context() as patch:
        patch.setattr(Conduct, "_finish", _killed)
        with pytest.raises(Killed):
            clinics.run(LOCAL)
    backups[0].restore()
    clinics.exchange.broken.clear()
    kept = clinics.server().resume("trial")
    counted = told_by_server(clinics, kept)["east"]
    assert {*rounds_in(counted["rounds"], 3), *rounds_in(counted["unusedRounds"], 3)} == {1, 2, 3}
    stated = told_by_node(clinics, kept, "east")
    assert (stated["rounds"], stated["disagreements"]) == ([[1, 3]], [])


def _killed(*_: object) -> None:
    raise Killed


def test_a_server_that_names_an_entry_that_never_was_is_refused(clinics: Clinics) -> None:
    node, caller = clinics.nodes["east"], Caller(clinics, LOCAL)
    never = bytes(range(32))
    body = pack_start(caller.description.data, {caller.description.digest: never.hex()})
    assert caller.ask(node, Kind.START, 0, body) is Reason.OLD_STATE
    body_of(caller.start(node))
    seen, *broadcast = caller.arrays()
    seen = seen.copy()
    seen[0, 0] = 1
    assert caller.ask(node, Kind.ROUND, 1, pack_arrays([seen, *broadcast])) is Reason.OLD_STATE
    seen[0, 0], seen[1, 0] = 0, 1  # of another member
    body_of(caller.ask(node, Kind.ROUND, 1, pack_arrays([seen, *broadcast])))


def test_a_start_is_read_as_it_was_written() -> None:
    pairs = {bytes([n]) * 32: f"{n:02x}" * 32 for n in range(3)}
    assert unpack_start(pack_start(b"about", pairs)) == (b"about", pairs)
    for body in (b"", b"\x01", pack_start(b"about", pairs)[:-1], b"\xff\xff\xff\xff" + bytes(99)):
        with pytest.raises(ValueError, match="lengths"):
            unpack_start(body)
    with pytest.raises(ValueError, match="lengths"):
        unpack_start(bytes(4 + PAIR * (MOST_EARLIER + 1)))
