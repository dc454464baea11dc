"""The words of plans and guarantees, each from a closed vocabulary: unit, relation, observer, trust and the like."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from sordino.errors import InvalidInput, use_one_of


class _Word(StrEnum):
    """A closed vocabulary. Parsing ignores case and takes '/', '_' and spaces for '-'."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the member that `text` spells."""
        word = str(text).strip().lower().replace("_", "-").replace("/", "-").replace(" ", "-")
        for member in cls:
            if word == member.value.replace(" ", "-"):
                return member
        raise InvalidInput(cls.__name__.lower(), text, use_one_of(text, cls))


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
    """Who looks."""

    SERVER = "server"  # sees every message
    MODEL_USER = "model user"  # sees the released models
    OUTSIDER = "outsider"  # sees the last model
    PEER = "peer"  # sees what the server sees, where messages are broadcast to all clients


class Memory(_Word):
    """What a client keeps between rounds that is not derived from released messages, and how it began."""

    NONE = "none"
    ZERO = "zero"
    NOISY = "noisy"
    EXACT = "exact"


class Trust(_Word):
    """Who adds the noise: the server, every client, every client before a shuffler or to a secure sum, or nobody."""

    CENTRAL = "central"
    LOCAL = "local"
    SHUFFLE = "shuffle"
    SECURE_AGGREGATION = "secure-aggregation"  # the server sees the sum of a round's messages and none alone
    NONE = "none"


class Draws(_Word):
    """How the noise of a run is drawn, and so what its certificate is about."""

    LATTICE = "lattice"  # integers; the sampler's distance to its law is proven and counted, so the figures hold
    FLOAT32 = "float32"  # floats, or tables of limited precision; the figures describe ideal noise
    SIMULATED_MESSAGES = "simulated messages"  # clients' noise in float32; the figures describe an ideal deployment
    NONE = "none"


class Sampler(_Word):
    """Where noise on a sum comes from."""

    LATTICE = "lattice"  # integers from a proven distribution
    FLOAT32 = "float32"  # normals in float32


class Measure(_Word):
    """What a privacy filter adds up."""

    GAUSSIAN = "gaussian"  # mu^2
    CONCENTRATED = "concentrated"  # rho of zero-concentrated DP
    RENYI = "renyi"  # the Renyi divergence of one fixed order
    PURE = "pure"  # epsilon


class SeedOrigin(_Word):
    """Where the seed of a run comes from."""

    ENTROPY = "entropy"  # the operating system, for this run alone
    SHARED = "shared"  # the operating system, for all points of a sweep, which share their noise
    GIVEN = "given"  # a person, for an experiment


class Placement(StrEnum):
    """Where the noise falls. The plan decides it once.

    LAW_OF_SUM is for simulations only: the sum of all clients' noise is drawn at once, from its exact law.
    """

    IN_CLIENT = "in the client"
    IN_SHARES = "in shares"  # in the clients too, but only sums of messages are read
    LAW_OF_SUM = "law of the sum"
    ON_SUM = "on the sum"
    NONE = "none"
