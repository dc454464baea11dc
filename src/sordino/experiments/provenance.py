"""What a result was made by: commit, versions, device, date and command, in the form of the files in results/."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from sordino.errors import InvalidInput
from sordino.files import write_atomically
from sordino.runs.metrics import environment

__all__ = ["Calls", "commit_of_the_code", "provenance"]


def provenance(command: str, commit: str | None = None, made: dict[str, Any] | None = None) -> dict[str, Any]:
    """Of this process and the code as git has it, unless the runs were made with another commit or elsewhere."""
    made = made or environment()
    return {
        "commit": commit or commit_of_the_code(),
        "versions": {name: made[name] for name in ("sordino", "jax", "numpy", "python")},
        "device": made["device"],
        "date": made["date"],
        "command": command,
    }


def commit_of_the_code() -> str:
    """What git says of the folder that the code is in."""
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(describe, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


class Calls:
    """Who worked on a folder of unfinished runs: a result that took several calls names the commits of all.

    Unfinished runs are taken up by the versions and the device that began them, and by no others.
    """

    def __init__(self, folder: Path, made: dict[str, Any]) -> None:
        """`made` is the provenance of this call."""
        self._path, self._made = folder / "calls.json", made
        self._others: list[dict[str, Any]] = _read(self._path) if self._path.exists() else []

    def note(self) -> None:
        """Enter this call."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, json.dumps([*self._others, self._made], indent=1).encode())

    @property
    def elsewhere(self) -> str | None:
        """What did all that is there, if that is not what runs now: none of it can be used."""
        places = dict.fromkeys(_place(call) for call in self._others)
        return None if not places or _place(self._made) in places else " and ".join(places)

    @property
    def provenance(self) -> dict[str, Any]:
        """Of the result: that of this call, with the commits of earlier ones that it goes on from."""
        commits = [call["commit"] for call in self._others if _place(call) == _place(self._made)]
        earlier = [commit for commit in dict.fromkeys(commits) if commit != self._made["commit"]]
        return {**self._made, **({"earlier_commits": earlier} if earlier else {})}


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise InvalidInput("calls", str(path), f"cannot be read ({error}): delete its folder to begin anew") from None


def _place(call: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in call["versions"].items())
    return f"{call['device']} ({versions})"
