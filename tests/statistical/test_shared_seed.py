"""Two runs with one seed, with and without one client: their difference is that client's update."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import sordino as so
from sordino.data import FederatedData
from sordino.models import get
from sordino.tasks import Task

CLIENTS, NOISE, LAST = 12, 50.0, 11  # of norm 1 each, under noise that hides them many times over


def task(emptied: bool) -> Task:
    """Clients with one record each; the last one's record may have no features, and so no gradient of the weights."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(CLIENTS, 30)).astype(np.float32)
    y = (np.arange(CLIENTS) % 2).astype(np.int32)
    if emptied:
        x[LAST] = 0.0
    start, size = np.arange(CLIENTS, dtype=np.int32), np.ones(CLIENTS, np.int32)
    return Task("toy", FederatedData(x, y, start, size, x, y, 2), get("logistic", (30,), 2))


METHOD = so.fedavg(local_steps=1, local_lr=1.0, bound=so.normalize(1.0), server_lr=1.0)


def last_update(seed: int | None, **privacy) -> np.ndarray:
    """What an observer of both models takes for the difference of the last client's updates."""
    plan = so.plan(METHOD, rounds=1, **privacy)
    models = [so.simulate(plan, task(emptied), seed=seed).params for emptied in (False, True)]
    flat = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(model)]) for model in models]
    return CLIENTS * (flat[0].astype(np.float64) - flat[1])


@pytest.mark.parametrize("sampler", ["lattice", "float32"])
def test_a_shared_seed_takes_the_noise_off_and_fresh_ones_do_not(sampler):
    noise = {"noise_multiplier": NOISE, "relation": "replace-one", "delta": 1e-3, "sampler": sampler}
    truth = last_update(3)
    assert np.linalg.norm(truth) > 0.5
    assert np.linalg.norm(last_update(3, **noise) - truth) < 1e-2 * np.linalg.norm(truth)
    assert np.linalg.norm(last_update(None, **noise) - truth) > 50 * np.linalg.norm(truth)
