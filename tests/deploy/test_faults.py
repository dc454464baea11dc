"""Messages that no honest node sends: each is left out of its round, with its reason, and the study goes on."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from sordino.deploy.conduct import TooFewReplies
from sordino.deploy.seam import Reason, Reply
from sordino.deploy.server_study import ServerStudy
from sordino.deploy.wire import Frame, Kind, WireError, peek, seal
from tests.deploy.clinic import CLIENT_STUDY, CLIENTS, LOCAL, NONE, Clinics
from tests.deploy.ended import is_round, lines_of, model_of

pytestmark = pytest.mark.usefixtures("shared_programs", "no_power_cuts")

PRIVUNIT = CLIENT_STUDY + (
    'trust = "local"\nmechanism = "privunit"\nmessage_eps0 = 0.4\nmessage_eps1 = 0.4\nmessage_eps2 = 0.4\n'
)
QTDL = CLIENT_STUDY + (
    'trust = "local"\nmechanism = "qtdl"\nlevels = 4\nmessage_epsilon = 2.0\nmessage_delta = 1e-4\n'
    'noise = "truncated-laplace"\ndelta = 1e-1\n'
)
BINOMIAL = CLIENT_STUDY + 'trust = "local"\nmechanism = "binomial"\nlevels = 4\nmessage_epsilon = 2.0\n'
HEAD = struct.Struct("<32sBff")  # of a message's body: ledger hash, flags, level, side


@dataclass
class Forger:
    """A member whose replies are broken, one way a round, and what it and another one would have sent."""

    clinics: Clinics
    name: str = "west"
    before: list[bytes] = field(default_factory=list)

    def honest(self, request: bytes, name: str | None = None) -> bytes:
        return self.clinics.nodes[name or self.name].handle(request)

    def sealed(self, reply: bytes, **changes: object) -> bytes:
        """The reply with some fields changed, signed by the member itself."""
        return seal(replace(peek(reply, 1 << 20), **changes), self.clinics.nodes[self.name].key)  # type: ignore[arg-type]

    def body(self, reply: bytes, change: Callable[[bytes], bytes]) -> bytes:
        return self.sealed(reply, body=change(peek(reply, 1 << 20).body))


Fault = Callable[[Forger, bytes, bytes], Reply]  # who, the request, the honest reply -> what arrives


def flip(at: int) -> Fault:
    return lambda forger, request, reply: reply[:at] + bytes([reply[at] ^ 1]) + reply[at + 1 :]


def head(*, flags: int = 0, level: float = 0.0, side: float = 0.0) -> Fault:
    return lambda forger, request, reply: forger.body(
        reply, lambda body: HEAD.pack(body[:32], flags, level, side) + body[HEAD.size :]
    )


def numbers(change: Callable[[bytes], bytes]) -> Fault:
    return lambda forger, request, reply: forger.body(reply, lambda body: body[: HEAD.size] + change(body[HEAD.size :]))


def floats(change: Callable[[np.ndarray], np.ndarray]) -> Fault:
    return numbers(lambda data: change(np.frombuffer(data, "<f4").copy()).astype("<f4").tobytes())


def sealed(**changes: object) -> Fault:
    return lambda forger, request, reply: forger.sealed(reply, **changes)


def first(value: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda vector: np.concatenate([[value], vector[1:]])


COMMON: dict[str, tuple[Fault, Reason]] = {
    "nothing": (lambda forger, request, reply: b"", Reason.MALFORMED),
    "cut short": (lambda forger, request, reply: reply[:-1], Reason.MALFORMED),
    "cut within the header": (lambda forger, request, reply: reply[:20], Reason.MALFORMED),
    "one byte more": (lambda forger, request, reply: reply + b"x", Reason.MALFORMED),
    "flipped magic": (flip(0), Reason.MALFORMED),
    "flipped version": (flip(4), Reason.MALFORMED),
    "flipped kind": (flip(6), Reason.SIGNATURE),
    "flipped length of the name": (flip(7), Reason.MALFORMED),
    "flipped study": (flip(20), Reason.SIGNATURE),
    "flipped round": (flip(40), Reason.SIGNATURE),
    "flipped length": (flip(44), Reason.MALFORMED),
    "flipped name": (flip(48), Reason.SIGNATURE),
    "flipped number": (flip(-120), Reason.SIGNATURE),
    "flipped signature": (flip(-8), Reason.SIGNATURE),
    "length of four gigabytes": (
        lambda forger, request, reply: reply[:44] + b"\xff" * 4 + reply[48:],
        Reason.TOO_LARGE,
    ),
    "a gigabyte": (lambda forger, request, reply: bytes(1 << 30), Reason.TOO_LARGE),
    "another member's": (lambda forger, request, reply: forger.honest(request, "north"), Reason.SIGNATURE),
    "of an earlier round": (lambda forger, request, reply: forger.before[0], Reason.WRONG_REPLY),
    "of another study": (sealed(study=b"s" * 32), Reason.WRONG_REPLY),
    "of a later round": (sealed(round=99), Reason.WRONG_REPLY),
    "in another's name": (sealed(sender="north"), Reason.WRONG_REPLY),
    "of another kind": (sealed(kind=Kind.STATEMENT), Reason.WRONG_REPLY),
    "a refusal without a reason": (sealed(kind=Kind.REFUSED, body=b""), Reason.WRONG_REPLY),
    "a refusal for no reason": (sealed(kind=Kind.REFUSED, body=b"\xfe"), Reason.WRONG_REPLY),
    "level that is not expected": (head(flags=1, level=1.0), Reason.SHAPE),
    "side that is not expected": (head(flags=2, side=1.0), Reason.SHAPE),
    "NaN beside the vector": (head(level=float("nan")), Reason.NOT_FINITE),
    "one coordinate less": (numbers(lambda data: data[:-4]), Reason.SHAPE),
    "one coordinate more": (numbers(lambda data: data + data[:4]), Reason.TOO_LARGE),
    "no coordinates": (numbers(lambda data: b""), Reason.SHAPE),
}
BY_STUDY: dict[str, tuple[str, dict[str, tuple[Fault, Reason]]]] = {
    "gaussian": (
        LOCAL,
        COMMON
        | {
            "impossible length": (numbers(lambda data: b"\xff" * len(data)), Reason.TOO_LONG),
            "impossible length below zero": (numbers(lambda data: bytes(len(data))), Reason.TOO_LONG),
        },
    ),
    "none": (
        NONE,
        {
            "NaN": (floats(first(float("nan"))), Reason.NOT_FINITE),
            "infinity": (floats(first(float("inf"))), Reason.NOT_FINITE),
            "largest float": (floats(first(3e38)), Reason.TOO_LONG),
            "longer than the bound": (floats(first(1.01)), Reason.TOO_LONG),
        },
    ),
    "privunit": (
        PRIVUNIT,
        {
            "level beyond the last": (head(flags=1, level=1e3), Reason.RANGE),
            "level below zero": (head(flags=1, level=-1.0), Reason.RANGE),
            "half a level": (head(flags=1, level=0.5), Reason.RANGE),
            "level that is no integer of any machine": (head(flags=1, level=1e30), Reason.RANGE),
            "level that is infinite": (head(flags=1, level=float("inf")), Reason.NOT_FINITE),
            "no level": (head(flags=0), Reason.SHAPE),
            "length of another level": (floats(lambda vector: 1.5 * vector), Reason.TOO_LONG),
        },
    ),
    "qtdl": (QTDL, {"outside the range of its noise": (numbers(lambda data: bytes(len(data))), Reason.RANGE)}),
    "binomial": (
        BINOMIAL,
        {"more heads than coins": (numbers(lambda data: b"\xff" * (len(data) - 1) + data[-1:]), Reason.RANGE)},
    ),
}
CASES = [(study, fault) for study, (_, faults) in BY_STUDY.items() for fault in faults]


@dataclass
class Broken:
    """A study that has ended, and in which round which fault was."""

    clinics: Clinics
    kept: ServerStudy
    rounds: dict[str, int]


def conducted(folder: Path, text: str, faults: dict[str, Fault]) -> Broken:
    """A study with one honest round, and then a fault in every round."""
    budget = {"measure": "renyi", "epsilon": 1e6, "delta": 0.1, "failures": 0.05}
    clinics = Clinics(folder, **CLIENTS, **budget, smallest_noise=0.0, largest_message_epsilon=1e9)
    clinics.open_all()
    forger, rounds = Forger(clinics), {name: round for round, name in enumerate(faults, 2)}
    by_round = {round: faults[name] for name, round in rounds.items()}

    def reply(round: int, request: bytes) -> Reply:
        honest = forger.honest(request)
        if not is_round(request):
            return honest
        forger.before.append(honest)
        return by_round[round](forger, request, honest) if round in by_round else honest

    clinics.exchange.broken["west"] = reply
    kept = clinics.run(text.replace("rounds = 3", f"rounds = {len(faults) + 2}"))
    clinics.exchange.replies.clear()  # a gigabyte is among them
    return Broken(clinics, kept, rounds)


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Broken]]:
    made: dict[str, Broken] = {}

    def make(name: str) -> Broken:
        if name not in made:
            text, faults = BY_STUDY[name]
            only = {fault: function for fault, (function, _) in faults.items()}
            made[name] = conducted(tmp_path_factory.mktemp(name) / "all", text, only)
        return made[name]

    yield make
    for each in made.values():
        each.clinics.close()


@pytest.mark.parametrize(("study", "fault"), CASES)
def test_a_message_that_no_honest_node_sends_is_left_out(
    study: str, fault: str, broken: Callable[[str], Broken]
) -> None:
    """Its round is made of the others' messages, and in the rounds around it everything is as before."""
    ran, reason = broken(study), BY_STUDY[study][1][fault][1]
    lines = lines_of(ran.kept.folder)
    line = lines[ran.rounds[fault] - 1]
    assert line["missing"] == {"west": reason.name}
    assert sorted(line["used"]) == ["east", "north"]
    assert lines[0]["missing"] == lines[-1]["missing"] == {}


def test_a_broken_message_is_worth_as_much_as_none(broken: Callable[[str], Broken], tmp_path: Path) -> None:
    absent: Fault = lambda forger, request, reply: Reason.LOST  # noqa: E731
    lost = conducted(tmp_path / "all", NONE, dict.fromkeys(BY_STUDY["none"][1], absent))
    assert model_of(lost.kept.folder) == model_of(broken("none").kept.folder)
    lost.clinics.close()


def test_a_gigabyte_is_refused_before_it_is_copied(broken: Callable[[str], Broken]) -> None:
    ran = broken("gaussian")
    server, data = ran.clinics.server(), bytes(1 << 30)
    request = server.ask(Kind.ROUND, bytes(32), 1, b"")
    claimed = seal(Frame(Kind.UPDATE, bytes(32), 1, "west", b""), ran.clinics.nodes["west"].key)[:44] + b"\xff" * 4
    long = claimed + data
    tracemalloc.start()
    for reply, reason in ((data, Reason.TOO_LARGE), (long, Reason.TOO_LARGE), (claimed, Reason.TOO_LARGE)):
        with pytest.raises(WireError) as refusal:
            server.answer("west", reply, request, Kind.UPDATE, 1000)
        assert refusal.value.reason is reason
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_a_round_that_nobody_answers_usably_is_not_closed(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path, **CLIENTS)
    clinics.open_all()
    handles = {name: node.handle for name, node in clinics.nodes.items()}
    clinics.exchange.broken = {
        name: lambda round, data, handle=handle: handle(data)[:-1] if is_round(data) else handle(data)  # type: ignore[misc]
        for name, handle in handles.items()
    }
    with pytest.raises(TooFewReplies, match=r"east \(MALFORMED\), north \(MALFORMED\), west \(MALFORMED\)"):
        clinics.run(LOCAL)
    clinics.exchange.broken.clear()
    assert clinics.server().resume("trial").done == 3
    clinics.close()
