"""Lists of runs, sweeps, comparisons and studies, and their reports."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sordino.deploy import server_study, statements
from sordino.errors import InvalidInput
from sordino.privacy.signing import SigningKey, sign, statement
from sordino.report.board import Board
from sordino.report.html import report_html
from sordino.report.listing import list_runs
from sordino.report.page import page_of
from sordino.report.readers import readers
from sordino.report.subject import read_subject
from sordino.runs import names
from tests.cli.conftest import *  # noqa: F403  # the command line in this process
from tests.toys import RUN_FILE, write_run_file
from tests.web.makers import run_into

GRID = (
    ('name = "digits"\nclients = 20', 'name = "digits"\nclients = 5'),
    ("local_lr = 0.5", "local_lr = { grid = [0.1, 0.5] }"),
    ("clip = 1.0", "clip = { grid = [0.5, 1.0] }"),
    ("rounds = 3\nseed = 0", "rounds = 2"),
)


@pytest.fixture(scope="module")
def home(run, tmp_path_factory) -> Path:
    """A run, a sweep, a comparison, a damaged run and something else."""
    home = tmp_path_factory.mktemp("runs")
    run_into(home / "alone", rounds=2)
    shutil.copytree(home / "alone", home / "broken")
    (home / "broken" / "certificate.json").write_text("?")
    (home / "notes").mkdir()
    file = write_run_file(home, RUN_FILE, *GRID)
    run("run", str(file), "--runs", str(home), "--name", "swept")
    files = []
    for name, lr in (("a", 0.5), ("b", 0.1)):
        files.append(home / f"{name}.toml")
        files[-1].write_text(RUN_FILE.replace("local_lr = 0.5", f"local_lr = {lr}"))
    run("compare", *map(str, files), "--seeds", "2", "--out", str(home / "cmp"))
    return home


def report(path: Path, *, public: bool = False) -> str:
    return report_html(page_of(read_subject([path], readers()), public=public))


def test_a_line_for_each(home):
    found = {each.name: each for each in list_runs(home)}
    kinds = {"alone": "run", "broken": "damaged", "cmp": "comparison", "swept": "sweep"}
    assert {name: each.kind for name, each in found.items()} == kinds
    alone, swept, compared = found["alone"], found["swept"], found["cmp"]
    assert (compared.done, compared.planned, compared.finished) == (4, 4, True)
    assert (compared.method, compared.epsilon) == ("fedavg", "8.000")
    assert (alone.done, alone.planned, alone.finished, alone.against) == (2, 2, True, "model user")
    assert (swept.done, swept.planned, swept.finished, swept.method) == (4, 4, True, "fedavg")
    assert "model user" in alone.epsilon_of


def test_the_command(home, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    said = run("runs", str(home)).stdout
    assert max(map(len, said.splitlines())) <= 80
    listed = json.loads(run("runs", str(home), "--json").stdout)["runs"]
    assert [each["name"] for each in listed] == ["alone", "broken", "cmp", "swept"]
    assert "is not a folder" in run("runs", str(home / "cfg.toml"), code=2).stderr
    for name, kind in (("cmp", "comparison"), ("alone", "run")):
        said = run("runs", str(home / name)).stdout
        assert said == f"{home / name} is a {kind} itself: sordino report {home / name}\n"


def test_the_report_of_a_sweep(home):
    found = read_subject([home / "swept"], readers())
    assert found.grid.varied == ("algorithm.local_lr", "bound.clip")
    best = [next(p for p in found.grid.points if run.name.startswith(p.name.zfill(5))).measured for run in found.runs]
    assert best == sorted(best, reverse=True)
    text = report(home / "swept")
    assert text.count('class="map"') == 1
    assert text.count("<title>point") == 4
    public = report(home / "swept", public=True)
    assert 'class="map"' not in public
    assert "test accuracy</th>" not in public


def test_the_report_of_a_comparison(home):
    found = read_subject([home / "cmp"], readers())
    assert [run.name for run in found.runs] == ["a", "b"]
    text = report(home / "cmp")
    assert 'class="bars"' in text
    assert 'class="bars"' not in report(home / "cmp", public=True)
    for path in (home / "cmp" / "comparison.json", *(home / "cmp").glob("table.*"), *(home / "cmp").glob("*.png")):
        assert path.stat().st_mode & 0o077 == 0


def test_a_comparison_that_goes_on(home, tmp_path):
    copy = shutil.copytree(home / "cmp", tmp_path / "runs" / "cmp")
    board = Board(copy.parent)
    assert board.listed()[0].finished
    (copy / "comparison.json").unlink()
    shutil.rmtree(copy / "b")
    (listed,) = board.listed()
    assert (listed.kind, listed.done, listed.planned, listed.going) == ("comparison", 2, 0, True)
    with pytest.raises(InvalidInput, match="has not ended"):
        report(copy)


def test_kinds_do_not_mix(home):
    with pytest.raises(InvalidInput, match="is a sweep"):
        read_subject([home / "alone", home / "swept"], readers())


def test_the_command_writes_a_report_beside_the_run(home, run):
    said = json.loads(run("report", str(home / "alone"), "--public", "--json").stdout)
    assert Path(said["report"]) == home / "alone" / "report-public.html"
    assert Path(said["report"]).stat().st_size == said["bytes"]
    run("certify", str(home / "alone"))  # the run still agrees with its ledger
    assert "ends in .html" in run("report", str(home / "alone"), "--out", "x.pdf", code=2).stderr


# --- Studies ---------------------------------------------------------------------------------------------------------


def test_the_public_sees_no_measured_value_of_a_study(studied):
    status = json.loads((studied / names.STATUS).read_text())
    (studied / names.STATUS).write_text(json.dumps(status | {"measured": {"accuracy": 0.75}}))
    assert [each.value is None for each in list_runs(studied.parent)] == [False]
    assert [each.value is None for each in list_runs(studied.parent, public=True)] == [True]


def test_metrics_of_another_shape_are_damage(home, tmp_path):
    copy = shutil.copytree(home / "alone", tmp_path / "runs" / "alone")
    (copy / "metrics.jsonl").write_text((copy / "metrics.jsonl").read_text().replace('"round"', '"r"'))
    (listed,) = list_runs(copy.parent)
    assert listed.kind == "damaged"
    assert Board(copy.parent).curves(["alone"]) == []


@pytest.fixture
def studied(home, tmp_path) -> Path:
    """The folder of a study of three members, of whom one sent nothing."""
    folder, key = tmp_path / "clinics", SigningKey(Ed25519PrivateKey.generate())
    folder.mkdir()
    stated = json.loads((home / "alone" / "certificate.json").read_text())
    members = {
        "north": {"rounds": [[1, 2]], "ledgerEntry": "", "certificate": stated},
        "south": {"rounds": [[1, 1]], "ledgerEntry": "", "certificate": stated},
        "west": {"rounds": [], "ledgerEntry": "", "certificate": None},
    }
    predicate = {"members": members, "rounds": 2, "digest": "d1", "software": "sordino 1", "signedAt": "now"}
    signed = sign(statement({"description.json": {"sha256": "d1"}}, statements.SERVER_STATEMENT, predicate), key)
    (folder / names.STATEMENT).write_text(json.dumps(signed))
    (folder / names.DESCRIPTION).write_text(
        json.dumps({"name": "clinics", "server": key.public.line, "file": RUN_FILE})
    )
    lines = [server_study.RoundLine(n, {"north": "e"}, {}, [], 1.5, {"accuracy": 0.1 * n}) for n in (1, 2)]
    (folder / names.JOURNAL).write_bytes(b"".join(line.to_bytes() for line in lines))
    (folder / names.STATUS).write_text(json.dumps({"round": 2, "rounds": 2, "state": "done", "measured": {}}))
    return folder


def test_the_report_of_a_study(studied):
    found = read_subject([studied], readers())
    assert [(member.name, member.rounds) for member in found.members] == [("north", 2), ("south", 2), ("west", 0)]
    text = report(studied)
    assert all(name in text for name in ("north", "south", "west", "sent nothing"))
    (listed,) = list_runs(studied.parent)
    assert (listed.kind, listed.done, listed.finished) == ("study", 2, True)


def test_a_changed_statement_is_refused(studied):
    envelope = json.loads((studied / names.STATEMENT).read_text())
    payload = base64.b64decode(envelope["payload"]).replace(b"model user", b"outsider")
    envelope["payload"] = base64.b64encode(payload).decode()
    (studied / names.STATEMENT).write_text(json.dumps(envelope))
    with pytest.raises(InvalidInput, match="was changed"):
        read_subject([studied], readers())


def test_a_study_that_goes_on_is_not_reported(studied):
    (studied / names.STATEMENT).unlink()
    with pytest.raises(InvalidInput, match="not ended"):
        read_subject([studied], readers())
