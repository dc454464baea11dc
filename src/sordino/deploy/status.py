"""Where a study on a server stands, in status.json: the process that drives it writes, people who look on read."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from sordino.files import write_atomically
from sordino.runs.names import STATUS as STATUS

RUNNING, INTERRUPTED = "running", "interrupted"
USED = "used"


class MemberStatus(NamedTuple):
    """A member of a study."""

    rounds: int = 0  # whose messages were used
    latest: str = ""  # "used", or why its last message was not


class StudyStatus(NamedTuple):
    """Where a study stands."""

    name: str
    state: str  # running, finished, stopped, interrupted
    round: int  # the last one that is done
    rounds: int
    members: dict[str, MemberStatus]
    measured: dict[str, float]  # on the server's own records
    updated: float  # seconds since 1970
    why: str = ""

    @property
    def used(self) -> int:
        """How many messages the last round used."""
        return sum(each.latest == USED for each in self.members.values())

    @property
    def when(self) -> datetime:
        """The time of the last change, of this place."""
        return datetime.fromtimestamp(self.updated).astimezone()

    def to_json(self) -> dict[str, Any]:
        """Plain values, for people and their programs."""
        members = {name: each._asdict() for name, each in self.members.items()}
        return self._asdict() | {"members": members, "updated": self.when.isoformat(timespec="seconds")}


def write_status(folder: Path, status: StudyStatus) -> None:
    """Let people see where a study stands, which this process drives."""
    members = {name: each._asdict() for name, each in status.members.items()}
    plain = status._asdict() | {"members": members, "process": os.getpid()}
    write_atomically(folder / STATUS, json.dumps(plain, indent=2).encode())


def read_status(folder: Path) -> StudyStatus | None:
    """Where the study of a folder stands; "interrupted" where the process that drove it is gone."""
    try:
        told = json.loads((folder / STATUS).read_bytes())
        members = {str(name): MemberStatus(int(m["rounds"]), str(m["latest"])) for name, m in told["members"].items()}
        gone = told["state"] == RUNNING and not _is_alive(int(told["process"]))
        return StudyStatus(
            str(told["name"]),
            INTERRUPTED if gone else str(told["state"]),
            int(told["round"]),
            int(told["rounds"]),
            members,
            {str(name): float(value) for name, value in told["measured"].items()},
            float(told["updated"]),
            "its process is gone" if gone else str(told["why"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # not yet written, or written by something else


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return True
