"""Flower on loopback: a guarded SuperLink, SuperNodes as processes, and their workers as threads of the test."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from sordino.deploy.flower.credentials import make_secret, make_tls
from sordino.deploy.flower.processes import (
    Supervised,
    free_port,
    register_node,
    start_superlink,
    start_supernode,
    wait_until_up,
)
from sordino.deploy.flower.session import Link
from sordino.deploy.flower.worker import serve

Handle = Callable[[bytes], bytes]
MAX_BODY = 8 << 20


@dataclass
class Loopback:
    """A SuperLink and SuperNodes, whose functions a test may exchange."""

    folder: Path
    link: Link
    superlink: Supervised
    nodes: dict[str, Supervised] = field(default_factory=dict)
    handles: dict[str, Handle] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    workers: list[threading.Thread] = field(default_factory=list)

    @classmethod
    def start(cls, folder: Path) -> Self:
        """The SuperLink, with credentials of its own in the folder."""
        make_tls(folder / "tls", ["server.example"])
        make_secret(folder / "server.secret")
        port = free_port()
        link = Link(f"127.0.0.1:{port}", folder / "tls" / "ca.crt")
        superlink = start_superlink(
            folder / "server", folder / "tls", folder / "server.secret", "127.0.0.1", port, max_body=MAX_BODY
        )
        it = cls(folder, link, superlink)
        try:
            wait_until_up(link)
        except BaseException:
            it.end()
            raise
        return it

    @property
    def secret(self) -> Path:
        return self.folder / "server.secret"

    def start_node(self, name: str, key: Path, handle: Handle, wait: float = 0.1) -> None:
        """A SuperNode with a key that is made already; its folder is the key's."""
        home, port = key.parent, free_port()
        register_node(self.link, name, key.with_name(f"{key.name}.pub"))
        make_secret(home / "secret")
        self.nodes[name] = start_supernode(home, self.link, key, home / "secret", port, wait=wait, pause=5.0)
        self.handles[name] = handle
        work = (lambda request: self.handles[name](request), f"127.0.0.1:{port}", home / "secret", self.stop)
        self.workers.append(threading.Thread(target=serve, args=work))
        self.workers[-1].start()

    def kill_node(self, name: str) -> None:
        """SIGKILL to a SuperNode; it is started again after a while, and let in about a minute later."""
        os.killpg(self.nodes[name].pid, signal.SIGKILL)

    def end(self) -> None:
        self.stop.set()
        for child in (*self.nodes.values(), self.superlink):
            child.stop()
        for worker in self.workers:
            worker.join()


def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.2)
