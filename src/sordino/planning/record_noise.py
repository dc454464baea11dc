"""Noise of plans that protect records: every client adds its own.

    local     client i sends g_i + N(0, sigma_i^2 I). The server, and in a peer-to-peer network every other client, sees
              each message; a model user sees their sums only, which hold the noise of all.
    shuffle   the same, with smaller noise, through a shuffler that hands the messages on without names.

A client draws its records in secret, which amplifies against everybody; who takes part in a round is seen, and
amplifies nothing.

Shuffling (Feldman, McMillan and Talwar 2021) hides a message among those of other clients only if any two of them are
close, whatever their records: that is 2 L, not the 2 L / K by which one record moves one client's mean. All clients
must also use the same noise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from sordino.bounding import Clip
from sordino.errors import Refused, require
from sordino.mechanisms.gaussian import Gaussian, GaussianRequest, scaled_std
from sordino.planning.arguments import Arguments
from sordino.planning.cohort import FullCohort, UnreliableCohort
from sordino.planning.record_clients import Numbers, RecordClients
from sordino.privacy import published, wording
from sordino.privacy.accountants import epsilon_of
from sordino.privacy.calibration import calibrate, calibrate_gaussian
from sordino.privacy.events import Approximate, NonPrivate, Pure, Repeated, parts_of, sampled
from sordino.privacy.gaussian import gaussian_epsilon, gaussian_noise_multiplier
from sordino.privacy.sampling import Sampling, WithoutReplacement
from sordino.privacy.shuffle import Apart, shuffle_epsilon
from sordino.types import Event, Observer, Relation, Trust, Unit

Costs: TypeAlias = Event | tuple[Event, ...]  # of a round: one event for all clients, or one each
REPLACE_ONE = Relation.REPLACE_ONE


@dataclass(frozen=True)
class RecordNoise:
    """Every client's noise, what a round then costs its records against whom, and what that assumes."""

    std: Numbers
    views: dict[tuple[Observer, ...], Costs]
    assumptions: dict[Observer, tuple[str, ...]] = field(default_factory=dict)


def record_noise(plan: Arguments, clients: RecordClients) -> RecordNoise:
    """The noise that a plan asks for."""
    if not isinstance(plan.noise, GaussianRequest):
        everybody = (Observer.SERVER, Observer.PEER, Observer.MODEL_USER)
        return RecordNoise(np.zeros(len(clients)), {everybody: NonPrivate()})
    return _shuffled(plan, plan.noise, clients) if plan.trust is Trust.SHUFFLE else _local(plan, plan.noise, clients)


def _local(plan: Arguments, noise: GaussianRequest, clients: RecordClients) -> RecordNoise:
    std = _local_std(plan, noise, clients)
    messages = tuple(clients.event(i, std[i], "messages") for i in range(len(clients)))
    if not _models_show_sums_only(plan):
        return RecordNoise(std, {(Observer.SERVER, Observer.PEER, Observer.MODEL_USER): messages})
    return RecordNoise(
        std,
        {(Observer.SERVER, Observer.PEER): messages, (Observer.MODEL_USER,): _through_sums(clients, std)},
        {Observer.MODEL_USER: (wording.ASSUME_OTHERS_HONEST,)},
    )


def _local_std(plan: Arguments, noise: GaussianRequest, clients: RecordClients) -> Numbers:
    z = (_multiplier(plan, noise, clients, i) for i in range(len(clients)))
    return np.array([scaled_std(each, sensitivity) for each, sensitivity in zip(z, clients.sensitivity, strict=True)])


def _models_show_sums_only(plan: Arguments) -> bool:
    """Whether a model user sees the messages of all clients, with the noise that was added to them, as sums alone."""
    privacy = plan.method.privacy
    return isinstance(plan.cohort, FullCohort) and privacy.uses_sum_only and not privacy.noise_inside


def _through_sums(clients: RecordClients, std: Numbers) -> tuple[Event, ...]:
    """A model user sees sums of all messages, which hold the noise of all."""
    everybody = float(np.linalg.norm(std))
    return tuple(clients.event(i, everybody, "models") for i in range(len(clients)))


def _multiplier(plan: Arguments, noise: GaussianRequest, clients: RecordClients, i: int) -> float:
    """Client i's noise multiplier: given, the least that meets its (epsilon, delta), or the theorem's."""
    if noise.noise_multiplier is not None:
        return float(noise.noise_multiplier)
    assert clients.epsilon is not None
    epsilon, delta, K, n = float(clients.epsilon[i]), float(clients.delta[i]), int(clients.batch[i]), clients.sizes[i]
    if noise.calibration == "theorem-2.1":
        remedy = "Theorem 2.1 speaks of repeated samples: calibrate one pass numerically"
        require(not clients.one_pass, "calibration", "theorem-2.1", remedy)
        sigma = clients.lipschitz[i] * published.minibatch_theorem_2_1(int(n), plan.rounds, K, epsilon, delta)
        return float(sigma * clients.weight[i] / clients.sensitivity[i])
    if clients.one_pass:
        return gaussian_noise_multiplier(epsilon, delta)
    return _least(epsilon, delta, plan.rounds * clients.releases, clients.sampling(i))


@functools.cache  # clients of one size have one answer
def _least(epsilon: float, delta: float, releases: int, sampling: Sampling) -> float:
    return calibrate_gaussian(epsilon=epsilon, delta=delta, rounds=releases, sampling=sampling, relation=REPLACE_ONE)


def _fewest_messages(plan: Arguments, clients: int) -> int:
    """How many noisy messages come together at least."""
    return plan.cohort.low if isinstance(plan.cohort, UnreliableCohort) else plan.cohort.capacity(clients)


def noise_by_secure_aggregation(plan: Arguments, clients: RecordClients) -> float:
    """The std that each client would need under secure aggregation, where the noise of all participants adds up."""
    assert isinstance(plan.noise, GaussianRequest)
    alone = _local_std(plan, plan.noise, clients)
    return float(alone.max() / math.sqrt(_fewest_messages(plan, len(clients))))


# --- Behind a shuffler ----------------------------------------------------------------------------------------------


def _shuffled(plan: Arguments, noise: GaussianRequest, clients: RecordClients) -> RecordNoise:
    """One noise for all, the least that gives the most demanding client its (epsilon, delta) behind the shuffler."""
    _require_alike(clients)
    M = len(clients)
    messages = _fewest_messages(plan, M)
    event = _cost_behind_shuffler(plan, clients)
    x = _least_ratio(plan, noise, clients, lambda x, i: event(x, i, messages))
    std: Numbers = np.full(M, 2 * float(clients.lipschitz[0]) * x)
    server = tuple(event(x, i, messages) for i in range(M))
    peer = tuple(event(x, i, max(1, messages - 1)) for i in range(M))  # a peer knows its own message
    assumptions = {
        Observer.SERVER: _assumed(server, wording.assume_shuffler(messages)),
        Observer.PEER: _assumed(peer, wording.assume_shuffler(messages - 1, others=True)),
    }
    views: dict[tuple[Observer, ...], Costs] = {(Observer.SERVER,): server, (Observer.PEER,): peer}
    if _models_show_sums_only(plan):
        views[(Observer.MODEL_USER,)] = _through_sums(clients, std)
        assumptions[Observer.MODEL_USER] = (wording.ASSUME_OTHERS_HONEST,)
    else:
        views[(Observer.MODEL_USER,)] = server
        assumptions[Observer.MODEL_USER] = assumptions[Observer.SERVER]
    return RecordNoise(std, views, assumptions)


def _require_alike(clients: RecordClients) -> None:
    for name, values in (("lipschitz", clients.lipschitz), ("weights", clients.weight), ("batch_size", clients.batch)):
        remedy = "a shuffler hides messages of one kind: give all clients the same"
        require(bool(np.all(values == values[0])), name, values.tolist(), remedy)
    require(not clients.one_pass, "one_pass", True, "with a shuffler records are drawn anew in every round")
    remedy = "no theorem amplifies a shuffled round by such a sample: use without-replacement, or trust local"
    require(not clients.with_replacement, "draws", "with-replacement", remedy)


def _cost_behind_shuffler(plan: Arguments, clients: RecordClients) -> Callable[[float, int, int], Event]:
    """(x, i, messages) -> what a round with noise of std 2 L x costs a record of client i among so many messages."""
    L, K = float(clients.lipschitz[0]), float(clients.batch[0])

    @functools.cache  # many clients are alike
    def better(x: float, sampling: Sampling, delta: float, hidden_among: int) -> Event:
        """Shuffled or not, whichever promises more. Both hold."""
        message = Gaussian(2 * L * x).event(Clip(L / K), REPLACE_ONE, 1, unit=Unit.RECORD)
        plain, hidden = sampled(message, sampling), shuffled_event(x, hidden_among, sampling, plan.rounds, delta, K)
        costs = [(epsilon_of(Repeated(e, plan.rounds), delta, REPLACE_ONE), e) for e in (plain, hidden) if e]
        return min(costs, key=lambda cost: cost[0])[1]

    return lambda x, i, hidden_among: better(x, clients.sampling(i), float(clients.delta[i]), hidden_among)


def _least_ratio(
    plan: Arguments, noise: GaussianRequest, clients: RecordClients, event: Callable[[float, int], Event]
) -> float:
    """x, the noise over the largest distance of two messages: given, or the least that meets every demand."""
    if noise.noise_multiplier is not None:
        return float(noise.noise_multiplier) / float(clients.batch[0])
    assert clients.epsilon is not None
    demands = zip(clients.epsilon, clients.delta, clients.sizes, strict=True)
    # Equal demands of equally large clients have one answer.
    distinct = {(float(epsilon), float(delta), float(n)): i for i, (epsilon, delta, n) in enumerate(demands)}

    def least(i: int, epsilon: float, delta: float) -> float:
        def all_rounds(x: float) -> Event:
            return Repeated(event(x, i), plan.rounds)

        return calibrate(all_rounds, epsilon=epsilon, delta=delta, relation=REPLACE_ONE, tolerance=1e-5)

    return max(least(i, epsilon, delta) for (epsilon, delta, _), i in distinct.items())


def _assumed(events: tuple[Event, ...], shuffler: str) -> tuple[str, ...]:
    return (shuffler, wording.ASSUME_OTHERS_ADD_NOISE) if relies_on_shuffler(events) else ()


def relies_on_shuffler(events: Costs) -> bool:
    """Whether some client's promise rests on the shuffler."""
    several = (events,) if isinstance(events, Event) else events
    return any(isinstance(part, Approximate) for event in several for part in parts_of(event))


def shuffled_event(
    x: float, messages: int, sampling: Sampling, rounds: int, delta: float, batch: float = 1.0
) -> Event | None:
    """One round of `messages` shuffled messages, each with Gaussian noise of std x times their largest distance.

    A message is a mean over `batch` records, of which one moves it by 1 / batch of that distance: paper 2, Theorem E.2.
    Half of delta pays for the approximations: that of the shuffled round, delta_s, and within it that of the Gaussian,
    delta_0. None where shuffling certifies nothing.
    """
    q = sampling.sampling_prob if isinstance(sampling, WithoutReplacement) else 1.0
    delta_s = min(delta / (2 * q * rounds), 0.1)
    delta_0 = delta_s / (8 * messages)
    eps_0, eps_1 = gaussian_epsilon(1 / (x * batch), delta_0), gaussian_epsilon(1 / x, delta_0)
    if eps_0 <= 0 or eps_1 > 50:
        return None
    try:
        eps_s = shuffle_epsilon(eps_0, messages, delta_s, delta_0, apart=Apart(max(eps_0, eps_1), delta_0))
    except Refused:
        return None
    return sampled(Approximate(Pure(eps_s), delta_s, unit=Unit.RECORD, relation=REPLACE_ONE), sampling)
