"""Who takes part in a round: full, poisson:Q, fixed:K, unreliable:LOW-HIGH, or unreliable:M=P,M=P,...

A cohort is a padded list of client numbers and a mask. Drawing K of many clients costs O(K); the divisor of the mean is
the planned size. Each knows the sampling that its privacy is accounted by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from sordino.errors import InvalidInput, require
from sordino.planning._drawing import SMALL, binomial, distinct
from sordino.privacy import sampling
from sordino.types import Key


class Cohort:
    """Who takes part in a round: a padded list of client numbers, and a mask."""

    fixed_count: ClassVar[bool] = False  # whether the same number of clients takes part in every round

    def capacity(self, clients: int) -> int:
        """Places of the padded list."""
        raise NotImplementedError

    def fewest(self, clients: int) -> int:
        """Clients that take part in a round at least."""
        return self.capacity(clients) if self.fixed_count else 0

    def planned(self, clients: int) -> float:
        """The divisor of the mean."""
        return float(self.capacity(clients))

    def answering(self, clients: int) -> float:
        """1 / E(1 / M_r), where M_r clients take part in round r: what the variance of a mean is divided by."""
        return self.planned(clients)

    def draw(self, key: Key, clients: int) -> tuple[jax.Array, jax.Array]:
        """Client numbers and mask."""
        raise NotImplementedError

    def sampling(self, clients: int) -> sampling.Sampling:
        """The sampling that its privacy is accounted by; as if everybody always came, if not overridden."""
        return sampling.Full()


@dataclass(frozen=True)
class FullCohort(Cohort):
    """Every client, in every round."""

    fixed_count = True

    def capacity(self, clients: int) -> int:
        return clients

    def draw(self, key: Key, clients: int) -> tuple[jax.Array, jax.Array]:
        return jnp.arange(clients), jnp.ones(clients, bool)

    def __str__(self) -> str:
        return "full"


@dataclass(frozen=True)
class PoissonCohort(Cohort):
    """Each client with probability q, independently."""

    q: float

    def capacity(self, clients: int) -> int:
        mean = self.q * clients  # and ten deviations: more come less than once in 10^20 rounds
        return min(clients, math.ceil(mean + 10 * math.sqrt(mean * (1 - self.q)) + 20))

    def planned(self, clients: int) -> float:
        return self.q * clients

    def draw(self, key: Key, clients: int) -> tuple[jax.Array, jax.Array]:
        if self.q == 1:
            return FullCohort().draw(key, clients)
        # q is rounded down to a share of the words of 32 bits: nobody takes part more often than accounted.
        share, capacity = math.floor(self.q * 2**32), self.capacity(clients)
        if clients > SMALL and 4 * capacity <= clients:
            # Given how many come, every set of so many clients is equally likely.
            key_number, key_who = jax.random.split(key)
            number = binomial(key_number, clients, share, capacity)
            return distinct(key_who, capacity, clients), jnp.arange(capacity) < number
        comes = jax.random.bits(key, (clients,), jnp.uint32) < jnp.uint32(share)  # a word a client
        (position,) = jnp.nonzero(comes, size=capacity, fill_value=clients)
        return jnp.minimum(position, clients - 1).astype(jnp.int32), position < clients

    def sampling(self, clients: int) -> sampling.Sampling:
        return sampling.Poisson(self.q)

    def __str__(self) -> str:
        return f"poisson:{self.q:g}"


@dataclass(frozen=True)
class FixedCohort(Cohort):
    """K different clients, uniformly."""

    size: int

    fixed_count = True

    def capacity(self, clients: int) -> int:
        return self.size

    def draw(self, key: Key, clients: int) -> tuple[jax.Array, jax.Array]:
        return distinct(key, self.size, clients), jnp.ones(self.size, bool)

    def sampling(self, clients: int) -> sampling.Sampling:
        return sampling.WithoutReplacement(self.size, clients)

    def __str__(self) -> str:
        return f"fixed:{self.size}"


@dataclass(frozen=True)
class UnreliableCohort(Cohort):
    """A random number M_r of clients, all different: no amplification is claimed.

    M_r is uniform in [low, high], or one of the numbers of `law` with its probability.
    """

    low: int
    high: int
    law: tuple[tuple[int, float], ...] = ()  # (number, probability), numbers ascending

    def capacity(self, clients: int) -> int:
        return self.high

    def fewest(self, clients: int) -> int:
        return self.low

    def planned(self, clients: int) -> float:
        if self.law:
            return math.fsum(number * p for number, p in self.law)
        return (self.low + self.high) / 2

    def answering(self, clients: int) -> float:
        if self.law:
            return 1 / math.fsum(p / number for number, p in self.law)
        return (self.high - self.low + 1) / math.fsum(1 / number for number in range(self.low, self.high + 1))

    def draw(self, key: Key, clients: int) -> tuple[jax.Array, jax.Array]:
        key_number, key_who = jax.random.split(key)
        if self.law:
            numbers, p = (jnp.asarray(column) for column in zip(*self.law, strict=True))
            number = jax.random.choice(key_number, numbers, p=p)
        else:
            number = jax.random.randint(key_number, (), self.low, self.high + 1)
        return distinct(key_who, self.high, clients), jnp.arange(self.high) < number

    def __str__(self) -> str:
        if self.law:
            return "unreliable:" + ",".join(f"{number}={p:g}" for number, p in self.law)
        return f"unreliable:{self.low}-{self.high}"


def parse_cohort(text: str) -> Cohort:
    """Read 'full', 'poisson:0.2', 'fixed:25', 'unreliable:10-25' or 'unreliable:10=0.25,25=0.75'."""
    require(isinstance(text, str), "cohort", text, "use full, poisson:Q, fixed:K or unreliable:LOW-HIGH")
    name, _, argument = text.strip().partition(":")
    try:
        if name == "full" and not argument:
            return FullCohort()
        if name == "poisson":
            q = float(argument)
            sampling.require_probability("cohort", q, text)
            return PoissonCohort(q)
        if name == "fixed":
            size = int(argument)
            require(size >= 1, "cohort", text, "at least one client must take part")
            return FixedCohort(size)
        if name == "unreliable" and "=" in argument:
            return _of_law(text, argument)
        if name == "unreliable":
            low, _, high = argument.partition("-")
            require(1 <= int(low) <= int(high), "cohort", text, "write unreliable:LOW-HIGH with 1 <= LOW <= HIGH")
            return UnreliableCohort(int(low), int(high))
    except ValueError as error:
        if isinstance(error, InvalidInput):
            raise
    raise InvalidInput("cohort", text, "use full, poisson:Q, fixed:K or unreliable:LOW-HIGH")


def _of_law(text: str, argument: str) -> UnreliableCohort:
    """The numbers of clients and their probabilities that a text lists as M=P,M=P."""
    pairs = [part.partition("=") for part in argument.split(",")]
    law = tuple(sorted((int(number), float(p)) for number, _, p in pairs))
    numbers, probabilities = zip(*law, strict=True)
    different = numbers[0] >= 1 and len(set(numbers)) == len(numbers)
    require(different, "cohort", text, "write unreliable:M=P,M=P with different numbers M of at least 1")
    valid = all(0 < p <= 1 for p in probabilities) and abs(math.fsum(probabilities) - 1) < 1e-9
    require(valid, "cohort", text, "the probabilities must be positive and add up to 1")
    return UnreliableCohort(numbers[0], numbers[-1], law)
