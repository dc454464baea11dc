"""What server and nodes state at the end of a study in which not everybody answered in every round."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sordino.deploy.node_study import LEDGER, entries_of
from sordino.deploy.seam import Reason, Reply
from sordino.deploy.server_study import ServerStudy
from sordino.deploy.statements import certificate_in, rounds_in
from sordino.deploy.status import STATUS
from sordino.privacy.certification import certify_ledger
from sordino.privacy.guarantee import Certificate
from sordino.privacy.ledger import read_ledger
from sordino.types import Observer
from tests.deploy.clinic import CENTRAL, CLIENTS, LOCAL, NAMES, NONE, RECORD_STUDY, Clinics
from tests.deploy.ended import is_round, lines_of, study_of_node, told_by_node, told_by_server

pytestmark = pytest.mark.usefixtures("shared_programs", "no_power_cuts")


# --- Certificates ----------------------------------------------------------------------------------------------------


@dataclass
class Ended:
    """A study that has ended, in which not everybody answered in every round."""

    clinics: Clinics
    kept: ServerStudy
    answered: dict[str, list[int]]  # by the node
    used: dict[str, list[int]]  # by the server


ANSWERED = {"east": [1, 2, 3], "north": [1, 3], "west": [1, 2, 3]}
USED = {"east": [1, 2, 3], "north": [1, 3], "west": []}
STUDIES = {"local": LOCAL, "records": RECORD_STUDY, "central": CENTRAL, "none": NONE}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Ended]]:
    """In round 2 north is away, and no reply of west ever arrives, though west answers."""
    made: dict[str, Ended] = {}

    def make(name: str) -> Ended:
        if name not in made:
            clinics = Clinics(tmp_path_factory.mktemp(name), **({} if name == "records" else CLIENTS))
            clinics.open_all()
            north, west = clinics.nodes["north"].handle, clinics.nodes["west"].handle
            clinics.exchange.broken = {
                "north": lambda round, data: Reason.LOST if round == 2 else north(data),
                "west": lambda round, data: _unless(is_round(data), west(data)),
            }
            made[name] = Ended(clinics, clinics.run(STUDIES[name]), ANSWERED, USED)
        return made[name]

    yield make
    for each in made.values():
        each.clinics.close()


def _unless(lost: bool, reply: bytes) -> Reply:
    return Reason.SILENT if lost else reply


def totals(certificate: Certificate) -> dict[tuple[Observer, float], tuple[Any, ...]]:
    """What matters of the guarantees for all rounds."""
    return {
        (each.observer, each.delta): (each.unit, each.relation, each.rounds, each.epsilon, each.assumptions)
        for each in certificate.totals
    }


@pytest.mark.parametrize("name", STUDIES)
def test_everybody_states_what_the_answered_rounds_cost(name: str, ended: Callable[[str], Ended]) -> None:
    """The server of what it used, a node of what it answered, and the node's ledger the same by itself."""
    end = ended(name)
    plan, told = end.kept.study.plan, told_by_server(end.clinics, end.kept)
    for i, member in enumerate(NAMES):
        used, answered = end.used[member], end.answered[member]
        assert list(rounds_in(told[member]["rounds"], 3)) == used
        unused = list(rounds_in(told[member]["unusedRounds"], 3))
        assert {*answered} <= {*used, *unused}  # what the server did not use may have left all the same
        assert certificate_in(told[member]) == plan.certificate(i, len(used) + len(unused))
        node = told_by_node(end.clinics, end.kept, member)
        assert list(rounds_in(node["rounds"], 3)) == answered
        assert node["disagreements"] == []
        stated = certificate_in(node)
        assert stated == plan.certificate(i, len(answered))
        record = read_ledger(study_of_node(end.clinics, end.kept, member) / LEDGER)
        assert sorted(entries_of(record)) == answered
        from_ledger = certify_ledger(record, stated.totals[0].delta)
        assert totals(from_ledger) == totals(stated)
        assert (from_ledger.draws, from_ledger.assumptions) == (stated.draws, stated.assumptions)


def test_local_trust_promises_the_same_against_everybody(ended: Callable[[str], Ended]) -> None:
    for name in ("local", "records"):
        found = {each.observer: each.epsilon for each in certificate_in(_east(ended(name))).totals}
        assert found.keys() == {Observer.SERVER, Observer.PEER, Observer.MODEL_USER}
        assert len(set(found.values())) == 1
        assert found[Observer.SERVER] <= 8.0


def test_central_trust_says_that_the_server_sees_the_update(ended: Callable[[str], Ended]) -> None:
    found = {each.observer: each.epsilon for each in certificate_in(_east(ended("central"))).totals}
    assert found[Observer.SERVER] == math.inf
    assert found[Observer.MODEL_USER] <= 8.0


def test_without_noise_nothing_is_promised(ended: Callable[[str], Ended]) -> None:
    assert {each.epsilon for each in certificate_in(_east(ended("none"))).totals} == {math.inf}


def _east(end: Ended) -> dict[str, Any]:
    return told_by_node(end.clinics, end.kept, "east")


def test_the_journal_names_everybody(ended: Callable[[str], Ended]) -> None:
    lines = lines_of(ended("local").kept.folder)
    assert [sorted(line["used"]) for line in lines] == [["east", "north"], ["east"], ["east", "north"]]
    missing = [{"west": "SILENT"}, {"north": "LOST", "west": "SILENT"}, {"west": "SILENT"}]
    assert [line["missing"] for line in lines] == missing


def test_a_member_that_never_joined_is_named_and_promised_nothing(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path, **CLIENTS)
    clinics.open_all()
    north = clinics.nodes["north"].handle
    clinics.exchange.broken["north"] = lambda round, data: north(data) if data[6] == 1 else Reason.LOST
    kept = clinics.run(LOCAL)
    told = told_by_server(clinics, kept)
    assert (told["north"]["rounds"], told["north"]["certificate"]) == ([], None)
    assert {line["missing"]["north"] for line in lines_of(kept.folder)} == {"LOST"}
    assert json.loads((kept.folder / STATUS).read_bytes())["state"] == "finished"
    clinics.close()


# --- Many nodes ------------------------------------------------------------------------------------------------------


def test_twenty_nodes_of_which_some_fail_in_every_round(tmp_path: Path) -> None:
    """Three nodes fail at random for each round; every certificate says what its node answered."""
    draws, names = random.Random(0), tuple(f"clinic{n:02d}" for n in range(20))
    clinics = Clinics(tmp_path, names, (5,) * 20, **CLIENTS)
    clinics.open_all()
    failing = {round: draws.sample(names, 3) for round in range(1, 6)}
    answered: dict[str, list[int]] = {name: [] for name in names}
    asked: dict[str, list[int]] = {name: [] for name in names}  # the server cannot know more

    def fails(name: str) -> Callable[[int, bytes], Reply]:
        def reply(round: int, data: bytes) -> Reply:
            if not is_round(data):
                return clinics.nodes[name].handle(data)
            kind = draws.choice(["lost", "silent", "late", "broken"]) if name in failing[round] else ""
            if kind == "lost":
                return Reason.LOST
            asked[name].append(round)
            if kind == "silent":
                return Reason.SILENT
            answer = clinics.nodes[name].handle(data)
            answered[name].append(round)
            return {"late": Reason.SILENT, "broken": answer[:-9]}.get(kind, answer)

        return reply

    clinics.exchange.broken = {name: fails(name) for name in names}
    kept = clinics.run(LOCAL.replace("rounds = 3", "rounds = 5"))
    lines = lines_of(kept.folder)
    assert [sorted(line["missing"]) for line in lines] == [sorted(failing[round]) for round in range(1, 6)]
    counts = [sum(map(len, each.values())) for each in (asked, answered)]
    assert 5 * 20 > counts[0] > counts[1] > 5 * 17  # every kind of failure is among them
    plan, told = kept.study.plan, told_by_server(clinics, kept)
    for i, name in enumerate(names):
        used = [line["round"] for line in lines if name in line["used"]]
        assert list(rounds_in(told[name]["rounds"], 5)) == used
        assert certificate_in(told[name]) == plan.certificate(i, len(asked[name]))
        node = told_by_node(clinics, kept, name)
        assert list(rounds_in(node["rounds"], 5)) == answered[name]
        assert certificate_in(node) == plan.certificate(i, len(answered[name]))
        assert node["disagreements"] == []
    clinics.close()
