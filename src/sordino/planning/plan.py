"""A plan: a method, how long, who takes part, and what is promised to whom. Nothing runs before it is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sordino.errors import InvalidInput, require, require_count
from sordino.planning.arguments import (
    Arguments,
    PerClient,
    default_relation,
    noise_request,
    require_client_plan,
    require_method,
    require_record_plan,
)
from sordino.planning.clients import resolve_clients
from sordino.planning.cohort import parse_cohort
from sordino.planning.records import resolve_records
from sordino.planning.resolved import ResolvedPlan
from sordino.planning.warnings import about_data
from sordino.tasks import Population
from sordino.types import Method, Relation, Trust, Unit


@dataclass(frozen=True)
class Plan(Arguments):
    """See `plan`."""

    def __str__(self) -> str:
        """One line; `repr` has every field, and names the program of a run."""
        asked = "" if self.epsilon is None else f", epsilon = {self.epsilon} at delta = {self.delta} over all rounds"
        noise = f"{self.mechanism} noise, trust {self.trust}{asked}" if self.private else "no noise"
        return f"Plan: {type(self.method).__name__}, {self.rounds} rounds, cohort {self.cohort}, {noise}"

    def resolve(self, population: Population) -> ResolvedPlan:
        """Calibrate the noise and certify, for this population."""
        known = isinstance(population, Population)
        require(known, "population", type(population).__name__, "give what may be known of a task, task.population")
        places = self.cohort.capacity(population.clients)
        remedy = f"there are only {population.clients} clients: ask for at most as many"
        require(places <= population.clients, "cohort", str(self.cohort), remedy)
        by_record = self.method.privacy.unit is Unit.RECORD
        resolved = resolve_records(self, population) if by_record else resolve_clients(self, population)
        return about_data(self, population, resolved)


def plan(
    algorithm: Method,
    *,
    rounds: int,
    cohort: str = "full",
    epsilon: float | Sequence[float] | None = None,
    delta: float | Sequence[float] | None = None,
    noise_multiplier: float | None = None,
    mechanism: str | None = None,
    trust: str = "central",
    relation: str | None = None,
    **options: object,
) -> Plan:
    """What would run, and what it would promise.

    Args:
      algorithm: a method, for instance `so.fedavg(...)`.
      rounds: T.
      cohort: "full", "poisson:Q", "fixed:K", "unreliable:LOW-HIGH" or "unreliable:M=P,M=P".
      epsilon: with delta, the guarantee over all rounds that the noise is calibrated to; of methods that protect
        records, perhaps one a client.
      delta: see epsilon.
      noise_multiplier: noise over sensitivity, instead of epsilon, for Gaussian and Laplace noise.
      mechanism: "gaussian" (the default where privacy is asked for), "laplace", "truncated_laplace", "qtdl",
        "binomial", "privunit" or "none".
      trust: "central", the server adds the noise, or "local", every client does; "shuffle" of methods that protect
        records: every client does, and a shuffler hides who sent what.
      relation: "add-remove", "zero-out" or "replace-one". If left out: zero-out with local trust, replace-one for
        cohorts by number and for records, add-remove otherwise.
      options: of the mechanism. Gaussian: `sampler`, "lattice" or "float32", of noise that the server adds;
        `calibration`, "numeric", the least noise that meets epsilon, "norm-ec", that
        paper's formula (with local trust), which does not meet it, or "theorem-2.1" for methods that protect records.
        QTDL and binomial: `message_epsilon`, `message_delta`, `levels`, `mu`, of QTDL also `noise`: each message (with
        central trust, the sum) meets (message_epsilon, message_delta), and the certificate says what all of them
        together cost at `delta`. PrivUnit: `message_eps0` and `message_eps1` of the direction, `message_eps2` of the
        norm, and `gamma`.
    """
    require_method(algorithm)
    require_count(rounds, "rounds")
    drawn, trusted = parse_cohort(cohort), Trust.parse(trust)
    related = None if relation is None else Relation.parse(relation)
    by_record = algorithm.privacy.unit is Unit.RECORD
    wanted = epsilon is not None or noise_multiplier is not None
    asked = options | {"noise_multiplier": noise_multiplier}
    usual = Relation.REPLACE_ONE if by_record else default_relation(drawn, trusted)
    planned = Plan(
        method=algorithm,
        rounds=rounds,
        cohort=drawn,
        noise=noise_request(mechanism, wanted, asked),
        trust=trusted,
        relation=related or usual,
        epsilon=_per_client(epsilon),
        delta=_per_client(delta),
    )
    if by_record:
        require_record_plan(planned, related)
    else:
        require_client_plan(planned)
    return planned


def _per_client(values: float | Sequence[float] | None) -> PerClient | None:
    if isinstance(values, str):
        raise InvalidInput("epsilon or delta", values, "must be a number, or one number for each client")
    return tuple(values) if isinstance(values, Sequence) else values
