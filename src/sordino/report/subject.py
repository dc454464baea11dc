"""What a report is about: one run or several, a sweep, a comparison or a study, read from a folder or a file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from sordino.errors import InvalidInput
from sordino.privacy import wording
from sordino.privacy.guarantee import Certificate
from sordino.report.series import Row

FILES = ("csv", "parquet", "npz", "leaf", "disk", "hf")  # kinds of tasks that are named by a path or an address
Tables = Mapping[str, Mapping[str, Any]]  # the sections of a run file


def planned_rounds(certificate: Certificate) -> int:
    """The rounds that a certificate is about."""
    return max((total.rounds for total in certificate.totals), default=0)


def settings_of(config: str | None) -> Tables:
    """The tables of a run file; none for a run from Python."""
    try:
        found = tomllib.loads(config or "")
    except tomllib.TOMLDecodeError:
        return {}
    return {name: table for name, table in found.items() if isinstance(table, dict)}


def public_task(name: str) -> str:
    """A task's name without the path of a user's own data: "csv" of csv:FILE."""
    kind, colon, _ = name.partition(":")
    return kind if colon and kind in FILES else name


class Signed(StrEnum):
    """What is known of a run's signature."""

    VERIFIED = "verified"
    UNCHECKED = "signed, not checked"
    UNSIGNED = "not signed"


@dataclass(frozen=True)
class Signature:
    """The state of a signature, and who made it."""

    state: Signed = Signed.UNSIGNED
    key: str = ""
    at: str = ""


@dataclass(frozen=True)
class Digest:
    """What identifies a file of a run."""

    name: str
    value: str
    private: bool = False


@dataclass(frozen=True)
class Shown:
    """A run as a page shows it."""

    name: str
    certificate: Certificate
    rows: Sequence[Row]
    planned: int
    finished: bool
    public_name: str = ""  # its name for everybody, where the name itself may tell something of the data
    task: str = ""
    settings: Tables = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    digests: tuple[Digest, ...] = ()
    signature: Signature = Signature()
    agree: tuple[str, ...] = ()  # files that agree with the ledger
    notes: tuple[str, ...] = ()

    @property
    def done(self) -> int:
        """Rounds that are done."""
        return int(self.rows[-1]["round"]) if self.rows else 0

    @property
    def method(self) -> str:
        return str(self.settings.get("algorithm", {}).get("name", ""))

    @property
    def why_private(self) -> str | None:
        """Why what was measured is not for everybody; None where a guarantee covers it."""
        return wording.why_not_covered(self.certificate)


@dataclass(frozen=True)
class Point:
    """A point of a sweep: its values, and what came of it."""

    name: str
    values: Mapping[str, float | str]
    measured: float | None  # None if it diverged


@dataclass(frozen=True)
class Grid:
    """A sweep: the keys that vary and what every point reached."""

    varied: tuple[str, ...]
    measure: str
    points: tuple[Point, ...]
    why_private: str | None


@dataclass(frozen=True)
class Compared:
    """A comparison as `sordino compare` keeps it."""

    facts: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    why_private: str | None


@dataclass(frozen=True)
class Member:
    """A member of a study, and what the server states about it."""

    name: str
    rounds: int
    certificate: Certificate | None  # None if it sent nothing


@dataclass(frozen=True)
class Subject:
    """All that a page is about. The first run speaks for a sweep, whose points it lists in a grid."""

    kind: str
    title: str
    runs: tuple[Shown, ...]
    grid: Grid | None = None
    compared: Compared | None = None
    members: tuple[Member, ...] = ()
    about: str = ""  # what a reader of the certificate must know of it


class Reader(Protocol):
    """Reads one kind of folder or file."""

    def reads(self, path: Path) -> bool:
        """Whether this is such a folder or file."""

    def read(self, path: Path) -> Subject:
        """What it holds. Refuses files that do not agree with each other."""


def read_subject(paths: Sequence[Path], readers: Sequence[Reader]) -> Subject:
    """What a report of these paths is about: several runs become one subject; other kinds stand alone."""
    subjects = [_read(path, readers) for path in paths]
    if len(subjects) == 1:
        return subjects[0]
    for path, subject in zip(paths, subjects, strict=True):
        if subject.kind != "run":
            raise InvalidInput(
                "run", str(path), f"is a {subject.kind}: a report has several runs, or one {subject.kind}"
            )
    return Subject("runs", f"{len(subjects)} runs", tuple(run for subject in subjects for run in subject.runs))


def _read(path: Path, readers: Sequence[Reader]) -> Subject:
    for reader in readers:
        if reader.reads(path):
            return reader.read(path)
    raise InvalidInput("run", str(path), "holds no run, sweep, comparison or study: check the path")
