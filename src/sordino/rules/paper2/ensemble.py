"""Clients with different data and privacy, of whom a random number answers: the averages in paper 2's theorems.

Lowy and Razaviyayn, Assumption 2 and Appendix D. A bar with subscript m is the mean over the m clients with the largest
values:

    1/M  = E(1/M_r),   1/M' = sqrt(E(1/M_r^2))
    xi_i = ln(2.5 R / delta_i) ln(2 / delta_i) / (n_i epsilon_i)^2,    Xi = sqrt(E[(bar xi_{M_r})^2])

A theorem takes the smaller of Xi/M' and xi_max/M: M~ = M' and Xi~ = Xi if Xi/M' is the smaller, else M~ = M and
Xi~ = xi_max. Psi = L^2 Xi where all losses share L. (The text of Theorem 2.1
may be read as sqrt(M') in place of M'; its proof, eq. (31), and its informal version have M'.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sordino.errors import MOST_ROUNDS, InvalidInput, require
from sordino.rules.rule import CountOrEach, OneOrEach


class Averages(NamedTuple):
    """M~ and Xi~."""

    clients: float
    spread: float


class Answering(NamedTuple):
    """The law of M_r, each number equally likely."""

    counts: tuple[int, ...]

    @property
    def mean(self) -> float:
        """M = 1 / E(1/M_r)."""
        return len(self.counts) / sum(1 / m for m in self.counts)

    @property
    def prime(self) -> float:
        """M' = 1 / sqrt(E(1/M_r^2)), at most M."""
        return 1 / math.sqrt(sum(1 / m**2 for m in self.counts) / len(self.counts))

    def averages(self, values: Sequence[float]) -> Averages:
        """M~ and the average of values, one a client."""
        ordered = sorted(values, reverse=True)
        largest_means = [sum(ordered[:m]) / m for m in self.counts]
        average = math.sqrt(sum(mean**2 for mean in largest_means) / len(self.counts))
        if average / self.prime <= ordered[0] / self.mean:
            return Averages(self.prime, average)
        return Averages(self.mean, ordered[0])


class Clients(NamedTuple):
    """n_i, epsilon_i and delta_i of every client, and how many answer."""

    n: tuple[float, ...]
    epsilon: tuple[float, ...]
    delta: tuple[float, ...]
    answering: Answering

    @property
    def fewest(self) -> float:
        """n_min."""
        return min(self.n)

    def xi(self, R: float) -> list[float]:
        """xi_i of every client."""
        return [
            math.log(2.5 * R / delta) * math.log(2 / delta) / (n * epsilon) ** 2
            for n, epsilon, delta in zip(self.n, self.epsilon, self.delta, strict=True)
        ]

    def least_batch(self, R: float) -> int:
        """The least K for all clients: K_i >= epsilon_i n_i / (4 sqrt(2 R ln(2 / delta_i)))."""
        each = zip(self.n, self.epsilon, self.delta, strict=True)
        return max(1, math.ceil(max(e * n / (4 * math.sqrt(2 * R * math.log(2 / delta))) for n, e, delta in each)))


def clients_of(
    n: CountOrEach,
    epsilon: OneOrEach,
    delta: OneOrEach,
    M: CountOrEach,
    N: int | None,
    K: int | None,
) -> Clients:
    """Every client's own numbers. Refuses lists that do not fit together, and epsilons beyond ln(2 / delta)."""
    given = {"n": n, "epsilon": epsilon, "delta": delta}
    lengths = {name: len(value) for name, value in given.items() if isinstance(value, list | tuple)}
    counts = tuple(M) if isinstance(M, list | tuple) else (M,)
    clients = max(lengths.values()) if lengths else (N or max(counts))
    for name, length in lengths.items():
        require(length == clients, name, given[name], f"give one number, or one for each of {clients} clients")
    require(N is None or clients == N, "N", N, f"there are numbers for {clients} clients: leave it out")
    require(max(counts) <= clients, "M", M, f"there are only {clients} clients: at most as many answer")

    def each(value: CountOrEach | OneOrEach) -> tuple[float, ...]:
        return tuple(map(float, value)) if isinstance(value, list | tuple) else (float(value),) * clients

    known = Clients(each(n), each(epsilon), each(delta), Answering(counts))
    for own_epsilon, own_delta in zip(known.epsilon, known.delta, strict=True):
        limit = math.log(2 / own_delta)
        require(own_epsilon <= limit, "epsilon", epsilon, f"the theorem needs epsilon <= ln(2/delta) = {limit:.6g}")
    if K is not None:
        require(known.fewest >= K, "K", K, f"the smallest client has {known.fewest:g} records: use at most as many")
    return known


def least_rounds(enough: Callable[[float], float]) -> int:
    """The least whole R with R >= enough(R), for a bound that does not rise with R but for logarithms.

    The theorems ask for R in terms of Xi, which holds ln(2.5 R / delta) and so R itself.
    """
    high = 1
    while high < enough(high):
        high *= 2
        if high > 64 * MOST_ROUNDS:
            found = round(enough(high))
            raise InvalidInput("R", found, f"the theorem asks for more than {MOST_ROUNDS:,} rounds: change n or M")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if middle >= enough(middle) else (middle, high)
    require(high <= MOST_ROUNDS, "R", high, f"the theorem asks for more than {MOST_ROUNDS:,} rounds: change n or M")
    return high


def log_at_least_0(value: float) -> float:
    """max(0, ln value): where the logarithm of a theorem is negative, its term asks for nothing."""
    return math.log(value) if value > 1 else 0.0
