"""The command line in this process, for all tests of commands."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple
from unittest import mock

import pytest

from sordino.cli import main


class Result(NamedTuple):
    stdout: str
    stderr: str


@pytest.fixture(scope="session")
def run() -> Callable[..., Result]:
    """`run("plan", "file.toml", code=2)` is `sordino plan file.toml`, checked to exit with that code (0 if not given).

    It saves the seconds that an interpreter takes to start; one test starts the installed command for real.
    """

    def run_command(*arguments: str, code: int = 0) -> Result:
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.object(sys, "argv", ["sordino", *arguments]),
            redirect_stdout(out),
            redirect_stderr(err),
            pytest.raises(SystemExit) as stop,
        ):
            main()
        assert (stop.value.code or 0) == code, err.getvalue() + out.getvalue()
        return Result(out.getvalue(), err.getvalue())

    return run_command
