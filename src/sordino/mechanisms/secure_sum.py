"""Secure aggregation with a share of discrete Gaussian noise in every message (Kairouz, Liu and Steinke 2021).

    client, x_i with ||x_i|| <= C      (their Algorithm 1)
      u   = H D x_i / g                                    D: public random signs, H: Hadamard matrix
      z_i = u rounded at random, until ||z_i|| <= R        see `privacy.secure_sum`
      send (z_i + y_i) mod 2^b,     y_i ~ N_Z(0, s^2) on every coordinate
    server, from the modular sum Z     (their Algorithm 2)
      sum_i x_i is estimated by g D H^T Z,     Z read within [-2^(b-1), 2^(b-1))

The server sees nothing but the modular sum: that is what secure aggregation gives, and what is assumed of it. Sums are
of whole numbers modulo 2^32, of which 2^b is a divisor: they are exact, in any order. The signs of D are the same in
every run and known to everybody: privacy does not rest on them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from sordino.errors import require
from sordino.keys import key_of
from sordino.mechanisms._lattice import require_made_for
from sordino.mechanisms._packing import PackedIntegers
from sordino.mechanisms.discrete_gaussian import noise_table
from sordino.privacy.secure_sum import Lattice, Shares, lattice_for, padded, shares_of
from sordino.privacy.stated import stated_as
from sordino.pytrees import pytree
from sordino.types import Event, Key, Limited, Mechanism, Message, Relation, Scalar, Unit, Vector

TRIES = 32  # of rounding; then towards zero, which makes no vector longer
SIGNS = 0x5EC0_A99E_5EC0_A99E  # public; beyond the seeds that a person can give


@pytree
@dataclass(frozen=True)
class SecureSum(Mechanism):
    """See the module."""

    bound: Scalar  # C, of the norm of the vectors that come in
    d: int = field(metadata={"static": True})  # coordinates of a vector
    lattice: Lattice = field(metadata={"static": True})
    shares: Shares = field(metadata={"static": True})

    name = "gaussian"

    @property
    def fewest(self) -> int:
        return self.shares.fewest

    def encode(self, key: Key, vector: Vector) -> jax.Array:
        """z_i: the rotated vector in steps of the lattice, rounded at random to a norm of at most R."""
        remedy = f"the mechanism was made for {self.d} coordinates"
        require(vector.shape == (self.d,), "vector", vector.shape, remedy)
        u = rotate(vector, self.lattice.d) / self.lattice.step
        down = jnp.floor(u)
        most = self.lattice.norm_squared

        def attempt(tried: tuple[Key, jax.Array, jax.Array]) -> tuple[Key, jax.Array, jax.Array]:
            key, count, _ = tried
            key, key_round = jax.random.split(key)
            up = jax.random.uniform(key_round, u.shape, u.dtype) < u - down
            return key, count + 1, down.astype(jnp.int32) + up.astype(jnp.int32)

        def again(tried: tuple[Key, jax.Array, jax.Array]) -> jax.Array:
            _, count, z = tried
            return (norm_squared(z) > most) & (count < TRIES)

        _, _, z = jax.lax.while_loop(again, attempt, attempt((key, jnp.int32(0), down.astype(jnp.int32))))
        for shorter in (jnp.trunc(u).astype(jnp.int32), jnp.zeros_like(z)):  # nothing longer than R ever leaves
            z = jnp.where(norm_squared(z) > most, shorter, z)
        return z

    def message(self, key: Key, vector: Vector) -> Message:
        key_round, key_noise = jax.random.split(key)
        z = self.encode(key_round, vector)
        y = noise_table(self.lattice.share_std, 1).draw(key_noise, z.shape)
        return Message(modulo(z + y, self.lattice.bits))

    def read(self, sent: jax.Array) -> Vector:
        """The estimate of the sum of vectors from a sum of messages."""
        total = modulo(sent, self.lattice.bits).astype(jnp.float32)
        return rotate_back(total * self.lattice.step, self.d)

    def randomize(self, key: Key, vector: Vector) -> Vector:
        """What the server reads if one client sends this vector and all other honest clients send zero.

        The noise of all honest clients is drawn at once, from the law of its sum.
        """
        key_round, key_noise = jax.random.split(key)
        z = self.encode(key_round, vector)
        return self.read(z + noise_table(self.lattice.share_std, self.shares.honest).draw(key_noise, z.shape))

    def event(self, bounder: Limited, relation: Relation, d: int, *, unit: Unit = Unit.CLIENT) -> Event:
        require_made_for(bounder, self.bound, d, self.d)
        return stated_as(self.lattice.event(relation, self.shares.honest), unit, relation)

    def bits(self, d: int) -> int:
        return self.lattice.bits * padded(d)

    @property
    def wire(self) -> PackedIntegers:
        """Of the padded and rotated vector."""
        return PackedIntegers(self.lattice.bits)

    @property
    def summary(self) -> Mapping[str, float]:
        return {
            "noise_std": self.lattice.noise_std(self.shares.honest),
            "honest_shares": float(self.shares.honest),
            "share_std_in_steps": self.lattice.share_std,
            "lattice_step": self.lattice.step,
            "lengthened_by_rounding": self.lattice.lengthened(float(self.bound)),
        }


def norm_squared(z: jax.Array) -> jax.Array:
    """Exact: a lattice has few enough steps that no sum of squares reaches 2^31. Beyond it, nothing counts as short."""
    small = jnp.max(jnp.abs(z)) < 2**15
    total = jnp.sum(z * z, dtype=jnp.int32)
    approximate = jnp.sum(jnp.square(z.astype(jnp.float32)))  # says whether the whole numbers have wrapped around
    return jnp.where(small & (approximate < 2.0**30), total, jnp.int32(2**31 - 1))


def modulo(z: jax.Array, bits: int) -> jax.Array:
    """The representative of z modulo 2^b in [-2^(b-1), 2^(b-1))."""
    half = 1 << (bits - 1)
    return ((z + half) & (2 * half - 1)) - half


def rotate(vector: Vector, d: int) -> Vector:
    """H D x for x padded with zeros to d coordinates, a power of two."""
    return hadamard(jnp.pad(vector, (0, d - len(vector))) * _signs(d))


def rotate_back(vector: Vector, d: int) -> Vector:
    """The first d coordinates of D H^T y; H is symmetric."""
    return (hadamard(vector) * _signs(len(vector)))[:d]


def hadamard(vector: Vector) -> Vector:
    """The Walsh-Hadamard transform, divided by sqrt(d) so that it keeps norms."""
    d, h = len(vector), 1
    while h < d:
        pairs = vector.reshape(d // (2 * h), 2, h)
        first, second = pairs[:, 0], pairs[:, 1]
        vector = jnp.stack([first + second, first - second], axis=1).reshape(d)
        h *= 2
    return vector / jnp.sqrt(jnp.float32(d))


def _signs(d: int) -> Vector:
    return jax.random.rademacher(key_of(SIGNS), (d,), jnp.float32)


def secure_sum(
    *,
    d: int,
    clients: int,
    noise_multiplier: float,
    bound: float = 1.0,
    bits: int = 20,
    fewest: int | None = None,
    colluding: int = 0,
    relation: Relation = Relation.ZERO_OUT,
) -> SecureSum:
    """Shares of discrete Gaussian noise for vectors of d coordinates and norm at most `bound`.

    Args:
      d: coordinates of a vector.
      clients: messages of a sum at most.
      noise_multiplier: std of the noise of all honest clients over the sensitivity of a rounded vector.
      bound: of the norm of the vectors.
      bits: of a coordinate; sums are modulo 2^bits.
      fewest: messages of a sum at least; all clients' if left out.
      colluding: clients among these whose noise is not counted.
      relation: under which the noise multiplier is meant.
    """
    require(d >= 1, "d", d, "must be at least 1")
    require(0 < bound < math.inf, "bound", bound, "must be finite and positive")
    require(0 < noise_multiplier < math.inf, "noise_multiplier", noise_multiplier, "must be finite and positive")
    least = clients if fewest is None else fewest
    require(1 <= least <= clients, "fewest", fewest, f"must lie between 1 and {clients}")
    shares = shares_of(clients, least, 0.0, colluding)
    lattice = lattice_for(noise_multiplier, bits=bits, d=d, bound=bound, relation=relation, shares=shares)
    return SecureSum(bound, d, lattice, shares)
