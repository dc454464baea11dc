"""What all figures of a plan's certificate rest on: how its noise is drawn, and what is assumed of every client."""

from __future__ import annotations

from dataclasses import replace

from sordino.planning.arguments import Arguments
from sordino.privacy import wording
from sordino.privacy.guarantee import Certificate
from sordino.types import Draws, Trust


def grounded(plan: Arguments, certificate: Certificate) -> Certificate:
    """The certificate of a plan with its grounds; without noise there is nothing to rest on anything."""
    if not plan.private:
        return replace(certificate, draws=Draws.NONE)
    return replace(certificate, draws=_draws(plan), assumptions=(wording.ASSUME_OWN_RECORDS,))


def _draws(plan: Arguments) -> Draws:
    return Draws.FLOAT32 if plan.trusted is Trust.CENTRAL else Draws.SIMULATED_MESSAGES
