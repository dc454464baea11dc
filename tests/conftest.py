"""Where the tests find real data ($SORDINO_DATA, or a folder shared/data beside the checkout) and compiled programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BESIDE = ROOT.parent / "shared" / "data"

if "SORDINO_DATA" not in os.environ and BESIDE.is_dir():
    os.environ["SORDINO_DATA"] = str(BESIDE)

# Two thirds of the suite's time is compiling. What one worker, or one command that a test starts, has compiled, the
# others need not; and a second run needs a third of the time.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# JAX does not write an entry in one step: who reads one that another process is writing, or was killed while writing,
# warns and compiles. Commands that tests start must not say so where their words are compared (pyproject.toml: nor we).
os.environ.setdefault("PYTHONWARNINGS", "ignore:Error reading persistent compilation cache entry")
# Most programs run once: less time in LLVM saves a quarter of the whole. XLA's own passes stay as they are.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")
# Two workers share the cores of this machine already; tests of several devices ask for them.
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "1")


MAPS = Path("/proc/self/maps")
MOST_MAPS = 30_000  # Linux allows 65,530 a process, and each compiled program takes some: beyond that XLA crashes


@pytest.fixture(scope="module", autouse=True)
def few_programs() -> Iterator[None]:
    """Forget compiled programs before a worker holds too many of them."""
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        import jax

        jax.clear_caches()


@pytest.fixture(scope="session")
def needs() -> Callable[[str], None]:
    """`needs("adult")` skips a test where that data set is not on this machine."""

    def skip_without(name: str) -> None:
        from sordino.data import where

        if where(name) is None:
            pytest.skip(f"{name} is not here")

    return skip_without
