"""Small runs of every method, trust, cohort, mechanism and bounder give the results that were recorded for them.

`recorded/` holds a run file for each case, and beside it the metrics, the certificate and the model that it gave.
`record.py` says how to make them again. Sentences are not compared: wording may change, numbers and codes may not.
"""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.golden.record import RECORDED, results_of

CASES = sorted(path.stem for path in RECORDED.glob("*.toml"))
# For `make test-all` only; every method has other cases too.
SLOW = {
    "accelerated-mb-sgd-local",
    "accelerated-mb-sgd-multi-stage",
    "accelerated-mb-sgd-shuffle-fixed",
    "clip21-central-poisson",
    "dp-sgd-central",
    "dp-sgd-plain",
    "ef21-top-k-clip-local-laplace",
    "fedavg-adaptive-clip-lattice",
    "fedavg-adaptive-clip-poisson",
    "fedavg-adaptive-clip-replace-one",
    "fedavg-central-binomial-mu",
    "fedavg-central-fixed-mlp",
    "fedavg-central-laplace-poisson",
    "fedavg-central-qtdl-gaussian",
    "fedavg-central-unreliable",
    "fedavg-central-zero-out",
    "fedavg-local-gaussian-poisson",
    "fedavg-local-gaussian-transcript",
    "fedavg-local-laplace",
    "fedavg-local-privunit",
    "fedavg-local-qtdl-gaussian-fixed",
    "fedavg-local-qtdl-laplace",
    "fedavg-local-qtdl-theorem-1-mu",
    "fedavg-local-qtdl-truncated-laplace",
    "fedavg-step-size-corrected-cost",
    "fedexp-central-corrected",
    "fedexp-central-poisson-step-cost",
    "fedexp-local-gaussian-naive",
    "fedexp-local-privunit",
    "noisy-mb-sgd-local",
    "noisy-mb-sgd-per-client",
    "noisy-mb-sgd-plain-poisson",
    "noisy-mb-sgd-theorem-2.1",
    "norm-ec-calibration",
    "norm-ec-exact",
    "norm-ec-local-zero",
    "norm-ec-noisy-start",
    "norm-ec-remember-noise",
    "norm-ec-secure-average",
    "scaffold-central-fixed-step-size",
    "scaffold-central-fresh",
    "scaffold-central-gaussian",
    "scaffold-local-privunit",
    "scaffold-local-update-remembered",
    "scaffold-records-plain-unreliable",
    "scaffold-records-sampled",
    "sweep-norm-ec",
}

# Figures in float32: the compiler chooses the order of sums. With XLA's other optimisation levels they differ by 3e-6,
# models by less than 1e-6.
METRICS = {"rel": 2e-5, "abs": 5e-7}
MODEL = {"rel": 1e-6, "abs": 1e-6}
# Figures in float64: NumPy's exp and log depend on the processor, and epsilon by up to 1e-12 with them.
EPSILON = {"rel": 1e-10, "abs": 0.0}
SENTENCES = {"epsilon_of"}
OF_A_GUARANTEE = ("unit", "relation", "observer", "scope", "rounds", "delta", "accountant", "units", "client")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in CASES]
)
def test_a_run_gives_what_was_recorded(name, tmp_path):
    actual = results_of(RECORDED / f"{name}.toml", tmp_path)
    assert list(differences(recorded(name), actual)) == []


def recorded(name: str) -> dict[str, Any]:
    return json.loads((RECORDED / f"{name}.json").read_text())


def differences(expected: dict[str, Any], actual: dict[str, Any]) -> Iterator[str]:
    """Where the results of two runs, or of two sweeps, differ."""
    if "points" in expected:
        points = actual.get("points", [])
        yield from unequal("number of points", len(expected["points"]), len(points))
        for number, (one, other) in enumerate(zip(expected["points"], points, strict=False)):
            yield from of_metrics(f"point {number}, metrics", one["metrics"], other["metrics"])
            yield from of_certificate(f"point {number}, certificate", one["certificate"], other["certificate"])
        return
    yield from of_metrics("metrics", expected["metrics"], actual["metrics"])
    yield from of_certificate("certificate", expected["certificate"], actual["certificate"])
    yield from unequal("names of the model's arrays", sorted(expected["model"]), sorted(actual["model"]))
    for name in expected["model"].keys() & actual["model"].keys():
        yield from apart(f"model, {name}", expected["model"][name], actual["model"][name], MODEL)


def of_metrics(where: str, expected: list[dict[str, Any]], actual: list[dict[str, Any]]) -> Iterator[str]:
    """Every recorded figure must be present; further ones are allowed."""
    yield from unequal(f"{where}, rounds", [row["round"] for row in expected], [row["round"] for row in actual])
    for one, other in zip(expected, actual, strict=False):
        yield from apart(f"{where}, round {one['round']}", one, other, METRICS)
        yield from apart(f"{where}, round {one['round']}, epsilon", one["epsilon"], other["epsilon"], EPSILON)


def of_certificate(where: str, expected: dict[str, Any], actual: dict[str, Any]) -> Iterator[str]:
    """Compare guarantees in their order, codes of warnings, and the number of assumptions, which are sentences."""
    one, other = expected["guarantees"], actual["guarantees"]
    yield from unequal(f"{where}, number of guarantees", len(one), len(other))
    for number, (promised, found) in enumerate(zip(one, other, strict=False)):
        for name in OF_A_GUARANTEE:
            yield from unequal(f"{where}, guarantee {number}, {name}", promised[name], found[name])
        yield from apart(f"{where}, guarantee {number}, epsilon", promised["epsilon"], found["epsilon"], EPSILON)
        count = (len(promised["assumptions"]), len(found["assumptions"]))
        yield from unequal(f"{where}, guarantee {number}, number of assumptions", *count)
    codes = [sorted(warning["code"] for warning in side["warnings"]) for side in (expected, actual)]
    yield from unequal(f"{where}, warnings", *codes)


def apart(where: str, expected: Any, actual: Any, tolerance: dict[str, float]) -> Iterator[str]:
    """Where nested values differ: floats by more than the tolerance, everything else at all."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in expected.keys() - SENTENCES:
            if name in actual:
                yield from apart(f"{where}, {name}", expected[name], actual[name], tolerance)
            else:
                yield f"{where}, {name}: missing"
    elif isinstance(expected, list) and isinstance(actual, list):
        yield from unequal(f"{where}, length", len(expected), len(actual))
        for number, (one, other) in enumerate(zip(expected, actual, strict=False)):
            yield from apart(f"{where}, {number}", one, other, tolerance)
    elif isinstance(expected, float) and isinstance(actual, float):
        if actual != pytest.approx(expected, **tolerance):
            yield f"{where}: {actual!r}, recorded was {expected!r}"
    else:
        yield from unequal(where, expected, actual)


def unequal(where: str, expected: Any, actual: Any) -> Iterator[str]:
    if expected != actual:
        yield f"{where}: {actual!r}, recorded was {expected!r}"


def test_every_case_has_its_record():
    assert sorted(path.stem for path in RECORDED.glob("*.json")) == CASES
    assert set(CASES) >= SLOW


FILES = {name: tomllib.loads((RECORDED / f"{name}.toml").read_text()) for name in CASES}


def given(section: str, key: str, names: set[str]) -> set[Any]:
    return {FILES[name].get(section, {}).get(key) for name in names} - {None}


def test_every_kind_of_run_is_among_the_cases():
    from sordino.algorithms import METHODS
    from sordino.bounding import BOUNDERS
    from sordino.mechanisms import MECHANISMS

    everything = set(CASES)
    assert given("algorithm", "name", everything - SLOW) >= set(METHODS)
    assert {key for file in FILES.values() for key in file.get("bound", {})} >= set(BOUNDERS)
    assert given("privacy", "mechanism", everything) >= {*MECHANISMS} - {"gaussian", "none"}  # gaussian: default
    assert given("privacy", "trust", everything) >= {"local", "shuffle"}  # central: default
    assert given("privacy", "relation", everything) >= {"zero-out", "replace-one"}  # add-remove: default
    cohorts = {cohort.partition(":")[0] for cohort in given("run", "cohort", everything)}
    assert cohorts >= {"fixed", "poisson", "unreliable"}  # full: default
    noises = {"gaussian", "laplace", "truncated-laplace", "theorem-1"}  # best: default
    assert given("privacy", "noise", everything) >= noises
    assert given("privacy", "calibration", everything) >= {"norm-ec", "theorem-2.1"}  # numeric: default
    assert given("algorithm", "memory", everything) >= {"noisy", "secure-average", "exact"}  # zero: default
    assert given("algorithm", "step_size", everything) >= {"corrected", "naive"}
    assert given("algorithm", "control", everything) >= {"update", "fresh"}  # difference: default
    assert given("algorithm", "output", everything) >= {"last", "mean-of-last-two", "random"}


def _change(results: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(results)
    inside = changed
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = value(inside[path[-1]]) if callable(value) else value
    return changed


CHANGES = [
    (("metrics", -1, "test_loss"), lambda value: value * (1 + 1e-4)),
    (("metrics", 0, "epsilon"), lambda value: value * (1 + 1e-8)),
    (("metrics", 0, "round"), lambda value: value + 1),
    (("metrics", -1, "not_private", "mean_norm"), lambda value: value * (1 + 1e-4)),
    (("metrics",), lambda rows: rows[:-1]),
    (("certificate", "guarantees", -1, "epsilon"), lambda value: value * (1 + 1e-8)),
    (("certificate", "guarantees", -1, "relation"), "replace-one"),
    (("certificate", "guarantees", -1, "observer"), "peer"),
    (("certificate", "guarantees", -1, "assumptions"), []),
    (("certificate", "guarantees"), lambda all_of_them: all_of_them[:-1]),
    (("certificate", "warnings"), lambda all_of_them: all_of_them[:-1]),
    (("model", "params", "values", 0), lambda value: value + 1e-5),
    (("model", "params", "shape"), [1, 5]),
]


@pytest.mark.parametrize(("path", "value"), CHANGES, ids=["-".join(map(str, path)) for path, _ in CHANGES])
def test_a_changed_result_is_noticed(path, value):
    results = recorded("fedavg-local-gaussian")
    assert list(differences(results, results)) == []
    assert list(differences(_change(results, path, value), results)) != []
    assert list(differences(results, _change(results, path, value))) != []


def test_a_changed_point_of_a_sweep_is_noticed():
    results = recorded("sweep-norm-ec")
    assert list(differences(results, results)) == []
    for path, value in (
        (("points", 2, "metrics", -1, "test_loss"), 0.5),
        (("points", 1, "certificate", "guarantees", 0, "epsilon"), 4.5),
    ):
        assert len(list(differences(_change(results, path, value), results))) == 1


def test_other_words_are_no_difference():
    results = recorded("fedavg-local-gaussian")
    for path in (
        ("metrics", 0, "epsilon_of"),
        ("certificate", "warnings", 0, "message"),
        ("certificate", "guarantees", -1, "assumptions", 0),
    ):
        assert list(differences(results, _change(results, path, "in other words"))) == []
