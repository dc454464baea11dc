"""The method of docs/new_algorithm.md: it runs as a file, prints what the page says, and keeps the contracts."""

from __future__ import annotations

import importlib.util
import re
import runpy
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import test_algorithms as contracts

import sordino as so
from sordino.algorithms import METHODS
from sordino.types import Algorithm, Memory

PAGE = (Path(__file__).parents[2] / "docs" / "new_algorithm.md").read_text()
CODE, PRINTED = re.search(r"```python\n(.*?)```\s+prints\s+```\n(.*?)```", PAGE, re.S).groups()
PROMISES = [name for name in dir(contracts.TestEveryMethod) if name.startswith("test_")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "documented_fedprox.py"
    path.write_text(CODE)
    return path


def test_the_file_prints_what_the_page_says(file):
    out = StringIO()
    with redirect_stdout(out):
        runpy.run_path(str(file), run_name="__main__")
    assert out.getvalue() == PRINTED


@pytest.mark.parametrize("bound", [None, so.clip(0.01), so.normalize(0.5)], ids=["no bound", "clip", "normalize"])
@pytest.mark.parametrize("promise", PROMISES)
def test_listed_in_methods_it_keeps_every_contract(file, monkeypatch, promise, bound):
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(METHODS, "fedprox", module.fedprox)
    getattr(contracts.TestEveryMethod(), promise)("fedprox", bound)


def test_the_page_names_every_member_of_the_protocol():
    members = {name for name in vars(Algorithm) if not name.startswith("_")}
    optional = set(re.findall(r"`(\w+)", Algorithm.__doc__)) - {"bound", "None", "Aggregate", "Unit", "simulation"}
    assert {"resolve", "message_parts", "only_sums", "adds_noise"} <= optional
    for name in members | optional:
        assert f"`{name}" in PAGE, name
    for memory in Memory:
        assert f"`{memory.name}`" in PAGE
