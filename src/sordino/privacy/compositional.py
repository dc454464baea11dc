"""Compositional algorithms (paper 2, Definition 4), and Algorithm 3, which is private without being one.

An algorithm of R rounds whose local randomizer in round r is (eps_r, delta_r)-DP, and which is (eps_0, delta_0)-DP over
all rounds, is C-compositional if

    sqrt(sum_r eps_r^2) <= C eps_0

The lower bounds of Section 3 are about such algorithms, with an absolute constant C. Rounds of Gaussian noise have a C
near 1 (1.15 for 100 rounds of noise multiplier 80, delta = 1e-5), rounds of one pure epsilon have 1 / sqrt(R).

Algorithm 3, one record of {e_1, ..., e_d} a client, Q randomised response (x itself with probability
e^eps / (e^eps + d - 1), else any other element):

    for r = 1, ..., d:  send Q(x) if x = e_r, and 0 otherwise

As printed it is not private at all: the only round whose message is not 0 is the one that x names, and Q never sends 0.
With a uniform element of {e_1, ..., e_d} in place of 0 (as in Joseph, Mao, Neel, Roth 2019, Example 2.2) two records
differ in two rounds only, whose worst losses add up to eps, and the example shows what it is meant to:

    eps_r = max{ log(d e^eps / (e^eps + d - 1)), log((e^eps + d - 1) / d) },    eps_0 = eps

eps_r tends to eps as d grows, so that sqrt(sum_r eps_r^2) / eps_0 grows like sqrt(d).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from sordino.errors import require, require_count
from sordino.privacy.accountants import epsilon_of
from sordino.privacy.events import Repeated
from sordino.types import Event, Relation


class Compositional(NamedTuple):
    """The figures of Definition 4."""

    of_rounds: tuple[float, ...]  # eps_r
    total: float  # eps_0

    @property
    def constant(self) -> float:
        """The least C."""
        if self.total == 0:
            return 0.0 if not any(self.of_rounds) else math.inf
        return math.sqrt(math.fsum(epsilon**2 for epsilon in self.of_rounds)) / self.total


def compositionality(one_round: Event, rounds: int, delta: float, relation: Relation | None = None) -> Compositional:
    """The figures of `rounds` equal releases: eps_0 at `delta`, and every eps_r at `delta` / rounds."""
    require_count(rounds, "rounds")
    each = epsilon_of(one_round, delta / rounds, relation)
    return Compositional((each,) * rounds, epsilon_of(Repeated(one_round, rounds), delta, relation))


def algorithm_3(d: int, epsilon: float) -> Compositional:
    """The figures of Algorithm 3 with a uniform element in place of 0."""
    require_count(d, "d")
    require(d >= 2, "d", d, "randomised response needs at least two elements")
    require(0 < epsilon < math.inf, "epsilon", epsilon, "must be finite and positive")
    share = math.log1p(math.expm1(epsilon) / d)  # log((e^eps + d - 1) / d)
    return Compositional((max(epsilon - share, share),) * d, epsilon)


def algorithm_3_laws(d: int, epsilon: float, *, as_printed: bool = False) -> Sequence[Sequence[Sequence[float]]]:
    """laws[x][r]: the probabilities of e_1, ..., e_d, and of 0, in round r of a client that holds e_x."""
    true, other = math.exp(epsilon) / (math.exp(epsilon) + d - 1), 1 / (math.exp(epsilon) + d - 1)
    silent = [0.0] * d + [1.0] if as_printed else [1 / d] * d + [0.0]
    return [
        [[true if k == x else other for k in range(d)] + [0.0] if r == x else silent for r in range(d)]
        for x in range(d)
    ]
