"""Configurations that a user can write for which a careless certificate would promise too much."""

from __future__ import annotations

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import sordino as so
from sordino.algorithms.dp_sgd import DpSgd
from sordino.data import FederatedData
from sordino.errors import InvalidInput, SordinoError
from sordino.models import from_loss, weighted_mean
from sordino.privacy import Certificate, Guarantee
from sordino.privacy.accountants import epsilon_of
from sordino.privacy.events import ByHolder, Disjoint, Gaussian, Repeated
from sordino.pytrees import pytree
from sordino.report.sweeps import tidy_table, tuning_cost
from sordino.rounds.turns import exceeds_limit
from sordino.runs import Point, sweep
from sordino.tasks import PROBLEMS, Task
from sordino.types import Draws, Method, Observer, Relation, Unit

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE

CLIP = so.clip(1.0)
NAN_METHODS = {
    "fedavg": so.fedavg(local_steps=1, local_lr=0.1, bound=CLIP),
    "normfedavg": so.fedavg(local_steps=1, local_lr=0.1, bound=so.normalize(1.0)),
    "fedexp": so.fedexp(local_steps=1, local_lr=0.1, bound=CLIP),
    "scaffold": so.scaffold(local_steps=1, local_lr=0.1, bound=CLIP),
    "dp-sgd": so.dp_sgd(server_lr=0.1, bound=CLIP),
    "clip21": so.error_feedback(beta=0.1, server_lr=0.1, bound=CLIP),
    "norm-ec": so.error_feedback(beta=0.1, server_lr=0.1, bound=so.smoothed_normalize(0.1)),
}


def sampled_pair_delta(epsilon: float, q: float, mu: float) -> float:
    """delta of (1-q) N(0,1) + q N(mu,1) against N(0,1), one release: a lower bound for everything that contains it."""
    # P/Q grows in x: the set where it exceeds e^epsilon is a half line.
    x = (math.log((math.exp(epsilon) - (1 - q)) / q) + mu**2 / 2) / mu
    return (1 - q) * norm.sf(x) + q * norm.sf(x - mu) - math.exp(epsilon) * norm.sf(x)


def test_squared_norms_of_a_random_cohort_are_not_centred():
    """A client of norm C against one of norm 0: the sum of squares alone, in one round, must not exceed the promise."""
    method = so.fedexp(local_steps=1, local_lr=0.1, bound=so.clip(1.0))
    plan = so.plan(method, rounds=1, cohort="poisson:0.1", noise_multiplier=3.0, delta=1e-5, relation="replace-one")
    resolved = plan.resolve(so.Population(10, 10_000))
    promised = resolved.certificate.total(Observer.MODEL_USER).epsilon
    mu = 1.0 / float(resolved.method.step_size.noise_std)  # C^2 over s_xi
    assert sampled_pair_delta(promised, 0.1, mu) <= 1e-5
    # With half the sensitivity, as for a vector of norm C against its negative, the promise would have been false.
    step = resolved.method.step_size
    halved = Gaussian(float(step.noise_std))
    assert resolved.method.side_event(REPLACE).noise_multiplier == pytest.approx(halved.noise_multiplier / 2)


def test_each_run_of_a_sweep_passes_over_the_data_anew():
    one = Repeated(Disjoint(Gaussian(3.73), "one pass"), 5)
    alone = epsilon_of(one, 1e-5, REPLACE)
    cost = tuning_cost([one] * 4, 1e-5, REPLACE, shared_noise=False, sees_every_run=True)
    assert cost["epsilon_of_all_runs"] == pytest.approx(epsilon_of(Repeated(Gaussian(3.73), 4), 1e-5, REPLACE))
    assert cost["epsilon_of_all_runs"] > 1.5 * alone


def test_runs_that_promise_clients_different_things_are_not_added_up_by_kind():
    first, second = ByHolder((Gaussian(9.0), Gaussian(1.0))), ByHolder((Gaussian(1.0), Gaussian(9.0)))
    cost = tuning_cost([first, second], 1e-5, REPLACE, shared_noise=False, sees_every_run=True)
    assert "epsilon_of_all_runs" not in cost
    assert "client by client" in cost["note"]
    same = tuning_cost([first, first], 1e-5, REPLACE, shared_noise=False, sees_every_run=True)
    assert same["epsilon_of_all_runs"] == pytest.approx(epsilon_of(Repeated(Gaussian(1.0), 2), 1e-5, REPLACE))


def test_a_table_shows_the_promise_for_every_client():
    every = Guarantee(Unit.RECORD, REPLACE, Observer.SERVER, "all rounds", 1, 8.0, 1e-5, "exact Gaussian")
    own = dataclasses.replace(every, epsilon=1.0, client="Cleveland")
    record = {
        "point": 0,
        "values": {},
        "seed": 0,
        "diverged": False,
        "history": [{"round": 1, "test_loss": 1.0}],
        "certificate": Certificate((every, own)).to_json(),
    }
    (row,) = tidy_table([record])
    assert (row["epsilon_server"], row["delta_server"]) == (8.0, 1e-5)
    assert "Cleveland" not in row["epsilon_of"]


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_that_repeat_the_noise_of_others_are_refused(seed):
    task = so.task("quadratics", clients=4, d=3, rank=2)
    plan = so.plan(so.fedavg(local_steps=1, local_lr=0.1), rounds=1)
    with pytest.raises(InvalidInput, match="seed"):
        so.simulate(plan, task, seed=seed)


@pytest.mark.parametrize(
    "method",
    [
        so.error_feedback(beta=0.1, server_lr=0.1, bound=so.smoothed_normalize(1.0)),
        so.scaffold(local_steps=1, local_lr=0.1, bound=so.clip(1.0)),
    ],
    ids=["error feedback", "scaffold"],
)
def test_clients_with_a_memory_gain_nothing_from_being_drawn_by_number(method):
    def certificate(cohort, some):
        plan = so.plan(some, rounds=20, cohort=cohort, noise_multiplier=1.0, delta=1e-5, relation="replace-one")
        return plan.resolve(so.Population(10, 100)).certificate

    def promised(cohort, some):
        return certificate(cohort, some).total(Observer.MODEL_USER).epsilon

    def said(cohort, some):
        return "no-amplification" in {warning.code for warning in certificate(cohort, some).warnings}

    assert said("fixed:10", method)
    assert not said("full", method)
    assert promised("fixed:10", method) == pytest.approx(promised("full", method))
    without = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(1.0))
    assert promised("fixed:10", without) < promised("full", without)


def test_a_start_made_from_data_is_said():
    plan = so.plan(so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(1.0)), rounds=2, noise_multiplier=1.0)
    task = so.task("quadratics", clients=4, d=3, rank=2)
    codes = {warning.code for warning in plan.resolve(task.population).certificate.warnings}
    assert "start-depends-on-data" in codes
    other = so.task("linear-regression", clients=4, d=3)
    codes = {warning.code for warning in plan.resolve(other.population).certificate.warnings}
    assert "start-depends-on-data" not in codes


def test_measures_on_the_clients_own_records_are_said_where_something_is_promised():
    method = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(1.0))

    def said(task, **options):
        certificate = so.plan(method, rounds=2, **options).resolve(task.population).certificate
        return "measured-on-clients" in {warning.code for warning in certificate.warnings}

    for problem in PROBLEMS:
        task = so.task(problem)
        assert said(task, noise_multiplier=1.0)
        assert not said(task)
    assert not said(so.task("digits", clients=4), noise_multiplier=1.0)  # it has a test set


@pytest.mark.parametrize("tested", ["north", "west"])
def test_a_test_set_of_private_records_is_said_whoever_is_protected(tested, tmp_path):
    """They lie in the same private file, whoever holds them; figures on them are computed without noise."""
    path = tmp_path / "visits.csv"
    path.write_text(f"age,client,label,split\n30,north,1,train\n40,south,0,train\n50,{tested},1,test\n")
    client = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(1.0))
    record = so.noisy_mb_sgd(lipschitz=1.0, radius=1.0, feature_bound=1.0)

    def said(method, task):
        plan = so.plan(method, rounds=2, epsilon=1.0, delta=1e-3, trust="local")
        certificate = plan.resolve(task.population).certificate
        return "measured-on-clients" in {warning.code for warning in certificate.warnings}

    for method in (client, record):
        assert said(method, so.task(f"csv:{path}", classes=2))
        assert said(method, so.task(f"csv:{path}", classes=2, clients=2, partition="iid"))
    held_out = so.task(np.eye(20), np.arange(20) % 2, clients=4, classes=2, test_share=0.25)
    apart = so.task(np.eye(20), np.arange(20) % 2, clients=4, classes=2, test=(np.eye(20), np.arange(20) % 2))
    assert all(said(method, task) for method in (client, record) for task in (held_out, apart))
    assert not said(client, so.task("digits", clients=20))


def test_the_name_of_a_task_has_no_path(tmp_path):
    path = tmp_path / "oncology.csv"
    path.write_text("age,label,split\n30,1,train\n40,0,train\n50,1,test\n")
    assert so.task(f"csv:{path}", classes=2, clients=2).name == "csv"


@pytest.mark.parametrize("trust", ["central", pytest.param("local", marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", NAN_METHODS)
def test_a_client_whose_numbers_are_lost_is_dropped_and_not_seen_in_the_model(method, trust):
    """One NaN among 50 x 500 numbers: the model without it is finite, and so must be the model with it."""
    n, d = 50, 500
    x = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    x[7, 3] = np.nan

    def loss(w, batch):
        return weighted_mean(0.5 * jnp.sum((w - batch.x) ** 2, axis=1), batch.weight)

    y, one = np.zeros(n, np.float32), np.ones(n, np.int32)
    data = FederatedData(x, y, np.arange(n, dtype=np.int32), one, np.zeros((1, d), np.float32), y[:1], classes=0)
    task = Task("means", data, from_loss(lambda key: jnp.zeros(d), loss, name="means"))
    run = so.simulate(so.plan(NAN_METHODS[method], rounds=2, epsilon=1.0, delta=1e-3, trust=trust), task, seed=0)
    assert np.all(np.isfinite(run.params))
    assert run.history[-1]["not_private"]["dropped"] == 1


def test_a_model_user_gains_from_others_noise_only_where_a_method_says_that_it_uses_sums_alone():
    class Careless(DpSgd):
        """A method that says nothing of itself."""

        privacy = Method.privacy

    method = so.dp_sgd(server_lr=0.1, bound=so.clip(1.0))
    careless = Careless(method.bound, method.local, method.lr)
    plans = [so.plan(some, rounds=3, noise_multiplier=1.0, delta=1e-5, trust="local") for some in (method, careless)]
    said, silent = (plan.resolve(so.Population(10, 100)).certificate for plan in plans)
    assert said.total(Observer.MODEL_USER).epsilon < said.total(Observer.SERVER).epsilon / 5
    assert silent.total(Observer.MODEL_USER).epsilon == silent.total(Observer.SERVER).epsilon
    assert jnp.isfinite(silent.total(Observer.SERVER).epsilon)


@pytest.mark.parametrize("cohort", ["full", "poisson:0.5"])
def test_who_promises_add_remove_says_that_numbers_stay(cohort):
    """Sums are divided by what was planned for n clients: the noise of n - 1 would be divided by less, and show."""
    method = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(1.0))

    def said(**options):
        found = so.plan(method, rounds=2, cohort=cohort, **options).resolve(so.Population(5, 12)).certificate
        return [warning.message for warning in found.warnings if warning.code == "numbers-are-public"]

    (text,) = said(noise_multiplier=1.0)
    assert "12" in text
    assert ("6" in text) == (cohort != "full")
    assert not said(noise_multiplier=1.0, relation="zero-out")
    assert not said()  # nothing is promised


def test_a_plan_says_how_its_noise_is_drawn_and_what_all_figures_assume():
    method = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(1.0))

    def said(**options):
        return so.plan(method, rounds=2, **options).resolve(so.Population(5, 12)).certificate

    nothing = said()
    assert (nothing.draws, nothing.assumptions) == (Draws.NONE, ())
    for trust in ("central", "local"):
        found = said(noise_multiplier=1.0, trust=trust)
        assert found.draws not in (None, Draws.NONE)
        assert len(found.assumptions) == (2 if trust == "central" else 1)  # a run's seed is secret
        assert found.seed is None  # nothing has run
        assert Certificate.from_json(found.to_json()) == found
    assert said(noise_multiplier=1.0, trust="local").draws is Draws.SIMULATED_MESSAGES


@pytree
@dataclasses.dataclass(frozen=True)
class Louder(DpSgd):
    """A method of somebody's own that bounds its message and then does more to it."""

    times: float

    def client(self, key, received, state, data):
        message, *rest = super().client(key, received, state, data)
        return message._replace(vector=self.times * message.vector), *rest


def louder(times: float, C: float = 1.0) -> Louder:
    plain = so.dp_sgd(server_lr=0.1, bound=so.normalize(C))
    return Louder(plain.bound, plain.local, plain.lr, times)


@pytest.mark.parametrize("C", [1e-25, 1e-20, 1.0, 1e20, 1e29])
def test_messages_are_measured_by_their_bound_however_short_or_long(C):
    message = so.normalize(C)(jnp.linspace(-1.0, 2.0, 1000))[0]
    assert not exceeds_limit(message, C)
    assert exceeds_limit(1.01 * message, C)
    assert exceeds_limit(message.at[0].set(jnp.nan), C)


@pytest.mark.parametrize("trust", ["central", "local"])
def test_messages_beyond_their_bound_end_a_run_that_promises_something(trust, tmp_path):
    task = so.task("quadratics", clients=4, d=3, rank=2)

    def plan_of(times):
        return so.plan(louder(times), rounds=2, noise_multiplier=1.0, delta=1e-5, trust=trust)

    for times in (1.01, math.nan):
        with pytest.raises(SordinoError, match=r"Louder.client: 4 messages of round 0 are longer than .* bound"):
            so.simulate(plan_of(times), task, seed=0, evaluate_every=1)
    with pytest.raises(SordinoError, match="longer than the method's bound"):
        sweep([Point(plan_of(times), 0) for times in (1.0, 1.01)], task)
    so.simulate(plan_of(1.0), task, seed=0, folder=tmp_path / "run")


def test_messages_of_a_run_that_promises_nothing_may_be_of_any_length():
    so.simulate(so.plan(louder(100.0), rounds=1), so.task("quadratics", clients=4, d=3, rank=2), seed=0)


class HalfAMethod(Method):
    bound = None

    def init_server(self, w):
        return w


@pytest.mark.parametrize(
    ("method", "says"),
    [
        (HalfAMethod(), "algorithm = 'HalfAMethod': a method also has client, server, params"),
        (object(), "algorithm = 'object': is not a method: derive it"),
        (so.dp_sgd(server_lr=0.1, bound=0.5), "bound = 0.5: give a bounder"),
    ],
)
def test_what_is_no_method_is_not_planned(method, says):
    with pytest.raises(InvalidInput, match=says):
        so.plan(method, rounds=1)
