"""What all figures of a plan's certificate rest on: how its noise is drawn, and what is assumed of every client."""

from __future__ import annotations

from dataclasses import replace

from sordino.planning.arguments import Arguments
from sordino.privacy import wording
from sordino.privacy.guarantee import Certificate
from sordino.types import Trust


def grounded(plan: Arguments, certificate: Certificate) -> Certificate:
    """The certificate of a plan with its grounds; without noise there is nothing to rest on anything."""
    assumptions = []
    if plan.private:
        assumptions.append(wording.ASSUME_OWN_RECORDS)
    if plan.trusted is Trust.CENTRAL:  # the noise of messages is that of a deployment's clients
        assumptions.append(wording.ASSUME_SECRET_SEED)
    return replace(certificate, draws=plan.noise.draws(plan.trust), assumptions=tuple(assumptions))
