"""A server: it describes studies, lets `conduct` take them from round to round, and trusts no message.

Each reply is checked for signature, kind, study, round, sender, shape, range, finiteness and, where it can be known,
length. A refusal holds the digest of the request that it refuses.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from sordino.config import load_config
from sordino.deploy.conduct import Conduct
from sordino.deploy.entropy import Words, os_words
from sordino.deploy.records import server_records
from sordino.deploy.seam import Exchange, Reason, Reply
from sordino.deploy.server_study import STOP, STUDIES, ServerStudy, Told, studies_in
from sordino.deploy.settings import ServerFile, read_server_file, require_node_name
from sordino.deploy.study import LONGEST_DESCRIPTION, Description, Member, protects_records
from sordino.deploy.wire import NO_STUDY, Frame, Kind, NodeRefuses, WireError, peek, seal, unseal
from sordino.errors import require
from sordino.privacy.signing import SigningKey, read_signing_key, read_verifying_key

log = logging.getLogger(__name__)
Watch = Callable[[ServerStudy], None]
LARGEST_FACT = 2**31
REFUSAL_SIZE = 33  # bytes: a reason and a digest


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
            raise WireError(Reason.WRONG_REPLY, "facts that are not whole numbers")
        return facts


class Server:
    """The server of a deployment, over one exchange.

    Args:
      settings: server.toml.
      folder: where that file lies.
      exchange: the transport.
      words: random words, of the operating system unless a test says otherwise.
      watch: called after every change of a study.
    """

    def __init__(
        self,
        settings: ServerFile,
        folder: Path,
        exchange: Exchange,
        words: Words = os_words,
        watch: Watch | None = None,
    ) -> None:
        self.settings, self.exchange, self.words, self._watch = settings, exchange, words, watch
        self.key: SigningKey = read_signing_key(folder / settings.key, field=settings.place("", "key"))
        self.keys = {
            name: read_verifying_key(folder / file, field=settings.place("nodes", name))
            for name, file in settings.nodes.items()
        }
        self.test = server_records(settings, folder)
        self.state = folder / settings.state

    @classmethod
    def read(cls, path: Path, exchange: Exchange, watch: Watch | None = None) -> Self:
        """The server of a server.toml."""
        return cls(read_server_file(path), path.parent, exchange, watch=watch)

    def study_folder(self, name: str) -> Path:
        """Where a study is kept."""
        require_node_name("name", name)
        return self.state / STUDIES / name

    def studies(self) -> list[Path]:
        """The folders of all studies, the newest last."""
        return studies_in(self.state)

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

    def tell(self, kept: ServerStudy, told: Told) -> None:
        """Let people see where a study stands."""
        kept.tell(told)
        if self._watch is not None:
            self._watch(kept)

    # --- The description -----------------------------------------------------------------------------------------

    def _described(self, file: Path, name: str) -> Description:
        """Ask every node for its public facts -> the study that those who answer will take part in."""
        config = load_config(file)
        text, counts = config.changed, protects_records(config)  # refuses what no plan can be, before nodes are asked
        request = self.ask(Kind.DESCRIBE, NO_STUDY, 0, text.encode())
        facts: dict[str, Facts] = {}
        absent: dict[str, Reason] = {}
        replies = self.exchange(0, dict.fromkeys(self.keys, request), self.settings.rounds.deadline)
        for node in self.keys:
            try:
                frame = self.answer(node, replies[node], request, Kind.FACTS, LONGEST_DESCRIPTION)
                facts[node] = Facts.of(frame.body)
            except WireError as error:
                absent[node] = error.reason
        for node in _deviating(facts):
            log.warning("%s holds records of shape %s with %d classes, unlike most", node, *facts.pop(node)[:2])
            absent[node] = Reason.DATA
        for node, reason in absent.items():
            log.warning("%s does not take part: %s", node, reason.name)
        enough = len(facts) >= self.settings.rounds.fewest and bool(facts)
        missing = ", ".join(f"{node} ({reason.name})" for node, reason in absent.items())
        remedy = f"at least {self.settings.rounds.fewest} must take part; absent: {missing or 'nobody'}"
        require(enough, "nodes", len(facts), remedy)
        joins_later = {Reason.SILENT, Reason.LOST} if self._lets_join(counts) else set()
        members = [node for node in self.keys if node in facts or absent.get(node) in joins_later]
        shape, classes, _ = next(iter(facts.values()))
        listed = [
            Member(node, self.keys[node].line, facts[node].records if node in facts else None) for node in members
        ]
        description = Description.new(name, text, shape, classes, listed, self.key.public.line)
        description.check()
        return description

    def _lets_join(self, counts: bool) -> bool:
        return self.settings.rounds.late_joiners and not counts

    def ask(self, kind: Kind, study: bytes, round: int, body: bytes) -> bytes:
        """A signed request."""
        return seal(Frame(kind, study, round, self.settings.name, body), self.key)

    def answer(self, node: str, reply: Reply, request: bytes, kind: Kind, most: int) -> Frame:
        """The frame in a reply to a request, of exactly the expected sender and kind; else raise the reason."""
        if isinstance(reply, Reason):
            raise WireError(reply, "no reply")
        asked = peek(request, len(request))
        frame = unseal(reply, self.keys[node], max(most, REFUSAL_SIZE))
        if (frame.study, frame.round, frame.sender) != (asked.study, asked.round, node):
            raise WireError(Reason.WRONG_REPLY, "a reply to something else")
        if frame.kind is Kind.REFUSED:
            raise NodeRefuses(_reason(frame.body, request), "the node refuses")
        if frame.kind is not kind:
            raise WireError(Reason.WRONG_REPLY, f"a {frame.kind.name}")
        return frame


def _deviating(facts: Mapping[str, Facts]) -> list[str]:
    """Nodes whose records have another shape, or other classes, than more than half of all."""
    counts = Counter((each.shape, each.classes) for each in facts.values())
    if len(counts) <= 1:
        return []
    (usual, count), *_ = counts.most_common(1)
    told = "; ".join(f"{node}: {each.shape}, {each.classes} classes" for node, each in facts.items())
    require(2 * count > len(facts), "data", told, "nodes must hold records of one shape and one number of classes")
    return [node for node, each in facts.items() if (each.shape, each.classes) != usual]


def _reason(body: bytes, request: bytes) -> Reason:
    """The reason of a refusal, which must be about this very request."""
    if len(body) != REFUSAL_SIZE or body[1:] != hashlib.sha256(request).digest():
        raise WireError(Reason.WRONG_REPLY, "a refusal of something else")
    try:
        return Reason(body[0])
    except ValueError:
        raise WireError(Reason.WRONG_REPLY, "an unknown reason") from None
