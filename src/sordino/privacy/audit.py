"""What an attacker can show: a lower bound on epsilon, to stand beside the certified upper bound.

Neighbouring data sets give a release the laws P and Q. (epsilon, delta)-DP says P(S) <= e^epsilon Q(S) + delta for all
events S, and the same with P and Q exchanged. So one event refutes a claim:

    epsilon >= log( (P(S) - delta) / Q(S) ),        delta >= P(S) - e^epsilon Q(S)

Where both laws are finite tables the best event is known and the figures are exact. Where there are only draws, the
event is chosen on one half of them and judged on the other, with Clopper-Pearson bounds on both probabilities. An audit
above the certificate proves the certificate false; one below it proves nothing, for a better event may exist.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from sordino.errors import require
from sordino.privacy.guarantee import Guarantee

_Array = NDArray[np.float64]
_THRESHOLDS = 1024  # candidate events; their choice costs power if poor, never validity
_ROUNDING = 1e-12  # by this much, relatively, a table's probabilities are trusted: rounding must not refute a claim


@dataclass(frozen=True)
class Audit:
    """epsilon at `delta` is at least `epsilon_lower`, except with probability 1 - confidence over the draws."""

    epsilon_lower: float
    delta: float
    confidence: float
    samples: int  # draws used, of both laws together
    method: str

    def consistent_with(self, certified: Guarantee | float) -> bool:
        """Whether the certified epsilon survives; a bare number is taken to be stated at the delta of the audit."""
        if isinstance(certified, Guarantee):
            # (epsilon, delta)-DP also holds at every larger delta, but says nothing about a smaller one.
            remedy = f"audit at the certified delta {certified.delta:g} or a larger one"
            require(certified.delta <= self.delta, "delta", self.delta, remedy)
            certified = certified.epsilon
        return self.epsilon_lower <= certified

    def __str__(self) -> str:
        figures = f"epsilon >= {self.epsilon_lower:.4g} at delta = {self.delta:g}"
        return f"{figures} with confidence {self.confidence:g} ({self.method}, {self.samples} draws)"


def exact_delta(p: ArrayLike, q: ArrayLike, epsilon: float) -> float:
    """The least delta at this epsilon for two laws on the same outcomes, the worse of the two directions."""
    P, Q = _laws(p, q)
    ratio = _ratio(epsilon)
    return float(max(np.maximum(P - ratio * Q, 0).sum(), np.maximum(Q - ratio * P, 0).sum()))


def exact_epsilon(p: ArrayLike, q: ArrayLike, delta: float) -> float:
    """The least epsilon at this delta for two laws on the same outcomes; infinite where none is enough."""
    _require_delta(delta)
    P, Q = _laws(p, q)
    return max(_one_sided_epsilon(P, Q, delta), _one_sided_epsilon(Q, P, delta))


def audit(p_scores: ArrayLike, q_scores: ArrayLike, delta: float, confidence: float = 0.99) -> Audit:
    """A lower bound on epsilon from independent draws of one number under each of two neighbours.

    The number is any function of the release: the better it tells the neighbours apart, the sharper the bound.
    """
    _require_delta(delta)

    def gain(low: _Array, up: _Array) -> _Array:
        return np.log(np.maximum(low - delta, 0.0)) - np.log(up)

    with np.errstate(divide="ignore"):  # log 0: an event no likelier than delta shows nothing
        epsilon, samples = _on_fresh_draws(p_scores, q_scores, confidence, gain)
    return Audit(max(0.0, epsilon), delta, confidence, samples, "threshold on held-out draws, Clopper-Pearson")


def delta_lower(p_scores: ArrayLike, q_scores: ArrayLike, epsilon: float, confidence: float = 0.99) -> float:
    """A lower bound on delta at this epsilon from the same draws, except with probability 1 - confidence."""
    ratio = _ratio(epsilon)
    bound, _ = _on_fresh_draws(p_scores, q_scores, confidence, lambda low, up: low - ratio * up)
    return max(0.0, bound)


def audit_canaries(
    in_scores: ArrayLike, out_scores: ArrayLike, delta: float, confidence: float = 0.99, seed: int = 0
) -> Audit:
    """A lower bound on epsilon from the scores of canaries that were trained on and of canaries that were not.

    By the auditor of JAX Privacy (Nasr et al. 2021), which takes the scores as independent; higher must mean "in".
    Half of the canaries, shuffled by `seed`, choose the threshold and the other half are judged by it.
    """
    from jax_privacy import auditing

    _require_delta(delta)
    require(0.5 < confidence < 1, "confidence", confidence, "must lie in (0.5, 1)")
    inside, outside = _scores("in_scores", in_scores), _scores("out_scores", out_scores)
    epsilon = auditing.CanaryScoreAuditor(inside, outside).epsilon_clopper_pearson(
        significance=1 - confidence, delta=delta, one_sided=False, threshold_strategy=auditing.Split(seed=seed)
    )
    return Audit(float(epsilon), delta, confidence, inside.size + outside.size, "canaries, Clopper-Pearson")


def _one_sided_epsilon(P: _Array, Q: _Array, delta: float) -> float:
    """max over S of log((P(S) - delta) / Q(S)): the best S collects the outcomes of largest P/Q."""
    with np.errstate(divide="ignore"):  # Q = 0: the loss is infinite
        P, Q = P[P > 0], Q[P > 0]
        order = np.argsort(np.log(Q) - np.log(P), kind="stable")
        P_S, Q_S = np.cumsum(P[order]), np.cumsum(Q[order])
        surplus = P_S - delta * (1 + _ROUNDING)
        shown = surplus > 0
        return float(np.max(np.log(surplus[shown]) - np.log(Q_S[shown]), initial=0.0))


def _on_fresh_draws(
    p_scores: ArrayLike, q_scores: ArrayLike, confidence: float, gain: Callable[[_Array, _Array], _Array]
) -> tuple[float, int]:
    """Choose the event that gains most on every other draw, and return what it gains on the draws in between."""
    require(0 < confidence < 1, "confidence", confidence, "must lie in (0, 1)")
    P, Q = _scores("p_scores", p_scores), _scores("q_scores", q_scores)
    thresholds = _candidates(np.concatenate([P[::2], Q[::2]]))
    gains = gain(*_probability_bounds(P[::2], Q[::2], thresholds, confidence))
    event, index = np.unravel_index(np.argmax(gains), gains.shape)
    fresh = gain(*_probability_bounds(P[1::2], Q[1::2], thresholds[index : index + 1], confidence))
    return float(fresh[event, 0]), P.size + Q.size


def _candidates(scores: _Array) -> _Array:
    """Thresholds among the scores, the closer together the nearer to either end, where rare events live."""
    ordered = np.sort(scores)
    share = (1 - np.cos(np.linspace(0, np.pi, _THRESHOLDS))) / 2
    return np.unique(ordered[np.round(share * (ordered.size - 1)).astype(np.int64)])


def _probability_bounds(P: _Array, Q: _Array, thresholds: _Array, confidence: float) -> tuple[_Array, _Array]:
    """Lower bounds on an event's probability under one law, upper bounds under the other; rows are kinds of event.

    The four kinds are score > t and score <= t, with P or with Q as the law under which the event is likely. Each of
    the two bounds of one event may fail with probability (1 - confidence) / 2.
    """
    above_P, above_Q = (s.size - np.searchsorted(np.sort(s), thresholds, side="right") for s in (P, Q))
    hits_P, hits_Q = np.stack([above_P, P.size - above_P]), np.stack([above_Q, Q.size - above_Q])
    failure = (1 - confidence) / 2
    low = np.concatenate([_lower(hits_P, P.size, failure), _lower(hits_Q, Q.size, failure)])
    up = np.concatenate([_upper(hits_Q, Q.size, failure), _upper(hits_P, P.size, failure)])
    return low, up


def _lower(hits: NDArray[np.int64], trials: int, failure: float) -> _Array:
    """Clopper and Pearson 1934: below the probability except with probability `failure`."""
    return np.where(hits > 0, betaincinv(np.maximum(hits, 1), trials - hits + 1, failure), 0.0)


def _upper(hits: NDArray[np.int64], trials: int, failure: float) -> _Array:
    return 1 - _lower(trials - hits, trials, failure)


def _laws(p: ArrayLike, q: ArrayLike) -> tuple[_Array, _Array]:
    P, Q = np.asarray(p, np.float64), np.asarray(q, np.float64)
    require(P.shape == Q.shape, "q", Q.shape, f"both laws must be on the same outcomes, here of shape {P.shape}")
    for name, law in (("p", P), ("q", Q)):
        whole = law.size > 0 and bool(np.all(law >= 0)) and abs(float(law.sum()) - 1) < 1e-9
        require(whole, name, float(law.sum()), "a law has no negative probability and sums to 1")
    return P.ravel(), Q.ravel()


def _scores(name: str, scores: ArrayLike) -> _Array:
    values = np.asarray(scores, np.float64)
    require(values.ndim == 1 and values.size >= 4, name, values.shape, "give one score a draw, and at least 4 draws")
    known = not np.isnan(values).any()
    require(known, name, math.nan, "a score must be a number: decide what NaN means before auditing")
    return values


def _require_delta(delta: float) -> None:
    require(0 <= delta < 1, "delta", delta, "must lie in [0, 1)")


def _ratio(epsilon: float) -> float:
    """e^epsilon, kept finite."""
    require(epsilon >= 0, "epsilon", epsilon, "must not be negative")
    return math.exp(min(epsilon, 700.0))
