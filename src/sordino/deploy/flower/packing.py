"""Bytes as the content of a Flower message: one array of bytes, which Flower sends in pieces.

The SuperLink keeps equal pieces once, and of two callers who upload the same piece at the same time one is refused.
So a reply begins with random bytes of its own. Requests of a round are uploaded by one call, and may share pieces.
"""

from __future__ import annotations

import secrets

from flwr.app import Array, ArrayRecord, RecordDict

__all__ = ["pack", "unpack"]

RECORD, KEY, KIND = "sordino", "bytes", "sordino.bytes"
PREFIX = 16  # bytes


def pack(data: bytes, *, reply: bool = False) -> RecordDict:
    """Wrap bytes."""
    data = (secrets.token_bytes(PREFIX) if reply else bytes(PREFIX)) + data
    return RecordDict({RECORD: ArrayRecord({KEY: Array("uint8", (len(data),), KIND, data)})})


def unpack(content: RecordDict) -> bytes | None:
    """The bytes of a content, or None where it has another form. Nothing of it is decoded."""
    record = content.get(RECORD)
    array = record.get(KEY) if isinstance(record, ArrayRecord) else None
    return array.data[PREFIX:] if isinstance(array, Array) and array.stype == KIND else None
