"""What every method in METHODS must do, whatever else it does."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino as so
from sordino.algorithms import METHODS
from sordino.algorithms.local import ClientData
from sordino.mechanisms import none
from sordino.types import Aggregate, Algorithm, Circumstances, Memory, Relation, Unit
from tests.toys import toy

CLIENTS, D = 6, 8
KEY = jax.random.key(3)

TASK = toy(sizes=(3, 1, 5, 2, 4, 3))


def usual_arguments(factory: Any, bound: Any = None) -> dict[str, Any]:
    """A value for every argument that a factory has none for, and a compressor where there is no bound."""
    known = {"local_steps": 3, "local_lr": 0.5, "beta": 0.1, "server_lr": 0.5, "lipschitz": 10.0, "radius": 5.0}
    parameters = inspect.signature(factory).parameters.values()
    needed = {p.name: known[p.name] for p in parameters if p.default is p.empty}
    return needed | ({"top_k": D} if bound is None and any(p.name == "top_k" for p in parameters) else {})


def protects_records(name: str) -> bool:
    return getattr(get_type_hints(METHODS[name])["return"], "unit", Unit.CLIENT) is Unit.RECORD


RECORD_METHODS = [name for name in METHODS if protects_records(name)]
# A method that protects records clips their gradients itself and takes no bound of a whole message.
CASES = [(name, None) for name in RECORD_METHODS] + [
    (name, bound)
    for name in METHODS
    if name not in RECORD_METHODS
    for bound in (None, so.clip(0.01), so.normalize(0.5))
]


def made(name: str, bound: Any) -> Any:
    factory = METHODS[name]
    if name in RECORD_METHODS:
        return (
            so.plan(factory(smoothness=1.0, **usual_arguments(factory)), rounds=2).resolve(D, CLIENTS, TASK).algorithm
        )
    method = factory(bound=bound, **usual_arguments(factory, bound))
    if hasattr(method, "resolve"):
        method = method.resolve(Circumstances("none", none(), Relation.ZERO_OUT, TASK.d, CLIENTS, 3.0))
    return method


def data(client: int) -> ClientData:
    r = TASK.records
    return ClientData(TASK.loss, r.x, r.y, r.start[client], r.size[client], TASK.largest, client)


@pytest.mark.parametrize(("name", "bound"), CASES)
class TestEveryMethod:
    def test_is_an_algorithm(self, name, bound):
        method = made(name, bound)
        assert isinstance(method, Algorithm)
        assert isinstance(method.memory, Memory)
        assert (method.bound is None) == (bound is None and name not in RECORD_METHODS)

    def test_client_sends_a_bounded_message_and_keeps_its_structure(self, name, bound):
        method = made(name, bound)
        w = TASK.initial(KEY)
        received, state = method.broadcast(method.init_server(w)), method.init_client(w)
        for client in range(CLIENTS):
            g, extra, new, info = method.client(KEY, received, state, data(client))
            assert g.shape == (getattr(method, "message_parts", 1) * D,)
            assert extra.shape == ()
            assert jax.tree.structure(new) == jax.tree.structure(state)
            assert [leaf.shape for leaf in jax.tree.leaves(new)] == [leaf.shape for leaf in jax.tree.leaves(state)]
            assert float(jnp.linalg.norm(g)) > 0
            assert {"norm", "clipped", "dropped"} <= set(info._fields)
            if bound is not None:
                assert float(np.linalg.norm(np.asarray(g, np.float64))) <= float(method.bound.bound)
                assert float(method.bound.sensitivity(Relation.REPLACE_ONE)) >= 2 * np.linalg.norm(g)

    def test_client_is_a_function_of_its_arguments(self, name, bound):
        method, w = made(name, bound), TASK.initial(KEY)
        received, state = method.broadcast(method.init_server(w)), method.init_client(w)
        first, again = (method.client(KEY, received, state, data(2)) for _ in range(2))
        jax.tree.map(np.testing.assert_array_equal, first, again)

    def test_a_client_that_is_not_finite_sends_zero_and_keeps_a_finite_state(self, name, bound):
        method, w = made(name, bound), TASK.initial(KEY)
        received, state = method.broadcast(method.init_server(w)), method.init_client(w)
        r = TASK.records
        broken = ClientData(TASK.loss, r.x * jnp.nan, r.y, r.start[0], r.size[0], TASK.largest)
        g, extra, new, info = method.client(KEY, received, state, broken)
        assert not np.any(g)
        assert np.isfinite(extra)
        assert bool(info.dropped)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(new))

    def test_server_moves_against_the_sum_and_divides_by_the_planned_cohort(self, name, bound):
        method, w = made(name, bound), TASK.initial(KEY)
        server = method.init_server(w)
        assert jax.tree.structure(server) == jax.tree.structure(method.server(KEY, server, total(method), 0.0, 3.0)[0])
        np.testing.assert_array_equal(method.params(server), w)
        moved = method.params(after_two(method, server, 3.0)) - w  # one may give out a mean that lags behind by a round
        assert np.all(np.asarray(moved) < 0)
        less = method.params(after_two(method, server, 6.0)) - w
        assert np.all(np.asarray(moved) <= np.asarray(less) * 0.99)

    def test_numbers_are_leaves(self, name, bound):
        """A method of other numbers has the same structure: a sweep is one program."""
        arguments = usual_arguments(METHODS[name], bound)
        number = next(key for key in ("local_lr", "server_lr", "radius") if key in arguments)
        other = METHODS[name](bound=bound, **(arguments | {number: 0.1}))
        same = METHODS[name](bound=bound, **arguments)
        assert jax.tree.structure(other) == jax.tree.structure(same)
        assert jax.tree.leaves(other) != jax.tree.leaves(same)


def after_two(method: Any, server: Any, r: float) -> Any:
    for _ in range(2):
        server, _ = method.server(KEY, server, total(method), jnp.float32(0), r)
    return server


def total(method: Any) -> Aggregate:
    message = jnp.ones(getattr(method, "message_parts", 1) * D)
    # One client's: no extrapolation, whatever the planned cohort.
    return Aggregate(message, jnp.float32(0.1), jnp.float32(0.1))
