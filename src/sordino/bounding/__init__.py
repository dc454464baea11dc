"""Bounders: vector -> vector of norm <= limit, exactly in float32; zero maps to zero.

One bounder a file, made by the function that has the file's name; `BOUNDERS` lists the names that a run file may use.
Their numbers are leaves of a pytree, so a sweep can `vmap` over them. A bounder that changes the direction of a vector
sets `keeps_direction = False`.
"""

from collections.abc import Callable

from sordino.bounding.adaptive_clip import AdaptiveClip as AdaptiveClip
from sordino.bounding.adaptive_clip import adaptive_clip as adaptive_clip
from sordino.bounding.clip import Clip as Clip
from sordino.bounding.clip import clip as clip
from sordino.bounding.normalize import Normalize as Normalize
from sordino.bounding.normalize import normalize as normalize
from sordino.bounding.smoothed_normalize import SmoothedNormalize as SmoothedNormalize
from sordino.bounding.smoothed_normalize import smoothed_normalize as smoothed_normalize
from sordino.types import Bounder

BOUNDERS: dict[str, Callable[..., Bounder]] = {
    make.__name__: make for make in (clip, normalize, smoothed_normalize, adaptive_clip)
}
