"""The debug engine: the same turns in plain Python, one client after another, naming round, client and stage."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from sordino.errors import SordinoError
from sordino.keys import require_generator
from sordino.planning.resolved import Rules
from sordino.rounds import engine
from sordino.rounds.engine import ProgramSpec, RoundState, Shared
from sordino.rounds.turns import ClientInfo
from sordino.tasks import Records
from sordino.types import Key, PyTree


def debug_rounds(
    rules: Rules, records: Records, state: RoundState, key: Key, first: int, *, spec: ProgramSpec, rounds: int
) -> RoundState:
    """What `engine.run_rounds` computes, slowly; a failure or a non-finite update names round, client and stage."""
    require_generator(key)
    with jax.disable_jit():  # a loss may print, compare and stop in a debugger
        for number in range(first, first + rounds):
            state = _debug_round(rules, records, state, key, number, spec)
    return state


def _debug_round(
    rules: Rules, records: Records, state: RoundState, key: Key, number: int, spec: ProgramSpec
) -> RoundState:
    k = jnp.int32(number)
    client_ids, present = spec.cohort.draw(engine.round_key(key, k, engine.COHORT), spec.population)
    received = _stage(number, "broadcast", None, rules.method.broadcast, state.server)
    run_client = functools.partial(engine.run_client, shared=Shared(rules, records, received, key, k), spec=spec)
    total, states = None, state.clients
    for client in (int(client) for client, here in zip(client_ids, present, strict=True) if here):
        own = _at(states, client)
        sums, new, _ = _stage(number, "client", client, run_client, jnp.int32(client), jnp.bool_(True), own)
        _require_sound(sums[1], number, client)
        total = sums if total is None else jax.tree.map(jnp.add, total, sums)
        states = _with(states, client, new)
    if total is None:  # nobody takes part: the sums of one absent client
        total = _stage(number, "client", 0, run_client, jnp.int32(0), jnp.bool_(False), _at(states, 0))[0]
    serve = functools.partial(engine.serve, key=key, k=k, spec=spec)
    server, _ = _stage(number, "server", None, serve, rules, state.server, total)
    return RoundState(server, states)


def _require_sound(diagnostics: ClientInfo, round: int, client: int) -> None:
    """A finite update, and a message within its limit, on which the certificate rests."""
    where = f"round {round}, client {client}, stage client"
    if int(diagnostics.bounding.dropped):
        raise SordinoError(f"{where}: the update is not finite; lower the learning rate or check the client's data")
    if int(diagnostics.exceeds_limit):
        raise SordinoError(f"{where}: the message is longer than its limit; bound it last, before it is returned")


def _at(states: PyTree, client: int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[client], states)


def _with(states: PyTree, client: int, new: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf, value: leaf.at[client].set(value), states, new)


def _stage(round: int, name: str, client: int | None, work: Callable[..., PyTree], *arguments: PyTree) -> PyTree:
    """Do the work; say where it failed if it does."""
    try:
        return work(*arguments)
    except Exception as error:
        sender = "" if client is None else f", client {client}"
        raise SordinoError(f"round {round}{sender}, stage {name}: {type(error).__name__}: {error}") from error
