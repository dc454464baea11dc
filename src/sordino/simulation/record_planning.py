"""Plans of methods whose unit is the record: every client adds noise of its own, and has a guarantee of its own.

    local     client i sends g_i + N(0, sigma_i^2 I). The server, and in a peer-to-peer network every other client, sees
              each message; a model user sees their sums only, which hold the noise of all.
    shuffle   the same, with smaller noise, through a shuffler that hands the messages on without names.

Neighbours replace one record of one client, so the numbers of records n_i are public. A client draws its records in
secret, which amplifies against everybody; who takes part in a round is seen, and amplifies nothing.

Shuffling (Feldman, McMillan and Talwar 2021) hides a message among those of other clients only if any two of them are
close, whatever their records: that is 2 L, not the 2 L / K by which one record moves one client's mean. All clients
must also use the same noise.

A method may take several noisy gradients in a round, `releases_a_round`, and add the noise of each itself,
`adds_noise`: its messages are made from them, and the engine adds nothing. Its clients' paths differ and bend with
their own noise, so a model user is promised what the server is, and no shuffler is offered.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from sordino.algorithms.minibatch import Numbers, Public
from sordino.errors import MOST_ROUNDS, InvalidInput, Refused, require, require_drawable
from sordino.mechanisms import none
from sordino.mechanisms.gaussian import Gaussian as GaussianNoise
from sordino.privacy import published
from sordino.privacy.accountants import epsilon_of
from sordino.privacy.calibration import calibrate, calibrate_gaussian
from sordino.privacy.certification import certify
from sordino.privacy.events import (
    UNTOLD,
    Approximate,
    ByHolder,
    Disjoint,
    Event,
    Gaussian,
    NonPrivate,
    Pure,
    Repeated,
    parts_of,
    sampled,
)
from sordino.privacy.gaussian import gaussian_epsilon, gaussian_noise_multiplier
from sordino.privacy.guarantee import OTHERS_ADD_NOISE, OTHERS_LOOK_AWAY, Certificate, Warning
from sordino.privacy.sampling import Full, Sampling, WithoutReplacement
from sordino.privacy.shuffle import shuffle_epsilon
from sordino.simulation.cohort import Cohort, Poisson, Unreliable
from sordino.simulation.cohort import Full as FullCohort
from sordino.simulation.engine import PerClient, remembers_noise
from sordino.summation import rounding_share
from sordino.types import Observer, Relation, Unit

if TYPE_CHECKING:
    from sordino.simulation.planning import Plan
    from sordino.simulation.tasks import Task

__all__ = ["check_records", "resolve_records", "shuffled_event"]

NOISES = ("numeric", "theorem-2.1", "acg16")
NOTICEABLE = 0.01  # share by which rounding may add to a sensitivity before the certificate warns
_MOST_ROWS = 20
Release = tuple[str, tuple[Observer, ...], Event]


def check_records(
    algorithm: Any,
    *,
    mechanism: str,
    trust: str,
    cohort: Cohort,
    relation: Relation | None,
    epsilon: Any,
    delta: Any,
    noise_multiplier: float | None,
    options: dict[str, Any],
) -> None:
    """Refuse what a record-level plan cannot be, before the task is known."""
    require(
        relation in (None, Relation.REPLACE_ONE),
        "relation",
        relation,
        "a client's number of records is public: use replace-one",
    )
    remedy = "clients protect their records from the server: use local, or shuffle"
    kept = ("local", "shuffle") if mechanism != "none" else ("local", "shuffle", "central")  # central is the default
    require(trust in kept, "trust", trust, remedy)
    unknown = next((name for name in options if name != "noise"), None)
    require(unknown is None, unknown or "", options.get(unknown or ""), "is no option of record-level noise")
    remedy = "records are protected by Gaussian noise: use gaussian, or none"
    require(mechanism in ("gaussian", "none"), "mechanism", mechanism, remedy)
    if mechanism == "none":
        wanted = epsilon is not None or noise_multiplier is not None
        require(not wanted, "mechanism", mechanism, "without noise no epsilon can be met: leave epsilon out")
        require(not options, "noise", options.get("noise"), "needs a mechanism: name one")
        return
    remedy = "give either epsilon (with delta) or noise_multiplier, not both and not neither"
    require((epsilon is None) != (noise_multiplier is None), "epsilon", epsilon, remedy)
    require(epsilon is None or delta is not None, "delta", delta, "give delta with epsilon")
    noise = options.get("noise", "numeric")
    if noise not in NOISES:
        raise InvalidInput("noise", noise, "use numeric or theorem-2.1")
    if noise == "acg16":
        published.minibatch_acg16()
    require(noise == "numeric" or epsilon is not None, "noise", noise, "the theorem needs epsilon and delta")
    if algorithm.adds_noise:
        remedy = (
            "a shuffler's theorem is about noise on messages, and this method's is inside its local steps: use local"
        )
        require(trust == "local", "trust", trust, remedy)
        remedy = "Theorem 2.1 is about one gradient a round: calibrate numerically"
        require(noise == "numeric", "noise", noise, remedy)
    if trust == "shuffle":
        many = isinstance(cohort, Poisson)
        require(
            not many, "cohort", str(cohort), "shuffling hides among a known number of messages: use full or fixed:K"
        )
        require(noise == "numeric", "noise", noise, "with a shuffler noise is calibrated numerically: leave out")


@dataclass(frozen=True)
class _Clients:
    """What is known of every client; one entry each."""

    names: tuple[str, ...]
    sizes: Numbers  # n_i
    batch: Numbers  # K_i
    weight: Numbers
    lipschitz: Numbers  # L_i
    epsilon: Numbers | None
    delta: Numbers
    one_pass: str | None  # which pass, where every record is used once: another plan goes through the records anew
    releases: int  # noisy gradients of one client in a round, each of a sample of its own

    @property
    def sensitivity(self) -> Numbers:
        """How far one record moves a gradient, before noise: 2 weight_i L_i / K_i."""
        return 2 * self.weight * self.lipschitz / self.batch

    def sampling(self, i: int) -> Sampling:
        """How client i draws its records."""
        K, n = int(self.batch[i]), int(self.sizes[i])
        return Full() if n == K or self.one_pass else WithoutReplacement(K, n)

    def event(self, i: int, noise_multiplier: float, seen_by: str) -> Event:
        """What one round costs a record of client i."""
        event: Event = Gaussian(noise_multiplier)
        event = Disjoint(event, f"{self.one_pass}, {seen_by}") if self.one_pass else sampled(event, self.sampling(i))
        return Repeated(event, self.releases) if self.releases > 1 else event


def resolve_records(
    plan: Plan, d: int, task: Task | None
) -> tuple[Any, Any, str, Certificate, tuple[Release, ...], dict[str, Any]]:
    """The method with its step sizes, every client's noise, and the certificate: the fields of `Resolved`."""
    if task is None:
        raise InvalidInput("task", None, "a record-level plan needs every client's number of records: give the task")
    clients = _clients(plan, task)
    beta = _smoothness(plan.algorithm.asked, task) if plan.algorithm.uses_smoothness else math.inf
    private = plan.mechanism != "none"
    if not private:
        std = np.zeros(len(clients.sizes))
        views: dict[tuple[Observer, ...], Any] = {(Observer.SERVER, Observer.PEER, Observer.MODEL_USER): NonPrivate()}
        assumed: dict[Observer, tuple[str, ...]] = {}
    elif plan.trust == "shuffle":
        std, views, assumed = _shuffled(plan, clients)
    else:
        std, views, assumed = _local(plan, clients)
    public = Public(
        d=d,
        rounds=plan.rounds,
        cohort=plan.cohort.planned(len(clients.sizes)),
        sizes=clients.sizes,
        batch=clients.batch,
        weight=clients.weight,
        lipschitz=clients.lipschitz,
        noise_std=std,
        smoothness=beta,
    )
    algorithm, constants = plan.algorithm.for_public(public)
    remedy = "a model user is promised the noise of all clients, which must be fresh in every round: leave it out"
    require(not remembers_noise(algorithm), "remembers_noise", True, remedy)
    for value in std if private else ():
        require_drawable("noise_std", float(value))
    each = GaussianNoise(jnp.asarray(std, jnp.float32))
    certificate = Certificate(())
    for observers, seen in views.items():
        for observer in observers:
            part = _certified(plan, clients, observer, seen, assumed.get(observer, ()))
            certificate = Certificate.merge_observers(certificate, part)
    if private:
        certificate = certificate.with_warnings(*_about_means(int(clients.batch.max())), *_about_records(task))
    if plan.trust == "shuffle" and private and not _hides(views[(Observer.SERVER,)]):
        text = "this few messages over this many rounds hide nothing: the noise is that of trust local"
        certificate = certificate.with_warnings(Warning("shuffle-adds-nothing", text))
    who, untold = (task.dealt, clients.names), "" if task.dealt else UNTOLD + f"task {task.token}"
    releases = tuple(
        ("gradient", observers, _for_ledger(seen, views, who, untold)) for observers, seen in views.items()
    )
    said = {"parameters": float(d), "clients": float(len(std)), "planned_cohort": public.cohort} | {
        "bits_per_message": 32.0 * d * getattr(algorithm, "message_parts", 1),
        **({"assumed": _assumptions(plan, clients, constants)} if constants else {}),
        "each_client": _rows(clients, std, certificate)[:_MOST_ROWS],
    }
    if plan.trust == "shuffle" and private:
        # With secure aggregation the noise of all who come, few as they may be, would do what each alone does here.
        alone = np.array([_local_noise(plan, clients, i) for i in range(len(std))]) * clients.sensitivity
        said["noise_std_by_secure_aggregation"] = float(alone.max() / math.sqrt(_fewest(plan, len(std))))
    trust = plan.trust if private else "none"
    # Messages of a method that adds the noise itself are noisy already, and leave the client as they are.
    mechanism = PerClient(each) if private and not algorithm.adds_noise else none()
    return algorithm, mechanism, trust, certificate, releases, said


def counted(records: int | None, delta: float) -> tuple[int | None, tuple[Warning, ...]]:
    """How many records share a delta, and a warning where it is too large for so many: then nothing is counted."""
    if records is None or delta < 1 / records:
        return records, ()
    text = f"delta = {delta:g} is not below 1/{records}, the share of one record: some may be exposed outright"
    return None, (Warning("delta-too-large", text),)


def about_sums(what: str, share: float, remedy: str) -> tuple[Warning, ...]:
    """A warning where rounding may move a sum noticeably further than one unit should."""
    if share < NOTICEABLE:
        return ()
    text = f"{what} are rounded to float32: data made for it may move one by up to {100 * share:.2g} % more than is "
    return (Warning("rounded-sums", f"{text}accounted; {remedy}"),)


def _about_means(K: int) -> tuple[Warning, ...]:
    """One record, replaced, is to move a sum by twice the bound; the sum is divided by K and multiplied by a weight."""
    share = rounding_share(K, scalings=2) / 2
    return about_sums(f"means of {K} gradients", share, "take a smaller batch_size")


def _about_records(task: Task) -> tuple[Warning, ...]:
    if not task.data.overlapping:
        return ()
    text = "records overlap: what is promised is about one of them alone, and not about what several share"
    return (Warning("records-overlap", text),)


# --- Clients ------------------------------------------------------------------------------------------------------


def _clients(plan: Plan, task: Task) -> _Clients:
    asked, sizes = plan.algorithm.asked, np.asarray(task.data.size, np.float64)
    M = len(sizes)
    require(bool(np.all(sizes >= 1)), "clients", int(sizes.min()), "every client must hold at least one record")
    batch = sizes if asked.batch_size is None else np.minimum(_each(asked.batch_size, M, "batch_size"), sizes)
    delta = _each((min(1e-5, 0.1 / sizes.sum()),) if plan.delta is None else plan.delta, M, "delta")
    names = task.data.names or tuple(f"client {i}" for i in range(M))
    require(len(set(names)) == M, "names", list(names), "give every client a name of its own")
    clients = _Clients(
        names,
        sizes,
        batch,
        sizes / sizes.mean() if asked.weights == "records" else np.ones(M),
        _each(asked.lipschitz, M, "lipschitz"),
        None if plan.epsilon is None else _each(plan.epsilon, M, "epsilon"),
        delta,
        f"one pass {hashlib.sha256(repr(plan).encode()).hexdigest()[:8]}" if asked.one_pass else None,
        plan.algorithm.releases_a_round,
    )
    if clients.releases > 1:  # rounds alone were checked already
        remedy = (
            f"{plan.rounds} rounds of so many noisy gradients are more than the {MOST_ROUNDS:,} that can be composed"
        )
        require(plan.rounds * clients.releases <= MOST_ROUNDS, "local_steps", clients.releases, remedy)
    if asked.one_pass:
        needed = plan.rounds * batch
        worst = int(np.argmax(needed - sizes))
        remedy = (
            f"{plan.rounds} rounds of {batch[worst]:g} records would use some of the {sizes[worst]:g} records of "
            f"{clients.names[worst]} twice, and one pass uses each once: ask for fewer rounds or a smaller batch_size"
        )
        require(bool(np.all(needed <= sizes)), "rounds", plan.rounds, remedy)
    return clients


def _each(values: Any, clients: int, field: str) -> Numbers:
    """One number for all clients, or one each."""
    several = tuple(values) if isinstance(values, Sequence) else (values,)
    remedy = f"give one number, or one for each of the {clients} clients"
    require(len(several) in (1, clients), field, several, remedy)
    return np.broadcast_to(np.asarray(several, np.float64), (clients,)).copy()


def _smoothness(asked: Any, task: Task) -> float:
    """beta: given, or from the model and the public bound on features."""
    if asked.smoothness is not None:
        return float(asked.smoothness)
    remedy = "give beta of one record's loss, or feature_bound with a model whose beta is known (logistic)"
    known = task.model.smoothness is not None and asked.feature_bound is not None
    require(known, "smoothness", None, remedy)
    assert task.model.smoothness is not None
    return float(task.model.smoothness(asked.feature_bound))


# --- Noise --------------------------------------------------------------------------------------------------------


def _local(plan: Plan, clients: _Clients) -> tuple[Numbers, dict[Any, Any], dict[Observer, tuple[str, ...]]]:
    """Every client's noise, what a round costs its records against whom, and what that assumes."""
    M = len(clients.sizes)
    z = np.array([_local_noise(plan, clients, i) for i in range(M)])
    std = z * clients.sensitivity
    messages = tuple(clients.event(i, z[i], "messages") for i in range(M))
    if not isinstance(plan.cohort, FullCohort) or not _uses_sums_only(plan):
        return std, {(Observer.SERVER, Observer.PEER, Observer.MODEL_USER): messages}, {}
    together, assumed = _sums(clients, std)
    return std, {(Observer.SERVER, Observer.PEER): messages, (Observer.MODEL_USER,): together}, assumed


def _uses_sums_only(plan: Plan) -> bool:
    """Whether models depend on the messages, with the noise that was added to them, through their sum alone."""
    return getattr(plan.algorithm, "only_sums", False) and not plan.algorithm.adds_noise  # a method must say so itself


def _sums(clients: _Clients, std: Numbers) -> tuple[tuple[Event, ...], dict[Observer, tuple[str, ...]]]:
    """A model user sees sums of all messages, which hold the noise of all."""
    everybody = float(np.linalg.norm(std))
    events = tuple(
        clients.event(i, everybody / sensitivity, "models") for i, sensitivity in enumerate(clients.sensitivity)
    )
    return events, {Observer.MODEL_USER: (OTHERS_LOOK_AWAY,)}


@functools.cache  # clients of one size have one answer
def _calibrated(epsilon: float, delta: float, releases: int, sampling: Sampling) -> float:
    relation = Relation.REPLACE_ONE
    return calibrate_gaussian(epsilon=epsilon, delta=delta, rounds=releases, sampling=sampling, relation=relation)


def _local_noise(plan: Plan, clients: _Clients, i: int) -> float:
    """Client i's noise multiplier: given, the least that meets its (epsilon, delta), or the theorem's."""
    if plan.noise_multiplier is not None:
        return float(plan.noise_multiplier)
    assert clients.epsilon is not None
    epsilon, delta, K, n = float(clients.epsilon[i]), float(clients.delta[i]), int(clients.batch[i]), clients.sizes[i]
    if plan.options.get("noise") == "theorem-2.1":
        remedy = "Theorem 2.1 speaks of repeated samples: calibrate one pass numerically"
        require(not clients.one_pass, "noise", "theorem-2.1", remedy)
        sigma = clients.lipschitz[i] * published.minibatch_theorem_2_1(int(n), plan.rounds, K, epsilon, delta)
        return float(sigma * clients.weight[i] / clients.sensitivity[i])
    if clients.one_pass:
        return gaussian_noise_multiplier(epsilon, delta)
    return _calibrated(epsilon, delta, plan.rounds * clients.releases, clients.sampling(i))


def _fewest(plan: Plan, M: int) -> int:
    """How many messages, noise and all, come together at least."""
    return plan.cohort.low if isinstance(plan.cohort, Unreliable) else plan.cohort.capacity(M)


def _shuffled(plan: Plan, clients: _Clients) -> tuple[Numbers, dict[Any, Any], dict[Observer, tuple[str, ...]]]:
    """One noise for all, the least that gives the most demanding client its (epsilon, delta) behind the shuffler."""
    M = len(clients.sizes)
    for field, values in (("lipschitz", clients.lipschitz), ("weights", clients.weight), ("batch_size", clients.batch)):
        remedy = "a shuffler hides messages of one kind: give all clients the same"
        require(bool(np.all(values == values[0])), field, values.tolist(), remedy)
    require(not clients.one_pass, "one_pass", True, "with a shuffler records are drawn anew in every round")
    messages = _fewest(plan, M)
    L = float(clients.lipschitz[0])

    def event(x: float, i: int, hidden_among: int) -> Event:
        """Noise of std 2 L x, as client i's records meet it."""
        return better(x, clients.sampling(i), float(clients.delta[i]), hidden_among)

    @functools.cache  # many clients are alike
    def better(x: float, sampling: Sampling, delta: float, hidden_among: int) -> Event:
        """Shuffled or not, whichever promises more. Both hold."""
        plain = sampled(Gaussian(x * float(clients.batch[0])), sampling)
        hidden = shuffled_event(x, hidden_among, sampling, plan.rounds, delta)
        costs = [(epsilon_of(Repeated(e, plan.rounds), delta, Relation.REPLACE_ONE), e) for e in (plain, hidden) if e]
        return min(costs, key=lambda cost: cost[0])[1]

    def all_rounds_of(i: int) -> Callable[[float], Event]:
        return lambda x: Repeated(event(x, i, messages), plan.rounds)

    if plan.noise_multiplier is not None:
        x = float(plan.noise_multiplier) / float(clients.batch[0])
    else:
        assert clients.epsilon is not None
        # Equal demands of equally large clients have one answer, and fewer records are harder to hide.
        demands = {(float(e), float(p), float(n)): i for i, (e, p, n) in enumerate(_demands(clients))}
        x = max(
            calibrate(
                all_rounds_of(i),
                epsilon=demand[0],
                delta=demand[1],
                relation=Relation.REPLACE_ONE,
                tolerance=1e-5,
            )
            for demand, i in demands.items()
        )
    std: Numbers = np.full(M, 2 * L * x)
    server = tuple(event(x, i, messages) for i in range(M))
    peer = tuple(event(x, i, max(1, messages - 1)) for i in range(M))  # a peer knows its own message
    text = "a shuffler hides who sent which of {} messages"
    assumed: dict[Observer, tuple[str, ...]] = {
        Observer.SERVER: (text.format(messages), OTHERS_ADD_NOISE) if _hides(server) else (),
        Observer.PEER: (text.format(f"{messages - 1} other"), OTHERS_ADD_NOISE) if _hides(peer) else (),
    }
    views: dict[Any, Any] = {(Observer.SERVER,): server, (Observer.PEER,): peer}
    if isinstance(plan.cohort, FullCohort) and _uses_sums_only(plan):
        views[(Observer.MODEL_USER,)], sums = _sums(clients, std)
        assumed |= sums
    else:
        views[(Observer.MODEL_USER,)], assumed[Observer.MODEL_USER] = server, assumed[Observer.SERVER]
    return std, views, assumed


def _demands(clients: _Clients) -> list[tuple[float, float, float]]:
    assert clients.epsilon is not None
    return list(zip(clients.epsilon, clients.delta, clients.sizes, strict=True))


def _hides(events: tuple[Event, ...]) -> bool:
    """Whether some client's promise rests on the shuffler."""
    return any(isinstance(part, Approximate) for event in events for part in parts_of(event))


def shuffled_event(x: float, messages: int, sampling: Sampling, rounds: int, delta: float) -> Event | None:
    """One round of `messages` shuffled messages, each with Gaussian noise of std x times their largest distance.

    Half of delta pays for the approximations: that of the shuffled round, delta_s, and within it that of the Gaussian,
    delta_0. None where shuffling certifies nothing.
    """
    q = sampling.sampling_prob if isinstance(sampling, WithoutReplacement) else 1.0
    delta_s = min(delta / (2 * q * rounds), 0.1)
    delta_0 = delta_s / (8 * messages)
    eps_0 = gaussian_epsilon(1 / x, delta_0)
    if eps_0 <= 0 or eps_0 > 50:
        return None
    try:
        eps_s = shuffle_epsilon(eps_0, messages, delta_s, delta_0)
    except Refused:
        return None
    return sampled(Approximate(Pure(eps_s), delta_s), sampling)


# --- What is promised ---------------------------------------------------------------------------------------------


def _for_ledger(seen: Any, views: dict[Any, Any], who: Any, untold: str) -> Event:
    """The event of a round, by kind of client: those with the same costs against everybody are one.

    `who` says which records which client holds; with who is of which kind it makes up the name of this sorting, and
    `untold` is added to it where that is known to one task alone.
    """
    if isinstance(seen, Event):
        return seen
    columns = [events for events in views.values() if not isinstance(events, Event)]
    by_client = list(zip(*columns, strict=True))
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(by_client))}
    place = next(k for k, events in enumerate(columns) if events is seen)
    if len(kinds) == 1:
        return by_client[0][place]
    sorting = hashlib.sha256(repr((who, [kinds[kind] for kind in by_client])).encode()).hexdigest()[:16]
    return ByHolder(tuple(kind[place] for kind in kinds), sorting + untold)


def _certified(plan: Plan, clients: _Clients, observer: Observer, seen: Any, assumed: tuple[str, ...]) -> Certificate:
    """What any record is promised at the largest delta, and then each client's own promise to its records."""
    per_client = (seen,) * len(clients.sizes) if isinstance(seen, Event) else seen
    total, delta = int(clients.sizes.sum()), float(clients.delta.max())

    @functools.cache  # many clients may be alike
    def promised(event: Event, delta: float, units: int | None) -> Certificate:
        return certify(
            event,
            relation=Relation.REPLACE_ONE,
            observer=observer,
            rounds=plan.rounds,
            delta=delta,
            unit=Unit.RECORD,
            units=units,
            assumptions=assumed,
            memory=plan.algorithm.memory,
        )

    kinds = tuple(dict.fromkeys(per_client))
    # Never composed with another run, so that nobody need know who is of which kind.
    everybody = ByHolder(kinds) if len(kinds) > 1 else kinds[0]
    units, too_large = counted(total, delta)
    certificate = promised(everybody, delta, units)
    own = []
    for name, event, n, own_delta in zip(clients.names, per_client, clients.sizes, clients.delta, strict=True):
        for guarantee in promised(event, float(own_delta), int(n)).guarantees:
            if guarantee.scope == "all rounds":
                own.append(replace(guarantee, client=name))
    return Certificate.merge_observers(certificate, Certificate(tuple(own), too_large))


def _rows(clients: _Clients, std: Numbers, certificate: Certificate) -> list[dict[str, Any]]:
    """A line a client, the least protected against the server first."""
    totals: dict[str, dict[Observer, Any]] = {}
    for guarantee in certificate.guarantees:
        if guarantee.client is not None:
            totals.setdefault(guarantee.client, {})[guarantee.observer] = guarantee
    rows: list[dict[str, Any]] = [
        {
            "client": name,
            "records": int(clients.sizes[i]),
            "batch": int(clients.batch[i]),
            "noise_std": float(std[i] / clients.weight[i]),
            "epsilon": float(totals[name][Observer.SERVER].epsilon),
            "epsilon_models": float(totals[name][Observer.MODEL_USER].epsilon),
            "delta": float(clients.delta[i]),
        }
        for i, name in enumerate(clients.names)
    ]
    return sorted(rows, key=lambda row: -row["epsilon"]) if len(rows) > _MOST_ROWS else rows


def _assumptions(plan: Plan, clients: _Clients, constants: dict[str, float]) -> str:
    """The public constants of the step sizes. A wrong one costs accuracy, never privacy: that rests on the clipping."""
    asked = plan.algorithm.asked
    low, high = clients.lipschitz.min(), clients.lipschitz.max()
    L = f"L = {low:g}" if low == high else f"L from {low:g} to {high:g}"
    features = "" if asked.feature_bound is None else f"features of norm at most {asked.feature_bound:g}; "
    return features + ", ".join([f"{L} (enforced)", *(f"{name} = {value:.6g}" for name, value in constants.items())])
