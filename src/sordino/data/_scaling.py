"""Numbers of a public range, mapped to [-1, 1]. A range that was taken from the records would be a release."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def to_unit(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Map [low, high] to [-1, 1], and clip to it."""
    return np.clip(2 * (values - low) / (high - low) - 1, -1, 1)
