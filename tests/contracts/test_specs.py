"""Every published table that is here as a spec: its files exist, and each run resolves to what the label says."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import jax
import matplotlib.figure
import numpy as np
import pytest

import sordino as so
from sordino.config import load_sweep
from sordino.data.datasets import CATALOGUE
from sordino.errors import InvalidInput
from sordino.experiments.pictures import draw, heat_maps
from sordino.experiments.reproducing import Outcome, spreads_of
from sordino.experiments.specs import Cell, FigureSpec, all_specs, find_spec
from sordino.models import flat, get
from sordino.privacy.published import normec_noise, qtdl_theorem_2_epsilon_0
from sordino.report.figures import plot_curves
from sordino.tasks import PROBLEMS
from sordino.types import Observer

SPECS = {spec.full_name: spec for spec in all_specs()}
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
SHAPES = {"npz:cifar10-resnet18": ((512,), 10), "npz:cifar100-resnet18": ((512,), 100)}  # as the specs ask for


def parameters(config):
    """The number of parameters, without reading the data."""
    task = config.file.task
    if task.name == "quadratics":
        return 200
    shape, classes = SHAPES.get(task.name) or (CATALOGUE[task.name].shape, CATALOGUE[task.name].classes)
    return flat(get(task.model, shape, classes), jax.random.key(0))[0].shape[0]


def resolved(config, clients=None):
    """The plan for a population of so many clients, without reading the data."""
    return config.plan().resolve(so.Population(parameters(config), clients or config.file.task.clients))


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
                resolved = point.config.plan().resolve(
                    so.Population(parameters(point.config), point.config.file.task.clients)
                )
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
    scripts = "".join(path.read_text() for path in (ROOT / "experiments" / folder.name).glob("*.py"))
    for path in (folder / "runs").glob("*.toml"):
        by_script = path.stem.partition("-")[0] in scripts
        assert f"runs/{path.name}" in used or by_script or "example" in path.read_text().partition("\n")[0].lower()
        assert load_sweep(path).points


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/*.json")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_committed_results_are_rows_of_their_spec(path):
    result = json.loads(path.read_text())
    if result["provenance"]["command"].startswith("python -m"):  # measured by a script
        return
    assert result["name"] == path.stem or (path.stem.startswith(result["name"]) and result["scope"])  # or a part
    spec = SPECS[f"{path.parent.name}-{result['name']}"]
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
        mechanism = resolved(point.config, clients=50).mechanism
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


@pytest.mark.parametrize(("name", "share"), [("on-messages", 1 / 5), ("on-sum", 1 / 25)])
def test_other_readings_of_table_5_have_as_much_less_noise_as_they_say(name, share):
    """Of the deviation on the sum of 25 messages, which in table5 is 2C / sqrt(3)."""
    for point in SPECS[f"paper0-table5-{name}"].points(quick=False):
        mechanism = resolved(point.config, clients=50).mechanism
        bound = next(value for value in point.config.file.bound.model_dump().values() if value)
        if point.cell.row == "theorem 2":
            of_one = mechanism.calibration.noise_std / mechanism.levels * mechanism.bound
            std = of_one * (math.sqrt(25) if point.config.file.privacy.trust == "local" else 1)
        else:
            std = float(mechanism.noise_std)
        assert std == pytest.approx(share * 2 * bound / math.sqrt(3), rel=0.01)  # mu = 0.08 has 2 levels more


NORMEC_SIGMA = normec_noise(300, 8.0, 1e-5)  # what paper 4 sets its noise by
RESNET20_PARAMETERS = 269_722


def normec_method(column, beta, gamma):
    """Paper 4's method of that column, called as a library."""
    bound, batch = so.smoothed_normalize(0.01), 32
    if column == "clip21":  # the paper's beta is the clip
        return so.error_feedback(beta=1.0, server_lr=gamma, bound=so.clip(beta), batch_size=batch)
    if column == "dp-sgd":  # eq. (2) with beta Norm_alpha: only beta gamma counts
        return so.dp_sgd(server_lr=beta * gamma, bound=bound, batch_size=batch)
    normalized = column == "norm-ec server-normalized"
    return so.error_feedback(beta=beta, server_lr=gamma, bound=bound, batch_size=batch, server_normalization=normalized)


# (beta, the paper's best gamma, its accuracy)
NORMEC_TABLE3 = {
    "norm-ec": [(0.01, 0.1, 84.04), (0.1, 0.1, 86.09), (1.0, 0.1, 84.80), (10.0, 0.01, 79.25)],
    "norm-ec server-normalized": [(0.01, 0.01, 82.86), (0.1, 0.1, 85.43), (1.0, 0.1, 84.29), (10.0, 0.1, 81.48)],
    "clip21": [(0.01, 0.1, 83.00), (0.1, 0.1, 85.91), (1.0, 0.1, 84.78), (10.0, 0.1, 83.19)],
    "dp-sgd": [(0.01, 1.0, 51.10), (0.1, 1.0, 79.68), (1.0, 1.0, 83.89), (10.0, 0.1, 84.50)],
}


@pytest.mark.parametrize(
    ("name", "quick", "d"),
    [
        ("paper4-private-by-norm", False, RESNET20_PARAMETERS),
        ("paper4-private-by-norm", True, 65 * 10),
        ("paper4-private-by-norm-compensated", False, RESNET20_PARAMETERS),
        ("paper4-private-by-norm-compensated", True, 65 * 10),
        ("paper4-private-small-model-compensated", False, 785 * 32 + 33 * 10),
        ("paper4-private-small-model-compensated", True, 785 * 32 + 33 * 10),
    ],
)
def test_noise_by_norm_is_as_long_as_the_papers_sigma(name, quick, d):
    for point in SPECS[name].points(quick):
        multiplier = point.config.file.privacy.noise_multiplier
        assert multiplier * math.sqrt(d) == pytest.approx(NORMEC_SIGMA, rel=1e-5)


def test_noise_lengths_are_those_of_their_rows():
    for point in SPECS["paper4-private-noise-lengths"].points(quick=False):
        length = float(point.cell.place[0].removeprefix("noise of length "))
        d = 785 * 32 + 33 * 10
        assert point.config.file.privacy.noise_multiplier * math.sqrt(d) == pytest.approx(length, rel=1e-4)


def test_paper_4s_table_has_its_methods_step_sizes_and_accuracies():
    cells = {}
    for point in SPECS["paper4-table3"].points(quick=False):
        cells[point.cell.row, point.cell.column] = point
        assert point.config.file.task.model.startswith("resnet20:batch")
        assert point.config.file.run.rounds == 300 * 140
    assert {row for row, _ in cells} == {"beta 0.01", "beta 0.1", "beta 1", "beta 10"}
    assert {column for _, column in cells} == set(NORMEC_TABLE3)
    checked = 0
    for column, rows in NORMEC_TABLE3.items():
        for beta, gamma, paper in rows:
            point = cells[f"beta {beta:g}", column]
            assert point.cell.paper == paper
            same(point.config.plan().method, normec_method(column, beta, gamma))
            checked += 1
    assert checked == len(cells) == 16
    assert SPECS["paper4-table3"].seeds(quick=False) == (42,)


def test_paper_4s_heat_maps_have_its_grid_and_say_what_holds():
    spec, settings = SPECS["paper4-private"], {}
    for point in spec.points(quick=False):
        plan = point.config.plan()
        settings[point.cell.row, point.cell.column] = plan.method
        assert plan.noise.noise_multiplier == pytest.approx(NORMEC_SIGMA, rel=1e-12)
        assert "(8, 1e-5) for 300 messages" in point.cell.claim
    grid, columns = (0.001, 0.01, 0.1, 1.0), ("norm-ec", "norm-ec server-normalized", "clip21")
    wanted = {
        (f"beta {beta:g}, gamma {gamma:g}", column): (column, beta, gamma)
        for column in columns
        for beta in grid
        for gamma in grid
    }
    assert settings.keys() == wanted.keys()
    for place, (column, beta, gamma) in wanted.items():
        same(settings[place], normec_method(column, beta, gamma))
    for quick, epsilon in ((False, 507.2), (True, 12.267)):  # 42,000 messages, and the 300 of the claim
        certificate = spec.points(quick)[0].config.plan().resolve(so.Population(1000, 10)).certificate
        assert certificate.total(Observer.SERVER).epsilon == pytest.approx(epsilon, rel=1e-3)


def test_paper_4s_small_model_has_the_noise_of_one_message_as_its_length():
    sigma = normec_noise(1, 8.0, 1e-5)
    points = SPECS["paper4-private-small-model"].points(quick=False)
    assert len(points) == 3 * 4 * 4
    for point in points:
        task, multiplier = point.config.file.task, point.config.file.privacy.noise_multiplier
        assert (task.name, task.clients, point.config.file.algorithm.model_dump()["batch_size"]) == (
            "fashion-mnist",
            10,
            32,
        )
        assert multiplier * math.sqrt(parameters(point.config)) == pytest.approx(sigma, rel=1e-5)


@pytest.mark.parametrize("quick", [False, True])
def test_paper_4s_many_clients_get_what_is_promised(quick):
    spec = SPECS["paper4-private-many-clients"]
    for point in spec.points(quick):
        certificate = (
            point.config.plan()
            .resolve(so.Population(parameters(point.config), point.config.file.task.clients))
            .certificate
        )
        assert certificate.total(Observer.MODEL_USER).epsilon == pytest.approx(8, rel=1e-4)
        assert certificate.total(Observer.SERVER).epsilon == math.inf  # the server is trusted, and that is said


def same(found, wanted):
    """Two methods are equal, numbers and all."""
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-12), found, wanted)


def test_a_quick_look_may_be_evaluated_more_often():
    spec = SPECS["paper4-table3"]
    assert (spec.evaluate_every(quick=False), spec.evaluate_every(quick=True)) == (1400, 20)
    assert SPECS["paper3-table1-fashion-mnist"].evaluate_every(quick=True) == 20  # that of the whole


def test_a_heat_map_is_spanned_by_the_two_parts_of_its_rows(tmp_path):
    def outcome(row, panel, *seeds):
        cell = Cell(row=row, column="c", file="", panel=panel)
        runs = tuple(SimpleNamespace(history=[{"accuracy": value} for value in values]) for values in seeds)
        return Outcome(SimpleNamespace(cell=cell), runs)

    outcomes = [
        outcome("beta 1, gamma 0.1", "left", [0.25, 0.75, 0.5], [0.25, 0.25, 0.25]),  # the highest of each seed
        outcome("beta 1, gamma 1", "left", [0.125]),
        outcome("beta 2, gamma 1", "left", [0.5]),
        outcome("beta 2, gamma 0.1", "right", [1.0]),
    ]
    maps = heat_maps(outcomes, "highest-accuracy")
    downs, alongs, table = maps["left"]
    assert (downs, alongs) == (["beta 1", "beta 2"], ["gamma 0.1", "gamma 1"])
    assert table == [[50, 12.5], [None, 50]]  # nothing was tried at beta 2, gamma 0.1
    assert maps["right"].values == [[100]]
    lost = outcome("beta 1, gamma 10", "left", [math.nan])
    left, right = spreads_of([*outcomes[:2], lost], "highest-accuracy"), spreads_of([lost], "highest-accuracy")
    assert left == [
        {"metric": "highest-accuracy", "column": "c", "row": "beta 1", "spread": 37.5, "cells": 3, "diverged": 1}
    ]
    assert (right[0]["spread"], right[0]["cells"], right[0]["diverged"]) == (None, 1, 1)
    picture = tmp_path / "map.png"
    draw(FigureSpec(name="m", title="m", kind="heat-map", metric="highest-accuracy"), outcomes, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InvalidInput, match="two parts"):
        heat_maps([outcome("beta 1", "left", [0.5])], "highest-accuracy")


def test_a_legend_of_long_names_stays_in_the_picture(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", lambda figure, *_, **__: seen.append(figure))
    names = [f"gaussian, same deviation, sound (0.1, 1e-9), clip {k}" for k in range(7)]
    plot_curves([("", name, x, x) for name in names for x in (1.0, 2.0)], tmp_path / "f.png", title="F")
    (figure,) = seen
    figure.draw_without_rendering()
    inside, (legend,) = figure.bbox, figure.legends
    around = legend.get_window_extent()
    assert inside.x0 <= around.x0 < around.x1 <= inside.x1
    assert inside.y0 <= around.y0 < around.y1 <= inside.y1
