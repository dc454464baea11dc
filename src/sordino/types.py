"""The nouns of Sordino, in one page.

A message is a vector in R^d. A `Bounder` caps its norm, a `Mechanism` randomises it, an `Algorithm` is the functions
of a federated method. Unit, relation and observer are the words of a guarantee. This module imports nothing heavy, so
the accounting on the host can share the words without loading JAX.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

from sordino.errors import InvalidInput

if TYPE_CHECKING:
    import jax

    from sordino.privacy.events import Event


__all__ = [
    "Aggregate",
    "Algorithm",
    "BoundInfo",
    "Bounder",
    "Circumstances",
    "Key",
    "Mechanism",
    "Memory",
    "Observer",
    "Relation",
    "Scalar",
    "Unit",
    "Vector",
]

Vector: TypeAlias = "jax.Array"  # float32[d]
Key: TypeAlias = "jax.Array"  # a typed PRNG key, always passed in, never made up
Scalar: TypeAlias = "float | jax.Array"  # a hyper-parameter: a number on the host or a traced leaf in a sweep


class _Word(StrEnum):
    """A closed vocabulary that forgives '/', '_' and capitals, and nothing else."""

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
    def units_moved(self) -> int:
        """How many bounded contributions differ between neighbours: sensitivity = units_moved x bound."""
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


class BoundInfo(NamedTuple):
    """What bounding one vector did. Computed from private data and never released."""

    norm: jax.Array  # of the vector before bounding
    clipped: jax.Array  # bool: the vector was made shorter
    dropped: jax.Array  # bool: it held NaN or infinity and was replaced by zero


@runtime_checkable
class Bounder(Protocol):
    """vector -> vector of norm <= bound, exactly in float32; zero maps to zero."""

    @property
    def bound(self) -> Scalar:
        """The largest norm that can leave."""

    def __call__(self, vector: Vector) -> tuple[Vector, BoundInfo]:
        """Bound one vector."""

    def sensitivity(self, relation: Relation) -> Scalar:
        """How far, in L2, the sum over clients can move between neighbours under `relation`."""


class Aggregate(NamedTuple):
    """What the server computes from M messages: their sum, and the sum of their squared norms where known.

    `squared_norms_before_noise` estimates the sum of the squared norms of what the clients randomised.
    """

    sum: Vector
    sum_of_squared_norms: jax.Array | None
    squared_norms_before_noise: jax.Array | None = None


class Circumstances(NamedTuple):
    """What a plan knows when it resolves, for methods that depend on it."""

    trust: str
    mechanism: Any
    relation: Relation
    d: int  # parameters of the model
    clients: int
    planned: float  # r, the cohort
    cohort: str = "full"
    rounds: int | None = None  # None where no plan has said


@runtime_checkable
class Mechanism(Protocol):
    """A randomiser with two faces and one law.

    `randomize` is what a real client runs. Where an exact law is known there is also
    `aggregate(key, sum, sum_of_squared_norms, count) -> Aggregate`, which draws the server's statistics of `count`
    messages at once with O(d) random numbers; it is None where no such law is known. A mechanism that sends integers
    has `encode` and `decode` too, and its `aggregate` takes the sum of the encoded vectors. One that can tell how long
    a vector was has `squared_norm(message)`, an estimate that is not too large on average.
    """

    aggregate: Any

    def randomize(self, key: Key, vector: Vector) -> Vector:
        """The message that one client sends, as the server reads it."""

    def event(self, bounder: Bounder, relation: Relation, d: int) -> Event:
        """What one message of d coordinates costs one unit, for an accountant."""

    def bits(self, d: int) -> int:
        """Bits on the wire for a message of d coordinates."""


@runtime_checkable
class Algorithm(Protocol):
    """A federated method: pure functions, no loop over clients or rounds. A frozen dataclass that is a JAX pytree.

    Its numbers are data leaves, so that a sweep can trace them. `bound` caps a message (None sends it as it is).
    Noise is not the method's business: the plan chooses the mechanism and the engine puts it where trust says.

    Some methods have more: `resolve(circumstances) -> Algorithm` fits the method to a plan; `message_parts` is the
    number of parts of d coordinates in a message, of which `Aggregate` measures the first (1 if it is not there);
    `only_sums = True` says that the server uses nothing of the messages but their sum, and that a client moves that
    sum by no more than its bound; `remembers_noise = True` that what a client keeps is `remembered(received, state,
    message)` of the message as it was sent, noise and all; `warnings()` and `assumptions(observer)` go into the
    certificate; `sparse_bits(d)` are the bits of a message that has few numbers; `extra_event` is asked before and
    after `resolve`.

    Methods with `unit = Unit.RECORD` protect records and are fitted by `for_public` (`simulation/record_planning.py`).
    One with `adds_noise` puts the plan's noise on the gradients of its local steps itself, `releases_a_round` of them,
    and the engine adds none to its messages.
    """

    @property
    def bound(self) -> Bounder | None:
        """What caps the norm of a message."""

    def init_server(self, w: Vector) -> Any:
        """w_0 -> ServerState."""

    def init_client(self, w: Vector) -> Any:
        """w_0 -> ClientState, () for methods whose clients keep nothing."""

    def broadcast(self, state: Any) -> Any:
        """ServerState -> what every client of the round receives."""

    def client(self, key: Key, received: Any, state: Any, data: Any) -> tuple[Vector, jax.Array, Any, Any]:
        """-> bounded message, a scalar that is summed beside it (0 if none), ClientState, Info.

        `data` is a `ClientData`; Info has `norm`, `clipped` and `dropped`, for people only.
        """

    def server(self, key: Key, state: Any, total: Aggregate, extra: jax.Array, r: Scalar) -> tuple[Any, Any]:
        """ServerState and the (noisy) sums of the cohort, whose planned size is r -> ServerState, Info."""

    @property
    def memory(self) -> Memory:
        """What clients keep between rounds that is not derived from released messages."""

    def extra_event(self, relation: Relation) -> Event | None:
        """What releasing the sum of the scalars costs; None if there are none, and the engine then ignores them."""

    def noise_scale(self, state: Any) -> Scalar:
        """By how much central noise grows with a bound that moves; 1 for a fixed one."""

    def params(self, state: Any) -> Vector:
        """The iterate that is given out."""
