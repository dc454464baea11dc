"""Training and test records, split by a public seed.

The records that a client holds out follow from the seed, its own name and how many records it has, and from nothing
that another client holds: one client more or fewer changes nothing for the others.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from sordino.errors import require


def require_share(share: float, seed: int) -> None:
    """Check a share of test records, and its seed."""
    number = isinstance(share, int | float) and not isinstance(share, bool) and 0 < share < 1
    require(number, "test_share", share, "must be a share of the records, above 0 and below 1, as 0.2")
    whole = isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0
    require(whole, "split_seed", seed, "must be a whole number, 0 or more")


def held_out(owners: NDArray[np.str_], share: float, seed: int = 0) -> NDArray[np.bool_]:
    """Mark the test records: of each owner's the nearest whole number to its share, but never all of them."""
    require_share(share, seed)
    test = np.zeros(len(owners), np.bool_)
    names, which = np.unique(owners, return_inverse=True)
    order = np.argsort(which, kind="stable")
    for name, records in zip(names, np.split(order, np.cumsum(np.bincount(which))[:-1]), strict=True):
        number = min(round(share * len(records)), len(records) - 1)
        digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
        rng = np.random.default_rng(int.from_bytes(digest, "big"))
        test[rng.permutation(records)[:number]] = True
    require(bool(test.any()), "test_share", share, "leaves no client a test record: give a larger share")
    return test
