"""A server: it describes a study, asks the nodes for round after round, and trusts no message.

Each reply is checked for signature, kind, study, round, sender, shape, range, finiteness and, where it can be known,
length. What fails is left out of the round, with the node's name and a reason in the journal. Sums are divided by the
planned number of clients, whoever answers.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

import jax.numpy as jnp

from sordino.config import load_config
from sordino.deploy.entropy import Words, os_words
from sordino.deploy.records import OwnRecords, read_records
from sordino.deploy.seam import Exchange, Reason, Reply
from sordino.deploy.server_study import MEMBERS, MODEL, STATEMENT, STOP, RoundLine, ServerStudy
from sordino.deploy.settings import ServerFile, read_server_file, require_node_name
from sordino.deploy.statements import NODE_STATEMENT, server_statement
from sordino.deploy.study import LONGEST_DESCRIPTION, Description, Member, as_arrays, protects_records
from sordino.deploy.turn import Aggregation
from sordino.deploy.wire import NO_STUDY, Frame, Kind, Update, WireError, pack_arrays, seal, unseal
from sordino.errors import SordinoError, require
from sordino.files import write_atomically
from sordino.privacy.signing import (
    SignatureError,
    SigningKey,
    VerifyingKey,
    read_signing_key,
    read_verifying_key,
    sign,
    verify,
)
from sordino.runs.store import model_bytes
from sordino.tasks.task import evaluate
from sordino.types import Message, PyTree

log = logging.getLogger(__name__)
Told = Callable[[ServerStudy], None]
# A node that answers so is not asked again before the study is resumed.
FINAL = {Reason.BUDGET, Reason.METHOD, Reason.NOISE, Reason.BOUND, Reason.TRUST, Reason.UNIT, Reason.DATA, Reason.PLAN}
FINAL |= {Reason.UNKNOWN_SERVER, Reason.FINISHED}
USED = "used"
LARGEST_FACT = 2**31


class TooFewReplies(SordinoError):
    """A round cannot be closed. What is done stays done."""


class Stopped(SordinoError):
    """Somebody asked for it."""


class Facts(NamedTuple):
    """What is public of a node's records."""

    shape: tuple[int, ...]
    classes: int
    records: int | None

    @classmethod
    def of(cls, body: bytes) -> Self:
        """The facts in a reply."""
        try:
            plain = json.loads(body)
            facts = cls(tuple(plain["shape"]), plain["classes"], plain["records"])
        except (ValueError, TypeError, KeyError, RecursionError):
            raise WireError(Reason.WRONG_REPLY, "facts that cannot be read") from None
        numbers = (*facts.shape, facts.classes, *([] if facts.records is None else [facts.records]))
        if not all(type(each) is int and 0 < each < LARGEST_FACT for each in numbers):
            raise WireError(Reason.WRONG_REPLY, "facts that are no whole numbers")
        return facts


class Server:
    """The server of a deployment, over one exchange.

    Args:
      settings: server.toml.
      folder: where that file lies.
      exchange: the transport.
      words: random words, of the operating system unless a test says otherwise.
      told: called after every change of a study.
    """

    def __init__(
        self, settings: ServerFile, folder: Path, exchange: Exchange, words: Words = os_words, told: Told | None = None
    ) -> None:
        self.settings, self.exchange, self.words, self._told = settings, exchange, words, told
        self.key: SigningKey = read_signing_key(folder / settings.key)
        self.keys = {name: read_verifying_key(folder / file) for name, file in settings.nodes.items()}
        self.test = None if settings.test is None else read_records(settings.test, folder)
        self.state = folder / settings.state

    @classmethod
    def read(cls, path: Path, exchange: Exchange, told: Told | None = None) -> Self:
        """The server of a server.toml."""
        return cls(read_server_file(path), path.parent, exchange, told=told)

    def study_folder(self, name: str) -> Path:
        """Where a study is kept."""
        require_node_name("name", name)
        return self.state / "studies" / name

    def begin(self, file: Path, name: str) -> ServerStudy:
        """Start a study from a run file, and conduct it to its end."""
        folder = self.study_folder(name)
        description = self._described(file, name)
        with ServerStudy.create(description, folder) as kept:
            Conduct(self, kept).to_the_end()
            return kept

    def resume(self, name: str) -> ServerStudy:
        """Go on with a study, to its end."""
        with ServerStudy.open(self.study_folder(name)) as kept:
            (kept.folder / STOP).unlink(missing_ok=True)
            Conduct(self, kept).to_the_end()
            return kept

    def tell(self, kept: ServerStudy, state: str, latest: Mapping[str, str], **more: str) -> None:
        """Let people see where a study stands."""
        kept.tell(state, latest, **more)
        if self._told is not None:
            self._told(kept)

    # --- The description -----------------------------------------------------------------------------------------

    def _described(self, file: Path, name: str) -> Description:
        """Ask every node for its public facts -> the study that those who answer will take part in."""
        config = load_config(file)
        text, counts = config.changed, protects_records(config)  # refuses what no plan can be, before nodes are asked
        request = seal(Frame(Kind.DESCRIBE, NO_STUDY, 0, self.settings.name, text.encode()), self.key)
        facts: dict[str, Facts] = {}
        absent: dict[str, Reason] = {}
        replies = self.exchange(0, dict.fromkeys(self.keys, request), self.settings.rounds.deadline)
        for node in self.keys:
            try:
                frame = self.open(node, replies[node], Kind.FACTS, NO_STUDY, 0, LONGEST_DESCRIPTION)
                facts[node] = Facts.of(frame.body)
            except WireError as error:
                absent[node] = error.reason
        for node, reason in absent.items():
            log.warning("%s does not take part: %s", node, reason.name)
        enough = len(facts) >= self.settings.rounds.fewest and bool(facts)
        missing = ", ".join(f"{node} ({reason.name})" for node, reason in absent.items())
        remedy = f"at least {self.settings.rounds.fewest} must take part; absent: {missing or 'nobody'}"
        require(enough, "nodes", len(facts), remedy)
        joins_later = {Reason.SILENT, Reason.LOST} if self._lets_join(counts) else set()
        members = [node for node in self.keys if node in facts or absent.get(node) in joins_later]
        alike = len({(each.shape, each.classes) for each in facts.values()}) == 1
        told = "; ".join(f"{node}: {each.shape}, {each.classes} classes" for node, each in facts.items())
        require(alike, "data", told, "all nodes must hold records of one shape and one number of classes")
        shape, classes, _ = next(iter(facts.values()))
        listed = [
            Member(node, self.keys[node].line, facts[node].records if node in facts else None) for node in members
        ]
        description = Description.new(name, text, shape, classes, listed, self.key.public.line)
        description.check()
        return description

    def _lets_join(self, counts: bool) -> bool:
        return self.settings.rounds.late_joiners and not counts

    def open(self, node: str, reply: Reply, kind: Kind, study: bytes, round: int, most: int) -> Frame:
        """The frame in a reply, of exactly the expected sender, kind, study and round; its reason where it is not."""
        if isinstance(reply, Reason):
            raise WireError(reply, "no reply")
        key: VerifyingKey = self.keys[node]
        frame = unseal(reply, key, most)
        if (frame.study, frame.round, frame.sender) != (study, round, node):
            raise WireError(Reason.WRONG_REPLY, "a reply to something else")
        if frame.kind is Kind.REFUSED:
            try:
                reason = Reason(frame.body[0]) if len(frame.body) == 1 else Reason.WRONG_REPLY
            except ValueError:
                reason = Reason.WRONG_REPLY
            raise WireError(reason, "the node refuses")
        if frame.kind is not kind:
            raise WireError(Reason.WRONG_REPLY, f"a {frame.kind.name}")
        return frame


class Replies(NamedTuple):
    """A round's messages, and why there is none of the others."""

    messages: dict[int, Message]
    used: dict[str, str]  # member -> hash of its ledger entry
    missing: dict[str, str]


class Conduct:
    """One study from where it stands to its end."""

    def __init__(self, server: Server, kept: ServerStudy) -> None:
        self.server, self.kept, self.study = server, kept, kept.study
        self.digest = self.study.description.digest
        self.turn = Aggregation(self.study, server.words)
        self.accepted: set[str] = set()
        self.declined: dict[str, Reason] = {}  # members that are not asked again
        self.latest: dict[str, str] = {}
        strangers = [name for name in self.study.members if name not in server.keys]
        require(not strangers, "nodes", strangers, "are members of the study: keep them in server.toml")

    def to_the_end(self) -> None:
        """All rounds that are left, then the statements of both sides."""
        try:
            state = self.turn.restored(self.kept.leaves) if self.kept.done else self.turn.first_state()
            self._tell("running")
            for round in range(self.kept.done + 1, self.study.rounds + 1):
                if self.kept.stop_wanted:
                    raise Stopped(f"stopped after round {self.kept.done}: go on with `deploy resume`")
                state = self._round(round, state)
                self._tell("running")
            self._finish(state)
        except BaseException as error:
            state_name = "stopped" if isinstance(error, Stopped) else "interrupted"
            with suppress(OSError):  # a full disk, perhaps the very error
                self._tell(state_name, why=str(error) or type(error).__name__)
            raise
        self._tell("finished")

    def _tell(self, state: str, **more: str) -> None:
        self.server.tell(self.kept, state, self.latest, **more)

    # --- A round -------------------------------------------------------------------------------------------------

    def _round(self, round: int, state: PyTree) -> PyTree:
        started = time.monotonic()
        replies = self._ask_until_enough(round, state)
        state = self.turn(state, replies.messages)
        line = RoundLine(round, replies.used, replies.missing, time.monotonic() - started, self._measured(state))
        self.kept.enter(line, as_arrays(state))
        return state

    def _ask_until_enough(self, round: int, state: PyTree) -> Replies:
        """Ask the members, those without a usable reply once more while there are too few."""
        rules, settings = self.study.rules, self.server.settings.rounds
        body = pack_arrays(as_arrays(rules.method.broadcast(state)))
        request = self._sealed(Kind.ROUND, round, body)
        found = Replies({}, {}, {})
        for attempt in range(settings.attempts):
            if attempt:
                time.sleep(settings.pause)
            self._let_join()
            asked = [name for name in self.study.members if name in self.accepted and name not in found.used]
            replies = self.server.exchange(round, dict.fromkeys(asked, request), settings.deadline) if asked else {}
            for name in asked:
                self._take(name, round, replies[name], state, found)
            found.missing.update({name: why.name for name, why in self.declined.items()})
            if len(found.used) >= settings.fewest:
                break
            if self.kept.stop_wanted:
                raise Stopped(f"stopped after round {self.kept.done}: go on with `deploy resume`")
        for name in self.study.members:
            if name not in found.used:
                found.missing.setdefault(name, self.latest.get(name, Reason.LOST.name))
        self.latest = found.missing | dict.fromkeys(found.used, USED)
        if len(found.used) < settings.fewest:
            told = ", ".join(f"{name} ({why})" for name, why in sorted(found.missing.items()))
            raise TooFewReplies(
                f"round {round}: {len(found.used)} usable replies, and [rounds] fewest = {settings.fewest}; missing: "
                f"{told}. What is done is kept: start the nodes, then go on with `deploy resume`"
            )
        return found

    def _take(self, name: str, round: int, reply: Reply, state: PyTree, found: Replies) -> None:
        """Use a reply, or note why not."""
        i = self.study.members.index(name)
        try:
            frame = self.server.open(name, reply, Kind.UPDATE, self.digest, round, self.study.update_size(i))
            levels = {"has_level": self.study.has_level(i), "has_side": self.study.has_side(i)}
            update = Update.unpack(frame.body, self.study.coding(i), **levels)
            found.messages[i] = self.turn.check(i, update, state)
        except WireError as error:
            log.warning("round %d: no message of %s (%s)", round, name, error.reason.name)
            found.missing[name] = error.reason.name
            if error.reason in FINAL:
                self.declined[name] = error.reason
            if error.reason is Reason.UNKNOWN_STUDY or error.reason in FINAL:
                self.accepted.discard(name)
            return
        found.used[name] = update.ledger_hash.hex()
        found.missing.pop(name, None)

    def _let_join(self) -> None:
        """Start the study at members that have not accepted it yet."""
        connected = set(self.server.exchange.nodes())
        for name in self.study.members:
            if name not in self.accepted | connected:
                self.latest[name] = Reason.LOST.name
        asked = [name for name in self.study.members if name in connected - self.accepted - self.declined.keys()]
        if not asked:
            return
        request = self._sealed(Kind.START, 0, self.study.description.data)
        replies = self.server.exchange(0, dict.fromkeys(asked, request), self.server.settings.rounds.deadline)
        for name in asked:
            try:
                frame = self.server.open(name, replies[name], Kind.ACCEPT, self.digest, 0, hashlib.sha256().digest_size)
                if frame.body != self.study.cost_digest(self.study.members.index(name)):
                    raise WireError(Reason.PLAN, "it has found other costs: versions differ")
            except WireError as error:
                log.warning("%s does not take part: %s", name, error.reason.name)
                self.latest[name] = error.reason.name
                if error.reason in FINAL:
                    self.declined[name] = error.reason
                continue
            self.accepted.add(name)

    def _sealed(self, kind: Kind, round: int, body: bytes) -> bytes:
        return seal(Frame(kind, self.digest, round, self.server.settings.name, body), self.server.key)

    # --- The end -------------------------------------------------------------------------------------------------

    def _finish(self, state: PyTree) -> None:
        """Save the model, sign what was used of everybody, and exchange statements."""
        model = model_bytes(self.study.params(self.study.rules.method.params(state)))
        write_atomically(self.kept.folder / MODEL, model)
        used, digest, rounds = self.kept.used(), hashlib.sha256(model).hexdigest(), self.study.rounds
        key, connected = self.server.key, self.server.exchange.nodes()
        if not (self.kept.folder / STATEMENT).exists():
            signed = sign(server_statement(self.study, used, rounds, digest), key)
            write_atomically(self.kept.folder / STATEMENT, json.dumps(signed, indent=2).encode())
        asked = {
            name: self._sealed(
                Kind.FINISH,
                rounds,
                json.dumps(sign(server_statement(self.study, {name: each}, rounds, digest), key)).encode(),
            )
            for name, each in used.items()
            # A member whose messages never arrived has a ledger too, and a certificate of its own.
            if (each.rounds or name in connected) and not (self.kept.folder / MEMBERS / f"{name}.dsse.json").exists()
        }
        replies = self.server.exchange(rounds, asked, self.server.settings.rounds.deadline) if asked else {}
        for name, reply in replies.items():
            try:
                frame = self.server.open(name, reply, Kind.STATEMENT, self.digest, rounds, LONGEST_DESCRIPTION)
                verify(json.loads(frame.body), self.server.keys[name], NODE_STATEMENT)
            except (WireError, SignatureError, ValueError, RecursionError) as error:
                log.warning("no signed statement of %s yet: `deploy resume` asks for it again (%s)", name, error)
                continue
            write_atomically(self.kept.folder / MEMBERS / f"{name}.dsse.json", frame.body)

    # --- The server's own test records ---------------------------------------------------------------------------

    def _measured(self, state: PyTree) -> dict[str, float]:
        test = self.server.test
        if test is None or self.study.model.predict is None:
            return {}
        loss, accuracy = evaluate(
            self.study.rules.method.params(state), *self._test_arrays(test), predict=self.study.predict
        )
        return {"test_loss": float(loss), "accuracy": float(accuracy)}

    def _test_arrays(self, test: OwnRecords) -> tuple[jnp.ndarray, jnp.ndarray]:
        fits = test.x.shape[1:] == self.study.description.shape
        require(fits, "[test] file", test.x.shape[1:], f"its records must have shape {self.study.description.shape}")
        return jnp.asarray(test.x), jnp.asarray(test.y)
