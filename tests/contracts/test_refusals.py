"""What is known to be false is refused, with the remedy in the message."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

import sordino as so
from sordino.bounding import Clip
from sordino.data.augmentation import crop_flip
from sordino.errors import InvalidInput, Refused, SordinoError
from sordino.privacy import certify, published
from sordino.privacy.accountants import epsilon_of
from sordino.privacy.events import (
    Approximate,
    Claimed,
    Composed,
    DiscreteNoise,
    FiniteLoss,
    Gaussian,
    NonPrivate,
    Parallel,
    Pure,
    Repeated,
    Sampled,
    ZeroConcentrated,
)
from sordino.privacy.privunit import privunit_constants
from sordino.privacy.quantized import assumed_sensitivities, client_sensitivities, sound_tdl_calibration
from sordino.privacy.quantized import theorem_1_calibration as theorem_1
from sordino.privacy.sampling import Full, Poisson, WithoutReplacement, WithReplacement, parse_sampling
from sordino.privacy.shuffle import shuffle_epsilon
from sordino.pytrees import pytree
from sordino.types import Observer, Relation, Unit
from tests.toys import toy

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE


FEDAVG = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(1.0))
DP_SGD_TINY = so.dp_sgd(server_lr=1.0, bound=so.clip(1e-30))


def adaptive(**settings):
    bound = so.adaptive_clip(0.01, indicator_noise_std=5.0)
    method = so.fedavg(local_steps=1, local_lr=0.1, bound=bound)
    return so.plan(method, rounds=2, **settings).resolve(so.Population(10, 100))


def planned(method, **settings):
    return so.plan(method, rounds=2, **settings).resolve(so.Population(10, 100))


def fedexp(C):
    return so.fedexp(local_steps=1, local_lr=0.1, bound=so.clip(C))


def certificate(event=None, **changes):
    settings = {"relation": REPLACE, "observer": Observer.MODEL_USER, "rounds": 10, "delta": 1e-5} | changes
    return certify(event or Gaussian(2.0), **settings)


@pytest.mark.parametrize(
    ("ask", "remedy"),
    [
        pytest.param(
            lambda: certificate(
                sound_tdl_calibration(client_sensitivities(100, 16, REPLACE), 5, 1e-6).event, rounds=1, delta=1e-9
            ),
            "larger delta",
            id="TDL below its delta*",
        ),
        pytest.param(lambda: published.classical_gaussian_noise(1.01, 1e-5), "exact", id="classical Gaussian"),
        pytest.param(lambda: published.one_pass_classical_noise(10, 1e-5), "exact", id="classical one-pass"),
        pytest.param(lambda: published.minibatch_theorem_2_1(1000, 100, 5, 1, 1e-5), "K = 6", id="K below K_min"),
        pytest.param(lambda: published.minibatch_theorem_2_1(1000, 100, 99, 13, 1e-5), "numeric", id="Thm 2.1 range"),
        pytest.param(published.minibatch_acg16, "numerically", id="ACG form"),
        pytest.param(lambda: shuffle_epsilon(4, 10**4, 1e-6, method="closed"), "numeric", id="FMT21 out of range"),
        pytest.param(lambda: shuffle_epsilon(1, 1000, 1e-6, method="fmt23"), "2021", id="FMT23"),
        pytest.param(lambda: shuffle_epsilon(1, 1000, 1e-6, delta0=1e-6), "delta0", id="shuffle drowned by delta0"),
        pytest.param(
            lambda: certificate(relation=ADD, sampling=WithoutReplacement(5, 100)), "replace-one", id="WOR as Poisson"
        ),
        pytest.param(
            lambda: certificate(relation=ADD, sampling=WithReplacement(5, 100)), "replace-one", id="WR as Poisson"
        ),
        pytest.param(
            lambda: certificate(relation=Relation.ZERO_OUT, sampling=WithoutReplacement(5, 100)),
            "replace-one",
            id="WOR under zero-out",
        ),
        pytest.param(lambda: certificate(memory="exact"), "zero", id="exact memory"),
        pytest.param(
            lambda: certificate(memory="zero", unit=Unit.RECORD, sampling=WithoutReplacement(5, 100)),
            "client level",
            id="mini-batch amplification with memory",
        ),
        pytest.param(
            lambda: certificate(observer=Observer.SERVER, relation=Relation.ZERO_OUT, sampling=Poisson(0.1)),
            "sampling full",
            id="amplification against the server",
        ),
        pytest.param(
            lambda: certificate(observer=Observer.PEER, relation=Relation.ZERO_OUT, sampling=Poisson(0.1)),
            "sampling full",
            id="amplification against a peer",
        ),
        pytest.param(
            lambda: certificate(Sampled(Gaussian(1.0), Poisson(0.01)), observer="server", relation=Relation.ZERO_OUT),
            "sampling full",
            id="amplification inside the event",
        ),
        pytest.param(
            lambda: certificate(Composed((Repeated(Sampled(Gaussian(1.0), Poisson(0.01)), 2),)), observer="Server"),
            "sampling full",
            id="amplification deep inside the event, observer in capitals",
        ),
        pytest.param(
            lambda: certificate(Sampled(Gaussian(2.0), WithoutReplacement(5, 100)), memory="Zero", unit="record"),
            "client level",
            id="mini-batch amplification inside the event, words as strings",
        ),
        pytest.param(lambda: certificate(memory="Exact"), "zero", id="exact memory, in capitals"),
        pytest.param(
            lambda: certificate(observer=Observer.SERVER, relation=ADD), "zero-out", id="add-remove against the server"
        ),
        pytest.param(
            lambda: certificate(DiscreteNoise("tdl", (50, 0.1), ((5, 1),)), rounds=1, delta=0.1),
            "mechanism",
            id="one shift as a guarantee",
        ),
        pytest.param(
            lambda: certificate(
                so.qtdl(d=100, levels=64, epsilon=10, delta=1e-6, mu=0.1).event(so.clip(1.0), REPLACE, 100)
            ),
            "unit record",
            id="assumed sensitivity at client level",
        ),
        pytest.param(
            lambda: epsilon_of(Sampled(Composed((Gaussian(1.0), Pure(1.0))), Poisson(0.1)), 1e-5),
            "full",
            id="different releases from one sample",
        ),
        pytest.param(lambda: certificate(observer=Observer.SERVER, rounds=None), "rounds", id="no rounds"),
        pytest.param(lambda: privunit_constants(2, 2, 2, "condition-1"), "exact", id="condition 1 at d = 2"),
        pytest.param(lambda: privunit_constants(237, 2, 2, "condition-2"), "exact", id="condition 2 without solution"),
        pytest.param(lambda: epsilon_of(Sampled(ZeroConcentrated(0.1), Poisson(0.1)), 1e-5), "full", id="sampled zCDP"),
        pytest.param(
            lambda: epsilon_of(Sampled(FiniteLoss((1.0, -1.0), (0.731058578630, 0.26894142137)), Poisson(0.1)), 1e-5),
            "full",
            id="sampled finite loss",
        ),
        pytest.param(
            lambda: certificate(sampling=WithoutReplacement(10, 100), memory="zero"),
            "Poisson",
            id="clients drawn by number who keep a memory",
        ),
        pytest.param(
            lambda: epsilon_of(Repeated(Parallel((Gaussian(1.0), Pure(1.0))), 2), 1e-5),
            "outermost",
            id="mixed parallel inside a composition",
        ),
    ],
)
def test_refused_with_a_remedy(ask, remedy):
    with pytest.raises(Refused) as caught:
        ask()
    assert remedy in caught.value.remedy
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("ask", "field"),
    [
        (lambda: Gaussian(-1.0), "noise_multiplier"),
        (lambda: Gaussian(0.0), "noise_multiplier"),
        (lambda: Gaussian(float("nan")), "noise_multiplier"),
        (lambda: certificate(delta=1.0), "delta"),
        (lambda: certificate(delta=-1e-9), "delta"),
        (lambda: certificate(rounds=0), "rounds"),
        (lambda: certificate(units=10**6), "delta"),
        (lambda: parse_sampling("fixed:50/10"), "cohort"),
        (lambda: parse_sampling("poisson:1.5"), "cohort"),
        (lambda: parse_sampling("poisson"), "cohort"),
        (lambda: parse_sampling("bernoulli:0.1"), "cohort"),
        (lambda: Relation.parse("swap"), "relation"),
        (lambda: theorem_1(client_sensitivities(3, 2, REPLACE), 10), "epsilon"),
        (lambda: assumed_sensitivities(10, 4, -0.1), "mu"),
        (lambda: epsilon_of(Sampled(Gaussian(1.0), Poisson(0.5)), 1e-14), "delta"),
        (lambda: certificate(units=0), "units"),
        (lambda: DiscreteNoise("tdl", (50, 0.1), ((-5, 1),)), "shifts"),
        (lambda: DiscreteNoise("binomial", (7,), ((1, 1),)), "coins"),
        (lambda: FiniteLoss((-5.0,), (1.0,)), "losses"),
        (lambda: FiniteLoss((0.1,), (1.0,)), "losses"),
        (lambda: FiniteLoss((0.1, -3.0), (0.99504, 0.00496)), "losses"),
        (lambda: adaptive(mechanism="laplace", noise_multiplier=1.0), "bound"),
        (lambda: adaptive(trust="local", noise_multiplier=1.0), "bound"),
        (lambda: adaptive(trust="local", mechanism="qtdl", message_epsilon=5, levels=16), "bound"),
        (
            lambda: so.plan(FEDAVG, rounds=1, cohort="unreliable:9-9", noise_multiplier=2, relation="add-remove"),
            "relation",
        ),
        (lambda: so.plan(FEDAVG, rounds=1, cohort="fixed:9", noise_multiplier=2, relation="zero-out"), "relation"),
        (lambda: FiniteLoss((5.0, 0.0), (-0.5, 1.5)), "probabilities"),
        (lambda: ZeroConcentrated(1.0, xi=-3.0), "xi"),
        (lambda: ZeroConcentrated(100.0, 0.0, 0.0), "pure_epsilon"),
        (lambda: Parallel(()), "events"),
        (lambda: so.qtdl(d=100, levels=16, epsilon=8).event(so.clip(1.0), REPLACE, 1), "d"),
        (lambda: so.qtdl(d=100, levels=16, epsilon=8).event(so.clip(2.0), REPLACE, 100), "bound"),
        (lambda: so.privunit(d=10, eps0=40, eps1=2, eps2=2, bound=1.0), "eps0"),
        (lambda: so.scalar_dp(26.0), "eps2"),
        (lambda: so.plan(FEDAVG, rounds=1, mechanism="qtdl", message_epsilon=1.0), "levels"),
        (lambda: so.plan(FEDAVG, rounds=1, mechanism="binomial", levels=4), "message_epsilon"),
        (lambda: so.plan(FEDAVG, rounds=1, mechanism="binomial", message_epsilon=1.0, levels=4, coins=9), "coins"),
        (lambda: so.plan(FEDAVG, rounds=1, mechanism="laplace", noise_multiplier=1.0, levels=4), "levels"),
        (lambda: so.plan(FEDAVG, rounds=1, gamma=0.5), "gamma"),
        (lambda: Poisson(1e-320), "cohort"),
        (lambda: so.gaussian(1e-38), "noise_std"),
        (lambda: so.gaussian(1e39), "noise_std"),
        (lambda: so.laplace(1e-40), "noise_scale"),
        (
            lambda: planned(so.dp_sgd(server_lr=1.0, bound=so.clip(1e-30)), noise_multiplier=1e-8, sampler="float32"),
            "noise_std",
        ),
        (lambda: planned(FEDAVG, noise_multiplier=0.1), "noise_multiplier"),
        (lambda: planned(FEDAVG, noise_multiplier=1e7), "noise_multiplier"),
        (lambda: planned(FEDAVG, noise_multiplier=1.0, sampler="exact"), "sampler"),
        (lambda: planned(FEDAVG, noise_multiplier=1.0, sampler="lattice", trust="local"), "sampler"),
        (lambda: planned(FEDAVG, noise_multiplier=1e-5, cohort="poisson:0.1"), "noise_multiplier"),
        (lambda: planned(fedexp(1e13), noise_multiplier=1.0), "bound"),
        (lambda: planned(fedexp(1e-13), noise_multiplier=1.0), "bound"),
        (lambda: planned(fedexp(1e12), noise_multiplier=1e9, sampler="float32"), "noise_std of the step size"),
        (lambda: planned(fedexp(1e-12), noise_multiplier=1e-9, sampler="float32"), "noise_std of the step size"),
        (lambda: toy(sizes=(3, 0, 2)), "clients"),
        (lambda: so.task("quadratics", model="logistic"), "model"),
        (lambda: so.task("quadratics", partition_seed=3), "partition_seed"),
        (lambda: so.task("quadratics", augment="crop-flip"), "augment"),
    ],
)
def test_bad_input_names_the_field_and_the_value(ask, field):
    with pytest.raises(InvalidInput) as caught:
        ask()
    assert str(caught.value).startswith(f"{field} = ")
    assert caught.value.remedy


def test_every_error_is_one_that_the_command_line_understands():
    assert issubclass(Refused, SordinoError)
    assert issubclass(InvalidInput, SordinoError)
    assert issubclass(SordinoError, ValueError)


def test_amplification_by_the_clients_own_sample_is_granted():
    """Records inside a client are sampled by the client, in secret from the server (paper 2)."""
    amplified = certificate(observer=Observer.SERVER, unit=Unit.RECORD, sampling=WithoutReplacement(5, 100))
    assert amplified.total(Observer.SERVER).epsilon < certificate().total(Observer.MODEL_USER).epsilon


def test_full_sampling_claims_nothing():
    assert certificate(sampling=Full()) == certificate()


def test_no_noise_is_printed_as_infinite():
    cert = certificate(NonPrivate())
    assert "no guarantee (epsilon = infinite" in str(cert)
    assert [warning.code for warning in cert.warnings] == ["not-private"]


def test_theorem_1_is_labelled_wherever_it_appears():
    paper = theorem_1(assumed_sensitivities(328810, 64, 0.1), 10)
    assert isinstance(paper.event, Claimed)
    cert = certificate(paper.event, rounds=1)
    assert "no guarantee" in str(cert.guarantees[0])
    (warning,) = cert.warnings
    assert warning.code == "no-valid-guarantee"
    assert "1 - 10^-19620" in warning.message


def test_every_false_claim_is_named():
    event = Composed((Claimed("A is false", Gaussian(1.0)), Claimed("B is false", Gaussian(1.0))))
    assert [warning.message for warning in certificate(event).warnings] == ["A is false", "B is false"]


def test_a_false_claim_inside_a_joint_sample_is_named():
    event = Composed((Claimed("X is false", Pure(1.0)), Pure(0.5)))
    cert = certificate(event, relation=ADD, sampling=Poisson(0.1))
    assert [warning.message for warning in cert.warnings] == ["X is false"]


def test_what_never_happens_changes_nothing():
    with pytest.raises(Refused, match="zero-out"):
        certificate(Composed((Gaussian(1.0), Repeated(NonPrivate(), 0))), relation=ADD, observer="server")


def test_local_noise_helps_model_users_only_where_nobodys_noise_can_be_missing():
    for relation, helped in (("zero-out", True), ("replace-one", True)):
        plan = so.plan(FEDAVG, rounds=5, noise_multiplier=2.0, trust="local", relation=relation)
        cert = plan.resolve(so.Population(10, 100)).certificate
        smaller = cert.total(Observer.MODEL_USER).epsilon < cert.total(Observer.SERVER).epsilon
        assert smaller is helped
    with pytest.raises(Refused, match="zero-out"):
        so.plan(FEDAVG, rounds=5, noise_multiplier=2.0, trust="local", relation="add-remove").resolve(
            so.Population(10, 100)
        )


def test_assumed_sensitivity_is_printed_at_record_level():
    event = so.qtdl(d=100, levels=64, epsilon=10, delta=1e-6, mu=0.1).event(so.clip(1.0), REPLACE, 100)
    cert = certificate(event, unit="record", observer="server")
    assert "with mu = 0.1, which nothing enforces" in str(cert.guarantees[0])
    assert [warning.code for warning in cert.warnings] == ["assumed"]


@pytest.mark.parametrize(("delta", "counted"), [(1e-3, False), (1e-5, True)])
def test_records_of_an_assumed_sensitivity_are_counted_and_delta_measured_by_them(delta, counted):
    task = so.task("digits", clients=10, partition="iid", model="logistic")
    records = int(task.data.size.sum())
    options = {"levels": 64, "message_epsilon": 10.0, "message_delta": 1e-8, "mu": 0.1}
    plan = so.plan(FEDAVG, rounds=2, trust="local", mechanism="qtdl", delta=delta, **options)
    cert = plan.resolve(task.population).certificate
    assert {guarantee.units for guarantee in cert.guarantees} == {records if counted else None}
    assert (f"one record of {records}" in str(cert)) is counted
    assert ("delta-too-large" in [warning.code for warning in cert.warnings]) is not counted


def test_a_hidden_sample_is_an_assumption():
    total = certificate(relation=ADD, sampling=Poisson(0.2)).total(Observer.MODEL_USER)
    assert total.assumptions == ("poisson:0.2 sampling stays hidden from the model user",)


def test_words_as_strings_do_not_change_what_holds():
    """A string equals its enum member and shares its place in caches, so it must be parsed before anything else."""
    event = Sampled(Pure(1.0), Poisson(0.1))
    for relation in ("replace-one", REPLACE):
        with pytest.raises(Refused):
            epsilon_of(event, 0.0, relation)
    assert epsilon_of(event, 0.0, "add-remove") == epsilon_of(event, 0.0, ADD)


@pytest.mark.parametrize(("q", "z", "rounds", "joint"), [(0.01, 1, 1, 0.8160), (0.01, 1, 100, 2.2907)])
def test_two_releases_from_one_sample_are_one_joint_release(q, z, rounds, joint):
    """A vector and a step size of one cohort cost more than if each had a cohort of its own."""
    together = Repeated(Sampled(Composed((Gaussian(z), Gaussian(z))), Poisson(q)), rounds)
    assert epsilon_of(together, 1e-5) == pytest.approx(joint, abs=2e-3)
    assert epsilon_of(together, 1e-5) == epsilon_of(Repeated(Sampled(Gaussian(z / 2**0.5), Poisson(q)), rounds), 1e-5)


def test_gaussian_noise_is_never_pure():
    assert epsilon_of(Gaussian(1e200), 0.0) == float("inf")
    assert so.delta_of(Gaussian(1.0), 100.0) > 0


def test_failure_probability_leaves_delta_before_epsilon_is_computed():
    event = Repeated(Approximate(Pure(0.1), 1e-8), 10)
    plain = Repeated(Pure(0.1), 10)
    assert epsilon_of(event, 1e-6) == pytest.approx(epsilon_of(plain, 1e-6 - 1e-7), rel=1e-6)
    assert epsilon_of(event, 1e-8) == float("inf")


def test_a_value_stands_in_the_message_as_it_is_written():
    assert str(InvalidInput("relation", ADD, "no")) == "relation = 'add-remove': no"
    assert str(InvalidInput("augment", crop_flip, "no")) == "augment = 'crop_flip': no"
    assert (
        str(InvalidInput("augment", so.task("digits", clients=2, augment="crop").augment, "no"))
        == "augment = 'crop': no"
    )
    assert str(InvalidInput("bound", so.clip(1.0), "no")) == "bound = Clip(limit=1.0): no"


@pytree
@dataclass(frozen=True)
class Understated(Clip):
    """A bounder of one's own that declares a share of what its limit allows."""

    share: float = 0.01

    def sensitivity(self, relation):
        return self.share * super().sensitivity(relation)


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("make", [so.fedavg, so.fedexp])
@pytest.mark.parametrize("share", [0.01, 1 - 1e-9, math.nan])
def test_a_bounder_that_declares_less_than_its_limit_is_refused(make, relation, share):
    method = make(local_steps=1, local_lr=0.1, bound=Understated(2.0, share))
    with pytest.raises(InvalidInput, match="Understated") as error:
        planned(method, noise_multiplier=1.0, relation=str(relation))
    assert f"{2.0 * relation.sensitivity_factor:g}" in str(error.value)
    planned(make(local_steps=1, local_lr=0.1, bound=Understated(2.0, 1.5)), noise_multiplier=1.0)
    planned(so.fedavg(local_steps=1, local_lr=0.1, bound=Understated(2.0, share)))  # nothing is promised


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("limit", [1e-30, 0.1, 1 / 3, 1e30])
def test_bounders_of_the_package_declare_enough(relation, limit):
    bounds = [so.clip(limit), so.normalize(limit), so.smoothed_normalize(limit)]
    for half in bounds:
        for method in (
            so.fedavg(local_steps=1, local_lr=0.1, bound=half),
            so.scaffold(local_steps=1, local_lr=0.1, bound=half, control_bound=1.0),
        ):
            planned(method, noise_multiplier=1.0, relation=str(relation))
