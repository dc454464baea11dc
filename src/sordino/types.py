"""The nouns of Sordino, in one page.

A `Message` is all that leaves a client. A `Bounder` caps its norm, a `Mechanism` randomises it, a `Method` is the
functions of a federated algorithm. Unit, relation and observer are the words of a guarantee. This module does not
import JAX, so that the accounting on the host shares the words without loading it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

from sordino.wire import FLOAT32, Wire
from sordino.words import Draws as Draws
from sordino.words import Memory as Memory
from sordino.words import Observer as Observer
from sordino.words import Placement as Placement
from sordino.words import Relation as Relation
from sordino.words import Sampler as Sampler
from sordino.words import SeedOrigin as SeedOrigin
from sordino.words import Trust as Trust
from sordino.words import Unit as Unit

if TYPE_CHECKING:
    import jax
    import numpy as np
    from numpy.typing import NDArray


Vector: TypeAlias = "jax.Array"  # float32[d]
Key: TypeAlias = "jax.Array"  # a typed PRNG key, always passed in, never made up
Scalar: TypeAlias = "float | jax.Array"  # a hyper-parameter: a number on the host or a traced leaf in a sweep
Augment: TypeAlias = "Callable[[Key, jax.Array], jax.Array]"  # records -> records of the same shape, changed at random
PyTree: TypeAlias = Any  # a tree of arrays whose shape its owner knows: the states and broadcasts of a method


@dataclass(frozen=True)
class Event:
    """Base of all privacy events: what one release costs one unit under one relation. See `sordino.privacy.events`."""

    kind: ClassVar[str] = "event"  # its name in ledgers, stated as `class Gaussian(Event, kind="gaussian")`
    _: KW_ONLY
    unit: Unit | None = None  # None: not stated, whoever accounts the event says it
    relation: Relation | None = None  # None: not stated

    def __init_subclass__(cls, kind: str = "") -> None:
        cls.kind = kind or cls.kind


class Message(NamedTuple):
    """All that leaves a client, and nothing else."""

    vector: Vector  # bounded; noisy where the plan places the noise in the client
    side: jax.Array | None = None  # a scalar that is released beside it, for an adaptive bound or a step size
    level: jax.Array | None = None  # the private level of the norm that PrivUnit sends with its vector


class BoundInfo(NamedTuple):
    """What bounding one vector did. Computed from private data and never released."""

    norm: jax.Array  # of the vector before bounding
    clipped: jax.Array  # bool: the vector was made shorter
    dropped: jax.Array  # bool: it held NaN or infinity and was replaced by zero


class Aggregate(NamedTuple):
    """What the server computes from the messages of a round: sums, and the cohort that it divides by."""

    sum: Vector
    sum_of_squared_norms: jax.Array | None = None
    squared_norms_before_noise: jax.Array | None = None  # estimates, summed, where the mechanism has them
    side: jax.Array | None = None
    cohort: Scalar = 1  # the planned number of clients; of methods that protect records the number that answered

    @property
    def mean(self) -> Vector:
        """The sum over the cohort."""
        return self.sum / self.cohort


class Limited(Protocol):
    """A kind of vector whose norm is capped, and how far a sum of them can move."""

    @property
    def limit(self) -> Scalar:
        """C, the largest norm that can leave."""

    def sensitivity(self, relation: Relation) -> Scalar:
        """How far, in L2, the sum over clients can move between neighbours under `relation`."""


@runtime_checkable
class Bounder(Limited, Protocol):
    """vector -> vector of norm <= limit, exactly in float32; zero maps to zero."""

    def __call__(self, vector: Vector) -> tuple[Vector, BoundInfo]:
        """Bound one vector."""


class ClientNumbers(NamedTuple):
    """The numbers that are one client's own. A plan holds them as arrays over all clients; a client gets scalars."""

    client: jax.Array  # its number
    lipschitz: jax.Array  # L_i
    batch: jax.Array  # K_i
    weight: jax.Array  # what its message is multiplied by
    noise_std: jax.Array  # of its message


LawOfSum: TypeAlias = "Callable[[Key, Vector, jax.Array | None, int], Aggregate]"


class Mechanism:
    """What is done to a bounded vector before anybody else sees it. A frozen dataclass that is a JAX pytree.

    `randomize` is what a real client runs. `aggregate(key, sum, sum_of_squared_norms, count)`, where its law is known,
    draws the server's statistics of `count` messages at once with O(d) random numbers: in simulations only.
    """

    name: ClassVar[str] = ""
    estimates_squared_norm: ClassVar[bool] = False  # whether `squared_norm` answers
    aggregate: LawOfSum | None = None

    @property
    def fewest(self) -> int | None:
        """The fewest messages whose sum may be read; None where no noise is missed."""
        return None

    def randomize(self, key: Key, vector: Vector) -> Vector:
        """The message that one client sends, as the server reads it."""
        from sordino.keys import require_generator  # this module does not load JAX

        require_generator(key)
        return self.read(self.message(key, vector).vector)

    def event(self, bounder: Limited, relation: Relation, d: int, *, unit: Unit = Unit.CLIENT) -> Event:
        """What one message of d coordinates costs, stated under `relation`, the `unit` that a vector belongs to."""
        raise NotImplementedError

    def bits(self, d: int) -> int:
        """Bits on the wire for a message of d coordinates."""
        return 8 * self.wire.size(d)

    @property
    def wire(self) -> Wire:
        """How what a client sends travels."""
        return FLOAT32

    def message(self, key: Key, vector: Vector) -> Message:
        """The randomised message of one client, with all that this mechanism sends beside the vector."""
        raise NotImplementedError

    def encode(self, key: Key, vector: Vector) -> jax.Array:
        """What a client sends where it adds no noise itself: the vector, or the integers that stand for it."""
        return vector

    def read(self, sent: jax.Array) -> Vector:
        """The vector that the server reads from what was sent, or from a sum of it."""
        return sent

    def randomize_sum(self, key: Key, total: jax.Array, scale: Scalar = 1.0) -> Vector:
        """A sum of encoded vectors with the noise of one message, in proportion to `scale`."""
        return scale * self.randomize(key, total / scale)

    def randomize_side(self, key: Key, total: jax.Array, noise_std: Scalar) -> jax.Array:
        """A sum of side scalars with Gaussian noise of this std, where the plan lets such a scalar be released."""
        raise NotImplementedError

    def side_cost(self, event: Event) -> Event:
        """The cost of a side release as `randomize_side` makes it; `event` is that of ideal Gaussian noise."""
        return event

    @property
    def gaussian_std(self) -> Scalar | None:
        """The std of Gaussian noise; None for other noise."""
        return None

    def squared_norm(self, message: Message) -> jax.Array | None:
        """An estimate, from the message alone, of the squared norm before noise; None where there is none."""
        return None

    def for_client(self, numbers: ClientNumbers | None) -> Mechanism:
        """The mechanism of one client."""
        return self

    @property
    def summary(self) -> Mapping[str, float]:
        """The numbers that `sordino plan` prints."""
        return {}


@dataclass(frozen=True)
class Privacy:
    """What a method says of itself to the plan."""

    unit: Unit = Unit.CLIENT
    memory: Memory = Memory.NONE
    uses_sum_only: bool = False  # models depend on messages through their sum alone, which a client moves by its bound
    remembers_noise: bool = False  # a client's state follows its message as it was sent, noise and all
    noise_inside: bool = False  # the method adds the plan's noise to its own gradients; messages get none
    releases: int = 1  # noisy gradients of a client in one round
    message_parts: int = 1  # vectors of length d in one message; squared norms are measured on the first


@dataclass(frozen=True)
class RecordFacts:
    """What a plan that protects records knows of every client, none of it from a record's contents."""

    sizes: NDArray[np.float64]  # n_i
    batch: NDArray[np.float64]  # K_i
    weight: NDArray[np.float64]  # what a message is multiplied by: 1, or n_i over the mean of all n_j
    lipschitz: NDArray[np.float64]  # L_i
    noise_std: NDArray[np.float64]  # sigma_i times the weight, of a message
    smoothness: float  # beta of one record's loss


@dataclass(frozen=True)
class PlanContext:
    """What a plan knows when it fits a method to itself."""

    d: int  # parameters of the model
    clients: int
    planned_cohort: float
    cohort: str = "full"
    answering: float | None = None  # 1 / E(1 / M_r) for M_r clients in round r; the planned cohort where not said
    rounds: int | None = None  # None where no plan has said
    trust: Trust = Trust.NONE
    relation: Relation = Relation.ADD_REMOVE
    mechanism: Mechanism | None = None
    records: RecordFacts | None = None  # of methods that protect records


@dataclass(frozen=True)
class Warning:
    """Something the reader of a certificate must know, as data: a stable code and a sentence."""

    code: str
    message: str

    def to_json(self) -> dict[str, str]:
        """Plain values."""
        return {"code": self.code, "message": self.message}


class Method:
    """A federated method: pure functions, no loop over clients or rounds. A frozen dataclass that is a JAX pytree.

    Its numbers are data leaves, so that a sweep can trace them. `bound` caps a message; None sends it as it is. Noise
    is not the method's business: the plan chooses the mechanism and its placement. A method writes what it needs:
    `init_server`, `client`, `server` and `params`, and overrides the rest only where it differs.
    """

    bound: Bounder | None

    @property
    def privacy(self) -> Privacy:
        """Unit, memory and how models depend on messages."""
        return Privacy()

    @property
    def batch_records(self) -> int | None:
        """Records of one local step, by which memory is estimated; None for all of a client's."""
        return None

    def init_server(self, w: Vector) -> PyTree:
        """w_0 -> the server's state."""
        raise NotImplementedError

    def init_client(self, w: Vector) -> PyTree:
        """w_0 -> a client's state; () where clients keep nothing."""
        return ()

    def broadcast(self, state: PyTree) -> PyTree:
        """The server's state -> what every client of the round receives; the state itself if not overridden."""
        return state

    def client(self, key: Key, received: PyTree, state: PyTree, data: Any) -> tuple[Message, PyTree, BoundInfo]:
        """-> the bounded message before noise, the client's state, and what bounding did.

        `data` is an `algorithms.local.ClientData`.
        """
        raise NotImplementedError

    def server(self, key: Key, state: PyTree, total: Aggregate) -> tuple[PyTree, PyTree]:
        """The server's state and the (noisy) sums of the cohort -> the next state, and what it tells of its round."""
        raise NotImplementedError

    def params(self, state: PyTree) -> Vector:
        """The iterate that is given out."""
        raise NotImplementedError

    def resolve(self, context: PlanContext) -> Self:
        """The method fitted to a plan; refuses a plan that cannot give what it needs."""
        return self

    def limit(self, received: PyTree, numbers: ClientNumbers | None) -> Scalar | None:
        """The largest norm that a message of this round may have; None where nothing caps it."""
        return None if self.bound is None else self.bound.limit

    def round_of(self, received: PyTree) -> Scalar | None:
        """The number of the round that clients receive and act by, from 0 on; None where they receive none."""
        return None

    def side_range(self) -> tuple[float, float] | None:
        """The least and the largest side scalar that a client sends; None if there are none."""
        return None

    def after_noise(self, received: PyTree, before: PyTree, after: PyTree, sent: Vector) -> PyTree:
        """A client's state once its message was `sent`; only methods that remember noise change `after`."""
        return after

    def noise_scale(self, state: PyTree) -> Scalar:
        """By how much noise on the sum grows with a bound that moves."""
        return 1.0

    def side_event(self, relation: Relation) -> Event | None:
        """What releasing the sum of the side scalars costs with ideal Gaussian noise; None if there are none."""
        return None

    def side_noise_std(self) -> Scalar | None:
        """The std of the noise that the server adds to the sum of the side scalars; None if there are none."""
        return None

    def side_figures(self) -> Mapping[str, float]:
        """What `sordino plan` prints of a side release that sets the step size; empty where there is none."""
        return {}

    def constants(self, context: PlanContext) -> Mapping[str, float]:
        """The public constants that the step sizes of the resolved method rest on."""
        return {}

    def warnings(self) -> tuple[Warning, ...]:
        """What is known to go wrong with these numbers."""
        return ()

    def assumptions(self, observer: Observer) -> tuple[str, ...]:
        """What a guarantee against `observer` rests on beside the noise."""
        return ()

    def sparse_bits(self, d: int) -> int | None:
        """Bits of a message that no noise has filled; None where messages are dense."""
        return None
