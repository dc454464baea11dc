"""What decides how a run ends, as digests: a run goes on only where all of it is the same.

A resumed run repeats rounds with the same noise. On other records, with another loss, or with sums added up in another
order, two releases with the same noise would differ by what the noise should hide. The digests see the configuration,
the version, the records, the first model, the seed, chunks and devices, and the compiled form of the loss with its
constants. They do not see everything that Python code can do: resume with the code that began the run.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

import sordino
from sordino.keys import key_of
from sordino.models.model import Batch
from sordino.runs.metrics import environment
from sordino.runs.point import Point
from sordino.tasks import Task
from sordino.types import PyTree


def digest_of(*parts: PyTree) -> bytes:
    """The digest of texts, and of the arrays in trees."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str | bytes):
            digest.update(part.encode() if isinstance(part, str) else part)
        else:
            for leaf in jax.tree.leaves(part):
                if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                    leaf = jax.random.key_data(leaf)
                digest.update(np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data)
    return digest.digest()


def fingerprint(point: Point, task: Task, transcript: bool) -> str:
    """The part that others may see: configuration, version and generator, but neither seed nor records."""
    shape = (task.name, task.model.name, task.d, task.clients)
    settled = without_addresses(repr((point.plan, shape, sordino.__version__, transcript)))
    return digest_of(settled, _drawn()).hex()


@jax.jit
def _drawn() -> tuple[jax.Array, jax.Array]:
    """Some words and normals: other settings or versions of JAX would draw other noise."""
    key_bits, key_normal = jax.random.split(jax.random.fold_in(key_of(0), 1))
    return jax.random.bits(key_bits, (8,)), jax.random.normal(key_normal, (8,))


def identity_of_task(task: Task) -> bytes:
    """Records, test set, loss, changes to images, and what computes them."""
    key, x, y = key_of(0), task.first_record.x, task.first_record.y
    programs = [jax.make_jaxpr(jax.grad(task.loss))(task.initial(key), Batch(x, y, jnp.ones(1)))]
    if task.augment is not None:
        programs.append(jax.make_jaxpr(task.augment)(key, x))
    digests = [identity_of_program(program, callbacks=True) for program in programs]
    made = environment()
    machine = repr([made[name] for name in ("sordino", "jax", "device", "devices")])
    return digest_of(task.content, task.test, *digests, machine)


def identity_of_program(program: ClosedJaxpr, *, callbacks: bool = False) -> bytes:
    """A traced program: its text and the constants that it holds, as the numbers of an optimiser object."""
    text = without_addresses(program.pretty_print(use_color=False))
    return digest_of(text, list(_constants(program.jaxpr, program.consts, callbacks)))


def constants_of(program: ClosedJaxpr) -> Iterator[Any]:
    """The arrays that a traced program holds, and that are none of its arguments."""
    return _constants(program.jaxpr, program.consts, callbacks=False)


def without_addresses(text: str) -> str:
    """A text without the places of functions in memory."""
    return re.sub("0x[0-9a-f]+", "", text)


def _constants(program: Jaxpr, own: Sequence[Any], callbacks: bool) -> Iterator[Any]:
    """The arrays that a program holds, and those of the programs inside it, as of a loss that is compiled already."""
    yield from own
    for step in program.eqns:
        if callbacks and step.primitive.name in ("pure_callback", "io_callback"):
            yield secrets.token_bytes(16)  # Python's answers are not known: such a run is never the same again
        yield from (value.val for value in step.invars if isinstance(value, Literal))
        for inside in jax.tree.leaves(step.params, is_leaf=lambda value: isinstance(value, ClosedJaxpr | Jaxpr)):
            if isinstance(inside, ClosedJaxpr):
                yield from _constants(inside.jaxpr, inside.consts, callbacks)
            elif isinstance(inside, Jaxpr):
                yield from _constants(inside, (), callbacks)
