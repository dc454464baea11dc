"""The figures of a certificate beside those that its ledger gives again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from sordino.errors import SordinoError
from sordino.privacy import wording
from sordino.privacy.accountants import account_of
from sordino.privacy.certification import certify_ledger
from sordino.privacy.events import ByHolder, held_by, parts_of
from sordino.privacy.guarantee import Certificate, Guarantee
from sordino.privacy.ledger_record import LedgerRecord
from sordino.types import Event, Observer, Relation, Unit

CLOSE = 1e-9  # relative difference of two computations of one figure
_MOST_FIGURES = 10_000  # clients' figures that are computed again; beyond them the file's digest alone is compared

Total: TypeAlias = tuple[Observer, Unit, Relation, float]


class Difference(NamedTuple):
    """A figure in which certificate and ledger differ."""

    code: str
    message: str


def is_whole(record: LedgerRecord) -> bool:
    """Whether the ledger holds all rounds that were planned."""
    planned = record.description.get("rounds")
    return record.finish is not None or (planned is not None and record.rounds() >= planned)


def differences(stated: Certificate, record: LedgerRecord) -> list[Difference]:
    """Where a certificate and a ledger disagree.

    Totals must be equal if all planned rounds are in the ledger. Before, the ledger may have spent less than the
    certificate states, but never more. A client's own figure must be that of one kind of client in the ledger, which
    does not name its clients.
    """
    if not record.entries:
        return []
    return [*_differing_totals(stated, record), *_differing_clients(stated, record)]


def _differing_totals(stated: Certificate, record: LedgerRecord) -> Iterator[Difference]:
    promised = {_key(total): total for total in stated.totals}
    found: dict[Total, Guarantee] = {}
    for delta in dict.fromkeys(total.delta for total in stated.totals):
        try:
            found |= {_key(total): total for total in certify_ledger(record, delta).totals}
        except SordinoError as error:
            yield Difference("not-in-ledger", wording.not_recomputable(delta, str(error)))
            promised = {key: total for key, total in promised.items() if total.delta != delta}
    own = record.description.get("delta")
    if isinstance(own, int | float) and own not in {total.delta for total in stated.totals}:
        yield Difference("not-in-certificate", wording.delta_not_in_certificate(float(own)))
    for key, total in promised.items():
        if key not in found:
            yield Difference("not-in-ledger", wording.not_in_ledger(total))
            continue
        epsilon = found[key].epsilon
        if _is_less(total.epsilon, epsilon):
            yield Difference("promises-less", wording.promises_less(total, epsilon, record.recovered))
        elif is_whole(record) and _is_less(epsilon, total.epsilon):
            yield Difference("promises-more", wording.promises_more(total, epsilon))
    # A second delta, as that of pure noise, need not be there for every observer.
    observed = {key[:3] for key in promised}
    missing = {key[:3]: total for key, total in found.items() if key[:3] not in observed}
    for total in missing.values():
        yield Difference("not-in-certificate", wording.not_in_certificate(total))


def _differing_clients(stated: Certificate, record: LedgerRecord) -> Iterator[Difference]:
    own = [each for each in stated.guarantees if each.client is not None and each.scope == "all rounds"]
    for observer in dict.fromkeys(each.observer for each in own):
        promises = [each for each in own if each.observer is observer]
        deltas = tuple(dict.fromkeys(each.delta for each in promises))
        kinds = _by_kind_of_client(record.spent(observer))
        if not kinds or len(kinds) * len(deltas) > _MOST_FIGURES:
            continue
        # One account at a time: the cache of accounts is small.
        figures: dict[float, list[float]] = {delta: [] for delta in deltas}
        for event in kinds:
            account = account_of(event, record.relation)
            for delta in deltas:
                figures[delta].append(account.epsilon(delta))
        strange = [each for each in promises if not _is_one_of(each.epsilon, figures[each.delta], is_whole(record))]
        if strange:
            yield Difference("other-clients", wording.other_clients(strange[0], len(strange)))


def _by_kind_of_client(spent: Event) -> list[Event]:
    """What the records of each kind of client were charged; none if the events do not sort clients alike."""
    holders = {len(part.events) for part in parts_of(spent) if isinstance(part, ByHolder)}
    if not holders:
        return [spent]
    return [held_by(spent, i) for i in range(min(holders))] if len(holders) == 1 else []


def _is_one_of(epsilon: float, figures: Sequence[float], whole: bool) -> bool:
    if whole:
        return any(not _is_less(epsilon, figure) and not _is_less(figure, epsilon) for figure in figures)
    return not _is_less(epsilon, min(figures))


def _key(total: Guarantee) -> Total:
    return total.observer, total.unit, total.relation, total.delta


def _is_less(first: float, second: float) -> bool:
    """Whether a figure is smaller by more than the rounding of two computations."""
    return first < second and not math.isclose(first, second, rel_tol=CLOSE)
