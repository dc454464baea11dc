"""What every mechanism promises. A new file in `sordino.mechanisms` is enrolled by being there."""

import importlib
import inspect
import json
import math
import pkgutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sordino.mechanisms as mechanisms
from sordino.bounding import clip
from sordino.errors import InvalidInput, Refused
from sordino.mechanisms._packing import PackedIntegers
from sordino.privacy import account_of
from sordino.privacy.events import Claimed, Event, event_from_json, event_to_json
from sordino.types import Aggregate, Mechanism, Message, Relation

D, BOUND, CLIENTS = 12, 0.7, 5
NAMES = [
    module.name
    for module in pkgutil.iter_modules(mechanisms.__path__)
    if not module.name.startswith("_") and module.name != "request"
]
FACTORIES = {name: getattr(importlib.import_module(f"sordino.mechanisms.{name}"), name) for name in NAMES}

PRIVUNIT = {"d": D, "eps0": 2.0, "eps1": 2.0, "eps2": 2.0, "bound": BOUND}
QTDL = {"d": D, "levels": 8, "epsilon": 4.0, "delta": 1e-5, "bound": BOUND}

# Settings for vectors of D coordinates and norm at most BOUND, at least one for every file.
EXAMPLES = {
    "binomial": [{"d": D, "levels": 8, "coins": 20_000, "bound": BOUND}],
    "discrete_gaussian": [{"levels": 8, "noise_std": 20.0, "bound": BOUND}],
    "gaussian": [{"noise_std": 0.5}],
    "laplace": [{"noise_scale": 0.5}],
    "none": [{}],
    "privunit": [PRIVUNIT],
    "qtdl": [
        QTDL,
        {**QTDL, "noise": "laplace", "delta": 0.0},
        {**QTDL, "noise": "truncated-laplace", "mu": 0.1},
        {**QTDL, "noise": "theorem-1", "epsilon": 1.0},
    ],
    "scalar_dp": [{"eps2": 2.0, "bound": BOUND}],
    "secure_sum": [{"d": D, "clients": CLIENTS, "noise_multiplier": 2.0, "bound": BOUND}],
    "truncated_laplace": [{"noise_scale": 0.5, "cutoff": 8.0}],
}

# What cannot be meant, and the word that the message must hold. Each overrides the first example.
WRONG = {
    "binomial": [
        ({"d": 0}, "dim"),
        ({"levels": 0}, "levels"),
        ({"levels": 2.5}, "levels"),
        ({"coins": 0}, "coins"),
        ({"coins": 10.5}, "coins"),
        ({"coins": None}, "coins"),
        ({"epsilon": 1.0}, "coins"),
        ({"coins": None, "epsilon": -1.0}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"bound": 0.0}, "bound"),
        ({"bound": math.inf}, "bound"),
        ({"mu": -1.0}, "mu"),
    ],
    "discrete_gaussian": [
        ({"levels": 0}, "levels"),
        ({"levels": 2.5}, "levels"),
        ({"noise_std": 0.0}, "noise_std"),
        ({"noise_std": math.nan}, "noise_std"),
        ({"noise_std": math.inf}, "noise_std"),
        ({"bound": -1.0}, "bound"),
        ({"bound": math.inf}, "bound"),
    ],
    "gaussian": [
        *(({"noise_std": value}, "noise_std") for value in (-1.0, math.nan, math.inf)),
        ({"sampler": "float64"}, "sampler"),
        *(({"rounding": value}, "rounding") for value in (-0.1, math.nan, 1.0)),
    ],
    "laplace": [({"noise_scale": value}, "noise_scale") for value in (-1.0, math.nan, math.inf)],
    "none": [],
    "privunit": [
        ({"d": 1}, "dim"),
        ({"eps0": 0.0}, "eps0"),
        ({"eps1": -1.0}, "eps1"),
        ({"eps2": math.nan}, "eps2"),
        ({"bound": 0.0}, "bound"),
        ({"gamma": "guess"}, "gamma"),
        ({"gamma": "condition-2"}, "second sufficient condition"),
        ({"gamma": "condition-1", "d": 2}, "first sufficient condition"),
    ],
    "qtdl": [
        ({"d": 0}, "dim"),
        ({"levels": 0}, "levels"),
        ({"levels": 2.5}, "levels"),
        ({"levels": 2**30}, "levels"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"delta": 0.0, "noise": "gaussian"}, "delta"),
        ({"noise": "white"}, "noise"),
        ({"bound": math.nan}, "bound"),
        ({"bound": math.inf}, "bound"),
        ({"mu": 0.0}, "mu"),
        ({"noise": "theorem-1", "epsilon": 50.0}, "epsilon"),
    ],
    "scalar_dp": [({"eps2": 0.0}, "eps2"), ({"eps2": math.nan}, "eps2"), ({"bound": 0.0}, "bound")],
    "secure_sum": [
        ({"d": 0}, "d"),
        ({"clients": 0}, "fewest"),
        ({"fewest": 0}, "fewest"),
        ({"fewest": CLIENTS + 1}, "fewest"),
        ({"colluding": CLIENTS}, "colluding"),
        ({"colluding": -1}, "colluding"),
        ({"bits": 3}, "bits"),
        ({"bits": 31}, "bits"),
        ({"bits": 5}, "bits"),
        *(({"noise_multiplier": value}, "noise_multiplier") for value in (0.0, math.nan, math.inf)),
        *(({"bound": value}, "bound") for value in (0.0, math.nan, math.inf)),
    ],
    "truncated_laplace": [
        *(({"noise_scale": value}, "noise_scale") for value in (0.0, -1.0, math.nan, math.inf)),
        *(({"cutoff": value}, "cutoff") for value in (0.0, math.nan, math.inf)),
    ],
}


def settings_of(names):
    """(name, index) for every example, so that a missing one fails in the test that asks for it."""
    return [(name, i) for name in names for i in range(len(EXAMPLES.get(name, [{}])))]


def make(name, i=0, **overrides):
    if name not in EXAMPLES:
        pytest.fail(f"mechanisms/{name}.py has no example here: add its settings to EXAMPLES and WRONG")
    return FACTORIES[name](**{**EXAMPLES[name][i], **overrides})


SCALAR = "scalar_dp"  # works on a norm, not on a vector: a part of PrivUnit with a contract of its own
SUMS = "secure_sum"  # its messages are read in sums alone: tests/statistical/test_secure_sum.py has its contract
VECTORS = [name for name in NAMES if name not in (SCALAR, SUMS)]
every_mechanism = pytest.mark.parametrize(("name", "i"), settings_of(VECTORS))

randomize = jax.jit(lambda mechanism, key, vector: mechanism.randomize(key, vector))
randomize_all = jax.jit(lambda mechanism, keys, vectors: jax.vmap(mechanism.randomize)(keys, vectors))


def whole_numbers(mechanism):
    return isinstance(mechanism.wire, PackedIntegers)


def vector(length=0.6, d=D, seed=0):
    direction = np.random.default_rng(seed).normal(size=d)
    return jnp.asarray(length * direction / np.linalg.norm(direction), jnp.float32)


def test_every_file_is_exported_and_has_an_example():
    assert set(NAMES) == {name for name, value in vars(mechanisms).items() if inspect.isfunction(value)}
    assert all(getattr(mechanisms, name) is FACTORIES[name] for name in NAMES)
    missing = sorted(set(NAMES) - (EXAMPLES.keys() & WRONG.keys()))
    assert not missing, f"new mechanisms without example settings: add {missing} to EXAMPLES and WRONG"
    assert EXAMPLES.keys() == WRONG.keys() == set(NAMES)


@every_mechanism
def test_is_a_frozen_mechanism_and_a_pytree(name, i):
    mechanism = make(name, i)
    assert isinstance(mechanism, Mechanism)
    assert jax.tree.map(lambda leaf: leaf, mechanism) == mechanism
    assert all(isinstance(leaf, float) for leaf in jax.tree.leaves(mechanism))
    assert make(name, i) == mechanism
    with pytest.raises(AttributeError):
        mechanism.bound = 2.0


@every_mechanism
def test_the_key_decides_everything(name, i):
    mechanism, u = make(name, i), vector()
    first = randomize(mechanism, jax.random.key(1), u)
    np.testing.assert_array_equal(first, randomize(mechanism, jax.random.key(1), u))
    others = [randomize(mechanism, jax.random.key(seed), u) for seed in range(2, 6)]
    assert all(np.any(first != other) for other in others) == (name != "none")


@every_mechanism
def test_compiled_or_not_the_message_is_the_same_float32_vector(name, i):
    mechanism, key = make(name, i), jax.random.key(0)
    eager = mechanism.randomize(key, vector())
    assert eager.shape == (D,)
    assert eager.dtype == jnp.float32
    np.testing.assert_allclose(randomize(mechanism, key, vector()), eager, rtol=2e-6, atol=2e-6)


@every_mechanism
def test_clients_are_a_vmap(name, i):
    mechanism = make(name, i)
    keys = jax.random.split(jax.random.key(0), CLIENTS)
    vectors = jnp.stack([vector(seed=client) for client in range(CLIENTS)])
    together = randomize_all(mechanism, keys, vectors)
    for key, u, message in zip(keys, vectors, together, strict=True):
        np.testing.assert_allclose(message, randomize(mechanism, key, u), rtol=2e-6, atol=2e-6)


@every_mechanism
@pytest.mark.parametrize("u", [np.zeros(D), vector(BOUND), np.full(D, 1e-20), 1.5e-19 * np.arange(D)])
def test_zero_tiny_and_longest_vectors_give_finite_messages(name, i, u):
    assert np.all(np.isfinite(randomize(make(name, i), jax.random.key(0), jnp.asarray(u, jnp.float32))))


@every_mechanism
def test_another_number_does_not_compile_again(name, i):
    traces = []

    @jax.jit
    def counted(mechanism, key, u):
        traces.append(mechanism)
        return mechanism.randomize(key, u)

    first = counted(make(name, i), jax.random.key(0), vector())
    again = counted(make(name, i), jax.random.key(0), vector())  # equal settings, made anew
    np.testing.assert_array_equal(first, again)
    other = jax.tree.map(lambda leaf: 0.97 * leaf, make(name, i))
    second = counted(other, jax.random.key(0), vector())
    assert len(traces) == 1
    assert np.any(first != second) == bool(jax.tree.leaves(other))


@every_mechanism
def test_a_sweep_is_a_vmap_over_the_leaves(name, i):
    settings = [jax.tree.map(lambda leaf, x=x: x * leaf, make(name, i)) for x in (1.0, 1.1, 3.0)]
    if not jax.tree.leaves(settings[0]):
        return
    sweep = jax.tree.map(lambda *leaves: jnp.asarray(leaves, jnp.float32), *settings)
    together = jax.vmap(randomize, in_axes=(0, None, None))(sweep, jax.random.key(0), vector())
    for message, mechanism in zip(together, settings, strict=True):
        alone = randomize(mechanism, jax.random.key(0), vector())
        np.testing.assert_allclose(message, alone, rtol=2e-6, atol=2e-6)


@every_mechanism
def test_bits_are_a_positive_whole_number_that_grows_with_d(name, i):
    mechanism = make(name, i)
    sizes = [mechanism.bits(d) for d in (1, 2, D, 10**6)]
    assert all(type(bits) is int and bits > 0 for bits in sizes)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] <= 33 * 10**6


@every_mechanism
@pytest.mark.parametrize("relation", list(Relation))
def test_its_event_can_be_accounted_and_written_down(name, i, relation):
    event = make(name, i).event(clip(BOUND), relation, D)
    assert isinstance(event, Event)
    assert event_from_json(json.loads(json.dumps(event_to_json(event), allow_nan=False))) == event
    account = account_of(event, relation)
    epsilon = account.epsilon(1e-5)
    if name == "none" or isinstance(event, Claimed):  # nothing is promised, and a false promise is no better
        assert epsilon == math.inf
        assert bool(account.claims) == isinstance(event, Claimed)
    else:
        assert 0 < epsilon < math.inf
        assert account.delta(epsilon) <= 1e-5 * (1 + 1e-6)


@every_mechanism
def test_replacing_a_unit_costs_at_least_as_much_as_removing_it(name, i):
    mechanism = make(name, i)
    cost = {
        relation: account_of(mechanism.event(clip(BOUND), relation, D), relation).epsilon(1e-5) for relation in Relation
    }
    assert cost[Relation.ZERO_OUT] == cost[Relation.ADD_REMOVE] <= cost[Relation.REPLACE_ONE]


@pytest.mark.parametrize("name", ["binomial", "discrete_gaussian", "privunit", "qtdl"])
def test_vectors_longer_than_the_mechanism_was_made_for_have_no_event(name):
    make(name).event(clip(0.5 * BOUND), Relation.REPLACE_ONE, D)
    with pytest.raises(InvalidInput, match="bound = "):
        make(name).event(clip(1.01 * BOUND), Relation.REPLACE_ONE, D)


def test_privunit_has_no_event_in_another_dimension():
    with pytest.raises(InvalidInput, match="d = 13"):
        make("privunit").event(clip(BOUND), Relation.REPLACE_ONE, 13)


@pytest.mark.parametrize("name", ["gaussian", "laplace"])
def test_no_noise_is_no_privacy(name):
    quiet = FACTORIES[name](0.0)
    np.testing.assert_array_equal(quiet.randomize(jax.random.key(0), vector()), vector())
    event = quiet.event(clip(BOUND), Relation.REPLACE_ONE, D)
    assert account_of(event, Relation.REPLACE_ONE).epsilon(1e-5) == math.inf


def test_none_leaves_everything_alone():
    none = make("none")
    np.testing.assert_array_equal(none.randomize(jax.random.key(0), vector()), vector())
    found = none.aggregate(jax.random.key(0), vector(), jnp.float32(2.0), 3)
    np.testing.assert_array_equal(found.sum, vector())
    assert found.sum_of_squared_norms == 2.0


@every_mechanism
def test_an_aggregate_has_the_shape_of_a_sum(name, i):
    mechanism = make(name, i)
    if mechanism.aggregate is None:
        assert name in ("privunit", "truncated_laplace")
        return
    total = mechanism.encode(jax.random.key(0), jnp.zeros(D))
    assert total.dtype == (jnp.int32 if whole_numbers(mechanism) else jnp.float32)
    draw = jax.jit(lambda mechanism, key: mechanism.aggregate(key, total, jnp.float32(0.0), CLIENTS))
    aggregate = draw(mechanism, jax.random.key(0))
    assert isinstance(aggregate, Aggregate)
    assert aggregate.sum.shape == (D,)
    assert aggregate.sum.dtype == jnp.float32
    assert np.all(np.isfinite(aggregate.sum))
    np.testing.assert_array_equal(draw(mechanism, jax.random.key(0)).sum, aggregate.sum)
    squares = aggregate.sum_of_squared_norms
    if squares is not None:
        assert squares.shape == ()
        assert squares * CLIENTS >= (1 - 1e-5) * np.vdot(aggregate.sum, aggregate.sum)


@every_mechanism
def test_what_a_client_sends_without_noise_stands_for_its_vector(name, i):
    """The vector itself, or integers that stand for it to within one level."""
    mechanism = make(name, i)
    sent = mechanism.encode(jax.random.key(0), vector())
    np.testing.assert_array_equal(mechanism.encode(jax.random.key(0), jnp.zeros(D, jnp.float32)), np.zeros(D))
    if not whole_numbers(mechanism):
        np.testing.assert_array_equal(sent, vector())
        return
    assert np.max(np.abs(sent)) <= mechanism.levels
    assert np.max(np.abs(mechanism.read(sent) - vector())) <= mechanism.bound / mechanism.levels


@every_mechanism
def test_a_message_is_what_randomize_reads(name, i):
    """Symbols travel as int32, and all that a mechanism sends beside the vector is in the message."""
    mechanism, key = make(name, i), jax.random.key(0)
    message = mechanism.message(key, vector())
    assert isinstance(message, Message)
    assert message.vector.dtype == (jnp.int32 if whole_numbers(mechanism) else jnp.float32)
    assert (message.side, message.level is not None) == (None, name == "privunit")
    np.testing.assert_array_equal(mechanism.read(message.vector), mechanism.randomize(key, vector()))


@pytest.mark.parametrize("name", [name for name in VECTORS if name not in ("none", "privunit")])
def test_noise_on_a_sum_is_the_noise_of_one_message(name):
    """Around what a sum of encoded vectors reads as, here a hundred times as long as one vector may be."""
    mechanism, keys = make(name), jax.random.split(jax.random.key(1), 300)
    total = 100 * mechanism.encode(keys[0], vector(BOUND))
    on_sum = np.asarray(jax.vmap(lambda key: mechanism.randomize_sum(key, total))(keys) - mechanism.read(total))
    of_one = np.asarray(randomize_all(mechanism, keys, jnp.tile(vector(BOUND), (300, 1))) - vector(BOUND))
    assert np.std(on_sum) == pytest.approx(np.std(of_one), rel=0.1)  # of 3,600 draws: five of its deviations and more
    assert abs(np.mean(on_sum)) < 0.1 * np.std(of_one)


@pytest.mark.parametrize("name", VECTORS)
def test_the_wire_carries_what_is_sent_and_nothing_else(name):
    """What `message` and `encode` send arrives bit for bit, in `wire.size(d)` bytes, which is `bits(d)` rounded up."""
    mechanism, key, wire = make(name), jax.random.key(0), make(name).wire
    for sent in (mechanism.message(key, vector()).vector, mechanism.encode(key, vector())):
        data = wire.encode(np.asarray(sent))
        assert isinstance(data, bytes)
        assert len(data) == wire.size(D)
        arrived = wire.decode(data, D)
        assert arrived.dtype == sent.dtype
        np.testing.assert_array_equal(arrived, sent)
    beside = mechanism.norm.bits if name == "privunit" else 0  # the level, which is not part of the vector
    assert wire.size(D) == -(-(mechanism.bits(D) - beside) // 8)


@pytest.mark.parametrize("name", VECTORS)
def test_a_message_of_another_size_is_refused(name):
    wire = make(name).wire
    data = wire.encode(np.asarray(make(name).encode(jax.random.key(0), vector())))
    for wrong, d in ((data + b"\0", D), (data[:-1], D), (b"", D), (data, D + 9)):
        with pytest.raises(InvalidInput) as caught:
            wire.decode(wrong, d)
        assert caught.value.field == "message"
        assert str(len(wrong)) in str(caught.value)
        assert str(wire.size(d)) in caught.value.remedy


def test_symbols_that_leave_their_range_wrap_around():
    mechanism = make("qtdl", noise="laplace", delta=0.0)
    half = 2 ** (mechanism.calibration.bits - 1)
    far = jnp.asarray([-5 * half, -half - 3, 0, half + 3, 5 * half], jnp.int32)
    symbols = np.asarray(mechanism.add_noise(jax.random.key(0), far))
    assert np.all((-half <= symbols) & (symbols < half))
    noise = np.asarray(mechanism.add_noise(jax.random.key(0), jnp.zeros(5, jnp.int32)))
    np.testing.assert_array_equal((symbols - noise - np.asarray(far)) % (2 * half), 0)


@pytest.mark.parametrize(("name", "overrides", "word"), [(n, o, w) for n in WRONG for o, w in WRONG[n]])
def test_impossible_settings_are_refused_by_name(name, overrides, word):
    with pytest.raises((InvalidInput, Refused), match=word) as caught:
        make(name, **overrides)
    if isinstance(caught.value, InvalidInput):
        assert caught.value.field == word
    assert caught.value.remedy


def test_every_number_of_a_mechanism_is_tried_with_a_wrong_value():
    for name in NAMES:
        tried = {parameter for overrides, _ in WRONG[name] for parameter in overrides}
        assert tried >= set(inspect.signature(FACTORIES[name]).parameters) - {"relation"}, name


class TestScalarDP:
    """The building block for norms: a level and the value that it stands for."""

    def test_is_pure_and_compiles_once(self):
        traces = []

        @jax.jit
        def counted(mechanism, key, norm):
            traces.append(mechanism)
            return mechanism.randomize(key, norm)

        first = counted(make(SCALAR), jax.random.key(0), jnp.float32(0.3))
        eager = make(SCALAR).randomize(jax.random.key(0), jnp.float32(0.3))
        assert [float(x) for x in first] == pytest.approx([float(x) for x in eager], rel=1e-6)
        counted(make(SCALAR), jax.random.key(1), jnp.float32(0.5))
        assert len(traces) == 1

    @pytest.mark.parametrize("eps2", [0.1, 2.0, 8.0])
    def test_levels_and_values(self, eps2):
        mechanism = make(SCALAR, eps2=eps2)
        norms = jnp.asarray([0.0, 0.31, BOUND, 2 * BOUND], jnp.float32)[:, None]
        noisy = jax.jit(lambda key: mechanism.randomize(key, jnp.tile(norms, 1000)))(jax.random.key(0))
        assert noisy.value.dtype == jnp.float32
        assert noisy.level.dtype == jnp.int32
        assert np.min(noisy.level) >= 0
        assert np.max(noisy.level) == mechanism.constants.k < 2**mechanism.bits
        np.testing.assert_array_equal(mechanism.level_of(jnp.abs(noisy.value)), noisy.level)

    def test_its_event_costs_eps2(self):
        event = make(SCALAR).event
        assert event_from_json(json.loads(json.dumps(event_to_json(event), allow_nan=False))) == event
        account = account_of(event, Relation.REPLACE_ONE)
        assert account.delta(2.0) == pytest.approx(0.0, abs=1e-12)
        assert 1.9 < account.epsilon(1e-5) <= 2.0 + 1e-9
