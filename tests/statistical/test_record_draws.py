"""Records that are drawn with replacement, as in Algorithm 1 of Lowy and Razaviyayn: law, sensitivity, certificate."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import sordino as so
from sordino.algorithms.local import ClientData
from sordino.algorithms.records import WITH, WITHOUT, RecordGradients
from sordino.errors import InvalidInput
from sordino.models import linear
from sordino.privacy.accountants import epsilon_of
from sordino.privacy.events import Gaussian, Repeated, Sampled, parts_of
from sordino.privacy.gaussian import gaussian_delta
from sordino.privacy.sampling import WithoutReplacement, WithReplacement
from sordino.types import ClientNumbers, Observer, Relation

D, N, K, L = 3, 12, 5, 0.5
MODEL = linear("ridge", D)
BOTH = [so.noisy_mb_sgd, so.accelerated_mb_sgd]
POPULATION = so.Population(D, 2, sizes=np.array([200, 40]), names=("large", "small"))


def client(x, y, batch=K) -> ClientData:
    f = jnp.float32
    own = ClientNumbers(jnp.int32(0), lipschitz=f(L), batch=jnp.int32(batch), weight=f(1), noise_std=f(0))
    return ClientData.own(MODEL.loss, jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32), own)


def method(make, draws=WITH, **changes):
    given = {"lipschitz": 1.0, "radius": 1.0, "smoothness": 1.0, "batch_size": 10} | changes
    return make(draws=draws, **given)


def resolved(make, draws=WITH, **settings):
    asked = {"rounds": 20, "trust": "local", "epsilon": 1.0, "delta": 1e-5} | settings
    return so.plan(method(make, draws), **asked).resolve(POPULATION)


def multiplicities(rounds):
    """[round, record]: how often each record is drawn."""
    data = client(np.arange(N)[:, None] * np.ones(D), np.zeros(N))
    gradients = RecordGradients(K + 2, one_pass=False, draws=WITH)  # another client may draw more
    batch = jax.jit(jax.vmap(lambda key: gradients.draw(key, jnp.int32(0), data)))(
        jax.random.split(jax.random.key(3), rounds)
    )
    assert np.all(np.asarray(batch.weight) == (np.arange(K + 2) < K))
    drawn = np.asarray(batch.x[:, :K, 0], int)
    return np.stack([(drawn == record).sum(axis=1) for record in range(N)], axis=1)


def test_how_often_a_record_is_drawn_is_binomial():
    """Chi-squared at 1e-6 for every record; the law without replacement, at most once, is far off."""
    rounds = 20_000
    found = multiplicities(rounds)
    assert np.all(found.sum(axis=1) == K)
    expected = rounds * stats.binom.pmf(range(4), K, 1 / N)
    expected[3] += rounds * stats.binom.sf(3, K, 1 / N)
    for record in range(N):
        counts = np.bincount(np.minimum(found[:, record], 3), minlength=4)
        assert stats.chisquare(counts, expected).pvalue > 1e-6
    assert stats.chisquare(found.sum(axis=0)).pvalue > 1e-6
    assert found.max() >= 3


@pytest.mark.parametrize("replaced", [1e6, -1e6, 0.0, np.nan])
def test_a_record_moves_the_mean_once_for_each_of_its_draws(replaced):
    x, y = np.random.default_rng(0).normal(size=(N, D)), np.full(N, 50.0)
    other = x.copy()
    other[4] = replaced
    gradients = RecordGradients(K, one_pass=False, draws=WITH)
    both = jax.jit(lambda key, x: gradients(key, jnp.zeros(D), jnp.int32(0), client(x, y))[0])
    draw = jax.jit(lambda key, x: gradients.draw(key, jnp.int32(0), client(x, y)).x[:, 0])
    seen = set()
    for key in jax.random.split(jax.random.key(0), 60):
        k = int(np.sum(np.asarray(draw(key, x)) == np.float32(x[4, 0])))
        moved = float(jnp.linalg.norm(both(key, x) - both(key, other)))
        assert moved <= k * 2 * L / K * (1 + 1e-5)
        seen.add(k)
    assert {0, 1, 2} <= seen


@pytest.mark.parametrize("make", BOTH)
def test_the_certificate_counts_a_record_as_often_as_it_is_drawn(make):
    given = {"epsilon": None, "noise_multiplier": 3.0}
    plan, without = (resolved(make, draws, **given) for draws in (WITH, WITHOUT))
    for name, n in (("large", 200), ("small", 40)):
        event = Repeated(Sampled(Gaussian(3.0), WithReplacement(10, n)), 20)
        own, fewer = (
            each.epsilon
            for certificate in (plan.certificate, without.certificate)
            for each in certificate.guarantees
            if (each.client, each.observer, each.scope) == (name, Observer.SERVER, "all rounds")
        )
        assert own == pytest.approx(epsilon_of(event, 1e-5, Relation.REPLACE_ONE), rel=1e-5)
        assert own > 1.1 * fewer
    assert {type(sampling) for sampling in samplings_of(plan)} == {WithReplacement}


def samplings_of(plan):
    return {part.sampling for *_, event in plan.releases for part in parts_of(event) if isinstance(part, Sampled)}


def test_one_round_costs_the_mixture_over_the_draws():
    """delta(e) = sum_k Bin(K, 1/n)(k) H_a(k / z), for the worst pair: gradients of length L, opposed for one record."""
    n, settings = 40, {"rounds": 1, "trust": "local", "epsilon": 1.0, "delta": 1e-5}
    plan = so.plan(method(so.noisy_mb_sgd), **settings).resolve(so.Population(D, 1, sizes=np.array([n])))
    z = float(plan.rules.numbers.noise_std[0]) / 0.2
    q = 1 - (1 - 1 / n) ** 10
    order = np.log1p(np.expm1(1.0) / q)
    delta = sum(stats.binom.pmf(k, 10, 1 / n) * gaussian_delta(order, k / z) for k in range(1, 11))
    assert delta == pytest.approx(1e-5, rel=1e-3)
    once = sum(stats.binom.pmf(k, 10, 1 / n) * gaussian_delta(order, 1 / z) for k in range(1, 11))
    assert once < 0.2 * delta  # a proof that overlooks repeated draws counts this much


def test_a_client_that_draws_as_many_records_as_it_has_still_samples():
    def planned(draws):
        sgd = method(so.noisy_mb_sgd, draws, batch_size=40, smoothness=1e-3)
        return so.plan(sgd, rounds=2, trust="local", noise_multiplier=5.0, delta=1e-5).resolve(POPULATION)

    plan, without = planned(WITH), planned(WITHOUT)
    assert samplings_of(plan) == {WithReplacement(40, 200), WithReplacement(40, 40)}
    assert samplings_of(without) == {WithoutReplacement(40, 200)}
    # The variance of such a sample is part of V^2, on which step sizes rest.
    assert plan.method.eta < without.method.eta


@pytest.mark.parametrize("make", BOTH)
def test_what_cannot_go_with_replacement_is_refused(make):
    with pytest.raises(InvalidInput, match="one pass"):
        method(make, one_pass=True)
    with pytest.raises(InvalidInput, match="how many"):
        method(make, batch_size=None)
    with pytest.raises(InvalidInput, match="without-replacement, with-replacement"):
        method(make, draws="poisson")
    with pytest.raises(InvalidInput, match=r"draws.*without-replacement"):
        resolved(make, trust="shuffle")


@pytest.mark.parametrize("make", BOTH)
def test_it_runs(make):
    task = so.task("linear", clients=3, records=20, d=5, loss="logit", l2=0.1)
    plan = so.plan(method(make), rounds=2, trust="local", noise_multiplier=2.0, delta=1e-5)
    assert not so.simulate(plan, task).diverged


def test_theorem_2_1_is_certified_with_its_true_cost():
    settings = {"calibration": "theorem-2.1", "rounds": 100}
    costs = {draws: resolved(so.noisy_mb_sgd, draws, **settings).certificate for draws in (WITH, WITHOUT)}
    with_, without = (costs[draws].total(Observer.SERVER).epsilon for draws in (WITH, WITHOUT))
    assert without < with_ < 1.0
