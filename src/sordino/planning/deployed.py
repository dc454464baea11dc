"""A plan as real machines run it: noise from the operating system's words, and what a round then costs each client.

*Local trust.* Each message is exact noise on a lattice of its own. Whoever sees it pays the same event: the server,
peers and model users. A simulation promises model users more, since sums of all messages hold the noise of all. A
deployment does not: sums of lattice messages with different spacings are not proven to be Gaussian noise, and where the
spacings have no common multiple a sum even reveals each of its integers. So nothing depends on who else answers.

*Central trust.* The server sees updates as they are, and a client has no guarantee against it. Model users have that of
the plan, whose noise on a lattice the server draws.

Noise grows by what rounding to the lattice takes, so that the noise multiplier on the lattice is the planned one; if
the plan was calibrated to an epsilon, it stays within.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from sordino.errors import InvalidInput, Refused, require, require_drawable
from sordino.mechanisms._lattice import sensitivities
from sordino.mechanisms.binomial import Binomial
from sordino.mechanisms.gaussian import Gaussian, GaussianRequest, OwnGaussian
from sordino.mechanisms.privunit import PrivUnit
from sordino.mechanisms.qtdl import Qtdl
from sordino.planning.arguments import usual_delta
from sordino.planning.cohort import FullCohort
from sordino.planning.record_clients import RecordClients, record_clients
from sordino.planning.record_noise import record_noise
from sordino.planning.resolved import ResolvedPlan, Rules
from sordino.planning.warnings import about_noise, counted
from sordino.privacy import host_noise, lattice, wording
from sordino.privacy.accountants import epsilon_of
from sordino.privacy.certification import certify
from sordino.privacy.events import NonPrivate, Repeated, Sampled, parts_of
from sordino.privacy.guarantee import Certificate
from sordino.privacy.stated import stated_as
from sordino.summation import rounding_share
from sordino.types import ClientNumbers, Draws, Event, Observer, Relation, Sampler, Trust, Unit, Warning

REPLACE_ONE = Relation.REPLACE_ONE
MARGINS = (0.0, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4)  # relative, by which noise may grow to stay within epsilon


@dataclass(frozen=True)
class DeployedPlan:
    """The rules that nodes and server run, and what a round of each client costs. `deploy` makes it."""

    resolved: ResolvedPlan
    rules: Rules
    costs: tuple[Event, ...]  # one a client: of a round that it answers, against the server, and so against everybody
    model_costs: tuple[Event, ...]  # one a client: against model users; with local trust the same
    draws: Draws
    of_file: tuple[Warning, ...] = ()  # what every certificate must say of the run file's constants

    def numbers(self, i: int) -> ClientNumbers | None:
        """The numbers that are client i's own."""
        own: ClientNumbers | None = jax.tree.map(lambda each: each[i], self.rules.numbers)
        return own

    def certificate(self, i: int, rounds_answered: int) -> Certificate:
        """What client i is promised after it has answered so many rounds, at least one."""
        plan = self.resolved.plan
        parts = []
        for observer, event in self._views(i):
            delta, units, about_units = self._delta(i)
            for each in (delta, 0.0) if plan.noise.pure else (delta,):
                certificate = certify(
                    event,
                    relation=self.relation,
                    observer=observer,
                    rounds=rounds_answered,
                    delta=each,
                    unit=self.unit,
                    units=units,
                    memory=plan.method.privacy.memory,
                    assumptions=self._assumptions(observer),
                )
                parts.append(certificate.with_warnings(*about_units))
        merged = Certificate.merge_observers(*parts)
        warnings = (*about_noise(plan, self.resolved.population.clients), *self.of_file)
        grounds = self._grounds(i)
        return dataclasses.replace(merged, draws=self.draws, assumptions=grounds).with_warnings(*warnings)

    @property
    def unit(self) -> Unit:
        """What is protected."""
        return self.resolved.method.privacy.unit

    @property
    def relation(self) -> Relation:
        """Which data sets are neighbours."""
        return self.resolved.plan.relation

    def _views(self, i: int) -> list[tuple[Observer, Event]]:
        models = (Observer.MODEL_USER, self.model_costs[i])
        if self.resolved.trust is Trust.CENTRAL:  # no peer sees another one's update
            return [(Observer.SERVER, self.costs[i]), models]
        return [(Observer.SERVER, self.costs[i]), (Observer.PEER, self.costs[i]), models]

    def _assumptions(self, observer: Observer) -> tuple[str, ...]:
        if self.resolved.trust is Trust.CENTRAL and observer is Observer.MODEL_USER:
            return (wording.ASSUME_SERVER_TRUSTED,)
        return self.resolved.method.assumptions(observer)

    def _delta(self, i: int) -> tuple[float, int | None, tuple[Warning, ...]]:
        plan, population = self.resolved.plan, self.resolved.population
        if self.unit is Unit.RECORD:
            clients = record_clients(plan, population)
            delta = float(clients.delta[i])
            return delta, *counted(int(clients.sizes[i]), delta)
        delta = float(plan.delta) if isinstance(plan.delta, float | int) else usual_delta(population.clients)
        return delta, population.clients, ()

    def _grounds(self, i: int) -> tuple[str, ...]:
        if not self.resolved.plan.private:
            return ()
        sampled = self.unit is Unit.RECORD and any(isinstance(part, Sampled) for part in parts_of(self.costs[i]))
        by_key = (wording.ASSUME_SECRET_KEYS,) if sampled else ()
        return (wording.ASSUME_OWN_RECORDS, wording.ASSUME_OS_RANDOM, *by_key)


def deploy(resolved: ResolvedPlan, of_file: tuple[Warning, ...] = ()) -> DeployedPlan:
    """The plan for real machines; what is not proven for them is refused. `of_file` are warnings of its run file."""
    _require_deployable(resolved)
    return dataclasses.replace(_with_noise_of_nodes(resolved), of_file=of_file)


def _with_noise_of_nodes(resolved: ResolvedPlan) -> DeployedPlan:
    if resolved.trust is Trust.NONE:
        return _with_cost(resolved, resolved.rules, NonPrivate(), Draws.NONE)
    if resolved.trust is Trust.CENTRAL:
        return _central(resolved)
    return _records(resolved) if resolved.method.privacy.unit is Unit.RECORD else _clients(resolved)


def _with_cost(resolved: ResolvedPlan, rules: Rules, event: Event, draws: Draws) -> DeployedPlan:
    """All clients pay the same, to everybody."""
    stated = stated_as(event, resolved.method.privacy.unit, resolved.plan.relation)
    costs = (stated,) * resolved.population.clients
    return DeployedPlan(resolved, rules.with_noise_in_client(), costs, costs, draws)


# --- What is refused -------------------------------------------------------------------------------------------------


def _require_deployable(resolved: ResolvedPlan) -> None:
    plan, method = resolved.plan, resolved.method
    remedy = "no protocol for secure aggregation is deployed, only simulated: use trust local"
    require(resolved.trust is not Trust.SECURE_AGGREGATION, "trust", resolved.trust, remedy)
    remedy = "no shuffler is deployed: use trust local"
    require(resolved.trust is not Trust.SHUFFLE, "trust", resolved.trust, remedy)
    remedy = "a server asks every node in every round: use cohort = full, or leave it out"
    require(isinstance(plan.cohort, FullCohort), "cohort", str(plan.cohort), remedy)
    remedy = "it adds noise between its local steps, which only a simulation's key can draw: use noise on messages"
    require(not method.privacy.noise_inside, "algorithm", type(method).__name__, remedy)
    if resolved.trust is Trust.LOCAL and method.assumptions(Observer.SERVER):
        assumed = "; ".join(method.assumptions(Observer.SERVER))
        raise Refused(f"the guarantee rests on this: {assumed}", "no deployment here gives it: start memories at zero")
    if isinstance(plan.noise, GaussianRequest):
        remedy = (
            "its published guarantee is false or rests on a constant that is not known: deploy calibration = numeric"
        )
        require(plan.noise.calibration not in ("norm-ec", "eq-5"), "calibration", plan.noise.calibration, remedy)


# --- Central trust ---------------------------------------------------------------------------------------------------


def _central(resolved: ResolvedPlan) -> DeployedPlan:
    mechanism, method, relation = resolved.mechanism, resolved.method, resolved.plan.relation
    if not isinstance(mechanism, Gaussian):
        remedy = "only Gaussian noise on a sum is deployed: use gaussian, or trust local"
        raise InvalidInput("mechanism", mechanism.name, remedy)
    remedy = "a server that releases models draws its noise on a lattice: leave sampler out"
    require(mechanism.sampler is Sampler.LATTICE, "sampler", mechanism.sampler, remedy)
    (released,) = (event for _, seen_by, event in resolved.releases if Observer.MODEL_USER in seen_by)
    bare = stated_as(NonPrivate("the server sees every update without noise"), method.privacy.unit, relation)
    models = stated_as(released, method.privacy.unit, relation)
    n = resolved.population.clients
    return DeployedPlan(resolved, resolved.rules, (bare,) * n, (models,) * n, Draws.LATTICE)


# --- Local trust, clients protected ----------------------------------------------------------------------------------


def _clients(resolved: ResolvedPlan) -> DeployedPlan:
    plan, mechanism, bound = resolved.plan, resolved.mechanism, resolved.method.bound
    assert bound is not None  # a plan with noise has one
    d, relation = _length(resolved), plan.relation
    if isinstance(mechanism, PrivUnit):
        return _with_cost(resolved, resolved.rules, mechanism.event(bound, relation, d), Draws.FLOAT32)
    if isinstance(mechanism, Qtdl | Binomial):
        remedy = "a node cannot promise what rests on sensitivities that nothing enforces: leave mu out"
        require(mechanism.mu is None, "mu", mechanism.mu, remedy)
        remedy = f"{mechanism.symbol_bits} bits a coordinate do not fit int32: use fewer levels or less noise"
        require(mechanism.symbol_bits <= 31, "levels", mechanism.levels, remedy)
        mechanism.event(bound, relation, d)  # refuses another bound or dimension than it was made for
        bounds = sensitivities(d, mechanism.levels, relation, None)
        event = (
            host_noise.drawn_quantized(mechanism.calibration, bounds)
            if isinstance(mechanism, Qtdl)
            else host_noise.drawn_coins(mechanism.coins, bounds, mechanism.failure)
        )
        return _with_cost(resolved, resolved.rules, event, Draws.LATTICE)
    if not isinstance(mechanism, Gaussian):
        remedy = "its noise is not drawn exactly on a node: use gaussian, qtdl, binomial or privunit"
        raise InvalidInput("mechanism", mechanism.name, remedy)
    sensitivity = float(bound.sensitivity(relation))

    def message(z: float) -> Gaussian:
        return Gaussian(_std_on_lattice(z, sensitivity, d, relation), Sampler.LATTICE)

    own = _least(
        float(mechanism.noise_std) / sensitivity,
        message,
        lambda each: Repeated(each.event(bound, relation, d), plan.rounds),
        plan.epsilon if isinstance(plan.epsilon, float | int) else None,
        plan.delta if isinstance(plan.delta, float | int) else None,
        relation,
    )
    rules = dataclasses.replace(resolved.rules, mechanism=own)
    return _with_cost(resolved, rules, own.event(bound, relation, d), Draws.LATTICE)


# --- Local trust, records protected ----------------------------------------------------------------------------------


def _records(resolved: ResolvedPlan) -> DeployedPlan:
    plan = resolved.plan
    clients = record_clients(plan, resolved.population)
    remedy = "a record that is drawn often moves a message further than lattice noise is proven for: draw without"
    require(not clients.with_replacement, "draws", "with-replacement", remedy)
    std = record_noise(plan, clients).std
    d = _length(resolved)
    alike: dict[tuple[float, ...], tuple[float, Event]] = {}

    def of(i: int) -> tuple[float, Event]:
        epsilon = None if clients.epsilon is None else float(clients.epsilon[i])
        facts = (clients.sizes, clients.batch, clients.weight, clients.lipschitz, clients.delta, std)
        kind = (*(float(each[i]) for each in facts), -1.0 if epsilon is None else epsilon)
        if kind not in alike:
            alike[kind] = _record_noise(clients, i, float(std[i]), epsilon, d, plan.rounds)
        return alike[kind]

    found = [of(i) for i in range(len(clients))]
    costs = tuple(event for _, event in found)
    assert isinstance(resolved.mechanism, OwnGaussian)
    assert resolved.rules.numbers is not None
    own = jnp.asarray(np.array([std for std, _ in found], np.float32))
    rules = dataclasses.replace(resolved.rules, numbers=resolved.rules.numbers._replace(noise_std=own))
    return DeployedPlan(resolved, rules.with_noise_in_client(), costs, costs, Draws.LATTICE)


def _record_noise(
    clients: RecordClients, i: int, std: float, epsilon: float | None, d: int, rounds: int
) -> tuple[float, Event]:
    """The std on the lattice of client i's messages, and what a round then costs one of its records."""
    sensitivity = float(clients.sensitivity[i])
    # float32 moves the mean of K gradients, whose sum is scaled twice, by this share of 2 L / K further.
    rounding = rounding_share(int(clients.batch[i]), scalings=2) / 2

    def message(z: float) -> Gaussian:
        return Gaussian(_std_on_lattice(z, sensitivity, d, REPLACE_ONE, rounding), Sampler.LATTICE, rounding)

    def cost(own: Gaussian) -> Event:
        drawn = own.event(clients.share(i), REPLACE_ONE, d, unit=Unit.RECORD)
        return stated_as(clients.in_round(i, drawn, "messages"), Unit.RECORD, REPLACE_ONE)

    own = _least(
        std / sensitivity,
        message,
        lambda each: Repeated(cost(each), rounds),
        epsilon,
        float(clients.delta[i]),
        REPLACE_ONE,
    )
    return float(own.noise_std), cost(own)


# --- Noise on a lattice ----------------------------------------------------------------------------------------------


def _length(resolved: ResolvedPlan) -> int:
    return resolved.method.privacy.message_parts * resolved.population.d


def _std_on_lattice(z: float, sensitivity: float, d: int, relation: Relation, rounding: float = 0.0) -> float:
    """The least float32 number whose noise multiplier on the lattice is at least z: it is the same on all machines."""
    try:
        std = lattice.noise_std_for(z, sensitivity, d, relation, rounding)
    except InvalidInput as error:
        least = lattice.LEAST_MULTIPLIER
        remedy = f"the law of lattice noise on {d} coordinates is proven from {least} up to a limit: "
        remedy += "use more noise" if z < least else "use less noise"
        raise InvalidInput("noise_multiplier", z, remedy) from error
    require_drawable("noise_std", std)
    rounded = np.float32(std)
    return float(rounded if float(rounded) >= std else np.nextafter(rounded, np.float32(np.inf)))


def _least(
    z: float,
    message: Callable[[float], Gaussian],
    total: Callable[[Gaussian], Event],
    epsilon: float | None,
    delta: float | None,
    relation: Relation,
) -> Gaussian:
    """The noise of multiplier z, or a hair more where that keeps the total within epsilon."""
    if epsilon is None or delta is None:
        return message(z)
    for margin in MARGINS:
        found = message(z * (1 + margin))
        if epsilon_of(total(found), delta, relation) <= epsilon:
            return found
    return message(z)  # a published calibration may not have met its epsilon either: the certificate says what holds
