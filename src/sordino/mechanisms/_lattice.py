"""What every integer mechanism shares: the unbiased stochastic quantiser, the way back, and messages in bits."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from sordino.errors import require
from sordino.mechanisms._packing import PackedIntegers
from sordino.mechanisms.request import MessageRequest
from sordino.privacy.quantized import Sensitivities, assumed_sensitivities, client_sensitivities
from sordino.types import Aggregate, Key, Limited, Mechanism, Message, Relation, Scalar, Vector


def quantize(key: Key, vector: Vector, levels: int, bound: Scalar) -> jax.Array:
    """Q(u) for u = vector / bound: s u_i is rounded down or up to a whole number so that E Q(u) = s u. int32[d]."""
    scaled = levels * jnp.clip(vector / bound, -1.0, 1.0)
    b = jnp.floor(scaled)
    # scaled - b is exact in floating point; adding the uniform number to `scaled` would lose its low bits.
    up = jax.random.uniform(key, vector.shape, vector.dtype) < scaled - b
    return b.astype(jnp.int32) + up.astype(jnp.int32)


def dequantize(integers: jax.Array, levels: int, bound: Scalar) -> Vector:
    """The vector that the integers stand for."""
    return integers.astype(jnp.float32) * (bound / levels)


def sensitivities(d: int, levels: int, relation: Relation, mu: float | None) -> Sensitivities:
    """Worst case, or assumed where mu is given."""
    return client_sensitivities(d, levels, relation) if mu is None else assumed_sensitivities(d, levels, mu)


def require_made_for(bounder: Limited, bound: Scalar, d: int, made_for: int | None = None) -> None:
    """A mechanism's guarantee holds for the bound and the dimension that it was made for, and for no others."""
    given, largest = float(bounder.limit), float(bound)
    remedy = f"the mechanism was made for vectors of norm at most {largest:g}"
    require(given <= largest * (1 + 1e-7), "bound", given, remedy)
    if made_for is not None:
        require(d == made_for, "d", d, f"the mechanism was made for {made_for} coordinates")


@dataclass(frozen=True)
class QuantizedMessages(Mechanism):
    """Lines 3 and 4 of QTDL's Algorithm 1 and the wire: quantise, add whole noise (the subclass's), pack."""

    bound: Scalar  # of the norm of the vectors that come in
    d: int = field(metadata={"static": True})
    levels: int = field(metadata={"static": True})  # s

    def add_noise(self, key: Key, integers: jax.Array) -> jax.Array:
        """Line 4, in whole numbers: the symbols that travel."""
        raise NotImplementedError

    def noise_of_sum(self, key: Key, shape: tuple[int, ...], count: int) -> jax.Array:
        """The sum of the noises of `count` messages, in whole numbers."""
        raise NotImplementedError

    @property
    def symbol_bits(self) -> int:
        """t, the bits of a coordinate."""
        raise NotImplementedError

    def encode(self, key: Key, vector: Vector) -> jax.Array:
        """Line 3, in whole numbers."""
        require(vector.shape == (self.d,), "vector", vector.shape, f"the mechanism was made for {self.d} coordinates")
        return quantize(key, vector, self.levels, self.bound)

    def read(self, sent: jax.Array) -> Vector:
        """The vector that symbols, or a sum of symbols, stand for."""
        return dequantize(sent, self.levels, self.bound)

    def message(self, key: Key, vector: Vector) -> Message:
        """M(u), as the symbols that travel."""
        return Message(_symbols(self, key, vector))

    def aggregate(self, key: Key, total: jax.Array, sum_of_squared_norms: jax.Array | None, count: int) -> Aggregate:
        """The law of the sum, given the sum of the *encoded* vectors."""
        return Aggregate(self.read(total + self.noise_of_sum(key, total.shape, count)))

    def randomize_sum(self, key: Key, total: jax.Array, scale: Scalar = 1.0) -> Vector:
        """The server's noise falls on a sum of integers as on one message; no bound of theirs moves."""
        return self.read(total + self.noise_of_sum(key, total.shape, 1))

    def bits(self, d: int) -> int:
        """t bits a coordinate."""
        return self.symbol_bits * d

    @property
    def wire(self) -> PackedIntegers:
        """ceil(t d / 8) bytes."""
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
