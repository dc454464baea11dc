"""Tiny Shakespeare: prediction of the next character, with the speaking roles as clients."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from sordino.data._files import Source, obtain, published
from sordino.data._records import Dataset
from sordino.errors import require

_FILE = {"input.txt": "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"}
_ADDRESS = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/"
TINY_SHAKESPEARE = Source("tiny-shakespeare", (published(_FILE, _ADDRESS),), other_folder="tinyshakespeare")
VOCABULARY = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_WINDOW = 80
_FEWEST_CHARACTERS = 1000
_TEST_SHARE = 0.1


def load_tiny_shakespeare(*, stride: int = 10) -> Dataset:
    """Windows of 80 characters, x int32 [N, 80], and the character that follows, y int32 [N].

    A client is a role with at least 1,000 characters; roles with the same name in different plays are one client. The
    last tenth of its text is for testing, and no window crosses that border. A window begins every `stride` characters;
    1 gives windows as LEAF has them, ten times as many as the default. This is not LEAF's data set.
    """
    require(stride >= 1, "stride", stride, "a window begins every `stride` characters: use 1 or more")
    (path,) = obtain(TINY_SHAKESPEARE)
    spoken = _roles(path.read_text(encoding="ascii"))
    code_of = np.zeros(128, np.int32)
    code_of[np.frombuffer(VOCABULARY.encode("ascii"), np.uint8)] = np.arange(len(VOCABULARY))
    train, test = [], []
    for text in spoken.values():
        codes = code_of[np.frombuffer(text.encode("ascii"), np.uint8)]
        border = round(len(codes) * (1 - _TEST_SHARE))
        train.append(_windows(codes[:border], stride))
        test.append(_windows(codes[border:], stride))
    records, test_records = np.concatenate(train), np.concatenate(test)
    return Dataset(
        "tiny-shakespeare",
        records[:, :-1],
        records[:, -1],
        test_records[:, :-1],
        test_records[:, -1],
        classes=len(VOCABULARY),
        client=np.repeat(np.arange(len(spoken), dtype=np.int32), [len(windows) for windows in train]),
        client_names=tuple(spoken),
        tests_clients=True,
        overlapping=True,
    )


def _roles(text: str) -> dict[str, str]:
    """The text of each role that has enough of it, by name."""
    speeches = defaultdict(list)
    for paragraph in text.split("\n\n"):
        role, colon, speech = paragraph.partition(":\n")
        if colon:  # a few paragraphs are a name without a speech
            speeches[role].append(speech)
    spoken = {role: "\n".join(parts) for role, parts in sorted(speeches.items())}
    return {role: said for role, said in spoken.items() if len(said) >= _FEWEST_CHARACTERS}


def _windows(codes: NDArray[np.int32], stride: int) -> NDArray[np.int32]:
    """Rows of 80 characters and the character after them."""
    return sliding_window_view(codes, _WINDOW + 1)[::stride]
