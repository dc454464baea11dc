"""What local noise and FedEXP's step size cost beside the same round without noise."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sordino as so
from bench.timing import Bench, Row, interleaved, seconds
from sordino.data import FederatedData
from sordino.keys import key_of
from sordino.models import Batch, from_loss, weighted_mean
from sordino.planning.cohort import FullCohort
from sordino.planning.resolved import Rules
from sordino.rounds.engine import ProgramSpec, RoundState, run_rounds
from sordino.tasks import Task
from sordino.types import Mechanism, PlanContext, Relation, Trust

M = 1000


def _task(d: int) -> Task:
    """Client i pulls every coordinate towards a number of its own: nearly all of a round is clipping and summing."""
    y = np.random.default_rng(0).standard_normal(M).astype(np.float32)
    index = np.arange(M, dtype=np.int32)
    data = FederatedData(y[:, None], y, index, np.ones(M, np.int32), y[:1, None], y[:1], 0)

    def loss(w: jax.Array, batch: Batch) -> jax.Array:
        return weighted_mean(jax.vmap(lambda y: jnp.sum((w - y) ** 2) / 2)(batch.y), batch.weight)

    return Task("numbers", data, from_loss(lambda key: jnp.zeros(d), loss, name="numbers"))


def _round(task: Task, noisy: bool, transcript: bool = False) -> Any:
    """One round of LDP-FedEXP, or of FedEXP, as a function of nothing."""
    method = so.fedexp(local_steps=1, local_lr=0.1, bound=so.clip(1.0))
    mechanism: Mechanism = so.gaussian(0.7) if noisy else so.none()
    trust = Trust.LOCAL if noisy else Trust.NONE
    context = PlanContext(task.d, M, float(M), trust=trust, relation=Relation.REPLACE_ONE, mechanism=mechanism)
    method = method.resolve(context)
    rules = Rules.of(method, mechanism, trust, FullCohort(), M)
    rules = rules.with_noise_in_client() if transcript else rules
    spec = ProgramSpec(task.loss, FullCohort(), M, 1, chunk=8, transcript=transcript)
    state = RoundState(method.init_server(task.initial(key_of(0))), ())
    return partial(run_rounds, rules, task.records, state, key_of(1), jnp.int32(0), spec=spec, rounds=1)


def local_noise() -> Iterator[Row]:
    """One round of LDP-FedEXP."""
    task = _task(10**6)
    value, baseline = interleaved(*(partial(seconds, _round(task, noisy)) for noisy in (True, False)), repetitions=2)
    yield Row(f"LDP-FedEXP, {M:,} clients, d = 10^6, one round", value, baseline, 1.3, "without noise")


def every_message() -> Iterator[Row]:
    """The same with every message drawn and kept."""
    d = 10**6 if jax.default_backend() != "cpu" else 10**5  # the messages of a round are 4 M d bytes
    task = _task(d)
    runs = _round(task, True, transcript=True), _round(task, False)
    value, baseline = interleaved(*(partial(seconds, run) for run in runs), repetitions=2)
    yield Row(f"the same with a transcript, d = 10^{len(str(d)) - 1}", value, baseline, np.inf, "without noise")


BENCHES: list[Bench] = [local_noise, every_message]
