"""Arrays that a loss, an augmentation or a method holds itself, and that no argument gives it.

A certificate assumes that a client's message depends on its own records. A function that closes over an array may have
taken it from other clients' records, which nobody can see from here: the certificate names the function and the size.
Methods of Sordino itself hold no data, and are not traced.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr

from sordino.keys import key_of
from sordino.models import Batch
from sordino.models.model import shapes_of
from sordino.planning import ResolvedPlan
from sordino.privacy import wording
from sordino.rounds.engine import ProgramSpec, Shared, data_of
from sordino.runs.blocks import structure_of
from sordino.runs.identity import constants_of, digest_of
from sordino.runs.point import Point
from sordino.runs.setup import initial_state, spec_of
from sordino.tasks import Task
from sordino.types import BoundInfo, Message, PyTree

FEW = 32  # numbers: settings, as the means of three colours, are fewer


def with_warnings(points: Sequence[Point], task: Task) -> list[Point]:
    """The points, with a warning for every function of a private one that holds an array of more than a few numbers.

    Loss and augmentation are traced once, and a method once for all points that share a program.
    """
    if not any(point.plan.private for point in points):
        return list(points)
    of_task = tuple(_held_by_task(task))
    known = {digest for held in of_task for digest in held.arrays}
    of_method: dict[Hashable, tuple[Held, ...]] = {}
    warned = []
    for point in points:
        held: tuple[Held, ...] = ()
        if point.plan.private:
            program = structure_of(point.answer)
            if program not in of_method:
                of_method[program] = tuple(_held_by_method(point, task, known))
            held = (*of_task, *of_method[program])
        warnings = tuple(wording.holds_constants(each.kind, each.name, each.arrays.values()) for each in held)
        warned.append(replace(point, about_code=warnings))
    return warned


class Held(NamedTuple):
    """The arrays that a function holds: their sizes by their digests."""

    kind: str
    name: str
    arrays: dict[bytes, int]


def _held_by_task(task: Task) -> Iterator[Held]:
    w, x, y = jax.ShapeDtypeStruct((task.d,), jnp.float32), task.first_record.x, task.first_record.y
    loss = _arrays(jax.make_jaxpr(task.loss)(w, Batch(x, y, jnp.ones(1))))
    if loss:
        yield Held("loss", _name(shapes_of(task.loss)[1]), loss)
    augmentation = {} if task.augment is None else _arrays(jax.make_jaxpr(task.augment)(key_of(0), x))
    if augmentation and task.augment is not None:
        yield Held("augmentation", _name(task.augment), augmentation)


def _held_by_method(point: Point, task: Task, known: Collection[bytes]) -> Iterator[Held]:
    """What a method of somebody's own holds beside the loss and the augmentation that it calls."""
    method = point.answer.method
    if type(method).__module__.partition(".")[0] == "sordino":
        return
    held = _arrays(_traced_client(point, task), jax.tree.leaves(method))
    own = {digest: size for digest, size in held.items() if digest not in known}
    if own:
        yield Held("method", type(method).__qualname__, own)


def _arrays(program: ClosedJaxpr, leaves: list[PyTree] | None = None) -> dict[bytes, int]:
    """The sizes of the arrays of a program, each of which it may use in several places, by their digests."""
    found = [*constants_of(program), *(leaves or ())]
    return {digest_of(array): jnp.size(array) for array in found if jnp.size(array) > FEW}


def _traced_client(point: Point, task: Task) -> ClosedJaxpr:
    """What the method runs on a client, whose records and numbers are arguments."""
    resolved: ResolvedPlan = point.answer
    spec = spec_of(point.plan, resolved, task, chunk=1)
    state = jax.eval_shape(lambda: initial_state(resolved.method, task, key_of(0)))
    received = jax.eval_shape(resolved.method.broadcast, state.server)
    own = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), state.clients)
    shared = Shared(resolved.rules, task.first_record, received, key_of(0), jnp.int32(0))
    return jax.make_jaxpr(functools.partial(_client, spec=spec))(jnp.int32(0), own, shared)


def _client(
    client: jax.Array, state: PyTree, shared: Shared, *, spec: ProgramSpec
) -> tuple[Message, PyTree, BoundInfo]:
    return shared.rules.method.client(shared.key, shared.received, state, data_of(client, shared, spec))


def _name(function: Callable[..., object]) -> str:
    """The name that its author gave a function, whatever was wrapped around it."""
    while isinstance(function, functools.partial):
        function = function.func
    inner = inspect.unwrap(function)
    if inner is not function and isinstance(inner, functools.partial):
        return _name(inner)
    return inner.__qualname__ if inspect.isroutine(inner) else type(inner).__qualname__
