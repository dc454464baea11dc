"""`sordino data` as a user runs it: its output and its exit code."""

from __future__ import annotations

import json
from functools import partial
from unittest import mock

import pytest

from sordino.data import CATALOGUE


@pytest.fixture
def data(run):
    return partial(run, "data")


@pytest.fixture
def nothing_here(tmp_path, monkeypatch):
    monkeypatch.setenv("SORDINO_DATA", str(tmp_path / "shared"))
    monkeypatch.setenv("SORDINO_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_list(data, nothing_here):
    rows = {row["name"]: row for row in json.loads(data("list", "--json").stdout)["data sets"]}
    assert list(rows) == list(CATALOGUE)
    assert rows["digits"]["found"] == "embedded"
    assert rows["mnist"] == {
        "name": "mnist",
        "records": 60000,
        "test": 10000,
        "features": "28x28x1",
        "classes": 10,
        "clients": None,
        "found": None,
    }
    table = data("list").stdout
    assert all(name in table for name in CATALOGUE)
    assert "sordino data fetch NAME" in table


def test_list_says_where(data, nothing_here):
    folder = nothing_here / "shared" / "adult"
    folder.mkdir(parents=True)
    for name in ("adult.data", "adult.test"):
        (folder / name).touch()
    rows = {row["name"]: row for row in json.loads(data("list", "--json").stdout)["data sets"]}
    assert rows["adult"]["found"] == str(folder)


def test_fetch(data, nothing_here):
    assert data("fetch", "digits").stdout == "digits: embedded, nothing to fetch\n"
    refusal = data("fetch", "mist", code=2).stderr
    assert "'mist': unknown: did you mean mnist? use one of mnist" in refusal
    assert len(refusal.strip().splitlines()) == 1


def test_fetch_offline(data, nothing_here):
    with mock.patch("sordino.data._files.urlopen", side_effect=OSError("no network")):
        refusal = data("fetch", "adult", code=2).stderr
    assert "data set = 'adult'" in refusal
    assert "no network" in refusal


def test_info(data):
    facts = json.loads(data("info", "digits", "--json").stdout)
    assert (facts["records"], facts["test records"], facts["features"], facts["classes"]) == (1438, 359, "8x8x1", 10)
    assert sum(facts["records a class"]) == 1438
    assert "partition" not in facts
    assert "8x8x1" in data("info", "digits").stdout


def test_info_of_a_partition(data, tmp_path):
    plot = tmp_path / "labels.png"
    arguments = [
        "info",
        "digits",
        "--clients",
        "100",
        "--partition",
        "dirichlet:0.3",
        "--seed",
        "4",
        "--plot",
        str(plot),
    ]
    facts = json.loads(data(*arguments, "--json").stdout)
    assert (facts["partition"], facts["seed"], facts["clients"]) == ("dirichlet:0.3", 4, 100)
    assert facts["records a client"] == {"least": 14, "median": 14.0, "most": 14}
    assert facts["records dealt"] == 1400
    assert facts["classes a client"]["median"] < 7
    assert plot.read_bytes().startswith(b"\x89PNG")
    iid = json.loads(data("info", "digits", "--clients", "100", "--json").stdout)
    assert (iid["partition"], iid["records dealt"]) == ("iid", 1438)
    assert json.loads(data("info", "digits", "--partition", "natural", "--json").stdout)["clients"] == 1438


def test_info_of_ones_own(data, tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("client,label,age\na,0,1\nb,1,2\n")
    facts = json.loads(data("info", f"csv:{path}", "--partition", "natural", "--json").stdout)
    assert (facts["records"], facts["clients"], facts["natural clients"]) == (2, 2, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("info digits --plot x.png", "plot = 'x.png': "),
        ("info digits --clients 5 --plot /nowhere/x.png", "could not be written"),
        ("info digits --clients 5 --plot x.wrong", "could not be written"),
        ("info digits --clients 5000", "digits has 1438 records"),
        ("info digits --clients 0", "clients = 0: "),
        ("convert digits never --clients 0", "clients = 0: "),
        ("info digits --partition shards:2", "clients = None: give the number"),
        ("info nothing", "unknown: use one of"),
    ],
)
def test_mistakes_are_one_line(data, arguments, message):
    refusal = data(*arguments.split(), code=2).stderr
    assert message in refusal
    assert len(refusal.strip().splitlines()) == 1


def test_a_seed_of_0_takes_the_place_of_the_run_files(data, tmp_path):
    (tmp_path / "cfg.toml").write_text(
        '[task]\nname = "digits"\nclients = 5\npartition = "dirichlet:1"\npartition_seed = 3\n'
        '[algorithm]\nname = "fedavg"\nlocal_steps = 1\nlocal_lr = 0.1\n[run]\nrounds = 1\n'
    )
    told = ["info", str(tmp_path / "cfg.toml"), "--json"]
    assert json.loads(data(*told).stdout)["seed"] == 3
    assert json.loads(data(*told, "--seed", "0").stdout)["seed"] == 0
