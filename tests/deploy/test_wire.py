"""The wire format: what goes in comes out, and no bytes make a decoder crash or hold more than the message."""

from __future__ import annotations

import contextlib
import random
import tracemalloc

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import given, settings
from hypothesis import strategies as st

from sordino.deploy.seam import Reason
from sordino.deploy.wire import (
    NO_STUDY,
    OVERHEAD,
    Coding,
    Frame,
    Kind,
    Shape,
    Update,
    WireError,
    pack_arrays,
    seal,
    unpack_arrays,
    unseal,
)
from sordino.privacy.signing import SigningKey

KEY = SigningKey(ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
OTHER = SigningKey(ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33))))
CODINGS = [Coding(7), Coding(9, 5, -16, is_float=False), Coding(6, 32, -(2**31), is_float=False)]
SHAPES = [Shape((3, 2), np.dtype("f4")), Shape((), np.dtype("i4")), Shape((2,), np.dtype("u4"))]
MOST = 4096


def _values(coding: Coding, seed: int = 0) -> np.ndarray:
    draws = np.random.default_rng(seed)
    if coding.is_float:
        return draws.normal(size=coding.coordinates).astype(np.float32)
    return draws.integers(coding.low, coding.low + (1 << coding.bits), coding.coordinates)


def _update(coding: Coding) -> bytes:
    body = Update(b"h" * 32, _values(coding), side=0.5).pack(coding)
    return seal(Frame(Kind.UPDATE, b"s" * 32, 3, "node0", body), KEY)


def _round() -> bytes:
    arrays = [np.ones((3, 2), np.float32), np.int32(4), np.arange(2, dtype=np.uint32)]
    return seal(Frame(Kind.ROUND, b"s" * 32, 3, "server", pack_arrays(arrays)), KEY)


def _decode(data: bytes) -> None:
    """All decoders on these bytes; only WireError may leave them."""
    try:
        frame = unseal(data, KEY.public, MOST)
    except WireError:
        return
    _decode_body(frame.body)


def _decode_body(body: bytes) -> None:
    for coding in CODINGS:
        with contextlib.suppress(WireError):
            Update.unpack(body, coding, has_level=False, has_side=True)
    with contextlib.suppress(WireError):
        unpack_arrays(body, SHAPES)


@pytest.mark.parametrize("coding", CODINGS, ids=str)
def test_message_comes_back(coding: Coding) -> None:
    frame = unseal(_update(coding), KEY.public, MOST)
    assert (frame.kind, frame.round, frame.sender, frame.study) == (Kind.UPDATE, 3, "node0", b"s" * 32)
    update = Update.unpack(frame.body, coding, has_level=False, has_side=True)
    assert np.array_equal(update.values, _values(coding))
    assert (update.ledger_hash, update.level, update.side) == (b"h" * 32, None, 0.5)


@given(st.integers(1, 31), st.integers(-1000, 1000), st.data())
@settings(max_examples=200, deadline=None)
def test_packed_integers_come_back(bits: int, low: int, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(low, low + 2**bits - 1), max_size=40))
    coding = Coding(len(numbers), bits, low, is_float=False)
    packed = coding.pack(np.array(numbers, np.int64))
    assert len(packed) == -(-len(numbers) * bits // 8)
    assert coding.unpack(packed).tolist() == numbers


def test_arrays_come_back() -> None:
    first, second, third = unpack_arrays(unseal(_round(), KEY.public, MOST).body, SHAPES)
    assert np.array_equal(first, np.ones((3, 2)))
    assert second == 4
    assert third.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:-1], Reason.MALFORMED),
        (lambda data: data[:20], Reason.MALFORMED),
        (lambda data: data + b"x", Reason.MALFORMED),
        (lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:], Reason.SIGNATURE),
        (lambda data: data[:4] + b"\x02" + data[5:], Reason.MALFORMED),  # another version
        (lambda data: data[:44] + b"\xff\xff\xff\x7f" + data[48:], Reason.TOO_LARGE),
        (lambda data: data + bytes(MOST + OVERHEAD), Reason.TOO_LARGE),
        (lambda data: seal(Frame(Kind.UPDATE, NO_STUDY, 0, "node0", b""), OTHER), Reason.SIGNATURE),
    ],
)
def test_changed_bytes_are_refused(change, reason) -> None:
    with pytest.raises(WireError) as refusal:
        unseal(change(_update(CODINGS[0])), KEY.public, MOST)
    assert refusal.value.reason is reason


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(value: float) -> None:
    body = Update(bytes(32), np.full(7, value, np.float32)).pack(CODINGS[0])
    with pytest.raises(WireError) as refusal:
        Update.unpack(body, CODINGS[0], has_level=False, has_side=False)
    assert refusal.value.reason is Reason.NOT_FINITE


def test_coordinates_outside_the_alphabet_are_refused() -> None:
    with pytest.raises(WireError) as refusal:
        CODINGS[1].pack(np.full(9, 16))
    assert refusal.value.reason is Reason.RANGE


@given(st.binary(max_size=600))
@settings(max_examples=2_000, deadline=None)
def test_random_bytes(data: bytes) -> None:
    _decode(data)
    _decode_body(data)


@pytest.mark.parametrize("count", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_mutations_of_a_corpus(count: int) -> None:
    """Flipped, cut, doubled, spliced and overwritten messages; bodies too, so that signatures hide no decoder."""
    draws, corpus = random.Random(7), [_round(), *map(_update, CODINGS)]
    bodies = [unseal(each, KEY.public, MOST).body for each in corpus]
    tracemalloc.start()
    for number in range(count):
        sources = bodies if number % 2 else corpus
        data = bytearray(draws.choice(sources))
        for _ in range(draws.randint(1, 4)):
            at = draws.randrange(len(data) + 1)
            match draws.randrange(5):
                case 0 if at < len(data):
                    data[at] ^= 1 << draws.randrange(8)
                case 1:
                    del data[at:]
                case 2:
                    data[at:at] = draws.randbytes(draws.randint(1, 9))
                case 3:
                    data[at:] = draws.choice(sources)[at:]
                case 4:
                    data[at : at + 4] = draws.choice([b"\xff" * 4, bytes(4), b"\x00\x00\x00\x80"])
        (_decode_body if number % 2 else _decode)(bytes(data))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**21
