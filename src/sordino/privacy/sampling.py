"""How a release's data are sampled, and whether the sample is secret.

A sampling carries its own accounting (see `accountants`): Poisson belongs to add/remove, fixed size with and without
replacement to replace-one, and none may borrow another's accountant. Amplification needs a sample that the observer
does not see: clients are sampled by the server, records inside a client by the client.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from sordino.errors import InvalidInput, require


@dataclass(frozen=True)
class Full:
    """Every unit takes part in every round: no amplification."""

    name: ClassVar[str] = "full"
    sampling_prob: ClassVar[float] = 1.0

    def __str__(self) -> str:
        return self.name


def require_probability(field: str, q: float, text: str) -> None:
    """Refuse what is no probability, or below 2^-32: no draw of 32 bits has it, and accountants lose it."""
    require(2.0**-32 <= q <= 1, field, text, "the probability must be at most 1, and at least 2^-32")


@dataclass(frozen=True)
class Poisson:
    """Every unit takes part with probability q, independently; sums are divided by the planned number."""

    sampling_prob: float
    name: ClassVar[str] = "poisson"

    def __post_init__(self) -> None:
        require_probability("sampling", self.sampling_prob, str(self))

    def __str__(self) -> str:
        return f"{self.name}:{self.sampling_prob:g}"


@dataclass(frozen=True)
class _FixedSize:
    sample_size: int  # K
    population: int  # n
    name: ClassVar[str] = ""

    def __post_init__(self) -> None:
        require(self.population >= 1, "sampling", str(self), "the population n must be at least 1")
        require(self.sample_size >= 1, "sampling", str(self), "the sample size K must be at least 1")

    def __str__(self) -> str:
        return f"{self.name}:{self.sample_size}/{self.population}"


@dataclass(frozen=True)
class WithoutReplacement(_FixedSize):
    """K different units out of n, uniformly."""

    name: ClassVar[str] = "fixed"

    def __post_init__(self) -> None:
        super().__post_init__()
        remedy = f"K must not exceed n: draw at most {self.population}, or use with-replacement"
        require(self.sample_size <= self.population, "sampling", str(self), remedy)

    @property
    def sampling_prob(self) -> float:
        """K/n, the probability that a given unit is in the sample."""
        return self.sample_size / self.population


@dataclass(frozen=True)
class WithReplacement(_FixedSize):
    """K independent uniform draws from n units: a unit may be drawn several times."""

    name: ClassVar[str] = "with-replacement"

    @property
    def sampling_prob(self) -> float:
        """The probability that a given unit is drawn at least once."""
        return -math.expm1(self.sample_size * math.log1p(-1 / self.population)) if self.population > 1 else 1.0


Sampling = Full | Poisson | WithoutReplacement | WithReplacement


def parse_sampling(text: str) -> Sampling:
    """Read 'full', 'poisson:0.2', 'fixed:50/1000' or 'with-replacement:50/1000', as run files spell cohorts."""
    remedy = "use full, poisson:Q, fixed:K/N or with-replacement:K/N"
    name, _, argument = text.strip().partition(":")
    try:
        if name == Full.name and not argument:
            return Full()
        if name == Poisson.name:
            return Poisson(float(argument))
        for kind in (WithoutReplacement, WithReplacement):
            if name == kind.name:
                size, _, population = argument.partition("/")
                return kind(int(size), int(population))
    except ValueError as error:
        if isinstance(error, InvalidInput):
            raise
    raise InvalidInput("sampling", text, remedy)
