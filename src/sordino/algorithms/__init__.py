"""Federated methods, one family a file; `METHODS` names the factories that a run file may ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sordino.algorithms.fedavg import fedavg
from sordino.algorithms.minibatch import accelerated_mb_sgd, noisy_mb_sgd

__all__ = ["METHODS"]

METHODS: dict[str, Callable[..., Any]] = {
    "fedavg": fedavg,
    "noisy-mb-sgd": noisy_mb_sgd,
    "accelerated-mb-sgd": accelerated_mb_sgd,
}
