"""The one atomic writer and the one lock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sordino.files import held, replacing, write_atomically


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    with pytest.raises(RuntimeError), replacing(path) as file:  # noqa: PT012  the error must come while it is open
        file.write(b"ne")
        assert path.read_bytes() == b"old"
        raise RuntimeError
    assert path.read_bytes() == b"old"
    with replacing(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_lock_is_held_once_and_makes_no_folder(tmp_path: Path) -> None:
    path, refusal = tmp_path / "lock", RuntimeError("in use")
    with held(path, refusal), pytest.raises(RuntimeError, match="in use"), held(path, refusal):
        pass
    with held(path, refusal):
        pass
    with pytest.raises(FileNotFoundError), held(tmp_path / "nowhere" / "lock", refusal):
        pass
    assert not (tmp_path / "nowhere").exists()


def test_ledgers_can_be_imported_where_there_is_no_fcntl() -> None:
    """As on Windows."""
    code = "import sys; sys.modules['fcntl'] = None; import sordino.privacy, sordino.files"
    subprocess.run([sys.executable, "-c", code], check=True)
