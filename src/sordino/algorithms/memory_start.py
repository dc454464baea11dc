"""How the memories g_i of error feedback begin. Phi is the limit of Psi, G_0 that of the first gradients.

zero             g_i = 0, which costs nothing.
noisy            The first m rounds fill the memories while x rests. Client i sends its gradient, clipped to G_0 and
                 scaled to Phi, so that these rounds cost what every round costs:

                     message = clip_Phi((Phi/G_0) grad f_i(x^0))
                     g_i <- g_i + (G_0/Phi)/m message,    g <- g + (G_0/Phi)/m (1/n) sum_i M(message)

secure-average   The same with sqrt(n) Phi in place of Phi. The server sees the sum of the first messages only: the
                 noise of n clients has sqrt(n) times the std of one client's.
exact            The paper's g_i^0 = grad f_i(x^0): a release without noise, refused in private.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar

import jax
import jax.numpy as jnp

from sordino.algorithms.common import require_choice
from sordino.bounding import Clip
from sordino.bounding._norm import LARGEST_BOUND, require_bound
from sordino.errors import InvalidInput, require, require_count
from sordino.privacy import wording
from sordino.pytrees import pytree
from sordino.types import BoundInfo, Memory, Observer, PlanContext, Scalar, Trust, Vector


@pytree
@dataclass(frozen=True)
class MemoryStart:
    """g_i^0 = 0; other starts override what the first rounds do instead of the usual ones."""

    memory: ClassVar[Memory] = Memory.ZERO
    exceeds_limit: ClassVar[bool] = False  # whether a first message may be longer than Phi

    def message(
        self, k: jax.Array, gradient: Vector, usual: tuple[Vector, BoundInfo], Phi: Scalar | None
    ) -> tuple[Vector, BoundInfo]:
        """The message of round k and what bounding it did."""
        return usual

    def change(self, k: jax.Array, message: Vector, usual: Vector, Phi: Scalar | None) -> Vector:
        """What the message of round k adds to g_i, and the mean of all messages to g."""
        return usual

    def step_size(self, k: jax.Array, usual: Scalar) -> Scalar:
        """gamma_k."""
        return usual

    def limit(self, k: jax.Array, Phi: Scalar | None) -> Scalar | None:
        """The largest norm of a message of round k."""
        return Phi

    def resolve(self, context: PlanContext) -> MemoryStart:
        """The start under a plan; refuses a plan that cannot give what it needs."""
        return self

    def assumptions(self, observer: Observer) -> tuple[str, ...]:
        """What a guarantee against `observer` rests on beside the noise."""
        return ()


@pytree
@dataclass(frozen=True)
class NoisyStart(MemoryStart):
    """The first m messages are first gradients, clipped to G_0 and scaled to the cap of a first message: Phi."""

    G_0: Scalar
    rounds: int = field(metadata={"static": True})  # m

    memory = Memory.NOISY

    def cap(self, Phi: Scalar | None) -> Scalar:
        """The largest norm of a first message; G_0 itself where nothing is bounded."""
        return self.G_0 if Phi is None else Phi

    def message(
        self, k: jax.Array, gradient: Vector, usual: tuple[Vector, BoundInfo], Phi: Scalar | None
    ) -> tuple[Vector, BoundInfo]:
        first = Clip(self.cap(Phi))((self.cap(Phi) / self.G_0) * gradient)
        return jax.tree.map(lambda one, other: jnp.where(k < self.rounds, one, other), first, usual)

    def change(self, k: jax.Array, message: Vector, usual: Vector, Phi: Scalar | None) -> Vector:
        return jnp.where(k < self.rounds, (self.G_0 / self.cap(Phi) / self.rounds) * message, usual)

    def step_size(self, k: jax.Array, usual: Scalar) -> Scalar:
        return jnp.where(k < self.rounds, 0.0, usual)

    def limit(self, k: jax.Array, Phi: Scalar | None) -> Scalar | None:
        return None if Phi is None else jnp.where(k < self.rounds, self.cap(Phi), Phi)

    def resolve(self, context: PlanContext) -> MemoryStart:
        remedy = f"all {context.rounds} rounds would go into the start, and x would never move: use fewer"
        require(context.rounds is None or self.rounds < context.rounds, "memory_rounds", self.rounds, remedy)
        return self


@pytree
@dataclass(frozen=True)
class ExactStart(NoisyStart):
    """g_i^0 = grad f_i(x^0), of any length."""

    memory = Memory.EXACT
    exceeds_limit = True

    def cap(self, Phi: Scalar | None) -> Scalar:
        return self.G_0


@pytree
@dataclass(frozen=True)
class SecureAverageStart(NoisyStart):
    """The cap of a first message is sqrt(n) Phi: secure aggregation shows the server the sum of n messages only."""

    clients: Scalar | None = None  # n, known when a plan resolves

    exceeds_limit = True

    def cap(self, Phi: Scalar | None) -> Scalar:
        if Phi is None:
            return self.G_0
        if self.clients is None:
            raise InvalidInput("memory", "secure-average", "needs the number of clients: run it from a plan")
        # A little less than sqrt(n) Phi pays for the rounding of the product and of the noise of the sum.
        return (1 - 1e-6) * jnp.sqrt(self.clients) * Phi

    def resolve(self, context: PlanContext) -> MemoryStart:
        if context.trust is not Trust.NONE:
            remedy = "it hides first gradients from a server that is not trusted: use trust local, or memory noisy"
            require(context.trust is Trust.LOCAL, "memory", "secure-average", remedy)
            gaussian = context.mechanism is not None and context.mechanism.gaussian_std is not None
            require(gaussian, "memory", "secure-average", "sqrt(n) is the law of Gaussian noise: use gaussian")
            remedy = "it needs the noise of all clients: use cohort full"
            require(context.cohort == "full", "memory", "secure-average", remedy)
        super().resolve(context)
        return dataclasses.replace(self, clients=float(context.clients))

    def assumptions(self, observer: Observer) -> tuple[str, ...]:
        noise = wording.assume_first_noise_secret(self.rounds, observer)
        hidden = wording.assume_secure_aggregation(self.rounds)
        return (hidden, noise) if observer is Observer.SERVER else (noise,)


CLIPPED: dict[str, type[NoisyStart]] = {"noisy": NoisyStart, "secure-average": SecureAverageStart}


def memory_start(memory: str, memory_clip: float | None, memory_rounds: int) -> MemoryStart:
    """The start that a run file describes."""
    require_choice("memory", memory, ("zero", *CLIPPED, "exact"))
    require_count(memory_rounds, "memory_rounds")
    if memory in CLIPPED:
        if memory_clip is None:
            raise InvalidInput("memory_clip", memory_clip, "give the bound G_0 of the first gradients")
        require_bound("memory_clip", memory_clip)
        return CLIPPED[memory](memory_clip, memory_rounds)
    require(memory_clip is None, "memory_clip", memory_clip, f"memory {memory} clips nothing: drop it")
    require(memory_rounds == 1, "memory_rounds", memory_rounds, f"memory {memory} takes one round at most: drop it")
    return MemoryStart() if memory == "zero" else ExactStart(LARGEST_BOUND, 1)
