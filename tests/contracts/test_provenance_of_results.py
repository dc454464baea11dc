"""Every committed result names a commit that is in the history, and a command that exists at that commit."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = sorted((ROOT / "results").glob("*/*.json"))


def git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)


def places_of(command: str) -> list[str]:
    """The files, any one of which a command needs: the spec of `sordino reproduce`, the module of `python -m`."""
    if spec := re.match(r"sordino reproduce (paper\d)-([\w-]+)", command):
        return [f"src/sordino/experiments/papers/{spec[1]}/{spec[2]}.toml"]
    module = re.match(r"python -m ([\w.]+)", command)
    assert module, command
    path = module[1].replace(".", "/")
    return [start + path + end for start in ("", "src/") for end in (".py", "/__main__.py")]


@pytest.fixture(scope="module")
def history() -> None:
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("needs a clone with its whole history")


@pytest.mark.usefixtures("history")
@pytest.mark.parametrize("path", RESULTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_commit_and_command_are_there(path: Path) -> None:
    made = json.loads(path.read_text())["provenance"]
    for commit in (made["commit"], *made.get("earlier_commits", ())):
        assert git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0, commit
    for command in made["command"].split("; "):
        found = [
            place for place in places_of(command) if not git("cat-file", "-e", f"{made['commit']}:{place}").returncode
        ]
        assert found, command
