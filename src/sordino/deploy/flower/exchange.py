"""The seam's exchange on a Flower grid: one thread and one message a node, so that no node can delay the others."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Mapping
from typing import TypeAlias

from flwr.app import Message
from flwr.superlink.grid import HttpGrid

from sordino.deploy.flower.packing import pack, unpack
from sordino.deploy.seam import Reason, Reply

__all__ = ["FlowerExchange"]

log = logging.getLogger(__name__)
LATER = 3600.0  # seconds for which a message outlives its deadline: the reply to an expired one cannot be sent
Box: TypeAlias = "queue.SimpleQueue[tuple[str, Reply | Exception]]"


class FlowerExchange:
    """Messages to registered nodes. A node's name is the one that its key was registered with."""

    def __init__(self, grid: HttpGrid, poll: float = 0.05) -> None:
        self.grid = grid
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
        for name in waiting:
            work = (box, name, ids[name], round, requests[name], end)
            # A daemon: pulling a reply whose sender died may block for minutes, and nothing can interrupt it.
            threading.Thread(target=self._ask, args=work, daemon=True).start()
        failures: list[Exception] = []
        while waiting and (left := end - time.monotonic()) > 0:
            try:
                name, reply = box.get(timeout=left)
            except queue.Empty:
                break
            waiting.discard(name)
            if isinstance(reply, Exception):
                failures.append(reply)
                replies[name] = Reason.LOST
            else:
                replies[name] = reply
        if failures and len(failures) == len(requests):
            raise ConnectionError("the SuperLink does not answer, or has ended the run") from failures[0]
        return replies

    def _ids(self) -> dict[str, int]:
        return {node.name: node.node_id for node in self.grid.get_nodes() if node.name}

    def _ask(self, box: Box, name: str, node: int, round: int, request: bytes, end: float) -> None:
        try:
            message = Message(
                pack(request),
                dst_node_id=node,
                message_type="train",
                group_id=str(round),
                ttl=end - time.monotonic() + LATER,
            )
            number = next(iter(self.grid.push_messages([message])), None)
            if not number:
                return box.put((name, Reason.LOST))
            wait = self.poll
            while time.monotonic() < end:
                for reply in self.grid.pull_messages([number]):
                    if reply.metadata.reply_to_message_id == number:  # SuperLink's own errors have another source
                        return box.put((name, _read(name, reply)))
                time.sleep(wait)
                wait = min(1.0, wait * 1.2)
        except Exception as error:  # of one node: the others go on
            log.warning("no reply of %s: %r", name, error)
            box.put((name, error))


def _read(name: str, reply: Message) -> Reply:
    if reply.has_error():
        log.warning("Flower reports error %d in place of a reply of %s", reply.error.code, name)
        return Reason.LOST
    data = unpack(reply.content)
    return Reason.LOST if data is None else data
