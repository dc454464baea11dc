"""A node's own account: every study that it took part in, its certificate, and what is spent of the budget.

It is read from the files of the node, also while it runs. Ledgers are checked line by line, and nothing is written.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from sordino.deploy.both_sides import read_study, signed_statement
from sordino.deploy.node import STUDIES
from sordino.deploy.node_study import LEDGER, OWN_STATEMENT, entries_of
from sordino.deploy.places import NodePlace
from sordino.deploy.rollback import count_file, require_newest, rounds_counted
from sordino.deploy.rulebook import released
from sordino.deploy.settings import DAY
from sordino.deploy.spending import Spending, counted_releases
from sordino.deploy.statements import NODE_STATEMENT
from sordino.deploy.study import Study
from sordino.errors import require
from sordino.privacy.guarantee import Certificate
from sordino.privacy.ledger import read_ledger
from sordino.privacy.ledger_record import LedgerRecord
from sordino.privacy.signing import read_signing_key


@dataclass(frozen=True)
class StudyAccount:
    """One study on this node."""

    name: str
    digest: str
    answered: int  # rounds, torn lines of the ledger included
    rounds: int  # planned
    ended: bool
    certificate: Certificate | None  # of the rounds that were answered; None where nothing was released
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class OwnAccount:
    """All studies, and the budget of the present period."""

    node: str
    studies: tuple[StudyAccount, ...]
    spent: float  # share of the budget
    epsilon: float
    delta: float
    period_days: float

    @property
    def faults(self) -> tuple[str, ...]:
        """One line each."""
        return tuple(f"study {study.name}: {fault}" for study in self.studies for fault in study.faults)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        studies = [
            {
                "study": each.name,
                "digest": each.digest,
                "rounds_answered": each.answered,
                "rounds": each.rounds,
                "ended": each.ended,
                "certificate": None if each.certificate is None else each.certificate.to_json(),
                "faults": list(each.faults),
            }
            for each in self.studies
        ]
        budget = {"epsilon": self.epsilon, "delta": self.delta, "period_days": self.period_days, "spent": self.spent}
        return {"node": self.node, "budget": budget, "studies": studies, "faults": list(self.faults)}


def own_account(place: NodePlace, now: float | None = None) -> OwnAccount:
    """What the ledgers of a node say, at a time in seconds since 1970."""
    settings = place.settings
    spending = Spending(settings.filter(), settings.budget.period_days * DAY)
    accounts, answered = [], 0
    counted = rounds_counted(count_file(place.folder, settings.name))  # before the ledgers, which may grow meanwhile
    for folder in sorted((place.state / STUDIES).glob(f"*/{LEDGER}")):
        home = folder.parent
        study, record = read_study(home), read_ledger(home / LEDGER)
        i = study.description.index(settings.name)
        require(i is not None, "name", settings.name, f"is not a member of the study in {home}")
        assert i is not None
        for entered, count in counted_releases(study, i, record):
            spending.add(study.description.digest, entered, released(study, i), count)
        answered += len(entries_of(record))
        accounts.append(_account(place, study, i, record, home.name))
    require_newest(place.state, answered, counted)
    budget = settings.budget
    share = spending.share(time.time() if now is None else now)
    return OwnAccount(settings.name, tuple(accounts), share, budget.epsilon, budget.delta, budget.period_days)


def _account(place: NodePlace, study: Study, i: int, record: LedgerRecord, name: str) -> StudyAccount:
    faults = []
    digest = study.description.digest.hex()
    if digest != name or record.description.get("digest") != digest:
        faults.append("its description and its ledger are not of one study: restore them from a backup")
    torn = {each.seq: each.torn_rounds for each in record.entries if each.rounds is None}  # counted, though none left
    answered = len(entries_of(record)) + sum(torn.values())
    path = place.state / STUDIES / name / OWN_STATEMENT
    if path.exists():
        key = read_signing_key(place.folder / place.settings.key, field=place.settings.place("", "key")).public
        stated, why = signed_statement(path, key, NODE_STATEMENT)
        if stated is None:
            faults.append(why)
        else:
            faults += [f"the server's statement is wrong: {each}" for each in stated["predicate"]["disagreements"]]
    certificate = study.plan.certificate(i, answered) if answered else None
    return StudyAccount(
        study.description.name, digest, answered, study.rounds, record.finish is not None, certificate, tuple(faults)
    )
