"""A node answers a round once: repeats, restarts and kills at any step give the same message, and its ledger knows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sordino.deploy.node import Node
from sordino.deploy.node_study import ANSWERS, LEDGER, OWN_STATEMENT, SERVER_STATEMENT, Answer
from sordino.deploy.statements import NODE_STATEMENT, Used, certificate_in
from sordino.deploy.wire import Kind
from sordino.privacy import ledger
from sordino.privacy.ledger import read_ledger
from sordino.privacy.ledger_record import LedgerRecord
from sordino.privacy.signing import verify
from tests.deploy.clinic import CLIENT_STUDY, Caller, Clinics, body_of
from tests.deploy.faults import RoundWords, Steps
from tests.toys import Killed

pytestmark = pytest.mark.usefixtures("shared_programs", "no_power_cuts")

CLIENTS = {"unit": "client", "relation": "zero-out"}
PRIVATE = 'trust = "local"\nepsilon = 8.0\ndelta = 1e-3\n'
FEEDBACK = 'name = "error_feedback"\nbeta = 0.5\nserver_lr = 0.3\nremember_noise = true'
SCAFFOLD = 'name = "scaffold"\nlocal_steps = 2\nlocal_lr = 0.5'
AVERAGING = 'name = "fedavg"\nlocal_steps = 2\nlocal_lr = 0.5'
# A memory that follows the noisy message, one that follows the message before its noise, and none.
STUDIES = {
    name: CLIENT_STUDY.replace(AVERAGING, method) + PRIVATE
    for name, method in (("error_feedback", FEEDBACK), ("scaffold", SCAFFOLD), ("fedavg", AVERAGING))
}


class Study:
    """One node with its study, which can be ended as a kill would, and opened again."""

    def __init__(self, folder: Path, text: str, words: RoundWords | None = None) -> None:
        self.clinics = Clinics(folder, **CLIENTS)
        self.words, self.caller = words, Caller(self.clinics, text)
        self.reopen()

    def reopen(self) -> None:
        self.node: Node = self.clinics.restart("east", **({} if self.words is None else {"words": self.words}))

    def round(self, number: int) -> bytes:
        if self.words is not None:
            self.words.begin(number)
        return body_of(self.caller.round(self.node, number, shift=0.1 * number))

    @property
    def folder(self) -> Path:
        return self.clinics.home("east") / "state" / "studies" / self.caller.description.digest.hex()

    @property
    def record(self) -> LedgerRecord:
        return read_ledger(self.folder / LEDGER)

    @property
    def memory(self) -> list[np.ndarray]:
        last = max((self.folder / ANSWERS).glob("*.npz"))
        return Answer.read(last).state


@pytest.fixture
def open_study(tmp_path: Path) -> Iterator[Callable[..., Study]]:
    made: list[Study] = []

    def make(text: str = STUDIES["fedavg"], **options: Any) -> Study:
        made.append(Study(tmp_path / str(len(made)), text, **options))
        return made[-1]

    yield make
    for each in made:
        each.clinics.close()


# --- Repeats ---------------------------------------------------------------------------------------------------------


def test_the_same_request_gives_the_same_message(open_study: Callable[..., Study]) -> None:
    """With fresh words from the operating system: a second noise on one update would halve the noise."""
    study = open_study()
    body_of(study.caller.start(study.node))
    first = study.round(1)
    assert study.round(1) == first
    study.reopen()
    assert study.round(1) == first
    assert study.record.rounds() == 1
    assert study.round(2) != first
    study.reopen()
    assert body_of(study.caller.start(study.node)) == study.caller.study.cost_digest(0)  # a resumed server asks again
    assert study.record.rounds() == 2


def test_two_nodes_with_the_same_records_send_different_noise(open_study: Callable[..., Study]) -> None:
    first, second = open_study(), open_study()
    for each in (first, second):
        body_of(each.caller.start(each.node))
    assert first.round(1)[45:] != second.round(1)[45:]


# --- Kills -----------------------------------------------------------------------------------------------------------


def kill(*_: object, **__: object) -> None:
    raise Killed


def after(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, and then a kill."""

    def run(*args: Any, **options: Any) -> None:
        function(*args, **options)
        raise Killed

    return run


def half_a_line(self: Any, line: bytes) -> None:
    self._file.write(line[: len(line) // 2])
    raise Killed


def whole_line(self: Any, line: bytes) -> None:
    self._file.write(line)
    raise Killed


# Where a node is killed, and whether its answer may leave later.
KILLS: dict[str, tuple[Any, str, Any, bool]] = {
    "before the answer is stored": (Answer, "write", kill, False),
    "once the answer is stored": (Answer, "write", after(Answer.write), False),
    "within the line of the ledger": (ledger.Ledger, "_append_line", half_a_line, False),
    "before the line is durable": (ledger.Ledger, "_append_line", whole_line, True),
    "before the ledger's head counts it": (ledger, "_write_head", kill, True),
    "once the ledger has it": (ledger.Ledger, "append_all", after(ledger.Ledger.append_all), True),
    "before the reply is signed": (Node, "_seal", kill, True),
}


@pytest.mark.parametrize("method", ["error_feedback", "scaffold"])
@pytest.mark.parametrize("place", KILLS)
def test_a_killed_node_goes_on_as_if_nothing_had_happened(
    place: str, method: str, open_study: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds 1 to 3, killed in round 3: the message, the memory and the ledger are those of a node that was not."""
    undisturbed, study = (open_study(STUDIES[method], words=RoundWords()) for _ in range(2))
    for each in (undisturbed, study):
        body_of(each.caller.start(each.node))
    expected = [undisturbed.round(number) for number in (1, 2, 3)]
    received = [study.round(number) for number in (1, 2)]
    owner, name, interruption, entered = KILLS[place]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interruption)
        with pytest.raises(Killed):
            study.round(3)
    study.reopen()
    torn = place == "within the line of the ledger"
    assert study.record.rounds() == (3 if entered else 2)
    assert study.record.recovered == torn
    received.append(study.round(3))
    assert [each[32:] for each in received] == [each[32:] for each in expected]
    assert study.record.rounds() == 3
    assert all(np.array_equal(a, b) for a, b in zip(study.memory, undisturbed.memory, strict=True))
    stated = json.loads(body_of(study.caller.finish(study.node, "east", _used(study, received), 3)))
    predicate = verify(stated, study.node.key.public, NODE_STATEMENT)["predicate"]
    plan = study.caller.study.plan
    assert certificate_in(predicate) == plan.certificate(0, 4 if torn else 3)
    assert (predicate["tornRounds"], predicate["disagreements"]) == (int(torn), [])


def _used(study: Study, received: list[bytes]) -> Used:
    return Used(tuple(range(1, len(received) + 1)), received[-1][:32].hex())


@pytest.mark.parametrize("place", [name for name, (*_, entered) in KILLS.items() if entered])
def test_an_answer_in_the_ledger_is_the_one_that_leaves(
    place: str, open_study: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fresh words: what was stored before the kill leaves, not a second noise on the same update."""
    study = open_study()
    body_of(study.caller.start(study.node))
    study.round(1)
    owner, name, interruption, _ = KILLS[place]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interruption)
        with pytest.raises(Killed):
            study.round(2)
    stored = Answer.read(study.folder / ANSWERS / "0000002.npz").update
    study.reopen()
    assert study.round(2)[32:] == stored[32:]


def test_a_node_killed_before_it_has_signed_signs_about_what_its_ledger_names(
    open_study: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server signs anew when it asks again; the ledger has the digest of its first statement."""
    study = open_study()
    body_of(study.caller.start(study.node))
    used = _used(study, [study.round(1)])
    with monkeypatch.context() as patch:
        patch.setattr("sordino.deploy.node.sign", kill)
        with pytest.raises(Killed):
            study.caller.finish(study.node, "east", used, 3)
    study.reopen()
    assert study.record.finish is not None
    first = (study.folder / SERVER_STATEMENT).read_bytes()
    body_of(study.caller.finish(study.node, "east", used, 3))
    assert (study.folder / SERVER_STATEMENT).read_bytes() == first
    assert study.record.finish.files == {SERVER_STATEMENT: sha256(first).hexdigest()}


def _whole_study(study: Study, received: dict[int, bytes]) -> bytes:
    """Start, three rounds and the end; what arrives is noted."""
    body_of(study.caller.start(study.node))
    for number in (1, 2, 3):
        if number not in received:
            received[number] = study.round(number)
    used = Used((1, 2, 3), received[3][:32].hex())
    return body_of(study.caller.finish(study.node, "east", used, 3))


def _killed_at(step: int, done: bool, study: Study, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Kill a study at a durable step and take it up again; whether there was such a step."""
    received: dict[int, bytes] = {}
    with monkeypatch.context() as patch:
        Steps(patch, step, done=done)
        try:
            _whole_study(study, received)
            return False
        except Killed:
            pass
    study.reopen()
    assert not received or study.record.rounds() >= len(received)
    statement = _whole_study(study, received)
    assert study.record.rounds() == 3
    assert study.record.finish is not None
    assert (study.folder / OWN_STATEMENT).read_bytes() == statement
    server_says = (study.folder / SERVER_STATEMENT).read_bytes()
    assert study.record.finish.files == {SERVER_STATEMENT: sha256(server_says).hexdigest()}
    study.reopen()
    assert body_of(study.caller.ask(study.node, Kind.FINISH, 3, server_says)) == statement
    return True


SOME = [(step, step % 2 == 0) for step in range(1, 60, 5)]


@pytest.mark.parametrize(("step", "done"), SOME)
def test_a_kill_at_a_durable_step_loses_nothing(
    step: int, done: bool, open_study: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    _killed_at(step, done, open_study(), monkeypatch)


@pytest.mark.slow
def test_a_kill_at_any_durable_step_loses_nothing(
    open_study: Callable[..., Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    for done in (False, True):
        step = 1
        while _killed_at(step, done, open_study(), monkeypatch):
            step += 1
        assert step > 40
