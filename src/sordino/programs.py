"""Compiled programs, kept between processes: the second run of a program does not wait for the compiler.

They lie in the user's cache folder, $SORDINO_CACHE/programs or ~/.cache/sordino/programs, by the instructions that the
processor has. A folder or a setting of JAX's own counts first: JAX_COMPILATION_CACHE_DIR names another folder, and
JAX_ENABLE_COMPILATION_CACHE=false keeps nothing. Whoever can write there decides what this process runs, so that the
folder is the user's alone; where it cannot be, programs are compiled each time.
"""

from __future__ import annotations

import hashlib
import os
import platform
import stat
import sys
from pathlib import Path

from sordino.files import cache_folder

MOST_BYTES = 2**30  # of programs; the oldest go first
PROCESSOR = Path("/proc/cpuinfo")


def keep_programs() -> None:
    """Let JAX keep what it compiles, unless somebody has told it where. JAX need not be imported yet."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ or _set_in_jax("jax_compilation_cache_dir"):
        return
    folder = cache_folder() / "programs" / _processor()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _mine_alone(folder):
            return
        _forget_oldest(folder)
    except OSError:  # a cache that cannot be had costs seconds, and nothing else
        return
    # By itself JAX keeps what took a second; a run has dozens of small programs.
    _set("jax_compilation_cache_dir", str(folder))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        _set("jax_persistent_cache_min_compile_time_secs", 0.0)


def _set_in_jax(name: str) -> bool:
    if "jax" not in sys.modules:
        return False
    import jax

    return jax.config.values[name] is not None


def _set(name: str, value: str | float) -> None:
    if "jax" not in sys.modules:
        os.environ[name.upper()] = str(value)
        return
    import jax

    jax.config.update(name, value)


def _processor() -> str:
    """A short name for what the processor can do: a folder may be shared by machines that differ."""
    lines = PROCESSOR.read_text(errors="replace").splitlines() if PROCESSOR.is_file() else []
    can = sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    said = "\n".join([platform.machine(), platform.processor(), *can])
    return hashlib.sha256(said.encode()).hexdigest()[:12]


def _mine_alone(folder: Path) -> bool:
    """Whether nobody else can write to a folder, and this process can."""
    if os.name == "nt":
        return os.access(folder, os.W_OK)
    found = folder.stat()
    return (
        found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and os.access(folder, os.W_OK)
    )


def _forget_oldest(folder: Path) -> None:
    """Delete what was written first, if there is too much."""
    files = [(entry.stat().st_mtime, entry.stat().st_size, Path(entry.path)) for entry in os.scandir(folder)]
    left = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if left <= MOST_BYTES:
            return
        path.unlink(missing_ok=True)
        left -= size
