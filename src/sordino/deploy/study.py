"""A study: the public description that the server signs, and all that both sides compute from it by themselves.

The description holds the text of an ordinary run file, the shape of a record, the classes, and every member with its
key. Of a record-level study it also holds everybody's number of records, which is public under replace-one. From it
the server and every node resolve the same plan; nobody takes a number of it from anybody else. Its digest names the
study in every message.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from sordino.config import Config, load_config
from sordino.deploy import noise
from sordino.deploy.wire import Coding, Shape, Update
from sordino.errors import InvalidInput, SordinoError, require, require_count, require_name
from sordino.files import write_atomically
from sordino.keys import key_of
from sordino.models import FlatLoss, FlatPredict, Model, flat, get
from sordino.planning.deployed import DeployedPlan, deploy
from sordino.planning.resolved import Rules
from sordino.privacy.events import event_to_json
from sordino.privacy.signing import VerifyingKey, parse_verifying_key
from sordino.runs.names import DESCRIPTION as DESCRIPTION
from sordino.tasks import Population
from sordino.types import ClientNumbers, Message, PyTree, Unit, Vector

FORMAT = "sordino-study-1"
LONGEST_DESCRIPTION = 1 << 20  # bytes
MOST_MEMBERS = 10_000
RUN_FILE = "study.toml"
LARGEST_MODEL = 100_000_000  # parameters: what a server lets a study have


class ModelSize(NamedTuple):
    """How large a model is."""

    parameters: int  # d
    layers: int  # arrays of weights: those with two axes or more


@dataclass(frozen=True)
class Member:
    """A node that takes part."""

    name: str
    key: str  # its public key, as one line of OpenSSH
    records: int | None  # None where records are not what is protected


@dataclass(frozen=True)
class Description:
    """All that is public of a study."""

    id: str  # random: the same run file makes another study
    name: str
    file: str  # the text of the run file
    shape: tuple[int, ...]  # of a record
    classes: int
    members: tuple[Member, ...]
    server: str  # its public key

    @classmethod
    def new(
        cls, name: str, file: str, shape: tuple[int, ...], classes: int, members: Sequence[Member], server: str
    ) -> Description:
        """A description with a fresh id."""
        return cls(secrets.token_hex(16), name, file, shape, classes, tuple(members), server)

    @property
    def data(self) -> bytes:
        """Canonical JSON."""
        members = [{"name": each.name, "key": each.key, "records": each.records} for each in self.members]
        plain = {
            "format": FORMAT,
            "id": self.id,
            "name": self.name,
            "file": self.file,
            "shape": list(self.shape),
            "classes": self.classes,
            "members": members,
            "server": self.server,
        }
        return json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()

    @cached_property
    def digest(self) -> bytes:
        """What names the study."""
        return hashlib.sha256(self.data).digest()

    @classmethod
    def of(cls, data: bytes) -> Description:
        """The description in these bytes, which must be the canonical ones."""
        require(len(data) <= LONGEST_DESCRIPTION, "description", len(data), "is too long")
        try:
            plain = json.loads(data)
            found = cls(
                str(plain["id"]),
                str(plain["name"]),
                str(plain["file"]),
                tuple(int(axis) for axis in plain["shape"]),
                int(plain["classes"]),
                tuple(Member(str(each["name"]), str(each["key"]), each["records"]) for each in plain["members"]),
                str(plain["server"]),
            )
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InvalidInput("description", "", "is not what this version of Sordino writes") from None
        require(found.data == data, "description", "", "is not written canonically, or of another format")
        found.check()
        return found

    def check(self) -> None:
        """Refuse what no study can be."""
        require_name("study", self.name)
        require(len(self.members) <= MOST_MEMBERS, "members", len(self.members), f"at most {MOST_MEMBERS}")
        require(len(self.members) > 0, "members", 0, "a study needs at least one")
        for axis in self.shape:
            require_count(axis, "shape")
        for each in self.members:
            require_name("member", each.name)
            if each.records is not None:
                require_count(each.records, f"records of {each.name}")
        names = [each.name for each in self.members]
        require(len(set(names)) == len(names), "members", names, "two members have one name")
        keys = [each.key for each in self.members]
        require(len(set(keys)) == len(keys), "members", names, "two members have one key")

    def index(self, name: str) -> int | None:
        """The member's number; None for a stranger."""
        return next((i for i, each in enumerate(self.members) if each.name == name), None)


@dataclass(frozen=True, eq=False)
class Study:
    """A description and what follows from it: the model, the plan, the shapes of messages."""

    description: Description
    config: Config
    model: Model
    plan: DeployedPlan

    @classmethod
    def resolve(cls, description: Description, folder: Path) -> Study:
        """Resolve the plan from the description, which is kept in the folder with its run file."""
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / RUN_FILE, description.file.encode())
        write_atomically(folder / DESCRIPTION, description.data)
        config = load_config(folder / RUN_FILE)
        model = model_of(config, description.shape, description.classes)
        sizes = [each.records for each in description.members]
        known = all(size is not None for size in sizes)
        population = Population(
            d=size_of(model).parameters,
            clients=len(sizes),
            sizes=np.array(sizes, np.int64) if known else None,
            names=tuple(each.name for each in description.members),
            smoothness=model.smoothness,
            task_token=description.id,
        )
        with config.located("run", "privacy", "algorithm", "bound"):
            plan = config.plan()
            return cls(description, config, model, deploy(config.resolve(plan, population), config.warnings(plan)))

    @classmethod
    def read(cls, folder: Path) -> Study:
        """The study of a folder."""
        path = folder / DESCRIPTION
        require(path.exists(), "study", str(path), "is gone: restore it from a backup")
        return cls.resolve(Description.of(path.read_bytes()), folder)

    @cached_property
    def size(self) -> ModelSize:
        """How large the model is."""
        return size_of(self.model)

    @property
    def rules(self) -> Rules:
        """What the two turns of a round need."""
        return self.plan.rules

    @property
    def rounds(self) -> int:
        """How many are planned."""
        return int(self.plan.resolved.plan.rounds)

    @property
    def members(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(each.name for each in self.description.members)

    def key_of(self, name: str) -> VerifyingKey:
        """A member's public key."""
        index = self.description.index(name)
        require(index is not None, "member", name, "does not take part in this study")
        assert index is not None
        return parse_verifying_key(self.description.members[index].key)

    @cached_property
    def loss(self) -> FlatLoss:
        """The loss of a flat vector; one object, so that programs compile once."""
        return FlatLoss(self.model.loss, self._flat[1], self.model.linear)

    @cached_property
    def predict(self) -> FlatPredict:
        """Logits, of a flat vector; one object, so that programs compile once."""
        assert self.model.predict is not None
        return FlatPredict(self.model.predict, self._flat[1])

    @cached_property
    def _flat(self) -> tuple[Vector, Any]:
        return flat(self.model, key_of(0))

    def initial(self) -> Vector:
        """w_0: of the run file's seed, or of one that follows from the study's id. It is public."""
        seed = self.config.file.run.seed
        key = key_of(int(self.description.id, 16) & (2**64 - 1) if seed is None else seed)
        return flat(self.model, jax.random.fold_in(key, 2**31 - 1))[0]

    def params(self, w: Vector) -> PyTree:
        """The model's own parameters."""
        return self._flat[1](w)

    @cached_property
    def broadcast(self) -> tuple[list[Shape], Any]:
        """The arrays that a method broadcasts, and how they make what its clients receive."""
        method = self.rules.method
        made = jax.eval_shape(lambda: method.broadcast(method.init_server(self._flat[0])))
        leaves, structure = jax.tree.flatten(made)
        return [Shape(tuple(leaf.shape), np.dtype(leaf.dtype)) for leaf in leaves], structure

    @property
    def request(self) -> list[Shape]:
        """The arrays that a request holds: what the server saw last of each member's ledger, and what it broadcasts."""
        return [Shape((len(self.members), 8), np.dtype(np.uint32)), *self.broadcast[0]]

    def round_of(self, arrays: Sequence[NDArray[Any]]) -> int | None:
        """The number of the round, from 0 on, that a request's arrays speak of; None where they name none."""
        found = self.rules.method.round_of(jax.tree.unflatten(self.broadcast[1], arrays))
        return None if found is None else int(found)

    def numbers(self, i: int) -> ClientNumbers | None:
        """What is member i's own."""
        return self.plan.numbers(i)

    def coding(self, i: int) -> Coding:
        """How the coordinates of member i's messages travel."""
        parts = self.rules.method.privacy.message_parts
        return noise.coding(self.rules, self.numbers(i), parts * self.plan.resolved.population.d)

    def update_size(self, i: int) -> int:
        """Bytes of the body of member i's messages."""
        return Update.size(self.coding(i))

    def cost_digest(self, i: int) -> bytes:
        """What member i's rounds cost, as it and the server must both have found it."""
        plain = [event_to_json(self.plan.costs[i]), event_to_json(self.plan.model_costs[i]), self.rounds]
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).digest()

    def has_side(self, i: int) -> bool:
        """Whether a scalar travels beside member i's messages."""
        return self._message(i).side is not None

    def has_level(self, i: int) -> bool:
        """Whether a level of PrivUnit does."""
        return noise.has_level(self.rules, self.numbers(i))

    def _message(self, i: int) -> Message:
        import jax.numpy as jnp

        from sordino.algorithms.local import ClientData
        from sordino.rounds.turns import train_turn

        method, w = self.rules.method, self._flat[0]

        def turn() -> Message:
            x = jnp.zeros((self._records(i), *self.description.shape), jnp.float32)
            y = jnp.zeros((self._records(i),), jnp.int32)
            data = ClientData.own(self.loss, x, y, self.numbers(i))
            received = method.broadcast(method.init_server(w))
            return train_turn(self.rules, key_of(0), received, method.init_client(w), data)[0]

        return jax.eval_shape(turn)

    def _records(self, i: int) -> int:
        return self.description.members[i].records or 1


def model_of(config: Config, shape: tuple[int, ...], classes: int) -> Model:
    """The model that a run file names."""
    section = config.file.task
    with config.located("task"):
        require(section.augment in (None, "none"), "augment", section.augment, "nodes do not augment: leave it out")
        remedy = "each node has its own device: leave it out"
        require(section.precision == "default", "precision", section.precision, remedy)
        model = get(section.model or "logistic", shape, classes)
        d = size_of(model).parameters
        remedy = f"has {d} parameters, and at most {LARGEST_MODEL:g} are allowed"
        require(d <= LARGEST_MODEL, "model", section.model, remedy)
        return model


def size_of(model: Model) -> ModelSize:
    """How large a model is; none of its arrays is made."""
    shapes = [leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(model.init, key_of(0)))]
    return ModelSize(sum(map(math.prod, shapes)), sum(len(shape) > 1 for shape in shapes))


def protects_records(config: Config) -> bool:
    """Whether a run file's method protects records, so that everybody's number of them must be public."""
    return config.plan().method.privacy.unit is Unit.RECORD


def as_arrays(tree: PyTree) -> list[NDArray[Any]]:
    """The leaves of a tree on the host."""
    return [np.asarray(jax.numpy.asarray(leaf)) for leaf in jax.tree.leaves(tree)]  # a Python number is a float32


def restored(arrays: Sequence[NDArray[Any]], make: Callable[[], PyTree]) -> PyTree:
    """The tree whose leaves these arrays are, of the shapes of what `make` makes; refused where they do not fit."""
    leaves, structure = jax.tree.flatten(jax.eval_shape(make))
    fit = len(leaves) == len(arrays) and all(
        a.shape == b.shape and a.dtype == b.dtype for a, b in zip(arrays, leaves, strict=True)
    )
    if not fit:
        raise SordinoError("a stored state has other shapes than its study; restore it from a backup")
    return jax.tree.unflatten(structure, [jax.numpy.asarray(each) for each in arrays])
