"""Paper 3's equation (5), by name: its noise, and what a certificate says of it."""

from __future__ import annotations

import math

import pytest

import sordino as so
from sordino.errors import InvalidInput
from sordino.privacy.published import fedavg_eq_5
from sordino.privacy.wording import format_epsilon
from sordino.tasks import Population
from sordino.types import Observer

ASKED = {"rounds": 200, "cohort": "poisson:0.2", "epsilon": 5.0, "delta": 1e-5, "sampler": "float32"}


def resolved(**options):
    method = so.fedavg(local_steps=1, local_lr=0.1, bound=so.clip(2.0))
    return so.plan(method, **(ASKED | {"calibration": "eq-5", "q": 1.0} | options)).resolve(Population(50, 3000))


def test_the_noise_is_that_of_the_formula():
    """sigma of the average over r = 600 of n = 3000: C sqrt(q K log(1/delta)) / (n epsilon)."""
    sigma = 2.0 * math.sqrt(200 * math.log(1e5)) / (3000 * 5.0)
    assert resolved().mechanism.noise_std == pytest.approx(600 * sigma, rel=1e-12)
    assert fedavg_eq_5(4.0, 200, 0.2, 5.0, 1e-5) == pytest.approx(2 * fedavg_eq_5(1.0, 200, 0.2, 5.0, 1e-5))


@pytest.mark.parametrize(("q", "epsilon", "false"), [(1.0, 7.80, True), (3.0, 3.84, False)])
def test_the_certificate_says_what_it_gives(q, epsilon, false):
    certificate = resolved(q=q).certificate
    total = certificate.total(Observer.MODEL_USER)
    assert total.epsilon == pytest.approx(epsilon, abs=0.05)
    assert ("no-valid-guarantee" in {warning.code for warning in certificate.warnings}) == false


def test_under_replace_one_the_same_noise_gives_more():
    one, other = (resolved(relation=relation) for relation in ("add-remove", "replace-one"))
    assert float(one.mechanism.noise_std) == pytest.approx(float(other.mechanism.noise_std))
    epsilons = [each.certificate.total(Observer.MODEL_USER).epsilon for each in (one, other)]
    assert epsilons[1] > 1.5 * epsilons[0]


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"q": None}, "q"),
        ({"q": 0.0}, "q"),
        ({"calibration": "numeric"}, "q"),
        ({"trust": "local", "cohort": "full", "sampler": None}, "trust"),
        ({"epsilon": None, "noise_multiplier": 1.0}, "calibration"),
    ],
)
def test_what_cannot_be_asked_for(options, field):
    with pytest.raises(InvalidInput) as caught:
        resolved(**options)
    assert caught.value.field == field


def test_equation_3_of_paper_4_is_the_same_formula():
    """DP-SGD with B of n = 600 of 3000 workers: variance Phi^2 c B^2 K log(1/delta) / (n epsilon)^2, on the sum."""
    method = so.dp_sgd(server_lr=0.1, bound=so.smoothed_normalize(0.01))
    found = so.plan(method, **(ASKED | {"calibration": "eq-5", "q": 2.0})).resolve(Population(50, 3000))
    variance = 2.0 * 600**2 / 3000**2 * 200 * math.log(1e5) / 5.0**2
    assert float(found.mechanism.noise_std) ** 2 == pytest.approx(variance, rel=1e-12)
    assert found.certificate.total(Observer.MODEL_USER).epsilon == pytest.approx(4.98, abs=0.05)


@pytest.mark.parametrize(
    "beside",
    [
        {"private_metric": {"name": "loss", "bound": 3.0, "noise_std": 60.0}},
        {"bound": so.adaptive_clip(2.0, indicator_noise_std=30.0)},
    ],
    ids=["a metric", "an adaptive bound"],
)
@pytest.mark.parametrize("q", [1.0, 1.83])
def test_what_is_released_beside_the_message_counts_in_the_claim(beside, q):
    """With q = 1.83 the update alone keeps what is claimed, and the whole round does not."""
    method = so.fedavg(**{"local_steps": 1, "local_lr": 0.1, "bound": so.clip(2.0)} | beside)
    certificate = so.plan(method, **ASKED, calibration="eq-5", q=q).resolve(Population(50, 3000)).certificate
    true = certificate.total(Observer.MODEL_USER).epsilon
    (claim,) = (warning.message for warning in certificate.warnings if warning.code == "no-valid-guarantee")
    assert true > 5.0
    assert f"epsilon is {format_epsilon(true)}." in claim
