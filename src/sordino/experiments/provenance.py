"""What a result was made by: commit, versions, device, date and command, in the form of the files in results/."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from sordino.simulation.running import environment

__all__ = ["commit_of_the_code", "provenance"]


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
