"""Clients of Flower's Runtime API, for a worker (at its SuperNode) and for a session (at the SuperLink).

Flower's own helpers interrupt the process with a signal where a token is not known any more: ours raise or go on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

import httpx
from flwr.proto.runtime_pb2 import SendTaskHeartbeatRequest
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.protobuf.client import ProtobufClientInterceptor
from flwr.supercore.retry import RetryInvoker
from flwr.supercore.runtime import RuntimeHttpClient

__all__ = ["by_secret", "by_token", "heartbeat", "patient"]

METHODS = frozenset({"/flwr.proto.Runtime/AcquireTask"})  # what the secret protects; the rest goes by a task's token


def by_secret(address: str, secret_file: Path, ca: bytes | None = None) -> RuntimeHttpClient:
    """A client that may take tasks; without a certificate authority it speaks plain HTTP, for loopback alone."""
    secret = secret_file.read_bytes()
    return _client(address, SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=METHODS), ca)


def by_token(address: str, token: str, ca: bytes | None = None) -> RuntimeHttpClient:
    """A client that works on one task."""
    return _client(address, RuntimeTokenHttpInterceptor(token), ca)


def patient(seconds: float) -> RetryInvoker:
    """Try again where the other side cannot be reached, for a bounded time; every answer of it is final."""
    return RetryInvoker(_waits, httpx.TransportError, max_tries=None, max_time=seconds)


def heartbeat(client: RuntimeHttpClient) -> HeartbeatSender:
    """Tell the other side that a task is being worked on, until stopped."""
    beat = HeartbeatSender(_beat(client))
    beat.start()
    return beat


def _beat(client: RuntimeHttpClient) -> Callable[[], bool]:
    def beat() -> bool:
        try:
            client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        except httpx.TransportError:
            return False  # the sender tries again
        except (
            httpx.HTTPError,
            RuntimeError,
        ):  # the task has ended, or the client was closed: the next call will say it
            return True
        return True

    return beat


def _waits() -> Generator[float, None, None]:
    wait = 0.1
    while True:
        yield wait
        wait = min(2.0, 2 * wait)


def _client(address: str, interceptor: ProtobufClientInterceptor, ca: bytes | None) -> RuntimeHttpClient:
    version = RuntimeVersionHttpInterceptor(component_name="SuperExec")
    return RuntimeHttpClient.from_server_address(
        server_address=address, insecure=ca is None, root_certificates=ca, interceptors=[version, interceptor]
    )
