"""What goes wrong in the tests: words that repeat themselves, and steps of which one kills or fails."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from tests.deploy.clinic import seeded_words
from tests.toys import Killed


class RoundWords:
    """Words that repeat themselves in every round, so that an interrupted study can be compared with another."""

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, *place: int) -> None:
        """The words of a round, or of a node in a round."""
        self._words = seeded_words(place)

    def __call__(self, shape: tuple[int, ...]) -> np.ndarray:
        return self._words(shape)


class Steps:
    """Counts fsync and replace, the steps of which durable files are made. One of them raises: a kill or an error."""

    def __init__(
        self, patch: pytest.MonkeyPatch, at: int, *, done: bool = False, error: BaseException | None = None
    ) -> None:
        self.count, self.at, self.done, self.paused = 0, at, done, False
        self.error = Killed() if error is None else error
        for name in ("fsync", "replace"):
            patch.setattr(os, name, self._counted(getattr(os, name)))

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """What runs here belongs to another machine."""
        self.paused, before = True, self.paused
        try:
            yield
        finally:
            self.paused = before

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any) -> Any:
            self.count += not self.paused
            now = self.count == self.at and not self.paused
            if now and not self.done:
                raise self.error
            result = function(*args)
            if now:
                raise self.error
            return result

        return step
