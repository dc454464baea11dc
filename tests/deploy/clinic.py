"""A deployment without a network: nodes and a server with files, and an exchange that a test can break."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from sordino.deploy.entropy import Words
from sordino.deploy.flower.credentials import make_node_key
from sordino.deploy.node import Node
from sordino.deploy.node_study import LEDGER
from sordino.deploy.rollback import as_words, pack_start
from sordino.deploy.seam import Exchange, Reason, Reply
from sordino.deploy.server import Server
from sordino.deploy.server_study import ServerStudy
from sordino.deploy.settings import read_node_file, read_server_file
from sordino.deploy.statements import Used, server_statement
from sordino.deploy.study import Description, Member, Study, as_arrays
from sordino.deploy.wire import NO_STUDY, Frame, Kind, pack_arrays, peek, seal
from sordino.privacy.ledger import read_ledger
from sordino.privacy.signing import SigningKey, read_signing_key, read_verifying_key, sign

NAMES = ("east", "north", "west")
SIZES = (6, 9, 5)
FEATURES = 3

RECORD_STUDY = """\
[task]
name = "clinics"

[algorithm]
name = "noisy_mb_sgd"
lipschitz = 1.0
radius = 3.0
feature_bound = 3.0

[privacy]
trust = "local"
epsilon = 4.0
delta = 1e-3

[run]
rounds = 3
seed = 0
"""

CLIENT_STUDY = """\
[task]
name = "clinics"

[algorithm]
name = "fedavg"
local_steps = 2
local_lr = 0.5

[bound]
clip = 1.0

[run]
rounds = 3
seed = 0

[privacy]
"""

LOCAL = CLIENT_STUDY + 'trust = "local"\nepsilon = 8.0\ndelta = 1e-3\n'
CENTRAL = CLIENT_STUDY + 'trust = "central"\nrelation = "zero-out"\nepsilon = 8.0\ndelta = 1e-3\n'
NONE = CLIENT_STUDY + 'mechanism = "none"\n'
CLIENTS = {"unit": "client", "relation": "zero-out"}  # rules of nodes that accept these

NODE_FILE = """\
name = "{name}"
port = 19000

[server]
address = "127.0.0.1:18000"

[data]
file = "records.npz"
features = ["x"]
label = "y"
classes = 2

[protect]
unit = "{unit}"
relation = "{relation}"

[budget]
epsilon = {epsilon}
delta = {delta}
measure = "{measure}"
failures = {failures}

[accept]
methods = [{methods}]
mechanisms = [{mechanisms}]
trust = [{trust}]
most_rounds = {most_rounds}
most_local_steps = {most_local_steps}
most_members = {most_members}
most_studies = {most_studies}
smallest_noise = {smallest_noise}
largest_message_epsilon = {largest_message_epsilon}
largest_bound = {largest_bound}
pause = {pause}
"""

METHODS = '"fedavg", "fedexp", "noisy_mb_sgd", "accelerated_mb_sgd", "error_feedback", "scaffold", "record_scaffold"'
DEFAULTS = {
    "unit": "record",
    "relation": "replace-one",
    "epsilon": 1000.0,
    "delta": 1e-3,
    "measure": "gaussian",
    "failures": 0.0,
    "largest_message_epsilon": 100.0,
    "methods": METHODS,
    "mechanisms": '"gaussian", "qtdl", "binomial", "privunit"',
    "trust": '"local", "central", "none"',
    "most_rounds": 100,
    "most_local_steps": 100,
    "most_members": 100,
    "most_studies": 100,
    "smallest_noise": 0.01,
    "largest_bound": 10.0,
    "pause": 0.0,
}


def records_of(sizes: Sequence[int] = SIZES, features: int = FEATURES) -> list[tuple[np.ndarray, np.ndarray]]:
    """Each node's records."""
    rng = np.random.default_rng(0)
    parts = []
    for size in sizes:
        x = rng.normal(size=(size, features)).astype(np.float32)
        x /= np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
        parts.append((x, (x @ np.linspace(1, -1, features) > 0).astype(np.int32)))
    return parts


@dataclass
class LocalExchange:
    """Calls the nodes one after the other. `broken` replaces what a node answers; `sent` keeps all requests."""

    handles: dict[str, Callable[[bytes], bytes]] = field(default_factory=dict)
    broken: dict[str, Callable[[int, bytes], Reply]] = field(default_factory=dict)
    sent: list[tuple[int, str, bytes]] = field(default_factory=list)
    replies: list[tuple[int, str, Reply]] = field(default_factory=list)

    def nodes(self) -> tuple[str, ...]:
        return tuple(sorted({*self.handles, *self.broken}))

    def __call__(self, round: int, requests: Mapping[str, bytes], deadline: float) -> Mapping[str, Reply]:
        return {name: self._ask(round, name, request) for name, request in requests.items()}

    def _ask(self, round: int, name: str, request: bytes) -> Reply:
        self.sent.append((round, name, request))
        if name in self.broken:
            reply: Reply = self.broken[name](round, request)
        elif name in self.handles:
            reply = self.handles[name](request)
        else:
            reply = Reason.LOST
        self.replies.append((round, name, reply))
        return reply


class Clinics:
    """The folders of a server and of some nodes. Nodes are opened as needed, and closed by `close`."""

    def __init__(
        self,
        folder: Path,
        names: Sequence[str] = NAMES,
        sizes: Sequence[int] = SIZES,
        *,
        deadline: float = 30.0,
        **rules: Any,
    ) -> None:
        self.folder, self.names, self.exchange = folder, tuple(names), LocalExchange()
        self.nodes: dict[str, Node] = {}
        server = folder / "server"
        server.mkdir(parents=True)
        make_node_key(server / "server.key")
        lines = [f"port = 18000\n[rounds]\ndeadline = {deadline}\npause = 0.0\nattempts = 2\n[nodes]\n"]
        for name, (x, y) in zip(self.names, records_of(sizes), strict=True):
            home = self.home(name)
            home.mkdir()
            public = make_node_key(home / "node.key")
            (server / f"{name}.pub").write_bytes(public.read_bytes())
            (home / "server.pub").write_bytes((server / "server.key.pub").read_bytes())
            np.savez(home / "records.npz", x=x, y=y)
            self.write_rules(name, **rules)
            lines.append(f'{name} = "{name}.pub"\n')
        (server / "server.toml").write_text("".join(lines))

    def home(self, name: str) -> Path:
        return self.folder / name

    def write_rules(self, name: str, **rules: Any) -> None:
        (self.home(name) / "node.toml").write_text(NODE_FILE.format(name=name, **(DEFAULTS | rules)))

    def open(self, name: str, **options: Any) -> Node:
        node = Node(read_node_file(self.home(name) / "node.toml"), self.home(name), **options)
        self.nodes[name] = node
        self.exchange.handles[name] = node.handle
        return node

    def open_all(self, **options: Any) -> None:
        for name in self.names:
            self.open(name, **options)

    def restart(self, name: str, **options: Any) -> Node:
        if name in self.nodes:
            self.nodes.pop(name).close()
        return self.open(name, **options)

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()
        self.nodes.clear()
        self.exchange.handles.clear()

    def server(self, exchange: Exchange | None = None, **options: Any) -> Server:
        path = self.folder / "server" / "server.toml"
        return Server(read_server_file(path), path.parent, exchange or self.exchange, **options)

    def write_study(self, text: str) -> Path:
        path = self.folder / "study.toml"
        path.write_text(text)
        return path

    def run(self, text: str = RECORD_STUDY, name: str = "trial", **options: Any) -> ServerStudy:
        return self.server(**options).begin(self.write_study(text), name)


def study_of(
    text: str,
    folder: Path,
    *,
    names: Sequence[str] = NAMES,
    sizes: Sequence[int] | None = None,
    features: int = FEATURES,
) -> Study:
    """A study without nodes: what each side resolves from its description."""
    counts = sizes if sizes is not None else [None] * len(names)
    members = [Member(name, f"key of {name}", count) for name, count in zip(names, counts, strict=True)]
    return Study.resolve(Description.new("trial", text, (features,), 2, members, "key of the server"), folder)


def seeded_words(seed: int | Sequence[int] = 0) -> Words:
    """Words that repeat themselves, for tests alone."""
    rng = np.random.default_rng(seed)
    return lambda shape: rng.integers(0, 2**32, shape, dtype=np.uint32)


Answered: TypeAlias = Frame | Reason | None


class Caller:
    """Asks single nodes what their server would ask, one request at a time.

    Args:
      clinics: whose key files are used.
      text: of the study's run file.
      counts: numbers of records, for a study that protects records.
      changes: of the description, which its digest and the server's signature cover.
    """

    def __init__(
        self, clinics: Clinics, text: str, *, counts: Sequence[int] | None = None, resolve: bool = True, **changes: Any
    ) -> None:
        server = clinics.folder / "server"
        self.key = read_signing_key(server / "server.key")
        sizes: Sequence[int | None] = counts if counts is not None else [None] * len(clinics.names)
        members = [
            Member(name, read_verifying_key(server / f"{name}.pub").line, size)
            for name, size in zip(clinics.names, sizes, strict=True)
        ]
        made = Description.new("trial", text, (FEATURES,), 2, members, self.key.public.line)
        self.description = replace(made, **changes)
        if resolve:  # a node may be asked for what no server can resolve
            self.study = Study.resolve(self.description, clinics.folder / f"caller-{self.description.id}")

    def request(
        self,
        kind: Kind,
        round: int = 0,
        body: bytes = b"",
        *,
        study: bytes | None = None,
        key: SigningKey | None = None,
    ) -> bytes:
        named = self.description.digest if study is None else study
        return seal(Frame(kind, named, round, "server", body), key or self.key)

    def ask(self, node: Node, kind: Kind, round: int = 0, body: bytes = b"", **options: Any) -> Answered:
        """The signed answer, the reason of a refusal, or None."""
        return answer_of(node.handle(self.request(kind, round, body, **options)))

    def describe(self, node: Node) -> Answered:
        return self.ask(node, Kind.DESCRIBE, 0, self.description.file.encode(), study=NO_STUDY)

    def start(self, node: Node) -> Answered:
        return self.ask(node, Kind.START, 0, pack_start(self.description.data, {}))

    def arrays(self, shift: float = 0.0, round: int = 1) -> list[np.ndarray]:
        """What a request of a round holds, with the model of the first one moved; the server remembers no entry."""
        method = self.study.rules.method
        arrays = as_arrays(method.broadcast(method.init_server(self.study.initial() + shift)))
        moved = [np.full_like(each, round - 1) if each.dtype.kind in "iu" else each for each in arrays]
        return [as_words([""] * len(self.study.members)), *moved]

    def round(self, node: Node, round: int, shift: float = 0.0) -> Answered:
        return self.ask(node, Kind.ROUND, round, pack_arrays(self.arrays(shift, round)))

    def finish(self, node: Node, name: str, used: Used, rounds: int) -> Answered:
        stated = sign(server_statement(self.study, {name: used}, rounds, "0" * 64), self.key)
        return self.ask(node, Kind.FINISH, rounds, json.dumps(stated).encode())


def answer_of(data: bytes) -> Answered:
    """A node's frame; the reason where it refuses; None where it says nothing, as to those who are not its server."""
    if not data:
        return None
    frame = peek(data, 1 << 24)
    return Reason(frame.body[0]) if frame.kind is Kind.REFUSED else frame


def body_of(answer: Answered) -> bytes:
    assert isinstance(answer, Frame), answer
    return answer.body


def one_node(
    folder: Path, text: str = LOCAL, counts: Sequence[int] | None = None, **rules: Any
) -> tuple[Clinics, Node, Caller]:
    """One open node, and who asks it."""
    clinics = Clinics(folder, **(CLIENTS if counts is None else {}) | rules)
    return clinics, clinics.open("east"), Caller(clinics, text, counts=counts)


def ledgers(clinics: Clinics) -> int:
    """Rounds that the node has entered anywhere."""
    found = (clinics.home("east") / "state" / "studies").glob(f"*/{LEDGER}")
    return sum(read_ledger(path).rounds() for path in found)
