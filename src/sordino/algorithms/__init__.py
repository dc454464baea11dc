"""Federated methods, one family a file; `METHODS` names the factories that a run file may ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sordino.algorithms.error_feedback import dp_sgd, error_feedback
from sordino.algorithms.fedavg import fedavg
from sordino.algorithms.fedexp import fedexp
from sordino.algorithms.minibatch import accelerated_mb_sgd, noisy_mb_sgd
from sordino.algorithms.scaffold import scaffold

__all__ = ["METHODS"]

METHODS: dict[str, Callable[..., Any]] = {
    "accelerated_mb_sgd": accelerated_mb_sgd,
    "dp_sgd": dp_sgd,
    "error_feedback": error_feedback,
    "fedavg": fedavg,
    "fedexp": fedexp,
    "noisy_mb_sgd": noisy_mb_sgd,
    "scaffold": scaffold,
}
