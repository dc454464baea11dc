"""The study behind docs/which_method.md as data: study.toml names tasks, epsilons and run files; each file has a grid.

One result file for each task holds, for each model of trust and each epsilon, a comparison like that of
`sordino compare`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict

from sordino.config import load_sweep
from sordino.experiments.comparing import Arena, Outcome, arena, run_study
from sordino.experiments.tuning import Budget, Candidate, candidate
from sordino.report.comparison import TEST, compare
from sordino.report.results import Result

HERE = Path(__file__).parent
RESULTS = Path("results/which_method")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StudyTask(_Strict):
    """A task: changes to every run file."""

    name: str
    about: str
    set: tuple[str, ...]


class Model(_Strict):
    """A model of trust, and its methods: runs/<model>-<method>.toml."""

    name: str
    methods: tuple[str, ...]


class Study(_Strict):
    """A checked study.toml."""

    title: str
    epsilons: tuple[float, ...]
    seeds: int
    tuning_seeds: int
    held_out: float
    held_out_seed: int
    tasks: tuple[StudyTask, ...]
    models: tuple[Model, ...]


class Part(NamedTuple):
    """One comparison: a task, a model of trust, an epsilon."""

    task: StudyTask
    model: Model
    epsilon: float

    @property
    def name(self) -> str:
        """Of the file that keeps it while the study is unfinished."""
        return f"{self.task.name}-{self.model.name}-{self.epsilon:g}"

    def candidates(self) -> list[Candidate]:
        """The methods with their whole grids."""
        changes = (*self.task.set, f"privacy.epsilon={self.epsilon}")
        files = {method: HERE / "runs" / f"{self.model.name}-{method}.toml" for method in self.model.methods}
        sweeps = {method: load_sweep(file, changes) for method, file in files.items()}
        return [candidate(method, sweep, len(sweep.points)) for method, sweep in sweeps.items()]


def load_study(path: Path = HERE / "study.toml") -> Study:
    """Read and check the study."""
    return Study.model_validate(tomllib.loads(path.read_text()))


def parts_of(study: Study, task: StudyTask) -> list[Part]:
    """The comparisons on one task."""
    return [Part(task, model, epsilon) for model in study.models for epsilon in study.epsilons]


def budget_of(study: Study, part: Part) -> Budget:
    """The same for all methods of a part: their grids have equally many points."""
    (points,) = {len(each.points) for each in part.candidates()}
    return Budget(points, study.tuning_seeds, study.seeds)


def run_task(
    study: Study, task: StudyTask, known: Callable[[Part], Result | None], keep: Callable[[Part, Result], None]
) -> Iterator[Result]:
    """Every comparison on a task; `known` gives those that were made before, `keep` is told each new one."""
    where: Arena | None = None
    for part in parts_of(study, task):
        result = known(part)
        if result is None:
            candidates, budget = part.candidates(), budget_of(study, part)
            if where is None:  # one for all epsilons, so that programs are compiled once
                data = candidates[0].config.task()
                where = arena(data, budget, share=study.held_out, seed=study.held_out_seed)
            result = result_of(part, budget, where, run_study(candidates, where, budget, None))
            keep(part, result)
        yield result


def result_of(part: Part, budget: Budget, where: Arena, outcomes: list[Outcome]) -> Result:
    """A comparison as plain values."""
    compared = compare({each.name: [run.history for run in each.runs] for each in outcomes})
    by_name = {each.name: each for each in outcomes}
    held = where.held_out
    assert held is not None
    return {
        "model": part.model.name,
        "epsilon": part.epsilon,
        "budget": {"points": budget.points, "tuning_seeds": budget.tuning_seeds, "seeds": list(budget.final)},
        "rule": where.rule,
        "constant": float(f"{_constant_answer(where):.5g}"),
        "held_out": {"clients": held.clients, "of": held.of, "seed": held.seed},
        "test": TEST,
        "correction": compared.correction,
        "rows": [_row(row, by_name[row["method"]]) for row in compared.rows],
    }


def _constant_answer(where: Arena) -> float:
    """Test accuracy in per cent of a model that always names the most frequent class of the test set."""
    labels = where.task.data.y_test
    return float(100 * np.bincount(labels).max() / len(labels))


def _row(row: dict[str, Any], outcome: Outcome) -> Result:
    """Figures to five digits, the best point, the guarantee, and the price of choosing."""
    figures = {key: _rounded(value) if isinstance(value, float) else value for key, value in row.items()}
    price = outcome.price or {}
    keys = ("runs", "epsilon_with_independent_noise", "epsilon_of_private_selection")
    return figures | {
        "best": outcome.choice.best.values,
        "score": _rounded(outcome.choice.score),
        "edges": [{"key": edge["key"], "end": edge["end"]} for edge in outcome.choice.edges],
        "guarantee": outcome.guarantee.to_json(),
        "price": {key: _rounded(price[key]) for key in keys if key in price},
    }


def _rounded(value: float | None) -> float | None:
    """Five digits; None for what is not a number, as the figures of a method that diverged."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
