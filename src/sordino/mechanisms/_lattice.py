"""What every integer mechanism shares: the unbiased stochastic quantiser, the way back, and messages in bits."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from sordino.errors import require
from sordino.mechanisms._packing import PackedIntegers
from sordino.mechanisms.request import MessageRequest
from sordino.privacy.quantized import Sensitivities, assumed_sensitivities, client_sensitivities
from sordino.privacy.stated import stated_as
from sordino.types import Aggregate, Event, Key, Limited, Mechanism, Message, Relation, Scalar, Unit, Vector


def quantize(key: Key, vector: Vector, levels: int, bound: Scalar) -> jax.Array:
    """Q(u) for u = vector / bound: s u_i is rounded down or up to a whole number so that E Q(u) = s u. int32[d]."""
    scaled = levels * jnp.clip(vector / bound, -1.0, 1.0)
    b = jnp.floor(scaled)
    # scaled - b is exact in floating point; adding the uniform number to `scaled` would lose its low bits.
    up = jax.random.uniform(key, vector.shape, vector.dtype) < scaled - b
    return b.astype(jnp.int32) + up.astype(jnp.int32)


def require_lattice(levels: int, bound: float) -> None:
    """Check the number of quantisation levels and the bound of the vectors that are quantised."""
    require(0 < bound < math.inf, "bound", bound, "must be finite and positive")
    require(isinstance(levels, int) and levels >= 1, "levels", levels, "must be a whole number, at least 1")


def sensitivities(d: int, levels: int, relation: Relation, mu: float | None) -> Sensitivities:
    """Worst case, or assumed where mu is given."""
    return client_sensitivities(d, levels, relation) if mu is None else assumed_sensitivities(d, levels, mu)


def require_made_for(bounder: Limited, bound: Scalar, d: int, made_for: int | None = None) -> None:
    """A mechanism's guarantee holds for the bound and the dimension that it was made for, and for no others."""
    given, largest = float(bounder.limit), float(bound)
    remedy = f"the mechanism was made for vectors of norm at most {largest:g}"
    require(given <= largest * (1 + 1e-7), "bound", given, remedy)
    require(made_for in (None, d), "d", d, f"the mechanism was made for {made_for} coordinates")


@dataclass(frozen=True)
class QuantizedMessages(Mechanism):
    """Lines 3 and 4 of QTDL's Algorithm 1 and the wire: quantise, add whole noise (the subclass's), pack."""

    bound: Scalar  # of the norm of the vectors that come in
    d: int | None = field(metadata={"static": True})  # None: any number of coordinates
    levels: int = field(metadata={"static": True})  # s
    mu: float | None = field(metadata={"static": True})  # of the assumed sensitivities, None for the worst case

    def noise_of_sum(self, key: Key, shape: tuple[int, ...], count: int) -> jax.Array:
        """The sum of the noises of `count` messages, in whole numbers."""
        raise NotImplementedError

    def cost(self, bounds: Sensitivities) -> Event:
        """What the noise of one message costs at these sensitivities."""
        raise NotImplementedError

    @property
    def symbol_bits(self) -> int:
        """t, the bits of a coordinate."""
        raise NotImplementedError

    def add_noise(self, key: Key, integers: jax.Array) -> jax.Array:
        """Line 4, in whole numbers: the symbols that travel."""
        return integers + self.noise_of_sum(key, integers.shape, 1)

    def encode(self, key: Key, vector: Vector) -> jax.Array:  # line 3, in whole numbers
        remedy = f"the mechanism was made for {self.d} coordinates"
        require(self.d is None or vector.shape == (self.d,), "vector", vector.shape, remedy)
        return quantize(key, vector, self.levels, self.bound)

    def read(self, sent: jax.Array) -> Vector:
        return sent.astype(jnp.float32) * (self.bound / self.levels)

    def message(self, key: Key, vector: Vector) -> Message:
        return Message(_symbols(self, key, vector))

    def aggregate(self, key: Key, total: jax.Array, sum_of_squared_norms: jax.Array | None, count: int) -> Aggregate:
        """The law of the sum, given the sum of the *encoded* vectors."""
        return Aggregate(self.read(total + self.noise_of_sum(key, total.shape, count)))

    def randomize_sum(self, key: Key, total: jax.Array, scale: Scalar = 1.0) -> Vector:
        """The server's noise falls on a sum of integers as on one message; no bound of theirs moves."""
        return self.read(total + self.noise_of_sum(key, total.shape, 1))

    def event(self, bounder: Limited, relation: Relation, d: int, *, unit: Unit = Unit.CLIENT) -> Event:
        require_made_for(bounder, self.bound, d, self.d)
        bounds = sensitivities(d, self.levels, relation, self.mu)
        about = unit if self.mu is None else Unit.RECORD  # the assumed sensitivities are about one record of a client
        return stated_as(bounds.stated(self.cost(bounds)), about, relation)

    def bits(self, d: int) -> int:
        return self.symbol_bits * d

    @property
    def wire(self) -> PackedIntegers:
        return PackedIntegers(self.symbol_bits)


@jax.jit
def _symbols(mechanism: QuantizedMessages, key: Key, vector: Vector) -> jax.Array:
    key_quantize, key_noise = jax.random.split(key)
    return mechanism.add_noise(key_noise, mechanism.encode(key_quantize, vector))


@dataclass(frozen=True)
class QuantizedRequest(MessageRequest):
    """Quantised messages, each of which meets (message_epsilon, message_delta).

    Args:
      message_epsilon: of each message (with trust central, of the sum).
      levels: s, quantisation levels.
      message_delta: of each message.
      mu: assume the sensitivities of the paper's eq. (6), which nothing enforces.
    """

    message_epsilon: float | None = None
    levels: int | None = None
    message_delta: float | None = None
    mu: float | None = None

    needed = ("message_epsilon", "levels")
    amplified = False  # truncated noise fails with some delta, and no theorem amplifies every integer noise
    whole_numbers = True
