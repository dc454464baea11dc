"""A server with the right key that asks for more than it should, and a member among honest ones that lies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import typer

from sordino.algorithms.local import ClientData
from sordino.algorithms.records import RecordGradients
from sordino.cli.deploy_report import print_faults
from sordino.cli.statement import show_statement
from sordino.deploy.both_sides import compare
from sordino.deploy.seam import Reason, Reply
from sordino.deploy.server_study import MEMBERS
from sordino.deploy.statements import NODE_STATEMENT
from sordino.deploy.wire import Kind, pack_arrays, peek, seal
from sordino.errors import InvalidInput, SordinoError
from sordino.privacy.signing import read_signing_key, read_verifying_key, sign, verify
from sordino.types import ClientNumbers
from tests.deploy.clinic import CENTRAL, CLIENTS, LOCAL, NONE, RECORD_STUDY, SIZES, Caller, Clinics, body_of, study_of

pytestmark = pytest.mark.usefixtures("shared_programs", "no_power_cuts")

ONE_PASS = RECORD_STUDY.replace("radius = 3.0", "radius = 3.0\nbatch_size = 1\none_pass = true")


def lies(clinics: Clinics, name: str, kind: Kind, change: Callable[[bytes], bytes]) -> None:
    """A member whose bodies of one kind are others, signed with its own key."""
    honest, key = clinics.nodes[name].handle, clinics.nodes[name].key

    def reply(round: int, request: bytes) -> Reply:
        frame = peek(honest(request), 1 << 20)
        return seal(replace(frame, body=change(frame.body)) if frame.kind is kind else frame, key)

    clinics.exchange.broken[name] = reply


# --- The number of the round -----------------------------------------------------------------------------------------


def test_records_of_an_earlier_round_are_not_used_again(tmp_path: Path) -> None:
    """In one pass a record is paid for once: the round that a server broadcasts decides which ones are used."""
    clinics = Clinics(tmp_path)
    node, caller = clinics.open("east"), Caller(clinics, ONE_PASS, counts=SIZES)
    body_of(caller.start(node))
    body_of(caller.round(node, 1))
    for told in (1, 3, -10, 2**31 - 1):  # and 2 would be right
        body = pack_arrays(caller.arrays(0.1, told))
        assert caller.ask(node, Kind.ROUND, 2, body) is Reason.PLAN
    body_of(caller.round(node, 2))
    clinics.close()


def test_no_round_number_uses_a_record_twice() -> None:
    records, batch = 40, 10
    numbers = ClientNumbers(jnp.int32(0), jnp.float32(1), jnp.int32(batch), jnp.float32(1), jnp.float32(0))
    x, y = jnp.arange(1.0, records + 1)[:, None], jnp.zeros(records, jnp.int32)
    data = ClientData.own(lambda w, b: jnp.sum(w), x, y, numbers)
    gradients = RecordGradients(batch, one_pass=True)
    for r in (-(10**6), -1, 0, 3, 4, 10**6):
        drawn = gradients.draw(jax.random.key(0), jnp.int32(r), data)
        used = np.asarray(drawn.x)[np.asarray(drawn.weight) > 0].ravel().tolist()
        assert len(set(used)) == len(used) == (batch if r in (0, 3) else 0)


# --- Facts about other members ---------------------------------------------------------------------------------------


def test_weights_that_float32_would_lose_are_refused(tmp_path: Path) -> None:
    """A small bound, and a member that claims a great many records, would flush all of a message to zero."""
    lied = RECORD_STUDY.replace("lipschitz = 1.0", 'lipschitz = 1e-24\nweights = "records"')
    with pytest.raises(InvalidInput, match="float32 is exact for"):
        study_of(lied, tmp_path / "study", sizes=(6, 9, 10**8))


def test_a_larger_member_costs_the_others_nothing() -> None:
    """The places for records that a client does not have are not made."""
    numbers = ClientNumbers(jnp.int32(0), jnp.float32(1), jnp.int32(5), jnp.float32(1), jnp.float32(0))
    data = ClientData.own(lambda w, b: jnp.sum(w), jnp.ones((5, 1)), jnp.zeros(5, jnp.int32), numbers)
    drawn = RecordGradients(2**31 - 1, one_pass=False).draw(jax.random.key(0), jnp.int32(0), data)
    assert drawn.weight.shape == (5,)
    assert float(drawn.weight.sum()) == 5


def test_numbers_of_records_cannot_be_guessed_where_they_are_not_public(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path, **CLIENTS)
    node = clinics.open("east")
    answers = {Caller(clinics, LOCAL, counts=(guess, 9, 5)).start(node) for guess in (5, 6, 7)}
    assert answers == {Reason.PLAN}  # 6 is right
    clinics.close()


def test_facts_unlike_most_keep_nobody_from_a_study(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path, **CLIENTS)
    clinics.open_all()
    facts = json.dumps({"shape": [4], "classes": 2, "records": None}).encode()
    lies(clinics, "west", Kind.FACTS, lambda body: facts)
    assert clinics.run(LOCAL).study.members == ("east", "north")
    clinics.close()


# --- The clock -------------------------------------------------------------------------------------------------------


def test_nothing_is_released_by_a_clock_that_was_never_set(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path, **CLIENTS)
    clock = [1000.0]  # 1970
    node, caller = clinics.open("east", clock=lambda: clock[0]), Caller(clinics, LOCAL)
    assert caller.start(node) is Reason.CLOCK
    clock[0] = 1.9e9
    body_of(caller.start(node))
    body_of(caller.round(node, 1))
    clock[0] -= 3600  # an hour off is no harm
    body_of(caller.round(node, 2))
    clock[0] -= 2 * 86_400
    assert caller.round(node, 3) is Reason.CLOCK
    clinics.close()


# --- Messages of a member --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "side"), [("adaptive_clip = { initial = 1.0, indicator_noise_std = 5.0 }", -1e30), ("clip = 1.0", 3e38)]
)
def test_side_scalars_lie_in_their_range(tmp_path: Path, bound: str, side: float) -> None:
    text = CENTRAL.replace("clip = 1.0", bound)
    text = text.replace('"fedavg"', '"fedexp"') if side > 0 else text
    clinics = Clinics(tmp_path, **CLIENTS)
    clinics.open_all()
    lies(clinics, "west", Kind.UPDATE, lambda body: body[:37] + np.float32(side).tobytes() + body[41:])
    kept = clinics.run(text)
    assert [line.missing for line in kept.lines] == [{"west": "RANGE"}] * 3
    clinics.close()


def test_a_state_that_is_not_finite_is_not_kept(tmp_path: Path) -> None:
    """Without bounds a member may send what it likes; the study stays where everybody can go on."""
    clinics = Clinics(tmp_path, **CLIENTS)
    clinics.open_all()
    for name in ("north", "west"):
        lies(clinics, name, Kind.UPDATE, lambda body: body[:41] + np.full(len(body[41:]) // 4, 3e38, "<f4").tobytes())
    with pytest.raises(SordinoError, match="not finite any more"):
        clinics.run(NONE.replace("clip = 1.0", ""))
    clinics.exchange.broken.clear()
    assert clinics.server().resume("trial").done == 3
    clinics.close()


# --- Statements of a member ------------------------------------------------------------------------------------------

ESCAPE = "\x1b[2K\rcertified\nfault: none"
WRONG: dict[str, Callable[[dict[str, Any]], object]] = {
    "no predicate": lambda own: None,
    "a list": lambda own: [],
    "no rounds": lambda own: own | {"rounds": None},
    "rounds beyond the plan": lambda own: own | {"rounds": [[1, 10**18]]},
    "fewer rounds": lambda own: own | {"rounds": [[1, 2]]},
    "torn lines below zero": lambda own: own | {"tornRounds": -3},
    "more torn lines than can be": lambda own: own | {"tornRounds": 10**30},
    "half a torn line": lambda own: own | {"tornRounds": 0.5},
    "another certificate": lambda own: own | {"certificate": {"guarantees": []}},
    "a certificate of another kind": lambda own: own | {"certificate": "epsilon 0"},
    "words for a terminal": lambda own: own | {"disagreements": [ESCAPE]},
    "another member": lambda own: own | {"member": ESCAPE},
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Clinics, Path]]:
    clinics = Clinics(tmp_path_factory.mktemp("finished") / "all", **CLIENTS)
    clinics.open_all()
    folder = clinics.run(LOCAL).folder
    yield clinics, folder
    clinics.close()


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_member_that_signs_nonsense_is_named(
    wrong: Callable[[dict[str, Any]], object],
    finished: tuple[Clinics, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line for each fault, about this member alone; nothing of its words reaches a terminal as it is."""
    clinics, folder = finished
    path = folder / MEMBERS / "west.dsse.json"
    before, key = path.read_bytes(), read_signing_key(clinics.home("west") / "node.key")
    stated = verify(json.loads(before), key.public, NODE_STATEMENT)
    server_key = read_verifying_key(clinics.folder / "server" / "server.key.pub")
    assert compare(folder, server_key).faults == ()
    path.write_text(json.dumps(sign(stated | {"predicate": wrong(stated["predicate"])}, key)))
    try:
        found = compare(folder, server_key)
        assert found.faults
        assert all(fault.startswith("west: ") for fault in found.faults)
        with pytest.raises(typer.Exit):
            print_faults(found.faults)
        said = capsys.readouterr().err
        assert len(said.splitlines()) == len(found.faults)
        assert "\x1b" not in said
        with suppress(InvalidInput, typer.Exit):
            show_statement(path, key.public, as_json=False)
        assert "\x1b" not in "".join(capsys.readouterr())
    finally:
        path.write_bytes(before)


def test_a_request_writes_no_lines_of_its_own_into_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clinics = Clinics(tmp_path, **CLIENTS)
    text = LOCAL.replace("[privacy]", '[privacy]\n"accepted\\nINFO study trial is accepted\\u001b[2K" = 1')
    node, caller = clinics.open("east"), Caller(clinics, text, resolve=False)
    assert caller.start(node) is Reason.PLAN
    assert "is accepted" in caplog.text
    assert not any("\n" in record.getMessage() or "\x1b" in record.getMessage() for record in caplog.records)
    clinics.close()
