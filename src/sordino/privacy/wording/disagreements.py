"""What `sordino certify` says where the figures of a certificate and of a ledger differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sordino.privacy.wording.figures import format_delta, format_epsilon

if TYPE_CHECKING:
    from sordino.privacy.guarantee import Guarantee


def promises_less(stated: Guarantee, found: float, recovered: int) -> str:
    """The certificate states a smaller epsilon than the ledger."""
    remedy = "use the larger figure, and restore the file that was changed"
    if recovered:
        remedy = f"{recovered} line(s) torn by a crash count as the most expensive release: use the ledger's figure"
    return f"{_two_figures(stated, found)}; {remedy}"


def promises_more(stated: Guarantee, found: float) -> str:
    """The certificate states a larger epsilon than the ledger of a whole run."""
    return f"{_two_figures(stated, found)}; use the larger figure, and restore the file that was changed"


def not_in_ledger(stated: Guarantee) -> str:
    """The ledger holds no release for an observer of the certificate."""
    return f"certificate.json has a figure for {_subject(stated)}, ledger.jsonl has none; restore both files"


def not_in_certificate(found: Guarantee) -> str:
    """The certificate leaves out an observer of the ledger."""
    return f"ledger.jsonl has a figure for {_subject(found)}, certificate.json has none; restore both files"


def other_clients(stated: Guarantee, number: int) -> str:
    """A client's own epsilon is that of no client in the ledger."""
    others = f" and {number - 1} more" * (number > 1)
    return (
        f"certificate.json says epsilon = {format_epsilon(stated.epsilon)} for {_subject(stated)}{others}, which no "
        "client of ledger.jsonl has; restore both files"
    )


def not_recomputable(delta: float, reason: str) -> str:
    """The ledger has no figure at a delta of the certificate."""
    return f"certificate.json has figures at delta = {format_delta(delta)}, ledger.jsonl has none there ({reason})"


def delta_not_in_certificate(delta: float) -> str:
    """The certificate has no figure at the ledger's own delta."""
    return f"certificate.json has no figure at delta = {format_delta(delta)}, the delta of ledger.jsonl; restore both"


def _two_figures(stated: Guarantee, found: float) -> str:
    figures = [format_epsilon(stated.epsilon), format_epsilon(found)]
    if figures[0] == figures[1]:  # they differ beyond the digits that are usually printed
        figures = [f"{stated.epsilon:.12g}", f"{found:.12g}"]
    return f"for {_subject(stated)}, certificate.json says epsilon = {figures[0]} and ledger.jsonl {figures[1]}"


def _subject(guarantee: Guarantee) -> str:
    client = "" if guarantee.client is None else f" of {guarantee.client}"
    return (
        f"one {guarantee.unit}{client} ({guarantee.relation}) against the {guarantee.observer} at delta "
        f"{format_delta(guarantee.delta)}"
    )
