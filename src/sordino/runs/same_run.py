"""Whether a folder was begun with the same run file and the same records: otherwise nothing goes on there."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path

from sordino.errors import require
from sordino.runs.names import CONFIG, RECORDS


def require_same_config(folder: Path, config: str | None) -> None:
    """Refuse to go on with another run file than the folder keeps."""
    kept = folder / CONFIG
    if config is None or not kept.exists():
        return
    text = kept.read_bytes().decode(errors="replace")
    try:
        tomllib.loads(text)
        again = shlex.join(
            ["sordino", "run", str(kept), "--runs", str(folder.parent), "--name", folder.name, "--resume"]
        )
        remedy = f"was started with another configuration: go on with `{again}`, or choose another name"
    except tomllib.TOMLDecodeError:
        remedy = f"{kept} is damaged"
    require(text == config, "resume", str(folder), remedy)


def require_same_records(folder: Path, records: str, field: str, otherwise: str) -> None:
    """Refuse to go on where the folder was begun with other records, or does not say with which."""
    known = folder / RECORDS
    unknown = f"{RECORDS} is missing, so the records that the run began with cannot be checked"
    remedy = f"{unknown}: restore it, or choose another name"
    require(known.exists(), field, str(folder), remedy)
    require(known.read_text() == records, field, str(folder), f"{otherwise}: choose another name")
