"""The site: its navigation, its generated pages, its reference. `make docs` builds it, and checks all links."""

from __future__ import annotations

import re

import sordino
from tests.pages import ROOT
from tools import commands, epsilon_picture, site

DOCS = ROOT / "docs"


def test_every_page_is_in_the_navigation_once():
    named = site.pages_of(site.navigation())
    assert len(named) == len(set(named))
    assert {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} <= set(named)


def test_pages_that_do_not_exist_are_left_out_of_the_site():
    nav: site.Nav = [{"A": "index.md"}, {"B": [{"C": "nowhere.md"}]}, {"D": [{"E": "nowhere.md"}, {"F": "models.md"}]}]
    assert site.present(nav) == [{"A": "index.md"}, {"D": [{"F": "models.md"}]}]


def test_links_out_of_the_docs_lead_to_copies(tmp_path, monkeypatch):
    docs = tmp_path / "docs"
    docs.mkdir()
    places = {"ROOT": tmp_path, "DOCS": docs, "PAGES": tmp_path / "pages", "OUTSIDE": tmp_path / "pages" / "outside"}
    for name, place in places.items():
        monkeypatch.setattr(site, name, place)
    (tmp_path / "code.py").write_text("x = 1\n")
    (tmp_path / "other.md").write_text("[back](docs/page.md#here) [code](code.py)")
    (tmp_path / "a.png").write_bytes(b"picture")
    links = "[code](../code.py) [web](https://a.org/b) ![a](../a.png) [other](../other.md) [self](page.md) [up](#here)"
    (docs / "page.md").write_text(links)
    site.copy_pages()
    assert (site.PAGES / "page.md").read_text() == (
        "[code](outside/code.py.md) [web](https://a.org/b) ![a](outside/a.png) [other](outside/other.md) "
        "[self](page.md) [up](#here)"
    )
    assert (site.OUTSIDE / "other.md").read_text() == "[back](../page.md#here) [code](code.py.md)"
    assert "x = 1" in (site.OUTSIDE / "code.py.md").read_text()
    assert (site.OUTSIDE / "a.png").read_bytes() == b"picture"


def test_the_page_of_commands_is_the_help_of_the_commands():
    assert commands.PAGE.read_text() == commands.commands_page(), "run python -m tools.commands"


def test_the_picture_is_the_one_that_is_drawn():
    assert epsilon_picture.PAGE.read_text() == epsilon_picture.picture(), "run python -m tools.epsilon_picture"


def test_every_public_name_is_in_the_reference_once():
    pages = [page.read_text() for page in (DOCS / "reference").glob("*.md")]
    named = [name for text in pages for name in re.findall(r"^::: sordino\.(\w+)$", text, re.M)]
    assert sorted(named) == sorted(sordino.__all__)
