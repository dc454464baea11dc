"""The debug engine: the same functions in plain Python, one client after another, naming who failed and where."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from sordino.errors import SordinoError
from sordino.simulation import engine
from sordino.simulation.engine import Carry, Records, Setting, Sums
from sordino.types import Key

__all__ = ["debug_rounds"]


def debug_rounds(
    algorithm: Any,
    mechanism: Any,
    records: Records,
    carry: Carry,
    key: Key,
    first: int,
    *,
    setting: Setting,
    rounds: int,
) -> Carry:
    """What `engine.run_rounds` computes, slowly; a failure or a non-finite update names round, client and stage."""
    with jax.disable_jit():  # a loss may print, compare and stop in a debugger
        for number in range(first, first + rounds):
            carry = _debug_round(algorithm, mechanism, records, carry, key, number, setting)
    return carry


def _debug_round(
    algorithm: Any, mechanism: Any, records: Records, carry: Carry, key: Key, number: int, setting: Setting
) -> Carry:
    k = jnp.int32(number)
    who, here = setting.cohort.draw(engine.round_key(key, k, engine.COHORT), setting.population)
    received = _stage(number, "broadcast", None, algorithm.broadcast, carry.server)
    shared = (algorithm, mechanism, records, received, key, k)

    def run_client(client: Any, present: Any, state: Any) -> Any:
        return engine.run_client(client, present, state, shared, setting=setting)

    total, states = None, carry.clients
    for client in (int(client) for client, present in zip(who, here, strict=True) if present):
        state = _at(states, client)
        sums, new, _ = _stage(number, "client", client, run_client, jnp.int32(client), jnp.bool_(True), state)
        if int(sums.dropped):
            raise SordinoError(
                f"round {number}, client {client}, stage client: the update is not finite; "
                "lower the learning rate or check the client's data"
            )
        _require_bounded(algorithm, received, sums, number, client)
        total = sums if total is None else jax.tree.map(jnp.add, total, sums)
        states = _with(states, client, new)
    if total is None:  # nobody came: the sums of one absent client
        total = _stage(number, "client", 0, run_client, jnp.int32(0), jnp.bool_(False), _at(states, 0))[0]
    serve = functools.partial(engine.serve, key=key, k=k, setting=setting)
    server, _ = _stage(number, "server", None, serve, algorithm, mechanism, carry.server, total)
    return Carry(server, states)


def _require_bounded(algorithm: Any, received: Any, sums: Sums, round: int, client: int) -> None:
    """The certificate rests on the bound: a message that exceeds it is a bug of the method."""
    bound = engine.bound_of(algorithm, received)
    if bound is not None and engine.too_long(sums.clean, bound):
        times = float(jnp.linalg.norm(sums.clean / bound.bound))
        raise SordinoError(
            f"round {round}, client {client}, stage client: the message is {times:g} times as long as its bound "
            f"{float(bound.bound):g}; bound it last, before it is returned"
        )


def _at(states: Any, client: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[client], states)


def _with(states: Any, client: int, new: Any) -> Any:
    return jax.tree.map(lambda leaf, value: leaf.at[client].set(value), states, new)


def _stage(round: int, name: str, client: int | None, work: Callable[..., Any], *arguments: Any) -> Any:
    """Do the work; say where it failed if it does."""
    try:
        return work(*arguments)
    except Exception as error:
        who = "" if client is None else f", client {client}"
        raise SordinoError(f"round {round}{who}, stage {name}: {type(error).__name__}: {error}") from error
