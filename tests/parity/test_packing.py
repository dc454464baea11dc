"""The vectorised packing against one that sets bit after bit, in the layout that `packing` describes."""

import numpy as np
import pytest

from sordino.errors import InvalidInput
from sordino.mechanisms import _packing as packing
from sordino.mechanisms._packing import pack, packed_bytes, unpack

BLOCK = 32
COMPILED = (7, 32)  # for the other widths NumPy runs the same lines: compiling each would take a minute


@pytest.fixture(autouse=True)
def numpy_for_most_widths(monkeypatch):
    def choose(compiled):
        def call(array, t):
            if t in COMPILED:
                return compiled(array, t)
            with monkeypatch.context() as patch:
                patch.setattr(packing, "jnp", np)
                return compiled.__wrapped__(np.asarray(array), t)

        return call

    for name in ("_pack_blocks", "_unpack_blocks"):
        monkeypatch.setattr(packing, name, choose(getattr(packing, name)))


def symbols(t, d):
    """Values of t bits that int32 holds, both ends of the range among them."""
    half = 2 ** min(t - 1, 31)
    values = np.random.default_rng(1000 * t + d).integers(-half, half, d)
    ends = [-half, half - 1, 0, -1][:d]
    values[: len(ends)] = ends
    return values


def slow_pack(values, t):
    """Bit by bit. Whole blocks interleave: word w of every block lies side by side, least significant byte first."""
    values = [int(value) for value in values]
    if t > 32:
        return slow_pack(values, 32) + slow_pack([value >> 32 for value in values], t - 32)
    n = len(values) // BLOCK
    blocks = [values[b : BLOCK * n : n] for b in range(n)]  # row i of block b is value i n + b
    packed = b""
    numbers = [slow_number(block, t) for block in blocks]
    for w in range(t):
        for number in numbers:
            packed += ((number >> (32 * w)) & 0xFFFFFFFF).to_bytes(4, "little")
    rest = values[BLOCK * n :]
    return packed + slow_number(rest, t).to_bytes((t * len(rest) + 7) // 8, "little")


def slow_number(values, t):
    """One large number: value i modulo 2^t in bits [i t, (i + 1) t)."""
    number = 0
    for i, value in enumerate(values):
        for bit in range(t):
            number |= ((value >> bit) & 1) << (i * t + bit)
    return number


@pytest.mark.parametrize("t", range(1, 64))
def test_packing_has_the_documented_layout_and_length_and_a_way_back(t):
    for d in (1, 31, 32, 33, 1000):
        values = symbols(t, d)
        data = pack(values.astype(np.int32), t)
        assert data == slow_pack(values, t)
        assert len(data) == packed_bytes(d, t) == -(-t * d // 8)
        np.testing.assert_array_equal(unpack(data, t, d), values)


@pytest.mark.parametrize("t", [1, 7, 22, 32])
def test_the_ends_of_the_range_and_everything_modulo_two_to_the_t(t):
    half = 2 ** (t - 1)
    np.testing.assert_array_equal(unpack(pack(np.array([-half, half - 1], np.int32), t), t, 2), [-half, half - 1])
    far = np.array([2**31 - 1, -(2**31), 12345, -54321], np.int32)
    np.testing.assert_array_equal(unpack(pack(far, t), t, 4), (far.astype(np.int64) + half) % 2**t - half)


@pytest.mark.parametrize("t", [33, 39, 54, 63])
def test_wide_symbols_can_be_read_up_to_their_own_ends(t):
    values = [-(2 ** (t - 1)), 2 ** (t - 1) - 1, 2**31, -(2**31) - 1, 0]
    np.testing.assert_array_equal(unpack(slow_pack(values, t), t, len(values)), values)


@pytest.mark.parametrize("t", [1, 7, 22])
def test_unused_bits_are_zero(t):
    data = pack(np.full(33, -1, np.int32), t)
    unused = 8 * len(data) - 33 * t
    assert data[-1] == 0xFF >> unused > 0


@pytest.mark.parametrize("t", [1, 7, 32, 33, 54])
@pytest.mark.parametrize("wrong", [-1, 1])
def test_a_message_of_the_wrong_length_is_refused(t, wrong):
    data = pack(symbols(t, 33).astype(np.int32), t)
    data = data[:wrong] if wrong < 0 else data + b"\0"
    with pytest.raises(InvalidInput, match=f"message = '{len(data)} bytes'.*take {packed_bytes(33, t)} bytes"):
        unpack(data, t, 33)


@pytest.mark.parametrize("t", [0, -1, 64])
def test_widths_out_of_range_are_refused(t):
    with pytest.raises(InvalidInput, match="bits"):
        pack(np.zeros(3, np.int32), t)
    with pytest.raises(InvalidInput, match="bits"):
        unpack(b"", t, 0)


@pytest.mark.parametrize("t", [1, 32, 39])
def test_nothing_packs_to_nothing(t):
    assert pack(np.zeros(0, np.int32), t) == b""
    assert unpack(b"", t, 0).shape == (0,)
