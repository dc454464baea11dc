"""The two turns of a round, as pure functions. The engine, the debug engine and a deployment call the same ones.

client_turn   what a client runs: train, bound, and randomise where the plan places the noise in the client
tally         what the server computes from one message that has arrived; the results are summed
server_turn   what the server runs: noise where the plan places it on the sum, and the method's step

`train_turn` and `step_turn` are these turns without noise, for a deployment, which draws its noise on the host.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from sordino.algorithms.local import ClientData
from sordino.bounding._norm import surely_within
from sordino.errors import SordinoError
from sordino.keys import require_generator
from sordino.planning.resolved import Rules
from sordino.types import Aggregate, BoundInfo, Key, Message, Placement, PyTree, Scalar, Unit, Vector

SLACK = 1e-3  # for rounding in messages that protect records, whose certificate rests on the clip of each record


class ClientKeys(NamedTuple):
    """The randomness of one client's turn. `noise` is given to the mechanism alone: a node may pass another source."""

    training: Key
    noise: Key


class ServerKeys(NamedTuple):
    """The randomness of the server's turn: noise on the sum, noise on the sum of side scalars, the method's own."""

    noise: Key
    side: Key
    step: Key


class ClientInfo(NamedTuple):
    """Diagnostics of one client's turn. Computed on private data: never released."""

    bounded: Vector | None  # the message before noise and quantisation; None where that is what was sent
    bounding: BoundInfo
    exceeds_limit: jax.Array  # the message is longer than the limit that the noise was made for


class ServerInfo(NamedTuple):
    """What the server tells of its turn, computed from its releases."""

    method: PyTree  # the method's own
    noisy_sum: Vector


def client_turn(
    rules: Rules, keys: ClientKeys, received: PyTree, state: PyTree, data: ClientData
) -> tuple[Message, PyTree, ClientInfo]:
    """All that one client does in a round -> all that leaves it, its state, and what is for its own eyes only."""
    _require_generators(keys)
    method, mechanism = rules.method, rules.mechanism.for_client(data.numbers)
    bounded, after, info = train_turn(rules, keys.training, received, state, data)
    if rules.placement is Placement.IN_SHARES:
        sent = mechanism.message(keys.noise, bounded.vector)
    elif rules.placement is Placement.IN_CLIENT:
        sent = mechanism.message(keys.noise, bounded.vector)._replace(side=bounded.side)
        after = method.after_noise(received, state, after, mechanism.read(sent.vector))
    else:
        sent = bounded._replace(vector=mechanism.encode(keys.noise, bounded.vector))
    unchanged = sent.vector is bounded.vector
    return sent, after, info._replace(bounded=None) if unchanged else info


def train_turn(
    rules: Rules, key: Key, received: PyTree, state: PyTree, data: ClientData
) -> tuple[Message, PyTree, ClientInfo]:
    """A client's turn up to its noise -> the bounded message, the client's state before any noise, and diagnostics.

    Nothing of it may leave the client as it is: noise, or with central trust the server's word, comes after.
    """
    require_generator(key, "key")
    method = rules.method
    bounded, after, bounding = method.client(key, received, state, data)
    limit = method.limit(received, data.numbers)
    private = rules.placement is not Placement.NONE
    if private and bounded.side is not None and not rules.side_is_priced:
        raise SordinoError(f"{type(method).__name__}.client sends a side scalar that no side_event accounts for")
    exceeds = (
        exceeds_limit(bounded.vector, limit, method.privacy.unit) if private and limit is not None else jnp.bool_(False)
    )
    return bounded, after, ClientInfo(bounded.vector, bounding, exceeds)


def tally(rules: Rules, message: Message, numbers: PyTree = None) -> Aggregate:
    """What the server computes from one message: a term of the sums over the cohort."""
    mechanism = rules.mechanism.for_client(numbers)
    one = jnp.int32(1)
    if rules.placement in (Placement.ON_SUM, Placement.IN_SHARES):
        # The server learns one noisy sum and nothing of the messages' norms.
        return Aggregate(message.vector, side=message.side, cohort=one)
    in_client = rules.placement is Placement.IN_CLIENT
    vector = mechanism.read(message.vector) if in_client else message.vector
    first = vector[: measured_length(rules, len(vector))]
    simulated = rules.placement is Placement.LAW_OF_SUM
    estimate = None if simulated else mechanism.squared_norm(message._replace(vector=first))
    squares = jnp.vdot(first, first).astype(jnp.float32)
    return Aggregate(vector, squares, estimate, message.side, one)


def measured_length(rules: Rules, length: int) -> int:
    """The leading coordinates of a message whose squared norm is estimated: its first part."""
    parts = rules.method.privacy.message_parts if rules.mechanism.estimates_squared_norm else 1
    return length // parts


def server_turn(rules: Rules, keys: ServerKeys, state: PyTree, total: Aggregate) -> tuple[PyTree, ServerInfo]:
    """All that the server does with the messages of a round -> its state, and what it tells of the round.

    `total` is the sum of the `tally` of every message; its cohort is the number of clients that answered.
    """
    _require_generators(keys)
    method = rules.method
    if rules.placement is Placement.IN_SHARES:
        total = total._replace(sum=rules.mechanism.read(total.sum))
    if rules.mechanism.fewest is not None:  # with fewer shares of noise no sum is opened
        total = total._replace(sum=jnp.where(total.cohort >= rules.mechanism.fewest, total.sum, 0.0))
    _require_length(rules, state, total.sum)
    if rules.placement is Placement.ON_SUM:
        noisy = rules.mechanism.randomize_sum(keys.noise, total.sum, method.noise_scale(state))
        total = total._replace(sum=noisy)
        if total.side is not None:
            std = side_noise_std(rules)
            total = total._replace(side=rules.mechanism.randomize_side(keys.side, total.side, std))
    return step_turn(rules, keys.step, state, total)


def side_noise_std(rules: Rules) -> Scalar:
    """The std of the noise on the sum of side scalars, which are never released without."""
    std = rules.method.side_noise_std()
    if std is None:
        raise SordinoError(f"{type(rules.method).__name__}: side scalars would be released without noise")
    return std


def step_turn(rules: Rules, key: Key, state: PyTree, total: Aggregate) -> tuple[PyTree, ServerInfo]:
    """The server's turn once all noise has been added -> its state, and what it tells of the round."""
    require_generator(key, "key")
    _require_length(rules, state, total.sum)
    answered = jnp.maximum(total.cohort, 1)
    cohort: Scalar = answered if rules.planned_cohort is None else rules.planned_cohort
    state, info = rules.method.server(key, state, total._replace(cohort=cohort))
    return state, ServerInfo(info, total.sum)


def _require_generators(keys: ClientKeys | ServerKeys) -> None:
    for name, key in keys._asdict().items():
        require_generator(key, f"keys.{name}")


def _require_length(rules: Rules, state: PyTree, total: jax.Array) -> None:
    """Refuse messages of another length than the noise was made for."""
    d, parts = jax.eval_shape(rules.method.params, state).shape[0], rules.method.privacy.message_parts
    if rules.placement is not Placement.NONE and total.shape[0] != parts * d:
        name = type(rules.method).__name__
        raise SordinoError(f"{name}.client sends {total.shape[0]} numbers, and the noise was made for {parts * d}")


def exceeds_limit(vector: Vector, limit: Scalar, unit: Unit = Unit.CLIENT) -> jax.Array:
    """Whether a message is longer than its limit, on which the certificate of methods that protect clients rests.

    Then not even the last bit is given away: what is not proven to lie within exceeds. Bounders leave room for that.
    """
    return ~surely_within(vector, limit if unit is Unit.CLIENT else (1 + SLACK) * limit)
