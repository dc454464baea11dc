"""Runs and servers for tests of pages."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette

import sordino as so
from sordino.runs import simulate
from sordino.tasks import Task
from tests.toys import toy


def task_with_test_records() -> Task:
    """The toy, with a test set of its own, so that a guarantee covers what is measured."""
    made = toy()
    data = made.data._replace(x_test=made.data.x[:9].copy(), y_test=made.data.y[:9].copy())
    return dataclasses.replace(made, data=data)


def run_into(folder: Path, rounds: int = 12, **options: Any) -> Path:
    """A private run of a toy, with everything that a folder holds."""
    plan = so.plan(so.fedexp(local_steps=1, local_lr=0.3, bound=so.clip(0.5)), rounds=rounds, epsilon=6.0, delta=1e-3)
    simulate(plan, task_with_test_records(), evaluate_every=1, folder=folder, **options)
    return folder


@contextmanager
def serving(app: Starlette) -> Iterator[int]:
    """The application at a free port of this machine."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server has ended"
        time.sleep(0.02)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(timeout=20)
