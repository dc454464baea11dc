"""DP-SCAFFOLD at record level: rounds x K releases, in the certificate and in the ledger, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path

import jax
import numpy as np
import pytest

import sordino as so
from sordino.data import FederatedData
from sordino.errors import InvalidInput
from sordino.models import linear
from sordino.privacy import read_ledger
from sordino.privacy.accountants import epsilon_of
from sordino.privacy.certification import certify_ledger
from sordino.privacy.events import Gaussian, Repeated, Sampled
from sordino.privacy.sampling import WithoutReplacement
from sordino.rounds.auditing import audit_release
from sordino.tasks import Task
from sordino.types import Memory, Method, Observer, Relation, Unit
from tests.toys import killed_and_resumed

REPLACE = Relation.REPLACE_ONE
SIZES, BATCH, C, K = np.array([40, 25, 8], np.int32), 10, 0.5, 4
OBSERVERS = (Observer.SERVER, Observer.PEER, Observer.MODEL_USER)
NOISE = {"noise_multiplier": 3.0, "delta": 1e-4, "trust": "local"}


def toy() -> Task:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(SIZES.sum(), 3)).astype(np.float32)
    y = (x @ [1.0, -2.0, 0.5]).astype(np.float32)
    start = (np.cumsum(SIZES) - SIZES).astype(np.int32)
    return Task("toy", FederatedData(x, y, start, SIZES, x, y, 0), linear("ridge", 3))


TASK = toy()


def method(**settings):
    usual = {"local_steps": K, "local_lr": 0.1, "batch_size": BATCH, "bound": so.clip(C)}
    return so.record_scaffold(**(usual | settings))


def resolved(rounds=5, algorithm=None, **privacy):
    plan = so.plan(algorithm or method(), rounds=rounds, **(privacy or NOISE))
    return plan.resolve(TASK.population)


def directly(n, z, releases, delta):
    """epsilon of this many Gaussians on samples of BATCH of n records."""
    event = Gaussian(z) if n <= BATCH else Sampled(Gaussian(z), WithoutReplacement(BATCH, int(n)))
    return epsilon_of(Repeated(event, releases), delta, REPLACE)


@pytest.mark.parametrize("cohort", ["full", "fixed:2"])
def test_the_certificate_counts_every_local_step_of_every_round(cohort):
    """Against everybody the same: neither a part of the cohort nor the noise of others is counted on."""
    certificate = resolved(**NOISE, cohort=cohort).certificate
    for observer in OBSERVERS:
        own = [g for g in certificate.guarantees if g.client and g.observer is observer]
        expected = [directly(n, 3.0, 5 * K, 1e-4) for n in SIZES]
        assert [g.epsilon for g in own] == pytest.approx(expected, rel=1e-9)
        total = certificate.total(observer)
        assert (total.unit, total.relation, total.rounds) == (Unit.RECORD, REPLACE, 5)
        assert total.epsilon == pytest.approx(max(expected), rel=1e-9)
        one_round = [g for g in certificate.guarantees if g.observer is observer and g.scope == "one round"]
        assert one_round[0].epsilon == pytest.approx(max(directly(n, 3.0, K, 1e-4) for n in SIZES), rel=1e-9)


def test_more_releases_than_can_be_composed_are_blamed_on_the_local_steps():
    with pytest.raises(InvalidInput, match="local_steps = 2000001: 5 rounds of so many"):
        resolved(algorithm=method(local_steps=2_000_001))


def test_noise_is_calibrated_to_all_releases():
    found = resolved(rounds=3, epsilon=[1.0, 2.0, 4.0], delta=1e-4, trust="local")
    std = np.asarray(found.rules.numbers.noise_std, np.float64)
    z = std * np.minimum(BATCH, SIZES) / (2 * C)
    spent = [directly(n, float(each), 3 * K, 1e-4) for n, each in zip(SIZES, z, strict=True)]
    np.testing.assert_allclose(spent, [1.0, 2.0, 4.0], rtol=1e-3)
    np.testing.assert_allclose([row["noise_std"] for row in found.summary["each_client"]], std, rtol=1e-6)
    assert found.summary["bits_per_message"] == 32 * 2 * TASK.d


@pytest.mark.slow
def test_the_ledger_of_a_resumed_run_says_what_was_planned(tmp_path: Path):
    plan = so.plan(method(), rounds=7, cohort="fixed:2", **NOISE)

    resumed = killed_and_resumed(plan, TASK, tmp_path / "run", after=4, seed=1)
    whole = so.simulate(plan, TASK, seed=1, chunk=1)
    for a, b in zip(jax.tree.leaves(resumed.params), jax.tree.leaves(whole.params), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    record = read_ledger(tmp_path / "run" / "ledger.jsonl")
    again = certify_ledger(record, record.description["delta"])
    for observer in OBSERVERS:
        planned, found = whole.certificate.total(observer), again.total(observer)
        assert (found.unit, found.epsilon, found.delta) == (Unit.RECORD, planned.epsilon, planned.delta)
        assert found.rounds == planned.rounds == 7
        assert found.epsilon == pytest.approx(max(directly(n, 3.0, 7 * K, 1e-4) for n in SIZES), rel=1e-9)
    assert whole.history[-1]["epsilon"] == pytest.approx(again.total(Observer.SERVER).epsilon, rel=1e-9)


def test_without_noise_nothing_is_promised():
    found = so.plan(method(), rounds=3).resolve(TASK.population)
    assert all(math.isinf(found.certificate.total(observer).epsilon) for observer in OBSERVERS)
    assert not np.any(found.rules.numbers.noise_std)


def test_it_is_a_method_whose_memory_is_made_from_releases():
    found = resolved().rules
    assert isinstance(found.method, Method)
    assert found.method.privacy.memory is Memory.NONE
    other = resolved(algorithm=method(bound=so.clip(2.0), local_lr=0.3)).rules
    assert jax.tree.structure(found) == jax.tree.structure(other)  # numbers are leaves: a sweep is one program


@pytest.mark.parametrize("scale", [np.nan, 1e30], ids=["not a number", "diverging"])
def test_records_that_are_not_finite_leave_the_model_finite(scale):
    x = np.asarray(TASK.data.x) * np.float32(scale)
    size, start = TASK.data.size, TASK.data.start
    broken = Task("toy", FederatedData(x, TASK.data.y, start, size, x, TASK.data.y, 0), TASK.model)
    run = so.simulate(so.plan(method(local_lr=1e30), rounds=3), broken, seed=0)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(run.params))


@pytest.mark.parametrize(
    ("ask", "field"),
    [
        (lambda: method(bound=None), "bound"),
        (lambda: method(bound=so.normalize(1.0)), "bound"),
        (lambda: method(batch_size=0), "batch_size"),
        (lambda: resolved(epsilon=1.0, delta=1e-4, trust="central"), "trust"),
        (lambda: resolved(epsilon=1.0, delta=1e-4, trust="shuffle"), "trust"),
        (lambda: resolved(epsilon=1.0, delta=1e-4, trust="local", calibration="theorem-2.1"), "calibration"),
        (lambda: resolved(**NOISE, relation="add-remove"), "relation"),
        (lambda: audit_release(so.plan(method(), rounds=5, **NOISE), resolved(), TASK.d, trials=100), "algorithm"),
    ],
)
def test_bad_input(ask, field):
    with pytest.raises(InvalidInput) as caught:
        ask()
    assert str(caught.value).startswith(f"{field} = ")
    assert caught.value.remedy
