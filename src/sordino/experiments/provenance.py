"""The provenance of a result: commit, versions, device, date and command, as the files in results/ have it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from sordino.errors import InvalidInput
from sordino.files import write_atomically
from sordino.report.results import Result
from sordino.runs.metrics import environment


def provenance(command: str, commit: str | None = None) -> Result:
    """The provenance of results of this process; git is asked for the commit if none is given."""
    made = environment()
    return {
        "commit": commit or commit_of_the_code(),
        "versions": {name: made[name] for name in ("sordino", "jax", "numpy", "python")},
        "device": made["device"],
        "date": made["date"],
        "command": command,
    }


def commit_of_the_code() -> str:
    """The commit of the folder that holds this code, "-dirty" if code is changed; "unknown" without git.

    What a run writes, results/ and docs/, is no code.
    """
    try:
        commit = _git("rev-parse", "HEAD")
        changed = _git(
            "status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)results", ":(top,exclude)docs"
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{commit}-dirty" if changed else commit


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    return done.stdout.strip()


class Calls:
    """The calls that worked on a folder of unfinished runs; a result names the commits of all of them.

    `made` is the provenance of this call. Only the versions and the device that began a run can continue it.
    """

    def __init__(self, folder: Path, made: Result) -> None:
        self._path, self._made = folder / "calls.json", made
        self._others = _read(self._path) if self._path.exists() else []

    def note(self) -> None:
        """Enter this call."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, json.dumps([*self._others, self._made], indent=1).encode())

    @property
    def elsewhere(self) -> str | None:
        """The devices and versions of all earlier calls if this one differs from them; their work cannot be used."""
        places = dict.fromkeys(_place(call) for call in self._others)
        return None if not places or _place(self._made) in places else " and ".join(places)

    @property
    def provenance(self) -> Result:
        """The provenance of this call, with the commits of the earlier calls that it continues."""
        commits = [call["commit"] for call in self._others if _place(call) == _place(self._made)]
        earlier = [commit for commit in dict.fromkeys(commits) if commit != self._made["commit"]]
        return {**self._made, **({"earlier_commits": earlier} if earlier else {})}


def _read(path: Path) -> list[Result]:
    try:
        calls: list[Result] = json.loads(path.read_text())
        return calls
    except ValueError as error:
        raise InvalidInput("calls", str(path), f"cannot be read ({error}): delete its folder to begin anew") from None


def _place(call: Result) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in call["versions"].items())
    return f"{call['device']} ({versions})"
