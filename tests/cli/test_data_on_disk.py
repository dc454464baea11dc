"""`sordino data convert`, and runs whose records stay on the disk."""

from __future__ import annotations

import json

import pytest

from tests.toys import RUN_FILE


@pytest.fixture
def folder(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("data", "convert", "digits", "kept", "--clients", "20")
    return tmp_path / "kept"


def test_convert_and_info(run, folder):
    facts = json.loads(run("data", "info", "disk:kept", "--json").stdout)
    assert (facts["clients"], facts["records"], facts["test records"], facts["classes"]) == (20, 1438, 359, 10)
    assert facts["bytes of records"] == 1438 * (64 * 4 + 4)
    assert json.loads(run("data", "convert", "digits", "other", "--clients", "20", "--json").stdout) == facts
    assert "disk:again" in run("data", "convert", "digits", "again", "--clients", "5").stdout


def test_a_run_is_that_of_records_in_memory(run, folder, tmp_path):
    on_disk = RUN_FILE.replace('name = "digits"\nclients = 20', 'name = "disk:kept"')
    for name, text in (("held", RUN_FILE), ("disk", on_disk)):
        (tmp_path / f"{name}.toml").write_text(text)
        run("run", f"{name}.toml")
    texts = [(tmp_path / "runs" / name / "metrics.jsonl").read_text() for name in ("held", "disk")]
    assert texts[0] == texts[1]
    run("certify", "runs/disk")
    info = json.loads(run("data", "info", "disk.toml", "--json").stdout)
    assert info["clients"] == 20
    assert json.loads(run("plan", "disk.toml", "--cost", "--json").stdout)["predicted_seconds"] > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("data", "convert", "digits", "kept", "--clients", "3"), "holds files already"),
        (("data", "convert", "disk:kept", "other"), "is such a folder already"),
        (("data", "convert", "digits", "other", "--partition", "iid"), "clients = None"),
        (("data", "info", "disk:nowhere"), "no such folder"),
        (("data", "info", "disk:kept", "--clients", "3"), "leave out"),
    ],
)
def test_mistakes(run, folder, arguments, words):
    assert words in run(*arguments, code=2).stderr


def test_mistakes_in_a_run_file(run, folder, tmp_path):
    text = RUN_FILE.replace('name = "digits"', 'name = "disk:kept"')
    (tmp_path / "a.toml").write_text(text)
    assert "clients = 20: the folder says whose" in run("plan", "a.toml", code=2).stderr
    (tmp_path / "a.toml").write_text(text.replace("clients = 20\n", ""))
    (folder / "x.npy").write_bytes(b"")
    assert "holds 0 bytes where" in run("plan", "a.toml", code=2).stderr
