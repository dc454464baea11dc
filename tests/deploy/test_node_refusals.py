"""What a node refuses, each with its own reason, and that nothing was released and no word of its own went out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from sordino.deploy.rollback import pack_start
from sordino.deploy.seam import Reason
from sordino.deploy.statements import Used
from sordino.deploy.study import Description, Member, Study
from sordino.deploy.wire import Kind
from sordino.errors import InvalidInput
from sordino.privacy.signing import SigningKey
from tests.deploy.clinic import (
    CENTRAL,
    CLIENT_STUDY,
    CLIENTS,
    LOCAL,
    NONE,
    RECORD_STUDY,
    SIZES,
    Caller,
    Clinics,
    body_of,
    ledgers,
    one_node,
)

pytestmark = pytest.mark.usefixtures("shared_programs", "no_power_cuts")

STRANGER = SigningKey(ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32))))


SECURE = CLIENT_STUDY + 'trust = "secure-aggregation"\nepsilon = 8.0\ndelta = 1e-3\n'
QTDL = CLIENT_STUDY + 'trust = "local"\nmechanism = "qtdl"\nlevels = 4\nmessage_epsilon = 2.0\nnoise = "laplace"\n'
BINOMIAL = CLIENT_STUDY + 'trust = "local"\nmechanism = "binomial"\nlevels = 4\nmessage_epsilon = 2.0\n'

# --- A study ---------------------------------------------------------------------------------------------------------

COINS = {"failures": 1e-4, "measure": "renyi"}  # a budget for noise that fails with a probability of its own

# What the node's rules are, what the study asks for, whether it counts records, and the reason.
STUDIES: dict[str, tuple[dict[str, Any], str, bool, Reason]] = {
    "less noise": ({"smallest_noise": 5.0}, LOCAL, False, Reason.NOISE),
    "less noise for records": ({"smallest_noise": 50.0}, RECORD_STUDY, True, Reason.NOISE),
    "fewer coins": ({"smallest_noise": 5.0, **COINS}, BINOMIAL, False, Reason.NOISE),
    "more epsilon a message": ({"largest_message_epsilon": 1.9, "measure": "renyi"}, QTDL, False, Reason.NOISE),
    "larger bound": ({"largest_bound": 0.5}, LOCAL, False, Reason.BOUND),
    "larger gradients": ({"largest_bound": 0.5}, RECORD_STUDY, True, Reason.BOUND),
    "unknown method": ({"methods": '"scaffold"'}, LOCAL, False, Reason.METHOD),
    "unknown mechanism": ({"mechanisms": '"qtdl"'}, LOCAL, False, Reason.METHOD),
    "central trust": ({"trust": '"local"'}, CENTRAL, False, Reason.TRUST),
    "no trust": ({"trust": '"local", "central"'}, NONE, False, Reason.TRUST),
    "another unit": ({"unit": "record", "relation": "replace-one"}, LOCAL, False, Reason.UNIT),
    "another relation": ({"unit": "client", "relation": "replace-one"}, LOCAL, False, Reason.UNIT),
    "too many rounds": ({"most_rounds": 2}, LOCAL, False, Reason.BUDGET),
    "too many local steps": ({"most_local_steps": 1}, LOCAL, False, Reason.WORK),
    "too many members": ({"most_members": 2}, RECORD_STUDY, True, Reason.WORK),
    "more than the budget": ({"epsilon": 7.9}, LOCAL, False, Reason.BUDGET),
    "cost that is not counted": (
        {"measure": "pure", "delta": 0.0},
        LOCAL,
        False,
        Reason.BUDGET,
    ),
}


FROM_DATA = """
[task]
name = "clinics"
[algorithm]
name = "error_feedback"
beta = 0.5
server_lr = "{rule}"
server_normalization = true
[bound]
smoothed_normalize = 1.0
[privacy]
noise_multiplier = 3.0
delta = 1e-3
trust = "{trust}"
[run]
rounds = 64
[rules]
R = 3.0
L_max = 2.0
gap = 4.0
from_data = ["R"]
{more}"""


def described(text: str) -> Description:
    """A study of three members, whose model has 2 (2 + 1) parameters."""
    members = [Member(name, f"key of {name}", None) for name in ("east", "north", "west")]
    return Description.new("trial", text, (2,), 2, members, "key of the server")


def test_a_study_with_secure_aggregation_is_not_made(tmp_path: Path) -> None:
    """No server makes it, and a node that is asked for it all the same refuses by its own rules."""
    clinics = Clinics(tmp_path, **CLIENTS, trust='"local", "central"')
    with pytest.raises(InvalidInput, match=r"trust = 'secure-aggregation': no protocol .* is deployed"):
        Caller(clinics, SECURE)
    caller, node = Caller(clinics, SECURE, resolve=False), clinics.open("east")
    assert caller.start(node) is Reason.TRUST
    assert ledgers(clinics) == 0
    clinics.close()


@pytest.mark.parametrize("trust", ["local", "central"])
def test_constants_from_records_are_told_to_every_member(trust: str, tmp_path: Path) -> None:
    study = Study.resolve(described(FROM_DATA.format(trust=trust, rule="theorem-1", more="")), tmp_path)
    assert "constants-from-data" in {warning.code for warning in study.plan.certificate(0, 64).warnings}


def test_a_rule_for_another_model_is_not_deployed(tmp_path: Path) -> None:
    text = FROM_DATA.format(trust="local", rule="theorem-2", more="d = 7\nn = 3\nnoise_std = 3.0\n")
    with pytest.raises(InvalidInput, match=r"d = 7: the model of this task has 6 parameters"):
        Study.resolve(described(text), tmp_path)


def test_published_noise_is_not_deployed(tmp_path: Path) -> None:
    text = CLIENT_STUDY + 'trust = "central"\nepsilon = 5.0\ndelta = 1e-3\ncalibration = "eq-5"\nq = 4.0\n'
    with pytest.raises(InvalidInput, match="calibration = 'eq-5'"):
        Study.resolve(described(text), tmp_path)


@pytest.mark.parametrize("case", STUDIES.values(), ids=STUDIES)
def test_a_study_that_breaks_a_rule_is_refused(case: tuple[dict[str, Any], str, bool, Reason], tmp_path: Path) -> None:
    rules, text, counted, reason = case
    clinics, node, caller = one_node(tmp_path, text, SIZES if counted else None, **rules)
    assert caller.start(node) is reason
    assert caller.round(node, 1) is Reason.UNKNOWN_STUDY
    assert ledgers(clinics) == 0
    clinics.close()


@pytest.mark.parametrize(("text", "least"), [(BINOMIAL, 0.5), (QTDL, 5.0)], ids=["binomial", "qtdl"])
def test_noise_that_is_no_gaussian_is_accepted_where_it_is_enough(text: str, least: float, tmp_path: Path) -> None:
    rules = {**COINS, "largest_message_epsilon": 2.1, "smallest_noise": least}
    clinics, node, caller = one_node(tmp_path, text, **rules)
    body_of(caller.start(node))
    body_of(caller.round(node, 1))
    clinics.close()


def test_rules_that_become_stricter_hold_for_studies_that_run(tmp_path: Path) -> None:
    clinics, node, caller = one_node(tmp_path)
    body_of(caller.start(node))
    body_of(caller.round(node, 1))
    clinics.write_rules("east", **CLIENTS, smallest_noise=5.0)
    assert caller.round(clinics.restart("east"), 2) is Reason.NOISE
    clinics.write_rules("east", **CLIENTS)
    body_of(caller.round(clinics.restart("east"), 2))
    clinics.close()


def test_studies_that_never_end_leave_no_room_for_others(tmp_path: Path) -> None:
    clinics, node, first = one_node(tmp_path, most_studies=1)
    second = Caller(clinics, LOCAL)
    body_of(first.start(node))
    assert second.start(node) is Reason.WORK
    body_of(first.start(node))  # no new one
    body_of(first.finish(node, "east", Used(), 3))
    body_of(second.start(node))
    clinics.close()


def test_records_that_were_exchanged_are_not_those_of_the_study(tmp_path: Path) -> None:
    """Noise for nine records does not hide one of three."""
    clinics, node, caller = one_node(tmp_path, RECORD_STUDY, SIZES)
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
        Reason.WORK,
    ),
    "deep model": (
        {"file": LOCAL.replace('name = "clinics"', f'name = "c"\nmodel = "mlp:{",".join(["1"] * 100)}"')},
        False,
        Reason.WORK,
    ),
    "a model of too many words": (
        {"file": LOCAL.replace('name = "clinics"', f'name = "c"\nmodel = "mlp:{",".join(["1"] * 99_999)}"')},
        False,
        Reason.WORK,
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
    clinics, node, _ = one_node(tmp_path, RECORD_STUDY, SIZES)
    for wrong in (SIZES[0] + 1, SIZES[0] - 1):
        assert Caller(clinics, RECORD_STUDY, counts=(wrong, *SIZES[1:])).start(node) is Reason.DATA
    clinics.close()


def test_a_node_whose_key_or_name_is_not_listed_takes_no_part(tmp_path: Path) -> None:
    clinics, node, caller = one_node(tmp_path)
    east, north, west = caller.description.members
    for members in ((replace(east, key=north.key), west), (north, west)):
        assert Caller(clinics, LOCAL, members=members).start(node) is Reason.PLAN
    clinics.close()


def test_a_description_under_another_digest_is_refused(tmp_path: Path) -> None:
    clinics, node, caller = one_node(tmp_path)
    data = pack_start(caller.description.data, {})
    for body, study in ((data, bytes(32)), (data + b" ", None), (data[:-1], None), (b"[]", None), (b"{" * 9999, None)):
        assert caller.ask(node, Kind.START, 0, body, study=study) is Reason.MALFORMED
    clinics.close()


# --- Facts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("unit", "relation"), [("client", "replace-one"), ("client", "add-remove")])
def test_a_count_that_the_node_protects_is_not_told(unit: str, relation: str, tmp_path: Path) -> None:
    clinics, node, caller = one_node(tmp_path, RECORD_STUDY, SIZES, unit=unit, relation=relation)
    assert caller.describe(node) is Reason.UNIT
    clinics.close()


def test_facts_of_a_study_that_protects_clients_hold_no_count(tmp_path: Path) -> None:
    clinics, node, caller = one_node(tmp_path)
    assert body_of(caller.describe(node)) == b'{"classes": 2, "records": null, "shape": [3]}'
    for text, reason in (("[task", Reason.PLAN), (LOCAL.replace("fedavg", "dp_sgd"), Reason.PLAN)):
        caller.description = replace(caller.description, file=text)
        assert caller.describe(node) is reason
    clinics.close()
