"""Which requests a node answers: its server's alone, in their order, within its budget, and without its own words."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from sordino.deploy.seam import Reason
from sordino.deploy.statements import Used, server_statement
from sordino.deploy.study import LONGEST_DESCRIPTION
from sordino.deploy.wire import Frame, Kind, pack_arrays
from sordino.privacy.signing import SigningKey, sign
from tests.deploy.clinic import (
    CLIENTS,
    LOCAL,
    Caller,
    Clinics,
    answer_of,
    body_of,
    ledgers,
    one_node,
)

pytestmark = pytest.mark.usefixtures("shared_programs", "no_power_cuts")

STRANGER = SigningKey(ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32))))


# --- Who asks, and for what ------------------------------------------------------------------------------------------


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_what_the_server_did_not_sign_is_not_answered(tmp_path: Path) -> None:
    """Not even by a refusal: signed words could be played to the server."""
    clinics, node, caller = one_node(tmp_path)
    body_of(caller.start(node))
    body = pack_arrays(caller.arrays())
    assert caller.ask(node, Kind.ROUND, 1, body, key=STRANGER) is None
    good, other = caller.request(Kind.ROUND, 1, body), caller.request(Kind.ROUND, 2, body)
    spliced = good[:40] + other[40:44] + good[44:]  # the round of another request
    for data in (b"", b"garbage", bytes(200), good[:-1], good + b"x", good[:30], spliced):
        assert node.handle(data) == b""
    assert ledgers(clinics) == 0
    clinics.close()


def test_any_flipped_byte_of_a_request_is_refused(tmp_path: Path) -> None:
    clinics, node, caller = one_node(tmp_path)
    body_of(caller.start(node))
    data = caller.request(Kind.ROUND, 1, pack_arrays(caller.arrays()))
    assert {node.handle(flipped(data, at)) for at in range(len(data))} == {b""}
    assert ledgers(clinics) == 0
    body_of(answer_of(node.handle(data)))
    clinics.close()


def test_a_request_larger_than_any_of_a_study_is_not_read(tmp_path: Path) -> None:
    clinics, node, caller = one_node(tmp_path)
    most = node._most
    assert caller.ask(node, Kind.START, 0, bytes(most + 1)) is None
    assert caller.ask(node, Kind.DESCRIBE, 0, bytes(LONGEST_DESCRIPTION + 1)) is Reason.TOO_LARGE
    clinics.close()


BODIES: dict[str, tuple[Callable[[list[np.ndarray]], list[np.ndarray]], Reason]] = {
    "NaN": (lambda arrays: [np.full_like(arrays[0], np.nan), *arrays[1:]], Reason.NOT_FINITE),
    "infinity": (lambda arrays: [np.full_like(arrays[0], np.inf), *arrays[1:]], Reason.NOT_FINITE),
    "another length": (lambda arrays: [arrays[0][:-1], *arrays[1:]], Reason.SHAPE),
    "another shape": (lambda arrays: [arrays[0].reshape(2, -1), *arrays[1:]], Reason.SHAPE),
    "another type": (lambda arrays: [arrays[0].view(np.int32), *arrays[1:]], Reason.SHAPE),
    "one array more": (lambda arrays: [*arrays, arrays[0]], Reason.SHAPE),
    "one array less": (lambda arrays: arrays[1:], Reason.SHAPE),
    "none": (lambda arrays: [], Reason.SHAPE),
}


@pytest.mark.parametrize("case", BODIES.values(), ids=BODIES)
def test_a_request_that_the_method_does_not_send_is_refused(
    case: tuple[Callable[[list[np.ndarray]], list[np.ndarray]], Reason], tmp_path: Path
) -> None:
    change, reason = case
    clinics, node, caller = one_node(tmp_path)
    body_of(caller.start(node))
    seen, *broadcast = caller.arrays()
    assert caller.ask(node, Kind.ROUND, 1, pack_arrays([seen, *change(broadcast)])) is reason
    assert ledgers(clinics) == 0
    clinics.close()


def test_a_request_that_speaks_of_another_round_is_refused(tmp_path: Path) -> None:
    """A method's step, or its noise, may depend on the number that it broadcasts."""
    clinics, node, caller = one_node(tmp_path)
    body_of(caller.start(node))
    assert caller.ask(node, Kind.ROUND, 2, pack_arrays(caller.arrays(round=1))) is Reason.PLAN
    assert ledgers(clinics) == 0
    clinics.close()


def test_a_server_sends_no_reply(tmp_path: Path) -> None:
    clinics, node, caller = one_node(tmp_path)
    for kind in (Kind.FACTS, Kind.ACCEPT, Kind.UPDATE, Kind.STATEMENT, Kind.REFUSED):
        assert caller.ask(node, kind) is Reason.MALFORMED
    clinics.close()


# --- Rounds ----------------------------------------------------------------------------------------------------------


def test_rounds_come_once_in_order_and_up_to_the_planned_number(tmp_path: Path) -> None:
    clinics, node, caller = one_node(tmp_path)
    assert caller.round(node, 1) is Reason.UNKNOWN_STUDY
    body_of(caller.start(node))
    assert caller.round(node, 0) is Reason.PAST_ROUND
    assert caller.round(node, 4) is Reason.PLAN
    body_of(caller.round(node, 2))  # the node was away in round 1
    assert caller.round(node, 2, shift=0.5) is Reason.OTHER_REQUEST
    assert caller.round(node, 1) is Reason.PAST_ROUND
    node = clinics.restart("east")
    assert caller.round(node, 2, shift=0.5) is Reason.OTHER_REQUEST
    assert caller.round(node, 1) is Reason.PAST_ROUND
    assert ledgers(clinics) == 1
    clinics.close()


def test_a_finished_study_goes_no_further(tmp_path: Path) -> None:
    clinics, node, caller = one_node(tmp_path)
    assert caller.finish(node, "east", Used(), 3) is Reason.UNKNOWN_STUDY
    body_of(caller.start(node))
    first = body_of(caller.round(node, 1))
    used = Used((1,), first[:32].hex())
    statement = body_of(caller.finish(node, "east", used, 3))
    for _ in range(2):
        assert caller.round(node, 2) is Reason.FINISHED
        assert body_of(caller.finish(node, "east", used, 3)) == statement
        node = clinics.restart("east")
    clinics.close()


def test_a_statement_that_the_server_did_not_sign_is_refused(tmp_path: Path) -> None:
    clinics, node, caller = one_node(tmp_path)
    body_of(caller.start(node))
    for body in (b"", b"[]", b"{}", b'"x"', b"[" * 99_999, b"\xff"):
        assert caller.ask(node, Kind.FINISH, 3, body) is Reason.MALFORMED
    caller.key, known = STRANGER, caller.key
    assert caller.finish(node, "east", Used(), 3) is None
    stated = json.dumps(sign(server_statement(caller.study, {"east": Used()}, 3, "0" * 64), STRANGER)).encode()
    caller.key = known
    assert caller.ask(node, Kind.FINISH, 3, stated) is Reason.MALFORMED
    body_of(caller.round(node, 1))  # the study goes on
    clinics.close()


class Clock:
    """Seconds since 1970, as a test says."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_a_node_answers_no_more_often_than_agreed(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path, **CLIENTS, pause=60.0)
    clock, caller = Clock(1.8e9), Caller(clinics, LOCAL)
    node = clinics.open("east", clock=clock)
    body_of(caller.start(node))
    body_of(caller.round(node, 1))
    clock.now += 59
    assert caller.round(node, 2) is Reason.TOO_SOON
    body_of(caller.round(node, 1))  # a repeat is no new answer
    clock.now += 2
    body_of(caller.round(node, 2))
    clinics.close()


# --- The budget ------------------------------------------------------------------------------------------------------


def test_a_budget_that_another_study_has_spent_ends_a_study(tmp_path: Path) -> None:
    """Each of two studies fits alone. Of six rounds, as many are answered as the budget of one and a half covers."""
    clinics, node, first = one_node(tmp_path, epsilon=10.2)
    second = Caller(clinics, LOCAL)
    body_of(first.start(node))
    body_of(second.start(node))
    answers = [caller.round(node, round) for round in (1, 2, 3) for caller in (first, second)]
    answered = sum(isinstance(each, Frame) for each in answers)
    assert 3 <= answered < 6
    assert all(each is Reason.BUDGET for each in answers[answered:])
    assert ledgers(clinics) == answered
    node = clinics.restart("east")  # what was released is still counted
    assert second.round(node, 3) is Reason.BUDGET
    third = Caller(clinics, LOCAL)
    assert third.start(node) is Reason.BUDGET
    assert body_of(second.start(node)) == second.study.cost_digest(0)  # no new study
    clinics.close()


def test_a_budget_is_free_again_after_its_period(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path, **CLIENTS, epsilon=8.5)
    clock = Clock(1.8e9)
    node, first, second = clinics.open("east", clock=clock), Caller(clinics, LOCAL), Caller(clinics, LOCAL)
    body_of(first.start(node))
    for round in (1, 2, 3):
        body_of(first.round(node, round))
    assert second.start(node) is Reason.BUDGET
    clock.now += 366 * 86_400
    body_of(second.start(node))
    body_of(second.round(node, 1))
    clinics.close()


# --- Nothing of the node's own words goes out ------------------------------------------------------------------------


def test_an_exception_stays_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clinics, node, caller = one_node(tmp_path)
    body_of(caller.start(node))

    def fails(*_: object) -> None:
        raise RuntimeError("record 7 of Jane Doe is broken")

    monkeypatch.setattr("sordino.deploy.turn.Training.__call__", fails)
    with caplog.at_level(logging.ERROR):
        data = node.handle(caller.request(Kind.ROUND, 1, pack_arrays(caller.arrays())))
    assert answer_of(data) is Reason.FAILED
    assert b"Jane" not in data
    assert "Jane" in caplog.text
    monkeypatch.undo()
    assert ledgers(clinics) == 0
    clinics.close()
