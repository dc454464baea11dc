"""The two turns of a deployed round, compiled once a study: what a node computes, and what its server does.

    node     Training     received, state, records -> what travels, and the client's next state
    server   Aggregation  what has travelled -> the sums, the noise on them where trust is central, the next state

Both run the functions of `rounds.turns` that simulations run; noise comes from the operating system (`deploy.noise`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sordino.algorithms.local import ClientData
from sordino.deploy.entropy import Words, key_from, os_words
from sordino.deploy.noise import Sent, adds_noise, randomize, randomize_sum, received_message, require_possible
from sordino.deploy.records import OwnRecords
from sordino.deploy.seam import Reason
from sordino.deploy.study import Study, restored
from sordino.deploy.wire import Update, WireError
from sordino.errors import SordinoError
from sordino.rounds.turns import ClientInfo, step_turn, tally, train_turn
from sordino.summation import RunningSum
from sordino.types import Aggregate, Key, Message, PyTree


class Turned(NamedTuple):
    """What a round leaves on a node: the body of its message, and the state that goes with it."""

    update: Update  # without the hash of a ledger entry
    state: PyTree


class Training:
    """Member i's turns of a study, on its own records."""

    def __init__(self, study: Study, i: int, records: OwnRecords, words: Words = os_words) -> None:
        self.study, self.i, self.words = study, i, words
        self._x, self._y = jnp.asarray(records.x), jnp.asarray(records.y)
        self._numbers = study.numbers(i)

    def first_state(self) -> PyTree:
        """The member's state before its first round."""
        return self.study.rules.method.init_client(self.study.initial())

    def restored(self, arrays: list[NDArray[Any]]) -> PyTree:
        """The state whose leaves were stored."""
        return restored(arrays, self.first_state)

    def __call__(self, arrays: list[NDArray[Any]], state: PyTree) -> Turned:
        """Train on what was received, bound, and add the noise that the plan places here."""
        rules, method = self.study.rules, self.study.rules.method
        received = jax.tree.unflatten(self.study.broadcast[1], [jnp.asarray(array) for array in arrays])
        bounded, after, info = self._train(key_from(self.words), received, state, self._x, self._y)
        if bool(info.exceeds_limit):  # noise hides no longer vectors than it was made for
            raise SordinoError("the message is longer than the bound that the noise was made for: the method is wrong")
        sent = randomize(rules, self._numbers, bounded, self.words)
        message = received_message(rules, self._numbers, sent)
        if adds_noise(rules):
            as_read = rules.mechanism.for_client(self._numbers).read(message.vector)
            after = method.after_noise(received, state, after, as_read)
        return Turned(_update_of(sent), after)

    @cached_property
    def _train(self) -> Any:
        rules, loss, numbers = self.study.rules, self.study.loss, self._numbers

        def train(
            key: Key, received: PyTree, state: PyTree, x: jax.Array, y: jax.Array
        ) -> tuple[Message, PyTree, ClientInfo]:
            return train_turn(rules, key, received, state, ClientData.own(loss, x, y, numbers))

        return jax.jit(train)


def _update_of(sent: Sent) -> Update:
    values = sent.integers if sent.floats is None else sent.floats
    assert values is not None
    return Update(bytes(32), values, None if sent.level is None else float(sent.level), sent.side)


class Aggregation:
    """The server's turns of a study."""

    def __init__(self, study: Study, words: Words = os_words) -> None:
        self.study, self.words = study, words

    def first_state(self) -> PyTree:
        """The server's state before the first round."""
        return self.study.rules.method.init_server(self.study.initial())

    def restored(self, arrays: list[NDArray[Any]]) -> PyTree:
        """The state whose leaves were stored."""
        return restored(arrays, self.first_state)

    def check(self, i: int, update: Update, state: PyTree) -> Message:
        """Member i's message as the server reads it; refused where no honest node sends it."""
        rules, numbers = self.study.rules, self.study.numbers(i)
        sent = _sent_of(update, is_float=self.study.coding(i).is_float)
        message = received_message(rules, numbers, sent)
        limit = rules.method.limit(rules.method.broadcast(state), numbers)
        require_possible(rules, numbers, None if limit is None else float(limit), message)
        return message

    def __call__(self, state: PyTree, messages: Mapping[int, Message]) -> PyTree:
        """The state after a round in which these members answered."""
        rules = self.study.rules
        tallies = [tally(rules, messages[i], self.study.numbers(i)) for i in sorted(messages)]
        total: Aggregate = RunningSum.of_each(jax.tree.map(lambda *each: jnp.stack(each), *tallies)).value()
        noisy = randomize_sum(rules, state, total, self.words)
        return self._step(key_from(self.words), state, noisy)

    @cached_property
    def _step(self) -> Any:
        rules = self.study.rules
        return jax.jit(lambda key, state, total: step_turn(rules, key, state, total)[0])


def _sent_of(update: Update, *, is_float: bool) -> Sent:
    level = None if update.level is None else int(update.level)
    if level != update.level or abs(level or 0) >= 2**31:
        raise WireError(Reason.RANGE, f"level {update.level}: must be a whole number")
    if is_float:
        return Sent(floats=np.asarray(update.values, np.float32), level=level, side=update.side)
    return Sent(integers=np.asarray(update.values, np.int64).astype(np.int32), level=level, side=update.side)
