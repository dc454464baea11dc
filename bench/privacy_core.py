"""The privacy core: accounting, the two mechanisms with the most work a coordinate, and the import."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp

from bench.timing import Bench, Row, import_seconds, interleaved, seconds
from sordino import epsilon_of, privunit, qtdl
from sordino.keys import key_of
from sordino.privacy.accountants import forget_accounts
from sordino.privacy.events import Gaussian, Repeated, Sampled
from sordino.privacy.sampling import Poisson

__all__ = ["BENCHES"]


def accounting() -> Iterator[Row]:
    """Epsilon of 1,000 Poisson rounds."""
    event = Repeated(Sampled(Gaussian(1.1), Poisson(0.01)), 1000)

    def epsilon() -> float:
        forget_accounts()
        return epsilon_of(event, 1e-5)

    (value,) = interleaved(partial(seconds, epsilon))
    yield Row("PLD epsilon, 1,000 Poisson rounds", value, None, target=2.0)


def privunit_cohort() -> Iterator[Row]:
    """PrivUnit for a cohort."""
    clients, d = 100, 10**6
    key_vectors, key_noise = jax.random.split(key_of(0))
    vectors = jax.jit(lambda key: jax.random.normal(key, (clients, d)) / (2 * jnp.sqrt(d)))(key_vectors)
    keys = jax.random.split(key_noise, clients)
    randomize = jax.jit(jax.vmap(privunit(d=d, eps0=2.0, eps1=2.0, eps2=2.0, bound=1.0).randomize))
    normals = jax.jit(lambda key: jax.random.normal(key, (clients, d)))
    value, baseline = interleaved(
        partial(seconds, lambda: randomize(keys, vectors)),
        partial(seconds, lambda: normals(key_noise)),
        repetitions=5,
    )
    yield Row("PrivUnit, 100 clients x 10^6", value, baseline, target=3.0, against="as many normals")


def qtdl_message() -> Iterator[Row]:
    """QTDL messages."""
    d = 10**7
    key_vector, key_noise = jax.random.split(key_of(1))
    vector = jax.jit(lambda key: jax.random.normal(key, (d,)) / (2 * jnp.sqrt(d)))(key_vector)
    mechanism_for = partial(qtdl, d=d, levels=64, epsilon=10.0, delta=3e-6)
    # A span of 2^7 is the strictest baseline: one random word each, where other spans take two and a division.
    integers = jax.jit(lambda key: jax.random.randint(key, (d,), -64, 64, jnp.int32))
    for mechanism in (
        mechanism_for(),
        mechanism_for(noise="truncated-laplace"),
        mechanism_for(noise="laplace"),
        mechanism_for(noise="theorem-1", mu=0.1),
    ):
        value, baseline = interleaved(
            partial(seconds, partial(mechanism.message, key_noise, vector)),
            partial(seconds, lambda: integers(key_noise)),
        )
        law, bits = mechanism.calibration.law, mechanism.calibration.bits
        name = f"QTDL message, 10^7 coordinates, {law}, {bits} bits"
        yield Row(name, value, baseline, target=5.0, against="as many integers")


def imports() -> Iterator[Row]:
    """Imports in fresh interpreters."""
    value, baseline = interleaved(partial(import_seconds, "import sordino"), partial(import_seconds, "import jax"))
    yield Row("import sordino", value, baseline, target=1.5, against="import jax")


BENCHES: list[Bench] = [accounting, privunit_cohort, qtdl_message, imports]
