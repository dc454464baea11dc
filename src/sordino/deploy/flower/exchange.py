"""The seam's exchange on a Flower grid: each node's reply is awaited in a thread, so that no node delays the others."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import TypeAlias

from flwr.app import Message, Metadata
from flwr.app.message import make_message
from flwr.superlink.grid import HttpGrid

from sordino.deploy.flower.packing import pack, unpack
from sordino.deploy.seam import Reason, Reply

__all__ = ["FlowerExchange"]

log = logging.getLogger(__name__)
LATER = 3600.0  # seconds for which a message outlives its deadline: the reply to an expired one cannot be sent
Box: TypeAlias = "queue.SimpleQueue[tuple[str, Reply | Exception]]"


class FlowerExchange:
    """Messages to registered nodes. A node's name is the one that its key was registered with."""

    def __init__(self, grid: HttpGrid, task: int, poll: float = 0.05) -> None:
        self.grid = grid
        self.task = task  # number of the server's task in the grid's run
        self.poll = poll  # seconds between the first questions for a reply; they become rarer, down to one a second

    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes that are connected now."""
        return tuple(sorted(self._ids()))

    def __call__(self, round: int, requests: Mapping[str, bytes], deadline: float) -> Mapping[str, Reply]:
        """Send every node its request -> one entry a node, at the latest `deadline` seconds from now.

        Raises ConnectionError where the SuperLink cannot be reached or does not know the run any more.
        """
        end = time.monotonic() + deadline
        replies: dict[str, Reply] = dict.fromkeys(requests, Reason.SILENT)
        box: Box = queue.SimpleQueue()
        try:
            ids = self._ids()
        except Exception as error:
            raise ConnectionError("the SuperLink does not answer, or has ended the run") from error
        waiting = requests.keys() & ids.keys()
        for name in requests.keys() - waiting:
            replies[name] = Reason.LOST
        if waiting:
            messages = {name: self._message(ids[name], round, requests[name], end) for name in sorted(waiting)}
            _begin(self._send, box, messages, end)
        failures: list[Exception] = []
        while waiting and (left := end - time.monotonic()) > 0:
            try:
                name, reply = box.get(timeout=left)
            except queue.Empty:
                break
            waiting.discard(name)
            if isinstance(reply, Exception):
                failures.append(reply)
            else:
                replies[name] = reply
        if failures and len(failures) == len(requests):
            raise ConnectionError("the SuperLink does not answer, or has ended the run") from failures[0]
        return replies

    def _ids(self) -> dict[str, int]:
        return {node.name: node.node_id for node in self.grid.get_nodes() if node.name}

    def _message(self, node: int, round: int, request: bytes, end: float) -> Message:
        # Message(...) would take run and task from a variable of the process, and a process may hold several sessions.
        metadata = Metadata(
            run_id=self.grid.run.run_id,
            message_id="",  # the grid sets it
            src_node_id=self.grid.node.node_id,
            dst_node_id=node,
            reply_to_message_id="",
            group_id=str(round),
            created_at=time.time(),
            ttl=end - time.monotonic() + LATER,
            message_type="train",
            src_task_id=self.task,
        )
        return make_message(metadata, pack(request))

    def _send(self, box: Box, messages: Mapping[str, Message], end: float) -> None:
        """Push all messages with one call, for equal pieces, and wait for the reply to each in a thread."""
        try:
            numbers = [*self.grid.push_messages([*messages.values()])]
        except Exception as error:
            log.warning("no message was sent: %r", error)
            for name in messages:
                box.put((name, error))
            return
        for name, number in zip_longest(messages, numbers):
            if number:
                _begin(self._wait, box, name, number, end)
            else:  # the SuperLink refuses it
                box.put((name, Reason.LOST))

    def _wait(self, box: Box, name: str, number: str, end: float) -> None:
        pause = self.poll
        try:
            while time.monotonic() < end:
                for reply in self.grid.pull_messages([number]):
                    if reply.metadata.reply_to_message_id == number:  # the SuperLink's own errors have another source
                        return box.put((name, _read(name, reply)))
                time.sleep(pause)
                pause = min(1.0, pause * 1.2)
        except Exception as error:  # of one node: the others go on
            log.warning("no reply of %s: %r", name, error)
            box.put((name, error))


def _begin(work: Callable[..., None], *arguments: object) -> None:
    # A daemon: pulling a reply whose sender died may block for minutes, and nothing can interrupt it.
    threading.Thread(target=work, args=arguments, daemon=True).start()


def _read(name: str, reply: Message) -> Reply:
    if reply.has_error():
        log.warning("Flower reports error %d in place of a reply of %s", reply.error.code, name)
        return Reason.SILENT
    data = unpack(reply.content)
    return Reason.MALFORMED if data is None else data
