"""Compiled programs are kept in the user's cache folder, unless JAX was told where, and unless that cannot be."""

from __future__ import annotations

import os
import stat

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache

from sordino import programs
from sordino.programs import keep_programs

TOLD = "JAX_COMPILATION_CACHE_DIR"
LEAST = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


@pytest.fixture
def nobody_said(monkeypatch, tmp_path):
    """A process whose JAX was told nothing, and a cache folder of its own."""
    before = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
    monkeypatch.delenv(TOLD, raising=False)
    monkeypatch.delenv(LEAST, raising=False)
    monkeypatch.setenv("SORDINO_CACHE", str(tmp_path / "cache"))
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    yield tmp_path / "cache" / "programs"
    jax.config.update("jax_compilation_cache_dir", before[0])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", before[1])
    compilation_cache.reset_cache()


def test_programs_go_to_the_users_cache_folder(nobody_said):
    keep_programs()
    jax.block_until_ready(jax.jit(lambda x: x * 3 - 7)(jnp.arange(5.0)))
    (folder,) = nobody_said.iterdir()
    assert list(folder.iterdir())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_jax_was_told_of_stays(nobody_said, monkeypatch, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
    keep_programs()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "mine")
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setenv(TOLD, str(tmp_path / "mine"))
    keep_programs()
    assert jax.config.jax_compilation_cache_dir is None
    assert not nobody_said.exists()


def test_a_threshold_that_jax_was_told_of_stays(nobody_said, monkeypatch):
    monkeypatch.setenv(LEAST, "5")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 5.0)
    keep_programs()
    assert jax.config.jax_persistent_cache_min_compile_time_secs == 5.0
    assert jax.config.jax_compilation_cache_dir is not None


def test_a_folder_that_cannot_be_made_is_done_without(nobody_said):
    nobody_said.parent.write_text("a file")
    keep_programs()
    assert jax.config.jax_compilation_cache_dir is None


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such mode")
def test_a_folder_that_others_can_write_to_is_not_trusted(nobody_said):
    keep_programs()
    (folder,) = nobody_said.iterdir()
    jax.config.update("jax_compilation_cache_dir", None)
    folder.chmod(0o777)
    keep_programs()
    assert jax.config.jax_compilation_cache_dir is None


def test_the_oldest_programs_go_first(nobody_said, monkeypatch):
    keep_programs()
    (folder,) = nobody_said.iterdir()
    jax.config.update("jax_compilation_cache_dir", None)
    for age, name in enumerate(["new", "old"]):
        (folder / name).write_bytes(b"12345678")
        os.utime(folder / name, (1_000_000 - age, 1_000_000 - age))
    monkeypatch.setattr(programs, "MOST_BYTES", 8)
    keep_programs()
    assert [path.name for path in folder.iterdir()] == ["new"]
