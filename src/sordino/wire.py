"""How an array travels: the bytes that leave a client, and the array that the server reads from them."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sordino.errors import InvalidInput


class Wire(Protocol):
    """A fixed format for arrays of d numbers; a message of another size is refused."""

    def size(self, d: int) -> int:
        """Bytes of d numbers."""

    def encode(self, values: NDArray[np.generic]) -> bytes:
        """The numbers as bytes."""

    def decode(self, data: bytes, d: int) -> NDArray[np.generic]:
        """The d numbers in `data`."""


class Float32:
    """Little-endian float32, four bytes a number."""

    def size(self, d: int) -> int:
        return 4 * d

    def encode(self, values: NDArray[np.generic]) -> bytes:
        return np.asarray(values).astype("<f4", copy=False).tobytes()

    def decode(self, data: bytes, d: int) -> NDArray[np.float32]:
        require_size(data, self.size(d), d)
        return np.frombuffer(data, "<f4").astype(np.float32)


def require_size(data: bytes, size: int, d: int) -> None:
    """Refuse a message that cannot hold d numbers of this format."""
    if len(data) != size:
        raise InvalidInput("message", f"{len(data)} bytes", f"{d} numbers of this format take {size} bytes")


FLOAT32 = Float32()
