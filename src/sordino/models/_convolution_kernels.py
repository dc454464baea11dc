"""Convolutions with few channels on a GPU, as kernels that read the images where they lie.

The patches of `conv2d` are kh kw times as large as the images. Where a kernel is small, a GPU spends its time writing
and reading them. Here each program of the GPU takes one row of one client's images, with the records of a batch
innermost, so that a shift along the width is a shift of N places in memory:

    out[o, h, w]  = b[o] + sum_{i,j,c} k[i, j, c, o] x[c, h + i, w + j]       one program a row and a stretch of it
    dk[i, j, c, o] = sum_{h,w} d[o, h, w] x[c, h + i, w + j]                  one program for each i and c
    dx             = the first formula for d with zeros around it, and the kernel turned by half a turn

Everything is float32, also where JAX's products are not. Written in Pallas and compiled by Triton; on a CPU the same
kernels run step by step, for tests.
"""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

Array: TypeAlias = jax.Array

MOST = 1024  # products for each place of the output: kh kw C O. All of them are written out in the program
BLOCK = 256  # neighbouring numbers that a program handles at a time
WARPS = 2


def reads_in_place(x: Array, kernel: Array, stride: int) -> bool:
    """Whether these kernels are meant for this convolution, here."""
    small = kernel.size <= MOST and x.dtype == kernel.dtype == jnp.float32
    return stride == 1 and small and jax.default_backend() == "gpu"


@jax.custom_vjp
def convolve(x: Array, kernel: Array, bias: Array) -> Array:
    """x [C, H, W, N], kernel [kh, kw, C, O], bias [O] -> [O, H', W', N], without padding."""
    _, height, width, n = x.shape
    kh, kw, _, outputs = kernel.shape
    rows, columns = height - kh + 1, width - kw + 1
    shape = (outputs, rows, columns * n)
    block = _block(columns * n)
    out = _call(functools.partial(_row, n=n, block=block), shape, (rows, -(-columns * n // block)))(
        x.reshape(*x.shape[:2], width * n), kernel, bias
    )
    return out.reshape(outputs, rows, columns, n)


def _forward(x: Array, kernel: Array, bias: Array) -> tuple[Array, tuple[Array, Array]]:
    return convolve(x, kernel, bias), (x, kernel)


def _backward(saved: tuple[Array, Array], d: Array) -> tuple[Array, Array, Array]:
    x, kernel = saved
    channels, height, width, n = x.shape
    kh, kw, _, outputs = kernel.shape
    flat = d.reshape(*d.shape[:2], -1)
    gradient = _call(
        functools.partial(_gradient, n=n, block=_block(flat.shape[2])), (kh, channels, kw, outputs), (kh, channels)
    )(x.reshape(channels, height, width * n), flat)
    around = jnp.pad(d, ((0, 0), (kh - 1, kh - 1), (kw - 1, kw - 1), (0, 0)))
    turned = kernel[::-1, ::-1].swapaxes(2, 3)
    return convolve(around, turned, jnp.zeros(channels)), gradient.swapaxes(1, 2), flat.sum((1, 2))


convolve.defvjp(_forward, _backward)


def _row(x: Any, kernel: Any, bias: Any, out: Any, *, n: int, block: int) -> None:
    """A stretch of one row of the output; the arguments are references into the GPU's memory."""
    from jax.experimental import pallas as pl

    kh, kw, channels, outputs = kernel.shape
    row, at = pl.program_id(0), _start(pl.program_id(1), block, out.shape[2])
    total = [jnp.full(block, bias[o]) for o in range(outputs)]
    for c in range(channels):
        for i in range(kh):
            for j in range(kw):
                shifted = x[c, row + i, pl.ds(at + j * n, block)]
                total = [total[o] + kernel[i, j, c, o] * shifted for o in range(outputs)]
    for o in range(outputs):
        out[o, row, pl.ds(at, block)] = total[o]


def _gradient(x: Any, d: Any, out: Any, *, n: int, block: int) -> None:
    """The gradients of the weights of one row and one channel of the kernel."""
    from jax.experimental import pallas as pl

    outputs, rows, length = d.shape
    kw = out.shape[2]
    i, c = pl.program_id(0), pl.program_id(1)
    blocks = -(-length // block)

    def step(number: Array, so_far: tuple[Array, ...]) -> tuple[Array, ...]:
        row, stretch = jax.lax.div(number, jnp.int32(blocks)), jax.lax.rem(number, jnp.int32(blocks))
        at = _start(stretch, block, length)
        new = at + jnp.arange(block) >= stretch * block  # the last stretch begins within the one before it
        here = [jnp.where(new, d[o, row, pl.ds(at, block)], 0.0) for o in range(outputs)]
        shifted = [x[c, row + i, pl.ds(at + j * n, block)] for j in range(kw)]
        terms = [shifted[j] * here[o] for j in range(kw) for o in range(outputs)]
        return tuple(total + term for total, term in zip(so_far, terms, strict=True))

    zero = tuple(jnp.zeros(block, jnp.float32) for _ in range(kw * outputs))
    totals = jax.lax.fori_loop(jnp.int32(0), jnp.int32(rows * blocks), step, zero)
    for j in range(kw):
        for o in range(outputs):
            out[i, c, j, o] = jnp.sum(totals[j * outputs + o])


def _block(length: int) -> int:
    """A power of two, as Triton needs it, and no longer than a row."""
    return min(BLOCK, 1 << (length.bit_length() - 1))


def _start(stretch: Array, block: int, length: int) -> Array:
    """Where a stretch begins: the last one ends with the row."""
    return jnp.minimum(stretch * block, length - block)


def _call(kernel: Any, shape: tuple[int, ...], grid: tuple[int, ...]) -> Any:
    """A function of arrays from a function of references."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    interpret = jax.default_backend() == "cpu"
    parameters = None if interpret else triton.CompilerParams(num_warps=WARPS, num_stages=1)
    out = jax.ShapeDtypeStruct(shape, jnp.float32)
    return pl.pallas_call(kernel, out_shape=out, grid=grid, interpret=interpret, compiler_params=parameters)
