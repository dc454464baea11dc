"""From a release to a certificate, refusing what is known to be false.

`certify` and `certify_ledger` are the doors to a printed guarantee. They check who may claim amplification, that rounds
are stated, that delta covers what truncation costs, that assumptions are printed, and that nothing un-noised is kept in
a client's memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from sordino.errors import Refused, require, require_count
from sordino.privacy.accountants import Account, account_of
from sordino.privacy.events import Assumed, DiscreteNoise, Event, NonPrivate, Repeated, Sampled, parts_of, sampled
from sordino.privacy.guarantee import Certificate, Guarantee, Scope, Warning
from sordino.privacy.ledger import LedgerRecord
from sordino.privacy.sampling import Full, Sampling, WithoutReplacement
from sordino.types import Memory, Observer, Relation, Unit

__all__ = ["certify", "certify_ledger"]

_MOST_SAMPLINGS = 3  # that a sentence lists


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
    """What `event`, released in each of `rounds` rounds, promises one unit against `observer`: per round and in total.

    Args:
      event: the release of one round, stated under `relation` (see `events`).
      relation: which data sets are neighbours.
      observer: who looks.
      rounds: in how many rounds a unit may take part; there is no guarantee without it.
      delta: of the total, and of the single round beside it.
      unit: what is protected.
      sampling: how units are chosen for a round (everybody, if None). The server chooses clients, a client chooses
        among its records; whoever sees the choice gains nothing from it.
      units: how many units are protected; delta must lie below 1/units.
      memory: what clients keep between rounds that is not derived from released messages, and how it began: none,
        zero, noisy (a release of its own, part of `event`) or exact.
      assumptions: what is assumed and not enforced, beyond what the event says itself.
    """
    relation, observer, unit = Relation.parse(relation), Observer.parse(observer), Unit.parse(unit)
    if rounds is None:
        raise Refused("a figure without a number of rounds says nothing about what a client faces", "state rounds")
    require_count(rounds, "rounds")
    require(0 <= delta < 1, "delta", delta, "must lie in [0, 1)")
    one_round = sampled(event, sampling or Full())
    _refuse_what_is_false(one_round, relation, observer, unit, Memory.parse(memory))
    guarantees = []
    scopes: tuple[tuple[Scope, Event, int], ...] = (
        ("one round", one_round, 1),
        ("all rounds", Repeated(one_round, rounds), rounds),
    )
    for scope, scoped, covered in scopes:
        account = account_of(scoped, relation)
        guarantees.append(
            _guarantee(scoped, account, relation, observer, unit, scope, covered, delta, assumptions, units)
        )
    return Certificate(tuple(guarantees), _warnings(one_round, account, guarantees[-1]))


def certify_ledger(record: LedgerRecord, delta: float) -> Certificate:
    """What a ledger shows to have been spent, against each observer that its releases name."""
    guarantees: list[Guarantee] = []
    warnings: list[Warning] = []
    # Of somebody whom a torn line alone names nothing is known: what others see is not in this ledger.
    released = [entry for entry in record.entries if entry.kind == "release"] or record.entries
    named = {observer for entry in released for observer in entry.observers}
    for observer in (each for each in Observer if each in named):
        torn = sum(entry.torn_rounds for entry in record.entries if observer in entry.observers)
        rounds = record.rounds(observer) + torn
        spent = record.spent(observer)
        _refuse_what_is_false(spent, record.relation, observer, record.unit, Memory.NONE)
        account = account_of(spent, record.relation)
        assumptions = tuple(record.description.get("assumptions", {}).get(str(observer), ()))
        total = _guarantee(
            spent,
            account,
            record.relation,
            observer,
            record.unit,
            "all rounds",
            rounds,
            delta,
            assumptions,
            record.units,
        )
        guarantees.append(total)
        warnings += _warnings(spent, account, total)
    warnings += _warnings_of_ledger(record, {warning.code for warning in warnings})
    return Certificate(tuple(guarantees), tuple(dict.fromkeys(warnings)))


def _warnings_of_ledger(record: LedgerRecord, known: set[str]) -> Iterator[Warning]:
    """The warnings of the run's own certificate, unless they are known, and those about the ledger itself."""
    for code, text in record.description.get("warnings", ()):
        if code not in known:
            yield Warning(str(code), str(text))
    planned, entered = record.description.get("rounds"), record.rounds()
    if planned is not None and entered < planned:
        text = f"{entered} of {planned} planned rounds are in the ledger: those still to come add to what is spent"
        yield Warning("unfinished", text)
    if record.recovered:
        text = f"{record.recovered} torn line(s) after a crash, each counted as the costliest release"
        yield Warning("recovered", text)


def _refuse_what_is_false(event: Event, relation: Relation, observer: Observer, unit: Unit, memory: Memory) -> None:
    """Wherever in the event it stands."""
    sees_messages = observer in (Observer.SERVER, Observer.PEER)
    parts = list(parts_of(event))
    samplings = [part.sampling for part in parts if isinstance(part, Sampled) and not isinstance(part.sampling, Full)]
    if samplings and sees_messages and unit is Unit.CLIENT:
        raise Refused(
            f"amplification by sampling {samplings[0]} against the {observer}, which sees who takes part",
            f"account the {observer} with sampling full; a sample of records, drawn by the client, may amplify",
        )
    if samplings and memory is not Memory.NONE and unit is Unit.RECORD:
        raise Refused(
            "a record sampled once stays in the client's un-noised memory and moves every later message",
            "account with sampling full, or at client level",
        )
    by_number = [each for each in samplings if isinstance(each, WithoutReplacement)]
    if by_number and memory is not Memory.NONE:
        raise Refused(
            f"no theorem amplifies {by_number[0]} where clients keep a memory",
            "account with sampling full, or draw clients by Poisson sampling",
        )
    noisy = not any(isinstance(part, NonPrivate) for part in parts)
    if memory is Memory.EXACT and noisy:
        raise Refused(
            "memory that begins with the exact gradient releases it: epsilon is infinite",
            "start from zero, or clip and noise the first gradient as a release of its own",
        )
    if sees_messages and noisy and unit is Unit.CLIENT and relation is Relation.ADD_REMOVE:
        raise Refused(
            f"the {observer} sees each message, so a client that is not there is seen not to be",
            "use relation zero-out (its number of messages is public) or replace-one",
        )
    for part in parts:
        if isinstance(part, Assumed) and Unit.parse(part.unit) is not unit:
            raise Refused(f"{part.assumption}, which is about one {part.unit}, not one {unit}", f"use unit {part.unit}")
        if isinstance(part, DiscreteNoise):
            raise Refused(
                "a discrete-noise event speaks of one shift, not of all neighbours",
                "certify the event of a mechanism; account_of gives the figure for the shift",
            )


def _guarantee(
    event: Event,
    account: Account,
    relation: Relation,
    observer: Observer,
    unit: Unit,
    scope: Scope,
    rounds: int,
    delta: float,
    assumptions: tuple[str, ...],
    units: int | None,
) -> Guarantee:
    parts = list(parts_of(event))
    epsilon = account.epsilon(delta)
    private = not any(isinstance(part, NonPrivate) for part in parts)
    if math.isinf(epsilon) and private and not account.claims:
        over = "in one round" if rounds == 1 else f"over {rounds} rounds"
        raise Refused(
            f"delta = {delta:g} lies below what this noise cannot avoid {over}, {account.delta(1e6):.3g}"
            if delta
            else f"delta = 0 is more than this noise can promise {over}",
            "ask for a larger delta, or widen the support of the noise",
        )
    stated = [part.assumption for part in parts if isinstance(part, Assumed)]
    hidden = [
        f"{part.sampling} sampling stays hidden from the {observer}" for part in parts if isinstance(part, Sampled)
    ]
    if len(set(hidden)) > _MOST_SAMPLINGS:
        hidden = [f"each client's sampling of its records stays hidden from the {observer}"]
    everything = tuple(dict.fromkeys((*assumptions, *stated, *hidden)))
    return Guarantee(unit, relation, observer, scope, rounds, epsilon, delta, account.accountant, everything, units)


def _warnings(event: Event, account: Account, total: Guarantee) -> tuple[Warning, ...]:
    warnings = [Warning("no-valid-guarantee", claim) for claim in account.claims]
    if any(isinstance(part, NonPrivate) for part in parts_of(event)):
        text = f"no noise protects what the {total.observer} sees: epsilon is infinite"
        warnings.append(Warning("not-private", text))
    stated = [part.assumption for part in parts_of(event) if isinstance(part, Assumed)]
    warnings += [Warning("assumed", assumption) for assumption in stated]
    return tuple(dict.fromkeys(warnings))
