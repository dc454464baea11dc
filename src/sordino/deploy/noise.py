"""The noise of a deployed round, on the host: what a node does between its training and the wire, and the server's sum.

    node     train_turn -> randomize -> Sent, the only thing that leaves; received_message -> after_noise
    server   received_message -> tally -> sum -> randomize_sum -> step_turn

`received_message` is the same function on both sides, in NumPy's float64: both get the same bits.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sordino.deploy.entropy import (
    LOWEST,
    Words,
    coin_noise,
    key_from,
    lattice_integers,
    os_words,
    quantize,
    quantized_noise,
    read_integers,
    with_lattice_noise,
)
from sordino.deploy.seam import Reason
from sordino.deploy.wire import Coding, WireError
from sordino.errors import InvalidInput, SordinoError
from sordino.mechanisms.binomial import Binomial
from sordino.mechanisms.gaussian import Gaussian
from sordino.mechanisms.privunit import PrivUnit
from sordino.mechanisms.qtdl import Qtdl
from sordino.planning.resolved import Rules
from sordino.rounds.turns import SLACK, side_noise_std
from sordino.types import Aggregate, ClientNumbers, Mechanism, Message, Placement, PyTree, Sampler

TAIL = 8.0  # noise is longer than sqrt(d) + TAIL stds with probability exp(-TAIL^2 / 2) < 2e-14


class Sent(NamedTuple):
    """What goes on the wire: integers or floats, and what travels beside them."""

    integers: NDArray[np.int32] | None = None
    floats: NDArray[np.float32] | None = None
    level: int | None = None  # of PrivUnit's norm
    side: float | None = None  # with central trust: a scalar that the server will add noise to


def coding(rules: Rules, numbers: ClientNumbers | None, length: int) -> Coding:
    """How the coordinates of a client's messages travel, of which there are `length`."""
    mechanism = _mechanism(rules, numbers)
    if isinstance(mechanism, Gaussian):
        return Coding(length, 32, LOWEST, is_float=False)
    if isinstance(mechanism, Qtdl):
        return Coding(length, mechanism.symbol_bits, -(2 ** (mechanism.symbol_bits - 1)), is_float=False)
    if isinstance(mechanism, Binomial):
        return Coding(length, mechanism.symbol_bits, -(mechanism.levels + mechanism.coins // 2), is_float=False)
    return Coding(length)


def adds_noise(rules: Rules) -> bool:
    """Whether a client's messages carry noise of its own."""
    return rules.placement not in (Placement.NONE, Placement.ON_SUM)


def has_level(rules: Rules, numbers: ClientNumbers | None) -> bool:
    """Whether a level travels beside a client's messages."""
    return isinstance(_mechanism(rules, numbers), PrivUnit)


def randomize(rules: Rules, numbers: ClientNumbers | None, bounded: Message, words: Words = os_words) -> Sent:
    """The message of `train_turn` with the noise that the plan places in the client, as it travels.

    The caller checks `ClientInfo.exceeds_limit` first: noise hides no longer vectors than it was made for.
    """
    mechanism, vector = _mechanism(rules, numbers), np.asarray(bounded.vector, np.float32)
    if mechanism is None:
        return Sent(floats=vector, side=None if bounded.side is None else float(bounded.side))
    if bounded.side is not None:
        raise SordinoError("a side scalar would leave the client without noise: use trust central")
    if isinstance(mechanism, Gaussian):
        return Sent(lattice_integers(words, vector, float(mechanism.noise_std)))
    if isinstance(mechanism, PrivUnit):
        message = mechanism.message(key_from(words), jnp.asarray(vector))
        assert message.level is not None
        return Sent(floats=np.asarray(message.vector, np.float32), level=int(message.level))
    assert isinstance(mechanism, Qtdl | Binomial)
    if mechanism.d is not None and vector.shape != (mechanism.d,):
        raise InvalidInput("vector", vector.shape, f"the mechanism was made for {mechanism.d} coordinates")
    whole = quantize(words, vector, mechanism.levels, float(mechanism.bound))
    if isinstance(mechanism, Binomial):
        return Sent((whole + coin_noise(words, mechanism.coins, len(whole))).astype(np.int32))
    noisy = whole + quantized_noise(words, mechanism.calibration, len(whole))
    half = 2 ** (mechanism.symbol_bits - 1)
    return Sent((((noisy + half) & (2 * half - 1)) - half).astype(np.int32))


def received_message(rules: Rules, numbers: ClientNumbers | None, sent: Sent) -> Message:
    """The message that `tally` takes, from what has travelled."""
    mechanism = _mechanism(rules, numbers)
    level = None if sent.level is None else jnp.int32(sent.level)
    side = None if sent.side is None else jnp.float32(sent.side)
    if sent.floats is not None:
        return Message(jnp.asarray(sent.floats, jnp.float32), side, level)
    if sent.integers is None:
        raise InvalidInput("message", None, "holds neither integers nor floats")
    if isinstance(mechanism, Gaussian):
        return Message(jnp.asarray(read_integers(sent.integers, float(mechanism.noise_std))), side, level)
    return Message(jnp.asarray(sent.integers, jnp.int32), side, level)


def require_possible(rules: Rules, numbers: ClientNumbers | None, limit: float | None, message: Message) -> None:
    """Refuse a message that no honest node sends: longer than bound and noise allow, or of an impossible level."""
    mechanism = _mechanism(rules, numbers)
    if message.side is not None:
        least, most_side = rules.method.side_range() or (-math.inf, math.inf)
        if not least <= float(message.side) <= most_side:
            raise WireError(
                Reason.RANGE, f"a side scalar of {float(message.side):g}, outside {least:g} to {most_side:g}"
            )
    length = float(np.linalg.norm(np.asarray(message.vector, np.float64)))
    if isinstance(mechanism, PrivUnit):
        assert message.level is not None
        level = int(message.level)
        if not 0 <= level <= mechanism.norm.constants.k:
            raise WireError(Reason.RANGE, f"level {level}: there are {mechanism.norm.constants.k + 1}")
        exact = abs(float(mechanism.norm.value(jnp.int32(level)))) / mechanism.direction.m
        if not abs(length - exact) <= 1e-3 * exact:
            raise WireError(Reason.TOO_LONG, f"a message of length {length:g}, and its level says {exact:g}")
    elif isinstance(mechanism, Qtdl | Binomial):
        reach = _reach(mechanism)
        furthest = int(np.max(np.abs(np.asarray(message.vector, np.int64))))
        if reach is not None and furthest > reach:
            raise WireError(Reason.RANGE, f"a coordinate of {furthest} steps, and at most {reach} are possible")
    elif limit is not None and (mechanism is None or isinstance(mechanism, Gaussian)):
        noise = 0.0 if mechanism is None else float(mechanism.noise_std) * (math.sqrt(len(message.vector)) + TAIL)
        most = limit * (1 + SLACK) + noise
        if not length <= most:
            raise WireError(Reason.TOO_LONG, f"a message of length {length:g}, and at most {most:g} is possible")


def _reach(mechanism: Qtdl | Binomial) -> int | None:
    """How far from zero a symbol can be; None where noise has no end, and all symbols are possible."""
    if isinstance(mechanism, Binomial):
        return mechanism.levels + mechanism.coins // 2
    ends = mechanism.calibration.law == "truncated-laplace"
    return mechanism.levels + mechanism.calibration.support if ends else None


def randomize_sum(rules: Rules, state: PyTree, total: Aggregate, words: Words = os_words) -> Aggregate:
    """The sums of a round with the server's noise, where the plan places it there; `step_turn` comes next."""
    if rules.placement is not Placement.ON_SUM:
        return total
    mechanism = rules.mechanism
    if not isinstance(mechanism, Gaussian) or mechanism.sampler is not Sampler.LATTICE:
        raise InvalidInput("mechanism", mechanism.name, "a server adds Gaussian noise on a lattice: see `deploy`")
    std = float(rules.method.noise_scale(state)) * float(mechanism.noise_std)
    noisy = with_lattice_noise(words, np.asarray(total.sum, np.float32), std)
    side = total.side
    if side is not None:
        beside = with_lattice_noise(words, np.asarray(side, np.float32), float(side_noise_std(rules)))
        side = jnp.asarray(beside, jnp.float32)
    return total._replace(sum=jnp.asarray(noisy), side=side)


def _mechanism(rules: Rules, numbers: ClientNumbers | None) -> Mechanism | None:
    """The noise that a client adds to its own message; None where it adds none."""
    if rules.placement in (Placement.NONE, Placement.ON_SUM):
        return None
    if rules.placement is Placement.LAW_OF_SUM:
        raise SordinoError("these rules draw the noise of all clients at once, in simulations: deploy the plan first")
    mechanism = rules.mechanism.for_client(numbers)
    if not isinstance(mechanism, Gaussian | Qtdl | Binomial | PrivUnit):
        remedy = "its noise is not drawn exactly on a node: use gaussian, qtdl, binomial or privunit"
        raise InvalidInput("mechanism", mechanism.name, remedy)
    return mechanism
