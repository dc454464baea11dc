"""The engine: scan over rounds of (scan over chunks of vmap over clients), one compiled program for any method.

Keys are counters: fold_in(seed, round), then the purpose, then the client's number. So results do not depend on the
chunk size or on the number of devices, but for the last bits of floats, nor on where a run was interrupted. Client data
stay in one flat array and are read by index. Noise is placed by trust: central noise falls once on the sum, local noise
on every message; where a mechanism knows the law of the sum of M noisy messages that is drawn at once, unless a
transcript is wanted or clients remember their noise. A shuffler, where there is one, hands the noisy messages on in
random order and without names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sordino.algorithms.local import Augment, ClientData
from sordino.models import Batch
from sordino.pytrees import pytree
from sordino.simulation.cohort import Cohort
from sordino.summation import RunningSum
from sordino.types import Aggregate, Key, Scalar, Unit, Vector

__all__ = [
    "Carry",
    "PerClient",
    "Records",
    "RoundInfo",
    "Setting",
    "bound_of",
    "evaluate",
    "remembers_noise",
    "round_key",
    "run_rounds",
    "serve",
    "too_long",
]

SLACK = 1e-3  # by which a computed norm may be off: bounders are exact, what checks them need not be

# Purposes of the keys of a round.
COHORT, CLIENT, NOISE, SERVER, LOCAL_NOISE, SHUFFLE = range(6)


@pytree
@dataclass(frozen=True)
class PerClient:
    """A mechanism of which every client has its own: the leaves of `each` have the clients as first axis."""

    each: Any
    aggregate = None  # messages with different noise have no common law

    def of(self, client: jax.Array) -> Any:
        """The mechanism of one client."""
        return jax.tree.map(lambda leaf: leaf[client], self.each)


# What clients share: (algorithm, mechanism, records, received, key, k); which of them a stack of runs has several of.
_STACKED = (0, 0, None, 0, None, None)


class Records(NamedTuple):
    """Everybody's records, sorted by client."""

    x: jax.Array
    y: jax.Array
    start: jax.Array
    size: jax.Array


class Carry(NamedTuple):
    """What passes from round to round."""

    server: Any
    clients: Any  # states of the whole population, () for stateless methods


class RoundInfo(NamedTuple):
    """Diagnostics of one round. Computed on private data: not private."""

    participants: jax.Array
    mean_norm: jax.Array
    clipped_share: jax.Array
    dropped: jax.Array
    too_long: jax.Array  # messages beyond the bound that noise was made for: 0, or the method is wrong
    signal_to_noise: jax.Array  # norm of the sum before noise over the norm of the noise; NaN without noise
    server: Any  # the method's own, of what it released already
    transcript: Any  # the messages themselves and who sent them, where asked for


@dataclass(frozen=True)
class Setting:
    """What is fixed when the program is compiled."""

    loss: Callable[[Vector, Batch], jax.Array]
    cohort: Cohort
    population: int
    largest: int  # records of the largest client
    trust: str  # "central", "local", "shuffle" or "none"
    chunk: int
    transcript: bool = False
    extra: bool = False  # whether the method releases a scalar beside its messages
    devices: int = field(default=1)
    stacked: bool = False  # whether method, noise and states are those of several runs, stacked along a first axis
    augment: Augment | None = None  # what a client does to its records before a gradient

    def for_each_run(self, work: Callable[..., Any], in_axes: Any = 0) -> Callable[..., Any]:
        """`work` for every run of the stack; `work` itself where there is one."""
        return jax.vmap(work, in_axes=in_axes) if self.stacked else work


def round_key(key: Key, k: jax.Array, purpose: int) -> Key:
    """The key of one purpose in one round."""
    return jax.random.fold_in(jax.random.fold_in(key, k), purpose)


@functools.partial(jax.jit, static_argnames=("setting", "rounds"))
def run_rounds(
    algorithm: Any,
    mechanism: Any,
    records: Records,
    carry: Carry,
    key: Key,
    first: jax.Array,
    *,
    setting: Setting,
    rounds: int,
) -> tuple[Carry, RoundInfo]:
    """`rounds` rounds from round `first` on, as one program."""

    def one(carry: Carry, k: jax.Array) -> tuple[Carry, RoundInfo]:
        return run_round(algorithm, mechanism, records, carry, key, k, setting)

    return jax.lax.scan(one, carry, first + jnp.arange(rounds))


def run_round(
    algorithm: Any, mechanism: Any, records: Records, carry: Carry, key: Key, k: jax.Array, setting: Setting
) -> tuple[Carry, RoundInfo]:
    """One round: cohort, clients, noise, server."""
    who, here = setting.cohort.draw(round_key(key, k, COHORT), setting.population)
    received = setting.for_each_run(_broadcast)(algorithm, carry.server)
    sums, clients, sent = _run_cohort(
        algorithm, mechanism, records, carry.clients, received, who, here, key, k, setting
    )
    serve_each = setting.for_each_run(functools.partial(serve, key=key, k=k, setting=setting))
    server, info = serve_each(algorithm, mechanism, carry.server, sums)
    if setting.trust == "shuffle" and setting.transcript:
        who, here, sent = shuffled(round_key(key, k, SHUFFLE), who, here, sent)
    if setting.transcript:
        info = info._replace(transcript=(who, here, sent))
    return Carry(server, clients), info


def _broadcast(algorithm: Any, server: Any) -> Any:
    return algorithm.broadcast(server)


def serve(
    algorithm: Any, mechanism: Any, server: Any, sums: Sums, *, key: Key, k: jax.Array, setting: Setting
) -> tuple[Any, RoundInfo]:
    """The server's half of a round: noise where it is the server's, and the step."""
    total = add_noise(algorithm, mechanism, sums, round_key(key, k, NOISE), server, setting)
    planned = cohort_size(algorithm, sums, setting)
    extra = sums.extra if setting.extra else jnp.zeros_like(sums.extra)
    server, server_info = algorithm.server(round_key(key, k, SERVER), server, total, extra, planned)
    counted = jnp.maximum(sums.present - sums.dropped, 1)
    noise = jnp.linalg.norm(total.sum - sums.clean)
    return server, RoundInfo(
        participants=sums.present,
        mean_norm=sums.norms / counted,
        clipped_share=sums.clipped / counted,
        dropped=sums.dropped,
        too_long=sums.too_long,
        signal_to_noise=jnp.where(noise > 0, jnp.linalg.norm(sums.clean) / noise, jnp.nan),
        server=server_info,
        transcript=None,
    )


def cohort_size(algorithm: Any, sums: Sums, setting: Setting) -> Scalar:
    """What the server divides by: the planned cohort, or where only records are secret the clients that answered."""
    if getattr(algorithm, "unit", Unit.CLIENT) is Unit.RECORD:
        return jnp.maximum(sums.present, 1)
    return setting.cohort.planned(setting.population)


def shuffled(key: Key, who: jax.Array, here: jax.Array, sent: Any) -> tuple[jax.Array, jax.Array, Any]:
    """What a shuffler hands on: the messages in random order, and -1 for whoever sent them."""
    order = jax.random.permutation(key, here.shape[0])
    return jnp.full_like(who, -1), here[order], jax.tree.map(lambda leaf: leaf[order], sent)


class Sums(NamedTuple):
    """Sums over the cohort."""

    clean: Vector  # of the bounded messages
    sent: Any  # of what clients sent, encoded or already noisy; None where that is the same
    squares: jax.Array | None  # of the messages' norms, in their measured part, where anybody asks
    before_noise: jax.Array | None  # estimates of the same before noise, where the mechanism has them
    extra: jax.Array
    present: jax.Array
    norms: jax.Array
    clipped: jax.Array
    dropped: jax.Array
    too_long: jax.Array

    @property
    def message(self) -> Any:
        """The sum of what the mechanism is given."""
        return self.clean if self.sent is None else self.sent


def noise_in_client(algorithm: Any, mechanism: Any, setting: Setting) -> bool:
    """Whether every message gets its own noise: local trust, and somebody asks for it or the sum has no law."""
    asked = setting.transcript or remembers_noise(algorithm)
    fixed_count = str(setting.cohort).startswith(("full", "fixed"))
    return setting.trust in ("local", "shuffle") and (asked or mechanism.aggregate is None or not fixed_count)


def remembers_noise(algorithm: Any) -> bool:
    """Whether a client's state is made from what it sent, noise and all."""
    return bool(getattr(algorithm, "remembers_noise", False))


def noise_on_sum_alone(mechanism: Any, setting: Setting) -> bool:
    """Whether the server learns one noisy sum of vectors and nothing of their norms."""
    return setting.trust == "central" and not hasattr(mechanism, "encode")


def add_noise(algorithm: Any, mechanism: Any, sums: Sums, key: Key, server: Any, setting: Setting) -> Aggregate:
    """The server's statistics, with the noise where trust puts it."""
    if noise_in_client(algorithm, mechanism, setting) or setting.trust == "none":
        return Aggregate(sums.message, sums.squares, sums.before_noise)
    if noise_on_sum_alone(mechanism, setting):
        scale = algorithm.noise_scale(server)
        # The sum is one vector: noise falls on it as on one message, in proportion to a bound that adapts.
        return Aggregate(scale * mechanism.randomize(key, sums.clean / scale), None)
    if setting.trust == "central":
        # Quantised messages are summed as they are; the server's noise falls on the sum as on one of them.
        summed: Aggregate = mechanism.aggregate(key, sums.message, sums.squares, 1)
        return summed
    count = setting.cohort.capacity(setting.population)
    measured = _measured(algorithm, mechanism, sums.message)
    if measured == len(sums.message):
        total: Aggregate = mechanism.aggregate(key, sums.message, sums.squares, count)
        return total
    # Noise that is independent from part to part: the measured part has its joint law, the others their sums'.
    key_measured, key_rest = jax.random.split(key)
    total = mechanism.aggregate(key_measured, sums.message[:measured], sums.squares, count)
    rest = mechanism.aggregate(key_rest, sums.message[measured:], jnp.float32(0), count)
    return total._replace(sum=jnp.concatenate([total.sum, rest.sum]))


def _measured(algorithm: Any, mechanism: Any, message: Any) -> int:
    """How many leading coordinates of a message the squared norms are about: its first part."""
    parts = getattr(algorithm, "message_parts", 1) if hasattr(mechanism, "squared_norm") else 1
    return len(message) // int(parts)


def _run_cohort(
    algorithm: Any,
    mechanism: Any,
    records: Records,
    states: Any,
    received: Any,
    who: jax.Array,
    here: jax.Array,
    key: Key,
    k: jax.Array,
    setting: Setting,
) -> tuple[Sums, Any, Any]:
    """All clients of the cohort: their sums, the population's states after them, and their messages where wanted."""
    places = who.shape[0]
    step = setting.chunk * setting.devices
    pad = -places % step
    who, here = jnp.pad(who, (0, pad)), jnp.pad(here, (0, pad))
    mine = jax.tree.map(lambda leaf: leaf[who], states)

    def on_device(who: jax.Array, here: jax.Array, mine: Any, shared: Any) -> tuple[RunningSum, Any, Any]:
        # Runs of a stack lie inside the client: they read its records together, as one larger matrix product.
        inside = setting.for_each_run(functools.partial(run_client, setting=setting), (None, None, 0, _STACKED))
        return _run_chunks(lambda *client: inside(*client, shared), who, here, mine, setting)

    shared = (algorithm, mechanism, records, received, key, k)
    if setting.devices > 1:
        on_device = _over_devices(on_device, setting.devices)
    summed, new, sent = on_device(who, here, mine, shared)
    # An absent place must not write: it is sent out of bounds, where scatter drops it.
    place = jnp.where(here, who, setting.population)
    states = jax.tree.map(lambda leaf, value: leaf.at[place].set(value, mode="drop"), states, new)
    return summed.value(), states, sent[:places] if setting.transcript else None


_Work = Callable[..., tuple[RunningSum, Any, Any]]


def _over_devices(work: _Work, devices: int) -> _Work:
    """The cohort dealt to the devices of this machine, their sums added up."""
    mesh = jax.make_mesh((devices,), ("device",), axis_types=(jax.sharding.AxisType.Auto,))
    mine, everybodys = jax.sharding.PartitionSpec("device"), jax.sharding.PartitionSpec()

    def on_device(who: jax.Array, here: jax.Array, states: Any, shared: Any) -> tuple[RunningSum, Any, Any]:
        summed, new, sent = work(who, here, states, shared)
        return jax.lax.all_gather(summed, "device").joined(), new, sent

    return jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=(mine, mine, mine, everybodys),
        out_specs=(everybodys, mine, mine),
        check_vma=False,
    )


def _run_chunks(
    one: Callable[..., tuple[Sums, Any, Any]], who: jax.Array, here: jax.Array, mine: Any, setting: Setting
) -> tuple[RunningSum, Any, Any]:
    """Clients in chunks: vmap inside, scan outside."""
    chunks = who.shape[0] // setting.chunk

    def cut(leaf: jax.Array) -> jax.Array:
        return leaf.reshape(chunks, setting.chunk, *leaf.shape[1:])

    def joined(leaf: jax.Array) -> jax.Array:
        return leaf.reshape(-1, *leaf.shape[2:])

    def chunk(so_far: RunningSum, part: tuple[jax.Array, jax.Array, Any]) -> tuple[RunningSum, tuple[Any, Any]]:
        clients, present, states = part

        def work(so_far: RunningSum) -> tuple[RunningSum, tuple[Any, Any]]:
            sums, new, sent = jax.vmap(one)(clients, present, states)
            return so_far.plus(RunningSum.of_each(sums)), (new, sent)

        if setting.transcript:
            return work(so_far)
        # The last chunks of a padded cohort are often empty.
        return jax.lax.cond(present.any(), work, lambda so_far: (so_far, (states, None)), so_far)

    shapes = jax.eval_shape(one, who[0], here[0], jax.tree.map(lambda leaf: leaf[0], mine))[0]
    zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    summed, (new, sent) = jax.lax.scan(chunk, RunningSum.of(zero), (cut(who), cut(here), jax.tree.map(cut, mine)))
    return summed, jax.tree.map(joined, new), jax.tree.map(joined, sent)


def run_client(
    client: jax.Array, present: jax.Array, state: Any, shared: Any, *, setting: Setting
) -> tuple[Sums, Any, Any]:
    """One client: train, bound, and randomise where noise is local. An absent one counts for nothing."""
    algorithm, mechanism, records, received, key, k = shared
    start, size = records.start[client], records.size[client]
    data = ClientData(setting.loss, records.x, records.y, start, size, setting.largest, client, setting.augment)
    key_client = jax.random.fold_in(round_key(key, k, CLIENT), client)
    g, extra, new_state, info = algorithm.client(key_client, received, state, data)
    key_noise = jax.random.fold_in(round_key(key, k, LOCAL_NOISE), client)
    message, sent, before_noise = g, g, None
    noisy = noise_in_client(algorithm, mechanism, setting)
    if noisy:
        mine = mechanism.of(client) if isinstance(mechanism, PerClient) else mechanism
        # What a mechanism sends beside the vector helps to tell its length.
        sent = mine.noisy_vector(key_noise, g) if hasattr(mine, "noisy_vector") else mine.randomize(key_noise, g)
        message = getattr(sent, "vector", sent)
        if remembers_noise(algorithm):
            new_state = algorithm.remembered(received, state, message)
    elif hasattr(mechanism, "encode"):
        message = mechanism.encode(key_noise, g)
    measured = message[: _measured(algorithm, mechanism, message)]
    if hasattr(mechanism, "squared_norm") and (noisy or setting.trust == "none"):
        before_noise = mechanism.squared_norm(measured if sent is message else sent)
    bound = bound_of(algorithm, received)
    unchecked = setting.trust == "none" or bound is None
    sums = Sums(
        clean=g,
        sent=None if message is g else message,
        squares=None if noise_on_sum_alone(mechanism, setting) else jnp.vdot(measured, measured).astype(jnp.float32),
        before_noise=before_noise,
        extra=extra,
        present=jnp.int32(1),
        norms=jnp.where(info.dropped, 0.0, info.norm),
        clipped=info.clipped.astype(jnp.int32),
        dropped=info.dropped.astype(jnp.int32),
        too_long=jnp.int32(0) if unchecked else too_long(g, bound).astype(jnp.int32),
    )
    sums = jax.tree.map(lambda leaf: jnp.where(present, leaf, jnp.zeros_like(leaf)), sums)
    new_state = jax.tree.map(lambda new, old: jnp.where(present, new, old), new_state, state)
    return sums, new_state, message if setting.transcript else None


def bound_of(algorithm: Any, received: Any) -> Any:
    """What caps a message of this round; None where nothing does."""
    return getattr(received, "bound", None) or algorithm.bound


def too_long(g: Vector, bound: Any) -> jax.Array:
    """Whether a message is beyond its bound. The certificate rests on methods that never send such a one."""
    share = g / bound.bound  # long and short bounds have no squares in float32
    return ~(jnp.vdot(share, share, precision=jax.lax.Precision.HIGHEST) <= (1 + SLACK) ** 2)  # NaN is within nothing


@functools.partial(jax.jit, static_argnames=("predict", "batch"))
def evaluate(
    w: Vector, x: jax.Array, y: jax.Array, *, predict: Callable[[Vector, jax.Array], jax.Array], batch: int = 1000
) -> tuple[jax.Array, jax.Array]:
    """(mean cross-entropy, accuracy) over a whole set, in batches."""
    n = y.shape[0]
    batches = -(-n // batch)
    index = jnp.minimum(jnp.arange(batches * batch), n - 1).reshape(batches, batch)
    real = (jnp.arange(batches * batch) < n).reshape(batches, batch)

    def one(
        carry: tuple[jax.Array, jax.Array], part: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], None]:
        rows, weight = part
        with jax.default_matmul_precision("highest"):  # a rounded score may name another class
            log_p = jax.nn.log_softmax(predict(w, x[rows]))
        loss = -jnp.take_along_axis(log_p, y[rows][:, None], axis=1)[:, 0]
        right = jnp.argmax(log_p, axis=1) == y[rows]
        return (carry[0] + jnp.sum(loss * weight), carry[1] + jnp.sum(right & weight)), None

    (loss, right), _ = jax.lax.scan(one, (jnp.float32(0), jnp.int32(0)), (index, real))
    return loss / n, right / n
