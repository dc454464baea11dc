"""Which warnings a plan's certificate carries. `privacy.wording` writes their sentences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sordino.planning.arguments import Arguments
from sordino.planning.cohort import FixedCohort, FullCohort, UnreliableCohort
from sordino.planning.resolved import ResolvedPlan
from sordino.privacy import wording
from sordino.summation import rounding_share
from sordino.tasks import Population
from sordino.types import Draws, Memory, Relation, Trust, Unit, Warning

NOTICEABLE = 0.01  # share by which rounding may add to a sensitivity before the certificate warns


def memory_by_number(plan: Arguments) -> bool:
    """Whether clients that keep a memory are drawn by number.

    With a cohort of fixed size one client's participation lowers another's, and memories reveal this later.
    """
    return plan.method.privacy.memory is not Memory.NONE and isinstance(plan.cohort, FixedCohort)


def about_noise(plan: Arguments, clients: int) -> Iterator[Warning]:
    """What every certificate of this noise, cohort and trust must say."""
    trust = plan.trusted
    if trust is not Trust.NONE and plan.relation is Relation.ADD_REMOVE:
        # Sums are divided by the planned number: divided by the realised one, they would show that a client has gone.
        everybody = isinstance(plan.cohort, FullCohort)
        yield wording.numbers_are_public(clients, None if everybody else plan.cohort.planned(clients))
    if isinstance(plan.cohort, UnreliableCohort):
        yield wording.UNRELIABLE_COHORT
    if trust is Trust.CENTRAL and memory_by_number(plan):
        yield wording.no_amplification(str(plan.cohort))
    if trust is Trust.SECURE_AGGREGATION and not plan.noise.sums_exactly(trust):
        yield wording.IDEAL_SHARES
    if trust in (Trust.LOCAL, Trust.SECURE_AGGREGATION) and plan.rounds > 1:
        yield wording.total_counts(plan.rounds)
    if plan.private:
        yield wording.THIS_RUN_ALONE


def about_sums(plan: Arguments, clients: int) -> Iterator[Warning]:
    """Rounding of sums of floats; sums of integers are exact. Local noise is simulated on the sum too."""
    if not plan.private or plan.noise.sums_exactly(plan.trust) or plan.noise.pure:
        return
    cohort = plan.cohort.capacity(clients)
    share = rounding_share(cohort)
    if plan.noise.draws(plan.trust) is not Draws.LATTICE:
        yield from _rounding(f"sums of {cohort} messages", share, "use a smaller cohort")
    elif share >= NOTICEABLE:
        yield wording.noise_for_rounding(cohort, share)


def about_means(batch: int) -> Iterator[Warning]:
    """Rounding of a mean of gradients: the sum, which one record moves by twice the bound, is scaled twice."""
    share = rounding_share(batch, scalings=2) / 2
    yield from _rounding(f"means of {batch} gradients", share, "use a smaller batch_size")


def _rounding(what: str, share: float, remedy: str) -> Iterator[Warning]:
    if share >= NOTICEABLE:
        yield wording.rounded_sums(what, share, remedy)


def counted(records: int | None, delta: float) -> tuple[int | None, tuple[Warning, ...]]:
    """How many records share a delta; None, with a warning, where delta is too large for so many."""
    if records is None or delta < 1 / records:
        return records, ()
    return None, (wording.delta_too_large(delta, records),)


def about_data(plan: Arguments, population: Population, resolved: ResolvedPlan) -> ResolvedPlan:
    """The resolved plan with what the data decided outside of the rounds, which no certificate covers."""
    if not plan.private:
        return resolved
    warnings = tuple(_about_data(population, plan.method.privacy.unit))
    return replace(resolved, certificate=resolved.certificate.with_warnings(*warnings))


def _about_data(population: Population, unit: Unit) -> Iterator[Warning]:
    facts = population.facts
    if facts.starts_near_data:
        yield wording.START_DEPENDS_ON_DATA
    if facts.classes_counted is not None:
        yield wording.shape_depends_on_data(facts.classes_counted)
    if facts.words_counted:
        yield wording.words_depend_on_data(facts.words_counted)
    if facts.measured_on_clients:
        yield wording.NO_TEST_SET
    elif facts.tests_clients and unit is Unit.CLIENT:
        yield wording.test_set_of_clients(True)
    elif facts.tests_held_out:
        yield wording.test_set_held_out(True)
    elif facts.tests_clients is None and unit is Unit.CLIENT:
        yield wording.test_set_of_clients(False)
    elif facts.tests_held_out is None:
        yield wording.test_set_held_out(False)
    if facts.dealt_anew and unit is Unit.CLIENT:
        yield wording.clients_dealt_anew(population.clients)
    if facts.dealt_by_label and unit is Unit.RECORD:
        yield wording.DEALT_BY_LABEL
    if population.names:
        yield wording.names_are_clients(unit)
