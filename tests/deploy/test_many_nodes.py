"""Twenty real SuperNodes on this machine, of which three are killed: docs/reliability.md has the figures."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from sordino.deploy.both_sides import compare
from sordino.deploy.flower.session import session
from sordino.deploy.node_study import LEDGER, entries_of
from sordino.deploy.seam import Reason
from sordino.deploy.statements import certificate_in, rounds_in
from sordino.deploy.wire import Kind
from sordino.privacy.ledger import read_ledger
from sordino.privacy.signing import read_verifying_key
from tests.deploy.clinic import CLIENTS, LOCAL, Clinics
from tests.deploy.ended import lines_of, study_of_node, told_by_server
from tests.deploy.loopback import Handle, Loopback, eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("flower"),
    pytest.mark.usefixtures("shared_programs", "no_power_cuts"),
]

NAMES = tuple(f"clinic{n:02d}" for n in range(20))
ROUNDS = 5
STUDY = LOCAL.replace("rounds = 3", f"rounds = {ROUNDS}")
SEED = 0
POLL = 1.0  # seconds between two questions of a SuperNode: twenty that ask ten times a second keep both cores busy
DEADLINE = 60.0  # a round in which a node is killed takes so long
LONGEST_START = 300.0  # seconds until twenty processes have signed in


@pytest.fixture
def loopback(tmp_path: Path) -> Iterator[Loopback]:
    it = Loopback.start(tmp_path)
    yield it
    it.end()


def killed_in(round: int, kill: threading.Timer, handle: Handle) -> Handle:
    """A node whose SuperNode is killed a moment after it has received the request of a round."""

    def answer(request: bytes) -> bytes:
        asked = (request[6], int.from_bytes(request[40:44], "little"))
        if asked == (Kind.ROUND, round) and kill.ident is None:
            kill.start()
        return handle(request)

    return answer


def test_twenty_nodes_of_which_three_are_killed(loopback: Loopback, tmp_path: Path) -> None:
    draws, clinics = (
        random.Random(SEED),
        Clinics(tmp_path / "all", NAMES, (5,) * len(NAMES), deadline=DEADLINE, **CLIENTS),
    )
    clinics.open_all()
    victims = {name: (draws.randint(1, ROUNDS), draws.uniform(0.0, 0.3)) for name in draws.sample(NAMES, 3)}
    for name in NAMES:
        handle: Handle = clinics.nodes[name].handle
        if name in victims:
            round, moment = victims[name]
            handle = killed_in(round, threading.Timer(moment, loopback.kill_node, [name]), handle)
        loopback.start_node(name, clinics.home(name) / "node.key", handle, POLL)
    with session(loopback.link, loopback.secret) as exchange:
        eventually(lambda: exchange.nodes() == NAMES, LONGEST_START)
        kept = clinics.server(exchange).begin(clinics.write_study(STUDY), "trial")
    clinics.close()
    lines, told, plan = lines_of(kept.folder), told_by_server(clinics, kept), kept.study.plan
    assert len(lines) == ROUNDS
    survivors = set(NAMES) - victims.keys()
    assert all(survivors <= line["used"].keys() for line in lines)
    assert {name for line in lines for name in line["missing"]} <= victims.keys()
    assert {why for line in lines for why in line["missing"].values()} <= {Reason.SILENT.name, Reason.LOST.name}
    key = read_verifying_key(clinics.folder / "server" / "server.key.pub")
    sides = compare(kept.folder, key, {name: clinics.home(name) / "state" for name in NAMES})
    for i, account in enumerate(sides.accounts):
        entries = entries_of(read_ledger(study_of_node(clinics, kept, account.name) / LEDGER))
        counted = {*rounds_in(told[account.name]["rounds"], ROUNDS)}
        counted |= {*rounds_in(told[account.name]["unusedRounds"], ROUNDS)}
        assert entries.keys() <= counted  # also of a node that was killed: what may have left is counted
        assert certificate_in(told[account.name]) == plan.certificate(i, len(counted))
        if account.name in survivors:
            assert (account.faults, account.signed, account.answered) == ((), True, tuple(range(1, ROUNDS + 1)))
            assert account.certificate == plan.certificate(i, ROUNDS)
