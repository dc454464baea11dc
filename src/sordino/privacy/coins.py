"""The law of fair coins, accurate to 10^12 of them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray


def log_binomial_pmf(coins: int) -> NDArray[np.float64]:
    """log P of heads minus N/2 (N even), centred, out to 13 stds.

    By log p(y)/p(y - 1) = -2 artanh((2 y - 1)/(N + 1)), since the factorials of 10^10 cancel.
    """
    half = min(coins // 2, math.ceil(6.5 * math.sqrt(coins)))
    y = np.arange(-half, half + 1)
    weight = np.concatenate([[0.0], np.cumsum(-2 * np.arctanh((2 * y[1:] - 1) / (coins + 1)))])
    return np.asarray(weight - np.logaddexp.reduce(weight))
