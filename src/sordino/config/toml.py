"""A TOML file that a person wrote, read with errors that name it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from sordino.errors import InvalidInput


class Toml(NamedTuple):
    """The text of a file, and its values."""

    text: str
    values: dict[str, Any]


def read_toml(path: Path) -> Toml:
    """The file, or one line that says what is wrong with it."""
    try:
        text = path.read_text("utf-8-sig")  # an editor may have put a mark before it
        return Toml(text, tomllib.loads(text))
    except OSError as error:
        raise InvalidInput("file", str(path), f"cannot be read ({error.strerror}): check the path") from None
    except UnicodeDecodeError:
        raise InvalidInput("file", str(path), "is not UTF-8 text: save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput("file", str(path), f"is not valid TOML: {error}") from None
