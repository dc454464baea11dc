"""What the server and the nodes of a study say of it, compared: signatures, rounds, ledger entries, certificates.

    server   certificate.dsse.json, signed with the server's key
    node     members/<name>.dsse.json, signed with the key in the study's description
             its own ledger and statements, where its state folder is on this machine

Nothing here needs a network, and nothing is written.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sordino.deploy.node import STUDIES
from sordino.deploy.node_study import LEDGER, OWN_STATEMENT, entries_of
from sordino.deploy.node_study import SERVER_STATEMENT as KEPT_SERVER_STATEMENT
from sordino.deploy.server_study import MEMBERS, MODEL, STATEMENT
from sordino.deploy.statements import (
    NODE_STATEMENT,
    SERVER_STATEMENT,
    Used,
    certificate_in,
    faults_of,
    ranges,
    rounds_in,
    shown,
)
from sordino.deploy.study import DESCRIPTION, Description, Study
from sordino.errors import SordinoError
from sordino.privacy.certification import certify_ledger
from sordino.privacy.guarantee import Certificate
from sordino.privacy.ledger import read_ledger
from sordino.privacy.ledger_record import LedgerRecord
from sordino.privacy.signing import SignatureError, VerifyingKey, subjects_of, verify

Json = dict[str, Any]
NOT_HERE = "not here"
MOST_TORN = 1000  # lines of one ledger that crashes tore


@dataclass(frozen=True)
class Account:
    """One member, as both sides state it."""

    name: str
    records: int | None = None  # where their number is public
    used: tuple[int, ...] = ()  # rounds, by the server
    unused: tuple[int, ...] = ()  # rounds whose message may have left the node without being used, by the server
    answered: tuple[int, ...] = ()  # rounds, by the node
    certificate: Certificate | None = None  # the node's: of all rounds that it answered
    signed: bool = False  # the node's statement is here and carries its signature
    ledger: str = NOT_HERE  # or how many rounds its own ledger has
    faults: tuple[str, ...] = ()

    def to_json(self) -> Json:
        """Plain values."""
        return {
            "node": self.name,
            "records": self.records,
            "rounds_used": len(self.used),
            "rounds_unused": len(self.unused),
            "rounds_answered": len(self.answered),
            "signed": self.signed,
            "ledger": self.ledger,
            "certificate": None if self.certificate is None else self.certificate.to_json(),
            "faults": list(self.faults),
        }


@dataclass(frozen=True)
class BothSides:
    """A study, as both sides state it."""

    study: str
    digest: str
    rounds: int  # planned
    model: Path
    accounts: tuple[Account, ...]
    server_faults: tuple[str, ...] = field(default=())

    @property
    def faults(self) -> tuple[str, ...]:
        """One line each."""
        return (*self.server_faults, *(f"{each.name}: {fault}" for each in self.accounts for fault in each.faults))

    def to_json(self) -> Json:
        """Plain values."""
        return {
            "study": self.study,
            "digest": self.digest,
            "rounds": self.rounds,
            "model": str(self.model),
            "nodes": [each.to_json() for each in self.accounts],
            "faults": list(self.faults),
        }


def compare(folder: Path, server_key: VerifyingKey, states: Mapping[str, Path] | None = None) -> BothSides:
    """Compare what both sides say of the study in a server's folder.

    Args:
      folder: state/studies/<name> of the server.
      server_key: the server's public key, from a source that the reader trusts.
      states: the state folders of the nodes that are on this machine, by name.
    """
    study = read_study(folder)
    server, faults = _server_side(folder, study, server_key)
    accounts = []
    for i, name in enumerate(study.members):
        state = (states or {}).get(name)
        home = None if state is None else state / STUDIES / study.description.digest.hex()
        accounts.append(_MemberSide(study, i, folder, server).account(home, server_key))
    digest, path = study.description.digest.hex(), folder / MODEL
    return BothSides(study.description.name, digest, study.rounds, path, tuple(accounts), tuple(faults))


def read_study(folder: Path) -> Study:
    """The study that a folder's description describes; the folder stays as it is."""
    try:
        description = Description.of((folder / DESCRIPTION).read_bytes())
    except OSError as error:
        raise SordinoError(f"{folder / DESCRIPTION}: {error.strerror}: give the folder of a study") from None
    with tempfile.TemporaryDirectory() as scratch:
        return Study.resolve(description, Path(scratch))


def signed_statement(path: Path, key: VerifyingKey, kind: str) -> tuple[Json | None, str]:
    """The statement in a file that `key` signed, or None and why not."""
    if not path.exists():
        return None, f"there is no {path.name}"
    try:
        return verify(json.loads(path.read_bytes()), key, kind), ""
    except SignatureError as error:
        return None, f"{path.name} {error.message}"
    except (OSError, ValueError, RecursionError):
        return None, f"{path.name} is not JSON: restore it from a backup"


# --- The server's side -----------------------------------------------------------------------------------------------


def _server_side(folder: Path, study: Study, key: VerifyingKey) -> tuple[Json, list[str]]:
    """The server's predicate, empty where there is none, and what is wrong with it."""
    faults = []
    if study.description.server != key.line:
        faults.append("server: the study names another server's key")
    stated, why = signed_statement(folder / STATEMENT, key, SERVER_STATEMENT)
    if stated is None:
        done = "" if (folder / STATEMENT).exists() else ": the study has not ended, `sordino deploy resume` goes on"
        return {}, [*faults, f"server: {why}{done}"]
    predicate: Json = stated["predicate"]
    digests = subjects_of(stated)
    if digests.get(DESCRIPTION, {}).get("sha256") != study.description.digest.hex():
        faults.append("server: its statement is about another study")
    model = (folder / MODEL).read_bytes() if (folder / MODEL).exists() else None
    if model is None:
        faults.append(f"server: {MODEL} is missing")
    elif digests.get(MODEL, {}).get("sha256") != hashlib.sha256(model).hexdigest():
        faults.append(f"server: {MODEL} is not the model that the server signed")
    if predicate.get("rounds") != study.rounds:
        faults.append(f"server: it states {predicate.get('rounds')} rounds, and {study.rounds} were planned")
    return predicate, faults


# --- A member's side -------------------------------------------------------------------------------------------------


class _MemberSide:
    """Member i of a study."""

    def __init__(self, study: Study, i: int, folder: Path, server: Json) -> None:
        self.study, self.i, self.name, self.server = study, i, study.members[i], server
        self.path = folder / MEMBERS / f"{self.name}.dsse.json"
        self.faults: list[str] = []

    def account(self, home: Path | None, server_key: VerifyingKey) -> Account:
        """What both sides say, with all that is wrong."""
        counted = self._counted()
        stated, why = signed_statement(self.path, self.study.key_of(self.name), NODE_STATEMENT)
        record = self._own_ledger(home, counted)
        answered: tuple[int, ...] = ()
        certificate = None
        if stated is not None:
            answered, certificate = self._own_statement(stated["predicate"])
        elif counted.rounds or self.path.exists():
            self.faults.append(f"its signed statement is missing: {why}; `sordino deploy resume` asks for it again")
        if self.server:
            # Where the ledger is elsewhere, the node's statement names its rounds, and no entry can be compared.
            rounds = answered if stated is not None else counted.rounds
            entries = dict.fromkeys(rounds, counted.entry) if record is None else entries_of(record)
            self.faults += faults_of(self.server, self.study, self.i, entries)
        if record is not None and home is not None:
            self._against_ledger(record, home, None if stated is None else stated["predicate"], server_key)
            self._against_events(record, certificate)
        return Account(
            name=self.name,
            records=self.study.description.members[self.i].records,
            used=counted.rounds,
            unused=counted.unused,
            answered=answered,
            certificate=certificate,
            signed=stated is not None,
            ledger=NOT_HERE if record is None else str(len(entries_of(record))),
            faults=tuple(self.faults),
        )

    def _counted(self) -> Used:
        """What the server counts; nothing where `faults_of` will say that its statement does not speak of the node."""
        try:
            part = self.server["members"][self.name]
            rounds, unused = (rounds_in(part[name], self.study.rounds) for name in ("rounds", "unusedRounds"))
            return Used(rounds, str(part["ledgerEntry"]), unused)
        except (KeyError, TypeError, ValueError):
            return Used()

    def _own_statement(self, own: Json) -> tuple[tuple[int, ...], Certificate | None]:
        try:
            answered, torn = rounds_in(own["rounds"], self.study.rounds), own["tornRounds"]
            if not (type(torn) is int and 0 <= torn <= MOST_TORN):
                raise ValueError("no number of lines")
            certificate, listed = certificate_in(own), [str(each) for each in own["disagreements"]]
            about = (str(own["digest"]), str(own["member"]))
        except (KeyError, TypeError, ValueError):
            self.faults.append("its statement cannot be read: another version of Sordino wrote it")
            return (), None
        if about != (self.study.description.digest.hex(), self.name):
            self.faults.append("its statement is about another study or another node")
        counted = len(answered) + torn
        expected = self.study.plan.certificate(self.i, counted) if counted else None
        if certificate != expected:
            self.faults.append(f"its certificate is not what {counted} rounds cost")
        self.faults += [f"it disagrees with the server: {each}" for each in listed]
        return answered, certificate

    def _own_ledger(self, home: Path | None, counted: Used) -> LedgerRecord | None:
        """The ledger in the node's state folder, where that is on this machine."""
        if home is None or not home.parent.is_dir():
            return None
        if not (home / LEDGER).exists():
            if counted.rounds or self.path.exists():
                self.faults.append(f"its ledger is gone: there is no {home / LEDGER}")
            return None
        try:
            return read_ledger(home / LEDGER)
        except SordinoError as error:
            self.faults.append(f"its ledger: {error}")
            return None

    def _against_ledger(self, record: LedgerRecord, home: Path, own: Json | None, server_key: VerifyingKey) -> None:
        entries = entries_of(record)
        if own is not None:
            if own.get("ledgerHash") != record.last_hash:
                self.faults.append("its statement was signed for another ledger than the one that is here")
            if own.get("rounds") != ranges(entries):
                self.faults.append(f"its statement names other rounds than its ledger: {shown(entries)}")
        for name, key, kind in (
            (OWN_STATEMENT, self.study.key_of(self.name), NODE_STATEMENT),
            (KEPT_SERVER_STATEMENT, server_key, SERVER_STATEMENT),
        ):
            kept, why = signed_statement(home / name, key, kind)
            if kept is None and (own is not None or (home / name).exists()):
                self.faults.append(f"in its own folder: {why}")
            elif kept is not None and own is not None and kind == NODE_STATEMENT and kept["predicate"] != own:
                self.faults.append("the statement in its own folder is not the one that it sent to the server")

    def _against_events(self, record: LedgerRecord, certificate: Certificate | None) -> None:
        """The events in the ledger, accounted by themselves, must cost what the certificate says."""
        if certificate is None:
            return
        for total in certificate.totals:
            found = certify_ledger(record, total.delta)
            spent = [each.epsilon for each in found.totals if each.observer is total.observer]
            if spent and max(spent) > total.epsilon * (1 + 1e-9):
                self.faults.append(
                    f"the events in its ledger cost epsilon {max(spent):g} against the {total.observer}, more than the "
                    f"{total.epsilon:g} of its certificate"
                )
