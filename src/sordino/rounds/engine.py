"""The engine: scan over rounds of (scan over chunks of vmap over `client_turn`), one compiled program for any method.

Keys are counters: fold_in(seed, round), then the purpose, then the client's number. So results do not depend on the
chunk size or on the number of devices, but for the last bits of floats, nor on where a run was interrupted. Client data
stay in one flat array and are read by index. Where the plan places noise as the law of the sum, the noise of all
messages is drawn at once. A shuffler, where there is one, hands the noisy messages on in random order without names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from sordino.algorithms.local import ClientData
from sordino.keys import require_generator
from sordino.models import Batch
from sordino.planning.cohort import Cohort
from sordino.planning.resolved import Rules
from sordino.rounds.mesh import AXIS, DEALT, EVERYWHERE, mesh_of, of_owners, stay_everywhere, sum_over_devices
from sordino.rounds.turns import ClientInfo, ClientKeys, ServerKeys, client_turn, measured_length, server_turn, tally
from sordino.summation import RunningSum
from sordino.tasks import Records
from sordino.types import Aggregate, Augment, Key, Placement, PyTree, Vector

# Purposes of the keys of a round.
COHORT, CLIENT, NOISE, SERVER, LOCAL_NOISE, SHUFFLE, SIDE_NOISE = range(7)


class RoundState(NamedTuple):
    """What passes from round to round."""

    server: PyTree
    clients: PyTree  # states of the whole population, () for stateless methods


class RoundInfo(NamedTuple):
    """Diagnostics of one round. Computed on private data: not private."""

    participants: jax.Array
    mean_norm: jax.Array
    clipped_share: jax.Array
    dropped: jax.Array
    exceeds_limit: jax.Array  # messages beyond the limit that the noise was made for: 0, or the method is wrong
    signal_to_noise: jax.Array  # norm of the sum before noise over the norm of the noise; NaN without noise
    server: PyTree  # the method's own, computed from its releases
    transcript: PyTree  # the messages themselves and their senders, where asked for


@dataclass(frozen=True)
class ProgramSpec:
    """What is fixed when the program is compiled."""

    loss: Callable[[Vector, Batch], jax.Array]
    cohort: Cohort
    population: int
    largest: int  # records of the largest client
    chunk: int
    transcript: bool = False
    shuffled: bool = False  # whether a transcript comes from a shuffler
    devices: int = 1
    processes: int = 1  # whose devices they are; of several, each holds the records of its own clients alone
    stacked: bool = False  # whether rules and states are those of several runs, stacked along a first axis
    augment: Augment | None = None  # what a client does to its records before a gradient

    def for_each_run(self, work: Callable[..., PyTree], in_axes: PyTree = 0) -> Callable[..., PyTree]:
        """`work` for every run of the stack; `work` itself where there is one."""
        return jax.vmap(work, in_axes=in_axes) if self.stacked else work


class Shared(NamedTuple):
    """What all clients of a round share."""

    rules: Rules
    records: Records
    received: PyTree
    key: Key
    k: jax.Array


_STACKED = Shared(rules=0, records=None, received=0, key=None, k=None)  # type: ignore[arg-type]  # axes of a stack
_OWNED = Shared(EVERYWHERE, DEALT, EVERYWHERE, EVERYWHERE, EVERYWHERE)  # type: ignore[arg-type]  # where parts lie
Sums: TypeAlias = tuple[Aggregate, ClientInfo]  # over the cohort; diagnostics are for people only


def round_key(key: Key, k: jax.Array, purpose: int) -> Key:
    """The key of one purpose in one round."""
    return jax.random.fold_in(jax.random.fold_in(key, k), purpose)


@functools.partial(jax.jit, static_argnames=("spec", "rounds"))
def run_rounds(
    rules: Rules, records: Records, state: RoundState, key: Key, first: jax.Array, *, spec: ProgramSpec, rounds: int
) -> tuple[RoundState, RoundInfo]:
    """`rounds` rounds from round `first` on, as one program."""

    def one(state: RoundState, k: jax.Array) -> tuple[RoundState, RoundInfo]:
        return run_round(rules, records, state, key, k, spec)

    return jax.lax.scan(one, state, first + jnp.arange(rounds))


def run_round(
    rules: Rules, records: Records, state: RoundState, key: Key, k: jax.Array, spec: ProgramSpec
) -> tuple[RoundState, RoundInfo]:
    """One round: cohort, clients, noise, server."""
    require_generator(key)
    client_ids, present = spec.cohort.draw(round_key(key, k, COHORT), spec.population)
    received = spec.for_each_run(lambda rules, server: rules.method.broadcast(server))(rules, state.server)
    shared = Shared(rules, records, received, key, k)
    summed, clients, sent = run_cohort(shared, state.clients, client_ids, present, spec)
    sums = summed.value()
    serve_each = spec.for_each_run(functools.partial(serve, key=key, k=k, spec=spec))
    server, info = serve_each(rules, state.server, sums)
    if spec.shuffled and spec.transcript:
        client_ids, present, sent = _shuffled(round_key(key, k, SHUFFLE), client_ids, present, sent)
    if spec.transcript:
        info = info._replace(transcript=(client_ids, present, sent))
    if spec.processes > 1:  # each process reads them
        server, info = stay_everywhere((server, info), spec.devices)
    return RoundState(server, clients), info


def serve(
    rules: Rules, server: PyTree, sums: Sums, *, key: Key, k: jax.Array, spec: ProgramSpec
) -> tuple[PyTree, RoundInfo]:
    """The server's half of a round, with the noise of all messages where the plan places it as the law of the sum."""
    total, diagnostics = sums
    bounding = diagnostics.bounding
    before_noise = total.sum if diagnostics.bounded is None else diagnostics.bounded
    key_noise = round_key(key, k, NOISE)
    if rules.placement is Placement.LAW_OF_SUM:
        total = _law_of_sum(rules, key_noise, total, spec.cohort.capacity(spec.population))
    keys = ServerKeys(key_noise, round_key(key, k, SIDE_NOISE), round_key(key, k, SERVER))
    server, server_info = server_turn(rules, keys, server, total)
    counted = jnp.maximum(total.cohort - bounding.dropped, 1)
    noise = jnp.linalg.norm(server_info.noisy_sum - before_noise)
    return server, RoundInfo(
        participants=jnp.asarray(total.cohort),
        mean_norm=bounding.norm / counted,
        clipped_share=bounding.clipped / counted,
        dropped=bounding.dropped,
        exceeds_limit=diagnostics.exceeds_limit,
        signal_to_noise=jnp.where(noise > 0, jnp.linalg.norm(before_noise) / noise, jnp.nan),
        server=server_info.method,
        transcript=None,
    )


def _law_of_sum(rules: Rules, key: Key, total: Aggregate, count: int) -> Aggregate:
    """The sums of `count` noisy messages from the sums of the bounded ones: one draw instead of `count`."""
    aggregate = rules.mechanism.aggregate
    assert aggregate is not None  # the plan does not place noise so without a law
    first = measured_length(rules, len(total.sum))
    if first == len(total.sum):
        noisy = aggregate(key, total.sum, total.sum_of_squared_norms, count)
    else:
        # Noise that is independent from part to part: the first part has its joint law, the others their sums'.
        key_first, key_rest = jax.random.split(key)
        noisy = aggregate(key_first, total.sum[:first], total.sum_of_squared_norms, count)
        rest = aggregate(key_rest, total.sum[first:], jnp.float32(0), count)
        noisy = noisy._replace(sum=jnp.concatenate([noisy.sum, rest.sum]))
    return noisy._replace(side=total.side, cohort=total.cohort)


def _shuffled(key: Key, client_ids: jax.Array, present: jax.Array, sent: PyTree) -> tuple[jax.Array, jax.Array, PyTree]:
    """What a shuffler hands on: the messages in random order, and -1 for every sender."""
    order = jax.random.permutation(key, present.shape[0])
    return jnp.full_like(client_ids, -1), present[order], jax.tree.map(lambda leaf: leaf[order], sent)


def run_cohort(
    shared: Shared, states: PyTree, client_ids: jax.Array, present: jax.Array, spec: ProgramSpec
) -> tuple[RunningSum, PyTree, PyTree]:
    """All clients of the cohort: their sums, the population's states after them, and their messages where wanted."""
    if spec.processes > 1:
        return _run_owned(shared, states, client_ids, present, spec)
    places = client_ids.shape[0]
    pad = -places % (spec.chunk * spec.devices)
    client_ids, present = jnp.pad(client_ids, (0, pad)), jnp.pad(present, (0, pad))
    cohort_states = jax.tree.map(lambda leaf: leaf[client_ids], states)
    at = places_of(client_ids, shared.records)

    def on_device(
        at: jax.Array, present: jax.Array, states: PyTree, shared: Shared
    ) -> tuple[RunningSum, PyTree, PyTree]:
        summed, new, sent = _run_chunks(_each(shared, spec), at, present, states, spec)
        if spec.devices > 1:
            summed = sum_over_devices(summed, spec.devices)
        return summed, new, sent

    work = on_device
    if spec.devices > 1:  # the cohort is dealt to the devices of this machine, and their sums are added up
        inputs, outputs = (DEALT, DEALT, DEALT, EVERYWHERE), (EVERYWHERE, DEALT, DEALT)
        mesh = mesh_of(spec.devices)
        work = jax.shard_map(on_device, mesh=mesh, in_specs=inputs, out_specs=outputs, check_vma=False)
    summed, new, sent = work(at, present, cohort_states, shared)
    # An absent place must not write: its index is out of bounds, where scatter drops it.
    place = jnp.where(present, client_ids, spec.population)
    states = jax.tree.map(lambda leaf, value: leaf.at[place].set(value, mode="drop"), states, new)
    return summed, stay_everywhere(states, spec.devices), sent[:places] if spec.transcript else None


def _run_owned(
    shared: Shared, states: PyTree, client_ids: jax.Array, present: jax.Array, spec: ProgramSpec
) -> tuple[RunningSum, PyTree, PyTree]:
    """`run_cohort` where each device holds the records of its own clients, and trains these alone.

    Client c belongs to device c mod `devices`. A device moves its own clients to the front of the list, which has room
    for all of them on one device; chunks without any are left out.
    """
    pad = -client_ids.shape[0] % spec.chunk
    client_ids, present = jnp.pad(client_ids, (0, pad)), jnp.pad(present, (0, pad))

    def on_device(
        client_ids: jax.Array, present: jax.Array, states: PyTree, shared: Shared
    ) -> tuple[RunningSum, PyTree]:
        own = present & (client_ids % spec.devices == jax.lax.axis_index(AXIS))
        order = jnp.argsort(~own, stable=True)
        ids, mine = client_ids[order], own[order]
        before = jax.tree.map(lambda leaf: leaf[ids], states)
        summed, new, _ = _run_chunks(_each(shared, spec), places_of(ids, shared.records), mine, before, spec)

        def in_place(leaf: jax.Array) -> jax.Array:
            others = mine.reshape(-1, *(1 for _ in leaf.shape[1:]))
            return jnp.zeros_like(leaf).at[order].set(jnp.where(others, leaf, jnp.zeros_like(leaf)))

        return sum_over_devices(summed, spec.devices), of_owners(jax.tree.map(in_place, new))

    inputs = (EVERYWHERE, EVERYWHERE, EVERYWHERE, _OWNED)
    mesh = mesh_of(spec.devices)
    work = jax.shard_map(on_device, mesh=mesh, in_specs=inputs, out_specs=EVERYWHERE, check_vma=False)
    summed, new = work(client_ids, present, states, shared)
    place = jnp.where(present, client_ids, spec.population)
    states = jax.tree.map(lambda leaf, value: leaf.at[place].set(value, mode="drop"), states, new)
    return summed, stay_everywhere(states, spec.devices), None


def _each(shared: Shared, spec: ProgramSpec) -> Callable[[jax.Array, jax.Array, PyTree], tuple[Sums, PyTree, PyTree]]:
    """One client's turn in every run of a stack."""

    # Runs of a stack lie inside the client: they read its records together, as one larger matrix product.
    def one(client: jax.Array, present: jax.Array, state: PyTree) -> tuple[Sums, PyTree, PyTree]:
        inside = spec.for_each_run(functools.partial(run_client, spec=spec), (None, None, 0, _STACKED))
        return inside(client, present, state, shared)

    return one


def _run_chunks(
    one: Callable[[jax.Array, jax.Array, PyTree], tuple[Sums, PyTree, PyTree]],
    client_ids: jax.Array,
    present: jax.Array,
    states: PyTree,
    spec: ProgramSpec,
) -> tuple[RunningSum, PyTree, PyTree]:
    """Clients in chunks: vmap inside, scan outside."""
    chunks = client_ids.shape[0] // spec.chunk
    each = jax.vmap(one) if spec.chunk > 1 else _alone(one)

    def cut(leaf: jax.Array) -> jax.Array:
        return leaf.reshape(chunks, spec.chunk, *leaf.shape[1:])

    def joined(leaf: jax.Array) -> jax.Array:
        return leaf.reshape(-1, *leaf.shape[2:])

    def chunk(so_far: RunningSum, part: tuple[jax.Array, jax.Array, PyTree]) -> tuple[RunningSum, PyTree]:
        ids, here, states = part

        def work(so_far: RunningSum) -> tuple[RunningSum, PyTree]:
            sums, new, sent = each(ids, here, states)
            return so_far.plus(RunningSum.of_each(sums)), (new, sent)

        if spec.transcript:
            return work(so_far)
        # The last chunks of a padded cohort are often empty.
        return jax.lax.cond(here.any(), work, lambda so_far: (so_far, (states, None)), so_far)

    shapes = jax.eval_shape(one, client_ids[0], present[0], jax.tree.map(lambda leaf: leaf[0], states))[0]
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    parts = (cut(client_ids), cut(present), jax.tree.map(cut, states))
    summed, (new, sent) = jax.lax.scan(chunk, RunningSum.of(zero), parts)
    return summed, jax.tree.map(joined, new), jax.tree.map(joined, sent)


def _alone(one: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """`one` for a chunk of one client without vmap: a CPU multiplies plain matrices faster than batches of one."""
    return lambda *chunk: jax.tree.map(lambda leaf: leaf[None], one(*jax.tree.map(lambda leaf: leaf[0], chunk)))


def data_of(client: jax.Array, shared: Shared, spec: ProgramSpec) -> ClientData:
    """One client's records and numbers; `client` is its place where the records are those of some clients."""
    number = number_of(client, shared.records)
    records, numbers = shared.records, jax.tree.map(lambda leaf: leaf[number], shared.rules.numbers)
    start, size = records.start[client], records.size[client]
    return ClientData(spec.loss, records.x, records.y, start, size, spec.largest, numbers, spec.augment)


def places_of(client_ids: jax.Array, records: Records) -> jax.Array:
    """Where the records of these clients are: at their numbers, or where their numbers are in an ascending list."""
    return client_ids if records.client is None else jnp.searchsorted(records.client, client_ids).astype(jnp.int32)


def number_of(client: jax.Array, records: Records) -> jax.Array:
    """The number of a client in the population."""
    return client if records.client is None else records.client[client]


def run_client(
    client: jax.Array, present: jax.Array, state: PyTree, shared: Shared, *, spec: ProgramSpec
) -> tuple[Sums, PyTree, PyTree]:
    """One client's turn, as terms of the sums. An absent client counts for nothing and keeps its state."""
    rules, _, received, key, k = shared
    data, number = data_of(client, shared, spec), number_of(client, shared.records)
    keys = ClientKeys(
        jax.random.fold_in(round_key(key, k, CLIENT), number),
        jax.random.fold_in(round_key(key, k, LOCAL_NOISE), number),
    )
    message, new_state, info = client_turn(rules, keys, received, state, data)
    sums = tally(rules, message, data.numbers), _as_terms(info)
    sums = jax.tree.map(lambda leaf: jnp.where(present, leaf, jnp.zeros_like(leaf)), sums)
    new_state = jax.tree.map(lambda new, old: jnp.where(present, new, old), new_state, state)
    return sums, new_state, rules.mechanism.read(message.vector) if spec.transcript else None


def _as_terms(info: ClientInfo) -> ClientInfo:
    """The diagnostics of one client as terms of sums: yes is 1, and a dropped update has no norm."""
    norm = jnp.where(info.bounding.dropped, 0.0, info.bounding.norm)
    info = info._replace(bounding=info.bounding._replace(norm=norm))
    return jax.tree.map(lambda leaf: leaf.astype(jnp.int32) if leaf.dtype == bool else leaf, info)
