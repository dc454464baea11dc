"""Every published table that is here as a spec: its files exist, and each run resolves to what the label says."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from sordino.config import load_sweep
from sordino.data.datasets import CATALOGUE
from sordino.experiments.specs import all_specs, find_spec
from sordino.models import flat, get
from sordino.privacy.published import qtdl_theorem_2_epsilon_0
from sordino.simulation.tasks import PROBLEMS
from sordino.types import Observer

SPECS = {spec.full_name: spec for spec in all_specs()}
RESULTS = Path(__file__).parents[2] / "results"
SHAPES = {"npz:cifar10-resnet18": ((512,), 10), "npz:cifar100-resnet18": ((512,), 100)}  # as the specs ask for


def parameters(config):
    """The number of parameters, without reading the data."""
    import jax

    task = config.file.task
    if task.name == "quadratics":
        return 200
    shape, classes = SHAPES.get(task.name) or (CATALOGUE[task.name].shape, CATALOGUE[task.name].classes)
    return flat(get(task.model, shape, classes), jax.random.key(0))[0].shape[0]


@pytest.fixture(scope="module")
def certificates():
    """Of every spec's first point of each cell, in the full version."""
    found = {}
    for name, spec in SPECS.items():
        if spec.paper not in (0, 3):  # others have tests of their certificates beside their methods
            continue
        seen = set()
        for point in spec.points(quick=False):
            if point.config.path not in seen:
                seen.add(point.config.path)
                resolved = point.config.plan().resolve(parameters(point.config), point.config.file.task.clients)
                found[name, point.cell.row, point.cell.column] = resolved.certificate
    return found


def test_every_table_with_experiments_of_papers_0_and_3_is_here():
    paper0 = {f"paper0-table{number}" for number in (2, 3, 4, 5, 6)}
    paper3 = {f"paper3-table1-{data}" for data in ("fashion-mnist", "cifar10", "cifar100")} | {"paper3-section-5-3"}
    assert paper0 | paper3 <= SPECS.keys()
    figures = {f"{spec.paper}-{figure.name}" for spec in SPECS.values() for figure in spec.file.figures}
    assert figures >= {*(f"0-figure{k}" for k in range(1, 6)), *(f"3-figure{k}" for k in range(1, 4))}


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_is_whole(name):
    spec = SPECS[name]
    assert find_spec(name) == spec
    for quick in (False, True):
        cells = [(point.cell.row, point.cell.column) for point in spec.points(quick)]
        assert len(cells) == len(set(cells)) > 1, "two runs would share a cell"
        for point in spec.points(quick):
            point.config.plan()
    quick, full = spec.points(quick=True), spec.points(quick=False)
    work = [sum(point.config.file.run.rounds for point in points) for points in (quick, full)]
    assert work[0] * len(spec.seeds(quick=True)) < work[1] * len(spec.seeds(quick=False)) / 5
    assert {*(point.config.file.task.name for point in full)} - PROBLEMS.keys() == {*spec.file.data}


@pytest.mark.parametrize("folder", sorted({spec.path.parent for spec in SPECS.values()}))
def test_every_run_file_is_used_and_loads(folder):
    used = {cell.file for spec in SPECS.values() if spec.path.parent == folder for cell in spec.file.cells}
    scripts = "".join(path.read_text() for path in folder.glob("*.py"))
    for path in (folder / "runs").glob("*.toml"):
        by_script = path.stem.partition("-")[0] in scripts
        assert f"runs/{path.name}" in used or by_script or "example" in path.read_text().partition("\n")[0].lower()
        assert load_sweep(path).points


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/*.json")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_committed_results_are_rows_of_their_spec(path):
    result = json.loads(path.read_text())
    if f"{path.parent.name}-{path.stem}" not in SPECS:  # measured by a script, which its provenance names
        assert result["provenance"]["command"].startswith("python -m")
        return
    spec = SPECS[f"{path.parent.name}-{path.stem}"]
    cells = {(point.cell.row, point.cell.column): point.cell.paper for point in spec.points(quick=False)}
    for row in result["rows"]:
        assert cells[row["row"], row["column"]] == row["paper"]


def test_what_the_errata_call_false_is_labelled_and_nothing_else_is(certificates):
    for (name, row, column), certificate in certificates.items():
        false = any(warning.code == "no-valid-guarantee" for warning in certificate.warnings)
        promised = [total for total in certificate.guarantees if total.scope == "all rounds"]
        assert false == (name.startswith("paper0") and ("theorem 2" in row or row.startswith("qtdl"))), (name, row)
        if false:
            assert all(math.isinf(total.epsilon) for total in promised), (name, row, column)


def test_sound_rows_promise_what_they_are_called(certificates):
    for name, observer in (("paper0-table3", "server"), ("paper0-table5", "model user")):
        certificate = certificates[name, "gaussian, sound (0.1, 1e-9)", "normalize"]
        (total,) = [t for t in certificate.guarantees if t.scope == "all rounds" and t.observer == observer]
        assert total.epsilon == pytest.approx(0.1, rel=1e-3)
        assert total.delta == 1e-9
    for dataset in ("cifar10", "cifar100"):
        for epsilon in (5, 1.5):
            certificate = certificates[f"paper3-table1-{dataset}", f"eps {epsilon}", "norm"]
            assert certificate.total(Observer.MODEL_USER).epsilon == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.parametrize("name", ["paper0-table3", "paper0-table5"])
def test_theorem_2_noise_is_the_papers(name):
    """2r/n (eps/8 + eps^2 / (256 log(1/delta))) = 0.1 with 2r/n = 1; then eps_0, and noise that is uniform on +-2C."""
    log = math.log(1e9)
    epsilon = 16 * log * (math.sqrt(1 + 0.1 / log) - 1)
    assert epsilon / 8 + epsilon**2 / (256 * log) == pytest.approx(0.1)
    checked = 0
    for point in SPECS[name].points(quick=False):
        privacy = point.config.file.privacy
        d = parameters(point.config)
        mechanism = point.config.plan().resolve(d, 50).mechanism
        if point.cell.row == "theorem 2":
            assert privacy.message_epsilon == pytest.approx(qtdl_theorem_2_epsilon_0(epsilon, 500, 1e-9), rel=1e-5)
            std = mechanism.calibration.noise_std / mechanism.levels * mechanism.bound
            assert mechanism.calibration.support == pytest.approx(2 * mechanism.levels, rel=1e-3)
        elif "same deviation" in point.cell.row:
            std = float(mechanism.noise_std)
        else:
            continue
        bound = next(value for value in point.config.file.bound.model_dump().values() if value)
        assert std == pytest.approx(2 * bound / math.sqrt(3), rel=1e-3)
        checked += 1
    assert checked == {"paper0-table3": 6, "paper0-table5": 8}[name]
