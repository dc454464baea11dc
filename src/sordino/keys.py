"""The one generator of random numbers, and its keys.

Every key of a run is made by folding counters (round, purpose, client) into the key of its seed. The noise of two
clients is independent only if the generator mixes those counters. Threefry does. `unsafe_rbg`, which the environment
variable JAX_DEFAULT_PRNG_IMPL can make the default, does not: there, client i in round j draws the noise of client j in
round i. So keys are made here, of the generator by name, and keys of any other generator are refused.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from sordino.errors import require

GENERATOR = "threefry2x32"


def key_of(seed: int) -> jax.Array:
    """The key of a seed of up to 64 bits; up to 32 it is `jax.random.key(seed)` of this generator."""
    words = jnp.array([seed >> 32, seed & 0xFFFFFFFF], jnp.uint32)
    return jax.random.wrap_key_data(words, impl=GENERATOR)


def require_generator(key: jax.Array, field: str = "key") -> None:
    """Refuse keys of another generator, and untyped ones. It reads the type alone, so traced keys cost nothing."""
    typed = isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    kind = str(jax.random.key_impl(key)) if typed else type(key).__name__
    remedy = f'noise is analysed for keys of one generator: make it with jax.random.key(..., impl="{GENERATOR}")'
    require(kind == GENERATOR, field, kind, remedy)
