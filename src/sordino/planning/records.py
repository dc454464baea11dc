"""Resolving a plan that protects records: every client has noise and a guarantee of its own.

Neighbours replace one record of one client, so the numbers of records n_i are public. A method may take several noisy
gradients in a round and add the noise of each itself (`Privacy.noise_inside`): its messages are made from them and get
no more noise. Each client's local steps depend on its own noise, so a model user gets the server's guarantee, and
shuffling is refused.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from sordino.errors import require, require_drawable
from sordino.mechanisms import none
from sordino.mechanisms.gaussian import OwnGaussian
from sordino.planning.arguments import Arguments
from sordino.planning.grounds import grounded
from sordino.planning.minimax import distance_to_minimax
from sordino.planning.record_clients import RecordClients, record_clients, record_method
from sordino.planning.record_noise import (
    Costs,
    RecordNoise,
    noise_by_secure_aggregation,
    record_noise,
    relies_on_shuffler,
)
from sordino.planning.resolved import Figure, ResolvedPlan, Rules
from sordino.planning.warnings import about_means, about_noise, counted
from sordino.privacy import wording
from sordino.privacy.certification import certify
from sordino.privacy.events import UNTOLD, ByHolder
from sordino.privacy.guarantee import Certificate
from sordino.privacy.ledger_record import Release
from sordino.tasks import Population
from sordino.types import Event, Observer, Relation, Trust, Unit, Warning

_MOST_ROWS = 20


def resolve_records(plan: Arguments, population: Population) -> ResolvedPlan:
    """The rules of a round, every client's noise, and the certificate."""
    remedy = "methods that protect records train on them as they are: leave augment out"
    require(not population.facts.augmented, "augment", True, remedy)
    clients = record_clients(plan, population)
    noise = record_noise(plan, clients)
    clients = replace(clients, noise_std=noise.std)
    context = plan.context(population, records=clients)
    method = plan.method.resolve(context)
    remedy = "a model user is promised the noise of all clients, which must be fresh in every round: leave it out"
    require(not method.privacy.remembers_noise, "remembers_noise", True, remedy)
    for value in noise.std if plan.private else ():
        require_drawable("noise_std", float(value))
    mechanism = OwnGaussian() if plan.private and not method.privacy.noise_inside else none()
    certificate = _certificate(plan, clients, noise)
    rules = Rules.of(method, mechanism, plan.trusted, plan.cohort, population.clients)
    return ResolvedPlan(
        plan=plan,
        population=population,
        rules=replace(rules, numbers=clients.numbers()),
        trust=plan.trusted,
        certificate=grounded(plan, certificate).with_warnings(*_warnings(plan, population, clients, noise)),
        releases=_releases(population, clients, noise),
        summary=_summary(plan, population, clients, certificate, method.constants(context)),
    )


def _warnings(plan: Arguments, population: Population, clients: RecordClients, noise: RecordNoise) -> Iterator[Warning]:
    if plan.private:
        yield from about_means(int(clients.batch.max()))
        if population.facts.overlapping:
            yield wording.RECORDS_OVERLAP
    if plan.trusted is Trust.SHUFFLE and not relies_on_shuffler(noise.views[(Observer.SERVER,)]):
        yield wording.SHUFFLE_ADDS_NOTHING
    yield from about_noise(plan, population.clients)


# --- What is promised ------------------------------------------------------------------------------------------------


def _certificate(plan: Arguments, clients: RecordClients, noise: RecordNoise) -> Certificate:
    parts = [
        _promises(plan, clients, observer, seen, noise.assumptions.get(observer, ()))
        for observers, seen in noise.views.items()
        for observer in observers
    ]
    return Certificate.merge_observers(*parts)


def _promises(
    plan: Arguments, clients: RecordClients, observer: Observer, seen: Costs, assumptions: tuple[str, ...]
) -> Certificate:
    """What any record is promised at the largest delta, and then each client's own promise to its records."""
    per_client = (seen,) * len(clients) if isinstance(seen, Event) else seen
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
            assumptions=assumptions,
            memory=plan.method.privacy.memory,
        )

    kinds = tuple(dict.fromkeys(per_client))
    # This event is never composed with another run's, so it need not name which client is of which kind.
    everybody = ByHolder(kinds) if len(kinds) > 1 else kinds[0]
    units, too_large = counted(total, delta)
    own = [
        replace(guarantee, client=name)
        for name, event, n, own_delta in zip(clients.names, per_client, clients.sizes, clients.delta, strict=True)
        for guarantee in promised(event, float(own_delta), int(n)).guarantees
        if guarantee.scope == "all rounds"
    ]
    return Certificate.merge_observers(promised(everybody, delta, units), Certificate(tuple(own), too_large))


def _releases(population: Population, clients: RecordClients, noise: RecordNoise) -> tuple[Release, ...]:
    """What a round releases, by kind of client: those with the same costs against everybody are one kind."""
    columns = [events for events in noise.views.values() if not isinstance(events, Event)]
    by_client = list(zip(*columns, strict=True))
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(by_client))}
    holders = (population.assignment, clients.names, [kinds[kind] for kind in by_client])
    # The name of the sorting: where the assignment of records is known to one task alone, the task is part of it.
    sorting = hashlib.sha256(repr(((holders[0], holders[1]), holders[2])).encode()).hexdigest()[:16]
    sorting += "" if population.assignment else UNTOLD + f"task {population.task_token}"

    def cost(seen: Costs) -> Event:
        if isinstance(seen, Event):
            return seen
        place = next(k for k, events in enumerate(columns) if events is seen)
        of_kinds = tuple(kind[place] for kind in kinds)
        return of_kinds[0] if len(kinds) == 1 else ByHolder(of_kinds, sorting)

    return tuple(("gradient", observers, cost(seen)) for observers, seen in noise.views.items())


# --- What `sordino plan` prints --------------------------------------------------------------------------------------


def _summary(
    plan: Arguments,
    population: Population,
    clients: RecordClients,
    certificate: Certificate,
    constants: Mapping[str, float],
) -> dict[str, Figure]:
    _, options = record_method(plan)
    summary: dict[str, Figure] = {
        "parameters": float(population.d),
        "clients": float(len(clients)),
        "planned_cohort": plan.cohort.planned(len(clients)),
        "bits_per_message": 32.0 * population.d * plan.method.privacy.message_parts,
    }
    if constants:
        lipschitz = sorted({float(clients.lipschitz.min()), float(clients.lipschitz.max())})
        summary["assumed"] = wording.step_size_constants(lipschitz, options.feature_bound, constants)
    summary |= distance_to_minimax(plan, clients, population.d, constants)
    summary["each_client"] = _rows(clients, certificate)[:_MOST_ROWS]
    if plan.trusted is Trust.SHUFFLE:
        summary["noise_std_by_secure_aggregation"] = noise_by_secure_aggregation(plan, clients)
    return summary


def _rows(clients: RecordClients, certificate: Certificate) -> list[dict[str, object]]:
    """A row a client; the least protected against the server first, where there are many."""
    epsilon = {(each.client, each.observer): float(each.epsilon) for each in certificate.guarantees}
    order = list(range(len(clients)))
    if len(order) > _MOST_ROWS:
        order.sort(key=lambda i: -epsilon[clients.names[i], Observer.SERVER])
    return [
        {
            "client": clients.names[i],
            "records": int(clients.sizes[i]),
            "batch": int(clients.batch[i]),
            "noise_std": float(clients.noise_std[i] / clients.weight[i]),
            "epsilon": epsilon[clients.names[i], Observer.SERVER],
            "epsilon_models": epsilon[clients.names[i], Observer.MODEL_USER],
            "delta": float(clients.delta[i]),
        }
        for i in order
    ]
