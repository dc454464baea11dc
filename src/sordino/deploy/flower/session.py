"""The server's side of a run, in the server's own process: start a run, take its task, exchange messages, end it.

Flower would start a process that installs and imports the run's app bundle. Nothing of that is needed: the bundle here
holds no code, and the SuperLink runs with `--isolation process`, so that whoever has its secret drives the run.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.common.constant import SubStatus
from flwr.common.serde import fab_to_proto, run_from_proto
from flwr.proto.control_pb2 import ListRunsRequest, RegisterNodeRequest, StartRunRequest, StopRunRequest
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PullTaskInputRequest, PushTaskOutputRequest
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.superlink.grid import HttpGrid

from sordino.deploy.flower.exchange import FlowerExchange
from sordino.deploy.flower.runtime import by_secret, by_token, heartbeat, patient

__all__ = ["Link", "bundle", "register_node", "run_status", "session", "stop_run", "submit_run"]

Result = TypeVar("Result")
PATIENCE = 20.0  # seconds for which a SuperLink that cannot be reached is tried again


@dataclass(frozen=True)
class Link:
    """Where the SuperLink is: `host:port`, which from its own machine must be 127.0.0.1, and its authority's file."""

    address: str
    ca: Path

    def control(self, call: Callable[[ControlHttpClient], Result]) -> Result:
        """One call of the Control API, which the guard grants to the server's own machine."""
        client = ControlHttpClient.from_server_address(
            server_address=self.address,
            insecure=False,
            root_certificates=self.ca.read_bytes(),
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )
        try:
            return call(client)
        except httpx.HTTPStatusError as error:
            raise ConnectionError(f"the SuperLink refuses: {error.response.text[:200]}") from error
        except httpx.TransportError as error:
            raise ConnectionError(f"no SuperLink at {self.address}: {error}") from error
        finally:
            client.close()


def register_node(link: Link, name: str, public_key: Path) -> int:
    """Let a node in -> its number. Its name is bound to its key. A key can be registered once."""
    key = load_ssh_public_key(public_key.read_bytes())
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError(f"{public_key}: not an elliptic-curve key")
    request = RegisterNodeRequest(public_key=public_key_to_bytes(key), name=name)
    return link.control(lambda client: client.RegisterNode(request)).node_id


def submit_run(link: Link, app: bytes | None = None) -> int:
    """Create a run -> its number. It stays pending until a session takes it."""
    content = bundle() if app is None else app
    fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
    run = link.control(lambda client: client.StartRun(StartRunRequest(fab=fab_to_proto(fab)))).run_id
    if not run:
        raise ConnectionError("the SuperLink accepts no run")
    return run


def stop_run(link: Link, run: int) -> bool:
    """End a run: its session's next call raises ConnectionError, and nodes hear no more of it."""
    return link.control(lambda client: client.StopRun(StopRunRequest(run_id=run))).success


def run_status(link: Link, run: int) -> str:
    """One of pending, starting, running, finished:completed, finished:failed, finished:stopped."""
    found = link.control(lambda client: client.ListRuns(ListRunsRequest(run_id=run))).run_dict[run].status
    return f"{found.status}:{found.sub_status}" if found.sub_status else found.status


@contextmanager
def session(link: Link, secret_file: Path, run: int | None = None) -> Iterator[FlowerExchange]:
    """Drive a new run, or one that was submitted, until the block ends; an exception in it marks the run as failed."""
    run = submit_run(link) if run is None else run
    ca = link.ca.read_bytes()
    token = _take(link, secret_file, run, ca)
    client = by_token(link.address, token, ca)
    grid = HttpGrid(link.address, root_certificates=ca, token=token)
    grid._retry_invoker = patient(PATIENCE)
    beat, status = heartbeat(client), SubStatus.FAILED
    try:
        task = client.PullTaskInput(PullTaskInputRequest())
        grid.set_run(run_from_proto(task.run))
        yield FlowerExchange(grid, task.task_id)
        status = SubStatus.COMPLETED
    finally:
        beat.stop()
        _finish(client, status)
        client.close()
        grid.close()


def bundle() -> bytes:
    """An app bundle without code: Flower wants one for every run."""
    description = """[project]
name = "sordino"
version = "1.0.0"
description = "A run of Sordino. The code is installed on the server and on the nodes."
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "sordino"
[tool.flwr.app.components]
serverapp = "none:none"
clientapp = "none:none"
[tool.flwr.app.config]
"""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("pyproject.toml", description)
    return file.getvalue()


def _take(link: Link, secret_file: Path, run: int, ca: bytes) -> str:
    """The token of the run's task. The SuperLink hands out the oldest one first: tasks of abandoned runs are ended."""
    client = by_secret(link.address, secret_file, ca)
    try:
        while True:
            task = client.AcquireTask(AcquireTaskRequest(supported_task_types=["flwr-serverapp"]))
            if not task.token:
                raise ConnectionError(f"run {run} does not wait for a session: {run_status(link, run)}")
            if task.task.run_id == run:
                return task.token
            abandoned = by_token(link.address, task.token, ca)
            _finish(abandoned, SubStatus.FAILED)
            abandoned.close()
    except httpx.HTTPError as error:
        raise ConnectionError(f"the SuperLink gives no task: {error}") from error
    finally:
        client.close()


def _finish(client: RuntimeHttpClient, status: str) -> None:
    with suppress(httpx.HTTPError):  # the SuperLink is away, or the run was stopped: it marks the run by itself
        client.PushTaskOutput(PushTaskOutputRequest(sub_status=status, details=""))
