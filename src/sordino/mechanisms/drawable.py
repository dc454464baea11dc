"""Noise that float32 can hold: what it flushes to zero hides nothing, whatever an accountant makes of it."""

from __future__ import annotations

import numpy as np

from sordino.errors import require

__all__ = ["require_drawable"]


def require_drawable(field: str, value: float) -> None:
    """Refuse a std or a scale that is zero or infinity in float32."""
    normal = np.finfo(np.float32)
    drawable = float(normal.tiny) <= value <= float(normal.max)
    require(drawable, field, value, "no float32 can be this noise: choose a bound of messages or gradients nearer to 1")
