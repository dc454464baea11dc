"""What the tests of a deployment share."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

import pytest

from sordino.deploy.turn import Aggregation, Training


@pytest.fixture(scope="module")
def shared_programs() -> Any:
    """Nodes that are opened again run the programs that were compiled before, for the same study and node."""
    programs: dict[Any, Any] = {}

    def shared(kind: Any, name: str) -> property:
        compiled: cached_property[Any] = kind.__dict__[name]

        def program(self: Any) -> Any:
            about = self.study.description
            counts = tuple((each.name, each.records) for each in about.members)
            own = self.i if kind is Training and self.study.numbers(self.i) is not None else None
            place = (kind, about.file, about.shape, about.classes, counts, own)
            if place not in programs:
                programs[place] = compiled.func(self)
            return programs[place]

        return property(program)

    with pytest.MonkeyPatch.context() as patch:
        for kind, name in ((Training, "_train"), (Aggregation, "_step")):
            patch.setattr(kind, name, shared(kind, name))
        yield


@pytest.fixture(scope="module")
def no_power_cuts() -> Any:
    """Processes end here, machines do not: what the operating system has is safe, and fsync waits for nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield
