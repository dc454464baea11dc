"""A plan: a method, how long, who takes part, and what is promised to whom. Nothing runs before it is known."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sordino.bounding import AdaptiveClip
from sordino.errors import InvalidInput, require, require_count
from sordino.mechanisms import binomial, gaussian, laplace, none, privunit, qtdl
from sordino.privacy.accountants import epsilon_of
from sordino.privacy.calibration import calibrate, calibrate_gaussian
from sordino.privacy.certification import certify
from sordino.privacy.events import (
    Assumed,
    Claimed,
    Composed,
    Event,
    Gaussian,
    NonPrivate,
    Pure,
    Repeated,
    parts_of,
    sampled,
)
from sordino.privacy.guarantee import OTHERS_LOOK_AWAY, Certificate, Warning, format_epsilon
from sordino.privacy.published import normec_noise
from sordino.privacy.sampling import Full as FullSampling
from sordino.simulation.cohort import Cohort, FixedSize, Full, Unreliable, parse_cohort
from sordino.simulation.engine import remembers_noise
from sordino.simulation.record_planning import about_sums, check_records, counted, resolve_records
from sordino.summation import rounding_share
from sordino.types import Algorithm, Bounder, Circumstances, Memory, Observer, Relation, Unit

if TYPE_CHECKING:
    from sordino.simulation.tasks import Task

__all__ = ["Plan", "Resolved", "plan"]

_certify = functools.lru_cache(maxsize=1000)(certify)  # a sweep asks the same again for every point

MECHANISMS = ("gaussian", "laplace", "qtdl", "binomial", "privunit", "none")
OF_MESSAGES = {  # what a mechanism that is calibrated a message at a time must and may be given
    "qtdl": (("message_epsilon", "levels"), ("message_delta", "noise", "mu", "output")),
    "binomial": (("message_epsilon", "levels"), ("message_delta", "mu")),
    "privunit": (("message_eps0", "message_eps1", "message_eps2"), ("gamma",)),
}
NEGLIGIBLE = 0.02  # by how much a step size may raise epsilon before the certificate warns
CALIBRATIONS = ("numeric", "norm-ec")


@dataclass(frozen=True)
class Resolved:
    """A plan for a task of known size: the mechanism that will run, what each round releases, and the certificate."""

    algorithm: Any
    mechanism: Any
    trust: str
    certificate: Certificate
    releases: tuple[tuple[str, tuple[Observer, ...], Event], ...]  # of one round, for the ledger
    noise: Mapping[str, Any]  # what `sordino plan` prints

    @property
    def promised(self) -> Observer:
        """The observer for whom the noise was made."""
        return Observer.SERVER if self.trust in ("local", "shuffle") else Observer.MODEL_USER

    def event_for(self, observer: Observer, rounds: int) -> Event:
        """What `rounds` rounds show to an observer."""
        seen = (Repeated(event, rounds) for _, observers, event in self.releases if observer in observers)
        return Composed(tuple(seen))


@dataclass(frozen=True)
class Plan:
    """See `plan`."""

    algorithm: Any
    rounds: int
    cohort: Cohort
    mechanism: str
    trust: str
    relation: Relation
    epsilon: Any  # a number; of record-level methods perhaps one a client, as is delta
    delta: Any
    noise_multiplier: float | None
    options: Mapping[str, Any] = field(default_factory=dict)
    calibration: str = "numeric"

    def resolve(self, d: int, clients: int, task: Task | None = None) -> Resolved:
        """Calibrate the noise and certify, for d parameters and this many clients; the task says who holds how much."""
        _require_cohort(self.cohort, clients)
        resolved = self._resolve(d, clients, task)
        outside = () if self.mechanism == "none" else _warnings_about(task, _unit(self.algorithm))
        warnings = (*resolved.certificate.warnings, *outside)
        return dataclasses.replace(resolved, certificate=dataclasses.replace(resolved.certificate, warnings=warnings))

    def _resolve(self, d: int, clients: int, task: Task | None) -> Resolved:
        if _unit(self.algorithm) is Unit.RECORD:
            remedy = "methods that protect records train on them as they are: leave augment out"
            require(task is None or task.augment is None, "augment", getattr(task, "augment", None), remedy)
            resolved = Resolved(*resolve_records(self, d, task))
            warnings = (*resolved.certificate.warnings, *self._plain_warnings(resolved.trust, clients))
            return dataclasses.replace(
                resolved, certificate=dataclasses.replace(resolved.certificate, warnings=warnings)
            )
        if self.mechanism == "none":
            return self._resolved(self._method(none(), d, clients), none(), NonPrivate(), "none", d, clients)
        if self.algorithm.bound is None:
            raise InvalidInput("bound", None, "private noise needs a bound: give clip, normalize or adaptive_clip")
        bound = self.algorithm.bound
        adaptive = self.algorithm.extra_event(self.relation) is not None
        if adaptive and (self.mechanism, self.trust) != ("gaussian", "central"):
            remedy = (
                "what it sends beside the update is protected by the server's Gaussian noise alone: use trust central"
            )
            raise InvalidInput("bound", type(bound).__name__, remedy)
        if self.mechanism in ("qtdl", "binomial"):
            mechanism = self._lattice(self._length(d))
            event = mechanism.event(bound, self.relation, self._length(d))
            records = None if task is None else int(task.data.size.sum())
            method = self._method(mechanism, d, clients)
            return self._resolved(method, mechanism, event, self.trust, d, clients, records=records)
        if self.mechanism == "privunit":
            mechanism = self._privunit(self._length(d))
            event = mechanism.event(bound, self.relation, self._length(d))
            return self._resolved(self._method(mechanism, d, clients), mechanism, event, self.trust, d, clients)
        sensitivity = float(bound.sensitivity(self.relation))
        if self.mechanism == "gaussian" and not isinstance(bound, AdaptiveClip):
            z = self._calibrated(clients, lambda z: self._gaussian_event(z, d, clients))
            mechanism, event = gaussian(z * sensitivity), self._gaussian_event(z, d, clients)
            return self._resolved(self._method(mechanism, d, clients), mechanism, event, self.trust, d, clients, z)
        z = self._calibrated(clients)
        if self.mechanism == "laplace":
            mechanism = laplace(z * sensitivity * math.sqrt(self._length(d)))
            method = self._method(mechanism, d, clients)
            return self._resolved(method, mechanism, Pure(1 / z), self.trust, d, clients, z)
        # The indicators of an adaptive bound take a part of the budget z; the two are one joint Gaussian release.
        mechanism = gaussian(bound.vector_noise_multiplier(z, self.relation) * sensitivity)
        method = self._method(mechanism, d, clients)
        return self._resolved(method, mechanism, Gaussian(z), self.trust, d, clients, z)

    def _privunit(self, length: int) -> Any:
        try:
            return privunit(d=length, bound=float(self.algorithm.bound.bound), **self.options)
        except InvalidInput as error:  # in a run file the budgets are called message_eps0, ...
            name = f"message_{error.field}" if error.field.startswith("eps") else error.field
            raise InvalidInput(name, error.value, error.remedy) from None

    def _length(self, d: int) -> int:
        """Coordinates of a message."""
        return int(getattr(self.algorithm, "message_parts", 1)) * d

    def _method(self, mechanism: Any, d: int, clients: int) -> Any:
        """The algorithm, fitted to this plan where it depends on it."""
        if not hasattr(self.algorithm, "resolve"):
            return self.algorithm
        trust = "none" if self.mechanism == "none" else self.trust
        planned = self.cohort.planned(clients)
        return self.algorithm.resolve(
            Circumstances(trust, mechanism, self.relation, d, clients, planned, str(self.cohort), self.rounds)
        )

    def _gaussian_event(self, z: float, d: int, clients: int) -> Event:
        """Messages with noise multiplier z, and what is released beside them, whose noise may depend on theirs."""
        mechanism = gaussian(z * float(self.algorithm.bound.sensitivity(self.relation)))
        beside = self._method(mechanism, d, clients).extra_event(self.relation)
        message = self._claimed(z)
        return message if beside is None else Composed((message, beside))

    def _claimed(self, z: float) -> Event:
        """Gaussian noise; where a paper's formula falls short of what it claims, the claim and that it is false."""
        if self.calibration == "numeric":
            return Gaussian(z)
        assert self.epsilon is not None
        assert self.delta is not None
        true = epsilon_of(Repeated(Gaussian(z), self.rounds), self.delta, self.relation)
        if true <= self.epsilon:
            return Gaussian(z)
        claim = (
            f"alpha-NormEC's noise sqrt(K log(1/delta))/epsilon claims epsilon = {self.epsilon:g} at delta = "
            f"{self.delta:g} for {self.rounds} messages: false, under {self.relation} it is {format_epsilon(true)}"
        )
        return Claimed(claim, Gaussian(z))

    def _calibrated(self, clients: int, event_of: Callable[[float], Event] | None = None) -> float:
        """The noise multiplier: given, or the least that meets (epsilon, delta) against whom it is promised."""
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        assert self.epsilon is not None
        assert self.delta is not None
        if self.calibration == "norm-ec":  # a std for messages of norm 1, whatever the relation
            return normec_noise(self.rounds, self.epsilon, self.delta) / self.relation.units_moved
        # Local noise is promised against the server, which sees who was sampled: no amplification.
        sampling = self._sampling(clients) if self.trust == "central" else FullSampling()
        if self.mechanism == "laplace":
            return calibrate(
                lambda z: Repeated(sampled(Pure(1 / z), sampling), self.rounds),
                epsilon=self.epsilon,
                delta=self.delta,
                relation=self.relation,
            )
        if event_of is not None and isinstance(event_of(1.0), Composed):
            return calibrate(
                lambda z: Repeated(sampled(event_of(z), sampling), self.rounds),
                epsilon=self.epsilon,
                delta=self.delta,
                relation=self.relation,
            )
        return calibrate_gaussian(
            epsilon=self.epsilon, delta=self.delta, rounds=self.rounds, sampling=sampling, relation=self.relation
        )

    def _sampling(self, clients: int) -> Any:
        """How the cohort is accounted."""
        return FullSampling() if self._memory_by_number else self.cohort.sampling(clients)

    @property
    def _memory_by_number(self) -> bool:
        """Of clients drawn by number one comes less often if another does: seen later on where they keep a memory."""
        return self.algorithm.memory is not Memory.NONE and isinstance(self.cohort, FixedSize)

    def _lattice(self, d: int) -> Any:
        bound = float(self.algorithm.bound.bound)
        make: Callable[..., Any] = qtdl if self.mechanism == "qtdl" else binomial
        return make(d=d, bound=bound, relation=self.relation, **self.options)

    def _resolved(
        self,
        method: Any,
        mechanism: Any,
        event: Event,
        trust: str,
        d: int,
        clients: int,
        z: float | None = None,
        records: int | None = None,
    ) -> Resolved:
        delta = self.delta if self.delta is not None else min(1e-5, 0.1 / clients)
        sampling = self._sampling(clients)
        remedy = "remembered noise (remember_noise) is what clients add themselves: use trust local"
        require(trust in ("local", "none") or not remembers_noise(method), "trust", trust, remedy)
        bare = NonPrivate("the server sees every update without noise")
        views: dict[Observer, tuple[Event, Any, tuple[str, ...]]] = {}
        if trust == "none":
            views = {Observer.SERVER: (event, None, ()), Observer.MODEL_USER: (event, None, ())}
        elif trust == "central":
            views[Observer.SERVER] = (bare, None, ())
            # No theorem amplifies every integer noise (truncated ones fail with some delta), so none is claimed.
            amplified = None if self.mechanism in ("qtdl", "binomial") else sampling
            views[Observer.MODEL_USER] = (event, amplified, ("the server adds the noise and keeps updates to itself",))
        else:
            views[Observer.SERVER] = (event, None, _of(method, "assumptions", Observer.SERVER))
            views[Observer.MODEL_USER] = self._seen_through_models(method, event, clients)
        certificate = Certificate(())
        unit = Unit.RECORD if any(isinstance(part, Assumed) for part in parts_of(event)) else Unit.CLIENT
        units, too_large = (clients, ()) if unit is Unit.CLIENT else counted(records, delta)
        # Pure noise has a total without delta too.
        deltas = (delta, 0.0) if self.mechanism == "privunit" else (delta,)
        for (observer, (seen, drawn, assumptions)), each_delta in itertools.product(views.items(), deltas):
            part = _certify(
                seen,
                relation=self.relation,
                observer=observer,
                rounds=self.rounds,
                delta=each_delta,
                unit=unit,
                sampling=drawn,
                units=units,
                memory=self.algorithm.memory,
                assumptions=assumptions,
            )
            certificate = Certificate.merge_observers(certificate, part)
        beside, warnings = self._step_size_release(method, event, sampling, certificate)
        warnings = (
            *certificate.warnings,
            *too_large,
            *warnings,
            *_of(method, "warnings"),
            *self._plain_warnings(trust, clients),
            *self._about_sums(trust, clients),
        )
        certificate = dataclasses.replace(certificate, warnings=warnings)
        noise = {"parameters": float(d), "clients": float(clients), "planned_cohort": self.cohort.planned(clients)}
        if z is not None:
            noise |= {"noise_multiplier": z}
        if hasattr(mechanism, "noise_std"):
            noise |= {"noise_std": float(mechanism.noise_std)}
        sparse = _of(method, "sparse_bits", d) if trust != "local" else None
        noise |= beside | {"bits_per_message": float(sparse or mechanism.bits(self._length(d)))}
        releases = tuple(
            ("update", (observer,), sampled(seen, drawn or FullSampling()))
            for observer, (seen, drawn, _) in views.items()
        )
        return Resolved(method, mechanism, trust, certificate, releases, noise)

    def _step_size_release(
        self, method: Any, event: Event, sampling: Any, certificate: Certificate
    ) -> tuple[dict[str, float], tuple[Warning, ...]]:
        """The figures of a step size that is a release of its own, and a warning where it is not cheap."""
        step_size = getattr(method, "step_size", None)
        if step_size is None or not step_size.is_release or not isinstance(event, Composed):
            return {}, ()
        total = certificate.total(Observer.MODEL_USER)
        without = epsilon_of(Repeated(sampled(event.events[0], sampling), self.rounds), total.delta, self.relation)
        figures = {"step_size_noise_std": float(step_size.noise_std), "epsilon_without_step_size": without}
        if total.epsilon <= (1 + NEGLIGIBLE) * without:
            return figures, ()
        text = (
            f"releasing the sum of squared norms for the step size raises epsilon from {format_epsilon(without)} to "
            f"{format_epsilon(total.epsilon)}, by more than {NEGLIGIBLE:.0%}: step_cost caps it"
        )
        return figures, (Warning("step-size-cost", text),)

    def _seen_through_models(self, method: Any, event: Event, clients: int) -> tuple[Event, Any, tuple[str, ...]]:
        """A model user sees sums of noisy messages: the noise of all of them, where their number is fixed."""
        noise = event.event if isinstance(event, Claimed) else event  # what is claimed is about the server
        # Not under add-remove, which local trust refuses: there the absent client's noise is missing too, and shows.
        # Nor where models depend on more than the sum: a step size looks at the norm of every message.
        only_sums = getattr(method, "only_sums", False)  # a method must say so itself
        # Nor where clients compensate their noise: the sums of later rounds take it off again.
        fresh = not remembers_noise(method)
        everybody = isinstance(self.cohort, Full)
        if self.mechanism == "gaussian" and isinstance(noise, Gaussian) and everybody and only_sums and fresh:
            together = Gaussian(noise.noise_multiplier * math.sqrt(clients))
            return together, None, (OTHERS_LOOK_AWAY,)
        return event, None, _of(method, "assumptions", Observer.MODEL_USER)

    def _about_sums(self, trust: str, clients: int) -> tuple[Warning, ...]:
        """Of whole numbers sums are exact. Local noise of these kinds is simulated on the sum too, by its law."""
        if trust == "none" or self.mechanism not in ("gaussian", "laplace"):
            return ()
        K = self.cohort.capacity(clients)
        return about_sums(f"sums of {K} messages", rounding_share(K), "take a smaller cohort")

    def _plain_warnings(self, trust: str, clients: int) -> Iterator[Warning]:
        """What a simulation has to say of its noise, and what a reader of one round's figure must know."""
        if trust != "none" and self.relation is Relation.ADD_REMOVE:
            # Sums are divided by what was planned: divided by one less, the noise would tell that somebody has gone.
            everybody = isinstance(self.cohort, Full)
            planned = "" if everybody else f", {self.cohort.planned(clients):g} of them planned a round,"
            text = f"that there are {clients} clients{planned} counts as public, and stays when one is added or removed"
            yield Warning("numbers-are-public", text)
        if isinstance(self.cohort, Unreliable):
            text = "the number of clients that answer is random and seen: no amplification is claimed"
            yield Warning("unreliable-cohort", text)
        if trust == "central" and self._memory_by_number:
            text = (
                f"clients keep a memory and a cohort {self.cohort} is drawn by number: no theorem amplifies that, so "
                "nothing is gained from sampling; poisson:Q is amplified"
            )
            yield Warning("no-amplification", text)
        if trust == "local" and self.rounds > 1:
            text = f"a client that takes part in all {self.rounds} rounds faces the total, not the figure of one round"
            yield Warning("total-counts", text)
        if self.mechanism != "none":
            ends = "ends between 5 and 6 standard deviations and " if self.mechanism == "gaussian" else ""
            text = (
                f"sums are rounded and noise is drawn in float32 by a simulator; the noise {ends}can be taken off by "
                "who knows the seed or sees another run with it; a deployed release needs a secure generator"
            )
            yield Warning("simulated-noise", text)
            yield Warning("this-run-alone", "other runs on the same data are not covered: what they spend adds to this")


def plan(
    algorithm: Any,
    *,
    rounds: int,
    cohort: str = "full",
    epsilon: float | Sequence[float] | None = None,
    delta: float | Sequence[float] | None = None,
    noise_multiplier: float | None = None,
    mechanism: str | None = None,
    trust: str = "central",
    relation: str | None = None,
    calibration: str = "numeric",
    **options: Any,
) -> Plan:
    """What would run, and what it would promise.

    Args:
      algorithm: a method, for instance `so.fedavg(...)`.
      rounds: T.
      cohort: "full", "poisson:Q", "fixed:K" or "unreliable:LOW-HIGH".
      epsilon: with delta, the guarantee over all rounds that the noise is calibrated to; of methods that protect
        records, perhaps one a client.
      delta: see epsilon.
      noise_multiplier: noise over sensitivity, instead of epsilon.
      mechanism: "gaussian" (the default where privacy is asked for), "laplace", "qtdl", "binomial", "privunit" or
        "none".
      trust: "central", the server adds the noise, or "local", every client does; "shuffle" of methods that protect
        records: every client does, and a shuffler hides who sent what.
      relation: "add-remove", "zero-out" or "replace-one". If left out: zero-out with local trust, replace-one for
        cohorts by number and for records, add-remove otherwise.
      calibration: "numeric", the least noise that meets epsilon; or "norm-ec", the formula of that paper (with local
        trust), which does not: the certificate says what it gives.
      options: of methods that protect records `noise`, "numeric" or "theorem-2.1"; of qtdl and binomial `levels`,
        `message_epsilon`, `message_delta`, `mu`, of qtdl also `noise` and `output`. Each message (with central trust,
        the sum) meets (message_epsilon, message_delta); the certificate says what all of them together cost at
        `delta`. Of privunit: `message_eps0` and `message_eps1` of the direction, `message_eps2` of the norm, and
        `gamma`.
    """
    _require_method(algorithm)
    require_count(rounds, "rounds")
    drawn = parse_cohort(cohort)
    wanted = epsilon is not None or noise_multiplier is not None
    chosen = mechanism or ("gaussian" if wanted else "none")
    if chosen not in MECHANISMS:
        raise InvalidInput("mechanism", chosen, "use one of " + ", ".join(MECHANISMS))
    if _unit(algorithm) is Unit.RECORD:
        remedy = "methods that protect records are calibrated numerically: leave it out"
        require(calibration == "numeric", "calibration", calibration, remedy)
        check_records(
            algorithm,
            mechanism=chosen,
            trust=trust,
            cohort=drawn,
            relation=None if relation is None else Relation.parse(relation),
            epsilon=epsilon,
            delta=delta,
            noise_multiplier=noise_multiplier,
            options=options,
        )
        epsilon = tuple(epsilon) if isinstance(epsilon, Sequence) else epsilon
        delta = tuple(delta) if isinstance(delta, Sequence) else delta
        replace_one = Relation.REPLACE_ONE
        return Plan(algorithm, rounds, drawn, chosen, trust, replace_one, epsilon, delta, noise_multiplier, options)
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        require(
            not isinstance(value, Sequence), name, value, "one number a client needs a method that protects records"
        )
    if trust not in ("central", "local"):
        raise InvalidInput("trust", trust, "use central or local")
    by_number = isinstance(drawn, FixedSize | Unreliable)  # one client fewer lets another one in
    usual = "replace-one" if by_number else "add-remove" if trust == "central" else "zero-out"
    related = Relation.parse(relation or usual)
    if by_number and trust == "central" and related is not Relation.REPLACE_ONE:
        raise InvalidInput(
            "relation", related, f"a cohort {cohort} is analysed under replace-one: use that, or poisson:Q"
        )
    if calibration not in CALIBRATIONS:
        raise InvalidInput("calibration", calibration, "use one of " + ", ".join(CALIBRATIONS))
    if calibration == "norm-ec":
        right = chosen == "gaussian" and epsilon is not None
        require(right, "calibration", calibration, "turns epsilon and delta into Gaussian noise: give both")
        require(trust == "local", "trust", trust, "the formula is for noise that each client adds: set trust to local")
    needed, optional = OF_MESSAGES.get(chosen, ((), ()))
    takes = ", ".join((*needed, *optional)) or "epsilon and delta, or noise_multiplier"
    for name, value in options.items():
        remedy = "needs a mechanism: name one" if chosen == "none" else f"{chosen} takes {takes}"
        require(name in needed or name in optional, name, value, remedy)
    if chosen in ("gaussian", "laplace"):
        require(
            (epsilon is None) != (noise_multiplier is None),
            "epsilon",
            epsilon,
            "give either epsilon (with delta) or noise_multiplier, not both and not neither",
        )
        require(epsilon is None or delta is not None, "delta", delta, "give delta with epsilon")
    elif chosen == "none":
        require(not wanted, "mechanism", chosen, "without noise no epsilon can be met: leave epsilon out")
    else:
        local = trust == "local" or chosen != "privunit"
        require(local, "trust", trust, f"{chosen} noise is added by each client: set trust to local")
        remedy = f"{chosen} is calibrated a message at a time: give {', '.join(needed)}"
        require(not wanted, "epsilon", epsilon if epsilon is not None else noise_multiplier, remedy)
        for name in needed:
            require(name in options, name, None, remedy)
        options = {name.removeprefix("message_"): value for name, value in options.items()}
    return Plan(
        algorithm, rounds, drawn, chosen, trust, related, epsilon, delta, noise_multiplier, options, calibration
    )


def _require_method(algorithm: Any) -> None:
    """Say what a method lacks before anything traces it."""
    missing = [name for name in vars(Algorithm) if not name.startswith("_") and not hasattr(algorithm, name)]
    remedy = f"a method also has {', '.join(missing)}: see docs/new_algorithm.md"
    require(not missing, "algorithm", type(algorithm).__name__, remedy)
    bound = algorithm.bound
    remedy = "give a bounder, as so.clip(1.0), or None"
    require(bound is None or isinstance(bound, Bounder), "bound", bound, remedy)


def _unit(algorithm: Any) -> Unit:
    """What a method protects: clients, unless it says records."""
    unit: Unit = getattr(algorithm, "unit", Unit.CLIENT)
    return unit


def _of(algorithm: Any, name: str, *arguments: Any) -> Any:
    """What a method has to add to a certificate, nothing if it does not say."""
    return getattr(algorithm, name, lambda *_: ())(*arguments)


def _warnings_about(task: Task | None, unit: Unit) -> Iterator[Warning]:
    """What is not covered because the data decide it outside of the rounds."""
    if task is None:
        return
    if task.starts_near_data:
        text = "the first model is made from all clients' data: the certificate covers the rounds, not the start"
        yield Warning("start-depends-on-data", text)
    if task.data.classes_counted:
        text = (
            f"the model has {task.data.classes} outputs, one more than the largest label, and so its shape gives that "
            "label away: say how many classes there are, options = { classes = ... }"
        )
        yield Warning("shape-depends-on-data", text)
    if task.measured_on_clients:
        text = "there is no test set, and what is measured is computed on the clients' own records: not covered"
        yield Warning("measured-on-clients", text)
    elif task.data.tests_clients is not False and unit is Unit.CLIENT:
        holds = "if the test set holds" if task.data.tests_clients is None else "the test set holds"
        text = f"{holds} other records of the same clients: what is measured on them is not covered"
        yield Warning("measured-on-clients", text)
    if task.data.dealt_anew and unit is Unit.CLIENT:
        text = (
            f"the data have clients of their own, whose records were dealt to {task.clients} others: what is promised "
            "is about one of these, and not about one of the data's own, who may be in all of them"
        )
        yield Warning("clients-dealt-anew", text)
    if task.data.dealt_by_label and unit is Unit.RECORD:
        text = (
            "who holds which records, or which of them are test records, was decided by their labels: what is promised "
            "is about one record of a client as they are held here, and not about one before they were dealt"
        )
        yield Warning("dealt-by-label", text)
    if task.data.names:
        text = f"whoever is under several names, or in several clients' records, counts as several {unit}s"
        yield Warning("names-are-clients", text)


def _require_cohort(cohort: Cohort, clients: int) -> None:
    places = cohort.capacity(clients)
    remedy = f"there are only {clients} clients: ask for at most as many"
    require(places <= clients, "cohort", str(cohort), remedy)
