"""docs/coverage.md: every item of the papers with its state, compared with code, tests and results."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tools.coverage import PAGE, ROOT, Item, items, page, problems

ITEMS = items()


def test_every_item_of_the_papers_is_there_once():
    assert Counter(item.paper for item in ITEMS) == {0: 39, 1: 33, 2: 35, 3: 25, 4: 35}
    assert len({(item.paper, item.name) for item in ITEMS}) == len(ITEMS)


def test_items_have_what_their_states_need():
    wrong = {f"paper {item.paper}, {item.name}": found for item in ITEMS if (found := problems(item))}
    assert not wrong


def test_the_page_is_made_from_the_table():
    assert PAGE.read_text() == page(ITEMS), "run python -m tools.coverage"


def test_results_have_the_figures_of_a_paper_where_an_item_is_reproduced():
    """A file without any published figure is one for pictures, or of a bound that is measured."""
    for item in ITEMS:
        if item.state == "reproduced" and item.name.startswith("Table"):
            tables = [json.loads((ROOT / result).read_text()) for result in item.results]
            assert all(any(row["paper"] is not None for row in table["rows"]) for table in tables), item.name


@pytest.mark.parametrize(
    "item",
    [
        Item(0, "a state that is none", "done", note="x"),
        Item(0, "no figures", "reproduced", code=("src/sordino/types.py",)),
        Item(0, "no tests", "tested", code=("src/sordino/types.py",)),
        Item(0, "no reason", "absent"),
        Item(0, "no note", "partly", code=("src/sordino/types.py",)),
        Item(0, "a file that is gone", "absent", code=("src/sordino/gone.py",), note="x"),
        Item(0, "a name that is gone", "absent", code=("src/sordino/types.py::Gone",), note="x"),
    ],
    ids=lambda item: item.name,
)
def test_what_is_wrong_is_found(item):
    assert len(problems(item)) == 1
