"""A budget that looks ahead: the next release is made only if what has been spent and it together stay within."""

from __future__ import annotations

from dataclasses import dataclass

from sordino.errors import BudgetExceeded, require
from sordino.privacy.accountants import epsilon_of
from sordino.privacy.stated import require_stated
from sordino.types import Event, Relation, Unit


@dataclass(frozen=True)
class Budget:
    """(epsilon, delta) over everything that is ever released about one unit, under one relation.

    What is stated for another unit or under another relation is refused.
    """

    epsilon: float
    delta: float
    relation: Relation
    unit: Unit = Unit.CLIENT

    def __post_init__(self) -> None:
        require(self.epsilon > 0, "epsilon", self.epsilon, "must be positive")
        require(0 <= self.delta < 1, "delta", self.delta, "must lie in [0, 1)")

    def spent(self, event: Event) -> float:
        """epsilon of what has been released, at this budget's delta."""
        require_stated(event, self.unit, self.relation)
        return epsilon_of(event, self.delta, self.relation)

    def require(self, after: Event) -> float:
        """epsilon `after` the next release, or raise before it is made.

        `after` is all that will have been spent: of a ledger `record.after(...).spent(observer)`, which knows whether
        the release is about a sample that others of its round have shown already.
        """
        projected = self.spent(after)
        if not projected <= self.epsilon:
            raise BudgetExceeded(
                f"the next release would bring epsilon to {projected:.6g} at delta = {self.delta:g}, above the budget "
                f"{self.epsilon:g} of one {self.unit} ({self.relation}): stop here, or agree on a larger budget before "
                "going on"
            )
        return projected
