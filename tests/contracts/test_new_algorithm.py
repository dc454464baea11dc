"""The method of docs/new_algorithm.md: it runs as a file, prints what the page says, and keeps every contract."""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import jax
import numpy as np
import pytest
import test_algorithms as contracts

import sordino as so
from sordino.algorithms import METHODS
from sordino.types import Memory, Method, Observer, Privacy
from tests.toys import run_plan, toy

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "new_algorithm.md").read_text()
CODE, PRINTED = re.search(r"```python\n(.*?)```\s+prints\s+```\n(.*?)```", PAGE, re.S).groups()
PROMISES = [name for name in dir(contracts.TestEveryMethod) if name.startswith("test_")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "documented_fedprox.py"
    path.write_text(CODE)
    return path


@pytest.fixture
def fedprox(file):
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.fedprox


def test_it_is_short():
    assert len(CODE.splitlines()) <= 60


@pytest.mark.parametrize("tool", [["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]], ids=" ".join)
def test_it_passes_the_projects_own_lint(file, tool):
    settings = ["--config", str(ROOT / "pyproject.toml")] if tool[0] == "ruff" else ["--config-file", "pyproject.toml"]
    command = [str(Path(sys.executable).parent / tool[0]), *tool[1:], *settings, str(file)]
    environment = os.environ | {"MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_file_prints_what_the_page_says(file):
    out = StringIO()
    with redirect_stdout(out):
        runpy.run_path(str(file), run_name="__main__")
    assert out.getvalue() == PRINTED


@pytest.mark.parametrize("bound", [None, so.clip(0.01), so.normalize(0.5)], ids=["no bound", "clip", "normalize"])
@pytest.mark.parametrize("promise", PROMISES)
def test_listed_in_methods_it_keeps_every_contract(fedprox, monkeypatch, promise, bound):
    monkeypatch.setitem(METHODS, "fedprox", fedprox)
    getattr(contracts.TestEveryMethod(), promise)("fedprox", bound)


def test_without_noise_bound_and_mu_it_is_fedavg(fedprox):
    """Batches and keys are FedAvg's, so the same local steps are taken; with mu > 0 they are others."""
    arguments = {"local_steps": 3, "local_lr": 0.5, "batch_size": 2}
    trained = []
    for method in (so.fedavg(**arguments), fedprox(**arguments, mu=0.0), fedprox(**arguments, mu=1.0)):
        resolved, state, _ = run_plan(so.plan(method, rounds=3), toy())
        trained.append(np.asarray(resolved.method.params(state.server)))
    np.testing.assert_allclose(trained[1], trained[0], atol=1e-5)
    assert np.abs(trained[2] - trained[0]).max() > 1e-2


def test_the_proximal_term_by_hand(fedprox):
    """One step from w_k has no proximal term; the second has mu (w_1 - w_k)."""
    mu, eta = 0.7, 0.5
    task = toy()
    first, second = (fedprox(local_steps=steps, local_lr=eta, mu=mu, batch_size=task.largest) for steps in (1, 2))
    w, data = task.initial(jax.random.key(1)), contracts.data(2)
    (one, *_), (two, *_) = (method.client(jax.random.key(0), w, (), data) for method in (first, second))
    w_1 = w - eta * one.vector
    gradient = data.gradient(w_1, data.all()) + mu * (w_1 - w)
    np.testing.assert_allclose(two.vector, one.vector + gradient, atol=1e-5)


def test_a_private_plan_is_certified_against_both_observers(fedprox):
    method = fedprox(local_steps=2, local_lr=0.1, mu=0.1, batch_size=2, bound=so.clip(1.0))
    plan = so.plan(method, rounds=5, epsilon=8.0, delta=1e-3, trust="local")
    server, user = (
        plan.resolve(toy().population).certificate.total(who) for who in (Observer.SERVER, Observer.MODEL_USER)
    )
    assert 7.9 < server.epsilon <= 8.0
    assert user.epsilon < server.epsilon  # it says that the server uses sums only


def test_the_page_names_every_member_of_the_base_class():
    members = {name for name in vars(Method) if not name.startswith("_")} | {"bound"}
    assert {"resolve", "side_event", "privacy"} <= members
    for name in members | set(Privacy.__dataclass_fields__):
        assert f"`{name}" in PAGE, name
    for memory in Memory:
        assert f"`{memory.name}`" in PAGE
