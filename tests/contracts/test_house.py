"""Rules of the house that a linter does not know. Complexity is ruff's matter, the order of imports import-linter's."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "sordino"
FILES = sorted(SOURCE.rglob("*.py"))
TEXTS = {path: path.read_text() for path in FILES}

# Reflection on objects that are not our nouns: exceptions of other libraries, dataclass fields, sections of a file.
FLOWER = {"superlink.py", "supernode.py"}  # modules of flwr
REFLECTION = {"errors.py", "pytrees.py", "model.py", "events.py", "specs.py", "__init__.py"} | FLOWER


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_file_has_at_most_400_lines(path):
    assert len(TEXTS[path].splitlines()) <= 400


def test_nothing_is_looked_up_by_name_on_our_nouns():
    found = {path.name for path, text in TEXTS.items() if re.search(r"\b(hasattr|getattr)\(", text)}
    assert found <= REFLECTION
    assert not [path for path, text in TEXTS.items() if "hasattr(" in text]


def test_one_place_makes_keys():
    """Elsewhere JAX's default generator, which the environment can change, would make them."""
    root = SOURCE.parents[1]
    places = [*FILES, *(path for name in ("bench", "experiments") for path in (root / name).rglob("*.py"))]
    called = {"key", "PRNGKey", "wrap_key_data"}
    found = {
        path.name
        for path in places
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in called and ast.unparse(node.value) == "jax.random"
    }
    assert found == {"keys.py"}


def test_the_trunk_is_typed():
    assert sum(text.count(": Any") for text in TEXTS.values()) < 60


def test_one_place_writes_the_sentences_of_warnings():
    """Elsewhere a `Warning` is only read back from JSON."""
    reads_back = {"guarantee.py", "certification.py"}
    for path, text in TEXTS.items():
        if "wording" in path.parts or path.name in reads_back:
            continue
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        assert not [node for node in calls if isinstance(node.func, ast.Name) and node.func.id == "Warning"], path
