"""Resolving a plan that protects clients: calibrate the noise, fit the method, certify what each observer sees."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from sordino.errors import InvalidInput, require
from sordino.mechanisms import none
from sordino.mechanisms.request import NoiseContext
from sordino.planning.arguments import Arguments, usual_delta
from sordino.planning.grounds import grounded
from sordino.planning.observers import View, client_views, releases_of, sampling_of
from sordino.planning.resolved import Figure, ResolvedPlan, Rules
from sordino.planning.warnings import about_noise, about_sums, counted
from sordino.privacy import wording
from sordino.privacy.accountants import epsilon_of
from sordino.privacy.calibration import Target
from sordino.privacy.certification import certify
from sordino.privacy.events import Claimed, Composed, NonPrivate, Repeated, sampled
from sordino.privacy.guarantee import Certificate
from sordino.privacy.sampling import Full
from sordino.privacy.stated import stated
from sordino.tasks import Population
from sordino.types import Bounder, Event, Mechanism, Memory, Method, Observer, Relation, Trust, Unit, Warning

NEGLIGIBLE = 0.02  # by how much a step size may raise epsilon before the certificate warns

_certify = functools.lru_cache(maxsize=1000)(certify)  # points of a sweep often promise the same


def resolve_clients(plan: Arguments, population: Population) -> ResolvedPlan:
    """The rules of a round, the certificate, and what a round releases."""
    trust, clients = plan.trusted, population.clients
    mechanism, event, figures = _noise(plan, population)
    method = plan.method.resolve(plan.context(population, mechanism))
    remedy = "remembered noise (remember_noise) is noise that clients add themselves: use trust local"
    clients_add_it = trust in (Trust.LOCAL, Trust.NONE)
    require(clients_add_it or not method.privacy.remembers_noise, "trust", trust, remedy)
    if plan.private:
        _require_consistent(plan, population, method)
    views = client_views(plan, method, mechanism, event, clients)
    certificate = _certificate(plan, population, views, event)
    beside, about_step_size = _side_release(plan, population, method, event, certificate)
    warnings = (*about_step_size, *method.warnings(), *about_noise(plan, clients), *about_sums(plan, clients))
    return ResolvedPlan(
        plan=plan,
        population=population,
        rules=Rules.of(method, mechanism, trust, plan.cohort, clients),
        trust=trust,
        certificate=grounded(plan, certificate).with_warnings(*warnings),
        releases=releases_of(views),
        summary={**_summary(plan, population, method, mechanism), **figures, **beside},
    )


def _require_consistent(plan: Arguments, population: Population, method: Method) -> None:
    """Refuse a method whose guarantee would not be about what it sends."""
    name = type(method).__name__
    remedy = "its `resolve` changes the bound that the noise is made for: give the method that bound"
    require(method.bound == plan.method.bound, "algorithm", name, remedy)
    kept = jax.eval_shape(method.init_client, jax.ShapeDtypeStruct((population.d,), jnp.float32))
    stateless = not jax.tree.leaves(kept)
    both = (method.side_event(plan.relation) is None) == (method.side_noise_std() is None)
    remedy = "a side scalar needs a `side_event` and the `side_noise_std` of the noise that it accounts for: write both"
    require(both, "algorithm", name, remedy)
    remedy = "its clients keep a state: name it in `privacy` (memory = Memory.ZERO where it starts at zero)"
    require(stateless or method.privacy.memory is not Memory.NONE, "algorithm", name, remedy)


def _require_sensitivity(bound: Bounder, relation: Relation) -> None:
    """Refuse a bounder that declares less than its own limit moves a sum by: the noise is made for what it declares."""
    declared, factor, limit = float(bound.sensitivity(relation)), relation.sensitivity_factor, float(bound.limit)
    remedy = (
        f"under {relation} messages of norm {limit:g} move a sum by {factor * limit:g}, and {type(bound).__name__} "
        "declares less: return relation.sensitivity_factor * self.limit, or more"
    )
    rounding = 1 + 1e-15  # of a product in another order
    require(declared * rounding >= factor * limit, "sensitivity", declared, remedy)


def _noise(plan: Arguments, population: Population) -> tuple[Mechanism, Event, Mapping[str, float]]:
    """The calibrated mechanism, what all releases of a round cost with it, and its figures."""
    if not plan.private:
        return none(), NonPrivate(), {}
    bound = plan.method.bound
    if bound is None:
        raise InvalidInput("bound", None, "private noise needs a bound: give clip, normalize or adaptive_clip")
    _require_sensitivity(bound, plan.relation)
    adaptive = plan.method.side_event(plan.relation) is not None
    if adaptive and (plan.mechanism, plan.trust) != ("gaussian", Trust.CENTRAL):
        remedy = "only the server's Gaussian noise protects the scalar beside the update: use gaussian, trust central"
        raise InvalidInput("bound", type(bound).__name__, remedy)

    def round_cost(mechanism: Mechanism) -> Event:
        """The message, and what is released beside it, whose noise may depend on the message's."""
        message = context.message_cost(mechanism)
        side = plan.method.resolve(plan.context(population, mechanism)).side_event(plan.relation)
        both = message if side is None else Composed((message, mechanism.side_cost(side)))
        return plan.noise.stated(both, context)

    length = plan.method.privacy.message_parts * population.d
    terms, fewest = plan.cohort.capacity(population.clients), plan.cohort.fewest(population.clients)
    target = _target(plan, population)
    context = NoiseContext(bound, plan.relation, length, plan.trust, terms, fewest, target, round_cost)
    mechanism = plan.noise.calibrate(context)
    return mechanism, round_cost(mechanism), plan.noise.figures(mechanism, context)


def _target(plan: Arguments, population: Population) -> Target | None:
    """What the noise must meet over all rounds, against the observer to whom it is promised."""
    if not isinstance(plan.epsilon, float | int) or not isinstance(plan.delta, float | int):
        return None
    # Local noise is promised against the server, which sees who was sampled: no amplification.
    sampling = sampling_of(plan, population.clients) if plan.trust is Trust.CENTRAL else Full()
    return Target(plan.epsilon, plan.delta, plan.rounds, sampling, plan.relation)


def _certificate(plan: Arguments, population: Population, views: list[View], event: Event) -> Certificate:
    """What every observer's view promises; pure noise has a total without delta too."""
    delta = plan.delta if isinstance(plan.delta, float | int) else usual_delta(population.clients)
    unit = stated(event)[0] or Unit.CLIENT  # assumed sensitivities are about records
    units, too_large = (population.clients, ()) if unit is Unit.CLIENT else counted(population.records, delta)
    parts = [
        _certify(
            view.event,
            relation=plan.relation,
            observer=view.observer,
            rounds=plan.rounds,
            delta=each,
            unit=unit,
            sampling=view.sampling,
            units=units,
            memory=plan.method.privacy.memory,
            assumptions=view.assumptions,
        )
        for view in views
        for each in ((delta, 0.0) if plan.noise.pure else (delta,))
    ]
    return Certificate.merge_observers(*parts).with_warnings(*too_large)


def _side_release(
    plan: Arguments, population: Population, method: Method, event: Event, certificate: Certificate
) -> tuple[dict[str, float], tuple[Warning, ...]]:
    """The figures of a step size or metric that is a release of its own, and a warning of a step size that is dear."""
    side = method.side_figures()
    of_round = event.event if isinstance(event, Claimed) else event
    if not side or not isinstance(of_round, Composed):
        return {}, ()
    total = certificate.total(Observer.MODEL_USER)
    message = sampled(of_round.events[0], sampling_of(plan, population.clients))
    without = epsilon_of(Repeated(message, plan.rounds), total.delta, plan.relation)
    (name,) = (figure.removesuffix("_noise_std") for figure in side)
    figures = {**side, f"epsilon_without_{name}": without}
    cheap = name != "step_size" or total.epsilon <= (1 + NEGLIGIBLE) * without
    return figures, () if cheap else (wording.step_size_cost(without, total.epsilon, NEGLIGIBLE),)


def _summary(plan: Arguments, population: Population, method: Method, mechanism: Mechanism) -> dict[str, Figure]:
    sparse = method.sparse_bits(population.d) if plan.trusted is not Trust.LOCAL else None
    length = method.privacy.message_parts * population.d
    return {
        "parameters": float(population.d),
        "clients": float(population.clients),
        "planned_cohort": plan.cohort.planned(population.clients),
        **mechanism.summary,
        "bits_per_message": float(sparse or mechanism.bits(length)),
    }
