"""Before the first round: the engine's spec, the first state, how many clients at a time, when to evaluate."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from sordino.errors import require
from sordino.keys import key_of
from sordino.planning import Plan, ResolvedPlan
from sordino.rounds.engine import ProgramSpec, RoundState
from sordino.tasks import Task
from sordino.types import Key, Method, Trust

CACHE = 2.0**18  # bytes of a CPU's cache for a chunk of clients; larger chunks were up to three times slower
# On a CPU each core is a device. A round of fewer multiplications than SMALL is over before the cores have agreed on
# its sums; and each core would hold what clients remember, which may not take more than MEMORIES bytes.
SMALL = 2.0**22
MEMORIES = 2.0**28


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
        devices=devices_for(task, plan),
        augment=task.augment,
    )


def initial_state(method: Method, task: Task, key: Key) -> RoundState:
    """The first model, and the first states of the server and of every client."""
    w0 = task.initial(jax.random.fold_in(key, 2**31 - 1))
    clients = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (task.clients, *leaf.shape)), method.init_client(w0))
    return RoundState(method.init_server(w0), clients)


def choose_chunk(task: Task, plan: Plan) -> int:
    """As many clients at a time as fit, in equal chunks."""
    return equal_chunk(places_of_a_device(task, plan), clients_that_fit(task, plan))


def devices_for(task: Task, plan: Plan) -> int:
    """The devices of this machine that a cohort is dealt to: one, where several would not be faster or not fit."""
    places, devices = plan.cohort.capacity(task.clients), jax.local_device_count()
    if jax.default_backend() == "cpu" and devices > 1:
        work = float(places) * records_at_a_time(task, plan) * task.d
        if work < SMALL or bytes_of_memories(task, plan) > MEMORIES:
            return 1
    return min(devices, places)


def bytes_of_memories(task: Task, plan: Plan) -> int:
    """What all clients remember between rounds."""
    kept = jax.eval_shape(lambda: plan.method.init_client(task.initial(key_of(0))))
    return task.clients * sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(kept))


def places_of_a_device(task: Task, plan: Plan) -> int:
    """How many clients of a cohort one device trains."""
    return -(-plan.cohort.capacity(task.clients) // devices_for(task, plan))


def clients_that_fit(task: Task, plan: Plan) -> int:
    """How many clients one device trains at a time."""
    return max(1, int(memory_budget() / client_bytes(task, plan)))


def records_at_a_time(task: Task, plan: Plan) -> int:
    """Records in a gradient of the largest client."""
    return min(task.largest, plan.method.batch_records or task.largest)


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
    inputs = int(np.prod(np.shape(task.data.x)[1:]))
    records = (4 * inputs + 8) * records_at_a_time(task, plan)
    if task.model.linear is not None and 2 * task.largest < inputs:
        # The engine trains on the products of records with each other, and touches the model at the end only.
        return (4 * task.d + records) / 8
    return 8 * 4 * task.d + 4 * records
