"""Messages between server and nodes as bytes: versioned, little-endian, length-prefixed, signed.

    offset  bytes  what
    0       4      "SRDN"
    4       2      version of the format, 1
    6       1      kind
    7       1      s, the length of the sender's name
    8       32     SHA-256 of the study's description; zeros before there is one
    40      4      round
    44      4      n, the length of the body
    48      s      the sender's name in UTF-8
    48+s    n      body
    48+s+n  2      m, the length of the signature
            m      the sender's signature of everything before m

docs/wire.md describes the bodies. A decoder checks every length against what is there before it takes anything, so it
never holds more than the message itself, and `most` bounds that.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sordino.deploy.seam import Reason
from sordino.errors import SordinoError
from sordino.privacy.signing import SigningKey, VerifyingKey

MAGIC, VERSION = b"SRDN", 1
NO_STUDY = bytes(32)
_HEAD = struct.Struct("<4sHBB32sII")
_LENGTH = struct.Struct("<H")
LONGEST_NAME = 64
LONGEST_SIGNATURE = 144  # ECDSA with P-521 in DER is shorter
OVERHEAD = _HEAD.size + LONGEST_NAME + _LENGTH.size + LONGEST_SIGNATURE


class Kind(IntEnum):
    """What a body holds."""

    DESCRIBE = 1  # server: the text of a run file. What do you hold for it?
    FACTS = 2  # node: its public facts
    START = 3  # server: the study's description
    ACCEPT = 4  # node: the digest of the plan that it resolved itself
    ROUND = 5  # server: the arrays that the method broadcasts
    UPDATE = 6  # node: its message
    FINISH = 7  # server: its signed certificate
    STATEMENT = 8  # node: its signed certificate
    REFUSED = 9  # node: one byte, the reason; then the digest of the request


class WireError(SordinoError):
    """Bytes that are no message of this format, or not the expected one."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class NodeRefuses(WireError):
    """The node has answered that it sends nothing."""


@dataclass(frozen=True)
class Frame:
    """One message without its signature."""

    kind: Kind
    study: bytes
    round: int
    sender: str
    body: bytes


def seal(frame: Frame, key: SigningKey) -> bytes:
    """The signed bytes of a frame."""
    name = frame.sender.encode()
    head = _HEAD.pack(MAGIC, VERSION, frame.kind, len(name), frame.study, frame.round, len(frame.body))
    signed = head + name + frame.body
    signature = key.sign(signed)
    return signed + _LENGTH.pack(len(signature)) + signature


def unseal(data: bytes, key: VerifyingKey, most: int) -> Frame:
    """The frame in these bytes, whose signature by `key` holds; refused above `most` bytes of body."""
    frame, signed, signature = _split(data, most)
    if not key.verifies(signature, signed):
        raise WireError(Reason.SIGNATURE, "the signature is not the expected sender's")
    return frame


def peek(data: bytes, most: int) -> Frame:
    """The frame in these bytes, whoever signed it: for finding out which key to check it with."""
    return _split(data, most)[0]


def _split(data: bytes, most: int) -> tuple[Frame, bytes, bytes]:
    if len(data) > most + OVERHEAD:
        raise WireError(Reason.TOO_LARGE, f"{len(data)} bytes, and at most {most + OVERHEAD} are expected")
    if len(data) < _HEAD.size:
        raise WireError(Reason.MALFORMED, "shorter than a header")
    magic, version, kind, s, study, round, n = _HEAD.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise WireError(Reason.MALFORMED, f"not version {VERSION} of the format")
    if n > most:
        raise WireError(Reason.TOO_LARGE, f"a body of {n} bytes, and at most {most} are expected")
    end = _HEAD.size + s + n
    if s > LONGEST_NAME or len(data) < end + _LENGTH.size:
        raise WireError(Reason.MALFORMED, "lengths that do not fit")
    (m,) = _LENGTH.unpack_from(data, end)
    if m > LONGEST_SIGNATURE or len(data) != end + _LENGTH.size + m:
        raise WireError(Reason.MALFORMED, "lengths that do not fit")
    try:
        known, sender = Kind(kind), data[_HEAD.size : _HEAD.size + s].decode()
    except ValueError:  # an unknown kind, or no UTF-8
        raise WireError(Reason.MALFORMED, "an unknown kind or an unreadable name") from None
    return Frame(known, study, round, sender, data[_HEAD.size + s : end]), data[:end], data[end + _LENGTH.size :]


# --- Bodies ----------------------------------------------------------------------------------------------------------

_TYPES = {0: np.dtype("<f4"), 1: np.dtype("<i4"), 2: np.dtype("<u4"), 3: np.dtype("?")}
_CODES = {dtype: code for code, dtype in _TYPES.items()}


class Shape(NamedTuple):
    """What an array of a body must be."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def pack_arrays(arrays: Sequence[NDArray[Any]]) -> bytes:
    """Count, then of each array: type, rank, lengths, numbers."""
    parts = [struct.pack("<H", len(arrays))]
    for array in arrays:
        little = np.asarray(array).astype(np.asarray(array).dtype.newbyteorder("<"), copy=False)
        lengths = struct.pack(f"<{little.ndim}I", *little.shape)
        parts += [struct.pack("<BB", _CODES[little.dtype], little.ndim), lengths, little.tobytes()]
    return b"".join(parts)


def arrays_size(shapes: Sequence[Shape]) -> int:
    """Bytes of `pack_arrays` for arrays of these shapes."""
    return 2 + sum(2 + 4 * len(shape) + int(np.prod(shape)) * dtype.itemsize for shape, dtype in shapes)


def unpack_arrays(body: bytes, shapes: Sequence[Shape]) -> list[NDArray[Any]]:
    """The arrays in a body, which must have exactly these shapes and types."""
    if len(body) != arrays_size(shapes):
        raise WireError(Reason.SHAPE, f"{len(body)} bytes of arrays, and {arrays_size(shapes)} are expected")
    (count,), at, arrays = struct.unpack_from("<H", body), 2, []
    if count != len(shapes):
        raise WireError(Reason.SHAPE, f"{count} arrays, and {len(shapes)} are expected")
    for shape, dtype in shapes:
        expected = struct.pack(f"<BB{len(shape)}I", _CODES[dtype.newbyteorder("<")], len(shape), *shape)
        if body[at : at + len(expected)] != expected:
            raise WireError(Reason.SHAPE, "an array of another type or shape")
        at += len(expected)
        size = int(np.prod(shape))
        array = np.frombuffer(body, dtype.newbyteorder("<"), size, at).reshape(shape)
        if dtype.kind == "f" and not np.all(np.isfinite(array)):
            raise WireError(Reason.NOT_FINITE, "an array with NaN or infinity")
        arrays.append(array)
        at += size * dtype.itemsize
    return arrays


class Coding(NamedTuple):
    """How the coordinates of a message travel: 32-bit floats, or integers of `bits` bits from `low` on."""

    coordinates: int
    bits: int = 32
    low: int = 0
    is_float: bool = True

    @property
    def size(self) -> int:
        """Bytes of the coordinates."""
        return -(-self.coordinates * self.bits // 8)

    def pack(self, values: NDArray[Any]) -> bytes:
        """Coordinates -> bytes; coordinate i has bits i * bits and following, the lowest first."""
        if self.is_float:
            return np.asarray(values, "<f4").tobytes()
        offset = np.asarray(values, np.int64) - self.low
        if np.any((offset < 0) | (offset >= 1 << self.bits)):
            raise WireError(Reason.RANGE, f"a coordinate outside the {self.bits}-bit range from {self.low} on")
        if self.bits == 32:
            return offset.astype("<u4").tobytes()
        planes = (offset[:, None] >> np.arange(self.bits)) & 1
        return np.packbits(planes.astype(np.uint8).reshape(-1), bitorder="little").tobytes()

    def unpack(self, data: bytes) -> NDArray[Any]:
        """Bytes -> coordinates: float32, or int64."""
        if len(data) != self.size:
            raise WireError(Reason.SHAPE, f"{len(data)} bytes of coordinates, and {self.size} are expected")
        if self.is_float:
            return np.frombuffer(data, "<f4")
        if self.bits == 32:
            return np.frombuffer(data, "<u4").astype(np.int64) + self.low
        every = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        used = self.coordinates * self.bits
        if np.any(every[used:]):
            raise WireError(Reason.SHAPE, "bits beyond the last coordinate")
        planes = every[:used].reshape(self.coordinates, self.bits).astype(np.int64)
        return (planes << np.arange(self.bits)).sum(axis=1) + self.low


_UPDATE = struct.Struct("<32sBff")


class Update(NamedTuple):
    """The body of a node's message: 32 bytes of ledger hash, flags, level, side, coordinates."""

    ledger_hash: bytes
    values: NDArray[Any]
    level: float | None = None
    side: float | None = None

    def pack(self, coding: Coding) -> bytes:
        """The body."""
        flags = (self.level is not None) | (self.side is not None) << 1
        head = _UPDATE.pack(self.ledger_hash, flags, self.level or 0.0, self.side or 0.0)
        return head + coding.pack(self.values)

    @classmethod
    def size(cls, coding: Coding) -> int:
        """Bytes of the body."""
        return _UPDATE.size + coding.size

    @classmethod
    def unpack(cls, body: bytes, coding: Coding, *, has_level: bool, has_side: bool) -> Update:
        """The message in a body, of exactly the expected form and finite throughout."""
        if len(body) != cls.size(coding):
            raise WireError(Reason.SHAPE, f"a message of {len(body)} bytes, and {cls.size(coding)} are expected")
        ledger_hash, flags, level, side = _UPDATE.unpack_from(body)
        if flags != has_level | has_side << 1:
            raise WireError(Reason.SHAPE, "a level or side scalar that is not expected, or none")
        values = coding.unpack(body[_UPDATE.size :])
        if not (np.isfinite(level) and np.isfinite(side) and np.all(np.isfinite(values))):
            raise WireError(Reason.NOT_FINITE, "a message with NaN or infinity")
        return cls(ledger_hash, values, level if has_level else None, side if has_side else None)
