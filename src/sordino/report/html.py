"""HTML of reports and of the board: one file each, with styles and scripts inside, and a policy to load nothing."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from sordino.privacy import wording
from sordino.report.page import Page

STYLES = ("uplot/uPlot.min.css", "report.css")
REPORT_SCRIPTS = ("uplot/uPlot.iife.min.js", "charts.js", "report.js")
BOARD_SCRIPTS = ("uplot/uPlot.iife.min.js", "charts.js", "board.js")


def report_html(page: Page) -> str:
    """The whole report."""
    data = {"charts": [chart.to_json() for chart in page.charts]}
    return _filled("report.html.j2", REPORT_SCRIPTS, connect="'none'", page=page, data=_inside(data))


def board_html(data: dict[str, Any]) -> str:
    """The board, which asks its own server for more."""
    return _filled("board.html.j2", BOARD_SCRIPTS, connect="'self'", data=_inside(data))


def _filled(template: str, scripts: Sequence[str], *, connect: str, **values: object) -> str:
    script, style = _joined(tuple(scripts)), _joined(STYLES)
    # Only these very scripts and styles run; nothing is loaded, and nothing is sent but to the page's own server.
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; connect-src {connect}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    filled = _environment().get_template(template)
    return filled.render(policy=policy, script=Markup(script), style=Markup(style), **values)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("sordino.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["wording"] = wording
    made.filters["capitalize_first"] = lambda text: text[:1].upper() + text[1:]
    return made


@cache
def _joined(names: tuple[str, ...]) -> str:
    """Files of the package, one after the other."""
    folder = files("sordino.report") / "static"
    text = "\n".join(folder.joinpath(*name.split("/")).read_text(encoding="utf-8") for name in names)
    assert "</" not in text.replace("</svg>", ""), "would end its element"
    return text


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _inside(data: object) -> Markup:
    """JSON that no reader of HTML takes for a tag."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))
