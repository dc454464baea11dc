"""node.toml and server.toml: what each side decides for itself, before anybody asks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import ConfigDict, Field, PrivateAttr, ValidationError

from sordino.config import schema
from sordino.config.locate import Source, invalid_input, keys_in, unchanged
from sordino.deploy.wire import LONGEST_NAME
from sordino.errors import InvalidInput, require, use_one_of
from sordino.privacy.budget import Budget
from sordino.privacy.filter import Filter
from sordino.types import Relation, Trust, Unit
from sordino.words import Measure

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
LAST_PORT = 65_535
Port = Annotated[int, Field(ge=1, le=LAST_PORT)]
SMALLEST_MESSAGE = 8 << 20  # bytes: Flower sends arrays in pieces of 5 MB
ORDER = 5.0  # of the Renyi divergence where nothing else is asked for: about right for an epsilon of 8
DAY = 86_400.0


class Section(schema.Section):
    """A table of the file."""

    model_config = ConfigDict(frozen=True)


class SettingsFile(Section):
    """A whole file, which knows where its values stand."""

    _source: Source | None = PrivateAttr(default=None)

    def place(self, section: str, key: str = "") -> str:
        """File, line and name of a key, for errors."""
        if self._source is None:
            return f"[{section}] {key}".rstrip() if section else key
        return self._source.place(section, key)

    @contextmanager
    def naming(self, section: str) -> Iterator[None]:
        """Name the file, the line and the section in errors about values of a section."""
        try:
            yield
        except InvalidInput as error:
            key = error.field.removeprefix(f"{section}.")
            place = self.place(section, key) if key in keys_in(section, type(self)) else error.field
            raise InvalidInput(place, error.value, error.remedy) from None


class DataSection(Section):
    """[data]: the records, in a .csv, .npz or .parquet file."""

    file: str
    label: str = "label"  # the column, or the array of an .npz, with labels 0, 1, ..., classes - 1
    features: list[str] | None = None  # columns; all others where it is left out. One array of an .npz: ["x"]
    classes: Annotated[int, Field(ge=2)]
    ignore: list[str] = Field([])  # from here on as in a run file, and not for .npz
    labels: list[str | int] | None = None
    categories: dict[str, list[str | int]] | None = None
    ranges: dict[str, list[float]] | None = None
    missing: dict[str, float | str] | None = None
    encoding: str = "utf-8"  # with the delimiter, of a .csv
    delimiter: str = ","


class ServerSection(Section):
    """[server]: who may ask, and where it is reached."""

    address: str
    ca: str = "ca.crt"
    key: str = "server.pub"


class ProtectSection(Section):
    """[protect]: whose guarantee the node insists on."""

    unit: str = "record"
    relation: str = "replace-one"


class BudgetSection(Section):
    """[budget]: over all studies of a period, however the server chooses its next request."""

    epsilon: Positive
    delta: Annotated[float, Field(ge=0, lt=1)]
    period_days: Positive = 365.0
    measure: str = "renyi"
    order: float | None = None
    failures: NotNegative = 0.0  # the part of delta for releases that fail with a probability of their own


class AcceptSection(Section):
    """[accept]: what a study may ask for."""

    methods: list[str]
    mechanisms: list[str] = Field(["gaussian"])
    trust: list[str] = Field(["local"])  # "central": the server sees updates without noise. "none": everybody does
    smallest_noise: NotNegative = 0.5  # std over sensitivity, of Gaussian noise on a message
    largest_message_epsilon: NotNegative = 1.0  # of noise with an epsilon of its own
    largest_bound: Positive = 1.0  # of a message, or of the gradient of one record
    largest_model: Count = 10_000_000  # parameters
    most_layers: Count = 100  # of a model: a deep one takes minutes to compile
    most_local_steps: Count = 1000  # of a round
    most_members: Count = 100  # of a study that protects records: each may need a calibration of some seconds
    most_rounds: Count = 10_000
    most_studies: Count = 100  # that have not ended
    pause: NotNegative = 0.0  # seconds between two answers of a study, at least


class NodeFile(SettingsFile):
    """node.toml."""

    name: str
    key: str = "node.key"
    secret: str = "node.secret"
    state: str = "state"
    port: Port  # of 127.0.0.1, where the SuperNode and its worker talk
    server: ServerSection
    data: DataSection
    protect: ProtectSection = ProtectSection()
    budget: BudgetSection
    accept: AcceptSection

    @property
    def unit(self) -> Unit:
        """What is protected."""
        return Unit.parse(self.protect.unit)

    @property
    def relation(self) -> Relation:
        """Which data are neighbours."""
        return Relation.parse(self.protect.relation)

    @property
    def trusts(self) -> frozenset[Trust]:
        """The kinds of trust that the node grants."""
        return frozenset(Trust.parse(each) for each in self.accept.trust)

    def check(self) -> None:
        """Refuse words and numbers that no type refuses."""
        require_node_name(self.place("", "name"), self.name)
        with self.naming("server"):
            host, _, port = self.server.address.rpartition(":")
            good = bool(host) and re.fullmatch(r"\d{1,5}", port) is not None and 1 <= int(port) <= LAST_PORT
            remedy = 'give the server\'s name or address and its port, "hospital.example:9400"'
            require(good, "address", self.server.address, remedy)
        with self.naming("protect"):
            by_record = self.unit is Unit.RECORD and self.relation is not Relation.REPLACE_ONE
            remedy = 'one record is protected under replace-one: use that, or unit = "client"'
            require(not by_record, "relation", self.protect.relation, remedy)
        with self.naming("accept"):
            self._check_accepted()
        with self.naming("budget"):
            self.filter()

    def _check_accepted(self) -> None:
        remedy = "no protocol for secure aggregation, and no shuffler, is deployed: name local, central or none"
        accept, known = self.accept, schema.registries()
        require(bool(self.trusts), "trust", accept.trust, "name at least one: local, central or none")
        require(self.trusts <= {Trust.LOCAL, Trust.CENTRAL, Trust.NONE}, "trust", accept.trust, remedy)
        for key, given, names in (
            ("methods", accept.methods, known.methods),
            ("mechanisms", accept.mechanisms, known.mechanisms),
        ):
            for name in given:
                require(name in names, key, name, use_one_of(name, names))
            needed = key == "methods" or self.trusts != {Trust.NONE}
            require(bool(given) or not needed, key, given, f"name at least one of {', '.join(names)}")

    def require_delta(self, records: int) -> None:
        """Refuse a budget under which some records may be published: its delta is one over their number, or more."""
        with self.naming("budget"):
            remedy = f"there are {records} records here: choose delta well below one over that, 1/{records}"
            small = self.unit is not Unit.RECORD or self.budget.delta * records < 1
            require(small, "delta", self.budget.delta, remedy)

    def filter(self) -> Filter:
        """The budget of a period."""
        given, measure = self.budget, Measure.parse(self.budget.measure)
        order = given.order if given.order is not None or measure is not Measure.RENYI else ORDER
        return Filter(Budget(given.epsilon, given.delta, self.relation, self.unit), measure, order, given.failures)


class RoundsSection(Section):
    """[rounds]: what the server waits for."""

    fewest: Count = 1  # replies without which a round is not closed
    deadline: Positive = 120.0  # seconds
    attempts: Count = 3  # times that a round is asked for, while it has too few replies
    pause: NotNegative = 5.0  # seconds between them
    late_joiners: bool = False  # nodes that are silent at the start stay members (of studies that protect clients)


class ServerFile(SettingsFile):
    """server.toml."""

    name: str = "server"
    key: str = "server.key"
    secret: str = "server.secret"
    tls: str = "tls"
    state: str = "state"
    host: str = "0.0.0.0"
    port: Port
    largest_message: Annotated[int, Field(ge=SMALLEST_MESSAGE)] = 64 << 20  # bytes
    nodes: dict[str, str]  # name -> file of the public key
    rounds: RoundsSection = RoundsSection()
    test: DataSection | None = None  # the server's own records, on which models are measured


def require_node_name(field: str, name: str) -> None:
    """Refuse a name that could not stand in a message and in a folder's name."""
    remedy = f"use letters, digits, '.', '_' and '-', at most {LONGEST_NAME}, the first one a letter or digit"
    require(re.fullmatch(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{LONGEST_NAME - 1}}}", name) is not None, field, name, remedy)


AnyFile = TypeVar("AnyFile", bound=SettingsFile)


def read_node_file(path: Path) -> NodeFile:
    """node.toml, checked."""
    found = _read(path, NodeFile)
    found.check()
    return found


def read_server_file(path: Path) -> ServerFile:
    """server.toml, checked."""
    found = _read(path, ServerFile)
    require_node_name(found.place("", "name"), found.name)
    for name in found.nodes:
        require_node_name(found.place("nodes"), name)
    few = found.rounds.fewest <= max(1, len(found.nodes))
    remedy = f"there are {len(found.nodes)} nodes: give at most as many"
    require(few, found.place("rounds", "fewest"), found.rounds.fewest, remedy)
    return found


def _read(path: Path, kind: type[AnyFile]) -> AnyFile:
    source, values = unchanged(path)
    try:
        found = kind.model_validate(values)
    except ValidationError as error:
        raise invalid_input(error, source, kind) from None
    found._source = source
    return found
