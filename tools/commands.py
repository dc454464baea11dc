"""`python -m tools.commands` writes docs/reference/commands.md: the help of every command, as typer prints it."""

from __future__ import annotations

import html
import re
from pathlib import Path

import typer
from typer.cli import get_docs_for_click

from sordino.cli.app import app

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"
HEADER = """# Commands

Generated from the commands' own help by `python -m tools.commands`; do not edit.

"""


def commands_page() -> str:
    """The help of `sordino` and of all its commands, as Markdown."""
    command = typer.main.get_command(app)
    pages = get_docs_for_click(obj=command, ctx=typer.Context(command, info_name="sordino"), name="sordino")
    _, _, rest = pages.partition("\n")  # its own first heading
    plain = html.unescape(rest)
    return HEADER + re.sub(r"<(\w+)>", r"`<\1>`", plain).strip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(commands_page())
