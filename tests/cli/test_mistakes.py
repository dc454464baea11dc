"""What goes wrong around a run: places that cannot be written, damaged files, absurd numbers, Ctrl-C."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import click
import pytest
import typer

from sordino.cli.app import app
from sordino.runs import blocks

CONFIG = """\
[task]
name = "digits"
clients = 20
partition = "iid"

[algorithm]
name = "fedavg"
local_steps = 1
local_lr = 0.5

[bound]
clip = 1.0

[privacy]
noise_multiplier = 1.0
delta = 1e-4

[run]
rounds = 3
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run file in the folder that commands run in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cfg.toml").write_text(CONFIG)
    (tmp_path / "other.toml").write_text(CONFIG.replace("clip", "normalize"))
    (tmp_path / "latin.toml").write_text(CONFIG.replace("digits", "dígits"), "latin-1")
    return "cfg.toml"


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be computed before a mistake is found."""
    for module, name in ((blocks, "run_rounds"), (blocks, "advance")):
        monkeypatch.setattr(module, name, mock.Mock(side_effect=AssertionError("trained")))


def parameters(command: click.Command, path: str) -> list[tuple[str, click.Parameter]]:
    """Of a command and all below it."""
    if isinstance(command, click.Group):
        return [each for name, inner in command.commands.items() for each in parameters(inner, f"{path} {name}")]
    return [(f"{path} {parameter.name}", parameter) for parameter in command.params]


def test_everything_that_can_be_given_has_a_help_text():
    found = parameters(typer.main.get_command(app), "sordino")
    assert len(found) > 80
    assert not [path for path, parameter in found if not getattr(parameter, "help", None)]


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["run", "cfg.toml", "--runs", "cfg.toml"], "runs = 'cfg.toml': cannot be a folder here (it is a file)"),
        (["run", "cfg.toml", "--name", ""], "name = '': must be the name of a folder"),
        (["run", "cfg.toml", "--name", ".."], "name = '..': must be the name of a folder"),
        (["run", "cfg.toml", "--name", "a/b"], "name = 'a/b': must be the name of a folder"),
        (["run", "cfg.toml", "--name", "a" * 300], "at most 200 bytes"),
        (["run", "cfg.toml", "--name", "never", "--resume"], "resume = 'runs/never': nothing has been run here"),
        (["compare", "cfg.toml", "other.toml", "--out", "cfg.toml"], "out = 'cfg.toml': cannot be a folder here"),
        (["compare", "cfg.toml", "other.toml", "--points", "0"], "points = 0: must be at least 1"),
        (
            ["compare", "cfg.toml", "other.toml", "--unequal", "--best", "accurracy-last-5"],
            "best = 'accurracy-last-5': did you mean accuracy-last-5? use one of ",
        ),
        (["demo", "--picture", "never/x.png"], "picture = 'never/x.png': there is no folder never: make it"),
        (["compare", "cfg.toml", "other.toml", "--held-out-seed", "-1"], "--held-out-seed"),
        (["compare", "cfg.toml", "other.toml", "--held-out", "1.5"], "held-out = 1.5: must lie in (0, 1)"),
        (["plan", "cfg.toml", "--set", "algorithm.local_lr={grid=[0.1, 0.1]}"], "0.1 appears twice"),
        (["plan", "cfg.toml", "--set", "run.cohort=0.2"], "[run] cohort = 0.2: must be text, in quotes"),
        (
            ["plan", "cfg.toml", "--set", "run.rounds=many"],
            "[run] rounds = 'many': must be a number, or one of paper3-theorem-2",
        ),
        (["plan", "latin.toml"], "file = 'latin.toml': is not UTF-8 text: save it as UTF-8"),
        (["report", "runs/x"], "run = 'runs/x': holds no run"),
        (["report", "cfg.toml", "--out", "never/x.html"], "out = 'never/x.html': there is no folder never"),
        (["report", "runs/x", "runs/x"], "run = 'runs/x': is named twice"),
        (["board", ".", "--host", "no.such.host.invalid"], "host = 'no.such.host.invalid': is not known here"),
        (["runz"], "No such command 'runz'. Did you mean 'run'"),
        (["demo", "--picture", "x.foo"], "picture = 'x.foo': name a file that ends in .png"),
        (["demo", "--seed", "-1"], "--seed"),
        (["audit", "cfg.toml", "--seed", "-1"], "--seed"),
        (["audit", "cfg.toml", "--trials", "99999999999999"], "--trials"),
        (["bench", "--workload", "w1", "--seed", "99999999999999999999"], "--seed"),
        (["reproduce", "paper4-example1", "--out", "cfg.toml"], "out = 'cfg.toml': cannot be a folder here"),
        (["reproduce"], "NAME is missing: say which table or figure; `sordino reproduce --list` shows them"),
        (["reproduce", "paper3-table1-fashion-mnits"], "did you mean paper3-table1-fashion-mnist or "),
        (["reproduce", "paper3"], "did you mean paper3-section-5-3 or "),
        (["rules", "paper4-theorem-11"], "did you mean paper4-theorem-1 or "),
        (["rules", "nothing"], "name = 'nothing': there is none of this name: `sordino rules` lists all"),
        (["rules", "paper4-theorem-1", "alpha=x"], "alpha = 'x': must be a finite number"),
        (["rules", "paper4-theorem-1", "alfa=1"], "alfa = 1: did you mean alpha? paper4-theorem-1 takes "),
        (["plan", "cfg.toml", "--set", "task.name=digitz"], "'digitz': unknown: did you mean digits? use one of "),
        (["plan", "cfg.toml", "--set", "algorithm.local_step=1"], "did you mean local_steps? use one of "),
        (["plan", "cfg.toml", "--set", "bounds.clip=1"], "[bounds] = {'clip': 1}: is not known; did you mean bound? "),
        (["account", "shuffle", "--eps0", "1", "--n", "999999999999", "--delta", "1e-5"], "--n"),
        (["account", "tdl", "--m", "999999999999", "--alpha", "1/6", "--shift", "2", "--epsilon", "1"], "memory"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_refused_in_one_line_before_anything_is_computed(run, config, tmp_path, options, says):
    before = sorted(tmp_path.rglob("*"))
    said = run(*options, code=2).stderr
    assert says in said
    assert len(said.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before  # no empty folder either


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_one_line(config):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*SORDINO, "account", "gaussian", "--help"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error: output: No space left on device")


@pytest.fixture(scope="module")
def finished(run, tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("finished")
    (home / "cfg.toml").write_text(CONFIG)
    run("run", str(home / "cfg.toml"), "--runs", str(home), "--name", "x")
    return home


def test_a_model_is_not_exported_under_the_name_of_another_format(run, finished, tmp_path):
    said = run("export", str(finished / "x"), "--out", str(tmp_path / "m.onnx"), code=2).stderr
    assert "a file of format safetensors ends in .safetensors" in said
    assert not list(tmp_path.iterdir())


def test_a_run_file_may_begin_with_a_mark(run, tmp_path):
    (tmp_path / "marked.toml").write_text(CONFIG, "utf-8-sig")
    run("plan", str(tmp_path / "marked.toml"))


@pytest.mark.parametrize(
    ("name", "damage", "says"),
    [
        ("records.sha256", None, "records.sha256 is missing"),
        ("config.toml", b"\xff\xfe", "config.toml is damaged"),
        ("config.toml", b"[task]\nname = ", "config.toml is damaged"),
    ],
)
def test_a_damaged_file_is_named_and_left_as_it_is(run, finished, tmp_path, name, damage, says):
    shutil.copytree(finished, tmp_path / "home")
    file = tmp_path / "home" / "x" / name
    file.unlink()
    if damage is not None:
        file.write_bytes(damage)
    options = ["--runs", str(tmp_path / "home"), "--name", "x", "--resume"]
    said = run("run", str(tmp_path / "home" / "cfg.toml"), *options, code=2).stderr
    assert says in said
    assert len(said.splitlines()) == 1
    assert damage is None or file.read_bytes() == damage


SORDINO = [sys.executable, "-c", "from sordino.cli import main; main()"]


def holds_a_line(path: Path) -> bool:
    """A file is there some time before its first line is."""
    return path.exists() and b"\n" in path.read_bytes()


def test_ctrl_c_says_how_to_go_on_and_leaves_a_whole_ledger(run, config, tmp_path):
    """The run is too long to end before the signal comes, however slow the machine is."""
    options = ["run", config, "--name", "x", "--set", "run.rounds=1000000", "--set", "run.evaluate_every=5"]
    # Jobs in the background, as this may be, leave it to their children to ignore the signal; a terminal does not.
    heard = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from sordino.cli import main; main()"
    )
    process = subprocess.Popen([sys.executable, "-c", heard, *options], stderr=subprocess.PIPE, text=True)
    metrics = tmp_path / "runs" / "x" / "metrics.jsonl"
    try:
        deadline = time.monotonic() + 120
        while not holds_a_line(metrics) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    *rounds, last = said.splitlines()
    assert last == "stopped: a run goes on with --resume, a sweep with the same command"
    assert all(line.startswith(("epsilon of", "round ")) for line in rounds)
    assert holds_a_line(metrics)
    assert "model user, over all" in run("certify", str(tmp_path / "runs" / "x")).stdout
