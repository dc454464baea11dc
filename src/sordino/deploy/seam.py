"""The seam between a study and whatever carries its messages: bytes out, bytes or a reason back.

    server   exchange(round, {node: request}, deadline) -> {node: reply, or why there is none}
    node     handle(request) -> reply

Everything above the seam is tested without a network. `deploy.flower` is one transport; another needs these two alone.
A later secure aggregation sits above it too: its messages are bytes of another kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Protocol, TypeAlias


class Reason(IntEnum):
    """Why there is no message. The number is what travels: a node's exceptions never do."""

    # the node refuses
    UNKNOWN_SERVER = 1  # the request does not carry the signature of the server that the node knows
    MALFORMED = 2  # the request is not what the wire format describes
    UNKNOWN_STUDY = 3  # no study with this description was accepted here
    METHOD = 4  # a method or mechanism that the node does not accept
    NOISE = 5  # less noise than the node asks for
    BOUND = 6  # a larger bound than the node allows
    TRUST = 7  # the server would see updates, and the node does not trust it so far
    UNIT = 8  # another unit or relation than the node protects
    BUDGET = 9  # the node's budget does not cover it
    TOO_SOON = 10  # the node answers less often
    OTHER_REQUEST = 11  # the round was answered already, to another request
    PAST_ROUND = 12  # a later round was answered already
    DATA = 13  # the node's records do not fit the study
    PLAN = 14  # the node resolves another plan than the server announced
    BUSY = 15  # another process holds the node's ledger
    STORAGE = 16  # the node cannot write down what it would release
    FAILED = 17  # anything else; the node's own log says what
    FINISHED = 18  # the study has ended here
    CLOCK = 19  # the node's clock is behind its ledgers
    WORK = 20  # a larger or deeper model, more local steps, members or studies, than the node allows
    OLD_STATE = 21  # the server has seen entries of the node's ledger that are not there: an older state was restored
    # the server finds out
    SILENT = 32  # no reply; whether the node has answered is not known
    LOST = 33  # the node is not connected, and nothing was sent to it
    SIGNATURE = 34  # the reply does not carry the node's signature
    WRONG_REPLY = 35  # a reply of another kind, study, round or node
    SHAPE = 36  # another number of coordinates, or another coding
    RANGE = 37  # outside the lattice or the alphabet
    NOT_FINITE = 38  # NaN or infinity
    TOO_LONG = 39  # longer than the bound allows
    TOO_LARGE = 40  # more bytes than a message of the study has


Reply: TypeAlias = bytes | Reason
Handle: TypeAlias = Callable[[bytes], bytes]


class Exchange(Protocol):
    """What a transport offers the server."""

    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes that are connected now."""
        ...

    def __call__(self, round: int, requests: Mapping[str, bytes], deadline: float) -> Mapping[str, Reply]:
        """Send every node its request -> one entry a node, at the latest `deadline` seconds from now."""
        ...
