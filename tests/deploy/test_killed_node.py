"""A node in a process of its own, ended by SIGKILL at random moments: what left is in its ledger, and left once."""

from __future__ import annotations

import json
import logging
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from sordino.deploy.node import Node
from sordino.deploy.node_study import ANSWERS, LEDGER, Answer, entries_of
from sordino.deploy.rollback import pack_start
from sordino.deploy.statements import NODE_STATEMENT, Used, certificate_in
from sordino.deploy.wire import Kind, pack_arrays
from sordino.privacy.ledger import read_ledger
from sordino.privacy.signing import verify
from tests.deploy.clinic import CLIENT_STUDY, Caller, Clinics, answer_of, body_of

ROUNDS = 1000
STUDY = CLIENT_STUDY.replace("rounds = 3", f"rounds = {ROUNDS}") + 'trust = "local"\nnoise_multiplier = 20.0\n'
RULES = {"unit": "client", "relation": "zero-out", "most_rounds": ROUNDS}

CONTEXT = multiprocessing.get_context("forkserver")  # one process imports everything, each node is a fork of it
CONTEXT.set_forkserver_preload(["sordino.deploy.node", "tests.deploy.test_killed_node"])


def serve(path: Path, pipe: Connection) -> None:
    """A node that answers what comes through a pipe."""
    logging.disable(logging.CRITICAL)
    with Node.read(path) as node:
        pipe.send_bytes(b"open")
        while True:
            pipe.send_bytes(node.handle(pipe.recv_bytes()))


class Victim:
    """The process of a node."""

    def __init__(self, path: Path) -> None:
        self.pipe, end = CONTEXT.Pipe()
        self.process: ForkServerProcess = CONTEXT.Process(target=serve, args=(path, end), daemon=True)
        self.process.start()
        end.close()
        assert self.pipe.recv_bytes() == b"open"

    def ask(self, request: bytes) -> bytes:
        self.pipe.send_bytes(request)
        return self.pipe.recv_bytes()

    def killed(self, request: bytes, after: float) -> bytes | None:
        """Send a request, kill the process a moment later -> the reply, where it was sent by then."""
        self.pipe.send_bytes(request)
        time.sleep(after)
        self.process.kill()
        self.process.join()
        try:
            return self.pipe.recv_bytes() if self.pipe.poll() else None
        except (EOFError, OSError):  # the end came first
            return None


@pytest.fixture
def clinics(tmp_path: Path) -> Iterator[Clinics]:
    made = Clinics(tmp_path, **RULES)
    yield made
    made.close()


@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_a_node_that_is_killed_at_random_moments(kills: int, clinics: Clinics) -> None:
    """Its server asks for a round until it has the answer; then for the next one, within which the node is killed."""
    caller, draws, home = Caller(clinics, STUDY), random.Random(kills), clinics.home("east")
    requests = {
        n: caller.request(Kind.ROUND, n, pack_arrays(caller.arrays(0.01 * n, n))) for n in range(1, 2 * kills + 2)
    }
    folder = home / "state" / "studies" / caller.description.digest.hex()
    received: dict[int, bytes] = {}
    seen: Counter[str] = Counter()
    round, stored = 1, None
    for _ in range(kills):
        victim = Victim(home / "node.toml")
        body_of(answer_of(victim.ask(caller.request(Kind.START, 0, pack_start(caller.description.data, {})))))
        if round > 1 and stored is None and draws.random() < 0.5:
            assert body_of(answer_of(victim.ask(requests[round - 1]))) == received[round - 1]
        received[round] = body_of(answer_of(victim.ask(requests[round])))
        assert stored is None or received[round][32:] == stored[32:]  # no second noise
        round += 1
        reply = victim.killed(requests[round], draws.uniform(0.0, 0.02))
        entries, stored = entries_of(read_ledger(folder / LEDGER)), None
        if reply is not None:
            received[round] = body_of(answer_of(reply))
            seen["answered"] += 1
        elif round in entries:
            stored = Answer.read(folder / ANSWERS / f"{round:07d}.npz").update
            seen["entered, not sent"] += 1
        else:
            seen["not entered"] += 1
        assert all(entries[n] == body[:32].hex() for n, body in received.items())  # the ledger has all that left
        round += reply is not None
    node = clinics.open("east")
    if stored is not None:  # the server asks again for what was on its way
        received[round] = body_of(answer_of(node.handle(requests[round])))
        assert received[round][32:] == stored[32:]
    used = Used(tuple(received), received[max(received)][:32].hex())
    statement = json.loads(body_of(caller.finish(node, "east", used, max(received))))
    predicate = verify(statement, node.key.public, NODE_STATEMENT)["predicate"]
    assert predicate["disagreements"] == []
    counted = len(entries_of(read_ledger(folder / LEDGER))) + predicate["tornRounds"]
    assert counted >= len(received) == max(received)
    assert certificate_in(predicate) == caller.study.plan.certificate(0, counted)
    assert kills < 50 or len(seen) == 3, seen
