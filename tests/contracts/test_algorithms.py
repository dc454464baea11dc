"""What every method in METHODS must do, whatever else it does."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.algorithms import METHODS
from sordino.algorithms.local import ClientData
from sordino.algorithms.records import RecordMethod
from sordino.algorithms.scaffold import CONTROLS
from sordino.mechanisms import none
from sordino.types import Aggregate, BoundInfo, ClientNumbers, Message, Method, PlanContext, Relation, Trust, Unit
from tests.toys import toy

CLIENTS, D = 6, 8
KEY = jax.random.key(3)

TASK = toy(sizes=(3, 1, 5, 2, 4, 3))
RECORD_METHODS = [name for name in METHODS if issubclass(get_type_hints(METHODS[name])["return"], RecordMethod)]
# A method that protects records bounds their gradients, and not a whole message.
BOUNDS = {"record_scaffold": (so.clip(10.0),), "error_feedback, scheduled": (so.clip(0.01), so.normalize(0.5))} | {
    name: (None,) for name in RECORD_METHODS if name != "record_scaffold"
}
# Options that make a method of another paper.
VARIANTS = {
    "fedavg, proximal": functools.partial(METHODS["fedavg"], proximal=0.1),
    "fedexp, proximal": functools.partial(METHODS["fedexp"], proximal=0.1),
    "fedexp, sam": functools.partial(METHODS["fedexp"], sam_radius=0.1),
    "error_feedback, scheduled": functools.partial(
        METHODS["error_feedback"], bound_schedule={"start": 0.9, "decay": 0.9}
    ),
} | {
    f"fedavg, {name}": functools.partial(METHODS["fedavg"], server_lr=0.1, server_optimiser={"name": name, "eps": 0.5})
    for name in ("adam", "yogi", "adagrad")
}
VARIANTS |= {
    f"scaffold, {control}": functools.partial(METHODS["scaffold"], control=control)
    for control in CONTROLS
    if control != inspect.signature(METHODS["scaffold"]).parameters["control"].default
}
CASES = [
    (name, bound)
    for name in (*METHODS, *VARIANTS)
    for bound in BOUNDS.get(name, (None, so.clip(0.01), so.normalize(0.5)))
]


def factory(name: str) -> Callable[..., Method]:
    return VARIANTS.get(name) or METHODS[name]


def usual_arguments(factory: Any, bound: Any = None) -> dict[str, Any]:
    """A value for every argument that a factory has none for, and a compressor where there is no bound."""
    known = {"local_steps": 3, "local_lr": 0.5, "beta": 0.1, "server_lr": 0.5, "lipschitz": 10.0, "radius": 5.0}
    known |= {"mu": 0.1, "batch_size": 2}  # of the method of docs/new_algorithm.md
    parameters = inspect.signature(factory).parameters
    needed = {name: known[name] for name, p in parameters.items() if p.default is p.empty}
    top_k = {"top_k": D} if bound is None and "top_k" in parameters else {}
    smoothness = {"smoothness": 1.0} if "smoothness" in parameters else {}
    return needed | top_k | smoothness


def made(name: str, bound: Any) -> Method:
    """The method, resolved without noise."""
    method = factory(name)(bound=bound, **usual_arguments(factory(name), bound))
    if name in RECORD_METHODS:
        return so.plan(method, rounds=2).resolve(TASK.population).method
    return method.resolve(PlanContext(TASK.d, CLIENTS, 3.0, mechanism=none(), relation=Relation.ZERO_OUT))


def data(client: int, x: jax.Array = TASK.records.x) -> ClientData:
    r, size = TASK.records, TASK.records.size[client]
    numbers = ClientNumbers(jnp.int32(client), jnp.float32(10.0), size, jnp.float32(1.0), jnp.float32(0.0))
    return ClientData(TASK.loss, x, r.y, r.start[client], size, TASK.largest, numbers)


@pytest.mark.parametrize(("name", "bound"), CASES)
class TestEveryMethod:
    def test_is_a_method_that_says_what_it_protects(self, name, bound):
        method = made(name, bound)
        assert isinstance(method, Method)
        assert (method.privacy.unit is Unit.RECORD) == (name in RECORD_METHODS)
        assert (method.bound is None) == (bound is None or name in RECORD_METHODS)

    def test_client_sends_a_bounded_message_and_keeps_its_structure(self, name, bound):
        method = made(name, bound)
        w = TASK.initial(KEY)
        received, state = method.broadcast(method.init_server(w)), method.init_client(w)
        for client in range(CLIENTS):
            message, new, info = method.client(KEY, received, state, data(client))
            assert isinstance(message, Message)
            assert isinstance(info, BoundInfo)
            assert message.vector.shape == (method.privacy.message_parts * D,)
            assert jax.tree.structure(new) == jax.tree.structure(state)
            assert [leaf.shape for leaf in jax.tree.leaves(new)] == [leaf.shape for leaf in jax.tree.leaves(state)]
            norm = float(np.linalg.norm(np.asarray(message.vector, np.float64)))
            assert norm > 0
            limit = method.limit(received, data(client).numbers)
            assert (limit is None) == (method.bound is None and name != "noisy_mb_sgd" and name != "accelerated_mb_sgd")
            if limit is not None:
                assert norm <= float(limit)
            if method.bound is not None:
                assert float(limit) == float(method.bound.limit)
                assert float(method.bound.sensitivity(Relation.REPLACE_ONE)) >= 2 * norm

    def test_a_scalar_beside_the_message_is_sent_if_and_only_if_it_is_priced(self, name, bound):
        method, w = made(name, bound), TASK.initial(KEY)
        message, *_ = method.client(KEY, method.broadcast(method.init_server(w)), method.init_client(w), data(1))
        assert (message.side is None) == (method.side_event(Relation.REPLACE_ONE) is None)

    def test_client_is_a_function_of_its_arguments(self, name, bound):
        method, w = made(name, bound), TASK.initial(KEY)
        received, state = method.broadcast(method.init_server(w)), method.init_client(w)
        first, again = (method.client(KEY, received, state, data(2)) for _ in range(2))
        jax.tree.map(np.testing.assert_array_equal, first, again)

    def test_a_client_that_holds_its_own_records_alone_sends_the_same(self, name, bound):
        """All of them, of the largest client: nothing is drawn for padding."""
        method, w, client = made(name, bound), TASK.initial(KEY), int(np.argmax(TASK.records.size))
        received, state, view = method.broadcast(method.init_server(w)), method.init_client(w), data(client)
        rows = slice(int(view.start), int(view.start) + int(view.size))
        own = ClientData.own(TASK.loss, view.x[rows], view.y[rows], view.numbers)
        jax.tree.map(
            lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7),
            method.client(KEY, received, state, view),
            method.client(KEY, received, state, own),
        )

    def test_a_client_that_is_not_finite_sends_zero_and_keeps_a_finite_state(self, name, bound):
        method, w = made(name, bound), TASK.initial(KEY)
        received, state = method.broadcast(method.init_server(w)), method.init_client(w)
        message, new, info = method.client(KEY, received, state, data(0, TASK.records.x * jnp.nan))
        assert not np.any(message.vector)
        assert message.side is None or np.isfinite(message.side)
        assert bool(info.dropped)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(new))

    def test_server_moves_against_the_sum_and_divides_by_the_cohort(self, name, bound):
        method, w = made(name, bound), TASK.initial(KEY)
        server = method.init_server(w)
        after, _ = method.server(KEY, server, total(method, 3.0))
        assert jax.tree.structure(server) == jax.tree.structure(after)
        np.testing.assert_array_equal(method.params(server), w)
        moved = method.params(after_two(method, server, 3.0)) - w  # one may give out a mean that lags behind by a round
        assert np.all(np.asarray(moved) < 0)
        less = method.params(after_two(method, server, 6.0)) - w
        assert np.all(np.asarray(moved) <= np.asarray(less) * 0.99)

    def test_numbers_are_leaves(self, name, bound):
        """A method of other numbers has the same structure: a sweep is one program."""
        arguments = usual_arguments(factory(name), bound)
        number = next(key for key in ("local_lr", "server_lr", "radius") if key in arguments)
        other = factory(name)(bound=bound, **(arguments | {number: 0.1}))
        same = factory(name)(bound=bound, **arguments)
        assert jax.tree.structure(other) == jax.tree.structure(same)
        assert jax.tree.leaves(other) != jax.tree.leaves(same)


def after_two(method: Method, server: Any, cohort: float) -> Any:
    for _ in range(2):
        server, _ = method.server(KEY, server, total(method, cohort))
    return server


def total(method: Method, cohort: float) -> Aggregate:
    message = jnp.ones(method.privacy.message_parts * D)
    # One client's: no extrapolation, whatever the cohort.
    return Aggregate(message, jnp.float32(0.1), jnp.float32(0.1), cohort=cohort)


ADAPTIVE = so.adaptive_clip(0.5, indicator_noise_std=1.0)


@pytest.mark.parametrize(
    "method",
    [
        so.fedavg(local_steps=3, local_lr=0.5, bound=ADAPTIVE),
        so.fedexp(local_steps=3, local_lr=0.5, bound=so.clip(0.5)),
        so.scaffold(local_steps=3, local_lr=0.5, bound=so.clip(0.5), step_size="corrected"),
    ],
    ids=["adaptive clip", "fedexp", "scaffold with a step size"],
)
def test_a_priced_scalar_is_sent_and_used(method):
    """With central Gaussian noise these methods send a scalar, its event has a cost, and the server needs it."""
    gaussian = so.gaussian(1.0)
    method = method.resolve(PlanContext(TASK.d, CLIENTS, 3.0, trust=Trust.CENTRAL, mechanism=gaussian))
    server = method.init_server(TASK.initial(KEY))
    state = method.init_client(TASK.initial(KEY))
    message, *_ = method.client(KEY, method.broadcast(server), state, data(1))
    assert message.side.shape == ()
    assert method.side_event(Relation.ADD_REMOVE).noise_multiplier > 0
    after = [method.server(KEY, server, total(method, 3.0)._replace(side=jnp.float32(s)))[0] for s in (0.0, 500.0)]
    leaves = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(each)]) for each in after]
    assert np.any(leaves[0] != leaves[1])


def test_the_limit_of_an_adaptive_bound_is_that_of_the_round():
    method = so.fedavg(local_steps=3, local_lr=0.5, bound=ADAPTIVE)
    server = method.init_server(TASK.initial(KEY))
    after, _ = method.server(KEY, server, total(method, 3.0)._replace(side=jnp.float32(-1.5)))
    received = method.broadcast(after)
    assert float(method.limit(received, None)) == float(after.bound.limit) != 0.5
    assert float(method.noise_scale(after)) == pytest.approx(float(after.bound.limit) / 0.5)
