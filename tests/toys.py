"""What several rooms test with: a small task, a run file with changes, and a process with four devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sordino.data import FederatedData
from sordino.models import get
from sordino.simulation import Task

RUN_FILE = """\
[task]
name = "digits"
clients = 20

[algorithm]
name = "fedavg"
local_steps = 2
local_lr = 0.5

[bound]
clip = 1.0

[privacy]
epsilon = 8.0
delta = 1e-4

[run]
rounds = 3
seed = 0
"""


def toy(model: Any = "logistic", sizes: Sequence[int] = (3, 1, 7, 2, 5, 4, 1, 6, 2, 3)) -> Task:
    """A few clients with records of three features and two classes."""
    rng = np.random.default_rng(0)
    size = np.array(sizes, np.int32)
    x = rng.normal(size=(size.sum(), 3)).astype(np.float32)
    y = (x @ [1.0, -2.0, 0.5] > 0).astype(np.int32)
    start = (np.cumsum(size) - size).astype(np.int32)
    model = get(model, (3,), 2) if isinstance(model, str) else model
    return Task("toy", FederatedData(x, y, start, size, x, y, 2), model)


def write_run_file(folder: Path, text: str, *replacements: tuple[str, str]) -> Path:
    """The text as folder/cfg.toml, each old part, which must stand there once, replaced by the new one."""
    for old, new in replacements:
        assert text.count(old) == 1
        text = text.replace(old, new)
    path = folder / "cfg.toml"
    path.write_text(text)
    return path


def on_four_devices(module: str, expression: str) -> Any:
    """What an expression is worth in a process of its own: a process keeps the devices that JAX started with."""
    script = (
        f"import json, jax, {module} as module\nassert jax.local_device_count() == 4\nprint(json.dumps({expression}))"
    )
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[1],
        env=os.environ | flags,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
