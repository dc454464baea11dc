"""One client moves the sum that noise falls on by no more than its bound, whatever the others send."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.data import FederatedData
from sordino.models import from_loss, weighted_mean
from sordino.summation import RunningSum, rounding_share
from sordino.tasks import Population, Task
from tests.toys import on_four_devices

C = 1.0001


def others(first_power: int, binades: int) -> np.ndarray:
    """Messages before which 1 or 0 was sent: each lies a little beyond half a rounding step of the sum with the 1.

    With it they round up, to a whole step; without it the sum is still below the power of two, where steps are half as
    long, and they round to about themselves. Every binade doubles the distance.
    """
    messages, total, distance = [], 1.0, 1.0
    for k in range(first_power, first_power + binades):
        messages += [1.0] * int(2**k - total)
        step = 2.0 ** (k - 23)
        pushed = int(2 * distance / step)
        messages += [step / 2 * (1 + 2**-10)] * pushed
        total, distance = 2.0**k + pushed * step, 2 * distance
    return np.array(messages, np.float32)


def plain_sum(messages: np.ndarray) -> np.float32:
    total = np.float32(0)
    for message in messages:
        total += message
    return total


MADE_FOR_FLOAT32 = others(11, 3)


def test_a_plain_sum_is_moved_by_many_times_the_bound():
    """Otherwise the tests below show nothing."""
    with_one, without = (plain_sum(np.append(np.float32(first), MADE_FOR_FLOAT32)) for first in (1.0, 0.0))
    assert with_one - without > 4


def released(messages: np.ndarray, chunk: int, method) -> float:
    """The first coordinate of n times the step that all clients' messages make, under one noise."""
    x = np.asarray(messages, np.float32)[:, None]
    n = len(x)
    y = np.zeros(n, np.int32)
    data = FederatedData(x, y, np.arange(n, dtype=np.int32), np.ones(n, np.int32), x[:2], y[:2], 0)
    # A gradient is the record, in the first coordinate.
    model = from_loss(lambda key: jnp.zeros(3), lambda w, b: weighted_mean(b.x[:, 0] * w[0], b.weight), name="probe")
    plan = so.plan(method, rounds=1, noise_multiplier=16.0, delta=1e-6, relation="zero-out")
    run = so.simulate(plan, Task("probe", data, model), seed=0, chunk=chunk)
    return float(n * np.asarray(run.params, np.float64).ravel()[0])


METHODS = {
    "dp_sgd": so.dp_sgd(server_lr=1.0, bound=so.clip(C)),
    "error_feedback": so.error_feedback(beta=1.0, server_lr=1.0, bound=so.clip(C)),
}


@pytest.mark.parametrize(("name", "chunk"), [("dp_sgd", 7), ("dp_sgd", 1000), ("error_feedback", 1)])
def test_one_client_moves_what_is_released_by_its_bound(name, chunk):
    method, n = METHODS[name], len(MADE_FOR_FLOAT32) + 1
    with_one, without = (released(np.append(first, MADE_FOR_FLOAT32), chunk, method) for first in (1.0, 0.0))
    # n times the division by n is this test's own: another rounding for each of two neighbours.
    assert abs(with_one - without) <= C * (1 + rounding_share(n) + 2 * n * 2.0**-24)


def several_releases() -> list[float]:
    """Of neighbours, and of messages without a pattern, on however many devices there are."""
    worlds = [np.append(first, MADE_FOR_FLOAT32) for first in (1.0, 0.0)]
    worlds += [np.random.default_rng(seed).uniform(0, 1, 10_007) for seed in range(12)]
    return [released(world, 7, METHODS["dp_sgd"]) for world in worlds]


@pytest.mark.slow
def test_devices_that_share_the_work_come_to_the_same_sum():
    assert on_four_devices("tests.statistical.test_sums", "module.several_releases()") == several_releases()


def exact(messages: np.ndarray) -> float:
    return math.fsum(messages.astype(np.float64))


def kept(messages: np.ndarray) -> tuple[float, float]:
    """The sum of one after another, and of all at once."""
    one_by_one = jax.jit(lambda x: jax.lax.scan(lambda s, m: (s.plus(RunningSum.of(m)), None), nothing(), x)[0])
    x = jnp.asarray(messages)
    return float(one_by_one(x).value()), float(jax.jit(RunningSum.of_each)(x).value())


def nothing() -> RunningSum:
    return RunningSum.of(jnp.float32(0))


def made_for_the_rest(n: int) -> np.ndarray:
    """Messages of which a rest that is itself a plain sum would lose nearly half a step each, once it is long."""
    step = 2.0**17 * 2.0**-23
    head = np.append(np.ones(2**17 + 1), np.full(int(0.98 / (step / 2)), step / 2 * (1 + 2**-10)))
    fill = np.full(int(8 / (step / 2)) + 1, 0.999 * step / 2)
    push = np.full(n - len(head) - len(fill), 2.0**3 * 2.0**-24 * (1 - 2**-10))
    return np.concatenate([head, fill, push]).astype(np.float32)


MANY = {
    "made for float32": MADE_FOR_FLOAT32,
    "made for the rest": made_for_the_rest(400_000),
    "of both signs": np.random.default_rng(0).uniform(-1, 1, 100_001).astype(np.float32),
    "of many lengths": (10.0 ** np.random.default_rng(1).uniform(-12, 0, 77_777)).astype(np.float32),
}


@pytest.mark.parametrize("messages", MANY.values(), ids=MANY)
def test_a_sum_is_off_by_one_rounding_alone(messages):
    """So that neighbours may also lie elsewhere in the blocks of a chunk, as where somebody is added or removed."""
    allowed = 1.01 * 2.0**-24 * float(np.abs(messages).sum())
    for found in kept(messages):
        assert abs(found - exact(messages)) <= allowed


def test_what_is_lost_to_rounding_is_kept():
    terms = np.float32([1e8, 1.0, 1.0, 1.0, -1e8, 2.0])
    assert float(terms.cumsum()[-1]) != 5.0
    assert kept(terms) == (5.0, 5.0)


def test_whole_numbers_and_what_overflows():
    terms = {"count": jnp.int32([2**24, 1, 1]), "norm": jnp.float32([3e38, 3e38, 1.0])}
    summed = RunningSum.of_each(terms).value()
    assert int(summed["count"]) == 2**24 + 2
    assert float(summed["norm"]) == np.inf


@pytest.mark.parametrize(
    ("clients", "sampler", "warns"),
    [(10_000, "float32", False), (100_000, "float32", True), (100_000, "lattice", False)],
)
def test_a_sum_that_may_be_rounded_noticeably_is_said_to_be(clients, sampler, warns):
    """Or it is counted: on the lattice rounding is part of the sensitivity."""
    plan = so.plan(METHODS["dp_sgd"], rounds=1, noise_multiplier=4.0, delta=1e-7, sampler=sampler)
    if sampler == "lattice":
        assert float(plan.resolve(Population(10, clients)).mechanism.noise_std) > 1.04 * 4.0 * plan.method.bound.limit
    codes = [warning.code for warning in plan.resolve(Population(10, clients)).certificate.warnings]
    assert ("rounded-sums" in codes) == warns
