"""Bounders: vector -> vector of norm <= limit, exactly in float32; zero maps to zero.

One bounder a file, made by the function that has the file's name; `BOUNDERS` lists the names that a run file may use.
Their numbers are leaves of a pytree, so a sweep can `vmap` over them. A bounder that changes the direction of a vector
sets `keeps_direction = False`.
"""

from collections.abc import Callable

from sordino.bounding._norm import require_finite
from sordino.bounding.adaptive_clip import AdaptiveClip, adaptive_clip
from sordino.bounding.clip import Clip, clip
from sordino.bounding.normalize import Normalize, normalize
from sordino.bounding.smoothed_normalize import SmoothedNormalize, smoothed_normalize
from sordino.types import Bounder

__all__ = [
    "BOUNDERS",
    "AdaptiveClip",
    "Clip",
    "Normalize",
    "SmoothedNormalize",
    "adaptive_clip",
    "clip",
    "normalize",
    "require_finite",
    "smoothed_normalize",
]

BOUNDERS: dict[str, Callable[..., Bounder]] = {
    make.__name__: make for make in (clip, normalize, smoothed_normalize, adaptive_clip)
}
