"""The study behind docs/which_method.md: its files, its decisions, and the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from sordino.config import load_sweep
from sordino.experiments.which_method.page import best_group, start_with, which_method_page
from sordino.experiments.which_method.study import HERE, budget_of, load_study, parts_of
from sordino.types import Observer

ROOT = Path(__file__).parents[2]


def comparison(*rows):
    return {"rows": [dict(zip(("method", "mean", "p"), row, strict=True)) for row in rows]}


def test_the_page_is_generated_from_the_results():
    assert (ROOT / "docs" / "which_method.md").read_text() == which_method_page(ROOT / "results" / "which_method")


def test_every_method_of_a_comparison_has_the_same_budget_and_promise():
    study = load_study()
    for task in study.tasks:
        for part in parts_of(study, task):
            assert budget_of(study, part).points > 1  # refuses grids of different sizes
            for each in part.candidates():
                privacy = each.config.file.privacy
                assert (privacy.trust, privacy.epsilon) == (part.model.name, part.epsilon)
                assert len({config.file.run.rounds for _, config in each.points}) == 1


def test_every_run_file_belongs_to_the_study():
    named = {f"{model.name}-{method}" for model in load_study().models for method in model.methods}
    assert named == {path.stem for path in (HERE / "runs").glob("*.toml")}


@pytest.mark.parametrize("model", load_study().models, ids=lambda model: model.name)
def test_the_methods_of_a_model_protect_against_the_same_observer(model):
    observers = set()
    for method in model.methods:
        point = load_sweep(HERE / "runs" / f"{model.name}-{method}.toml").points[0].config
        observers.add(point.point(point.task()).answer.promised)
    assert observers == {Observer.MODEL_USER if model.name == "central" else Observer.SERVER}


def test_the_best_group_holds_what_the_test_does_not_tell_from_the_best():
    """By hand. One method has no p-value since it never differs from the best; one diverged."""
    found = best_group(
        comparison(("a", 90.0, None), ("b", 89.5, 0.3), ("c", 80.0, 0.01), ("d", 90.0, None), ("e", None, None))
    )
    assert found == {"a": 0.0, "b": 0.5, "d": 0.0}


def test_one_starts_with_the_method_that_is_most_often_in_the_best_group():
    """b is never first, and in every best group. Without the third task a and b are equal: a is nearer to the best."""
    first = (
        {"method": "a", "mean": 90.0},
        {"method": "b", "mean": 88.0, "p": 0.2},
        {"method": "c", "mean": 70.0, "p": 0.0},
    )
    last = (
        {"method": "c", "mean": 60.0},
        {"method": "b", "mean": 59.0, "p": 0.9},
        {"method": "a", "mean": 50.0, "p": 0.0},
    )
    comparisons = [{"rows": list(rows)} for rows in (first, first, last)]
    assert start_with(comparisons) == ("b", 3)
    assert start_with(comparisons[:2]) == ("a", 2)
