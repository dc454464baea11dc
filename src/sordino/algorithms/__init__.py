"""Federated methods, one a file; `METHODS` lists the factories by the names that a run file uses."""

from __future__ import annotations

from collections.abc import Callable

from sordino.algorithms.ac_sa import accelerated_mb_sgd
from sordino.algorithms.dp_sgd import dp_sgd
from sordino.algorithms.error_feedback import error_feedback
from sordino.algorithms.fedavg import fedavg
from sordino.algorithms.fedexp import fedexp
from sordino.algorithms.noisy_mb_sgd import noisy_mb_sgd
from sordino.algorithms.record_scaffold import record_scaffold
from sordino.algorithms.scaffold import scaffold
from sordino.types import Method

__all__ = ["METHODS"]

_FACTORIES = (accelerated_mb_sgd, dp_sgd, error_feedback, fedavg, fedexp, noisy_mb_sgd, record_scaffold, scaffold)
METHODS: dict[str, Callable[..., Method]] = {make.__name__: make for make in _FACTORIES}
