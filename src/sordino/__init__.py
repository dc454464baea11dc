"""Sordino: differentially private federated learning, with a truthful certificate for every run.

Names are loaded when they are first used, so that `import sordino` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    import sordino.privacy.events as events
    from sordino.algorithms.error_feedback import dp_sgd, error_feedback
    from sordino.algorithms.fedavg import fedavg
    from sordino.algorithms.fedexp import fedexp
    from sordino.algorithms.minibatch import accelerated_mb_sgd, noisy_mb_sgd
    from sordino.algorithms.scaffold import scaffold
    from sordino.bounding import adaptive_clip, clip, normalize, smoothed_normalize
    from sordino.mechanisms import (
        binomial,
        discrete_gaussian,
        gaussian,
        laplace,
        none,
        privunit,
        qtdl,
        scalar_dp,
    )
    from sordino.privacy import (
        Budget,
        Certificate,
        Full,
        Guarantee,
        Ledger,
        Poisson,
        WithoutReplacement,
        WithReplacement,
        calibrate,
        calibrate_gaussian,
        certify,
        delta_of,
        epsilon_of,
        read_ledger,
    )
    from sordino.runs import load_model, simulate
    from sordino.simulation import plan, task
    from sordino.types import Algorithm, Bounder, Mechanism, Observer, Relation, Unit

_HOMES = {
    "sordino.bounding": ("adaptive_clip", "clip", "normalize", "smoothed_normalize"),
    "sordino.mechanisms": (
        "binomial",
        "discrete_gaussian",
        "gaussian",
        "laplace",
        "none",
        "privunit",
        "qtdl",
        "scalar_dp",
    ),
    "sordino.privacy": (
        "Budget",
        "Certificate",
        "Guarantee",
        "Full",
        "Ledger",
        "Poisson",
        "WithReplacement",
        "WithoutReplacement",
        "calibrate",
        "calibrate_gaussian",
        "certify",
        "delta_of",
        "epsilon_of",
        "read_ledger",
    ),
    "sordino.algorithms.error_feedback": ("dp_sgd", "error_feedback"),
    "sordino.algorithms.fedavg": ("fedavg",),
    "sordino.algorithms.fedexp": ("fedexp",),
    "sordino.algorithms.minibatch": ("accelerated_mb_sgd", "noisy_mb_sgd"),
    "sordino.algorithms.scaffold": ("scaffold",),
    "sordino.runs": ("load_model", "simulate"),
    "sordino.simulation": ("plan", "task"),
    "sordino.types": ("Algorithm", "Bounder", "Mechanism", "Observer", "Relation", "Unit"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Algorithm",
    "Bounder",
    "Budget",
    "Certificate",
    "Full",
    "Guarantee",
    "Ledger",
    "Mechanism",
    "Observer",
    "Poisson",
    "Relation",
    "Unit",
    "WithReplacement",
    "WithoutReplacement",
    "accelerated_mb_sgd",
    "adaptive_clip",
    "binomial",
    "calibrate",
    "calibrate_gaussian",
    "certify",
    "clip",
    "delta_of",
    "discrete_gaussian",
    "dp_sgd",
    "epsilon_of",
    "error_feedback",
    "events",
    "fedavg",
    "fedexp",
    "gaussian",
    "laplace",
    "load_model",
    "noisy_mb_sgd",
    "none",
    "normalize",
    "plan",
    "privunit",
    "qtdl",
    "read_ledger",
    "scaffold",
    "scalar_dp",
    "simulate",
    "smoothed_normalize",
    "task",
]


def __getattr__(name: str) -> Any:
    if name == "events":
        return importlib.import_module("sordino.privacy.events")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'sordino' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
