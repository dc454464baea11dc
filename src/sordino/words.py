"""The words of plans and guarantees, each from a closed vocabulary: unit, relation, observer, trust and the like."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from sordino.errors import InvalidInput


class _Word(StrEnum):
    """A closed vocabulary. Parsing ignores case and takes '/', '_' and spaces for '-'."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the member that `text` spells."""
        word = str(text).strip().lower().replace("_", "-").replace("/", "-").replace(" ", "-")
        for member in cls:
            if word == member.value.replace(" ", "-"):
                return member
        raise InvalidInput(cls.__name__.lower(), text, "use one of " + ", ".join(cls))


class Unit(_Word):
    """What is protected: everything a client holds, or one record inside a client."""

    CLIENT = "client"
    RECORD = "record"


class Relation(_Word):
    """Which two data sets are neighbours.

    add-remove: one unit more or fewer. zero-out: the unit's contribution becomes zero, the number of units stays
    public. replace-one: the unit becomes any other unit.
    """

    ADD_REMOVE = "add-remove"
    ZERO_OUT = "zero-out"
    REPLACE_ONE = "replace-one"

    @property
    def sensitivity_factor(self) -> int:
        """How many bounded contributions differ between neighbours: sensitivity = factor x limit."""
        return 2 if self is Relation.REPLACE_ONE else 1


class Observer(_Word):
    """Who looks: the server sees every message, a model user the released models, an outsider the last model.

    A peer sees what the server sees when messages are broadcast to all clients.
    """

    SERVER = "server"
    MODEL_USER = "model user"
    OUTSIDER = "outsider"
    PEER = "peer"


class Memory(_Word):
    """What a client keeps between rounds that is not derived from released messages, and how it began."""

    NONE = "none"
    ZERO = "zero"
    NOISY = "noisy"
    EXACT = "exact"


class Trust(_Word):
    """Who adds the noise: the server, every client, every client before a shuffler, or nobody."""

    CENTRAL = "central"
    LOCAL = "local"
    SHUFFLE = "shuffle"
    NONE = "none"


class Draws(_Word):
    """How the noise of a run is drawn, and so what its certificate is about.

    lattice: integer noise from a sampler whose distance to its law is proven and counted; the figures hold for what the
    program releases. float32: floating-point noise, or tables of limited precision; the figures describe ideal noise.
    simulated messages: clients' noise, drawn by a simulator in float32; nothing real leaves a client, and the figures
    describe the messages of a deployment with ideal noise.
    """

    LATTICE = "lattice"
    FLOAT32 = "float32"
    SIMULATED_MESSAGES = "simulated messages"
    NONE = "none"


class Sampler(_Word):
    """Where noise on a sum comes from: integers of a proven law, or normals in float32."""

    LATTICE = "lattice"
    FLOAT32 = "float32"


class SeedOrigin(_Word):
    """Where the seed of a run comes from: the operating system's entropy, or a person, for an experiment."""

    ENTROPY = "entropy"
    GIVEN = "given"


class Placement(StrEnum):
    """Where the noise falls. The plan decides it once.

    LAW_OF_SUM is for simulations only: the sum of all clients' noise is drawn at once, from its exact law.
    """

    IN_CLIENT = "in the client"
    LAW_OF_SUM = "law of the sum"
    ON_SUM = "on the sum"
    NONE = "none"
