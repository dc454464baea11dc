"""Processes of a deployment: SuperLink and SuperNodes, each watched, and restarted where it dies."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError

from sordino.deploy.flower.guard import LIMIT_VARIABLE
from sordino.deploy.flower.parent import PARENT_VARIABLE
from sordino.deploy.flower.session import Link, register_node, run_status, stop_run, submit_run
from sordino.deploy.flower.supernode import WAIT_VARIABLE

__all__ = [
    "Supervised",
    "environment",
    "free_port",
    "register_node",
    "run_status",
    "start_superlink",
    "start_supernode",
    "stop_run",
    "submit_run",
    "wait_until_up",
]

GRACE = 10.0  # seconds between SIGTERM and SIGKILL: a SuperNode signs off


class Supervised:
    """A child process that is started again `pause` seconds after it dies, until `stop`. Its output goes to a log file.

    The SuperLink refuses a SuperNode that was killed until about 60 s after its last sign of life: the SuperNode ends,
    and the next start is the next attempt.
    """

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str], pause: float = 10.0) -> None:
        self.command, self.log, self.environment, self.pause = list(command), log, dict(environment), pause
        self.starts = 0
        self._stopping = threading.Event()
        self.process = self._start()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    @property
    def pid(self) -> int:
        """Of the present process, which leads a process group of its own."""
        return self.process.pid

    def alive(self) -> bool:
        """Whether the child runs at this moment."""
        return self.process.poll() is None

    def stop(self) -> None:
        """End the child and its children: SIGTERM first, SIGKILL after a grace period."""
        self._stopping.set()
        _signal_group(self.process, signal.SIGTERM)
        self._watcher.join(GRACE)
        _signal_group(self.process, signal.SIGKILL)
        self._watcher.join()

    def __enter__(self) -> Supervised:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        with self.log.open("ab") as output:
            return subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,  # so that its children can be ended with it
            )

    def _watch(self) -> None:
        while True:
            self.process.wait()
            if self._stopping.is_set() or self._stopping.wait(self.pause):
                return
            self.process = self._start()
            if self._stopping.is_set():  # `stop` may have signalled the one before
                _signal_group(self.process, signal.SIGTERM)


def environment(folder: Path, **more: str) -> dict[str, str]:
    """What children get: a home for Flower inside the folder, no telemetry, no question for updates, their parent."""
    home = folder / "flower"
    home.mkdir(parents=True, exist_ok=True)
    quiet = {
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",
        PARENT_VARIABLE: str(os.getpid()),
    }
    return {**os.environ, **quiet, **more}


def start_superlink(
    folder: Path, tls: Path, secret_file: Path, host: str, port: int, max_body: int | None = None
) -> Supervised:
    """The guarded SuperLink with the files of `make_tls`; its database and log are in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "sordino.deploy.flower.superlink"),
        *("--ssl-ca-certfile", str(tls / "ca.crt")),
        *("--ssl-certfile", str(tls / "server.pem")),
        *("--ssl-keyfile", str(tls / "server.key")),
        *("--host", host, "--port", str(port)),
        *("--database", str(folder / "superlink.db")),
        *("--isolation", "process", "--superexec-auth-secret-file", str(secret_file)),
        "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
    ]
    more = {} if max_body is None else {LIMIT_VARIABLE: str(max_body)}
    return Supervised(command, folder / "superlink.log", environment(folder, **more), pause=2.0)


def wait_until_up(link: Link, seconds: float = 60.0) -> None:
    """Return when the SuperLink answers; raise TimeoutError where it does not."""
    context, end = ssl.create_default_context(cafile=str(link.ca)), time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(f"https://{link.address}/health", context=context, timeout=5).close()
            return
        except (URLError, OSError):
            time.sleep(0.1)
    raise TimeoutError(f"no SuperLink at {link.address} after {seconds:g} s: see superlink.log")


def start_supernode(
    folder: Path, link: Link, key: Path, secret_file: Path, port: int, wait: float | None = None, pause: float = 10.0
) -> Supervised:
    """A SuperNode whose worker reaches it at 127.0.0.1:port with the secret; its log is in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "sordino.deploy.flower.supernode"),
        *("--root-certificates", str(link.ca)),
        *("--superlink", link.address),
        *("--auth-supernode-private-key", str(key)),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--superexec-auth-secret-file", str(secret_file)),
    ]
    more = {} if wait is None else {WAIT_VARIABLE: str(wait)}
    return Supervised(command, folder / "supernode.log", environment(folder, **more), pause=pause)


def free_port() -> int:
    """A port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
