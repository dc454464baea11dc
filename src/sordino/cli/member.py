"""One process of a run of several, as `sordino run` starts it: the same command line, with other ends.

What JAX's libraries print goes to a file, which the process that watches reads; Sordino's own output goes where it
always goes. A process that has lost the others ends with `LOST`. After an error no member waits for the others.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import NoReturn

__all__ = ["LOST", "LOST_BY", "MEMBER", "main", "note"]

MEMBER = "SORDINO_MEMBER"  # the variable that names the file
LOST = 75  # the exit status of a process whose fellows are gone: sysexits' "try again"
LOST_BY = "lost: "  # before what is known of them, in the file


def main() -> NoReturn:
    """Run the command, and leave."""
    _divide_output()
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    code = _code_of_command()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)  # JAX would wait for the others


def _code_of_command() -> int:
    from sordino.cli import main

    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except RuntimeError as error:
        if not _is_loss(error):
            _print_fault(error)
            return 1
        lines = str(error).splitlines()
        note(lines[0] if lines else type(error).__name__)
        return LOST
    except BaseException as error:
        _print_fault(error)
        return 1
    return 0


def note(what: str) -> None:
    """Leave word, in the file, of what became of the others; the last one counts."""
    os.write(2, f"\n{LOST_BY}{what}\n".encode())


def _is_loss(error: RuntimeError) -> bool:
    """Whether the others are the cause; a collective that fails is one of JAX's own errors."""
    from jax.errors import JaxRuntimeError

    from sordino.runs.processes import ProcessLost

    words = ("Gloo", "gloo", "UNAVAILABLE", "coordination", "Connection")
    return isinstance(error, ProcessLost) or (
        isinstance(error, JaxRuntimeError) and any(word in str(error) for word in words)
    )


def _print_fault(error: BaseException) -> None:
    """Print a fault of the program as Python does, which cannot: the process leaves before."""
    sys.excepthook(type(error), error, error.__traceback__)


def _divide_output() -> None:
    """Let file descriptors 1 and 2 be the file, and sys.stdout and sys.stderr what those were."""
    log = os.open(os.environ[MEMBER], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    sys.stdout.flush()
    sys.stderr.flush()
    lines = 1  # are written as they end
    out, err = sys.stdout, sys.stderr
    sys.stdout = os.fdopen(os.dup(1), "w", lines if os.isatty(1) else -1, encoding=out.encoding, errors=out.errors)
    sys.stderr = os.fdopen(os.dup(2), "w", lines, encoding=err.encoding, errors=err.errors)
    os.dup2(log, 1)
    os.dup2(log, 2)


def _leave_with_parent() -> None:
    """Whoever watches holds the other end of stdin: when it is gone, nobody waits for this process."""
    while os.read(0, 1):
        pass
    os._exit(LOST)
