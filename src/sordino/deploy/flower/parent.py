"""A child process ends when the process that started it is gone, also where that one was killed.

Otherwise a SuperNode would outlive its node, keep the port, and refuse its place to the next one.
"""

from __future__ import annotations

import os
import signal
import threading
import time

__all__ = ["PARENT_VARIABLE", "end_with_parent"]

PARENT_VARIABLE = "SORDINO_PARENT"  # the number of the process that started this one
PAUSE = 0.5  # seconds between two looks


def end_with_parent() -> None:
    """Send this process SIGTERM once its parent is gone; nothing where no parent is named."""
    named = os.environ.get(PARENT_VARIABLE)
    if named is not None:
        threading.Thread(target=_watch, args=(int(named),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PAUSE)
    os.kill(os.getpid(), signal.SIGTERM)
