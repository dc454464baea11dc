"""`sordino run` and `sordino plan` on a file that stands for many runs."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from pyarrow import parquet

import sordino as so
from sordino.errors import Refused
from sordino.privacy import wording
from sordino.privacy.events import Gaussian, Repeated
from sordino.report.sweeps import best_point, plot_heat_map, rule_for, tidy_table, tuning_cost, write_table
from sordino.runs import RunStore
from sordino.types import Relation

CONFIG = """\
[task]
name = "digits"
clients = 10
partition = "iid"

[algorithm]
name = "fedavg"
local_steps = 1
local_lr = { grid = [0.1, 0.5] }

[bound]
clip = { grid = [0.5, 1.0] }

[privacy]
epsilon = 8.0
delta = 1e-3

[run]
rounds = 2
seed = [0, 7]
"""


FILES_OF_A_POINT = set(
    "certificate.json config.toml environment.json ledger.jsonl ledger.jsonl.head ledger.jsonl.lock metrics.jsonl "
    "records.sha256 digests.salt".split()
)


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "grid.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def finished(run, tmp_path_factory) -> tuple[Path, dict]:
    """A finished sweep's folder, and what `--json` printed; nobody may write into it."""
    home = tmp_path_factory.mktemp("sweeps")
    (home / "grid.toml").write_text(CONFIG)
    result = run("run", str(home / "grid.toml"), "--runs", str(home), "--name", "x", "--json")
    shares = [int(line.split()[0]) for line in result.stderr.splitlines()]  # off a terminal
    assert shares == sorted(set(shares))
    assert shares[-1] == 100
    return home / "x", json.loads(result.stdout)


@pytest.fixture
def again(finished, tmp_path) -> Path:
    """A copy of the finished sweep."""
    return Path(shutil.copytree(finished[0], tmp_path / "x"))


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "table.csv").open() as lines:
        return list(csv.DictReader(lines))


def kept_points(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Points that are finished, with what they measured and when they were."""
    return {
        path.name: ((path / "metrics.jsonl").read_bytes(), (path / "environment.json").stat().st_mtime_ns)
        for path in (folder / "points").iterdir()
        if (path / "environment.json").exists() and RunStore.read(path).finished
    }


def test_files(finished):
    folder, _ = finished
    assert sorted(path.name for path in folder.iterdir()) == [
        ".lock",
        "config.toml",
        "heat_map.png",
        "points",
        "records.sha256",
        "table.csv",
        "table.parquet",
    ]
    points = sorted((folder / "points").iterdir())
    assert [path.name for path in points] == [f"{n:05d}" for n in range(8)]
    for point in points:
        assert {path.name for path in point.iterdir()} - {"model.safetensors"} == FILES_OF_A_POINT
    rows = table(folder)
    assert [(float(row["algorithm.local_lr"]), float(row["bound.clip"]), int(row["run.seed"])) for row in rows] == [
        (lr, clip, seed) for lr in (0.1, 0.5) for clip in (0.5, 1.0) for seed in (0, 7)
    ]
    assert len({row["test_loss"] for row in rows}) == 8
    assert {(row["epsilon_server"], row["delta_model_user"]) for row in rows} == {("inf", "0.001")}
    assert all(float(row["epsilon_model_user"]) == pytest.approx(8.0, abs=1e-6) for row in rows)
    (of,) = {row["epsilon_of"] for row in rows}
    server, model_user, warned = of.split(" | ")
    assert warned.startswith("warnings: ")
    assert "this-run-alone" in warned
    assert server.startswith(
        "epsilon_server: one client of 10, add-remove, against the server, over all 2 rounds, none"
    )
    assert model_user.startswith(
        "epsilon_model_user: one client of 10, add-remove, against the model user, over all 2 rounds, exact Gaussian; "
        "assuming the server adds the noise"
    )
    columns = parquet.read_table(folder / "table.parquet").to_pydict()
    assert columns.keys() == rows[0].keys()
    assert columns["accuracy"] == [float(row["accuracy"]) for row in rows]


def test_certify_recomputes_every_point_and_each_alone(run, finished):
    folder, data = finished
    again = json.loads(run("certify", str(folder), "--json").stdout)
    assert again["sweep"] == str(folder)
    assert "not covered" in again["choosing"]["note"]
    assert [point["point"] for point in again["points"]] == list(range(8))
    for point, row in zip(again["points"], data["rows"], strict=True):
        totals = {each["observer"]: each["epsilon"] for each in point["guarantees"]}
        assert totals == {"server": "inf", "model user": row["epsilon_model_user"]}
        assert point["releases"] == 4  # two rounds, two observers
        alone = json.loads(run("certify", str(folder / "points" / f"{point['point']:05d}"), "--json").stdout)
        assert alone["guarantees"] == point["guarantees"]
    text = run("certify", str(folder)).stdout
    assert text.count("8.000 at delta 0.001") == 8
    assert text.count("model user, over all 2 rounds: epsilon = 8.000") == 1


def test_the_model_of_the_best_points_is_kept_and_can_be_used(run, finished):
    folder, data = finished
    kept = [int(path.parent.name) for path in sorted(folder.glob("points/*/model.safetensors"))]
    assert kept == data["best_points"]
    stored = RunStore.read(folder / "points" / f"{kept[0]:05d}")
    task = so.task("digits", clients=10, partition="iid")
    arrays = so.load_model(stored.model_file)
    names = [
        jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(task.params(jnp.ones(task.d)))
    ]
    w = jnp.concatenate([arrays[name].ravel() for name in names])
    assert task.evaluate(w)["accuracy"] == pytest.approx(data["rows"][kept[0]]["accuracy"])


@pytest.mark.parametrize(("models", "kept"), [("all", 2), ("none", 0)])
def test_models_of_all_points_or_of_none(run, file, tmp_path, models, kept):
    two = ["--set", "bound.clip=1.0", "--set", "algorithm.local_lr=0.5", "--models", models]
    run("run", str(file), "--runs", str(tmp_path), "--name", "y", *two)
    assert len(list((tmp_path / "y").glob("points/*/model.safetensors"))) == kept


def test_every_point_of_a_sweep_is_signed(run, again, tmp_path):
    """Also of one that is there already; models that were deleted do not matter."""
    key = tmp_path / "key"
    private = ed25519.Ed25519PrivateKey.generate()
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    (tmp_path / "key.pub").write_bytes(private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    arguments = [
        "run",
        str(again / "config.toml"),
        "--runs",
        str(tmp_path),
        "--name",
        "x",
        "--sign",
        str(key),
        "--json",
    ]
    data = json.loads(run(*arguments).stdout)
    found = json.loads(run("certify", str(again), "--verify", str(key) + ".pub", "--json").stdout)
    assert {point["signed_by"] for point in found["points"]} == {data["signed_by"]}
    (again / "points" / "00003" / "signature.dsse.json").unlink()
    result = run("certify", str(again), "--verify", str(key) + ".pub", code=1)
    assert "points/00003/signature.dsse.json" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_point_can_be_run_again_from_its_own_file(run, finished, tmp_path):
    """It comes out as a single run, but for the last bits of floats."""
    folder, data = finished
    run("run", str(folder / "points" / "00005" / "config.toml"), "--runs", str(tmp_path), "--name", "alone")
    alone, row = RunStore.read(tmp_path / "alone"), data["rows"][5]
    assert alone.metrics[-1]["test_loss"] == pytest.approx(row["test_loss"], rel=1e-5)
    assert alone.certificate == RunStore.read(folder / "points" / "00005").certificate


def test_json(finished):
    _, data = finished
    assert (data["points"], data["ran_now"], data["diverged"], data["rule"]) == (8, 8, 0, "accuracy-last-5")
    assert [row["point"] for row in data["rows"]] == list(range(8))
    means = {}
    for row in data["rows"]:
        means.setdefault((row["algorithm.local_lr"], row["bound.clip"]), []).append(row["accuracy_last_5"])
    best = max(means, key=lambda values: sum(means[values]))
    assert data["best"] == {"algorithm.local_lr": best[0], "bound.clip": best[1]}
    assert data["best_mean"] == pytest.approx(sum(means[best]) / 2)
    assert [data["rows"][n]["bound.clip"] for n in data["best_points"]] == [best[1]] * 2
    (promise,) = data["promises"]
    assert len(promise["points"]) == 8
    assert {guarantee["observer"] for guarantee in promise["guarantees"]} == {"server", "model user"}
    (cost,) = data["choosing"]["costs"]
    assert (cost["observer"], cost["unit"], cost["units"], cost["relation"]) == (
        "model user",
        "client",
        10,
        "add-remove",
    )
    assert (cost["delta"], cost["runs"], cost["shared_noise"]) == (1e-3, 8, True)
    assert cost["epsilon_of_all_runs"] == "inf"
    assert 8 < cost["epsilon_of_private_selection"] < cost["epsilon_with_independent_noise"]
    assert Path(data["heat_map"]).read_bytes().startswith(b"\x89PNG")


def test_running_again_runs_nothing(run, again, tmp_path):
    before, rows = kept_points(again), table(again)
    (again / "table.csv").unlink()
    arguments = ["run", str(again / "config.toml"), "--runs", str(tmp_path), "--name", "x"]
    data = json.loads(run(*arguments, "--json", "--best", "loss-last-5").stdout)
    assert (data["ran_now"], data["points"], data["rule"]) == (0, 8, "loss-last-5")
    assert kept_points(again) == before
    assert table(again) == rows


def test_only_what_is_missing_runs(run, again, tmp_path):
    before, rows = kept_points(again), table(again)
    for point in (1, 6):
        shutil.rmtree(again / "points" / f"{point:05d}")
    data = json.loads(run("run", str(again / "config.toml"), "--runs", str(tmp_path), "--name", "x", "--json").stdout)
    assert data["ran_now"] == 2
    after = kept_points(again)
    assert {name for name in before if before[name] != after[name]} == {"00001", "00006"}
    assert table(again) == rows


def command(file: Path, runs: Path, name: str) -> subprocess.Popen:
    """`sordino run`, as a process of its own that can be killed."""
    arguments = ["run", str(file), "--runs", str(runs), "--name", name, "--json"]
    return subprocess.Popen(
        [sys.executable, "-c", "from sordino.cli import main; main()", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )


@pytest.mark.slow
def test_killed_and_run_again(run, file, tmp_path):
    """Three programs one after another; killed as soon as the first one's points are there."""
    file.write_text(CONFIG.replace("local_steps = 1", "local_steps = { grid = [1, 2, 3] }").replace("[0, 7]", "[0]"))
    process = command(file, tmp_path, "torn")
    points = tmp_path / "torn" / "points"
    while process.poll() is None and not list(points.glob("*/model.safetensors")):
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, errors
    before = kept_points(points.parent)
    assert len(before) < 12
    assert not (points.parent / "table.csv").exists()
    options = ["--runs", str(tmp_path), "--json"]
    data = json.loads(run("run", str(file), *options, "--name", "torn").stdout)
    assert (data["ran_now"], data["points"]) == (12 - len(before), 12)
    assert before.items() <= kept_points(points.parent).items()
    run("run", str(file), *options, "--name", "whole")
    assert len(table(points.parent)) == 12
    assert table(points.parent) == table(tmp_path / "whole")


def test_another_sweep_in_the_same_folder_is_refused(run, again, tmp_path):
    before = kept_points(again)
    arguments = ["run", str(again / "config.toml"), "--runs", str(tmp_path), "--name", "x"]
    result = run(*arguments, "--set", "run.seed=[0, 8]", code=2)
    assert "holds another sweep" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert kept_points(again) == before
    assert (again / "config.toml").read_text() == CONFIG


HOLD = """\
import fcntl, sys
lock = open(sys.argv[1], "a")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_two_processes_do_not_run_one_sweep(run, again, tmp_path):
    """Another process holds the folder: nothing is touched, and it can be taken up once that process is killed."""
    shutil.rmtree(again / "points" / "00003")
    before = {path: path.read_bytes() for path in again.rglob("*") if path.is_file()}
    arguments = ["run", str(again / "config.toml"), "--runs", str(tmp_path), "--name", "x", "--json"]
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(again / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        said = run(*arguments, code=2).stderr
    finally:
        holder.kill()
        holder.communicate()
    assert len(said.splitlines()) == 1
    assert str(again) in said
    assert "another process is at this: wait until it ends, or choose another name or part" in said
    assert {path: path.read_bytes() for path in again.rglob("*") if path.is_file()} == before
    assert json.loads(run(*arguments).stdout)["ran_now"] == 1
    assert json.loads(run(*arguments).stdout)["ran_now"] == 0  # a finished sweep holds nothing


ONE = ["--set", "run.seed=0", "--set", "bound.clip=1.0", "--set", "algorithm.local_lr=0.5", "--set", "run.rounds=1"]


def test_a_sweep_and_a_single_run_do_not_share_a_folder(run, file, again, tmp_path):
    result = run("run", str(file), "--runs", str(tmp_path), "--name", "x", *ONE, code=2)
    assert "holds a sweep" in result.stderr
    assert (again / "config.toml").read_text() == CONFIG
    assert not (again / "ledger.jsonl").exists()
    run("run", str(file), "--runs", str(tmp_path), "--name", "one", *ONE)
    kept = (tmp_path / "one" / "config.toml").read_bytes()
    result = run("run", str(file), "--runs", str(tmp_path), "--name", "one", code=2)
    assert "holds a single run" in result.stderr
    assert (tmp_path / "one" / "config.toml").read_bytes() == kept
    assert not (tmp_path / "one" / "points").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--best", "accuracy-first"], ["best = 'accuracy-first'", "accuracy-last-5, accuracy-last, loss-last-5"]),
        (["--best", "suboptimality-last-5"], ["best = 'suboptimality-last-5'", "use one of accuracy-last-5"]),
        (["--set", "run.chunk=0"], ["chunk = 0", "at least 1"]),
        (["--set", "run.evaluate_every=0"], ["evaluate_every = 0", "at least 1"]),
        (["--set", "run.transcript=true"], ["transcript", "single run"]),
        (["--set", "bound.clip=[1.0, -1.0]"], ["[bound] clip = -1.0"]),
        (["--set", "run.seed=[]"], [", --set: [run] seed = []"]),
        (["--best", "accuracy-last", *ONE], ["best = 'accuracy-last'", "is for sweeps"]),
        (["--models", "all", *ONE], ["models = 'all'", "is for sweeps"]),
    ],
)
def test_a_mistake_ends_before_anything_runs(run, file, tmp_path, options, words):
    result = run("run", str(file), "--runs", str(tmp_path), *options, code=2)
    assert len(result.stderr.strip().splitlines()) == 1
    for word in words:
        assert word in result.stderr
    assert list(tmp_path.iterdir()) == [file]


def test_plan(run, file, tmp_path):
    changes = ["--set", "privacy.epsilon={grid = [2.0, 8.0]}", "--set", "run.seed=[0, 1]"]
    data = json.loads(run("plan", str(file), *changes, "--json").stdout)
    assert (data["points"], data["varied"][-1]) == (16, "run.seed")
    assert [len(promise["points"]) for promise in data["promises"]] == [8, 8]
    totals = [
        guarantee["epsilon"]
        for promise in data["promises"]
        for guarantee in promise["guarantees"]
        if guarantee["observer"] == "model user" and guarantee["scope"] == "all rounds"
    ]
    assert totals == pytest.approx([2.0, 8.0], abs=1e-3)
    text = run("plan", str(file), *changes).stdout
    assert "Each of 8 points, privacy.epsilon = 2.0:" in text
    assert "model user, over all 2 rounds: epsilon = 8.000, delta = 0.001 for one client of 10" in text
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(("seeds", "origin"), [("", "shared"), ("seed = [0, 7]", "given")])
def test_a_plan_says_of_seeds_what_the_runs_will_say(run, file, seeds, origin):
    file.write_text(CONFIG.replace("seed = [0, 7]", seeds))
    data = json.loads(run("plan", str(file), "--json").stdout)
    assert {promise["seed"] for promise in data["promises"]} == {origin}
    text = " ".join(run("plan", str(file)).stdout.split())
    assert ("The points of its sweep have one seed and share their noise" in text) == (origin == "shared")
    assert ("The seed is fixed and not secret" in text) == (origin == "given")


# --- What a privacy officer reads ---------------------------------------------------------------------------------


def summary(run, folder: Path, *options: str) -> str:
    """What `sordino run` prints, without line breaks."""
    arguments = ["run", str(folder / "config.toml"), "--runs", str(folder.parent), "--name", folder.name, *options]
    return " ".join(run(*arguments).stdout.split())


def test_the_summary_names_everything_that_a_claim_rests_on(run, again):
    text = summary(run, again)
    assert "server, over all 2 rounds: no guarantee" in text
    assert "model user, over all 2 rounds: epsilon = 8.000, delta = 0.001 for one client of 10 (add-remove" in text
    assert wording.SELECTION_NOT_COVERED in text
    whom = (
        "For one client of 10 of digits (add-remove, delta = 0.001) against the model user, every round of all 8 runs"
    )
    assert f"{whom} together: no guarantee (epsilon = infinite)" in text
    assert f"; assuming {wording.ASSUME_SERVER_TRUSTED}. " in text
    assert "geometric with mean 8" in text


def test_private_selection_is_not_offered_against_the_server(run, file, tmp_path):
    arguments = ["run", str(file), "--runs", str(tmp_path), "--set", "privacy.trust=local", *ONE[4:]]
    seeds = ["--set", "run.seed=[0, 1]", "--set", "bound.clip=[0.5, 1.0]"]
    text = " ".join(run(*arguments, *seeds).stdout.split())
    assert "(zero-out, delta = 0.001) against the server, every round of all 2 runs together: epsilon = " in text
    assert " (exact Gaussian)" in text
    assert "because runs with the same seed share their noise" not in text  # every run has a seed of its own
    assert "The server sees every run" in text
    assert "geometric" not in text


def test_tuning_cost():
    events, settings = [Repeated(Gaussian(5.0), 4)] * 6, {"delta": 1e-5, "relation": Relation.ADD_REMOVE}
    cost = tuning_cost(events, **settings, shared_noise=False, sees_every_run=False)
    assert not cost["shared_noise"]
    assert cost["epsilon_of_all_runs"] == cost["epsilon_with_independent_noise"]
    shared = tuning_cost(events, **settings, shared_noise=True, sees_every_run=False)
    assert shared["epsilon_of_all_runs"] == float("inf")
    for some, server in ((events, True), (events[:1], False)):
        cost = tuning_cost(some, **settings, shared_noise=False, sees_every_run=server)
        assert "epsilon_of_private_selection" not in cost


def test_noise_shared_with_a_run_that_promises_something_else_is_seen(run, file, tmp_path):
    """Two deltas are two lines of costs, but the seed is one."""
    deltas = ["--set", "privacy.delta={ grid = [1e-3, 2e-3] }"]
    text = " ".join(run("run", str(file), "--runs", str(tmp_path), *ONE[4:], *deltas).stdout.split())
    assert text.count("because runs with the same seed share their noise") == 2


# --- Tables and rules ---------------------------------------------------------------------------------------------


def record(point: int, values: dict, accuracy: float, loss: float | None = 1.0) -> dict:
    row = {"round": 1, "accuracy": accuracy, "test_loss": float("nan") if loss is None else loss}
    return {
        "point": point,
        "values": values,
        "seed": values.get("run.seed", 0),
        "diverged": loss is None,
        "history": [row],
        "certificate": {"guarantees": []},
    }


def test_the_best_point_is_the_best_on_the_mean_over_seeds_and_not_lost():
    values = [(0.1, 0, 0.9, 1.0), (0.1, 1, 0.1, 1.0), (0.2, 0, 0.6, 1.0), (0.2, 1, 0.6, 2.0), (0.3, 0, 1.0, 1.0)]
    records = [
        record(n, {"a.lr": lr, "run.seed": seed}, accuracy, loss) for n, (lr, seed, accuracy, loss) in enumerate(values)
    ]
    records.append(record(5, {"a.lr": 0.3, "run.seed": 1}, 1.0, None))
    rows = tidy_table(records)
    best = best_point(rows, ("a.lr", "run.seed"), "accuracy-last")
    assert (best["values"], best["points"], best["mean"]) == ({"a.lr": 0.2}, [2, 3], pytest.approx(0.6))
    assert best_point(rows, ("a.lr", "run.seed"), "loss-last-5")["values"] == {"a.lr": 0.1}
    assert best_point(rows[5:], ("a.lr", "run.seed"), "accuracy-last") is None


def test_rules():
    assert rule_for({"accuracy", "test_loss"}) == "accuracy-last-5"
    assert rule_for({"suboptimality", "test_loss"}) == "suboptimality-last-5"
    assert rule_for({"test_loss"}) == "loss-last-5"
    assert rule_for({"accuracy", "test_loss"}, "accuracy-last") == "accuracy-last"


def test_values_of_any_kind_fit_the_table(tmp_path):
    kinds = [0.5, {"start": 0.5, "decay": 0.9}, "words", [1, 2]]
    rows = tidy_table([record(n, {"a.lr": kind, "a.x": n}, 0.5 + n / 10) for n, kind in enumerate(kinds)])
    write_table(rows, tmp_path)
    assert [row["a.lr"] for row in table(tmp_path)] == ["0.5", '{"start": 0.5, "decay": 0.9}', "words", "[1, 2]"]
    assert parquet.read_table(tmp_path / "table.parquet").to_pydict()["a.x"] == [0, 1, 2, 3]
    assert best_point(rows, ("a.lr", "a.x"), "accuracy-last")["points"] == [3]
    assert not plot_heat_map(rows, ("a.lr", "a.x"), "accuracy-last", tmp_path / "map.png")


def test_a_heat_map_tells_what_was_lost_from_what_was_not_tried(tmp_path, monkeypatch):
    from matplotlib.axes import Axes

    said = []
    monkeypatch.setattr(Axes, "text", lambda self, x, y, text, **_: said.append((x, y, text)))
    values = [(0.1, 1.0, 0.25), (0.2, 2.0, 0.5), (0.2, 1.0, 0.1)]
    records = [
        record(n, {"a.lr": lr, "b.C": C}, accuracy, None if accuracy == 0.1 else 1.0)
        for n, (lr, C, accuracy) in enumerate(values)
    ]
    assert plot_heat_map(tidy_table(records), ("a.lr", "b.C"), "accuracy-last", tmp_path / "map.png")
    assert sorted(said) == [(0, 0, "25"), (0, 1, "lost"), (1, 0, ""), (1, 1, "50")]


# --- Without a seed -------------------------------------------------------------------------------------------------


def test_points_without_a_seed_share_a_fresh_one_that_only_their_owner_can_read(run, file, tmp_path):
    file.write_text(CONFIG.replace("seed = [0, 7]\n", ""))
    arguments = ("run", str(file), "--runs", str(tmp_path), "--name", "x", "--set", "bound.clip=1.0")
    result = json.loads(run(*arguments, "--json").stdout)
    folder = tmp_path / "x"
    seed = (folder / "seed.private").read_text().strip()
    assert not list((folder / "points").rglob("seed.private"))
    others = [path for path in folder.rglob("*") if path.is_file() and path.name != "seed.private"]
    assert not [
        path for path in others if any(s in path.read_bytes() for s in (seed.encode(), str(int(seed, 16)).encode()))
    ]
    (cost,) = result["choosing"]["costs"]
    assert cost["shared_noise"]
    assert cost["epsilon_of_all_runs"] == "inf"
    assert {promise["seed"] for promise in result["promises"]} == {"shared"}
    assert [row["seed"] for row in result["rows"]] == [None, None]
    assert "add to the privacy loss" not in json.dumps(result)
    stored = [RunStore.read(folder / "points" / f"{n:05d}").certificate for n in range(2)]
    with pytest.raises(Refused, match="share their noise"):
        so.Certificate.compose(*stored)
    before = kept_points(folder)
    shutil.rmtree(folder / "points" / "00001")
    run(*arguments)
    assert {name: metrics for name, (metrics, _) in kept_points(folder).items()} == {
        name: metrics for name, (metrics, _) in before.items()
    }
