"""The arguments of a plan, checked as far as they can be before the population is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sordino.algorithms.records import RecordMethod
from sordino.errors import InvalidInput, require
from sordino.mechanisms import MECHANISMS, NoiseRequest
from sordino.mechanisms.gaussian import GaussianRequest
from sordino.planning.cohort import Cohort, FixedCohort, PoissonCohort, UnreliableCohort
from sordino.privacy import published
from sordino.tasks import Population
from sordino.types import Bounder, Mechanism, Memory, Method, PlanContext, RecordFacts, Relation, Trust, Unit

PerClient: TypeAlias = float | tuple[float, ...]  # one number for all clients, or one each
RECORD_CALIBRATIONS = ("numeric", "theorem-2.1")


@dataclass(frozen=True)
class Arguments:
    """A method, how long, who takes part, and what is asked of the noise."""

    method: Method
    rounds: int
    cohort: Cohort
    noise: NoiseRequest
    trust: Trust
    relation: Relation
    epsilon: PerClient | None
    delta: PerClient | None

    @property
    def private(self) -> bool:
        """Whether there is any noise."""
        return self.noise.name != "none"

    @property
    def mechanism(self) -> str:
        """The name of the noise."""
        return self.noise.name

    @property
    def trusted(self) -> Trust:
        """Who adds the noise: nobody where there is none."""
        return self.trust if self.private else Trust.NONE

    def context(
        self, population: Population, mechanism: Mechanism | None = None, records: RecordFacts | None = None
    ) -> PlanContext:
        """What the method is fitted to."""
        return PlanContext(
            d=population.d,
            clients=population.clients,
            planned_cohort=self.cohort.planned(population.clients),
            cohort=str(self.cohort),
            answering=self.cohort.answering(population.clients),
            rounds=self.rounds,
            trust=self.trusted,
            relation=self.relation,
            mechanism=mechanism,
            records=records,
        )


def require_method(method: object) -> None:
    """Refuse an object that is no method, or has no bounder, before anything traces it."""
    if not isinstance(method, Method):
        remedy = "derive it from sordino.Method and give it init_server, client, server and params"
        raise InvalidInput("algorithm", type(method).__name__, f"is not a method: {remedy} (docs/new_algorithm.md)")
    written = {name for cls in type(method).__mro__ if cls is not Method for name in vars(cls)}
    missing = [name for name in ("init_server", "client", "server", "params") if name not in written]
    remedy = f"a method also has {', '.join(missing)}: see docs/new_algorithm.md"
    require(not missing, "algorithm", type(method).__name__, remedy)
    bound = method.bound
    require(bound is None or isinstance(bound, Bounder), "bound", bound, "give a bounder, as so.clip(1.0), or None")


def usual_delta(units: float) -> float:
    """delta of a plan that names none: a tenth of one over the number of protected units, at most 1e-5."""
    return min(1e-5, 0.1 / units)


def noise_request(mechanism: str | None, wanted: bool, options: Mapping[str, object]) -> NoiseRequest:
    """The noise by its name, with the options that are its own."""
    name = mechanism or ("gaussian" if wanted else "none")
    if name not in MECHANISMS:
        raise InvalidInput("mechanism", name, "use one of " + ", ".join(MECHANISMS))
    request = MECHANISMS[name]
    keys = [field.name for field in dataclasses.fields(request)]  # type: ignore[arg-type]  # each one is a dataclass
    given = {key: value for key, value in options.items() if value is not None}
    for key, value in given.items():
        remedy = "needs a mechanism: name one" if name == "none" else f"{name} takes {', '.join(keys)}"
        require(key in keys, key, value, remedy)
    return request(**given)


def require_client_plan(plan: Arguments) -> None:
    """Refuse what a plan that protects clients cannot be."""
    for name, value in (("epsilon", plan.epsilon), ("delta", plan.delta)):
        several = isinstance(value, Sequence)
        require(not several, name, value, "one number a client needs a method that protects records")
    privacy = plan.method.privacy
    remedy = "only a method that protects records adds noise itself: leave noise_inside and releases as they are"
    plain = not privacy.noise_inside and privacy.releases == 1
    require(plain, "algorithm", type(plan.method).__name__, remedy)
    if plan.trust not in (Trust.CENTRAL, Trust.LOCAL, Trust.SECURE_AGGREGATION):
        raise InvalidInput("trust", plan.trust, "use central, local or secure-aggregation")
    if plan.trust is Trust.SECURE_AGGREGATION:
        _require_shares(plan)
    by_number = isinstance(plan.cohort, FixedCohort | UnreliableCohort)
    if by_number and plan.trust is Trust.CENTRAL and plan.relation is not Relation.REPLACE_ONE:
        remedy = f"a cohort {plan.cohort} is analysed under replace-one: use that, or poisson:Q"
        raise InvalidInput("relation", plan.relation, remedy)
    plan.noise.check(plan.trust, plan.epsilon, plan.delta)


def _require_shares(plan: Arguments) -> None:
    """Refuse what a sum of shares cannot be, or is not proven for."""
    remedy = "clients add shares of Gaussian noise: use gaussian, with epsilon and delta or a noise_multiplier"
    require(plan.mechanism == "gaussian", "mechanism", plan.mechanism, remedy)
    remedy = (
        "the number of shares of noise would be random, and as small as 0: use full, fixed:K or unreliable:LOW-HIGH"
    )
    require(not isinstance(plan.cohort, PoissonCohort), "cohort", str(plan.cohort), remedy)
    remedy = "the server sees who answers, so that a client that is missing shows: use zero-out or replace-one"
    require(plan.relation is not Relation.ADD_REMOVE, "relation", plan.relation, remedy)
    privacy, name = plan.method.privacy, type(plan.method).__name__
    remedy = (
        "a server that sees sums only runs methods whose clients keep nothing and send one vector: use fedavg without "
        "step_size, or dp_sgd"
    )
    alone = privacy.uses_sum_only and privacy.memory is Memory.NONE and privacy.message_parts == 1
    require(alone and plan.method.side_event(plan.relation) is None, "algorithm", name, remedy)


def default_relation(cohort: Cohort, trust: Trust) -> Relation:
    """The relation of a client-level plan that names none."""
    if isinstance(cohort, FixedCohort | UnreliableCohort):  # one client fewer lets another one in
        return Relation.REPLACE_ONE
    return Relation.ADD_REMOVE if trust is Trust.CENTRAL else Relation.ZERO_OUT


def require_record_plan(plan: Arguments, relation: Relation | None) -> None:
    """Refuse what a plan that protects records cannot be."""
    remedy = "a client's number of records is public: use replace-one"
    require(relation in (None, Relation.REPLACE_ONE), "relation", relation, remedy)
    if not isinstance(plan.method, RecordMethod):
        remedy = f"a method with unit {Unit.RECORD} derives from RecordMethod"
        raise InvalidInput("algorithm", type(plan.method).__name__, remedy)
    remedy = "records are protected by Gaussian noise: use gaussian, or none"
    require(plan.mechanism in ("gaussian", "none"), "mechanism", plan.mechanism, remedy)
    if not isinstance(plan.noise, GaussianRequest):
        plan.noise.check(plan.trust, plan.epsilon, plan.delta)
        return
    remedy = "clients protect their records from the server: use local, or shuffle"
    require(plan.trust in (Trust.LOCAL, Trust.SHUFFLE), "trust", plan.trust, remedy)
    _require_record_calibration(plan, plan.noise)
    if plan.method.privacy.noise_inside:
        remedy = "a shuffler's theorem is about noise on messages, and this method's is in its local steps: use local"
        require(plan.trust is Trust.LOCAL, "trust", plan.trust, remedy)
    if plan.trust is Trust.SHUFFLE:
        remedy = "shuffling hides among a known number of messages: use full or fixed:K"
        require(not isinstance(plan.cohort, PoissonCohort), "cohort", str(plan.cohort), remedy)


def _require_record_calibration(plan: Arguments, noise: GaussianRequest) -> None:
    calibration = noise.calibration
    if calibration == "acg16":
        published.minibatch_acg16()
    remedy = f"use one of {', '.join(RECORD_CALIBRATIONS)}"
    require(calibration in RECORD_CALIBRATIONS, "calibration", calibration, remedy)
    dataclasses.replace(noise, calibration="numeric").check(plan.trust, plan.epsilon, plan.delta)
    if calibration == "numeric":
        return
    require(plan.epsilon is not None, "calibration", calibration, "the theorem needs epsilon and delta")
    remedy = "Theorem 2.1 is about one gradient a round: calibrate numerically"
    require(not plan.method.privacy.noise_inside, "calibration", calibration, remedy)
    remedy = "with a shuffler noise is calibrated numerically: leave it out"
    require(plan.trust is not Trust.SHUFFLE, "calibration", calibration, remedy)
