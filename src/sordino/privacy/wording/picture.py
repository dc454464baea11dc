"""The words of a report's picture: how much an observer may learn, in a cell, and what is not for everybody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sordino.privacy.wording.figures import format_delta, format_epsilon
from sordino.privacy.wording.plain import AMOUNTS, LARGE_DELTA
from sordino.types import Draws, Observer, SeedOrigin

if TYPE_CHECKING:
    from sordino.privacy.guarantee import Certificate, Guarantee

WORST = len(AMOUNTS) + 2  # the level of an observer without limits

# Warnings after which a guarantee does not cover what was measured.
NOT_COVERED = {
    "measured-on-clients": "they are measured on the clients' own records, or on private records that train no model",
    "start-depends-on-data": "the initial model is computed from the clients' data and is not covered",
    "constants-from-data": "constants of the method are computed from the clients' data and are not covered",
    "no-valid-guarantee": "the claimed guarantee is not valid",
}
NO_NOISE = "no guarantee limits what is learnt from the models of this run"
IDEAL_NOISE = "the guarantee describes ideal noise, and the noise of this run is simulated"
GIVEN_SEED = "the seed was given by hand: whoever knows it can remove the noise"
SHARED_SEED = "the points of a sweep share their noise, and the certificate of each is about that point alone"
SEVERAL_RUNS = "each certificate covers its own run alone, and comparing several runs is not covered"


def level(guarantee: Guarantee) -> int:
    """How much may be learnt, from 1 (little) to 5 (no limit)."""
    if not guarantee.private:
        return WORST
    if guarantee.delta > LARGE_DELTA:
        return WORST - 1
    return next((k for k, most in enumerate(AMOUNTS, 1) if guarantee.epsilon <= most), WORST - 1)


def amount(guarantee: Guarantee) -> str:
    """The same in two or three words."""
    if not guarantee.private:
        return "no limit"
    if guarantee.delta > LARGE_DELTA:
        return "everything, with a probability of delta"
    return ("little", "a limited amount", "much", "almost everything")[level(guarantee) - 1]


def cell_lines(guarantee: Guarantee) -> tuple[str, ...]:
    """The figures of a cell."""
    if not guarantee.private:
        return (f"epsilon {format_epsilon(guarantee.epsilon)}",)
    return f"epsilon {format_epsilon(guarantee.epsilon)}", f"delta {format_delta(guarantee.delta)}"


def why_not_covered(certificate: Certificate) -> str | None:
    """Why no guarantee of this run covers figures that are measured on its models; None if one does.

    Such figures follow from the models after every round. A guarantee against those who see these models covers them,
    if it is about the noise that was drawn, with a seed that nobody knows and no other run has.
    """
    for warning in certificate.warnings:
        if warning.code in NOT_COVERED:
            return NOT_COVERED[warning.code]
    seers = (Observer.MODEL_USER, Observer.SERVER)
    if not any(total.private and total.observer in seers for total in certificate.totals):
        return NO_NOISE
    if certificate.seed in (SeedOrigin.SHARED, SeedOrigin.GIVEN):
        return SHARED_SEED if certificate.seed is SeedOrigin.SHARED else GIVEN_SEED
    return None if certificate.draws is Draws.LATTICE else IDEAL_NOISE
