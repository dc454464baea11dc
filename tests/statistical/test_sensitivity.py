"""Constructed neighbours move a sum by what is declared and no more; adaptive clipping finds its quantile."""

import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import sordino as so
from sordino.bounding import BOUNDERS, AdaptiveClip, adaptive_clip, clip
from sordino.errors import InvalidInput
from sordino.mechanisms import gaussian
from sordino.privacy.events import Gaussian, parts_of
from sordino.privacy.gaussian import compose_mu, gaussian_epsilon
from sordino.tasks import Population
from sordino.types import BoundInfo, Observer, Relation, Sampler

CLIENTS, D = 20, 50
every_bounder = pytest.mark.parametrize("name", sorted(BOUNDERS))
every_relation = pytest.mark.parametrize("relation", list(Relation))
bound_all = jax.jit(lambda bounder, vectors: jax.vmap(bounder)(vectors))


def make(name):
    parameters = inspect.signature(BOUNDERS[name]).parameters.values()
    return BOUNDERS[name](**{p.name: 0.3 for p in parameters if p.default is p.empty})


def cohort(length):
    vectors = np.random.default_rng(0).normal(size=(CLIENTS, D))
    return jnp.asarray(length * vectors / np.linalg.norm(vectors, axis=1, keepdims=True), jnp.float32)


def neighbour(vectors, i, relation):
    """The cohort without client i, with its update zeroed out, or with its antipode in its place."""
    if relation is Relation.ADD_REMOVE:
        return jnp.delete(vectors, i, axis=0)
    return vectors.at[i].multiply(0.0 if relation is Relation.ZERO_OUT else -1.0)


def exact_sum(bounder, vectors):
    return np.sum(np.asarray(bound_all(bounder, vectors)[0], np.float64), axis=0)


def moves(bounder, length, relation):
    vectors = cohort(length)
    here = exact_sum(bounder, vectors)
    return [np.linalg.norm(here - exact_sum(bounder, neighbour(vectors, i, relation))) for i in range(CLIENTS)]


@every_bounder
@every_relation
@pytest.mark.parametrize("length", [1e-3, 0.3, 1.0, 1e6])
def test_neighbours_stay_within_the_declared_sensitivity(name, relation, length):
    bounder = make(name)
    rounding = 1e-14  # of the float64 sums of this test
    assert max(moves(bounder, length, relation)) <= bounder.sensitivity(relation) + rounding


@every_bounder
@every_relation
def test_the_declared_sensitivity_is_tight(name, relation):
    bounder = make(name)
    assert min(moves(bounder, 1e6, relation)) >= 0.99 * bounder.sensitivity(relation)


def test_a_client_that_diverges_moves_the_sum_no_further():
    bounder, vectors = clip(0.3), cohort(1e6)
    moved = exact_sum(bounder, vectors) - exact_sum(bounder, vectors.at[3].set(jnp.nan))
    assert np.linalg.norm(moved) <= bounder.sensitivity(Relation.REPLACE_ONE)


def bounder_at(C, **changes):
    return adaptive_clip(C, **{"indicator_noise_std": 10.0, **changes})


def info_of(norm):
    return BoundInfo(jnp.float32(norm), jnp.bool_(norm > 1), jnp.bool_(math.isinf(norm)))


def centred_indicator(norm):
    return float(bounder_at(1.0).indicator(info_of(norm)))


def test_the_indicator_is_centred_and_a_diverged_client_is_not_below():
    assert centred_indicator(0.0) == 0.0  # a zero update does not vote
    assert centred_indicator(1e-30) == centred_indicator(1.0) == 0.5
    assert centred_indicator(1.1) == centred_indicator(math.inf) == -0.5
    diverged = jnp.asarray([jnp.nan, 0.1], jnp.float32)
    bounder = bounder_at(1.0)
    assert bounder.indicator(bounder(diverged)[1]) == -0.5


@every_relation
def test_neighbours_move_the_sum_of_indicators_as_accounted(relation):
    norms = [0.1, 0.9, 1.0, 1.5, 1e9, math.inf]
    gone = {Relation.ADD_REMOVE: [0.0], Relation.ZERO_OUT: [centred_indicator(0.0)]}
    others = gone.get(relation) or map(centred_indicator, [0.0, *norms])
    changes = [abs(centred_indicator(norm) - other) for other in others for norm in norms]
    accounted = 10.0 / bounder_at(1.0).indicator_event(relation).noise_multiplier
    assert max(changes) == accounted == (1.0 if relation is Relation.REPLACE_ONE else 0.5)


UPDATES = [[0.0, 0.0], [1e-45, 0.0], [1e-20, 0.0], [0.2, 0.1], [-0.2, 0.1], [7.0, 0.0], [-7.0, 0.0], [math.nan, 0.0]]


@every_relation
@pytest.mark.parametrize("cohort", ["full", "poisson:0.4"])
def test_update_and_indicator_together_move_by_what_a_round_is_certified_for(relation, cohort):
    """Both releases of a round are Gaussian around what one client sends: the cost of two neighbours is known exactly.

    With a Poisson sample the certificate is about the sampled release; it is sound if a client that is drawn and zeroed
    out sends what one that is not drawn sends: nothing.
    """
    bound = adaptive_clip(0.3, indicator_noise_std=0.6)
    method = so.fedavg(local_steps=1, local_lr=1.0, bound=bound)
    plan = so.plan(method, rounds=1, cohort=cohort, noise_multiplier=0.55, relation=str(relation))
    resolved = plan.resolve(Population(d=2, clients=10))
    sent = [_sent(bound, update) for update in UPDATES]
    nothing = np.zeros(3)
    others = {Relation.ADD_REMOVE: [nothing], Relation.ZERO_OUT: [_sent(bound, [0.0, 0.0])]}.get(relation, sent)
    noise = np.array([resolved.mechanism.gaussian_std] * 2 + [0.6])
    mu = max(np.linalg.norm((one - other) / noise) for one in sent for other in others)
    (inner,) = [event for _, observers, event in resolved.releases if Observer.MODEL_USER in observers]
    releases = [part for part in parts_of(inner) if isinstance(part, Gaussian)]
    assert len(releases) == 2
    assert mu <= compose_mu(tuple(1 / part.noise_multiplier for part in releases)) * (1 + 1e-12)
    if cohort == "full":
        total = resolved.certificate.total(Observer.MODEL_USER)
        assert gaussian_epsilon(mu, total.delta) <= total.epsilon * (1 + 1e-9)
    assert np.all(_sent(bound, [0.0, 0.0]) == nothing)


def _sent(bound, update):
    """(update, indicator) of one client."""
    vector, info = bound(jnp.asarray(update, jnp.float32))
    return np.append(np.float64(vector), float(bound.indicator(info)))


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
def test_the_threshold_finds_the_quantile(quantile):
    """Norms are log-normal and m = 200. F(C_t) averaged over 500 rounds has std 0.003; seven are allowed."""
    cohort_size, rounds, burn_in = 200, 700, 200
    start = adaptive_clip(50.0, quantile=quantile, indicator_noise_std=cohort_size / 20)

    def one_round(bounder, key):
        key_norm, key_direction, key_noise = jax.random.split(key, 3)
        directions = jax.random.normal(key_direction, (cohort_size, 4))
        norms = jnp.exp(jax.random.normal(key_norm, (cohort_size, 1)))
        updates = norms * directions / jnp.linalg.norm(directions, axis=1, keepdims=True)
        _, info = jax.vmap(bounder)(updates)
        centred_sum = jnp.sum(jax.vmap(bounder.indicator)(info))
        noisy_sum = centred_sum + bounder.indicator_noise_std * jax.random.normal(key_noise)
        return bounder.update(noisy_sum, cohort_size), bounder.limit

    last, bounds = jax.jit(lambda keys: jax.lax.scan(one_round, start, keys))(
        jax.random.split(jax.random.key(0), rounds)
    )
    assert isinstance(last, AdaptiveClip)
    below = stats.lognorm(1.0).cdf(np.asarray(bounds[burn_in:], np.float64))
    assert np.mean(below) == pytest.approx(quantile, abs=0.02)


@pytest.mark.parametrize("sampler", Sampler)
def test_the_noise_of_the_indicators_has_the_accounted_std(sampler):
    """A Kolmogorov-Smirnov test that accepts sigma_b (false alarm 1e-3) and rejects 2/3 and 3/2 of it."""
    method = so.fedavg(local_steps=1, local_lr=0.1, bound=bounder_at(1.0))
    mechanism, std = gaussian(1.0, sampler), method.side_noise_std()
    keys = jax.random.split(jax.random.key(1), 2000)
    noise = np.asarray(jax.vmap(lambda key: mechanism.randomize_side(key, jnp.float32(0.0), std))(keys), np.float64)
    assert stats.kstest(noise, stats.norm(0, 10.0).cdf).pvalue > 1e-3
    assert stats.kstest(noise, stats.norm(0, 10.0 * 2 / 3).cdf).pvalue < 1e-6
    assert stats.kstest(noise, stats.norm(0, 10.0 * 3 / 2).cdf).pvalue < 1e-6


def test_the_threshold_moves_by_the_planned_cohort():
    """All 30 of 50 planned clients are below, b~ = (30/2)/50 + 1/2 = 0.8."""
    bounder = adaptive_clip(1.0, quantile=0.5, learning_rate=0.2, indicator_noise_std=1e-6)
    moved = bounder.update(jnp.float32(15.0), 50)
    assert float(moved.limit) == pytest.approx(math.exp(-0.2 * 0.3), rel=1e-6)


def test_the_threshold_stays_within_float32():
    bounder = adaptive_clip(1e-30, learning_rate=100.0, indicator_noise_std=1e-6)
    assert bounder.update(jnp.float32(25.0), 50).limit == pytest.approx(1e-30)
    assert np.isfinite(bounder.update(jnp.float32(-1e6), 50).limit)


@every_relation
@pytest.mark.parametrize("z", [1e-3, 0.5, 1.0, 7.3, 9.999])
def test_both_releases_together_cost_what_z_costs(relation, z):
    bounder = bounder_at(1.0)
    z_Delta = bounder.vector_noise_multiplier(z, bounder.indicator_event(relation).noise_multiplier)
    both = compose_mu((1 / z_Delta, 1 / bounder.indicator_event(relation).noise_multiplier))
    assert both <= 1 / z
    assert both == pytest.approx(1 / z, rel=1e-14)
    if relation is Relation.ADD_REMOVE:
        assert z_Delta == pytest.approx((z**-2 - (2 * 10.0) ** -2) ** -0.5, rel=1e-12)


@every_relation
def test_a_split_that_leaves_nothing_is_refused(relation):
    z_b = bounder_at(1.0).indicator_event(relation).noise_multiplier
    for z in (0.0, z_b, 2 * z_b, math.nan):
        with pytest.raises(InvalidInput, match="raise indicator_noise_std"):
            bounder_at(1.0).vector_noise_multiplier(z, z_b)
