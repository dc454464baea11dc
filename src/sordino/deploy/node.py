"""A node: it decides by its own rules, on its own records, with its own budget. `handle` is all that others reach.

    describe  what do you hold?         -> public facts, where the method is one that the node accepts
    start     this study, these members -> the digest of the costs that the node has found itself
    round     what the method sends out -> a message, entered in the node's ledger before it leaves
    finish    the server's certificate  -> the node's own

Every number of a study is checked before anything is computed. A refusal travels as one byte; words stay in the log.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from sordino.config import Config, load_config
from sordino.deploy.entropy import Words, os_words
from sordino.deploy.node_study import LEDGER, OWN_STATEMENT, SERVER_STATEMENT, Answer, NodeStudy, entries_of
from sordino.deploy.records import node_records
from sordino.deploy.rollback import HASH, REMEDY, AnsweredCount, count_file, entry_at, unpack_start
from sordino.deploy.rulebook import (
    Refusal,
    released,
    require_accepted,
    require_accepted_model,
    require_accepted_plan,
    require_budget,
    require_own_description,
)
from sordino.deploy.seam import Reason
from sordino.deploy.settings import DAY, NodeFile, read_node_file
from sordino.deploy.spending import Spending, counted_releases, seconds
from sordino.deploy.statements import SERVER_STATEMENT as SERVER_TYPE
from sordino.deploy.statements import faults_of, node_statement
from sordino.deploy.study import LONGEST_DESCRIPTION, MOST_MEMBERS, Description, Study, as_arrays, protects_records
from sordino.deploy.turn import Training
from sordino.deploy.wire import Frame, Kind, WireError, seal, unpack_arrays, unseal
from sordino.errors import InvalidInput, LedgerError, LedgerInUse, SordinoError, one_line, require
from sordino.files import HeldOpen, held, sync_folder, write_atomically
from sordino.privacy.ledger import read_ledger
from sordino.privacy.signing import SignatureError, read_signing_key, read_verifying_key, sign, verify
from sordino.types import Trust

log = logging.getLogger(__name__)
REGISTER, STUDIES, STAGING = "studies.json", "studies", "staging"
BYTES_A_PARAMETER = 16  # of a request: a method sends out a few vectors of floats
Body = tuple[Kind, bytes]


class Node(HeldOpen):
    """One node, from `open` until `close`. No other process may use its state folder meanwhile.

    Args:
      settings: node.toml.
      folder: where that file lies; its relative paths start there.
      words: random words, of the operating system unless a test says otherwise.
      clock: seconds since 1970.
    """

    def __init__(
        self, settings: NodeFile, folder: Path, words: Words = os_words, clock: Callable[[], float] = time.time
    ) -> None:
        self.settings, self.words, self.clock = settings, words, clock
        self.key = read_signing_key(folder / settings.key, field=settings.place("", "key"))
        self.server_key = read_verifying_key(folder / settings.server.key, field=settings.place("server", "key"))
        self.records = node_records(settings, folder)
        self.state = folder / settings.state
        largest = BYTES_A_PARAMETER * settings.accept.largest_model + HASH * MOST_MEMBERS
        self._most = max(2 * LONGEST_DESCRIPTION, largest)
        self._spending = Spending(settings.filter(), settings.budget.period_days * DAY)
        self._studies: dict[bytes, NodeStudy] = {}
        self._training: dict[bytes, Training] = {}
        self._answered: dict[bytes, float] = {}  # when a study was last answered
        self._turn = threading.Lock()  # one request at a time, whatever the transport does
        with ExitStack() as resources:
            (self.state / STUDIES).mkdir(parents=True, exist_ok=True)
            in_use = InvalidInput("state", str(self.state), "another process uses it: end that one first")
            resources.enter_context(held(self.state / ".lock", in_use))
            self._known = self._read_register()
            resources.callback(self._close_studies)
            for name in self._known:
                self._open(name)
            answered = sum(len(kept.entries) for kept in self._studies.values())
            self._number = AnsweredCount(count_file(folder, settings.name), self.state, answered)
            self._resources = resources.pop_all()

    @classmethod
    def read(cls, path: Path) -> Self:
        """The node of a node.toml."""
        return cls(read_node_file(path), path.parent)

    # --- What others reach ---------------------------------------------------------------------------------------

    def handle(self, data: bytes) -> bytes:
        """The signed answer to a request; a refusal where the node does not answer. Nothing raises."""
        with self._turn:
            return self._handle(data)

    def _handle(self, data: bytes) -> bytes:
        try:
            frame = unseal(data, self.server_key, self._most)
        except WireError as error:
            log.warning("a request that is not the server's is not answered: %s", error)
            return b""  # a signed answer could be played to the server
        study, round = frame.study, frame.round
        try:
            kind, body = self._answer(frame)
            return self._seal(kind, study, round, body)
        except (Refusal, WireError) as error:
            why = one_line(error)  # it may quote the server
            log.warning("round %d of study %s is refused (%s): %s", round, study.hex()[:8], error.reason.name, why)
            reason = error.reason
        except (LedgerError, OSError) as error:
            log.error("round %d of study %s is refused, nothing was sent: %s", round, study.hex()[:8], error)
            reason = Reason.BUSY if isinstance(error, LedgerInUse) else Reason.STORAGE
            self._forget(study)  # its ledger accepts nothing more; the next request opens it anew
        except Exception:
            log.exception("round %d of study %s failed, nothing was sent", round, study.hex()[:8])
            reason = Reason.FAILED
        return self._seal(Kind.REFUSED, study, round, bytes([reason]) + hashlib.sha256(data).digest())

    def _seal(self, kind: Kind, study: bytes, round: int, body: bytes) -> bytes:
        return seal(Frame(kind, study, round, self.settings.name, body), self.key)

    def _answer(self, frame: Frame) -> Body:
        match frame.kind:
            case Kind.DESCRIBE:
                return Kind.FACTS, self._describe(frame)
            case Kind.START:
                return Kind.ACCEPT, self._start(frame)
            case Kind.ROUND:
                return Kind.UPDATE, self._round(frame)
            case Kind.FINISH:
                return Kind.STATEMENT, self._finish(frame)
        raise Refusal(Reason.MALFORMED, f"a server sends no {frame.kind.name}")

    def _describe(self, frame: Frame) -> bytes:
        """Public facts for a run file: shape and classes, and under replace-one the number of records."""
        if len(frame.body) > LONGEST_DESCRIPTION:
            raise Refusal(Reason.TOO_LARGE, f"a run file of {len(frame.body)} bytes")
        counts = require_accepted_plan(self.settings, self._config(frame.body))
        facts = {
            "shape": list(self.records.x.shape[1:]),
            "classes": self.settings.data.classes,
            "records": len(self.records.y) if counts else None,
        }
        return json.dumps(facts, sort_keys=True).encode()

    def _start(self, frame: Frame) -> bytes:
        """Resolve the plan from the public description, check it against the node's rules, and take part."""
        description, earlier = self._described(frame)
        config = self._config(description.file.encode())
        counts = require_accepted_plan(self.settings, config)
        i = require_own_description(self.settings, self.records, self.key.public.line, description, counts)
        for digest, entry in earlier.items():
            self._require_entry(self._find(digest), entry)
        kept = self._find(frame.study)
        if kept is not None:
            return kept.study.cost_digest(i)
        running, most = sum(not each.finished for each in self._studies.values()), self.settings.accept.most_studies
        if running >= most:
            raise Refusal(Reason.WORK, f"{running} studies have not ended: at most {most} are accepted")
        staging = self.state / STAGING
        shutil.rmtree(staging, ignore_errors=True)
        try:
            require_accepted_model(self.settings, config, description)
            study = Study.resolve(description, staging)
        except Refusal:
            raise
        except SordinoError as error:
            raise Refusal(Reason.PLAN, str(error)) from None
        require_accepted(self.settings, study, i)
        self._require_budget(study, i, study.rounds)
        folder = self._folder(frame.study.hex())
        if not folder.exists():  # it does after a crash, without a round
            os.replace(staging, folder)
            sync_folder(folder.parent)
        kept = NodeStudy.open(study, i, folder)
        self._studies[frame.study] = kept
        self._register(frame.study.hex())
        shutil.rmtree(staging, ignore_errors=True)
        log.info("study %s is accepted: %d rounds", description.name, study.rounds)
        return study.cost_digest(i)

    def _round(self, frame: Frame) -> bytes:
        """One message: the stored one where this request was answered before, a new one where it is new."""
        kept = self._find(frame.study)
        if kept is None:
            raise Refusal(Reason.UNKNOWN_STUDY, "no study with this description was accepted here")
        if kept.finished:  # also of a round that was answered: a server with central trust would draw other noise on it
            raise Refusal(Reason.FINISHED, "the study has ended here")
        request = hashlib.sha256(frame.body).digest()
        if kept.last is not None and kept.last.round == frame.round:
            if kept.last.request != request:
                raise Refusal(Reason.OTHER_REQUEST, "the round was answered already, to another request")
            return kept.again()
        self._require_turn(kept, frame)
        study = kept.study
        # The rules, or the records, may have changed since the study was accepted.
        counts = protects_records(study.config)
        require_own_description(self.settings, self.records, self.key.public.line, study.description, counts)
        require_accepted(self.settings, study, kept.i)
        seen, *arrays = unpack_arrays(frame.body, study.request)
        if (entry := entry_at(seen, kept.i)) is not None:
            self._require_entry(kept, entry)
        if study.round_of(arrays) not in (None, frame.round - 1):  # what a round costs may rest on its number
            raise Refusal(Reason.PLAN, f"round {frame.round} broadcasts the state of round {study.round_of(arrays)}")
        self._require_budget(study, kept.i, 1)
        if frame.study not in self._training:
            self._training[frame.study] = Training(study, kept.i, self.records, self.words)
        training = self._training[frame.study]
        state = training.first_state() if kept.last is None else training.restored(kept.last.state)
        turned = training(arrays, state)
        update = turned.update.pack(study.coding(kept.i))
        # It counts from here on: an append that fails may be in the ledger, and then its message leaves later.
        self._answered[frame.study] = self.clock()
        if study.plan.resolved.trust is not Trust.NONE:
            self._spending.add(frame.study, self._now(), released(study, kept.i))
        body = kept.answer(Answer(frame.round, request, update, as_arrays(turned.state)))
        self._number.add()
        return body

    def _finish(self, frame: Frame) -> bytes:
        """Check what the server states, and sign what the node's own ledger says."""
        kept = self._find(frame.study)
        if kept is None:
            raise Refusal(Reason.UNKNOWN_STUDY, "no study with this description was accepted here")
        own = kept.folder / OWN_STATEMENT
        if own.exists():
            return own.read_bytes()
        path = kept.folder / SERVER_STATEMENT
        body = path.read_bytes() if kept.finished else frame.body  # the ledger holds the digest of the first one
        try:
            envelope = json.loads(body)
            stated = verify(envelope, self.server_key, SERVER_TYPE)
        except (ValueError, RecursionError) as error:
            message = error.message if isinstance(error, SignatureError) else "is no JSON"
            raise Refusal(Reason.MALFORMED, f"the server's statement {message}") from None
        record = kept.record
        faults = faults_of(stated["predicate"], kept.study, kept.i, entries_of(record))
        for fault in faults:
            log.error("study %s: %s", kept.study.description.name, fault)
        if not kept.finished:
            write_atomically(path, body)
            kept.finish({SERVER_STATEMENT: hashlib.sha256(body).hexdigest()})
        signed = json.dumps(sign(node_statement(kept.study, kept.i, kept.record, faults), self.key)).encode()
        write_atomically(own, signed)
        self._training.pop(frame.study, None)
        sync_folder(kept.folder)
        log.info("study %s has ended: certificate in %s", kept.study.description.name, own)
        return signed

    # --- What is checked -----------------------------------------------------------------------------------------

    def _described(self, frame: Frame) -> tuple[Description, dict[bytes, str]]:
        """The study of a START, and what the server remembers of this node's ledgers."""
        try:
            data, earlier = unpack_start(frame.body)
            description = Description.of(data)
        except (SordinoError, ValueError) as error:
            raise Refusal(Reason.MALFORMED, str(error)) from None
        if description.digest != frame.study:
            raise Refusal(Reason.MALFORMED, "the description is not the one that the request names")
        if description.server != self.server_key.line:
            raise Refusal(Reason.UNKNOWN_SERVER, "the description names another server")
        return description, earlier

    def _require_entry(self, kept: NodeStudy | None, entry: str) -> None:
        if kept is None or entry not in kept.entries.values():
            lost = f"the server has seen the ledger entry {entry[:16]}, and it is not here: this state is an older copy"
            raise Refusal(Reason.OLD_STATE, f"{lost}; {REMEDY}")

    def _config(self, text: bytes) -> Config:
        """A run file, checked."""
        path = self.state / "asked.toml"
        write_atomically(path, text)
        try:
            config = load_config(path)
            config.plan()
            return config
        except SordinoError as error:
            raise Refusal(Reason.PLAN, str(error)) from None

    def _require_turn(self, kept: NodeStudy, frame: Frame) -> None:
        """Rounds come in their order, up to the planned number, and not more often than agreed."""
        last = 0 if kept.last is None else kept.last.round
        if frame.round <= last:
            raise Refusal(Reason.PAST_ROUND, f"round {last} was answered already")
        if frame.round > kept.study.rounds:
            raise Refusal(Reason.PLAN, f"{kept.study.rounds} rounds are planned")
        since = self.clock() - self._answered.get(frame.study, -float("inf"))
        if 0 <= since < self.settings.accept.pause:
            raise Refusal(Reason.TOO_SOON, f"{since:.3g} s after the last answer")

    def _require_budget(self, study: Study, i: int, rounds: int) -> None:
        if study.plan.resolved.trust is not Trust.NONE:
            spent = self._spending.within(self._now())
            require_budget(self._spending.filter, spent, released(study, i), rounds)

    def _now(self) -> float:
        now = self._spending.now(self.clock())
        if now is None:
            raise Refusal(Reason.CLOCK, "the clock of this machine is behind the node's ledgers: set it")
        return now

    # --- What is kept --------------------------------------------------------------------------------------------

    def _folder(self, name: str) -> Path:
        return self.state / STUDIES / name

    def _find(self, digest: bytes) -> NodeStudy | None:
        """An accepted study; opened again where an error closed its ledger."""
        if digest not in self._studies and digest.hex() in self._known:
            self._open(digest.hex())
        return self._studies.get(digest)

    def _open(self, name: str) -> NodeStudy:
        folder = self._folder(name)
        if not (folder / LEDGER).exists():
            remedy = "restore it from a backup: what it released counts against the budget"
            raise InvalidInput("state", str(folder), f"was accepted here, and its ledger is gone; {remedy}")
        study = Study.read(folder)
        remedy = "holds the description of another study: restore it from a backup"
        require(study.description.digest.hex() == name, "state", str(folder), remedy)
        i = study.description.index(self.settings.name)
        require(i is not None, "name", self.settings.name, f"is not a member of the study in {folder}")
        assert i is not None
        kept = NodeStudy.open(study, i, folder)
        self._studies[study.description.digest] = kept
        self._count(study.description.digest, kept)
        return kept

    def _count(self, digest: bytes, kept: NodeStudy) -> None:
        """What a study has released counts against the budget, torn lines of its ledger included."""
        if kept.record.entries:
            self._answered[digest] = seconds(kept.record.entries[-1].time)
        self._spending.forget(digest)
        for entered, count in counted_releases(kept.study, kept.i, kept.record):
            self._spending.add(digest, entered, released(kept.study, kept.i), count)

    def _forget(self, digest: bytes) -> None:
        kept = self._studies.pop(digest, None)
        self._training.pop(digest, None)
        if kept is not None:
            kept.close()

    def _close_studies(self) -> None:
        for digest in list(self._studies):
            self._forget(digest)

    def _read_register(self) -> list[str]:
        """The accepted studies. A folder that released something and is not among them was tampered with."""
        path = self.state / REGISTER
        try:
            names = [str(name) for name in json.loads(path.read_bytes())] if path.exists() else []
        except (ValueError, TypeError, RecursionError):
            raise InvalidInput("state", str(path), "is damaged: restore it from a backup") from None
        for folder in (self.state / STUDIES).iterdir():
            if folder.name not in names and (folder / LEDGER).exists() and read_ledger(folder / LEDGER).entries:
                remedy = f"is not in {REGISTER}, though it released something: restore that file from a backup"
                raise InvalidInput("state", str(folder), remedy)
        return names

    def _register(self, name: str) -> None:
        if name not in self._known:
            write_atomically(self.state / REGISTER, json.dumps([*self._known, name]).encode())
            sync_folder(self.state)
            self._known.append(name)
