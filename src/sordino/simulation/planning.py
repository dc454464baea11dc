"""A plan: a method, how long, who takes part, and what is promised to whom. Nothing runs before it is known."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sordino.bounding import AdaptiveClip
from sordino.errors import InvalidInput, require
from sordino.mechanisms import binomial, gaussian, laplace, none, qtdl
from sordino.privacy.calibration import calibrate, calibrate_gaussian
from sordino.privacy.certification import certify
from sordino.privacy.events import Assumed, Composed, Event, Gaussian, NonPrivate, Pure, Repeated, parts_of, sampled
from sordino.privacy.guarantee import Certificate, Warning
from sordino.privacy.sampling import Full as FullSampling
from sordino.simulation.cohort import Cohort, FixedSize, Full, Unreliable, parse_cohort
from sordino.types import Observer, Relation, Unit

__all__ = ["Plan", "Resolved", "plan"]

_certify = functools.lru_cache(maxsize=1000)(certify)  # a sweep asks the same again for every point

MECHANISMS = ("gaussian", "laplace", "qtdl", "binomial", "none")


@dataclass(frozen=True)
class Resolved:
    """A plan for a task of known size: the mechanism that will run, what each round releases, and the certificate."""

    algorithm: Any
    mechanism: Any
    trust: str
    certificate: Certificate
    releases: tuple[tuple[str, tuple[Observer, ...], Event], ...]  # of one round, for the ledger
    noise: Mapping[str, float]  # what `sordino plan` prints

    @property
    def promised(self) -> Observer:
        """The observer for whom the noise was made."""
        return Observer.SERVER if self.trust == "local" else Observer.MODEL_USER

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
    epsilon: float | None
    delta: float | None
    noise_multiplier: float | None
    options: Mapping[str, Any] = field(default_factory=dict)

    def resolve(self, d: int, clients: int) -> Resolved:
        """Calibrate the noise and certify, for d parameters and this many clients."""
        _require_cohort(self.cohort, clients)
        if self.mechanism == "none":
            return self._resolved(none(), NonPrivate(), "none", d, clients)
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
            mechanism = self._lattice(d)
            return self._resolved(mechanism, mechanism.event(bound, self.relation, d), self.trust, d, clients)
        z = self._calibrated(clients)
        sensitivity = float(bound.sensitivity(self.relation))
        if self.mechanism == "laplace":
            scale = z * sensitivity * math.sqrt(d)
            return self._resolved(laplace(scale), Pure(1 / z), self.trust, d, clients, z)
        # The indicators of an adaptive bound take a part of the budget z; the two are one joint Gaussian release.
        z_vector = bound.vector_noise_multiplier(z, self.relation) if isinstance(bound, AdaptiveClip) else z
        return self._resolved(gaussian(z_vector * sensitivity), Gaussian(z), self.trust, d, clients, z)

    def _calibrated(self, clients: int) -> float:
        """The noise multiplier: given, or the least that meets (epsilon, delta) against whom it is promised."""
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        assert self.epsilon is not None
        assert self.delta is not None
        # Local noise is promised against the server, which sees who was sampled: no amplification.
        sampling = self.cohort.sampling(clients) if self.trust == "central" else FullSampling()
        if self.mechanism == "laplace":
            return calibrate(
                lambda z: Repeated(sampled(Pure(1 / z), sampling), self.rounds),
                epsilon=self.epsilon,
                delta=self.delta,
                relation=self.relation,
            )
        return calibrate_gaussian(
            epsilon=self.epsilon, delta=self.delta, rounds=self.rounds, sampling=sampling, relation=self.relation
        )

    def _lattice(self, d: int) -> Any:
        bound = float(self.algorithm.bound.bound)
        make = {"qtdl": qtdl, "binomial": binomial}[self.mechanism]
        try:
            return make(d=d, bound=bound, relation=self.relation, **self.options)  # type: ignore[operator]
        except TypeError as error:
            raise InvalidInput(
                "privacy", dict(self.options), f"{self.mechanism} takes other options: {error}"
            ) from None

    def _resolved(
        self, mechanism: Any, event: Event, trust: str, d: int, clients: int, z: float | None = None
    ) -> Resolved:
        delta = self.delta if self.delta is not None else min(1e-5, 0.1 / clients)
        sampling = self.cohort.sampling(clients)
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
            views[Observer.SERVER] = (event, None, ())
            views[Observer.MODEL_USER] = self._seen_through_models(event, clients)
        certificate = Certificate(())
        unit = Unit.RECORD if any(isinstance(part, Assumed) for part in parts_of(event)) else Unit.CLIENT
        for observer, (seen, drawn, assumptions) in views.items():
            certificate += _certify(
                seen,
                relation=self.relation,
                observer=observer,
                rounds=self.rounds,
                delta=delta,
                unit=unit,
                sampling=drawn,
                units=clients if unit is Unit.CLIENT else None,
                memory=self.algorithm.memory,
                assumptions=assumptions,
            )
        certificate = dataclasses.replace(certificate, warnings=_plain_warnings(certificate, self.cohort))
        noise = {"parameters": float(d), "clients": float(clients), "planned_cohort": self.cohort.planned(clients)}
        if z is not None:
            noise |= {"noise_multiplier": z}
        if hasattr(mechanism, "noise_std"):
            noise |= {"noise_std": float(mechanism.noise_std)}
        noise |= {"bits_per_message": float(mechanism.bits(d))}
        releases = tuple(
            ("update", (observer,), sampled(seen, drawn or FullSampling()))
            for observer, (seen, drawn, _) in views.items()
        )
        return Resolved(self.algorithm, mechanism, trust, certificate, releases, noise)

    def _seen_through_models(self, event: Event, clients: int) -> tuple[Event, Any, tuple[str, ...]]:
        """A model user sees sums of noisy messages: the noise of all of them, where their number is fixed."""
        # Not under add-remove: there the absent client's noise is missing too, and shows.
        if self.mechanism == "gaussian" and isinstance(event, Gaussian) and isinstance(self.cohort, Full):
            together = Gaussian(event.noise_multiplier * math.sqrt(clients))
            return together, None, ("every other client adds its noise",)
        return event, None, ()


def plan(
    algorithm: Any,
    *,
    rounds: int,
    cohort: str = "full",
    epsilon: float | None = None,
    delta: float | None = None,
    noise_multiplier: float | None = None,
    mechanism: str | None = None,
    trust: str = "central",
    relation: str | None = None,
    **options: Any,
) -> Plan:
    """What would run, and what it would promise.

    Args:
      algorithm: a method, for instance `so.fedavg(...)`.
      rounds: T.
      cohort: "full", "poisson:Q", "fixed:K" or "unreliable:LOW-HIGH".
      epsilon: with delta, the guarantee over all rounds that the noise is calibrated to.
      delta: see epsilon.
      noise_multiplier: noise over sensitivity, instead of epsilon.
      mechanism: "gaussian" (the default where privacy is asked for), "laplace", "qtdl", "binomial" or "none".
      trust: "central", the server adds the noise, or "local", every client does.
      relation: "add-remove" (the default), "zero-out" (with local trust) or "replace-one" (for cohorts by number).
      options: of qtdl and binomial: `levels`, `message_epsilon`, `message_delta`, `noise`, `mu`. Each message (with
        central trust, the sum) meets (message_epsilon, message_delta); the certificate says what all of them together
        cost at `delta`.
    """
    require(rounds >= 1, "rounds", rounds, "must be at least 1")
    drawn = parse_cohort(cohort)
    wanted = epsilon is not None or noise_multiplier is not None
    chosen = mechanism or ("gaussian" if wanted else "none")
    if chosen not in MECHANISMS:
        raise InvalidInput("mechanism", chosen, "use one of " + ", ".join(MECHANISMS))
    if trust not in ("central", "local"):
        raise InvalidInput("trust", trust, "use central or local")
    by_number = isinstance(drawn, FixedSize | Unreliable)  # one client fewer lets another one in
    usual = "replace-one" if by_number else "add-remove" if trust == "central" else "zero-out"
    related = Relation.parse(relation or usual)
    if by_number and trust == "central" and related is not Relation.REPLACE_ONE:
        raise InvalidInput(
            "relation", related, f"a cohort {cohort} is analysed under replace-one: use that, or poisson:Q"
        )
    if chosen in ("gaussian", "laplace"):
        require(
            (epsilon is None) != (noise_multiplier is None),
            "epsilon",
            epsilon,
            "give either epsilon (with delta) or noise_multiplier, not both and not neither",
        )
        require(epsilon is None or delta is not None, "delta", delta, "give delta with epsilon")
        require(not options, "privacy", options, f"{chosen} takes no such option")
    elif chosen == "none":
        require(not wanted, "mechanism", chosen, "without noise no epsilon can be met: leave epsilon out")
        require(not options, next(iter(options), ""), next(iter(options.values()), None), "needs a mechanism: name one")
    else:
        remedy = f"{chosen} is calibrated a message at a time: give message_epsilon and message_delta"
        require(not wanted, "epsilon", epsilon if epsilon is not None else noise_multiplier, remedy)
        require("message_epsilon" in options, "message_epsilon", None, remedy)
        options = {name.removeprefix("message_"): value for name, value in options.items()}
    return Plan(algorithm, rounds, drawn, chosen, trust, related, epsilon, delta, noise_multiplier, options)


def _plain_warnings(certificate: Certificate, cohort: Cohort) -> tuple[Warning, ...]:
    """Warnings of the certificate, with what a simulation always has to say."""
    simulated = Warning(
        "simulated-noise",
        "noise is drawn in floating point by a simulator; a deployed release needs a secure generator",
    )
    unreliable = isinstance(cohort, Unreliable)
    text = "the number of clients that answer is random and seen: no amplification is claimed"
    return (*certificate.warnings, *([Warning("unreliable-cohort", text)] if unreliable else []), simulated)


def _require_cohort(cohort: Cohort, clients: int) -> None:
    places = cohort.capacity(clients)
    remedy = f"there are only {clients} clients: ask for at most as many"
    require(places <= clients, "cohort", str(cohort), remedy)
