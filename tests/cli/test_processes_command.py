"""`sordino run` in several processes: what is refused before any of them starts."""

from __future__ import annotations

import pytest

from tests.durability.test_killed_processes import CONFIG

SEVERAL = ["--coordinator", "127.0.0.1:7000", "--num-processes", "2"]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (["--processes", "0"], "processes = 0"),
        (["--processes", "2", "--coordinator", "127.0.0.1:7000"], "coordinator = '127.0.0.1:7000'"),
        (["--processes", "2", "--process-id", "0"], "process-id = 0"),
        (["--processes", "2", "--num-processes", "2"], "num-processes = 2"),
        (["--coordinator", "127.0.0.1", "--process-id", "0", "--num-processes", "2"], "coordinator = '127.0.0.1'"),
        (["--coordinator", "host:x", "--process-id", "0", "--num-processes", "2"], "coordinator = 'host:x'"),
        ([*SEVERAL, "--process-id", "2"], "process-id = 2"),
        ([*SEVERAL, "--process-id", "-1"], "process-id = -1"),
        (SEVERAL, "process-id = None"),
        (["--coordinator", "127.0.0.1:7000", "--process-id", "0"], "num-processes = None"),
        (["--coordinator", "127.0.0.1:7000", "--process-id", "0", "--num-processes", "1"], "num-processes = 1"),
        (["--process-id", "0"], "process-id = 0"),
        (["--num-processes", "2"], "num-processes = 2"),
        (["--processes", "2", "--track", "mlflow"], "track = 'mlflow'"),
        (["--processes", "2", "--set", "run.seed=[0, 1]"], "file = "),
        (["--processes", "2", "--set", "run.rounds=0"], None),
    ],
)
def test_mistakes_are_one_line(run, tmp_path, options, field):
    (tmp_path / "cfg.toml").write_text(CONFIG)
    result = run("run", str(tmp_path / "cfg.toml"), "--runs", str(tmp_path / "runs"), *options, code=2)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {field}") if field else "rounds" in line
    assert not (tmp_path / "runs" / "cfg").exists()


@pytest.mark.slow
def test_one_process_is_a_run_as_always(run, tmp_path):
    (tmp_path / "cfg.toml").write_text(CONFIG)
    changed = ["--set", "run.rounds=1"]
    run("run", str(tmp_path / "cfg.toml"), "--runs", str(tmp_path), "--processes", "1", *changed)
    assert '"processes"' not in (tmp_path / "cfg" / "environment.json").read_text()
