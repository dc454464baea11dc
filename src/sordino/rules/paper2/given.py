"""What the theorems of paper 2 compute with: the words of their arguments, clients, noise, rounds and batches."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, NamedTuple

from sordino.errors import require
from sordino.rules.paper2.ensemble import Clients, clients_of, least_rounds
from sordino.rules.rule import CountOrEach, OneOrEach, Says, assumed

Records = Annotated[CountOrEach, Says("records of a client, one number or one a client")]
Answers = Annotated[CountOrEach, Says("clients that answer in a round; a list is a law, each number equally likely")]
Epsilon = Annotated[OneOrEach, Says("epsilon of every record against the server, one number or one a client")]
Delta = Annotated[OneOrEach, Says("delta, one number or one a client", below=1)]
Lipschitz = Annotated[float, assumed("every record's loss is L-Lipschitz; clipping gradients at L enforces it")]
Dimension = Annotated[int, Says("number of parameters")]
Radius = Annotated[float, assumed("W lies in the ball of this radius around 0 and holds a minimiser")]
Smooth = Annotated[float, assumed("every record's loss is beta-smooth")]
Mu = Annotated[float, assumed("every record's loss is mu-strongly convex")]
Batch = Annotated[int | None, Says("records that a client draws in a round; as few as the theorem allows if left out")]
Total = Annotated[int | None, Says("number of clients, where no list tells; as many as answer if left out")]
Rate = Annotated[float | None, Says("sigma^2 / (L^2 R) of the noise that is added; the paper's Xi if left out")]
Rounds = Annotated[int | None, Says("rounds, at least the theorem's; those if left out")]
Gap = Annotated[float | None, assumed("bound on F(w_0) - F*; L D if left out")]
Sampling = Annotated[float | None, assumed("bound on the std of a record's gradient within a client; L if left out")]
Drift = Annotated[float | None, assumed("bound on the std of the clients' gradients; L if left out")]

IID, CONVEX = "all clients' records come from one distribution", "every record's loss is convex"
NOISE = "The paper's sigma is true and 5 to 26 times too large; plans calibrate numerically unless asked for it."
READS = {
    "n": "task.options.records",
    "d": "task.options.d",
    "epsilon": "privacy.epsilon",
    "delta": "privacy.delta",
    "L": "algorithm.lipschitz",
    "D": "algorithm.radius",
    "mu": "algorithm.mu",
    "K": "algorithm.batch_size",
    "R": "run.rounds",
}
LAMBDA = NOISE + " Theorem D.1 has lambda = V / (2 D sqrt(R)), Lemma D.10 twice that; the rule gives the theorem's."
SGD, ACCELERATED = ("noisy_mb_sgd",), ("accelerated_mb_sgd",)
ROUNDS = {"run.rounds": "R", "algorithm.batch_size": "K"}
RUN = {"run.rounds": "R"}
SHUFFLED = RUN | {"algorithm.step_size": "eta"}
STEPS = ROUNDS | {"algorithm.step_size": "eta"}
SMOOTHED = {"task.options.smoothing": "beta", "algorithm.smoothness": "beta"}


class Known(NamedTuple):
    """What a theorem computes with."""

    clients: Clients
    K: int | None
    L: float
    d: int
    rate: float | None

    @property
    def most(self) -> float:
        """The largest batch that may be drawn."""
        return self.clients.fewest if self.K is None else self.K

    def spread(self, R: float) -> tuple[float, float]:
        """M~, and d Xi~ in R rounds."""
        xi = self.clients.xi(R) if self.rate is None else [self.rate] * len(self.clients.n)
        averages = self.clients.answering.averages(xi)
        return averages.clients, self.d * averages.spread

    def variance(self, R: float) -> float:
        """V^2 = d min{Sigma^2 / M', sigma_max^2 / M}, of the mean of a round."""
        M, spread = self.spread(R)
        return (256 if self.rate is None else 1) * self.L**2 * R * spread / M

    def rounds(self, R: int | None, enough: Callable[[float], float]) -> int:
        """R of the theorem, or the given one where it is enough for convergence and for privacy."""

        def both(r: float) -> float:
            return enough(r) if self._private(r) else max(enough(r), r + 1)

        if R is None:
            return least_rounds(both)
        require(enough(R) <= R, "R", R, f"the theorem needs {least_rounds(both)} rounds: use as many")
        remedy = f"the theorem needs {self.clients.least_batch(R)} records in each of {R} rounds: use as many"
        require(self._private(R), "K", self.most, remedy)
        return R

    def _private(self, R: float) -> bool:
        """Whether the paper's proof of privacy holds; the noise of an accountant needs no least batch."""
        return self.rate is not None or self.clients.least_batch(R) <= self.most

    def batch(self, R: int, samples: float = 1.0) -> int:
        """K: given, or the least for the proof of privacy and for `samples` records of a client in all rounds."""
        return self.K or min(int(self.clients.fewest), max(self.clients.least_batch(R), math.ceil(samples / R)))

    def noise_std(self, R: int) -> float:
        """The paper's sigma, the largest of all clients."""
        return self.L * math.sqrt(256 * R * max(self.clients.xi(R)))


def known_of(
    n: CountOrEach,
    M: CountOrEach,
    d: int,
    L: float,
    epsilon: OneOrEach,
    delta: OneOrEach,
    K: int | None,
    N: int | None,
    rate: float | None,
) -> Known:
    """The arguments of a theorem, checked together."""
    return Known(clients_of(n, epsilon, delta, M, N, K), K, L, d, rate)
