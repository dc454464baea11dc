"""Processes that die in the middle of a run: one line says so, and the run goes on as if they had not."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.durability.test_resume import lines

CONFIG = """\
[task]
name = "digits"
clients = 12
partition = "quantity:1.0"

[algorithm]
name = "scaffold"
local_steps = 2
local_lr = 0.5

[bound]
clip = 1.0

[privacy]
noise_multiplier = 1.0
delta = 1e-4

[run]
rounds = 100
seed = 0
cohort = "unreliable:5-10"
evaluate_every = 5
"""

COMMAND = [sys.executable, "-c", "from sordino.cli import main; main()", "run"]


def started(folder: Path, name: str, *options: str) -> subprocess.Popen:
    (folder / "cfg.toml").write_text(CONFIG)
    return subprocess.Popen(
        [*COMMAND, str(folder / "cfg.toml"), "--runs", str(folder), "--name", name, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )


def ended(process: subprocess.Popen, code: int = 0) -> list[str]:
    """The lines of an ended command on stderr, but for those of its evaluations."""
    try:
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == code, out + err
    return [line for line in err.splitlines() if not line.startswith(("round ", "epsilon of "))]


def member(process: subprocess.Popen, index: int) -> int:
    """The process id of a member that this command has started."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().decode().split("\0")
            parent = (path / "stat").read_text().rpartition(") ")[2].split()[1]
        except OSError:  # it has ended
            continue
        if int(parent) == process.pid and words[words.index("--process-id") + 1] == str(index):
            return int(path.name)
    raise AssertionError(f"no process {index}")


def wait_for_rows(process: subprocess.Popen, run: Path, rows: int = 2) -> None:
    while lines(run / "metrics.jsonl") < rows:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)


def require_same_end(whole: Path, torn: Path) -> None:
    for name in ("metrics.jsonl", "model.safetensors", "certificate.json"):
        assert (torn / name).read_bytes() == (whole / name).read_bytes()


pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run in two processes that nobody disturbs."""
    folder = tmp_path_factory.mktemp("whole")
    assert ended(started(folder, "whole", "--processes", "2")) == []
    return folder / "whole"


def test_a_killed_process_ends_the_run_with_one_line(tmp_path):
    process = started(tmp_path, "torn", "--processes", "2")
    wait_for_rows(process, tmp_path / "torn", rows=1)
    os.kill(member(process, 1), signal.SIGKILL)
    (line,) = ended(process, code=1)
    assert line.startswith("error: process 1 of 2 was ended by SIGKILL; the run goes on with --resume")


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1])
def test_a_killed_run_goes_on(tmp_path, whole, index):
    process = started(tmp_path, "torn", "--processes", "2")
    wait_for_rows(process, tmp_path / "torn")
    os.kill(member(process, index), signal.SIGKILL)
    killed = time.monotonic()
    (line,) = ended(process, code=1)
    assert time.monotonic() < killed + 30
    assert line.startswith(f"error: process {index} of 2 was ended by SIGKILL; the run goes on with --resume")
    assert ended(started(tmp_path, "torn", "--processes", "2", "--resume")) == []
    require_same_end(whole, tmp_path / "torn")


@pytest.mark.slow
def test_ctrl_c_keeps_a_checkpoint_with_what_clients_remember(tmp_path, whole):
    process = started(tmp_path, "torn", "--processes", "2")
    wait_for_rows(process, tmp_path / "torn")
    process.send_signal(signal.SIGINT)
    assert ended(process, code=130) == ["stopped: a run goes on with --resume, a sweep with the same command"]
    assert (tmp_path / "torn" / "checkpoint.npz").exists()
    (line,) = ended(started(tmp_path, "torn", "--resume"), code=2)
    assert re.search("^error: resume = .*processes", line)
    (line,) = ended(started(tmp_path, "torn", "--processes", "2"), code=2)
    assert "exists already" in line
    resumed = started(tmp_path, "torn", "--processes", "2", "--resume")
    assert ended(resumed) == []
    require_same_end(whole, tmp_path / "torn")


@pytest.mark.slow
def test_a_fellow_on_another_machine_is_missed(tmp_path):
    """The command of the other machine says in one line what it knows, and ends with 1."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
    both = [
        started(tmp_path, "torn", "--coordinator", address, "--process-id", str(index), "--num-processes", "2")
        for index in (0, 1)
    ]
    wait_for_rows(both[0], tmp_path / "torn")
    os.kill(member(both[1], 1), signal.SIGKILL)
    (line,) = ended(both[1], code=1)
    assert line.startswith("error: process 1 of 2 was ended by SIGKILL; start every process again, with --resume")
    (line,) = ended(both[0], code=1)
    assert line.startswith("error: process 0 of 2 lost the others, of which one has ended or cannot be reached")
    assert line.endswith("the run goes on with --resume and as many processes")
