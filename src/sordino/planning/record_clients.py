"""What a plan that protects records knows of every client: its sizes, its bounds, its budget."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sordino.algorithms.records import RecordMethod, RecordOptions
from sordino.bounding import Clip
from sordino.errors import MOST_ROUNDS, InvalidInput, require
from sordino.mechanisms.gaussian import Gaussian
from sordino.planning.arguments import Arguments, usual_delta
from sordino.privacy.events import Disjoint, Repeated, sampled
from sordino.privacy.sampling import Full, Sampling, WithoutReplacement, WithReplacement
from sordino.tasks import Population
from sordino.types import ClientNumbers, Event, RecordFacts, Relation, Unit

Numbers = NDArray[np.float64]
SMALLEST_SHARE = 1e-25  # of one record in a message: float32 flushes 2^-126 a coordinate, 1e-9 of this at d = 1e8


@dataclass(frozen=True)
class RecordClients(RecordFacts):
    """What is known of every client, and the budget of its records; one entry each."""

    names: tuple[str, ...]
    epsilon: Numbers | None
    delta: Numbers
    one_pass: str | None  # the name of the pass, where every record is used once: another plan passes over them anew
    releases: int  # noisy gradients of one client in a round, each of a sample of its own
    with_replacement: bool = False  # whether a record may be drawn several times for one gradient

    def __len__(self) -> int:
        return len(self.sizes)

    @property
    def sensitivity(self) -> Numbers:
        """2 weight L / K: how far one replaced record moves a gradient of each client, before noise, with each draw."""
        return Relation.REPLACE_ONE.sensitivity_factor * self.weight * self.lipschitz / self.batch

    def sampling(self, i: int) -> Sampling:
        """How client i draws its records."""
        K, n = int(self.batch[i]), int(self.sizes[i])
        if self.with_replacement:
            return WithReplacement(K, n)
        return Full() if n == K or self.one_pass else WithoutReplacement(K, n)

    def event(self, i: int, noise_std: float, seen_by: str) -> Event:
        """What one round with this noise costs a record of client i."""
        message = Gaussian(noise_std).event(self.share(i), Relation.REPLACE_ONE, 1, unit=Unit.RECORD)
        return self.in_round(i, message, seen_by)

    def share(self, i: int) -> Clip:
        """The bound of one record's part in a message of client i, before noise."""
        return Clip(float(self.weight[i] * self.lipschitz[i] / self.batch[i]))

    def in_round(self, i: int, event: Event, seen_by: str) -> Event:
        """What a round costs a record of client i, if a message costs those that are drawn for it `event`."""
        event = Disjoint(event, f"{self.one_pass}, {seen_by}") if self.one_pass else sampled(event, self.sampling(i))
        return Repeated(event, self.releases) if self.releases > 1 else event

    def numbers(self) -> ClientNumbers:
        """The arrays over all clients of which each client is given its own entries."""
        return ClientNumbers(
            client=jnp.arange(len(self)),
            lipschitz=jnp.asarray(self.lipschitz, jnp.float32),
            batch=jnp.asarray(self.batch, jnp.int32),
            weight=jnp.asarray(self.weight, jnp.float32),
            noise_std=jnp.asarray(self.noise_std, jnp.float32),
        )


def record_method(plan: Arguments) -> tuple[RecordMethod, RecordOptions]:
    """The plan's method, and what it was asked for."""
    method = plan.method
    assert isinstance(method, RecordMethod)  # checked when the plan was made
    assert method.options is not None
    return method, method.options


def record_clients(plan: Arguments, population: Population) -> RecordClients:
    """Every client's numbers, from the options of the method and the population's sizes, before there is noise."""
    method, options = record_method(plan)
    if population.sizes is None:
        remedy = "a plan that protects records needs every client's number of records: give the task's population"
        raise InvalidInput("sizes", None, remedy)
    sizes = np.asarray(population.sizes, np.float64)
    M = len(sizes)
    batch = sizes if options.batch_size is None else np.minimum(_each(options.batch_size, M, "batch_size"), sizes)
    names = population.names or tuple(f"client {i}" for i in range(M))
    require(len(set(names)) == M, "names", list(names), "give every client a name of its own")
    clients = RecordClients(
        names=names,
        sizes=sizes,
        batch=batch,
        weight=_weights(options.weights, sizes),
        lipschitz=_each(options.lipschitz, M, "lipschitz"),
        noise_std=np.zeros(M),
        smoothness=_smoothness(plan, population),
        epsilon=None if plan.epsilon is None else _each(plan.epsilon, M, "epsilon"),
        delta=_each(usual_delta(sizes.sum()) if plan.delta is None else plan.delta, M, "delta"),
        one_pass=f"one pass {hashlib.sha256(repr(plan).encode()).hexdigest()[:8]}" if options.one_pass else None,
        releases=method.privacy.releases,
        with_replacement=method.with_replacement,
    )
    _require_few_releases(plan, clients)
    _require_visible(clients)
    if options.one_pass:
        _require_enough_records(plan, clients)
    return clients


def _weights(asked: str | tuple[float, ...], sizes: Numbers) -> Numbers:
    """How much each client counts; the mean is 1."""
    if isinstance(asked, str):
        return sizes / sizes.mean() if asked == "records" else np.ones(len(sizes))
    remedy = f"give one number for each of the {len(sizes)} clients"
    require(len(asked) == len(sizes), "weights", asked, remedy)
    return np.asarray(asked, np.float64) / np.mean(asked)


def _require_visible(clients: RecordClients) -> None:
    """Refuse messages so small that float32 loses them, and with them what one record adds to another's gradient."""
    share = clients.weight * clients.lipschitz / clients.batch
    worst = int(np.argmin(share))
    remedy = (
        f"one record of {clients.names[worst]} moves its message by {2 * share[worst]:.3g} at most, and float32 is "
        f"exact for {2 * SMALLEST_SHARE:g} or more: use a larger bound, or weights = clients"
    )
    require(bool(share[worst] >= SMALLEST_SHARE), "lipschitz", float(clients.lipschitz[worst]), remedy)


def _require_few_releases(plan: Arguments, clients: RecordClients) -> None:
    if clients.releases > 1:  # rounds alone were checked already
        remedy = f"{plan.rounds} rounds of so many noisy gradients exceed the {MOST_ROUNDS:,} that can be composed"
        require(plan.rounds * clients.releases <= MOST_ROUNDS, "local_steps", clients.releases, remedy)


def _require_enough_records(plan: Arguments, clients: RecordClients) -> None:
    needed = plan.rounds * clients.batch
    worst = int(np.argmax(needed - clients.sizes))
    remedy = (
        f"{plan.rounds} rounds of {clients.batch[worst]:g} records would use some of the {clients.sizes[worst]:g} "
        f"records of {clients.names[worst]} twice, and one pass uses each once: ask for fewer rounds or a smaller "
        "batch_size"
    )
    require(bool(np.all(needed <= clients.sizes)), "rounds", plan.rounds, remedy)


def _each(values: float | Sequence[float], clients: int, field: str) -> Numbers:
    several = tuple(values) if isinstance(values, Sequence) else (values,)
    remedy = f"give one number, or one for each of the {clients} clients"
    require(len(several) in (1, clients), field, several, remedy)
    return np.broadcast_to(np.asarray(several, np.float64), (clients,)).copy()


def _smoothness(plan: Arguments, population: Population) -> float:
    """beta: given, or from the model and the public bound on features."""
    method, options = record_method(plan)
    if not method.uses_smoothness:
        return math.inf
    if options.smoothness is not None:
        return float(options.smoothness)
    if population.smoothness is None or options.feature_bound is None:
        remedy = "give beta of one record's loss, or feature_bound with a model whose beta is known (logistic)"
        raise InvalidInput("smoothness", None, remedy)
    return float(population.smoothness(options.feature_bound))
