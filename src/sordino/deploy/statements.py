"""What both sides sign at the end of a study, and whether they agree.

    server   of each member: the rounds whose messages it used, those whose message may have left unused, the hash
             of the last ledger entry, and the certificate of all these rounds
    node     the rounds that it answered, by its ledger, and the certificate that follows from them

A message that came late, or was refused, has left the node all the same: the server cannot know, and counts it. So a
node never answered more than the server counts, nor less than it used. The entry that the server names is in the node's
ledger; entries are chained, so its hash stands for all before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import sordino
from sordino.deploy.node_study import entries_of
from sordino.deploy.study import DESCRIPTION, Study
from sordino.privacy.guarantee import Certificate
from sordino.privacy.ledger_record import LedgerRecord
from sordino.privacy.signing import statement
from sordino.runs.names import STUDY_STATEMENT

NODE_STATEMENT = "https://sordino.dev/node-certificate/v1"
SERVER_STATEMENT = STUDY_STATEMENT

Json = dict[str, Any]


class Used(NamedTuple):
    """What the server used of one member."""

    rounds: tuple[int, ...] = ()
    entry: str = ""  # hash of the ledger entry behind its last message
    unused: tuple[int, ...] = ()  # rounds whose message may have left without being used: late, or not as it must be

    @property
    def released(self) -> int:
        """How many rounds the member may have answered: what its certificate covers."""
        return len({*self.rounds, *self.unused})


def server_statement(study: Study, used: Mapping[str, Used], rounds: int, model: str) -> Json:
    """What the server states about these members."""
    members = {
        name: {
            "rounds": ranges(each.rounds),
            "unusedRounds": ranges(each.unused),
            "ledgerEntry": each.entry,
            "certificate": _certificate(study, study.members.index(name), each.released),
        }
        for name, each in used.items()
    }
    return _stated(study, SERVER_STATEMENT, {"rounds": rounds, "members": members}, {"model.safetensors": model})


def node_statement(study: Study, i: int, record: LedgerRecord, faults: tuple[str, ...] = ()) -> Json:
    """What member i states, by its own ledger; `faults` is what it finds wrong in the server's statement."""
    entries = entries_of(record)
    torn = sum({each.seq: each.torn_rounds for each in record.entries}.values())
    counted = len(entries) + torn
    predicate = {
        "member": study.members[i],
        "rounds": ranges(entries),
        "tornRounds": torn,  # lines that a crash tore: counted, though nothing left
        "ledgerHash": record.last_hash,
        "certificate": _certificate(study, i, counted),
        "disagreements": list(faults),
    }
    return _stated(study, NODE_STATEMENT, predicate, {})


def _stated(study: Study, kind: str, predicate: Json, files: Mapping[str, str]) -> Json:
    digests = {DESCRIPTION: study.description.digest.hex()} | dict(files)
    about = {
        "study": study.description.name,
        "digest": study.description.digest.hex(),
        "software": f"sordino {sordino.__version__}",
        "signedAt": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return statement({name: {"sha256": digest} for name, digest in digests.items()}, kind, about | predicate)


def _certificate(study: Study, i: int, rounds: int) -> Json | None:
    """Of so many answered rounds; None where nothing was sent, and so nothing could be learnt."""
    return study.plan.certificate(i, rounds).to_json() if rounds else None


def certificate_in(part: Json) -> Certificate | None:
    """The certificate of a statement's part."""
    found = part.get("certificate")
    return None if found is None else Certificate.from_json(found)


def faults_of(server: Json, study: Study, i: int, entries: Mapping[int, str]) -> tuple[str, ...]:
    """What is wrong in the server's predicate about member i, whose ledger has these entries."""
    name = study.members[i]
    try:
        digest, part = server["digest"], server["members"][name]
        rounds, entry = rounds_in(part["rounds"], study.rounds), str(part["ledgerEntry"])
        released = {*rounds, *rounds_in(part["unusedRounds"], study.rounds)}
        certificate = certificate_in(part)
    except (KeyError, TypeError, ValueError):
        return (f"the server's statement does not speak of {name}",)
    faults = []
    if digest != study.description.digest.hex():
        faults.append("the server's statement is about another study")
    if extra := sorted(set(rounds) - set(entries)):
        faults.append(f"the server used rounds {shown(extra)}, which the ledger of {name} does not hold")
    elif rounds and entries[max(rounds)] != entry:
        faults.append(f"the ledger entry of round {max(rounds)} is not the one that the server saw")
    if silent := sorted(set(entries) - released):
        faults.append(f"the server does not count rounds {shown(silent)}, which {name} answered")
    mine = study.plan.certificate(i, len(released)) if released else None
    if certificate != mine:
        faults.append(f"the server's certificate for {name} is not what {len(released)} rounds cost")
    return tuple(faults)


def ranges(rounds: Iterable[int]) -> list[list[int]]:
    """[first, last] of every stretch of rounds."""
    found: list[list[int]] = []
    for each in sorted(rounds):
        if found and found[-1][1] == each - 1:
            found[-1][1] = each
        else:
            found.append([each, each])
    return found


def rounds_in(found: Iterable[Iterable[int]], most: int) -> tuple[int, ...]:
    """The rounds of stretches, which must ascend from 1 to at most `most`."""
    rounds: list[int] = []
    for first, last in found:
        if not (type(first) is type(last) is int and (rounds[-1] if rounds else 0) < first <= last <= most):
            raise ValueError(f"stretches of rounds must be pairs of whole numbers from 1 to {most}")
        rounds += range(first, last + 1)
    return tuple(rounds)


def shown(rounds: Iterable[int]) -> str:
    """1 to 4, 7."""
    return ", ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in ranges(rounds)) or "none"
