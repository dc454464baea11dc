"""From one round's release to a certificate, refusing what is known to be false.

`certify` is the only door to a printed guarantee: it checks who may claim amplification, that rounds are stated, that
delta covers what truncation costs, and that nothing un-noised is kept in a client's memory.
"""

from __future__ import annotations

import math
from typing import Literal

from sordino.errors import Refused, require
from sordino.privacy.accountants import account_of
from sordino.privacy.events import Approximate, Composed, Event, NonPrivate, Repeated, Sampled
from sordino.privacy.guarantee import Certificate, Guarantee, Warning
from sordino.privacy.sampling import Full, Sampling
from sordino.types import Observer, Relation, Unit

__all__ = ["Memory", "certify"]

Memory = Literal["none", "zero", "noisy", "exact"]


def certify(
    event: Event,
    *,
    relation: Relation,
    observer: Observer,
    rounds: int | None,
    delta: float,
    unit: Unit = Unit.CLIENT,
    sampling: Sampling | None = None,
    sampled_by: Literal["server", "client"] = "server",
    units: int | None = None,
    memory: Memory = "none",
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
      sampling: how units are chosen for a round (everybody, if None).
      sampled_by: who chooses. A sample that the observer chooses or sees amplifies nothing.
      units: how many units are protected; delta must lie below 1/units.
      memory: what clients keep between rounds that is not derived from released messages, and how it began: "none",
        "zero", "noisy" (a release of its own, part of `event`) or "exact".
      assumptions: what is assumed and not enforced.
    """
    sampling = sampling or Full()
    if rounds is None:
        raise Refused("a figure without a number of rounds says nothing about what a client faces", "state rounds")
    require(rounds >= 1, "rounds", rounds, "must be at least 1")
    require(0 <= delta < 1, "delta", delta, "must lie in [0, 1)")
    _refuse_false_amplification(observer, unit, sampling, sampled_by, memory)
    if memory == "exact":
        raise Refused(
            "memory that begins with the exact gradient releases it: epsilon is infinite",
            "start from zero, or clip and noise the first gradient as a release of its own",
        )
    one_round = event if isinstance(sampling, Full) else Sampled(event, sampling)
    total = Repeated(one_round, rounds)
    guarantees, warnings = [], []
    for scope, scoped, covered in (("one round", one_round, 1), ("all rounds", total, rounds)):
        account = account_of(scoped, relation)
        epsilon = account.epsilon(delta)
        if math.isinf(epsilon) and not account.claims and _is_noisy(event):
            least = account.delta(1e6)
            raise Refused(
                f"delta = {delta:g} lies below what this noise cannot avoid {_scope_words(covered)}, {least:.3g}",
                "ask for a larger delta, or widen the support of the noise",
            )
        guarantees.append(
            Guarantee(
                unit,
                relation,
                observer,
                scope,  # type: ignore[arg-type]
                covered,
                epsilon,
                delta,
                account.accountant,
                assumptions,
                units,
            )
        )
        warnings += [Warning("no-valid-guarantee", claim) for claim in account.claims]
    if not _is_noisy(event):
        warnings.append(Warning("not-private", "no noise protects this release: epsilon is infinite"))
    if assumptions:
        warnings.append(
            Warning("assumed", "the guarantee rests on what is assumed, not enforced: " + "; ".join(assumptions))
        )
    return Certificate(tuple(guarantees), tuple({warning.code: warning for warning in warnings}.values()))


def _refuse_false_amplification(
    observer: Observer, unit: Unit, sampling: Sampling, sampled_by: str, memory: Memory
) -> None:
    if isinstance(sampling, Full):
        return
    if observer in (Observer.SERVER, Observer.PEER) and sampled_by == "server":
        raise Refused(
            f"amplification by sampling {sampling} against the {observer}, which sees who was sampled",
            "account the server with sampling full; only a sample drawn in secret by the client amplifies",
        )
    if memory != "none" and unit is Unit.RECORD:
        raise Refused(
            "a record sampled once stays in the client's un-noised memory and moves every later message",
            "account with sampling full, or at client level",
        )


def _is_noisy(event: Event) -> bool:
    match event:
        case NonPrivate():
            return False
        case Composed(events):
            return all(_is_noisy(inner) for inner in events)
        case Approximate(inner) | Repeated(inner) | Sampled(inner):
            return _is_noisy(inner)
    return True


def _scope_words(rounds: int) -> str:
    return "in one round" if rounds == 1 else f"over {rounds} rounds"
