"""An audit of what a plan releases in one round: a lower bound on epsilon, beside the certified upper bound.

The audit runs the mechanism as the plan resolves it, at the model's dimension, on neighbours that are as far apart as
the bound allows: one client holds v or -v under replace-one, v or nothing under add-remove and zero-out, and all others
send zero, which the attacker knows. v has norm `limit` and lies along one coordinate, or spreads over all; each gets
half of what the confidence leaves. A client that is sampled in secret takes part with its probability.

The audit covers one release, the update of one round, not the run, the training or the bounder. An audit that finds
nothing proves nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from sordino.bounding import clip
from sordino.errors import InvalidInput, Refused, require
from sordino.keys import key_of
from sordino.mechanisms.qtdl import QtdlRequest
from sordino.planning import Plan, ResolvedPlan, Rules
from sordino.privacy.audit import Audit, audit
from sordino.privacy.events import Assumed, Claimed, Sampled, parts_of
from sordino.privacy.guarantee import Guarantee
from sordino.privacy.sampling import Full
from sordino.rounds.arithmetic import require_sound_arithmetic
from sordino.types import Event, Key, Observer, Placement, Relation, Scalar, Trust, Unit, Vector

NUMBERS_AT_A_TIME = 2**22


@dataclass(frozen=True)
class ReleaseAudit:
    """What was shown about one release, and what was said about it."""

    shown: Audit
    certified: Guarantee  # of one round, for the observer that sees this release
    claimed: tuple[float, float] | None  # (epsilon, delta) of a false published theorem, where one was asked for
    neighbours: str
    sampling: str

    @property
    def consistent(self) -> bool:
        """Whether what was said survives."""
        return self.shown.consistent_with(self.certified if self.claimed is None else self.claimed[0])


def audit_release(
    plan: Plan, resolved: ResolvedPlan, d: int, *, trials: int, confidence: float = 0.999, seed: int = 0
) -> ReleaseAudit:
    """Draw `trials` releases under each of two neighbours, and hold what they show against the certificate."""
    require(trials >= 4, "trials", trials, "must be at least 4, and thousands to show anything")
    require(0 < confidence < 1, "confidence", confidence, "must lie in (0, 1)")
    if plan.method.privacy.unit is Unit.RECORD:
        remedy = "its neighbours differ in a record, and audited is what one client sends: audit a client-level method"
        raise InvalidInput("algorithm", type(plan.method).__name__, remedy)
    if resolved.trust is Trust.NONE:
        raise InvalidInput("mechanism", "none", "adds no noise: epsilon is infinite, and there is nothing to audit")
    require_sound_arithmetic()
    certified, parts = _audited(resolved)
    if any(isinstance(part, Assumed) for part in parts):
        reason = "the certificate rests on an assumed sensitivity, for which no pair of neighbours can be made"
        raise Refused(reason, "leave out mu")
    sampling = next((part.sampling for part in parts if isinstance(part, Sampled)), Full())
    claimed = _false_claim(plan, parts, d)
    delta = certified.delta if claimed is None else claimed[1]
    assert resolved.method.bound is not None  # private noise needs one
    limit = float(resolved.method.bound.limit)
    replaced = plan.relation is Relation.REPLACE_ONE
    each = 1 - (1 - confidence) / 2
    shown = []
    for number, v in enumerate(_furthest(limit, plan.method.privacy.message_parts * d)):
        keys = jax.random.split(jax.random.fold_in(key_of(seed), number))
        other = -v if replaced else jnp.zeros_like(v)
        here, there = (
            np.asarray(_scores(resolved.rules, key, held, v, sampling.sampling_prob, trials=trials))
            for key, held in zip(keys, (v, other), strict=True)
        )
        shown.append(audit(here, there, delta, each))
    best = max(shown, key=lambda audit: audit.epsilon_lower)
    best = dataclasses.replace(best, confidence=confidence, samples=sum(audit.samples for audit in shown))
    apart = "its negative" if replaced else "nothing"
    neighbours = f"one client with a vector of norm {limit:g}, or with {apart}"
    return ReleaseAudit(best, certified, claimed, neighbours, str(sampling))


def _audited(resolved: ResolvedPlan) -> tuple[Guarantee, list[Event]]:
    """What is certified for one round against the observer who sees this release, and the parts of its event."""
    observer = Observer.SERVER if resolved.trust in (Trust.LOCAL, Trust.SECURE_AGGREGATION) else Observer.MODEL_USER
    seen = [event for _, observers, event in resolved.releases if observer in observers]
    certified = next(
        guarantee
        for guarantee in resolved.certificate.guarantees
        if guarantee.observer is observer and guarantee.scope == "one round"
    )
    return certified, [part for event in seen for part in parts_of(event)]


def _false_claim(plan: Plan, parts: list[Event], d: int) -> tuple[float, float] | None:
    """(epsilon, delta) of QTDL's Theorem 1, where the plan is calibrated by it."""
    if not isinstance(plan.noise, QtdlRequest) or not any(isinstance(part, Claimed) for part in parts):
        return None
    assert plan.noise.message_epsilon is not None
    return plan.noise.message_epsilon, 2.0**-d


def _furthest(bound: float, d: int) -> tuple[Vector, Vector]:
    """Vectors of this norm: along one coordinate, which shows most where noise ends, and along all of them."""
    one = jnp.zeros(d).at[0].set(bound)
    all_of_them = jnp.full(d, bound / math.sqrt(d))
    return clip(bound)(one)[0], clip(bound)(all_of_them)[0]


@functools.partial(jax.jit, static_argnames="trials")
def _scores(rules: Rules, key: Key, vector: Vector, v: Vector, share: Scalar, *, trials: int) -> jax.Array:
    """How far along v `trials` releases about `vector` lie, the client taking part with probability `share`."""
    mechanism = rules.mechanism

    def released(key: Key, sent: Vector) -> Vector:
        if rules.placement is not Placement.ON_SUM:
            return mechanism.randomize(key, sent)
        key_encode, key_noise = jax.random.split(key)
        return mechanism.randomize_sum(key_noise, mechanism.encode(key_encode, sent))

    def score(key: Key) -> jax.Array:
        key_sample, key_noise = jax.random.split(key)
        sent = jnp.where(jax.random.bernoulli(key_sample, share), vector, 0.0)
        return jnp.vdot(released(key_noise, sent), v)

    at_a_time = max(1, min(trials, NUMBERS_AT_A_TIME // v.size))
    return jax.lax.map(score, jax.random.split(key, trials), batch_size=at_a_time)
