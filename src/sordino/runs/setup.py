"""Before the first round: the engine's spec, the first state, how many clients at a time, when to evaluate."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from sordino.errors import require
from sordino.planning import Plan, ResolvedPlan
from sordino.rounds.engine import ProgramSpec, RoundState
from sordino.tasks import Task
from sordino.types import Key, Method, Trust

CACHE = 2.0**18  # bytes of a CPU's cache for a chunk of clients; larger chunks were up to three times slower


def segments(first: int, rounds: int, every: int) -> list[tuple[int, int]]:
    """[start, stop) of the rounds between evaluations: every `every` rounds, and each of the last five."""
    stops = sorted({*range(every, rounds + 1, every), *range(max(1, rounds - 4), rounds + 1)})
    left = [stop for stop in stops if stop > first]
    return list(zip([first, *left], left, strict=False))


def usual_interval(rounds: int) -> int:
    """Rounds between evaluations if nothing else is asked for: about twenty evaluations."""
    return min(max(1, rounds // 20), 10_000)


def spec_of(plan: Plan, resolved: ResolvedPlan, task: Task, *, chunk: int, transcript: bool = False) -> ProgramSpec:
    """What the engine's program for this plan is compiled for."""
    remedy = "with secure aggregation nobody sees a message, only sums: leave it out"
    require(not transcript or resolved.trust is not Trust.SECURE_AGGREGATION, "transcript", transcript, remedy)
    return ProgramSpec(
        loss=task.loss,
        cohort=plan.cohort,
        population=task.clients,
        largest=task.largest,
        chunk=chunk,
        transcript=transcript,
        shuffled=resolved.trust is Trust.SHUFFLE,
        devices=jax.local_device_count(),
        augment=task.augment,
    )


def initial_state(method: Method, task: Task, key: Key) -> RoundState:
    """The first model, and the first states of the server and of every client."""
    w0 = task.initial(jax.random.fold_in(key, 2**31 - 1))
    clients = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (task.clients, *leaf.shape)), method.init_client(w0))
    return RoundState(method.init_server(w0), clients)


def choose_chunk(task: Task, plan: Plan) -> int:
    """As many clients at a time as fit, in equal chunks."""
    return equal_chunk(places_of_a_device(task, plan), int(memory_budget() / client_bytes(task, plan)))


def places_of_a_device(task: Task, plan: Plan) -> int:
    """How many clients of a cohort one device trains."""
    return -(-plan.cohort.capacity(task.clients) // jax.local_device_count())


def equal_chunk(places: int, most: int) -> int:
    """At most `most` places, chosen so that the last chunk is as full as the others, or nearly."""
    return -(-places // -(-places // max(1, most)))


def memory_budget() -> float:
    """Bytes for the clients that are trained at a time: a CPU's cache, or a tenth of an accelerator's memory."""
    device = jax.local_devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    return stats["bytes_limit"] / 10 if stats else CACHE


def client_bytes(task: Task, plan: Plan) -> float:
    """Bytes that training one client takes, roughly: some copies of the model, and its records."""
    record = 4 * int(np.prod(np.shape(task.data.x)[1:])) + 8
    batch = plan.method.batch_records or task.largest
    return 8 * 4 * task.d + 4 * record * min(task.largest, batch)
