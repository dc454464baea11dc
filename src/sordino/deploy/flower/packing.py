"""Bytes as the content of a Flower message: one array of bytes, which Flower sends in pieces."""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, RecordDict

__all__ = ["pack", "unpack"]

RECORD, KEY, KIND = "sordino", "bytes", "sordino.bytes"


def pack(data: bytes) -> RecordDict:
    """Wrap bytes."""
    return RecordDict({RECORD: ArrayRecord({KEY: Array("uint8", (len(data),), KIND, data)})})


def unpack(content: RecordDict) -> bytes | None:
    """The bytes of a content, or None where it has another form. Nothing of it is decoded."""
    record = content.get(RECORD)
    array = record.get(KEY) if isinstance(record, ArrayRecord) else None
    return array.data if isinstance(array, Array) and array.stype == KIND else None
