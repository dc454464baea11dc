"""What bounders promise. A new file in `sordino.bounding` is enrolled by being there; so is the documented one."""

import importlib
import inspect
import math
import pkgutil
import re
import sys
import types
from fractions import Fraction
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sordino.bounding as bounding
from sordino.errors import InvalidInput
from sordino.types import Bounder, BoundInfo, Relation

NAMES = [module.name for module in pkgutil.iter_modules(bounding.__path__) if not module.name.startswith("_")]
FACTORIES = {name: getattr(importlib.import_module(f"sordino.bounding.{name}"), name) for name in NAMES}
DOCUMENTED = "coordinate_clip"
PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
SIZES = (1, 2, 64, 65, 4097, 40_000)  # on both sides of the levels of the sum
BIG = 3_000_000

every_bounder = pytest.mark.parametrize("name", [*NAMES, DOCUMENTED])
call = jax.jit(lambda bounder, vector: bounder(vector))
call_all = jax.jit(lambda bounder, vectors: jax.vmap(bounder)(vectors))


def documented():
    """The module that CONTRIBUTING.md prints."""
    module = types.ModuleType(f"sordino.bounding.{DOCUMENTED}")
    sys.modules[module.__name__] = module  # where dataclasses and type hints look
    exec(compile(re.search(r"```python\n(.*?)```", PAGE, re.S)[1], "CONTRIBUTING.md", "exec"), vars(module))
    return module


FACTORIES[DOCUMENTED] = getattr(documented(), DOCUMENTED)


def make(name, number=0.7):
    """The bounder with every number that has no default set to `number`."""
    parameters = inspect.signature(FACTORIES[name]).parameters.values()
    return FACTORIES[name](**{p.name: number for p in parameters if p.default is p.empty})


def exceeds(vector, bound):
    """Whether the exact norm is above the bound, and above the bound rounded to the vector's type.

    Squares of float32 numbers are exact in float64 and `fsum` rounds once: the sign of its result is exact.
    """
    vector = np.asarray(vector)
    assert vector.dtype == np.float32
    assert np.all(np.isfinite(vector))
    bound = min(float(bound), float(np.float32(bound)))
    square = bound * bound
    rest = float(Fraction(bound) ** 2 - Fraction(square))
    return math.fsum([*np.square(vector.astype(np.float64)).tolist(), -square, -rest]) > 0


def naive_clip(vector, C):
    return vector * (C / jnp.linalg.norm(vector))


def sequential_clip(vector, C):
    squares = np.square(np.asarray(vector))
    return np.asarray(vector) * np.float32(C / np.sqrt(np.cumsum(squares, dtype=np.float32)[-1]))


def normal(d, seed=0, scale=1.0):
    return jnp.asarray(scale * np.random.default_rng(seed).normal(size=d), jnp.float32)


def all_equal(d):
    return jnp.full(d, 0.1, jnp.float32)  # a running sum of its squares stagnates


def one_huge(d):
    return jnp.full(d, 1e-3, jnp.float32).at[d // 2].set(3e38)


@st.composite
def vectors(draw):
    """Magnitudes from denormal to the largest float32, spread over many decades or not at all."""
    d = draw(st.sampled_from(SIZES))
    low = draw(st.floats(-44, 38.4))
    high = draw(st.sampled_from((low, 38.4)) | st.floats(low, 38.4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = rng.choice([-1.0, 1.0], d) * 10.0 ** rng.uniform(low, high, d)
    pattern = draw(st.sampled_from(("all", "equal", "sparse", "one huge")))
    if pattern == "equal":
        values[:] = values[0]
    if pattern == "sparse":
        values[rng.random(d) < 0.9] = 0.0
    if pattern == "one huge":
        values[rng.integers(d)] = 3e38
    return values.astype(np.float32)


def test_the_page_names_every_member_and_every_test_that_enrolls_a_bounder():
    members = [name for name in vars(Bounder) if not name.startswith("_")]
    helpers = ["measure", "shrink", "SensitivityFromLimit", "require_bound", "keeps_direction"]
    for name in (*members, *helpers, "sordino/__init__.pyi", "tests/contracts/test_bounding.py"):
        assert f"`{name}" in PAGE, name


def test_the_documented_bounder_cuts_coordinates():
    cut, _ = make(DOCUMENTED, 2.0)(jnp.asarray([1.0, -3.0], jnp.float32))
    np.testing.assert_allclose(cut, [1.0, -math.sqrt(2)], rtol=6e-6)


def test_the_registry_holds_every_file():
    assert set(bounding.BOUNDERS) == set(NAMES)
    assert all(bounding.BOUNDERS[name] is FACTORIES[name] for name in NAMES)


@every_bounder
def test_is_a_bounder_with_numbers_for_leaves(name):
    bounder = make(name)
    assert isinstance(bounder, Bounder)
    assert jax.tree.leaves(bounder)
    assert jax.tree.map(lambda leaf: leaf, bounder) == bounder
    with pytest.raises(AttributeError):
        bounder.limit = 2.0


@every_bounder
@settings(derandomize=True, deadline=None, max_examples=120)
@given(vector=vectors(), exponent=st.floats(-30, 30))
def test_the_bound_holds_exactly(name, vector, exponent):
    bounder = make(name, 10.0**exponent)
    bounded, info = call(bounder, vector)
    assert not info.dropped
    assert not exceeds(bounded, bounder.limit)


@every_bounder
@pytest.mark.parametrize("scale", [0.1, 1.0, 1e-19, 1e30])
def test_the_bound_holds_exactly_for_vectors_of_its_own_length(name, scale):
    for seed in range(20):
        bounder = make(name, scale)
        vector = normal(1000, seed)
        vector = vector * (np.float32(scale) / jnp.linalg.norm(vector))
        assert not exceeds(call(bounder, vector)[0], bounder.limit)


@every_bounder
@pytest.mark.parametrize(
    "vector", [all_equal(BIG), one_huge(BIG), normal(BIG)], ids=["all equal", "one huge", "normal"]
)
def test_the_bound_holds_exactly_in_three_million_dimensions(name, vector):
    bounder = make(name)
    bounded, _ = call(bounder, vector)
    assert not exceeds(bounded, bounder.limit)
    length = math.sqrt(math.fsum(np.square(np.asarray(bounded, np.float64)).tolist()))
    smoothing = 2e-2  # of smoothed_normalize at ||v|| = 173
    assert length == pytest.approx(bounder.limit, rel=smoothing)


def test_the_exact_test_has_teeth():
    assert any(exceeds(naive_clip(normal(1000, seed), 0.7), 0.7) for seed in range(20))
    assert exceeds(sequential_clip(all_equal(BIG), 0.7), 0.7)
    assert not np.any(naive_clip(one_huge(10), 0.7))  # the norm overflowed: all is lost


@pytest.mark.parametrize("d", [64**2, 64**3, 7850])
def test_the_compiler_keeps_the_levels_of_a_sum_apart(d):
    # The proof is about rows of 64. Merged, a sum would run over all of them in an order that nobody knows.
    text = jax.jit(jax.vmap(bounding.clip(1.0))).lower(jnp.ones((3, d))).compile().as_text()
    sizes = {
        name: math.prod(int(n) for n in shape.split(",") if n)
        for name, shape in re.findall(r"(%[\w.-]+) = f32\[([\d,]*)\]", text)
    }
    sums = re.findall(r"(%[\w.-]+) = f32\S* reduce\((%[\w.-]+),.*reduce_sum", text)
    assert len(sums) == math.ceil(math.log(d, 64))
    assert max(sizes[row] / sizes[total] for total, row in sums) <= 64


@every_bounder
@pytest.mark.parametrize("d", SIZES)
def test_zero_maps_to_zero(name, d):
    bounded, info = call(make(name), jnp.zeros(d, jnp.float32))
    assert not np.any(bounded)
    assert (float(info.norm), bool(info.clipped), bool(info.dropped)) == (0.0, False, False)


@every_bounder
def test_a_vector_of_denormal_numbers_counts_as_zero(name):
    bounded, info = call(make(name), np.full(10, 1e-40, np.float32))
    assert not np.any(bounded)
    assert info.norm == 0


def cosine(v, w):
    v, w = np.asarray(v, np.float64), np.asarray(w, np.float64)
    return v @ w / np.linalg.norm(v) / np.linalg.norm(w)


@every_bounder
@pytest.mark.parametrize("scale", [1e-25, 1e-3, 1.0, 1e3, 1e30])
def test_the_direction_is_kept(name, scale):
    """Of all that do not say otherwise; they too turn no vector by more than a right angle."""
    bounder, vector = make(name), normal(300, scale=scale)
    angle = cosine(vector, call(bounder, vector)[0])
    if getattr(bounder, "keeps_direction", True):
        assert angle == pytest.approx(1.0, abs=1e-6)
    assert angle > 0


def test_a_bounder_that_turns_vectors_must_say_so(monkeypatch):
    monkeypatch.setattr(type(make(DOCUMENTED)), "keeps_direction", True)
    with pytest.raises(AssertionError):
        test_the_direction_is_kept(DOCUMENTED, 1.0)


@every_bounder
@pytest.mark.parametrize("scale", [1e-25, 1e-3, 1.0, 1e3, 1e30])
def test_the_norm_and_what_was_clipped_are_told(name, scale):
    vector = normal(300, scale=scale)
    bounded, info = call(make(name), vector)
    v, w = np.asarray(vector, np.float64), np.asarray(bounded, np.float64)
    assert float(info.norm) == pytest.approx(np.linalg.norm(v), rel=1e-6)
    assert bool(info.clipped) == (np.linalg.norm(w) < np.linalg.norm(v))


@every_bounder
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [0, 17, 99])
def test_vectors_that_are_not_finite_are_dropped_and_counted(name, wrong, where):
    good = normal(100)
    bounded, info = call_all(make(name), jnp.stack([good, good.at[where].set(wrong), good]))
    np.testing.assert_array_equal(info.dropped, [False, True, False])
    assert not np.any(bounded[1])
    assert not info.clipped[1]
    np.testing.assert_array_equal(bounded[0], bounded[2])
    assert np.any(bounded[0])


@every_bounder
@pytest.mark.parametrize("where", [0, 2500, 4999])
def test_one_nan_among_many_numbers_is_not_passed_over(name, where):
    """XLA's maximum of more than some 4,000 numbers does not see it."""
    vectors = jnp.ones((30, 5000)).at[7, where].set(jnp.nan)
    bounded, info = call_all(make(name), vectors)
    np.testing.assert_array_equal(np.flatnonzero(info.dropped), [7])
    assert not np.any(bounded[7])
    assert np.all(np.isfinite(bounded))


@every_bounder
def test_float32_stays_float32(name):
    bounded, info = call(make(name), normal(10))
    assert isinstance(info, BoundInfo)
    assert bounded.dtype == info.norm.dtype == jnp.float32
    assert info.clipped.dtype == info.dropped.dtype == jnp.bool_


@every_bounder
def test_float64_stays_float64_and_exact(name):
    with jax.enable_x64(True):
        bounder = make(name)
        bounded, info = call(bounder, np.random.default_rng(0).normal(size=200))
        assert bounded.dtype == info.norm.dtype == jnp.float64
        exact = sum(Fraction(float(x)) ** 2 for x in np.asarray(bounded))
        assert exact <= Fraction(float(bounder.limit)) ** 2


@every_bounder
def test_another_number_does_not_compile_again(name):
    traces = []

    @jax.jit
    def counted(bounder, vector):
        traces.append(bounder)
        return bounder(vector)

    first, _ = counted(make(name, 0.7), normal(10))
    second, _ = counted(make(name, 0.4), normal(10))
    assert len(traces) == 1
    assert np.any(first != second)


@every_bounder
def test_a_sweep_is_a_vmap_over_the_leaves(name):
    numbers = (0.1, 0.7, 40.0)
    sweep = jax.tree.map(lambda *leaves: jnp.asarray(leaves, jnp.float32), *(make(name, x) for x in numbers))
    together, info = jax.vmap(call, in_axes=(0, None))(sweep, normal(100))
    assert info.norm.shape == (3,)
    for bounded, number in zip(together, numbers, strict=True):
        alone, _ = call(make(name, number), normal(100))
        np.testing.assert_allclose(bounded, alone, rtol=1e-6)
        assert not exceeds(bounded, make(name, number).limit)


@every_bounder
def test_sensitivity_follows_the_relation(name):
    bounder = make(name)
    moved = {relation: bounder.sensitivity(relation) / bounder.limit for relation in Relation}
    assert moved == {Relation.ADD_REMOVE: 1, Relation.ZERO_OUT: 1, Relation.REPLACE_ONE: 2}


@every_bounder
@pytest.mark.parametrize("number", [-1.0, math.nan, math.inf, 1e300])
def test_impossible_numbers_are_refused_with_a_remedy(name, number):
    with pytest.raises(InvalidInput, match="must be"):
        make(name, number)


@pytest.mark.parametrize("make_one", [bounding.clip, bounding.normalize])
def test_a_bound_of_zero_is_refused(make_one):
    with pytest.raises(InvalidInput, match="from 1e-30 to 1e"):
        make_one(0.0)


@every_bounder
def test_vectors_that_cannot_be_bounded_are_refused(name):
    with pytest.raises(InvalidInput, match="one axis"):
        make(name)(jnp.zeros((2, 2), jnp.float32))
    with pytest.raises(InvalidInput, match="float32"):
        make(name)(jnp.zeros(2, jnp.bfloat16))


@pytest.mark.parametrize("bounder", [bounding.clip(2.0), bounding.adaptive_clip(2.0, indicator_noise_std=1.0)])
@pytest.mark.parametrize("d", SIZES)
def test_clipping_leaves_short_vectors_alone(bounder, d):
    for length in (1e-30, 0.5, 1.9999):
        direction = np.asarray(normal(d), np.float64)
        vector = jnp.asarray(length * direction / np.linalg.norm(direction), jnp.float32)
        bounded, info = call(bounder, vector)
        np.testing.assert_array_equal(bounded, vector)
        assert not info.clipped


def test_clipping_and_normalising_follow_their_formulas():
    v = jnp.asarray([3.0, 4.0], jnp.float32)
    np.testing.assert_allclose(bounding.clip(2.0)(v)[0], [1.2, 1.6], rtol=6e-6)
    np.testing.assert_allclose(bounding.clip(6.0)(v)[0], [3.0, 4.0], rtol=0)
    np.testing.assert_allclose(bounding.normalize(6.0)(v)[0], [3.6, 4.8], rtol=6e-6)
    np.testing.assert_allclose(bounding.smoothed_normalize(5.0)(v)[0], [0.3, 0.4], rtol=6e-6)
    np.testing.assert_allclose(bounding.smoothed_normalize(0.0)(v)[0], [0.6, 0.8], rtol=6e-6)


@pytest.mark.parametrize(("size", "alpha", "expected"), [(1e-30, 0.1, 1e-29), (1e38, 0.1, 1.0), (1e-37, 0.0, 1.0)])
def test_smoothed_normalisation_neither_loses_nor_overflows(size, alpha, expected):
    bounded, _ = bounding.smoothed_normalize(alpha)(jnp.asarray([size], jnp.float32))
    np.testing.assert_allclose(bounded, [expected], rtol=6e-6)
