"""Reads the folder of a deployed study on its server.

The package `deploy` writes the folder, and this reader takes it as it lies there: description, journal, status, and the
server's signed statement, which is checked with the key that the description names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sordino.errors import InvalidInput
from sordino.privacy.guarantee import Certificate
from sordino.privacy.signing import SignatureError, parse_verifying_key, verify
from sordino.report.series import Row
from sordino.report.subject import Digest, Member, Shown, Signature, Signed, Subject, planned_rounds
from sordino.runs.names import DESCRIPTION, JOURNAL, STATEMENT, STATUS, STUDY_STATEMENT

Json = dict[str, Any]


class StudyReader:
    """The folder of a study that ended: before that, nothing is stated about it."""

    def reads(self, path: Path) -> bool:
        return (path / DESCRIPTION).is_file() and (path / JOURNAL).exists()

    def read(self, path: Path) -> Subject:
        description = _object(path / DESCRIPTION)
        if not (path / STATEMENT).exists():
            raise InvalidInput("run", str(path), "is a study that has not ended: nothing is certified yet")
        key = parse_verifying_key(str(description["server"]))
        try:
            stated = verify(_object(path / STATEMENT), key, STUDY_STATEMENT)["predicate"]
        except SignatureError as error:
            raise InvalidInput("run", str(path / STATEMENT), error.message) from None
        members = tuple(_member(name, part) for name, part in stated["members"].items())
        worst = max((each for each in members if each.certificate is not None), key=_largest_epsilon, default=None)
        if worst is None or worst.certificate is None:
            raise InvalidInput("run", str(path), "is a study in which nobody sent anything: there is nothing to report")
        rows = list(_rows(path / JOURNAL))
        shown = Shown(
            name=str(description["name"]),
            certificate=worst.certificate,
            rows=rows,
            planned=int(_object(path / STATUS).get("rounds", len(rows))) if (path / STATUS).exists() else len(rows),
            finished=True,
            environment={"software": stated["software"], "date": stated["signedAt"]},
            digests=(Digest("description of the study", str(stated["digest"])),),
            signature=Signature(Signed.VERIFIED, key.id, str(stated["signedAt"])),
        )
        about = f"The sentences are about {worst.name}, the member with the largest figures."
        return Subject("study", shown.name, (shown,), members=members, about=about)


def _largest_epsilon(member: Member) -> float:
    assert member.certificate is not None
    return max((g.epsilon for g in member.certificate.guarantees if g.scope == "all rounds" and g.private), default=0)


def _member(name: str, part: Json) -> Member:
    """The rounds are those that the certificate counts: all that the member may have answered."""
    if part["certificate"] is None:
        return Member(name, 0, None)
    certificate = Certificate.from_json(part["certificate"])
    return Member(name, planned_rounds(certificate), certificate)


def _rows(path: Path) -> Iterator[Row]:
    """A row for each round: what was measured, how many answered, and the seconds."""
    for text in path.read_bytes().splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            return  # torn by a crash
        counted = {"used": len(line["used"]), "seconds": line["seconds"]}
        yield {"round": line["round"]} | dict(line["measured"]) | counted


def _object(path: Path) -> Json:
    try:
        return dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        raise InvalidInput("run", str(path), "cannot be read: restore it") from None
