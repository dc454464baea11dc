"""Rounds of Algorithms 1 and 2 on `coordinates`, in law the same as `sordino.simulate` and a thousand times faster.

The server's turn is the library's own. Two things are shorter than in the engine. No gradient is clipped, since none is
longer than L; and the sum of the messages of M clients gets its noise at once, N(0, M sigma^2 I), instead of one draw a
client. The test of this module compares whole runs with those of the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from experiments.paper2.coordinates import Loss
from sordino.algorithms.ac_sa import AcSa
from sordino.algorithms.noisy_mb_sgd import NoisyMbSgd
from sordino.keys import key_of
from sordino.types import Aggregate, Key, PyTree


class Drawn(NamedTuple):
    """What the clients of a round computed gradients on: their shares, and how many they were."""

    shares: jax.Array  # [d, 2]
    answered: jax.Array | float


Draw = Callable[[Key, jax.Array, jax.Array], Drawn]  # (key, round, data of one run) -> the round


def everybody(M: int) -> Draw:
    """All records of all clients; data [d, 2]."""
    return lambda key, r, data: Drawn(data, float(M))


def next_records(M: int) -> Draw:
    """One pass: round r takes record r of each client; data [R, d, 2]."""
    return lambda key, r, data: Drawn(data[r], float(M))


def some_clients(low: int, high: int) -> Draw:
    """All records of M_r clients, M_r uniform in [low, high]; data [N, d, 2], of every client."""

    def draw(key: Key, r: jax.Array, data: jax.Array) -> Drawn:
        key_number, key_who = jax.random.split(key)
        number = jax.random.randint(key_number, (), low, high + 1)
        place = jnp.argsort(jax.random.uniform(key_who, data.shape[:1]))
        here = (place < number).astype(data.dtype)
        return Drawn(jnp.tensordot(here, data, 1) / number, number.astype(data.dtype))

    return draw


def final_models(
    method: NoisyMbSgd | AcSa,
    loss: Loss,
    draw: Draw,
    data: NDArray[np.generic],
    *,
    d: int,
    rounds: int,
    noise_std: float,
    beta: float | None,
    seeds: int,
) -> NDArray[np.float64]:
    """The model after all rounds, [problems, seeds, d], of data with the axes [problems, seeds, ...].

    The noise of one seed is the same for all problems, which are compared with each other.
    """

    def one(key: Key, own: jax.Array) -> jax.Array:
        def turn(r: jax.Array, state: PyTree) -> PyTree:
            key_draw, key_noise = jax.random.split(jax.random.fold_in(key, r))
            drawn = draw(key_draw, r, own)
            g = loss.gradient(method.broadcast(state).w, drawn.shares, beta)
            noise = noise_std * jnp.sqrt(drawn.answered) * jax.random.normal(key_noise, (d,))
            total = Aggregate(drawn.answered * g + noise, cohort=drawn.answered)
            return method.server(key_noise, state, total)[0]

        state = method.init_server(jnp.zeros(d, jnp.float32))
        return method.params(jax.lax.fori_loop(0, rounds, turn, state))

    keys = jnp.stack([key_of(seed) for seed in range(seeds)])
    seeds_of = jax.vmap(one, in_axes=(0, 0))
    models = jax.jit(jax.vmap(seeds_of, in_axes=(None, 0)))(keys, jnp.asarray(data))
    return np.asarray(models, np.float64)
