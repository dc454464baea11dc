"""Whether this process computes as the proofs of sums and norms assume.

Some compiler flags (`--xla_cpu_enable_fast_math=true` in XLA_FLAGS) treat floating-point numbers as real numbers. Then
(a + b) - a - b is always zero, a `RunningSum` loses its correction, and one client can move it by several times the
bound that the noise was made for. So before private rounds run, compiled programs check that

    two-sum         (a + b) + lost is a + b, exactly
    running sums    one large term does not swallow thousands of small ones
    norms           r^2, summed by rows, lies within the error of its proof
    bounders        an update that holds NaN or infinity becomes zero

on one device of each kind in use. Inputs are arguments: constants would be computed before the program is compiled.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sordino.bounding import clip
from sordino.bounding._norm import additions, sum_by_rows
from sordino.errors import SordinoError
from sordino.summation import RunningSum, lost

Numbers = NDArray[np.float32]


@functools.cache  # once a process: flags are read when JAX starts
def require_sound_arithmetic() -> None:
    """Refuse to run where sums and norms are not computed as their proofs assume."""
    for device in {device.device_kind: device for device in jax.local_devices()}.values():
        with jax.default_device(device):
            wrong = [name for name, sound in CHECKS.items() if not sound()]
        if wrong:
            raise SordinoError(
                f"XLA_FLAGS: compiled programs on {device.device_kind} fail the checks of {', '.join(wrong)}, so one "
                "client could move a sum by more than its bound and no guarantee would hold: remove "
                "--xla_cpu_enable_fast_math, and other flags that relax floating-point arithmetic"
            )


def _two_sum_is_exact() -> bool:
    draw = np.random.default_rng(0)
    numbers = draw.normal(size=(2, 1000)) * 2.0 ** draw.integers(-9, 10, (2, 1000))
    a, b = numbers.astype(np.float32)
    total, rest = (np.float64(part) for part in jax.jit(_two_sum)(a, b))
    return bool(np.all(total + rest == np.float64(a) + np.float64(b)))


def _two_sum(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    total = a + b
    return total, lost(a, b, total)


def _running_sums_keep_small_terms() -> bool:
    """As in the engine: chunks are summed pairwise, one after another."""
    terms = np.full((8, 1000, 3), 2.0**-30, np.float32)
    terms[0, 0], terms[3, 7] = 1.0, (-2.0, 5.0, 2.0**-12)
    value, exact = np.asarray(jax.jit(_sum_of_chunks)(terms)), terms.sum(axis=(0, 1), dtype=np.float64)
    return bool(np.all(np.abs(value - exact) <= np.spacing(np.float32(np.abs(exact)))))


def _sum_of_chunks(chunks: jax.Array) -> jax.Array:
    def add(so_far: RunningSum, chunk: jax.Array) -> tuple[RunningSum, None]:
        return so_far.plus(RunningSum.of_each(chunk)), None

    total: jax.Array = jax.lax.scan(add, RunningSum.of(jnp.zeros_like(chunks[0, 0])), chunks)[0].value()
    return total


def _norms_stay_within_their_error() -> bool:
    draw = np.random.default_rng(0)
    return all(_within_error(draw.random(d, dtype=np.float32) ** 2) for d in (50, 5000))


def _within_error(squares: Numbers) -> bool:
    exact = float(squares.sum(dtype=np.float64))
    allowed = additions(squares.size) * float(np.finfo(np.float32).eps) / 2
    return abs(float(jax.jit(sum_by_rows)(squares)) - exact) <= allowed * exact


def _strange_updates_are_dropped() -> bool:
    vectors = np.full((3, 1000), 0.5, np.float32)
    vectors[:, 700] = np.nan, np.inf, -np.inf
    bounded, info = jax.jit(jax.vmap(clip(1.0)))(vectors)
    return bool(np.all(np.asarray(info.dropped)) and np.all(np.asarray(bounded) == 0))


CHECKS = {
    "two-sums": _two_sum_is_exact,
    "running sums": _running_sums_keep_small_terms,
    "sums by rows": _norms_stay_within_their_error,
    "updates with NaN": _strange_updates_are_dropped,
}
