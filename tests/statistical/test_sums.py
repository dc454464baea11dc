"""One client moves the sum that noise falls on by no more than its bound, whatever the others send."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.data._records import FederatedData
from sordino.models import from_loss, weighted_mean
from sordino.simulation.engine import BLOCK
from sordino.simulation.tasks import Task
from sordino.summation import RunningSum, rounding_share

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


def released(first: float, chunk: int, method) -> float:
    """The first coordinate of n times the step that all clients' messages make, under one noise."""
    x = np.append(np.float32(first), MADE_FOR_FLOAT32)[:, None]
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


@pytest.mark.parametrize("chunk", [1, 7, 1000, 10_000])
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_one_client_moves_what_is_released_by_its_bound(method, chunk):
    n = len(MADE_FOR_FLOAT32) + 1
    moved = abs(released(1.0, chunk, method) - released(0.0, chunk, method))
    # n times the division by n is this test's own: another rounding for each of two neighbours.
    assert moved <= C * (1 + rounding_share(BLOCK, n) + 2 * n * 2.0**-24)


def test_what_is_lost_to_rounding_is_kept():
    terms = jnp.float32([1e8, 1.0, 1.0, 1.0, -1e8, 2.0])
    assert float(terms.cumsum()[-1]) != 5.0
    nothing = RunningSum.of(jnp.float32(0))
    assert float(jax.jit(lambda x: nothing.plus_each(x).value())(terms)) == 5.0


def test_whole_numbers_and_what_overflows():
    start = RunningSum.of({"count": jnp.int32(0), "norm": jnp.float32(0)})
    terms = {"count": jnp.int32([2**24, 1, 1]), "norm": jnp.float32([3e38, 3e38, 1.0])}
    summed = start.plus_each(terms).value()
    assert int(summed["count"]) == 2**24 + 2
    assert float(summed["norm"]) == np.inf


@pytest.mark.parametrize(("clients", "warns"), [(10_000, False), (100_000, True)])
def test_a_sum_that_may_be_rounded_noticeably_is_said_to_be(clients, warns):
    plan = so.plan(METHODS["dp_sgd"], rounds=1, noise_multiplier=4.0, delta=1e-7)
    codes = [warning.code for warning in plan.resolve(10, clients).certificate.warnings]
    assert ("rounded-sums" in codes) == warns
