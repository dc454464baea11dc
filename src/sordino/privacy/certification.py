"""Certificates of releases and ledgers; false guarantees are refused.

`certify` and `certify_ledger` make every printed guarantee. They check that unit and relation are those of the event,
that amplification is claimed only against observers who do not see the sample, that the number of rounds is stated,
that delta covers the loss by truncation, that assumptions are listed, and that clients' memory holds no exact gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from sordino.errors import Refused, require, require_count
from sordino.privacy import wording
from sordino.privacy.accountants import account_of
from sordino.privacy.events import Assumed, DiscreteNoise, NonPrivate, Repeated, Sampled, parts_of, sampled
from sordino.privacy.guarantee import Certificate, Guarantee, Scope
from sordino.privacy.ledger_record import LedgerRecord
from sordino.privacy.sampling import Full, Sampling, WithoutReplacement
from sordino.privacy.stated import require_stated
from sordino.types import Draws, Event, Memory, Observer, Relation, SeedOrigin, Unit, Warning

_MOST_SAMPLINGS = 3  # listed in the assumptions one by one


def certify(
    event: Event,
    *,
    relation: Relation | str,
    observer: Observer | str,
    rounds: int | None,
    delta: float,
    unit: Unit | str = Unit.CLIENT,
    sampling: Sampling | None = None,
    units: int | None = None,
    memory: Memory | str = Memory.NONE,
    assumptions: tuple[str, ...] = (),
) -> Certificate:
    """Certify one round and all rounds of an event that is released in each of `rounds` rounds.

    Args:
      event: the release of one round. The unit and relation that it states must be those below (see `events`).
      relation: which data sets are neighbours.
      observer: the observer whom the guarantee holds against.
      rounds: the number of rounds in which a unit may take part; there is no guarantee without it.
      delta: of the total, and of the single round beside it.
      unit: what is protected.
      sampling: how units are chosen for a round (everybody, if None). The server chooses clients, a client chooses
        among its records; an observer who sees the choice gets no amplified guarantee.
      units: the number of protected units; delta must lie below 1/units.
      memory: what clients keep between rounds that is not derived from released messages, and how it began: none,
        zero, noisy (a release of its own, part of `event`) or exact.
      assumptions: what is assumed and not enforced, beyond the event's own assumptions.
    """
    if rounds is None:
        raise Refused("a guarantee needs the number of rounds that it covers", "state rounds")
    require_count(rounds, "rounds")
    require(0 <= delta < 1, "delta", delta, "must lie in [0, 1)")
    subject = _unproven(Unit.parse(unit), Relation.parse(relation), Observer.parse(observer), delta, assumptions, units)
    one_round = sampled(event, sampling or Full())
    _refuse_false_claims(one_round, subject, Memory.parse(memory))
    first, _ = _guarantee(one_round, subject, "one round", 1)
    total, warnings = _guarantee(Repeated(one_round, rounds), subject, "all rounds", rounds)
    return Certificate((first, total), warnings)


def certify_ledger(record: LedgerRecord, delta: float) -> Certificate:
    """Certify the releases in a ledger against each observer that they name."""
    guarantees: list[Guarantee] = []
    warnings: list[Warning] = []
    # Skip observers that appear only in recovered (torn) lines: the ledger does not say what they saw.
    released = [entry for entry in record.entries if entry.kind == "release"] or record.entries
    named = {observer for entry in released for observer in entry.observers}
    for observer in (each for each in Observer if each in named):
        torn = sum(entry.torn_rounds for entry in record.entries if observer in entry.observers)
        rounds = record.rounds(observer) + torn
        assumptions = tuple(record.description.get("assumptions", {}).get(str(observer), ()))
        subject = _unproven(record.unit, record.relation, observer, delta, assumptions, record.units)
        spent = record.spent(observer)
        _refuse_false_claims(spent, subject, Memory.NONE)
        total, about_total = _guarantee(spent, subject, "all rounds", rounds)
        guarantees.append(total)
        warnings += about_total
    found = {warning.code for warning in warnings}  # the run's own warnings of these codes are about all its rounds
    described = [Warning(str(code), str(text)) for code, text in record.description.get("warnings", ())]
    warnings += [warning for warning in described if warning.code not in found]
    planned, entered = record.description.get("rounds"), record.rounds()
    if planned is not None and entered < planned:
        warnings.append(wording.unfinished(entered, planned))
    if record.recovered:
        warnings.append(wording.recovered(record.recovered))
    draws, seed = (record.description.get(name) for name in ("draws", "seed"))
    return Certificate(
        tuple(guarantees),
        tuple(dict.fromkeys(warnings)),
        None if draws is None else Draws.parse(draws),
        None if seed is None else SeedOrigin.parse(seed),
        tuple(map(str, record.description.get("assumed_by_all", ()))),
    )


def _unproven(
    unit: Unit, relation: Relation, observer: Observer, delta: float, assumptions: tuple[str, ...], units: int | None
) -> Guarantee:
    """The guarantee that is asked for, before any event is accounted: epsilon is infinite."""
    return Guarantee(unit, relation, observer, "all rounds", 1, math.inf, delta, "none", assumptions, units)


def _refuse_false_claims(event: Event, subject: Guarantee, memory: Memory) -> None:
    """Check every part of the event."""
    require_stated(event, subject.unit, subject.relation)
    parts = list(parts_of(event))
    samplings = [part.sampling for part in parts if isinstance(part, Sampled) and not isinstance(part.sampling, Full)]
    if samplings:
        _refuse_amplification(samplings, subject, memory)
    private = not any(isinstance(part, NonPrivate) for part in parts)
    if private and memory is Memory.EXACT:
        raise Refused(
            "a memory that begins with the exact gradient releases it: epsilon is infinite",
            "start from zero, or clip and noise the first gradient as a release of its own",
        )
    if private and _sees_clients(subject) and subject.relation is Relation.ADD_REMOVE:
        raise Refused(
            f"the {subject.observer} sees each message, and so whether a client sends one at all",
            "use relation zero-out (the number of messages is public) or replace-one",
        )
    for part in parts:
        if isinstance(part, DiscreteNoise):
            raise Refused(
                "a discrete-noise event is about one shift, not about all neighbours",
                "certify the event of a mechanism; account_of gives the figure for the shift",
            )


def _sees_clients(subject: Guarantee) -> bool:
    """Whether clients are protected and the observer sees each message, and so which clients take part."""
    return subject.unit is Unit.CLIENT and subject.observer in (Observer.SERVER, Observer.PEER)


def _refuse_amplification(samplings: Sequence[Sampling], subject: Guarantee, memory: Memory) -> None:
    if _sees_clients(subject):
        raise Refused(
            f"amplification by sampling {samplings[0]} against the {subject.observer}, which sees who takes part",
            f"account the {subject.observer} with sampling full; only a client's secret sample of records amplifies",
        )
    if memory is Memory.NONE:
        return
    if subject.unit is Unit.RECORD:
        raise Refused(
            "a record sampled once stays in the client's un-noised memory and affects every later message",
            "account with sampling full, or at client level",
        )
    by_number = [each for each in samplings if isinstance(each, WithoutReplacement)]
    if by_number:
        raise Refused(
            f"no theorem covers amplification by {by_number[0]} where clients keep a memory",
            "account with sampling full, or draw clients by Poisson sampling",
        )


def _guarantee(event: Event, subject: Guarantee, scope: Scope, rounds: int) -> tuple[Guarantee, tuple[Warning, ...]]:
    """The guarantee of an event, and the warnings about it."""
    account, parts = account_of(event, subject.relation), list(parts_of(event))
    exposed = any(isinstance(part, NonPrivate) for part in parts)
    epsilon = account.epsilon(subject.delta)
    if math.isinf(epsilon) and not exposed and not account.claims:
        over = "in one round" if rounds == 1 else f"over {rounds} rounds"
        reason = f"this noise does not give pure differential privacy (delta = 0) {over}"
        if subject.delta > 0:
            least = f"{account.delta(1e6):.3g}"
            reason = f"delta = {subject.delta:g} lies below the delta that this noise cannot avoid {over}, {least}"
        raise Refused(reason, "ask for a larger delta, or widen the support of the noise")
    assumed = [part.assumption for part in parts if isinstance(part, Assumed)]
    hidden = [
        wording.assume_sampling_hidden(part.sampling, subject.observer) for part in parts if isinstance(part, Sampled)
    ]
    if len(set(hidden)) > _MOST_SAMPLINGS:
        hidden = [wording.assume_record_samplings_hidden(subject.observer)]
    guarantee = replace(
        subject,
        scope=scope,
        rounds=rounds,
        epsilon=epsilon,
        accountant=account.accountant,
        assumptions=tuple(dict.fromkeys((*subject.assumptions, *assumed, *hidden))),
    )
    warnings = [wording.no_valid_guarantee(claim) for claim in account.claims]
    warnings += [wording.not_private(subject.observer)] if exposed else []
    warnings += [wording.assumed(assumption) for assumption in assumed]
    return guarantee, tuple(dict.fromkeys(warnings))
