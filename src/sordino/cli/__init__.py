"""The command line, one thin file a command."""

from __future__ import annotations

import os
import re
import sys
import warnings
from typing import NoReturn, TextIO

__all__ = ["main", "stopped"]

STOPPED = 130  # the exit status of what Ctrl-C has ended
GOES_ON = {
    "run": "a run goes on with --resume, a sweep with the same command",
    "compare": "the same command completes what is missing",
    "reproduce": "the same command completes what is missing",
}


def main() -> None:
    """Run `sordino`; every mistake that a user can make ends as one line on stderr and exit code 2."""
    try:
        _run()
    except KeyboardInterrupt:
        stopped()


def _run() -> None:
    import click

    from sordino.cli.app import app
    from sordino.errors import SordinoError, SordinoWarning
    from sordino.programs import keep_programs

    keep_programs()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _print_warning
            warnings.simplefilter("always", SordinoWarning)
            code = app(standalone_mode=False) or 0
        if code == STOPPED:  # what typer makes of Ctrl-C
            stopped()
        sys.stdout.flush()  # a full disk is noticed here, not while the interpreter ends
        sys.exit(code)
    except click.exceptions.Abort:
        stopped()
    except click.exceptions.NoArgsIsHelpError as error:
        if error.message:  # typer has printed it already where rich is installed
            print(error.message)
        sys.exit(0)
    except click.ClickException as error:
        _fail(_one_line(error))
    except SordinoError as error:
        _fail(str(error))
    except ArithmeticError as error:
        _fail(f"a number is out of the range that can be computed ({error}): use less extreme values")
    except BrokenPipeError:  # the reader closed, as in `sordino account ... | head`
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:
        place = "output" if error.filename is None else error.filename
        _fail(f"{place}: {error.strerror or error}: choose a file or folder that can be read and written")
    except MemoryError as error:
        _fail(f"there is not enough memory ({error}): use smaller numbers")
    except RuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):  # JAX's word for it
            raise
        _fail(f"there is not enough memory ({str(error).splitlines()[0]}): use a smaller model, batch or chunk")


def _print_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Sordino's own warnings in one line; those of other libraries as Python prints them."""
    from sordino.errors import SordinoWarning

    own = issubclass(category, SordinoWarning)
    said = f"warning: {message}\n" if own else warnings.formatwarning(message, category, filename, lineno, line)
    print(said, end="", file=file or sys.stderr)


def stopped(how: str = "") -> NoReturn:
    """Ctrl-C, with how the command goes on, if it does.

    What is computed in other threads would crash an interpreter that takes itself apart: leave at once.
    """
    how = how or GOES_ON.get(sys.argv[1] if len(sys.argv) > 1 else "", "")
    print(f"stopped: {how}" if how else "stopped", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(STOPPED)


def _fail(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def _one_line(error: Exception) -> str:
    """A usage error of click's, with what would have been right."""
    import click

    assert isinstance(error, click.ClickException)
    message = re.sub(r"(Did you mean [^?]*\?)(?: \1)+", r"\1", " ".join(error.format_message().split()))
    context = getattr(error, "ctx", None)
    if context is None:
        return message
    if isinstance(context.command, click.Group) and "No such command" in message:
        return f"{message} Use one of {', '.join(context.command.list_commands(context))}."
    return f"{message} See `{context.command_path} --help`."
