"""What a plan becomes once it knows the population: the rules of a round, what each round shows, the certificate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from sordino.mechanisms.secure_sum import SecureSum
from sordino.planning.arguments import Arguments
from sordino.planning.cohort import Cohort
from sordino.privacy.events import Composed, Repeated
from sordino.privacy.guarantee import Certificate
from sordino.privacy.ledger_record import Release
from sordino.pytrees import pytree
from sordino.tasks import Population
from sordino.types import ClientNumbers, Event, Mechanism, Method, Observer, Placement, Privacy, Relation, Trust, Unit

Figure: TypeAlias = float | str | list[dict[str, object]]  # a figure that `sordino plan` prints, or a table of them


@pytree
@dataclass(frozen=True)
class Rules:
    """All that the two turns of a round need of a plan: the same object is simulated, sharded and deployed."""

    method: Method
    mechanism: Mechanism
    numbers: ClientNumbers | None  # arrays over all clients, of which a client is given its own entries
    placement: Placement = field(metadata={"static": True})
    planned_cohort: float | None = field(metadata={"static": True})  # None: divide by the clients that answered
    side_is_priced: bool = field(default=False, metadata={"static": True})  # a scalar beside messages is accounted for

    @classmethod
    def of(cls, method: Method, mechanism: Mechanism, trust: Trust, cohort: Cohort, clients: int) -> Rules:
        """The rules of a resolved method and a mechanism. They promise nothing by themselves: a plan certifies."""
        placement = placed(trust, mechanism, cohort, method.privacy)
        planned = None if method.privacy.unit is Unit.RECORD else cohort.planned(clients)
        priced = method.side_event(Relation.ADD_REMOVE) is not None
        return cls(method, mechanism, None, placement, planned, priced)

    def with_noise_in_client(self) -> Rules:
        """The same rules where every message must exist by itself: on a node, or in a transcript."""
        simulated = self.placement is Placement.LAW_OF_SUM
        return replace(self, placement=Placement.IN_CLIENT) if simulated else self


def placed(trust: Trust, mechanism: Mechanism, cohort: Cohort, privacy: Privacy) -> Placement:
    """Where the noise falls: the only place that decides it."""
    if trust is Trust.NONE or privacy.noise_inside:
        return Placement.NONE
    if trust is Trust.CENTRAL:
        return Placement.ON_SUM
    if isinstance(mechanism, SecureSum):
        return Placement.IN_SHARES
    one_by_one = privacy.remembers_noise or mechanism.aggregate is None or not cohort.fixed_count
    return Placement.IN_CLIENT if one_by_one else Placement.LAW_OF_SUM


@dataclass(frozen=True)
class ResolvedPlan:
    """A plan for a known population: what runs, simulated or deployed."""

    plan: Arguments
    population: Population
    rules: Rules
    trust: Trust
    certificate: Certificate
    releases: tuple[Release, ...]  # of one round, for the ledger
    summary: Mapping[str, Figure]  # what `sordino plan` prints

    @property
    def method(self) -> Method:
        """The method, fitted to the plan."""
        return self.rules.method

    @property
    def mechanism(self) -> Mechanism:
        """The calibrated mechanism."""
        return self.rules.mechanism

    @property
    def promised(self) -> Observer:
        """The observer for whom the noise was made."""
        return Observer.MODEL_USER if self.trust in (Trust.CENTRAL, Trust.NONE) else Observer.SERVER

    def event_for(self, observer: Observer, rounds: int) -> Event:
        """What `rounds` rounds show to an observer."""
        seen = (Repeated(event, rounds) for _, observers, event in self.releases if observer in observers)
        return Composed(tuple(seen))
