"""Numbers of a public range, mapped to [-1, 1]. A range that was taken from the records would be a release.

The norms of features are for those who may see the records; nothing is scaled by them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def to_unit(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Map [low, high] to [-1, 1], and clip to it."""
    return np.clip(2 * (values - low) / (high - low) - 1, -1, 1)


def feature_norms(x: NDArray[Any]) -> NDArray[np.float32]:
    """The norm of the features of each record, without a copy of them."""
    rows = x.reshape(len(x), -1)
    rows = rows if rows.dtype == np.float32 else rows.astype(np.float32)
    return np.sqrt(np.einsum("ij,ij->i", rows, rows))
