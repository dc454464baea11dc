"""Federated learning without a trusted server (Lowy and Razaviyayn), the step sizes of Algorithm 2 (AC-SA).

line 2   alpha_r = 2 / (r + 1),   eta_r = 4 upsilon / (r (r + 1))
line 3   w_md = [(1 - alpha_r)(mu + eta_r) w_ag + alpha_r ((1 - alpha_r) mu + eta_r) w] / (eta_r + (1 - alpha_r^2) mu)
"""

from __future__ import annotations

from typing import NamedTuple

from sordino.errors import require

__all__ = ["AcSaWeights", "ac_sa_weights"]


class AcSaWeights(NamedTuple):
    """alpha_r, eta_r, and the weights of w_ag and w in the middle point w_md."""

    alpha: float
    eta: float
    of_aggregate: float
    of_iterate: float


def ac_sa_weights(r: int, mu: float, upsilon: float) -> AcSaWeights:
    """The weights of round r >= 1 for a mu-strongly convex loss."""
    require(r >= 1, "round", r, "rounds of Algorithm 2 count from 1")
    require(mu >= 0, "mu", mu, "must not be negative")
    require(upsilon > 0, "upsilon", upsilon, "must be positive")
    alpha, eta = 2 / (r + 1), 4 * upsilon / (r * (r + 1))
    whole = eta + (1 - alpha**2) * mu
    return AcSaWeights(alpha, eta, (1 - alpha) * (mu + eta) / whole, alpha * ((1 - alpha) * mu + eta) / whole)
