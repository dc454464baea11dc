"""Noise as a plan asks for it, by name and with its own keys of [privacy]; calibration turns it into a mechanism."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sordino.errors import InvalidInput, require
from sordino.privacy.calibration import Target
from sordino.types import Bounder, Draws, Event, Mechanism, Relation, Trust


@dataclass(frozen=True)
class NoiseContext:
    """What the noise of one message is calibrated for."""

    bound: Bounder
    relation: Relation
    d: int  # coordinates of a message
    trust: Trust
    terms: int  # most messages of a sum
    fewest: int  # clients that take part in a round at least
    target: Target | None  # what all rounds together must meet; None where the noise itself is given
    round_cost: Callable[[Mechanism], Event]  # of all releases of a round with this mechanism

    def message_cost(self, mechanism: Mechanism) -> Event:
        return mechanism.event(self.bound, self.relation, self.d)


class NoiseRequest:
    """The noise that a plan asks for. A frozen dataclass: its fields are the keys of [privacy] that are its own."""

    name: ClassVar[str]
    amplified: ClassVar[bool] = True  # whether a theorem amplifies this noise by a secret sample of clients
    whole_numbers: ClassVar[bool] = False  # whether messages are integers, whose sums are exact
    pure: ClassVar[bool] = False  # whether the total is also stated without a delta

    def check(self, trust: Trust, epsilon: object, delta: object) -> None:
        """Refuse what this noise cannot be asked for, before anything else is known."""

    def sums_exactly(self, trust: Trust) -> bool:
        """Whether messages are integers, whose sums are exact."""
        return self.whole_numbers

    def draws(self, trust: Trust) -> Draws:
        """How this noise is drawn: see `Draws`."""
        return Draws.FLOAT32 if trust is Trust.CENTRAL else Draws.SIMULATED_MESSAGES

    def calibrate(self, context: NoiseContext) -> Mechanism:
        """The mechanism, with the least noise that meets what is asked for."""
        raise NotImplementedError

    def stated(self, of_round: Event, context: NoiseContext) -> Event:
        """The cost of all releases of a round, with what must be said about how the noise was chosen."""
        return of_round

    def figures(self, mechanism: Mechanism, context: NoiseContext) -> Mapping[str, float]:
        """What `sordino plan` prints of the calibration."""
        return {}


Number = int | float | np.floating


@dataclass(frozen=True)
class ScaledRequest(NoiseRequest):
    """Noise in proportion to the sensitivity, calibrated to (epsilon, delta) over all rounds or given."""

    noise_multiplier: float | None = None

    def check(self, trust: Trust, epsilon: object, delta: object) -> None:
        remedy = "give either epsilon (with delta) or noise_multiplier, not both and not neither"
        require((epsilon is None) != (self.noise_multiplier is None), "epsilon", epsilon, remedy)
        require(epsilon is None or delta is not None, "delta", delta, "give delta with epsilon")
        given: object = self.noise_multiplier
        positive = given is None or (isinstance(given, Number) and not isinstance(given, bool) and float(given) > 0)
        require(positive, "noise_multiplier", given, "must be a positive number; for no noise use mechanism none")


class MessageRequest(NoiseRequest):
    """Noise that is calibrated a message at a time."""

    needed: ClassVar[tuple[str, ...]]

    def check(self, trust: Trust, epsilon: object, delta: object) -> None:
        remedy = f"{self.name} is calibrated a message at a time: give {', '.join(self.needed)}"
        if epsilon is not None:
            raise InvalidInput("epsilon", epsilon, remedy)
        for name in self.needed:
            require(vars(self)[name] is not None, name, None, remedy)
