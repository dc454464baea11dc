"""What `make bench-gpu` compares does the work that it says, and the same work on both sides."""

from __future__ import annotations

import json
import sys
from unittest import mock

import jax
import numpy as np
import pytest

from bench import gpu

pytestmark = pytest.mark.slow

WORKERS, IMAGES = 2, 4


def distance(a: jax.Array, b: jax.Array) -> float:
    return float(np.linalg.norm(np.asarray(a) - np.asarray(b)))


def test_both_convolutions_take_the_same_plain_step():
    task = gpu.make_task(WORKERS, IMAGES, "batch")
    start = task.initial(jax.random.key(0))
    ours = gpu.plain_steps(task, IMAGES, 1)()
    with mock.patch.object(gpu.resnet20_module(), "conv2d", gpu.lax_conv2d):
        theirs = gpu.plain_steps(gpu.make_task(WORKERS, IMAGES, "batch"), IMAGES, 1)()
    moved = distance(ours, start)
    assert moved > 0.01
    assert distance(ours, theirs) < 1e-4 * moved


def test_a_round_moves_model_and_every_workers_memory():
    task = gpu.make_task(WORKERS, IMAGES, "batch")
    carry, _ = gpu.engine_rounds(task, IMAGES, 1)()
    lengths = np.linalg.norm(np.asarray(carry.clients), axis=1)
    assert lengths.shape == (WORKERS,)
    assert np.all((lengths > 0.05) & (lengths < 0.1 + 1e-6))  # beta ||g|| / (alpha + ||g||)


def test_the_command_prints_the_ratio_that_its_times_have(capsys, monkeypatch):
    options = ["--workers", "2", "--images", "4", "--pool", "4", "--rounds", "1", "--repetitions", "1", "--json"]
    monkeypatch.setattr(sys, "argv", ["bench.gpu", *options])
    gpu.main()
    result = json.loads(capsys.readouterr().out)
    times = result["milliseconds"]
    assert set(times) == {"round", "plain", "copied", "plain, XLA's convolution"}
    assert all(value > 0 for value in times.values())
    assert result["ratio"] == pytest.approx(times["round"] / times["plain"])
    assert result["ok"] == (result["ratio"] <= 2.5)
