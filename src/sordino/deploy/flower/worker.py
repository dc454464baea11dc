"""The worker of a node: takes each message that its SuperNode received and answers with the node's own function.

It takes the place of Flower's executor. The app bundle of a run reaches it with every message and is never opened.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import httpx
from flwr.app import Context, Message
from flwr.app.error import Error
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from sordino.deploy.flower.packing import pack, unpack
from sordino.deploy.flower.runtime import by_secret, by_token, heartbeat
from sordino.deploy.seam import Handle

__all__ = ["serve"]

log = logging.getLogger(__name__)
PAUSE = 1.0  # seconds after a failed call, for instance while the SuperNode is restarted


def serve(handle: Handle, address: str, secret_file: Path, stop: threading.Event, poll: float = 0.05) -> None:
    """Answer the messages of the SuperNode at a loopback address until `stop` is set; wait for it where it is away."""
    client, away = by_secret(address, secret_file), False
    try:
        while not stop.is_set():
            try:
                task = client.AcquireTask(AcquireTaskRequest(supported_task_types=["flwr-clientapp"]))
                away = False
                if task.HasField("task") and task.token:
                    _answer(handle, address, task.token)
                else:
                    stop.wait(poll)
            except Exception as error:  # a broken task or an absent SuperNode must not end the worker
                log.log(logging.DEBUG if away else logging.WARNING, "no task from the SuperNode: %r", error)
                away = isinstance(error, httpx.TransportError)
                stop.wait(PAUSE)
    finally:
        client.close()


def _answer(handle: Handle, address: str, token: str) -> None:
    client = by_token(address, token)
    beat = heartbeat(client)
    context: Context | None = None
    status = SubStatus.FAILED
    try:
        message, context, _run, _bundle = pull_task_input(client)
        reply = _reply(handle, message)
        push_message(client, reply, context)
        status = SubStatus.FAILED if reply.has_error() else SubStatus.COMPLETED
    finally:
        push_task_output(client, context, status, "")
        beat.stop()
        client.close()


def _reply(handle: Handle, message: Message) -> Message:
    request = unpack(message.content) if message.has_content() else None
    if request is not None:
        try:
            return Message(pack(handle(request), reply=True), reply_to=message)
        except Exception:  # its text may tell of the node's data, so it stays in the node's log
            log.exception("the node's function failed")
    return Message(Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=""), reply_to=message)
