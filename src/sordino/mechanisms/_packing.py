"""Bit-packing: d symbols of t bits take ceil(t d / 8) bytes on the wire.

Blocks of 32 symbols fill t words of 32 bits exactly. Symbol b of row i in a (32, n) layout goes to bits
[i t, (i+1) t) of block b, so that every step is one operation on long contiguous rows. The up to 31 symbols that are
left over form one more block, cut after its last used byte. For t > 32 the low 32 bits come first, then the rest.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sordino.errors import InvalidInput, require

_BLOCK = 32


@dataclass(frozen=True)
class PackedIntegers:
    """The wire of symbols in t bits each."""

    t: int

    def size(self, d: int) -> int:
        return packed_bytes(d, self.t)

    def encode(self, values: NDArray[np.generic]) -> bytes:
        return pack(jnp.asarray(values), self.t)

    def decode(self, data: bytes, d: int) -> NDArray[np.int32]:
        return unpack(data, self.t, d).astype(np.int32)


def packed_bytes(d: int, t: int) -> int:
    """ceil(t d / 8)."""
    return (t * d + 7) // 8


def pack(values: jax.Array, t: int) -> bytes:
    """Pack int32 values modulo 2^t."""
    require(1 <= t <= 63, "bits", t, "a symbol takes 1 to 63 bits")
    if t > 32:
        high = jnp.asarray(values) >> 31  # the sign, repeated: two's complement of a wider word
        return pack(values, 32) + pack(high, t - 32)
    symbols = jnp.asarray(values, jnp.int32)
    packed = _bytes(_pack_blocks(symbols, t))
    rest = symbols.shape[0] % _BLOCK
    if rest:
        last = _pack_blocks(jnp.zeros(_BLOCK, jnp.int32).at[:rest].set(symbols[-rest:]), t)
        packed += _bytes(last)[: packed_bytes(rest, t)]
    return packed


def unpack(data: bytes, t: int, d: int) -> NDArray[np.int64]:
    """The d symbols, as numbers in [-2^(t-1), 2^(t-1))."""
    require(1 <= t <= 63, "bits", t, "a symbol takes 1 to 63 bits")
    if len(data) != packed_bytes(d, t):
        raise InvalidInput("message", f"{len(data)} bytes", f"{d} symbols of {t} bits take {packed_bytes(d, t)} bytes")
    if t > 32:
        low = unpack(data[: 4 * d], 32, d) & 0xFFFFFFFF
        return (unpack(data[4 * d :], t - 32, d) << 32) | low
    blocks = d // _BLOCK
    cut = 4 * t * blocks
    symbols = np.asarray(_unpack_blocks(_words(data[:cut], t), t)).reshape(-1)
    if d % _BLOCK:
        padded = data[cut:] + bytes(4 * t - (len(data) - cut))
        symbols = np.concatenate([symbols, np.asarray(_unpack_blocks(_words(padded, t), t))[: d % _BLOCK, 0]])
    wide = symbols.astype(np.int64)
    return wide - ((wide >> (t - 1)) << t)


@functools.partial(jax.jit, static_argnames="t")
def _pack_blocks(symbols: jax.Array, t: int) -> jax.Array:
    """int32[d] -> uint32[t, n], the symbols that fill n = floor(d / 32) blocks."""
    mask = jnp.uint32(2**t - 1)
    rows = symbols[: symbols.shape[0] // _BLOCK * _BLOCK].reshape(_BLOCK, -1).astype(jnp.uint32)
    words = [jnp.zeros(rows.shape[1], jnp.uint32)] * t
    for i in range(_BLOCK):
        word, offset = divmod(i * t, 32)
        symbol = rows[i] & mask
        words[word] = words[word] | (symbol << offset)
        if offset + t > 32:
            words[word + 1] = words[word + 1] | (symbol >> (32 - offset))
    return jnp.stack(words)


@functools.partial(jax.jit, static_argnames="t")
def _unpack_blocks(words: jax.Array, t: int) -> jax.Array:
    """uint32[t, n] -> uint32[32, n]."""
    mask = jnp.uint32(2**t - 1)
    rows = []
    for i in range(_BLOCK):
        word, offset = divmod(i * t, 32)
        symbol = words[word] >> offset
        if offset + t > 32:
            symbol = symbol | (words[word + 1] << (32 - offset))
        rows.append(symbol & mask)
    return jnp.stack(rows)


def _bytes(words: jax.Array) -> bytes:
    return np.asarray(words).astype("<u4", copy=False).tobytes()


def _words(data: bytes, t: int) -> jax.Array:
    return jnp.asarray(np.frombuffer(data, "<u4").reshape(t, -1).astype(np.uint32))
