"""`sordino plan` and `sordino run` as a user runs them: files, output, and every mistake as one line."""

from __future__ import annotations

import functools
import json
import re
import shlex
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

import sordino as so
from sordino.errors import InvalidInput
from sordino.planning import Plan
from sordino.privacy import read_ledger
from sordino.privacy.wording import ASSUME_OTHERS_HONEST
from sordino.runs import cost
from tests.toys import RUN_FILE

CONFIG = "# Digits, dealt to twenty clients.\n" + RUN_FILE.replace(
    "clients = 20\n", 'clients = 20\npartition = "iid"\n'
).replace("seed = 0\n", 'cohort = "full"\n')
FILES = set(
    "accuracy.png certificate.json checkpoint.npz config.toml environment.json ledger.jsonl metrics.jsonl "
    "model.safetensors".split()
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "cfg.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def finished(run, tmp_path_factory) -> tuple[Path, str]:
    """A finished run's folder, and what `--json` printed; nobody may write into it."""
    home = tmp_path_factory.mktemp("runs")
    (home / "cfg.toml").write_text(CONFIG)
    result = run("run", str(home / "cfg.toml"), "--runs", str(home), "--name", "x", "--set", "run.seed=5", "--json")
    first, *lines = result.stderr.splitlines()  # off a terminal: a line at each evaluation
    assert first.startswith("epsilon of one client of 20")
    assert [line.split("  ")[0] for line in lines] == ["round 1/3", "round 2/3", "round 3/3"]
    assert all(re.search(r"epsilon \d.*loss \d.*accuracy [\d.]+ %$", line) for line in lines)
    return home / "x", result.stdout


def test_the_cost_of_a_run_is_predicted_before_it(run, config, finished, monkeypatch):
    monkeypatch.setattr(cost, "predict_cost", functools.partial(cost.predict_cost, enough=0.02))
    before = set(config.parent.iterdir())
    planned = json.loads(run("plan", str(config), "--cost", "--json").stdout)
    assert set(config.parent.iterdir()) == before
    kept = sum((finished[0] / name).stat().st_size for name in FILES - {"accuracy.png"})
    assert planned["predicted_disk_mib"] * 2**20 == pytest.approx(kept, rel=0.3)
    sent = 3 * 20 * 2 * 4 * 650  # rounds, clients, there and back, float32
    assert planned["predicted_sent_mib"] * 2**20 == pytest.approx(sent, rel=0.01)
    assert planned["predicted_evaluations"] == 3
    parts = ("round_s", "evaluation_s")
    each = sum(planned[f"predicted_{part}"] for part in parts)
    assert planned["predicted_seconds"] == pytest.approx(planned["predicted_start_s"] + 3 * each)
    assert 20 < planned["predicted_memory_mib"] < 1e6


def test_the_cost_of_a_sweep_is_refused(run, config):
    refused = run("plan", str(config), "--cost", "--set", "algorithm.local_lr=[0.1, 0.2]", code=2).stderr
    assert refused == "error: cost = True: is predicted for a single run: give every key of the file one value\n"


def test_files(finished):
    folder, _ = finished
    assert {path.name for path in folder.iterdir()} >= FILES
    assert not list(folder.glob("*.tmp"))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [1, 2, 3]
    assert all(0 <= row["accuracy"] <= 1 for row in rows)
    assert rows[0]["epsilon"] < rows[1]["epsilon"] < rows[2]["epsilon"] <= 8.0
    promised = json.loads((folder / "certificate.json").read_text())["guarantees"]
    (total,) = (each for each in promised if each["scope"] == "all rounds" and each["epsilon"] == rows[2]["epsilon"])
    for part in ("unit", "relation", "observer", "accountant"):  # an epsilon says whose it is wherever it stands
        assert all(total[part] in row["epsilon_of"] for row in rows)
    assert all(f"delta {total['delta']:g}," in row["epsilon_of"] for row in rows)
    assert json.loads((folder / "environment.json").read_text())["seed"] == 5
    assert tomllib.loads((folder / "config.toml").read_text())["run"] == {"rounds": 3, "cohort": "full", "seed": 5}


def test_the_page_names_every_file_of_a_run(finished):
    page = (Path(__file__).parents[2] / "docs" / "run_file.md").read_text().partition("## What a run leaves")[2]
    named = {name for first in re.findall(r"^\| (`.*?) \|", page, re.M) for name in re.findall(r"`(.*?)`", first)}
    fresh = {"seed.private", "reading.json"}  # this run was given its seed, and is not on a table
    assert named - fresh == {path.name for path in finished[0].iterdir() if path.suffix != ".lock"}
    assert named >= fresh


def test_what_is_not_private_says_so(finished):
    """At the top only what test data and the accountant give; all that was computed on clients' data lies below."""
    for line in (finished[0] / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        assert set(row) == {"round", "test_loss", "accuracy", "epsilon", "epsilon_of", "not_private"}
        assert set(row["not_private"]) >= {"participants", "mean_norm", "clipped_share", "dropped", "signal_to_noise"}
        assert row["not_private"]["participants"] == 20


def test_json(finished):
    folder, text = finished
    data = json.loads(text)
    assert data["rounds"] == 3
    assert data["run"] == str(folder)
    assert 0.1 < data["accuracy"] <= 1
    assert data["guarantees"] == json.loads((folder / "certificate.json").read_text())["guarantees"]


def test_the_model_can_be_read(finished):
    model = so.load_model(finished[0] / "model.safetensors")
    assert sorted(array.shape for array in model.values()) == [(10,), (10, 64)]
    assert all(np.isfinite(array).all() and array.any() for array in model.values())


def test_the_ledger_certifies_what_was_planned(run, finished):
    folder, _ = finished
    spent = json.loads(run("certify", str(folder), "--json").stdout)
    planned = json.loads((folder / "certificate.json").read_text())
    total = {
        g["observer"]: g["epsilon"]
        for g in planned["guarantees"]
        if g["rounds"] == 3 and "all" in g.get("scope", "all")
    }
    again = {g["observer"]: g["epsilon"] for g in spent["guarantees"]}
    assert again == total
    assert again["model user"] == pytest.approx(8.0, abs=0.01)
    assert again["server"] == "inf"
    assert spent["releases"] == 6


@pytest.mark.parametrize("runs", ["runs", "other runs"])
def test_the_command_that_a_refused_resume_names_goes_on(run, finished, tmp_path, monkeypatch, runs):
    monkeypatch.chdir(tmp_path)
    folder = Path(runs) / "again"
    shutil.copytree(finished[0], folder)
    shutil.copy(folder / "config.toml", "cfg.toml")
    options = ["--runs", runs, "--name", "again", "--resume"]
    said = run("run", "cfg.toml", *options, "--set", "run.seed=6", code=2).stderr
    sordino, *command = shlex.split(said.split("`")[1])
    assert sordino == "sordino"
    before = (folder / "metrics.jsonl").read_bytes()
    (folder / "model.safetensors").unlink()
    run(*command)
    assert (folder / "model.safetensors").exists()
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_running_again_needs_resume(run, finished, tmp_path):
    folder = tmp_path / "x"
    shutil.copytree(finished[0], folder)
    config = folder / "config.toml"
    result = run("run", str(config), "--runs", str(tmp_path), "--name", "x", code=2)
    assert "exists already" in result.stderr
    assert "--resume" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    before = {name: (folder / name).read_bytes() for name in ("ledger.jsonl", "metrics.jsonl", "model.safetensors")}
    run("run", str(config), "--runs", str(tmp_path), "--name", "x", "--resume")
    assert before == {name: (folder / name).read_bytes() for name in before}


@pytest.mark.parametrize("change", ["run.seed=6", "algorithm.local_lr=0.4", "privacy.epsilon=9.0", "run.rounds=4"])
def test_resume_with_another_configuration(run, finished, tmp_path, change):
    """The rounds would not be the same again, though the ledger holds them once."""
    folder = tmp_path / "x"
    shutil.copytree(finished[0], folder)
    arguments = ["run", str(folder / "config.toml"), "--runs", str(tmp_path), "--name", "x", "--resume"]
    result = run(*arguments, "--set", change, code=2)
    assert "another configuration" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    if not change.startswith("algorithm"):  # what is kept beside it knows too
        (folder / "config.toml").rename(tmp_path / "cfg.toml")
        arguments[1] = str(tmp_path / "cfg.toml")
        # Not of the seed, which is in a digest that stays here.
        says = (
            "seed, records, loss, chunk or devices have changed"
            if change.startswith("run.seed")
            else "another configuration"
        )
        assert says in run(*arguments, "--set", change, code=2).stderr


ASSUMPTIONS = {
    "central": ([], {"server": [], "model user": ["the server adds the noise and keeps updates to itself"]}),
    "poisson": (
        ["run.cohort=poisson:0.5"],
        {
            "server": [],
            "model user": [
                "the server adds the noise and keeps updates to itself",
                "poisson:0.5 sampling stays hidden from the model user",
            ],
        },
    ),
    "local": (["privacy.trust=local"], {"server": [], "model user": [ASSUME_OTHERS_HONEST]}),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "poisson" else ()) for name in ASSUMPTIONS]
)
def test_assumptions_stand_in_the_ledger_and_in_what_is_computed_from_it(run, config, tmp_path, name):
    """A certificate that is computed again rests on what the first one rested on, and says so."""
    changes, expected = ASSUMPTIONS[name]
    options = [f"--set={change}" for change in ("run.rounds=1", *changes)]
    run("run", str(config), "--runs", str(tmp_path), *options)
    folder = tmp_path / "cfg"
    assert read_ledger(folder / "ledger.jsonl").description["assumptions"] == expected
    first = json.loads((folder / "certificate.json").read_text())["guarantees"]
    again = json.loads(run("certify", str(folder), "--json").stdout)["guarantees"]
    assert {row["observer"]: row["assumptions"] for row in again} == expected
    assert [row for row in first if row["scope"] == "all rounds"] == again
    text = " ".join(run("certify", str(folder)).stdout.split())
    for assumption in expected["model user"]:
        assert f"assuming {assumption}" in text


def test_resume_of_nothing(run, config, tmp_path):
    result = run("run", str(config), "--runs", str(tmp_path), "--resume", code=2)
    assert "nothing has been run here: run without --resume" in result.stderr
    run("run", str(config), "--runs", str(tmp_path), "--set", "run.rounds=1")


def test_a_damaged_checkpoint_only_costs_time(run, finished, tmp_path):
    folder = tmp_path / "x"
    shutil.copytree(finished[0], folder)
    before = {name: (folder / name).read_bytes() for name in ("ledger.jsonl", "metrics.jsonl", "model.safetensors")}
    whole = (folder / "checkpoint.npz").read_bytes()
    for damaged in (b"", b"nonsense", whole[: len(whole) // 2]):
        (folder / "checkpoint.npz").write_bytes(damaged)
        run("run", str(folder / "config.toml"), "--runs", str(tmp_path), "--name", "x", "--resume")
        assert before == {name: (folder / name).read_bytes() for name in before}


def test_a_plan_is_resolved_once(run, config, tmp_path, monkeypatch):
    """Calibrating may take minutes."""
    resolve, calls = Plan.resolve, []
    monkeypatch.setattr(Plan, "resolve", lambda *arguments: calls.append(1) or resolve(*arguments))
    run("run", str(config), "--runs", str(tmp_path), "--set", "run.rounds=1")
    assert len(calls) == 1
    run("run", str(config), "--runs", str(tmp_path), "--name", "s", "--set", "run.rounds=1", "--set", "run.seed=[0, 1]")
    assert len(calls) == 3


def test_plan_writes_nothing(run, config, tmp_path):
    data = json.loads(run("plan", str(config), "--json").stdout)
    assert data["noise_multiplier"] == pytest.approx(so.calibrate_gaussian(epsilon=8.0, delta=1e-4, rounds=3), rel=1e-3)
    assert (data["clients"], data["parameters"], data["planned_cohort"]) == (20, 650, 20)
    result = run("plan", str(config))
    assert "model user, over all 3 rounds: epsilon = 8" in result.stdout
    assert result.stderr == ""
    assert list(tmp_path.iterdir()) == [config]


def test_set(run, config):
    base = json.loads(run("plan", str(config), "--json").stdout)
    changes = ("run.rounds=30", "run.cohort=poisson:0.5", "task.clients=40", "privacy.relation=add-remove")
    data = json.loads(run("plan", str(config), "--json", *(f"--set={change}" for change in changes)).stdout)
    assert (data["rounds"], data["cohort"], data["planned_cohort"]) == (30, "poisson:0.5", 20)
    assert data["noise_multiplier"] > base["noise_multiplier"]


def test_no_bound_and_no_epsilon_is_not_private(run, tmp_path):
    path = tmp_path / "plain.toml"
    path.write_text(CONFIG[: CONFIG.index("[bound]")] + "[run]\nrounds = 1\n")
    text = run("run", str(path), "--runs", str(tmp_path)).stdout
    assert "no guarantee" in text
    row = json.loads((tmp_path / "plain" / "metrics.jsonl").read_text())
    assert row["epsilon"] == "inf"


def test_a_run_that_diverges_ends_in_words(run, config, tmp_path):
    """Huge steps make the loss infinite or NaN: the metrics say null, and nothing breaks."""
    changes = ("algorithm.server_lr=1e38", "privacy.epsilon=1e-3", "run.rounds=2")
    run("run", str(config), "--runs", str(tmp_path), *(f"--set={change}" for change in changes))
    rows = [json.loads(line) for line in (tmp_path / "cfg" / "metrics.jsonl").read_text().splitlines()]
    assert [row["test_loss"] for row in rows][-1] is None
    run("run", str(config), "--runs", str(tmp_path), "--resume", *(f"--set={change}" for change in changes))


# --- Mistakes: one line with file and line, key and remedy; exit code 2 -------------------------------------------

MISTAKES = {
    "unknown key": ("local_steps = 2", "local_stepz = 2", ["[algorithm]", "is not known", "local_steps"]),
    "another unknown key": (
        "clip = 1.0",
        "clip = 1.0\nnorm = 2.0",
        [":14:", "[bound] norm", "is not known; use one of clip"],
    ),
    "unknown section": ("[bound]", "[bounds]", ["[bounds]", "is not known", "bound, privacy"]),
    "cohort too large": ('"full"', '"fixed:99999"', [":21:", "[run] cohort", "only 20 clients"]),
    "unknown cohort": ('"full"', '"some"', [":21:", "[run] cohort", "poisson:Q"]),
    "clip = 0": ("clip = 1.0", "clip = 0", [":13:", "[bound] clip = 0", "norm bound"]),
    "two bounds": ("clip = 1.0", "clip = 1.0\nnormalize = 1.0", ["bound", "one of clip, normalize"]),
    "no bound": ("[bound]\nclip = 1.0", "", ["bound", "needs a bound"]),
    "adaptive clip": ("clip = 1.0", "adaptive_clip = {start = 1.0}", [":13:", "[bound] adaptive_clip", "start"]),
    "two budgets": ("delta = 1e-4", "delta = 1e-4\nnoise_multiplier = 1.0", [":16:", "[privacy] epsilon", "not both"]),
    "no delta": ("delta = 1e-4", "", ["delta", "give delta"]),
    "option without mechanism": ("epsilon = 8.0", "levels = 64", [":16:", "[privacy] levels", "mechanism"]),
    "no such data": ('"digits"', '"digitz"', [":3:", "[task] name = 'digitz'", "use one of"]),
    "no such model": ('partition = "iid"', 'partition = "iid"\nmodel = "mpl:8"', [":6:", "[task] model", "mlp"]),
    "no such partition": ('"iid"', '"idd"', [":5:", "[task] partition", "shards:K"]),
    "too many clients": ("clients = 20", "clients = 5000", [":4:", "[task] clients", "at most"]),
    "wrong type": ("rounds = 3", 'rounds = "3"', [":20:", "[run] rounds = '3'", "must be a number"]),
    "fraction of a round": ("rounds = 3", "rounds = 3.5", [":20:", "[run] rounds = 3.5", "whole number"]),
    "no rounds": ("rounds = 3", "", [":19:", "[run] rounds", "missing"]),
    "zero rounds": ("rounds = 3", "rounds = 0", [":20:", "[run] rounds = 0", "at least 1"]),
    "no such method": ('"fedavg"', '"fedprox"', [":8:", "[algorithm] name", "fedavg"]),
    "negative step": ("local_lr = 0.5", "local_lr = -0.5", [":10:", "[algorithm] local_lr", "positive"]),
    "schedule": ("local_lr = 0.5", "local_lr = {begin = 1.0}", [":10:", "[algorithm] local_lr", "{start, decay}"]),
    "momentum": ("local_lr = 0.5", "local_lr = 0.5\nmomentum = 1.0", [":11:", "[algorithm] momentum", "[0, 1)"]),
    "not TOML": ("clip = 1.0", "clip = ", ["cfg.toml", "TOML", "line 13"]),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_mistake_is_one_line(run, config, tmp_path, name, command):
    right, wrong, words = MISTAKES[name]
    assert CONFIG.count(right) == 1
    config.write_text(CONFIG.replace(right, wrong))
    options = ["--runs", str(tmp_path)] if command == "run" else []
    result = run(command, str(config), *options, code=2)
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    assert str(config) in result.stderr
    for word in words:
        assert word in result.stderr
    assert list(tmp_path.iterdir()) == [config]  # nothing was begun


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("rounds=3", "section.key=value"),
        ("run.rounds", "section.key=value"),
        ("run.=3", "section.key=value"),
        ("run.rounds=many", "must be a number"),
        ("run.roundz=3", "is not known"),
        ("runs.rounds=3", "is not known"),
        ("bound.clip=0", "clip = 0"),
        ("run.chunk=0", "chunk = 0"),
        ("run.evaluate_every=-1", "evaluate_every = -1"),
    ],
)
def test_a_wrong_change_is_one_line(run, config, tmp_path, change, word):
    result = run("run", str(config), "--runs", str(tmp_path), "--set", change, code=2)
    assert word in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_file_that_is_not_there_or_no_text(run, tmp_path):
    assert "check the path" in run("run", str(tmp_path / "no.toml"), code=2).stderr
    (tmp_path / "picture.toml").write_bytes(b"\x89PNG\xff\xfe")
    assert "is not UTF-8 text" in run("plan", str(tmp_path / "picture.toml"), code=2).stderr


def test_simulate_refuses_what_makes_no_sense():
    task = so.task("digits", clients=5)
    plan = so.plan(so.fedavg(local_steps=1, local_lr=0.1), rounds=1)
    for options in ({"chunk": 0}, {"evaluate_every": 0}):
        with pytest.raises(InvalidInput, match="at least 1"):
            so.simulate(plan, task, **options)


def test_the_folder_of_the_demo_is_made(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("demo", "--rounds", "1")
    assert (tmp_path / "runs" / "demo.png").exists()


def test_demo(run, tmp_path):
    text = run("demo", "--rounds", "2", "--picture", str(tmp_path / "demo.png")).stdout
    assert "Who could learn what about one client" in text
    assert "over all 2 rounds" in text
    assert (tmp_path / "demo.png").exists()


def test_a_run_is_signed_by_a_key_that_is_read_before_anything_runs(run, config, tmp_path):
    key, public, private = tmp_path / "key", tmp_path / "key.pub", ed25519.Ed25519PrivateKey.generate()
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public.write_bytes(private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    arguments = ["run", str(config), "--runs", str(tmp_path / "runs"), "--set", "run.rounds=1", "--sign"]
    for wrong in ("nowhere", str(config)):
        assert "sign = " in run(*arguments, wrong, code=2).stderr
    assert not (tmp_path / "runs").exists()
    data = json.loads(run(*arguments, str(key), "--json").stdout)
    folder = tmp_path / "runs" / "cfg"
    assert data["signature"] == str(folder / "signature.dsse.json")
    verified = json.loads(run("certify", str(folder), "--verify", str(public), "--json").stdout)
    assert verified["signed_by"] == data["signed_by"]
    assert data["signed_by"] in run("certify", str(folder), "--verify", str(public)).stdout.replace("\n", "")
    both = ["certify", str(folder), "--verify", str(public), "--sign", str(key)]
    assert "verify = " in run(*both, code=2).stderr
    assert "verify = " in run("certify", str(folder), "--verify", str(key), code=2).stderr
    alone = ["certify", str(folder / "ledger.jsonl"), "--verify", str(public)]
    assert "give the folder" in run(*alone, code=2).stderr
