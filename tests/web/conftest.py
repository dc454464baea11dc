"""A browser, and runs to look at: for all tests of pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.web.browser import Tab, browser, chromium
from tests.web.makers import run_into


@pytest.fixture(scope="session")
def new_tab() -> Iterator[Callable[[], Tab]]:
    program = chromium()
    if program is None:
        pytest.skip("there is no Chromium here: install `chromium` to look at pages")
    with browser(program) as opened:
        yield opened


@pytest.fixture
def tab(new_tab) -> Tab:
    """A page as wide as a desk's, in light colours."""
    made = new_tab()
    made.prefer("light")
    made.resize(1280)
    return made


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Path:
    """Two finished runs with fresh seeds; nobody may write into them."""
    home = tmp_path_factory.mktemp("runs")
    run_into(home / "first")
    run_into(home / "second", rounds=9)
    return home
