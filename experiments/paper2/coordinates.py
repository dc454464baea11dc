"""Problems with exact minimisers, as hard as paper 2's bounds: every record is one coordinate with a sign.

A record is (x, y) = (e_j, +-1), so that F(w) = sum_j share(j, +) phi_+(w_j) + share(j, -) phi_-(w_j) + (mu/2) ||w||^2
knows the data by 2 d shares alone. Signs are + with probability (1 + q) / 2. The slope q decides how hard a convex
problem is: where it is large the answer is found in spite of the noise, where it is small every answer is good. Bounds
of theorems speak of the worst problem, so risk is measured over a grid of q and the largest counts. This is the family
of the paper's own lower bounds.

    absolute  |w_j -+ a|,   a = D / (2 sqrt(d))         ridge  (w_j -+ b)^2 / 2,   b = D / 2
    hinge     max(0, 1 -+ w_j), on D <= 1               logit  log(1 + e^(-+ w_j))

Every record's gradient is at most 1 on the ball of radius D, so that clipping at L = 1 cuts nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from sordino.types import Vector

Shares = NDArray[np.float64]  # [..., d, 2]: the share of all records at +e_j and at -e_j


@dataclass(frozen=True)
class Loss:
    """phi_+ and phi_-, on the ball of radius D, with the regulariser (mu/2) ||w||^2."""

    name: str
    D: float
    mu: float = 0.0

    def label(self, d: int) -> float:
        """Where the loss of a record at +e_j is least, of absolute and ridge."""
        return self.D / (2 * math.sqrt(d)) if self.name == "absolute" else self.D / 2

    def gradient(self, w: Vector, shares: jax.Array, beta: float | None) -> Vector:
        """The mean of the records' gradients, without the regulariser; absolute and hinge: of the envelope f_beta."""
        up, down = shares[..., 0], shares[..., 1]
        at = self.label(w.shape[-1])
        if self.name == "absolute":
            assert beta is not None
            return up * jnp.clip(beta * (w - at), -1, 1) + down * jnp.clip(beta * (w + at), -1, 1)
        if self.name == "hinge":
            assert beta is not None
            return down * jnp.clip(beta * (1 + w), 0, 1) - up * jnp.clip(beta * (1 - w), 0, 1)
        if self.name == "ridge":
            return up * (w - at) + down * (w + at)
        return down * jax.nn.sigmoid(w) - up * jax.nn.sigmoid(-w)

    def excess(self, w: NDArray[np.float64], shares: Shares, smoothing: float | None = None) -> NDArray[np.float64]:
        """F(w) - F*, of the absolute loss with `smoothing` that of its envelope; axes before the last ones are kept."""
        return self._value(w, shares, smoothing) - self._value(self.minimiser(shares, smoothing), shares, smoothing)

    def _value(self, w: NDArray[np.float64], shares: Shares, smoothing: float | None) -> NDArray[np.float64]:
        up, down, at = shares[..., 0], shares[..., 1], self.label(w.shape[-1])
        each = {
            "absolute": lambda: up * _huber(w - at, smoothing) + down * _huber(w + at, smoothing),
            "hinge": lambda: up * np.maximum(0, 1 - w) + down * np.maximum(0, 1 + w),
            "ridge": lambda: (up * (w - at) ** 2 + down * (w + at) ** 2) / 2,
            "logit": lambda: up * np.logaddexp(0, -w) + down * np.logaddexp(0, w),
        }[self.name]()
        value: NDArray[np.float64] = np.sum(each + self.mu / 2 * w**2, axis=-1)
        return value

    def minimiser(self, shares: Shares, smoothing: float | None = None) -> NDArray[np.float64]:
        """w*, exact up to rounding, for an envelope that is straight between the two labels' surroundings."""
        up, down = shares[..., 0], shares[..., 1]
        at = self.label(shares.shape[-2])
        if self.name == "absolute":
            inside = 0.0 if smoothing is None else np.minimum(up, down) / np.maximum(up, down) / smoothing
            return (at - inside) * np.where(up >= down, 1.0, -1.0)
        if self.name == "ridge":
            return at * (up - down) / (up + down + self.mu)
        if self.name == "hinge":  # linear for |w_j| <= 1
            pull = up - down
            length = np.linalg.norm(pull, axis=-1, keepdims=True)
            return pull / np.maximum(length / self.D, np.maximum(self.mu, 1e-300))
        w = np.zeros(up.shape)
        for _ in range(60):  # Newton's method, a coordinate at a time
            s = expit(w)
            w = w - (down * s - up * (1 - s) + self.mu * w) / ((up + down) * s * (1 - s) + self.mu)
        return w

    def curvature(self) -> float | None:
        """beta of one record's loss, without the regulariser, where it is smooth."""
        return {"ridge": 1.0, "logit": 0.25}.get(self.name)


def _huber(t: NDArray[np.float64], beta: float | None) -> NDArray[np.float64]:
    """|t|, or its beta-envelope."""
    size = np.abs(t)
    return size if beta is None else np.where(size * beta <= 1, beta * t**2 / 2, size - 1 / (2 * beta))


def true_shares(q: float, d: int) -> Shares:
    """The shares of the law that records are drawn from."""
    return np.tile(np.array([(1 + q) / (2 * d), (1 - q) / (2 * d)]), (d, 1))


def drawn_shares(rng: np.random.Generator, q: float, d: int, records: int, times: tuple[int, ...] = ()) -> Shares:
    """The shares of so many records drawn from the law, `times` data sets."""
    counts = rng.multinomial(records, true_shares(q, d).ravel(), size=times or None)
    return counts.reshape(*times, d, 2) / records
