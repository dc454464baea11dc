"""What a node refuses, each with its own reason, and that nothing was released and no word of its own went out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from sordino.deploy.node import Node
from sordino.deploy.node_study import LEDGER
from sordino.deploy.seam import Reason
from sordino.deploy.statements import Used
from sordino.deploy.wire import Frame, Kind, pack_arrays
from sordino.privacy.ledger import read_ledger
from sordino.privacy.signing import SigningKey
from tests.deploy.clinic import (
    CENTRAL,
    CLIENTS,
    LOCAL,
    NONE,
    RECORD_STUDY,
    SIZES,
    Caller,
    Clinics,
    answer_of,
    body_of,
)

pytestmark = pytest.mark.usefixtures("shared_programs", "no_power_cuts")

STRANGER = SigningKey(ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32))))


def clinic(folder: Path, text: str = LOCAL, counts: Any = None, **rules: Any) -> tuple[Clinics, Node, Caller]:
    """One open node, and who asks it."""
    clinics = Clinics(folder, **(CLIENTS if counts is None else {}) | rules)
    return clinics, clinics.open("east"), Caller(clinics, text, counts=counts)


def ledgers(clinics: Clinics) -> int:
    """Rounds that the node has entered anywhere."""
    found = (clinics.home("east") / "state" / "studies").glob(f"*/{LEDGER}")
    return sum(read_ledger(path).rounds() for path in found)


# --- A study ---------------------------------------------------------------------------------------------------------

# What the node's rules are, what the study asks for, whether it counts records, and the reason.
STUDIES: dict[str, tuple[dict[str, Any], str, bool, Reason]] = {
    "less noise": ({"smallest_noise": 5.0}, LOCAL, False, Reason.NOISE),
    "less noise for records": ({"smallest_noise": 50.0}, RECORD_STUDY, True, Reason.NOISE),
    "larger bound": ({"largest_bound": 0.5}, LOCAL, False, Reason.BOUND),
    "larger gradients": ({"largest_bound": 0.5}, RECORD_STUDY, True, Reason.BOUND),
    "unknown method": ({"methods": '"scaffold"'}, LOCAL, False, Reason.METHOD),
    "unknown mechanism": ({"mechanisms": '"qtdl"'}, LOCAL, False, Reason.METHOD),
    "central trust": ({"trust": '"local"'}, CENTRAL, False, Reason.TRUST),
    "no trust": ({"trust": '"local", "central"'}, NONE, False, Reason.TRUST),
    "another unit": ({"unit": "record", "relation": "zero-out"}, LOCAL, False, Reason.UNIT),
    "another relation": ({"unit": "record", "relation": "add-remove"}, RECORD_STUDY, True, Reason.UNIT),
    "too many rounds": ({"most_rounds": 2}, LOCAL, False, Reason.BUDGET),
    "more than the budget": ({"epsilon": 7.9}, LOCAL, False, Reason.BUDGET),
    "cost that is not counted": (
        {"measure": "pure", "delta": 0.0},
        LOCAL,
        False,
        Reason.BUDGET,
    ),
}


@pytest.mark.parametrize("case", STUDIES.values(), ids=STUDIES)
def test_a_study_that_breaks_a_rule_is_refused(case: tuple[dict[str, Any], str, bool, Reason], tmp_path: Path) -> None:
    rules, text, counted, reason = case
    clinics, node, caller = clinic(tmp_path, text, SIZES if counted else None, **rules)
    assert caller.start(node) is reason
    assert caller.round(node, 1) is Reason.UNKNOWN_STUDY
    assert ledgers(clinics) == 0
    clinics.close()


def test_rules_that_become_stricter_hold_for_studies_that_run(tmp_path: Path) -> None:
    clinics, node, caller = clinic(tmp_path)
    body_of(caller.start(node))
    body_of(caller.round(node, 1))
    clinics.write_rules("east", **CLIENTS, smallest_noise=5.0)
    assert caller.round(clinics.restart("east"), 2) is Reason.NOISE
    clinics.write_rules("east", **CLIENTS)
    body_of(caller.round(clinics.restart("east"), 2))
    clinics.close()


def test_records_that_were_exchanged_are_not_those_of_the_study(tmp_path: Path) -> None:
    """Noise for nine records does not hide one of three."""
    clinics, node, caller = clinic(tmp_path, RECORD_STUDY, SIZES)
    body_of(caller.start(node))
    body_of(caller.round(node, 1))
    path = clinics.home("east") / "records.npz"
    with np.load(path) as kept:
        x, y = kept["x"], kept["y"]
    np.savez(path, x=x[:3], y=y[:3])
    assert caller.round(clinics.restart("east"), 2) is Reason.DATA
    assert ledgers(clinics) == 1
    clinics.close()


# --- A description ---------------------------------------------------------------------------------------------------

DESCRIPTIONS: dict[str, tuple[dict[str, Any], bool, Reason]] = {
    "another shape": ({"shape": (4,)}, False, Reason.DATA),
    "other classes": ({"classes": 3}, False, Reason.DATA),
    "another server": ({"server": STRANGER.public.line}, False, Reason.UNKNOWN_SERVER),
    "no run file": ({"file": "what?"}, False, Reason.PLAN),
    "another algorithm": ({"file": LOCAL.replace("fedavg", "magic")}, False, Reason.PLAN),
    "huge model": (
        {"file": LOCAL.replace('name = "clinics"', 'name = "c"\nmodel = "mlp:9000,9000"')},
        False,
        Reason.PLAN,
    ),
    "augmented records": ({"file": LOCAL.replace('"clinics"', '"c"\naugment = "crop"')}, False, Reason.PLAN),
    "samples of nodes": (
        {"file": LOCAL.replace("rounds = 3", 'rounds = 3\ncohort = "poisson:0.5"')},
        False,
        Reason.PLAN,
    ),
    "name in a guarantee": ({"name": "two\nlines"}, False, Reason.MALFORMED),
    "nobody": ({"members": ()}, False, Reason.MALFORMED),
}


@pytest.mark.parametrize("case", DESCRIPTIONS.values(), ids=DESCRIPTIONS)
def test_a_description_that_is_not_about_the_node_is_refused(
    case: tuple[dict[str, Any], bool, Reason], tmp_path: Path
) -> None:
    changes, _, reason = case
    clinics = Clinics(tmp_path, **CLIENTS)
    node, caller = clinics.open("east"), Caller(clinics, LOCAL, resolve=False, **changes)
    assert caller.start(node) is reason
    assert ledgers(clinics) == 0
    clinics.close()


def test_another_number_of_records_is_refused(tmp_path: Path) -> None:
    clinics, node, _ = clinic(tmp_path, RECORD_STUDY, SIZES)
    for wrong in (SIZES[0] + 1, SIZES[0] - 1):
        assert Caller(clinics, RECORD_STUDY, counts=(wrong, *SIZES[1:])).start(node) is Reason.DATA
    clinics.close()


def test_a_node_whose_key_or_name_is_not_listed_takes_no_part(tmp_path: Path) -> None:
    clinics, node, caller = clinic(tmp_path)
    east, north, west = caller.description.members
    for members in ((replace(east, key=north.key), west), (north, west)):
        assert Caller(clinics, LOCAL, members=members).start(node) is Reason.PLAN
    clinics.close()


def test_a_description_under_another_digest_is_refused(tmp_path: Path) -> None:
    clinics, node, caller = clinic(tmp_path)
    data = caller.description.data
    for body, study in ((data, bytes(32)), (data + b" ", None), (data[:-1], None), (b"[]", None), (b"{" * 9999, None)):
        assert caller.ask(node, Kind.START, 0, body, study=study) is Reason.MALFORMED
    clinics.close()


# --- Who asks, and for what ------------------------------------------------------------------------------------------


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_only_the_known_server_is_answered(tmp_path: Path) -> None:
    clinics, node, caller = clinic(tmp_path)
    body_of(caller.start(node))
    body = pack_arrays(caller.arrays())
    assert caller.ask(node, Kind.ROUND, 1, body, key=STRANGER) is Reason.UNKNOWN_SERVER
    good = caller.request(Kind.ROUND, 1, body)
    other = caller.request(Kind.ROUND, 2, body)
    spliced = good[:40] + other[40:44] + good[44:]  # the round of another request
    for data in (flipped(good, 60), flipped(good, len(good) - 3), spliced):
        assert answer_of(node.handle(data)) is Reason.UNKNOWN_SERVER
    for data in (b"", b"garbage", good[:-1], good + b"x", good[:30], bytes(200)):
        assert answer_of(node.handle(data)) is Reason.MALFORMED
    assert ledgers(clinics) == 0
    clinics.close()


def test_any_flipped_byte_of_a_request_is_refused(tmp_path: Path) -> None:
    clinics, node, caller = clinic(tmp_path)
    body_of(caller.start(node))
    data = caller.request(Kind.ROUND, 1, pack_arrays(caller.arrays()))
    for at in range(len(data)):
        assert isinstance(answer_of(node.handle(flipped(data, at))), Reason)
    assert ledgers(clinics) == 0
    body_of(answer_of(node.handle(data)))
    clinics.close()


def test_a_request_larger_than_any_of_a_study_is_not_read(tmp_path: Path) -> None:
    clinics, node, caller = clinic(tmp_path)
    most = node._most
    assert caller.ask(node, Kind.START, 0, bytes(most + 1)) is Reason.TOO_LARGE
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
    clinics, node, caller = clinic(tmp_path)
    body_of(caller.start(node))
    assert caller.ask(node, Kind.ROUND, 1, pack_arrays(change(caller.arrays()))) is reason
    assert ledgers(clinics) == 0
    clinics.close()


def test_a_server_sends_no_reply(tmp_path: Path) -> None:
    clinics, node, caller = clinic(tmp_path)
    for kind in (Kind.FACTS, Kind.ACCEPT, Kind.UPDATE, Kind.STATEMENT, Kind.REFUSED):
        assert caller.ask(node, kind) is Reason.MALFORMED
    clinics.close()


# --- Rounds ----------------------------------------------------------------------------------------------------------


def test_rounds_come_once_in_order_and_up_to_the_planned_number(tmp_path: Path) -> None:
    clinics, node, caller = clinic(tmp_path)
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
    clinics, node, caller = clinic(tmp_path)
    assert caller.finish(node, "east", Used(), 3) is Reason.UNKNOWN_STUDY
    body_of(caller.start(node))
    first = body_of(caller.round(node, 1))
    used = Used((1,), first[:32].hex())
    statement = body_of(caller.finish(node, "east", used, 3))
    for _ in range(2):
        assert caller.round(node, 2) is Reason.FINISHED
        assert body_of(caller.round(node, 1)) == first  # what has left may leave again
        assert body_of(caller.finish(node, "east", used, 3)) == statement
        node = clinics.restart("east")
    clinics.close()


def test_a_statement_that_the_server_did_not_sign_is_refused(tmp_path: Path) -> None:
    clinics, node, caller = clinic(tmp_path)
    body_of(caller.start(node))
    for body in (b"", b"[]", b"{}", b'"x"', b"[" * 99_999, b"\xff"):
        assert caller.ask(node, Kind.FINISH, 3, body) is Reason.MALFORMED
    caller.key, known = STRANGER, caller.key
    assert caller.finish(node, "east", Used(), 3) is Reason.UNKNOWN_SERVER
    caller.key = known
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
    clinics, node, first = clinic(tmp_path, epsilon=10.2)
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
    clinics, node, caller = clinic(tmp_path)
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


@pytest.mark.parametrize(("unit", "relation"), [("client", "replace-one"), ("record", "add-remove")])
def test_a_count_that_the_node_protects_is_not_told(unit: str, relation: str, tmp_path: Path) -> None:
    clinics, node, caller = clinic(tmp_path, RECORD_STUDY, SIZES, unit=unit, relation=relation)
    assert caller.describe(node) is Reason.UNIT
    clinics.close()


def test_facts_of_a_study_that_protects_clients_hold_no_count(tmp_path: Path) -> None:
    clinics, node, caller = clinic(tmp_path)
    assert body_of(caller.describe(node)) == b'{"classes": 2, "records": null, "shape": [3]}'
    for text, reason in (("[task", Reason.PLAN), (LOCAL.replace("fedavg", "dp_sgd"), Reason.PLAN)):
        caller.description = replace(caller.description, file=text)
        assert caller.describe(node) is reason
    clinics.close()
