"""Warnings of the calculator."""

from __future__ import annotations

from sordino.types import Warning

PER_MESSAGE = Warning(
    "per-message", "The figure is for one message. It composes over every round in which a client takes part."
)
ONE_SHIFT = Warning("one-shift", "The figure is for the given shift, not for the worst one.")
TRANSMIT_LEVEL = Warning(
    "transmit-level", "Two levels have the same magnitude at this eps2, so the level itself must be transmitted."
)


def claim_not_proven(claimed: float) -> Warning:
    """cpSGD's epsilon is smaller than the proven one."""
    return Warning(
        "claim-not-proven",
        f"cpSGD's Theorem 1 claims epsilon = {claimed:.6g}. Its classical Gaussian term is proven for epsilon <= 1 "
        "only.",
    )


def shuffler(assumption: str) -> Warning:
    """Amplification by shuffling."""
    return Warning("shuffler", f"The figure holds against an observer of the shuffled messages, if {assumption}.")
