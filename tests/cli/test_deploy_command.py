"""`sordino deploy ...`: set up, status, stop, certify; the last test runs the commands themselves, with Flower."""

from __future__ import annotations

import configparser
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from sordino.cli.deploy_table import tables
from sordino.deploy import settings
from sordino.deploy.look import View, changes, view_of
from sordino.deploy.node import Node
from sordino.deploy.own_account import own_account
from sordino.deploy.places import NodePlace, ServerPlace
from sordino.deploy.records import read_records
from sordino.deploy.rulebook import released
from sordino.deploy.server import Server
from sordino.deploy.server_study import STOP
from sordino.deploy.setup import TEMPLATES
from sordino.deploy.statements import NODE_STATEMENT, SERVER_STATEMENT
from sordino.deploy.status import STATUS, MemberStatus, StudyStatus, read_status
from sordino.deploy.study import Study
from sordino.privacy.signing import read_signing_key, sign, verify
from tests.deploy.clinic import LocalExchange

NAMES = ("east", "west")
ROUNDS = 2
Edit = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def made(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A deployment with records, as `init` makes it."""
    folder: Path = tmp_path_factory.mktemp("made") / "clinics"
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SORDINO_DATA", raising=False)
        patch.setenv("SORDINO_CACHE", str(folder.parent / "cache"))
        run("deploy", "init", str(folder), "--name", "east", "--name", "west", "--example")
    return folder


@pytest.fixture(scope="module")
def finished(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same after a study of two rounds, whose messages went from hand to hand."""
    folder = tmp_path_factory.mktemp("finished") / "clinics"
    shutil.copytree(made, folder)
    study = folder / "study.toml"
    study.write_text(study.read_text().replace("rounds = 40", f"rounds = {ROUNDS}\nseed = 0"))
    nodes = [Node.read(folder / "nodes" / name / "node.toml") for name in NAMES]
    exchange = LocalExchange({node.settings.name: node.handle for node in nodes})
    Server.read(folder / "server" / "server.toml", exchange).begin(study, "trial")
    for node in nodes:
        node.close()
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    """One that a test may spoil."""
    return Path(shutil.copytree(finished, tmp_path / "clinics"))


def trial(folder: Path) -> Path:
    return folder / "server" / "state" / "studies" / "trial"


def own_state(folder: Path, name: str) -> Path:
    (found,) = (folder / "nodes" / name / "state" / "studies").iterdir()
    return found


# --- init ------------------------------------------------------------------------------------------------------------


def test_every_folder_has_what_its_machine_needs(made: Path) -> None:
    found = {str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()}
    node = ["node.toml", "node.key", "node.key.pub", "node.secret", "ca.crt", "server.pub", "records.csv"]
    server = ["server.toml", "server.key", "server.key.pub", "server.secret", "test.csv", "nodes/east.pub"]
    server += ["nodes/west.pub", *(f"tls/{name}" for name in ("ca.crt", "ca.key", "server.key", "server.pem"))]
    system = ["sordino-server.service", "sordino-node.service", "Containerfile"]
    assert found == {
        *(f"nodes/{name}/{file}" for name in NAMES for file in node),
        *(f"server/{file}" for file in server),
        *(f"system/{file}" for file in system),
        "study.toml",
        "README.md",
    }


def test_secret_files_are_their_owners_alone(made: Path) -> None:
    secret = [path for path in made.rglob("*") if path.suffix in (".key", ".secret", ".csv")]
    assert len(secret) == 4 + 1 + 2 * len(NAMES) + len(NAMES)
    assert {path.stat().st_mode & 0o777 for path in secret} == {0o600}
    keys = [path.read_bytes() for path in secret if path.suffix != ".csv"]
    assert len(set(keys)) == len(keys)


def test_a_node_folder_works_where_it_is_copied_to(made: Path, tmp_path: Path) -> None:
    home = Path(shutil.copytree(made / "nodes" / "west", tmp_path / "elsewhere"))
    with Node.read(home / "node.toml") as node:
        assert node.settings.name == "west"
        assert len(node.records.y) > 100
        assert node.key.public.line in (made / "server" / "nodes" / "west.pub").read_text()
        assert node.server_key == ServerPlace.of(made).public_key


def test_records_of_a_trial_are_dealt_once(made: Path) -> None:
    place = ServerPlace.of(made)
    assert place.settings.test is not None
    test = read_records(place.settings.test, place.folder)
    parts = [read_records(NodePlace.of(path).settings.data, path.parent) for path in place.nodes_here.values()]
    assert sum(len(part.y) for part in parts) == 1438  # the training records of `digits`
    assert {part.x.shape[1:] for part in (*parts, test)} == {(16,)}
    assert abs(len(parts[0].y) - len(parts[1].y)) <= 1


def test_hospitals_are_used_where_they_are_here(run: Any, tmp_path: Path, needs: Callable[[str], None]) -> None:
    needs("heart-disease")
    run("deploy", "init", str(tmp_path / "new"), "--nodes", "4", "--example")
    paths = ServerPlace.of(tmp_path / "new").nodes_here
    sizes = {name: len(read_records(NodePlace.of(path).settings.data, path.parent).y) for name, path in paths.items()}
    assert sizes == {"node1": 203, "node2": 175, "node3": 31, "node4": 88}


def test_without_records_the_settings_wait_for_them(run: Any, tmp_path: Path) -> None:
    run("deploy", "init", str(tmp_path / "new"), "--nodes", "3", "--host", "train.example", "--port", "7000")
    server = ServerPlace.of(tmp_path / "new").settings
    assert (server.host, server.port, list(server.nodes)) == ("0.0.0.0", 7000, ["node1", "node2", "node3"])
    nodes = [NodePlace.of(tmp_path / "new" / "nodes" / name).settings for name in server.nodes]
    assert {node.server.address for node in nodes} == {"train.example:7000"}
    assert len({node.port for node in nodes} | {7000}) == 4  # all on one machine, in a trial
    said = run("deploy", "up", str(tmp_path / "new"), code=2).stderr
    assert "node1/records.csv" in said


@pytest.mark.parametrize(
    ("template", "model"), [("server.toml", settings.ServerFile), ("node.toml", settings.NodeFile)]
)
def test_a_template_explains_every_key(template: str, model: Any) -> None:
    def keys(section: Any) -> set[str]:
        inner = [field.annotation for field in section.model_fields.values()]
        tables = [each for kind in inner for each in (kind, *getattr(kind, "__args__", ())) if isinstance(each, type)]
        below = [keys(each) for each in tables if issubclass(each, settings.Section)]
        return set(section.model_fields).union(*below)

    text = (TEMPLATES / template).read_text().replace("$test", "[test]").replace("$nodes", "")
    named = set(re.findall(r"^(?:# )?(\w+) = ", text, re.M)) | set(re.findall(r"^\[(\w+)\]", text, re.M))
    told = set(settings.DataSection.model_fields) if template == "server.toml" else set()  # as of a node, in [test]
    assert keys(model) - told <= named
    lines = [line for line in text.splitlines() if re.match(r"\w+ = ", line)]
    assert not [line for line in lines if "#" not in line and "methods" not in line and "mechanisms" not in line]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ([], "nodes"),
        (["--nodes", "0"], "nodes"),
        (["--nodes", "2", "--name", "a"], "nodes"),
        (["--name", "a", "--name", "A"], "name"),
        (["--name", "../a"], "name"),
        (["--nodes", "2", "--host", "two words"], "host"),
        (["--nodes", "2", "--host", "::1"], "host"),
        (["--nodes", "2", "--host", "0.0.0.0"], "host"),
        (["--nodes", "2", "--host", "10.0.0.256"], "host"),
        (["--nodes", "2", "--port", "80"], "port"),
        (["--nodes", "2", "--port", "65534"], "port"),
    ],
)
def test_what_cannot_be_set_up_is_refused(run: Any, tmp_path: Path, arguments: list[str], field: str) -> None:
    said = run("deploy", "init", str(tmp_path / "new"), *arguments, code=2).stderr
    assert said.startswith(f"error: {field} = ")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_empty_is_left_alone(run: Any, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("x")
    assert "folder = " in run("deploy", "init", str(tmp_path), "--nodes", "2", code=2).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.parametrize("part", ["server", "node"])
def test_units_are_valid_and_hardened(made: Path, tmp_path: Path, part: str) -> None:
    text = (made / "system" / f"sordino-{part}.service").read_text()
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str
    unit.read_string(text)
    service = dict(unit["Service"])
    expected = {"NoNewPrivileges": "yes", "ProtectSystem": "strict", "Restart": "always", "RestartSec": "10"}
    assert expected.items() <= service.items()
    assert service["User"] == "sordino"
    assert service["ReadWritePaths"] == service["WorkingDirectory"]
    assert f"sordino deploy {part} {service['WorkingDirectory']}/{part}.toml" in service["ExecStart"]
    if shutil.which("systemd-analyze") is not None:
        unit_file = tmp_path / f"sordino-{part}.service"
        unit_file.write_text(text.replace("/opt/sordino/bin/sordino", sys.executable))
        checked = subprocess.run(["systemd-analyze", "verify", str(unit_file)], capture_output=True, text=True)
        assert f"sordino-{part}" not in checked.stderr, checked.stderr


# --- status and stop -------------------------------------------------------------------------------------------------


def told(folder: Path, **changed: Any) -> None:
    status = json.loads((trial(folder) / STATUS).read_bytes())
    (trial(folder) / STATUS).write_text(json.dumps(status | changed))


def ended_process() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


@pytest.mark.parametrize("given", ["", "server", "server/server.toml"])
def test_status_is_found_from_every_place(run: Any, finished: Path, given: str) -> None:
    (study,) = json.loads(run("deploy", "status", str(finished / given), "--json").stdout)["studies"]
    assert (study["name"], study["state"], study["round"], study["rounds"]) == ("trial", "finished", ROUNDS, ROUNDS)
    assert study["members"] == {name: {"rounds": ROUNDS, "latest": "used"} for name in NAMES}
    assert 0 <= study["measured"]["accuracy"] <= 1


def test_a_study_whose_process_is_gone_is_interrupted(run: Any, copy: Path) -> None:
    told(copy, state="running", process=os.getpid())
    assert json.loads(run("deploy", "status", str(copy), "--json").stdout)["studies"][0]["state"] == "running"
    told(copy, state="running", process=ended_process())
    assert json.loads(run("deploy", "status", str(copy), "--json").stdout)["studies"][0]["state"] == "interrupted"
    assert "interrupted" in run("deploy", "status", str(copy)).stdout


def test_stop_asks_those_that_run(run: Any, copy: Path) -> None:
    assert "Ctrl-C in its terminal ends `deploy up`" in run("deploy", "stop", str(copy)).stdout
    assert not (trial(copy) / STOP).exists()
    told(copy, state="running", process=os.getpid())
    run("deploy", "stop", str(copy), "trial")
    assert (trial(copy) / STOP).exists()
    assert "study = 'nope'" in run("deploy", "stop", str(copy), "nope", code=2).stderr


def test_a_status_that_cannot_be_read_is_none(copy: Path) -> None:
    for text in ("", "{", "[]", '{"name": "trial"}', '{"members": 3}'):
        (trial(copy) / STATUS).write_text(text)
        assert read_status(trial(copy)) is None


# --- What people see meanwhile ---------------------------------------------------------------------------------------


def status(round: int, state: str = "running", **latest: str) -> StudyStatus:
    members = {name: MemberStatus(round, latest.get(name, "used")) for name in NAMES}
    return StudyStatus("trial", state, round, 5, members, {"accuracy": 0.5}, 0.0)


def test_events_are_told_once(finished: Path) -> None:
    nobody = view_of(NAMES, [], [])
    one = view_of(NAMES, ["east"], [])
    assert changes(View({}, ()), nobody) == []
    assert changes(nobody, one) == ["east is connected"]
    assert changes(one, nobody) == ["east is not connected any more"]
    assert changes(one, view_of(NAMES, None, [])) == []  # not known is no event
    first, second, end = (one._replace(studies=(each,)) for each in (status(1), status(2), status(2, "finished")))
    (line,) = changes(one, first)
    assert "round 1 of 5" in line
    assert "2 of 2 messages used" in line
    assert "1 of 2 messages used" in changes(first, one._replace(studies=(status(2, west="SILENT"),)))[0]
    assert changes(second, second) == []
    assert changes(second, end) == ["study trial is finished"]
    seen = view_of(NAMES, ["east"], [trial(finished)])
    assert seen.nodes["west"] == (False, ROUNDS, "used")


def test_the_tables_name_every_node_and_study() -> None:
    view = view_of([*NAMES, "[odd]"], ["east"], [])._replace(studies=(status(3, west="BUDGET"),))
    console = Console(file=io.StringIO(), width=100)
    console.print(tables(view))
    text = console.file.getvalue()
    for word in ("east", "connected", "absent", "[odd]", "3 of 5", "1 of 2", "50.0 %"):
        assert word in text


# --- Both sides ------------------------------------------------------------------------------------------------------


def test_both_sides_agree(run: Any, finished: Path) -> None:
    found = json.loads(run("deploy", "certify", str(finished), "--json").stdout)
    assert found["faults"] == []
    for node in found["nodes"]:
        assert (node["rounds_used"], node["rounds_answered"], node["ledger"]) == (ROUNDS, ROUNDS, str(ROUNDS))
        totals = [each for each in node["certificate"]["guarantees"] if each["scope"] == "all rounds"]
        assert {each["observer"] for each in totals} == {"server", "peer", "model user"}
        assert max(each["epsilon"] for each in totals) <= 4.0
    assert "agree" in run("deploy", "certify", str(finished), "trial").stdout


def test_a_server_without_the_nodes_folders_compares_statements(run: Any, finished: Path, tmp_path: Path) -> None:
    server = shutil.copytree(finished / "server", tmp_path / "server")
    found = json.loads(run("deploy", "certify", str(server), "--json").stdout)
    assert found["faults"] == []
    assert {node["ledger"] for node in found["nodes"]} == {"not here"}


def resigned(folder: Path, path: Path, kind: str, key: Path, edit: Edit) -> None:
    """The statement of a file with a change, signed by this key."""
    signer = read_signing_key(folder / key)
    honest = folder / ("server/server.key" if kind == SERVER_STATEMENT else "nodes/east/node.key")
    stated = verify(json.loads(path.read_bytes()), read_signing_key(honest).public, kind)
    edit(stated["predicate"])
    path.write_text(json.dumps(sign(stated, signer)))


def of_server(folder: Path, edit: Edit, key: str = "server/server.key") -> None:
    resigned(folder, trial(folder) / "certificate.dsse.json", SERVER_STATEMENT, Path(key), edit)


def of_east(folder: Path, edit: Edit, key: str = "nodes/east/node.key") -> None:
    resigned(folder, trial(folder) / "members" / "east.dsse.json", NODE_STATEMENT, Path(key), edit)


def smaller_epsilon(certificate: dict[str, Any]) -> None:
    for guarantee in certificate["guarantees"]:
        guarantee["epsilon"] /= 2


def edit_ledger(folder: Path) -> None:
    path = own_state(folder, "east") / "ledger.jsonl"
    path.write_text(path.read_text().replace('"rounds":[1,2]', '"rounds":[3,4]'))


def swap_statements(folder: Path) -> None:
    members = trial(folder) / "members"
    shutil.copyfile(members / "west.dsse.json", members / "east.dsse.json")


def other_ledger(folder: Path) -> None:
    """The whole ledger of the other node, which is in order by itself."""
    for name in ("ledger.jsonl", "ledger.jsonl.head"):
        shutil.copyfile(own_state(folder, "west") / name, own_state(folder, "east") / name)


def edit_description(folder: Path) -> None:
    path = trial(folder) / "description.json"
    path.write_text(path.read_text().replace('"records":719', '"records":720', 1))


SPOILED: dict[str, tuple[Callable[[Path], None], str]] = {
    "another model": (lambda f: (trial(f) / "model.safetensors").write_bytes(b"x"), "server: model"),
    "no model": (lambda f: (trial(f) / "model.safetensors").unlink(), "server: model"),
    "no statement of the server": (lambda f: (trial(f) / "certificate.dsse.json").unlink(), "server: there is no"),
    "no JSON": (lambda f: (trial(f) / "certificate.dsse.json").write_text("x"), "server: certificate.dsse.json is not"),
    "a statement of another server": (lambda f: of_server(f, lambda p: None, "nodes/east/node.key"), "server: cert"),
    "another description": (edit_description, "server: its statement is about another study"),
    "a better certificate for east": (
        lambda f: of_server(f, lambda p: smaller_epsilon(p["members"]["east"]["certificate"])),
        "east: the server's certificate for east is not",
    ),
    "a round that nobody answered": (
        lambda f: of_server(f, lambda p: p["members"]["east"].update(rounds=[[1, 3]])),
        "east: the server's statement does not speak",
    ),
    "another ledger entry": (
        lambda f: of_server(f, lambda p: p["members"]["east"].update(ledgerEntry="0" * 64)),
        "east: the ledger entry of round 2",
    ),
    "a round that does not count": (
        lambda f: of_server(f, lambda p: p["members"]["east"].update(rounds=[[1, 1]])),
        "east: the server does not count rounds 2",
    ),
    "nothing about east": (
        lambda f: of_server(f, lambda p: p["members"].pop("east")),
        "east: the server's statement does not speak",
    ),
    "fewer rounds": (lambda f: of_server(f, lambda p: p.update(rounds=1)), "server: it states 1 rounds"),
    "no statement of east": (lambda f: (trial(f) / "members" / "east.dsse.json").unlink(), "east: its signed"),
    "west's statement for east": (swap_statements, "east: its signed"),
    "east's statement signed by another": (
        lambda f: of_east(f, lambda p: None, "nodes/west/node.key"),
        "east: its signed",
    ),
    "east says it answered less": (
        lambda f: of_east(f, lambda p: p.update(rounds=[[1, 1]])),
        "east: its statement names other rounds",
    ),
    "east states a better certificate": (
        lambda f: of_east(f, lambda p: smaller_epsilon(p["certificate"])),
        "east: its certificate is not",
    ),
    "east disagrees": (lambda f: of_east(f, lambda p: p.update(disagreements=["so"])), "east: it disagrees"),
    "east speaks of another study": (
        lambda f: of_east(f, lambda p: p.update(digest="0")),
        "east: its statement is about",
    ),
    "east sent another statement than it keeps": (
        lambda f: of_east(f, lambda p: p.update(software="other")),
        "east: the statement in its own folder",
    ),
    "east's ledger is changed": (edit_ledger, "east: its ledger"),
    "east's ledger is gone": (lambda f: (own_state(f, "east") / "ledger.jsonl").unlink(), "east: its ledger is gone"),
    "east's ledger is west's": (other_ledger, "east: its statement was signed for another ledger"),
}


@pytest.mark.parametrize("spoiled", SPOILED)
def test_what_disagrees_is_named(run: Any, copy: Path, spoiled: str) -> None:
    spoil, expected = SPOILED[spoiled]
    spoil(copy)
    faults = run("deploy", "certify", str(copy), code=1).stderr.splitlines()
    assert all(line.startswith("fault: ") for line in faults)
    assert any(line.startswith(f"fault: {expected}") for line in faults), faults
    if "server" not in expected.split(":")[0] and spoiled != "another description":
        assert not [line for line in faults if line.startswith("fault: west")]


def test_statements_alone_show_what_the_server_invents(run: Any, copy: Path) -> None:
    """Without a ledger here, what the node signed says which rounds it answered."""
    key = copy.parent / "east.key"
    shutil.copyfile(copy / "nodes" / "east" / "node.key", key)
    shutil.rmtree(copy / "nodes")
    path = trial(copy) / "members" / "east.dsse.json"
    study = Study.read(trial(copy))
    certificate = study.plan.certificate(0, 1).to_json()
    stated = verify(json.loads(path.read_bytes()), read_signing_key(key).public, NODE_STATEMENT)
    stated["predicate"].update(rounds=[[1, 1]], certificate=certificate)
    path.write_text(json.dumps(sign(stated, read_signing_key(key))))
    faults = run("deploy", "certify", str(copy), code=1).stderr.splitlines()
    assert faults == ["fault: east: the server used rounds 2, which the ledger of east does not hold"]


def test_checking_writes_nothing(run: Any, copy: Path) -> None:
    def contents() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}

    before = contents()
    run("deploy", "certify", str(copy))
    run("deploy", "certify", str(copy / "nodes" / "east"))
    run("deploy", "status", str(copy))
    assert contents() == before


# --- A node's own account --------------------------------------------------------------------------------------------


def test_a_node_accounts_for_itself(run: Any, finished: Path) -> None:
    path = finished / "nodes" / "east" / "node.toml"
    found = json.loads(run("deploy", "certify", str(path), "--json").stdout)
    (study,) = found["studies"]
    assert (study["study"], study["rounds_answered"], study["ended"]) == ("trial", ROUNDS, True)
    rules, described = settings.read_node_file(path), Study.read(trial(finished))
    cost = rules.filter().cost(released(described, described.members.index("east"))).cost
    assert found["budget"]["spent"] == pytest.approx(ROUNDS * cost / rules.filter().capacity)
    assert 0.1 < found["budget"]["spent"] < 0.9
    assert "Budget: " in run("deploy", "certify", str(path.parent)).stdout


def test_a_period_later_nothing_counts(finished: Path) -> None:
    place = NodePlace.of(finished / "nodes" / "east")
    assert own_account(place, time.time() + 366 * settings.DAY).spent == 0


def test_the_own_account_is_read_while_the_node_runs(run: Any, copy: Path) -> None:
    with Node.read(copy / "nodes" / "east" / "node.toml"):
        run("deploy", "certify", str(copy / "nodes" / "east"))


def test_a_changed_ledger_spoils_the_own_account(run: Any, copy: Path) -> None:
    edit_ledger(copy)
    assert "ledger.jsonl" in run("deploy", "certify", str(copy / "nodes" / "east"), code=2).stderr


# --- Signed statements -----------------------------------------------------------------------------------------------


def test_a_signed_statement_is_verified(run: Any, finished: Path) -> None:
    own, public = own_state(finished, "east") / "certificate.dsse.json", finished / "nodes" / "east" / "node.key.pub"
    found = json.loads(run("certify", str(own), "--verify", str(public), "--json").stdout)
    assert found["node"] == "east"
    assert found["certificates"]["east"]["guarantees"]
    server = finished / "nodes" / "east" / "server.pub"
    found = json.loads(
        run("certify", str(trial(finished) / "certificate.dsse.json"), "--verify", str(server), "--json").stdout
    )
    assert set(found["certificates"]) == set(NAMES)
    assert "epsilon = " in run("certify", str(own), "--verify", str(public)).stdout


def test_a_statement_needs_the_key_of_its_signer(run: Any, copy: Path) -> None:
    own = own_state(copy, "east") / "certificate.dsse.json"
    assert "verify = None" in run("certify", str(own), code=2).stderr
    other = copy / "nodes" / "west" / "node.key.pub"
    assert "is signed by" in run("certify", str(own), "--verify", str(other), code=2).stderr
    envelope = json.loads(own.read_bytes())
    own.write_text(json.dumps(envelope | {"payload": envelope["payload"].replace("A", "B", 1)}))
    mine = copy / "nodes" / "east" / "node.key.pub"
    refused = run("certify", str(own), "--verify", str(mine), code=2)
    assert "was changed" in refused.stderr
    assert refused.stdout == ""


# --- What is refused without anything being started ------------------------------------------------------------------


@pytest.mark.parametrize("command", ["up", "server", "run", "resume", "status", "stop", "certify"])
def test_a_place_without_a_server_is_named(run: Any, tmp_path: Path, command: str) -> None:
    pytest.importorskip("flwr")
    more = {"run": ["study.toml"], "resume": ["trial"]}.get(command, [])
    assert "there is no server here" in run("deploy", command, str(tmp_path), *more, code=2).stderr


@pytest.mark.parametrize("command", ["up", "server", "node", "run", "resume"])
def test_without_the_extra_one_line_says_what_to_install(
    run: Any, finished: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setitem(sys.modules, "flwr", None)
    more = {"run": ["study.toml"], "resume": ["trial"]}.get(command, [])
    said = run("deploy", command, str(finished), *more, code=2).stderr
    assert "pip install 'sordino[deploy]'" in said
    assert len(said.splitlines()) == 1


def test_studies_are_checked_before_anything_starts(run: Any, finished: Path, tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    study = str(finished / "study.toml")
    refused = {
        "name = 'trial'": [study, "--name", "trial"],
        "a/b": [study, "--name", "a/b"],
        "nname": [study, "--set", "algorithm.nname=1"],
        "cannot be read": [str(tmp_path / "none.toml")],
        "holds 2 runs": [study, "--name", "new", "--set", "algorithm.radius=[1.0, 2.0]"],
    }
    for said, arguments in refused.items():
        assert said in run("deploy", "run", str(finished), *arguments, code=2).stderr
    assert "--run" in run("deploy", "up", str(finished), "--name", "x", code=2).stderr
    assert "none of this name" in run("deploy", "resume", str(finished), "nope", code=2).stderr


def test_without_a_server_a_study_does_not_begin(run: Any, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("flwr")
    monkeypatch.setattr("sordino.deploy.machine.ANSWER", 0.2)
    use_ports(copy, free_ports(len(NAMES) + 1))
    said = run("deploy", "run", str(copy), str(copy / "study.toml"), "--name", "new", code=2).stderr
    assert "no server runs at 127.0.0.1" in said
    assert not (trial(copy).parent / "new").exists()


def test_a_host_that_is_not_this_machine_is_named(run: Any, copy: Path) -> None:
    pytest.importorskip("flwr")
    path = copy / "server" / "server.toml"
    text = path.read_text()
    for host in ("nohost.invalid", "192.0.2.1"):  # no name at all, and an address of documentation
        path.write_text(re.sub(r'host = "[^"]*"', f'host = "{host}"', text))
        said = run("deploy", "server", str(copy), code=2).stderr
        assert f"server.toml:4: host = '{host}': is not an address of this machine" in said
        assert len(said.splitlines()) == 1


def test_a_port_in_use_and_a_second_server_are_refused(run: Any, copy: Path) -> None:
    pytest.importorskip("flwr")
    port = free_ports(len(NAMES) + 1)
    use_ports(copy, port)
    with socket.create_server(("127.0.0.1", port)):
        assert f"port = {port}" in run("deploy", "server", str(copy), code=2).stderr
        assert f"port = {port}" in run("deploy", "up", str(copy), code=2).stderr
    from sordino.files import held

    with held(copy / "server" / "state" / ".server.lock", RuntimeError()):
        assert "another server uses it" in run("deploy", "server", str(copy), code=2).stderr


def test_missing_files_are_named(run: Any, copy: Path) -> None:
    pytest.importorskip("flwr")
    (copy / "server" / "tls" / "server.pem").unlink()
    assert "server.pem" in run("deploy", "server", str(copy), code=2).stderr
    (copy / "nodes" / "east" / "ca.crt").unlink()
    assert "ca.crt" in run("deploy", "node", str(copy / "nodes" / "east"), code=2).stderr


# --- Who is let in ---------------------------------------------------------------------------------------------------


class Control:
    """The part of a SuperLink that knows nodes. A key stays known after its node was removed, as there."""

    def __init__(self) -> None:
        self.nodes: list[SimpleNamespace] = []

    def control(self, call: Callable[[Any], Any]) -> Any:
        return call(self)

    def ListNodes(self, _: Any) -> Any:
        return SimpleNamespace(nodes_info=list(self.nodes))

    def RegisterNode(self, asked: Any) -> Any:
        assert asked.public_key not in [node.public_key for node in self.nodes]
        node = SimpleNamespace(
            name=asked.name, public_key=asked.public_key, node_id=len(self.nodes), status="registered"
        )
        self.nodes.append(node)
        return node

    def UnregisterNode(self, asked: Any) -> None:
        self.nodes[asked.node_id].status = "unregistered"


def test_the_nodes_of_the_file_are_let_in_and_no_others(made: Path) -> None:
    pytest.importorskip("flwr")
    from sordino.deploy.flower.roll import let_in
    from sordino.errors import InvalidInput

    keys, link = ServerPlace.of(made).node_keys, Control()
    assert let_in(link, keys) == (NAMES, ())
    assert let_in(link, keys) == ((), ())
    assert let_in(link, {"east": keys["east"]}) == ((), ("west",))
    with pytest.raises(InvalidInput, match="cannot come back"):
        let_in(link, keys)
    with pytest.raises(InvalidInput, match="belongs to east"):
        let_in(link, {"south": keys["east"]})
    assert [node.status for node in link.nodes] == ["registered", "unregistered"]


# --- The commands themselves -----------------------------------------------------------------------------------------


def free_ports(count: int) -> int:
    """The first of so many neighbouring ports that were free a moment ago."""
    for first in range(20_000 + os.getpid() % 1000 * 10, 60_000, count):
        listeners: list[socket.socket] = []
        try:
            listeners += (socket.create_server(("127.0.0.1", first + i)) for i in range(count))
            return first
        except OSError:
            continue
        finally:
            for listener in listeners:
                listener.close()
    raise AssertionError("no ports")


def use_ports(folder: Path, first: int) -> None:
    """Move a deployment that was set up before."""
    for path in (folder / "server" / "server.toml", *folder.glob("nodes/*/node.toml")):
        text = path.read_text()
        for i in range(len(NAMES) + 1):
            text = text.replace(str(9400 + i), str(first + i))
        path.write_text(text)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc for processes")
def test_a_child_ends_with_a_parent_that_is_killed() -> None:
    child = "from sordino.deploy.flower.parent import *; end_with_parent(); import time; time.sleep(600)"
    parent = (
        "import os, subprocess, sys, time\n"
        "environment = os.environ | {'SORDINO_PARENT': str(os.getpid())}\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], env=environment)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        orphan = int(started.stdout.readline())
        assert is_alive(orphan)
        started.kill()
    end = time.monotonic() + 60
    while is_alive(orphan):
        assert time.monotonic() < end, "it lives on"
        time.sleep(0.1)


def is_alive(process: int) -> bool:
    """Whether it runs; one that has ended and that nobody has waited for does not."""
    stat = Path(f"/proc/{process}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    script = [sys.executable, "-c", "from sordino.cli import main; main()", "deploy", *arguments]
    return subprocess.run(script, capture_output=True, text=True, timeout=300)


def test_a_deployment_from_its_first_command_to_its_last(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    folder, port = tmp_path / "clinic-study", free_ports(4)
    made = command("init", str(folder), "--nodes", "3", "--port", str(port), "--example")
    assert made.returncode == 0, made.stderr
    options = ("--run", str(folder / "study.toml"), "--name", "trial", "--set", "run.rounds=3", "--json")
    up = command("up", str(folder), *options)
    assert up.returncode == 0, up.stderr
    found = json.loads(up.stdout)
    assert found["faults"] == []
    assert [(node["rounds_used"], node["rounds_answered"], node["ledger"]) for node in found["nodes"]] == [
        (3, 3, "3")
    ] * 3
    for name in ("node1", "node2", "node3"):
        assert f"{name} is connected" in up.stderr
    assert "study trial: round 3 of 3" in up.stderr
    certified = command("certify", str(folder), "trial")
    assert certified.returncode == 0, certified.stderr
    for i in range(4):  # nothing runs any more
        socket.create_server(("127.0.0.1", port + i)).close()
