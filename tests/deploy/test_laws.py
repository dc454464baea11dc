"""What leaves a node or a server has the law that its event is priced for, and no law that is half as much off.

Words are fixed, so a run repeats itself. A true law is rejected with probability ALPHA in each comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from sordino.deploy.entropy import coin_noise, quantize
from sordino.deploy.noise import randomize, randomize_sum, received_message
from sordino.deploy.records import OwnRecords
from sordino.deploy.study import Study, as_arrays
from sordino.deploy.turn import Aggregation, Training
from sordino.mechanisms._lattice import sensitivities
from sordino.privacy.events import FiniteLoss, Gaussian, Pure, as_ideal
from sordino.privacy.privunit import privunit_constants
from sordino.privacy.tdl import tdl_pmf
from sordino.types import Aggregate, Event, Message
from tests.deploy.clinic import CLIENT_STUDY, RECORD_STUDY, records_of, seeded_words, study_of
from tests.statistical.test_noise_laws import chi_square_p, ks_p

ALPHA = 1e-5
NEAR_MISSES = (2 / 3, 1.5)  # of the standard deviation
FEATURES, D = 9_999, 20_000

LOCAL = CLIENT_STUDY + 'trust = "local"\n'
GAUSSIAN = LOCAL + "epsilon = 8.0\ndelta = 1e-3\n"
CENTRAL = CLIENT_STUDY + 'trust = "central"\nepsilon = 8.0\ndelta = 1e-3\n'
QTDL = LOCAL + 'mechanism = "qtdl"\nlevels = 8\nmessage_epsilon = 4.0\ndelta = 1e-3\n'
QTDL_LAWS = {
    "laplace": QTDL + 'noise = "laplace"\n',
    "truncated-laplace": QTDL + 'noise = "truncated-laplace"\nmessage_delta = 1e-4\n',
    "gaussian": QTDL + 'noise = "gaussian"\nmessage_delta = 1e-4\n',
}
BINOMIAL = LOCAL + 'mechanism = "binomial"\nlevels = 8\nmessage_epsilon = 4.0\n'
PRIVUNIT = LOCAL + 'mechanism = "privunit"\nmessage_eps0 = 3.0\nmessage_eps1 = 2.0\nmessage_eps2 = 2.0\n'

Law = Callable[[float], NDArray[np.float64]]  # how much the std is off -> the probabilities around zero


def gaussian_std(event: Event, sensitivity: float) -> float:
    """The std that an event claims."""
    found = as_ideal(event)
    assert isinstance(found, Gaussian)
    return float(found.noise_multiplier) * sensitivity


def accepted_alone(sample: NDArray[np.float64], std: float) -> None:
    """The claimed normal law is accepted, and near misses are rejected."""
    assert ks_p(sample, stats.norm(scale=std).cdf) > ALPHA
    for factor in NEAR_MISSES:
        assert ks_p(sample, stats.norm(scale=factor * std).cdf) < ALPHA


# --- Gaussian noise on a lattice -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "sizes"), [(GAUSSIAN, None), (RECORD_STUDY, (6, 9, 5))], ids=["clients", "records"])
def test_a_message_holds_the_gaussian_noise_that_its_event_claims(
    text: str, sizes: tuple[int, ...] | None, tmp_path: Path
) -> None:
    """A whole turn of a node, against the same turn without noise."""
    study = study_of(text, tmp_path / "noisy", sizes=sizes, features=FEATURES)
    bare_text = text.split("[privacy]")[0] + ("[run]\nrounds = 3\nseed = 0\n" if sizes else "")
    bare = study_of(bare_text + '[privacy]\nmechanism = "none"\n', tmp_path / "bare", sizes=sizes, features=FEATURES)
    x, y = records_of(features=FEATURES)[0]
    sent = {}
    for name, each in (("noisy", study), ("bare", bare)):
        training = Training(each, 0, OwnRecords(x, y), seeded_words(1))
        state = each.rules.method.init_server(each.initial())
        received = as_arrays(each.rules.method.broadcast(state))
        update = training(received, training.first_state()).update
        sent[name] = np.asarray(Aggregation(each).check(0, update, state).vector, np.float64)  # as the server reads it
    numbers, noise = study.numbers(0), sent["noisy"] - sent["bare"]
    sensitivity = float(study.rules.method.bound.limit) if numbers is None else 2 * float(numbers.lipschitz) / len(y)
    accepted_alone(noise, gaussian_std(study.plan.costs[0], sensitivity))


def test_a_sum_under_central_trust_holds_the_noise_that_its_event_claims(tmp_path: Path) -> None:
    study = study_of(CENTRAL, tmp_path, features=FEATURES)
    total = np.linspace(-1, 1, D).astype(np.float32)
    state = study.rules.method.init_server(study.initial())
    noisy = randomize_sum(study.rules, state, Aggregate(jnp.asarray(total)), seeded_words(2))
    claimed = gaussian_std(study.plan.model_costs[0], float(study.rules.method.bound.limit))
    accepted_alone(np.asarray(noisy.sum, np.float64) - total, claimed)


# --- Whole noise on quantised vectors --------------------------------------------------------------------------------


def symbols_of(study: Study, messages: int = 3) -> NDArray[np.int64]:
    """The symbols of the zero vector, which is quantised to itself."""
    zero, words = Message(jnp.zeros(study.plan.resolved.population.d)), seeded_words(3)
    every = [randomize(study.rules, study.numbers(0), zero, words).integers for _ in range(messages)]
    return np.concatenate([each for each in every if each is not None]).astype(np.int64)


def laplace_law(alpha: float, reach: int | None = None) -> Law:
    """Discrete Laplace, cut where `reach` says so."""
    return lambda factor: tdl_pmf(math.ceil(45 / alpha) if reach is None else reach, alpha / factor)


def rounded_gaussian_law(std: float) -> Law:
    """round(N(0, std^2))."""

    def law(factor: float) -> NDArray[np.float64]:
        reach = math.ceil(9 * std * max(1.0, factor))
        k = np.arange(-reach, reach + 1)
        return np.diff(stats.norm.cdf(np.append(k - 0.5, reach + 0.5) / (factor * std)))

    return law


def claimed_law(study: Study) -> Law:
    """The law that a quantised message's event is the price of."""
    mechanism, event = study.rules.mechanism, as_ideal(study.plan.costs[0])
    bounds = sensitivities(D, mechanism.levels, study.plan.relation, None)
    match mechanism.calibration.law:
        case "laplace":
            assert isinstance(event, Pure)
            return laplace_law(event.epsilon / bounds.l1)
        case "gaussian":
            assert isinstance(event, Gaussian)
            return rounded_gaussian_law(event.noise_multiplier * bounds.l2)
        case _:
            calibration = mechanism.calibration
            assert calibration.alpha is not None
            assert calibration.event_under(bounds) == replace(event, unit=None, relation=None)
            return laplace_law(calibration.alpha, calibration.support)


@pytest.mark.parametrize("law", QTDL_LAWS)
def test_a_qtdl_message_holds_the_whole_noise_that_its_event_claims(law: str, tmp_path: Path) -> None:
    study = study_of(QTDL_LAWS[law], tmp_path, features=FEATURES)
    expected, drawn = claimed_law(study), symbols_of(study)
    for factor in (1.0, *NEAR_MISSES):
        pmf = expected(factor)
        assert (chi_square_p(drawn, -(len(pmf) // 2), pmf) > ALPHA) == (factor == 1.0)


def binomial_p(drawn: NDArray[np.int64], coins: int) -> float:
    """Heads minus half of the coins."""
    reach = min(coins // 2, math.ceil(8 * math.sqrt(coins)))
    k = np.arange(-reach, reach + 1)
    return chi_square_p(drawn, -reach, stats.binom.pmf(k + coins // 2, coins, 0.5))


def test_a_binomial_message_holds_the_coins_that_its_event_claims(tmp_path: Path) -> None:
    study = study_of(BINOMIAL, tmp_path, features=FEATURES)
    mechanism = study.rules.mechanism
    assert mechanism.coins > 1024  # drawn from a table
    drawn = symbols_of(study)
    assert binomial_p(drawn, mechanism.coins) > ALPHA
    for factor in NEAR_MISSES:
        assert binomial_p(drawn, 2 * round(mechanism.coins * factor**2 / 2)) < ALPHA


@pytest.mark.parametrize("coins", [2, 64, 1000])
def test_few_coins_are_tossed(coins: int) -> None:
    drawn = coin_noise(seeded_words(4), coins, D)
    assert binomial_p(drawn, coins) > ALPHA
    for factor in NEAR_MISSES:
        assert binomial_p(drawn, max(4, 2 * round(coins * factor**2 / 2))) < ALPHA or coins == 2


def test_quantised_coordinates_are_right_on_average() -> None:
    """0.3 of a step up: rounding to the nearest, or down, would be off by 0.3."""
    levels, bound = 8, 0.7
    whole = quantize(seeded_words(6), np.full(D, 0.3 / levels * bound, np.float32), levels, bound)
    assert set(whole.tolist()) == {0, 1}
    assert stats.binomtest(int(whole.sum()), D, 0.3).pvalue > ALPHA


# --- PrivUnit --------------------------------------------------------------------------------------------------------


def test_a_privunit_message_has_the_odds_that_its_event_claims(tmp_path: Path) -> None:
    """How often the direction lies in its own cap, in neither and in the other's, and how often the norm is true."""
    study = study_of(PRIVUNIT, tmp_path, features=4)
    mechanism, event = study.rules.mechanism, study.plan.costs[0]
    d, gamma, k = study.plan.resolved.population.d, mechanism.direction.gamma, mechanism.norm.constants.k
    u = np.full(d, d**-0.5, np.float32)
    words, along, levels = seeded_words(5), [], []
    for _ in range(600):
        message = received_message(study.rules, None, randomize(study.rules, None, Message(jnp.asarray(u)), words))
        length = float(mechanism.norm.value(message.level)) / mechanism.direction.m
        along.append(float(np.asarray(message.vector) @ u) / length)
        levels.append(int(message.level))
    inside, beyond = np.sum(np.array(along) >= gamma), np.sum(np.array(along) <= -gamma)
    counts = np.array([inside, len(along) - inside - beyond, beyond])
    cap, norm = event.events
    assert _fits(counts, cap)
    truth = np.array([np.sum(np.array(levels) == k), np.sum(np.array(levels) != k)])
    assert stats.binomtest(int(truth[0]), len(levels), norm.probabilities[0]).pvalue > ALPHA
    for factor in NEAR_MISSES:
        eps0 = math.log(cap.probabilities[0] / (1 - cap.probabilities[0]))
        other = privunit_constants(d, factor * eps0, 2.0, "exact")
        assert not _fits(counts, other.event)
        lie = math.exp(2.0 * factor) / (math.exp(2.0 * factor) + k)
        assert stats.binomtest(int(truth[0]), len(levels), lie).pvalue < ALPHA


def _fits(counts: NDArray[np.int64], event: FiniteLoss) -> bool:
    expected = np.array(event.probabilities) * counts.sum()
    return bool(stats.chi2.sf(np.sum((counts - expected) ** 2 / expected), len(counts) - 1) > ALPHA)
