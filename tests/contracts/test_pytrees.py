"""Every class that is a pytree has a structure of its own: a compiled program of one is never taken for another's."""

from __future__ import annotations

import itertools

import jax
import pytest

import sordino as so
from sordino.algorithms.schedules import Constant, Geometric, Piecewise, as_schedule
from sordino.algorithms.server import OptaxStep, ServerStep
from sordino.errors import InvalidInput

SAME_LEAVES = {
    "one number": [so.clip(1.0), so.normalize(1.0), so.smoothed_normalize(1.0), so.gaussian(1.0), so.laplace(1.0)],
    "schedules": [Constant(0.1), Geometric(0.1, 0.9), Piecewise((0.1, 0.2), (5,))],
    "server steps": [ServerStep(Constant(0.1), 0.5), OptaxStep(Constant(0.1), None)],
    "methods": [so.fedavg(local_steps=1, local_lr=0.1, bound=bound) for bound in (so.clip(1.0), so.normalize(1.0))],
}


@pytest.mark.parametrize("nodes", SAME_LEAVES.values(), ids=SAME_LEAVES)
def test_structures_of_different_classes_differ(nodes):
    for one, other in itertools.combinations(nodes, 2):
        assert jax.tree.structure(one) != jax.tree.structure(other), (one, other)


def test_only_static_fields_and_classes_make_a_structure():
    one, other = (so.fedavg(local_steps=3, local_lr=lr, bound=so.clip(C)) for lr, C in ((0.1, 1.0), (0.2, 5.0)))
    assert jax.tree.structure(one) == jax.tree.structure(other)
    assert jax.tree.structure(one) != jax.tree.structure(so.fedavg(local_steps=4, local_lr=0.1, bound=so.clip(1.0)))


def test_a_node_survives_the_round_trip():
    leaves, structure = jax.tree.flatten(so.clip(2.0))
    assert jax.tree.unflatten(structure, leaves) == so.clip(2.0)
    (path, _), = jax.tree_util.tree_leaves_with_path(so.clip(2.0))  # fmt: skip
    assert jax.tree_util.keystr(path) == ".limit"


def test_a_plain_function_is_told_apart_by_its_values():
    """A run that is resumed must be able to tell whether its numbers are the same."""
    constant = Constant(0.1)
    assert as_schedule(constant) is constant
    falling, faster = (as_schedule(lambda k, scale=scale: scale / (1 + k)) for scale in (0.1, 0.2))
    assert falling.values != faster.values
    assert falling.values == as_schedule(lambda k: 0.1 / (1 + k)).values
    with pytest.raises(InvalidInput) as caught:
        so.scaffold(local_steps=1, local_lr=lambda k: -0.1)
    assert caught.value.field == "local_lr"
