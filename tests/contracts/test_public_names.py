"""The public names: all can be loaded, and none is before it is used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import sordino as so


def test_every_public_name_is_there():
    assert {"plan", "simulate", "task", "fedavg", "certify", "events", "Relation"} <= set(so.__all__)
    assert set(so.__all__) <= set(dir(so))
    for name in so.__all__:
        assert getattr(so, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        so.no_such_name  # noqa: B018


@pytest.mark.parametrize("module", ["sordino", "sordino.config", "sordino.report", "sordino.cli.app"])
def test_nothing_loads_jax_before_it_is_needed(module):
    code = f"import sys, {module}; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
