"""`python -m sordino.deploy.flower.supernode <arguments of flower-supernode>`: shorter waits, and no app of a bundle.

Flower's SuperNode waits 3 s between two questions for messages and 0.5 s between two looks for the reply, and has no
option for it. SORDINO_NODE_WAIT is the longest wait in seconds.
"""

from __future__ import annotations

import os
import sys
import time

import flwr.supernode.start_client_internal as loop

from sordino.deploy.flower.parent import end_with_parent

__all__ = ["WAIT_VARIABLE", "main"]

WAIT_VARIABLE = "SORDINO_NODE_WAIT"
DEFAULT_WAIT = 0.5  # every question costs the SuperLink the check of a signature: 50 nodes need 2 s or more


class _Time:
    """The module `time` with a bounded sleep, for one module of flwr."""

    def __init__(self, longest: float) -> None:
        self.longest = longest

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        """Sleep, but not longer than allowed."""
        time.sleep(min(seconds, self.longest))


def main() -> None:
    """Start flower-supernode with the arguments of this process; the worker's process handles the messages."""
    end_with_parent()
    setattr(loop, "time", _Time(float(os.environ.get(WAIT_VARIABLE, DEFAULT_WAIT))))  # noqa: B010, as in superlink.py
    from flwr.supernode.cli import flower_supernode

    sys.argv = ["flower-supernode", *sys.argv[1:], "--isolation", "process"]
    flower_supernode()


if __name__ == "__main__":
    main()
