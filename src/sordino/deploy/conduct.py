"""One study from where it stands to its end: every round is asked for, checked, summed and written down.

What fails a check is left out of the round, with the node's name and a reason in the journal. Sums are divided by the
planned number of clients, whoever answers.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp
import numpy as np

from sordino.deploy.records import OwnRecords
from sordino.deploy.rollback import as_words, earlier_entries, pack_start
from sordino.deploy.seam import Reason, Reply
from sordino.deploy.server_study import MEMBERS, MODEL, STATEMENT, RoundLine, ServerStudy, Told
from sordino.deploy.statements import NODE_STATEMENT, server_statement
from sordino.deploy.status import INTERRUPTED, RUNNING, USED
from sordino.deploy.study import LONGEST_DESCRIPTION, as_arrays
from sordino.deploy.turn import Aggregation
from sordino.deploy.wire import Kind, NodeRefuses, Update, WireError, pack_arrays
from sordino.errors import SordinoError, one_line, require
from sordino.files import write_atomically
from sordino.privacy.signing import sign, verify
from sordino.runs.store import model_bytes
from sordino.tasks.task import evaluate
from sordino.types import Message, PyTree

if TYPE_CHECKING:
    from sordino.deploy.server import Server

log = logging.getLogger(__name__)
PLANNING = 600.0  # seconds that a node may take to resolve a study's plan, at least
# A node that answers so is not asked again before the study is resumed.
FINAL = {Reason.BUDGET, Reason.METHOD, Reason.NOISE, Reason.BOUND, Reason.TRUST, Reason.UNIT, Reason.DATA, Reason.PLAN}
FINAL |= {Reason.UNKNOWN_SERVER, Reason.WORK, Reason.OLD_STATE}
# The node has answered this round, or a later one, to a request that this server does not remember.
ASKED_BEFORE = {Reason.OTHER_REQUEST, Reason.PAST_ROUND, Reason.FINISHED}
# A node that refuses so may have entered the round in its ledger all the same, and then it counts.
MAY_HAVE_ENTERED = {Reason.STORAGE, Reason.FAILED} | ASKED_BEFORE


class TooFewReplies(SordinoError):
    """A round cannot be closed. What is done stays done; `resumable` says that going on may succeed as things are."""

    def __init__(self, message: str, *, resumable: bool) -> None:
        super().__init__(message)
        self.resumable = resumable


class Stopped(SordinoError):
    """Somebody asked for it."""


class Replies(NamedTuple):
    """A round's messages, and why there is none of the others."""

    messages: dict[int, Message]
    used: dict[str, str]  # member -> hash of its ledger entry
    missing: dict[str, str]
    unused: set[str]  # members whose message may have left all the same


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
            self._tell(RUNNING)
            for round in range(self.kept.done + 1, self.study.rounds + 1):
                if self.kept.stop_wanted:
                    raise Stopped(f"stopped after round {self.kept.done}: go on with `deploy resume`")
                state = self._round(round, state)
                self._tell(RUNNING)
            self._finish(state)
        except BaseException as error:
            state_name = "stopped" if isinstance(error, Stopped) else INTERRUPTED
            with suppress(OSError):  # a full disk, perhaps the very error
                self._tell(state_name, str(error) or type(error).__name__)
            raise
        self._tell("finished")

    def _tell(self, state: str, why: str = "") -> None:
        self.server.tell(self.kept, Told(state, self.latest, why))

    # --- A round -------------------------------------------------------------------------------------------------

    def _round(self, round: int, state: PyTree) -> PyTree:
        started = time.monotonic()
        replies = self._ask_until_enough(round, state)
        state = self.turn(state, replies.messages)
        leaves = as_arrays(state)
        if not all(np.all(np.isfinite(leaf)) for leaf in leaves):  # a state that nobody could go on from
            raise SordinoError(
                f"round {round}: the model is not finite any more; its messages came from {', '.join(replies.used)}. "
                f"Round {self.kept.done} is kept: take smaller steps or a bound in a new study"
            )
        unused, seconds = sorted(replies.unused), time.monotonic() - started
        line = RoundLine(round, replies.used, replies.missing, unused, seconds, self._measured(state))
        self.kept.enter(line, leaves)
        return state

    def _ask_until_enough(self, round: int, state: PyTree) -> Replies:
        """Ask the members, those without a usable reply once more while there are too few."""
        rules, settings = self.study.rules, self.server.settings.rounds
        used = self.kept.used()  # of the rounds that are done, so that a round that is asked again says the same
        seen = as_words([used[name].entry for name in self.study.members])
        body = pack_arrays([seen, *as_arrays(rules.method.broadcast(state))])
        request = self._sealed(Kind.ROUND, round, body)
        found = Replies({}, {}, {}, self.kept.asked(round))
        for attempt in range(settings.attempts):
            if attempt:
                time.sleep(settings.pause)
            self._let_join()
            if attempt and not {*self.study.members} - self.declined.keys() - found.used.keys():
                break  # nobody is left to ask
            asked = [name for name in self.study.members if name in self.accepted and name not in found.used]
            self.kept.ask(round, asked)
            replies = self.server.exchange(round, dict.fromkeys(asked, request), settings.deadline) if asked else {}
            for name in asked:
                self._take(name, request, replies[name], state, found)
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
                f"{told}. What is done is kept: {self._remedy(found)}",
                resumable=not found.missing.keys() <= self.declined.keys(),
            )
        return found

    def _remedy(self, found: Replies) -> str:
        if {each.name for each in ASKED_BEFORE} & {*found.missing.values()}:
            older = "nodes have answered this round before, so this folder is an older copy; restore the newest one"
            return f"{older}, then go on with `deploy resume`"
        if found.missing.keys() <= self.declined.keys():
            return (
                "the nodes refuse by their own rules, as their logs say, and the plan of a study is fixed: start a new "
                "study, under another --name, that asks for less"
            )
        return "start the nodes, then go on with `deploy resume`"

    def _take(self, name: str, request: bytes, reply: Reply, state: PyTree, found: Replies) -> None:
        """Use a reply, or note why not."""
        i = self.study.members.index(name)
        try:
            frame = self.server.answer(name, reply, request, Kind.UPDATE, self.study.update_size(i))
            levels = {"has_level": self.study.has_level(i), "has_side": self.study.has_side(i)}
            update = Update.unpack(frame.body, self.study.coding(i), **levels)
            found.messages[i] = self.turn.check(i, update, state)
        except WireError as error:
            log.warning("round %d: no message of %s (%s)", self.kept.done + 1, name, error.reason.name)
            found.missing[name] = error.reason.name
            refused = isinstance(error, NodeRefuses)
            if error.reason in MAY_HAVE_ENTERED if refused else error.reason is not Reason.LOST:
                found.unused.add(name)
            if error.reason in FINAL:
                self.declined[name] = error.reason
            if error.reason is Reason.UNKNOWN_STUDY or error.reason in FINAL:
                self.accepted.discard(name)
            return
        found.used[name] = update.ledger_hash.hex()
        found.missing.pop(name, None)
        found.unused.discard(name)

    def _let_join(self) -> None:
        """Start the study at members that have not accepted it yet."""
        connected = set(self.server.exchange.nodes())
        for name in self.study.members:
            if name not in self.accepted | connected:
                self.latest[name] = Reason.LOST.name
        asked = [name for name in self.study.members if name in connected - self.accepted - self.declined.keys()]
        if not asked:
            return
        earlier = earlier_entries(self.server.studies())  # what the server remembers of this study and of others
        requests = {name: self._start(earlier.get(self.study.key_of(name).line, {})) for name in asked}
        patience = max(PLANNING, self.server.settings.rounds.deadline)
        replies = self.server.exchange(0, requests, patience)
        for name in asked:
            try:
                own = self.study.cost_digest(self.study.members.index(name))
                frame = self.server.answer(name, replies[name], requests[name], Kind.ACCEPT, len(own))
                if frame.body != own:
                    raise WireError(Reason.PLAN, "it has found other costs: versions differ")
            except WireError as error:
                log.warning("%s does not take part: %s", name, error.reason.name)
                self.latest[name] = error.reason.name
                if error.reason in FINAL:
                    self.declined[name] = error.reason
                continue
            self.accepted.add(name)

    def _start(self, earlier: Mapping[bytes, str]) -> bytes:
        return self._sealed(Kind.START, 0, pack_start(self.study.description.data, earlier))

    def _sealed(self, kind: Kind, round: int, body: bytes) -> bytes:
        return self.server.ask(kind, self.digest, round, body)

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
                frame = self.server.answer(name, reply, asked[name], Kind.STATEMENT, LONGEST_DESCRIPTION)
                stated = verify(json.loads(frame.body), self.server.keys[name], NODE_STATEMENT)["predicate"]
                if (stated["digest"], stated["member"]) != (self.digest.hex(), name):
                    raise WireError(Reason.WRONG_REPLY, "a statement about something else")
            except (SordinoError, ValueError, KeyError, TypeError, RecursionError) as error:
                log.warning(
                    "no signed statement of %s yet: `deploy resume` asks for it again (%s)", name, one_line(error)
                )
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
