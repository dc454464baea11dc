"""What every integer mechanism shares: the unbiased stochastic quantiser, the way back, and messages in bits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from sordino.errors import require
from sordino.mechanisms._packing import pack, unpack
from sordino.privacy.quantized import Sensitivities, assumed_sensitivities, client_sensitivities
from sordino.types import Bounder, Key, Relation, Scalar, Vector

__all__ = ["QuantizedMessages", "dequantize", "quantize", "require_made_for", "sensitivities"]


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


def require_made_for(bounder: Bounder, bound: Scalar, d: int, made_for: int | None = None) -> None:
    """A mechanism's guarantee holds for the bound and the dimension that it was made for, and for no others."""
    given, largest = float(bounder.bound), float(bound)
    remedy = f"the mechanism was made for vectors of norm at most {largest:g}"
    require(given <= largest * (1 + 1e-7), "bound", given, remedy)
    if made_for is not None:
        require(d == made_for, "d", d, f"the mechanism was made for {made_for} coordinates")


@dataclass(frozen=True)
class QuantizedMessages(ABC):
    """Lines 3 and 4 of QTDL's Algorithm 1 and the wire: quantise, add whole noise (the subclass's), pack."""

    bound: Scalar  # of the norm of the vectors that come in
    d: int = field(metadata={"static": True})
    levels: int = field(metadata={"static": True})  # s

    @abstractmethod
    def add_noise(self, key: Key, integers: jax.Array) -> jax.Array:
        """Line 4, in whole numbers: the symbols that travel."""

    @abstractmethod
    def bits(self, d: int) -> int:
        """t bits a coordinate."""

    def encode(self, key: Key, vector: Vector) -> jax.Array:
        """Line 3, in whole numbers."""
        require(vector.shape == (self.d,), "vector", vector.shape, f"the mechanism was made for {self.d} coordinates")
        return quantize(key, vector, self.levels, self.bound)

    def decode(self, integers: jax.Array) -> Vector:
        """The vector that symbols, or a sum of symbols, stand for."""
        return dequantize(integers, self.levels, self.bound)

    def randomize(self, key: Key, vector: Vector) -> Vector:
        """M(u), scaled back to the bound."""
        return self.decode(_symbols(self, key, vector))

    def message(self, key: Key, vector: Vector) -> bytes:
        """The same message as it travels: ceil(t d / 8) bytes."""
        return pack(_symbols(self, key, vector), self.bits(1))

    def read(self, message: bytes, d: int) -> Vector:
        """The vector in a message of d coordinates."""
        return self.decode(jnp.asarray(unpack(message, self.bits(1), d).astype(np.int32)))


@jax.jit
def _symbols(mechanism: QuantizedMessages, key: Key, vector: Vector) -> jax.Array:
    key_quantize, key_noise = jax.random.split(key)
    return mechanism.add_noise(key_noise, mechanism.encode(key_quantize, vector))
