"""What a node has released to all studies, against the budget of its period.

Servers may choose each request by what earlier ones showed: costs are added up by a filter (`privacy.filter`), which is
proven for that. A release counts for one period. Whatever window of that length one looks at, its last release was
allowed with all earlier ones of the window counted, so every window stays within the budget.

That rests on the node's clock. Releases count at the newest time that any ledger knows, and for TOLERANCE longer than a
period; with a clock that is further behind nothing is released. A clock that is set forward cannot be told from time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from sordino.deploy.node_study import releases
from sordino.deploy.study import Study
from sordino.errors import Refused, SordinoError
from sordino.privacy.filter import Filter, Spent
from sordino.privacy.ledger_record import LedgerRecord
from sordino.types import Event, Trust

EARLIEST = datetime(2026, 11, 1, tzinfo=UTC).timestamp()  # a clock that says less was never set
TOLERANCE = 86_400.0  # seconds by which a clock may be behind


class Spending:
    """Releases with their times, and what they cost in the filter's measure."""

    def __init__(self, filter: Filter, period: float) -> None:
        self.filter, self.period = filter, period
        self._released: dict[bytes, list[tuple[float, Spent]]] = {}  # by study
        self._costs: dict[Event, Spent] = {}

    def add(self, study: bytes, time: float, event: Event, count: int = 1) -> None:
        """Count releases to a study that were made at a time, in seconds since 1970."""
        self._released.setdefault(study, []).append((time, Spent(*(count * part for part in self._cost(event)))))

    def forget(self, study: bytes) -> None:
        """Count a study anew, from its ledger."""
        self._released.pop(study, None)

    @property
    def newest(self) -> float:
        """The time of the newest release."""
        return max((time for study in self._released.values() for time, _ in study), default=EARLIEST)

    def now(self, clock: float) -> float | None:
        """The time at which a release counts; None where the clock is too far behind."""
        return None if clock < max(EARLIEST, self.newest - TOLERANCE) else max(clock, self.newest)

    def within(self, now: float) -> Spent:
        """What was released during the period that ends now. Releases in the future of this clock count too."""
        every = (each for study in self._released.values() for each in study)
        counted = [cost for time, cost in every if time > now - self.period - TOLERANCE]
        return Spent(*map(sum, zip(*counted, strict=True))) if counted else Spent()

    def share(self, now: float) -> float:
        """The part of the budget that is spent."""
        return self.within(now).cost / self.filter.capacity

    def _cost(self, event: Event) -> Spent:
        if event not in self._costs:
            try:
                self._costs[event] = self.filter.cost(event)
            except Refused as error:
                remedy = "give this node a new state folder and a budget of its own, or the measure it had before"
                raise SordinoError(
                    f"the budget cannot count what was released before ({error.reason}): {remedy}"
                ) from None
        return self._costs[event]


def counted_releases(study: Study, i: int, record: LedgerRecord) -> Iterator[tuple[float, int]]:
    """When member i released something that counts, and of how many rounds; a torn line may have held some."""
    if study.plan.resolved.trust is Trust.NONE:
        return
    budgeted = set(releases(study, i)[-1][1])  # the observers whom the budget is about
    for each in {each.seq: each for each in record.entries if budgeted & set(each.observers)}.values():
        yield seconds(each.time), max(each.torn_rounds, 1)


def seconds(time: str) -> float:
    """Seconds since 1970 of a ledger's time."""
    return datetime.fromisoformat(time).timestamp()
