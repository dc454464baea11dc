"""`python -m tools.site` builds the site of docs/ into build/site, and fails at every broken link between pages.

The pages are plain Markdown whose links also work where the code is hosted: they lead to source files, to pictures in
`results/`, to CONTRIBUTING.md. The site has docs/ alone, so a copy of it is built: each file that a page links to
outside docs/ is copied below `outside/`, text as a page that shows it, and the link is changed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import tomli_w

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BUILD = ROOT / "build"
PAGES = BUILD / "pages"
OUTSIDE = PAGES / "outside"

LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")
PICTURES = {".png", ".svg"}
LANGUAGES = {".py": "python", ".toml": "toml", ".pyi": "python"}

Nav = list[dict[str, "str | Nav"]]


def present(nav: Nav) -> Nav:
    """The navigation without pages that do not exist, and without sections that are empty then."""
    kept: Nav = []
    for entry in nav:
        for title, target in entry.items():
            if isinstance(target, list):
                if below := present(target):
                    kept.append({title: below})
            elif (DOCS / target).exists():
                kept.append({title: target})
            else:
                print(f"not there yet: docs/{target}", file=sys.stderr)
    return kept


def pages_of(nav: Nav) -> list[str]:
    """The pages that a navigation names."""
    return [
        page
        for entry in nav
        for target in entry.values()
        for page in (pages_of(target) if isinstance(target, list) else [target])
    ]


def navigation() -> Nav:
    """The navigation of zensical.toml, whether its pages exist or not."""
    nav: Nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    return nav


def copy_pages() -> None:
    """docs/ in build/pages, and what its pages link to outside."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(DOCS, PAGES)
    for page in sorted(DOCS.rglob("*.md")):
        copied = PAGES / page.relative_to(DOCS)
        copied.write_text(_linked(page.read_text(), page, copied))


def _linked(text: str, page: Path, copied: Path) -> str:
    """The text of a page whose links out of docs/ lead to copies."""

    def change(link: re.Match[str]) -> str:
        before, target, anchor, after = link.groups(default="")
        found = (page.parent / target).resolve()
        if "://" in target:
            return link[0]
        place = PAGES / found.relative_to(DOCS) if found.is_relative_to(DOCS) else _copied(found)
        return f"{before}{os.path.relpath(place, copied.parent)}{anchor}{after}"

    return LINK.sub(change, text)


def _copied(found: Path) -> Path:
    """A picture, a page, or a page that shows a file, below `outside/`."""
    name = found.relative_to(ROOT)
    place = OUTSIDE / name
    if place.exists():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    if found.suffix in PICTURES:
        shutil.copy(found, place)
        return place
    if found.suffix == ".md":
        place.write_text(_linked(found.read_text(), found, place))
        return place
    shown = place.with_name(f"{place.name}.md")
    shown.write_text(f"# {name}\n\n````{LANGUAGES.get(found.suffix, 'text')}\n{found.read_text()}````\n")
    return shown


def build() -> int:
    """Build the site; the exit code is zensical's, which is not 0 after a warning."""
    copy_pages()
    settings = tomllib.loads((ROOT / "zensical.toml").read_text())
    settings["project"] |= {"docs_dir": "pages", "site_dir": "site", "nav": present(navigation())}
    (BUILD / "zensical.toml").write_text(tomli_w.dumps(settings))
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", "zensical.toml"]
    return subprocess.run(command, cwd=BUILD, check=False).returncode


if __name__ == "__main__":
    sys.exit(build())
