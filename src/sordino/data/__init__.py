"""Data: public data sets, your own data, problems with known minimisers, and the partition into clients."""

from __future__ import annotations

from sordino.data._records import Dataset, FederatedData
from sordino.data.datasets import CATALOGUE, fetch, load, where
from sordino.data.partition import label_histogram, partition, plot_label_histogram
from sordino.data.synthetic import (
    LinearProblem,
    LinearRegression,
    Quadratics,
    RobustRegression,
    linear_problem,
    linear_regression,
    opposed_parabolas,
    quadratic_loss,
    quadratics,
    robust_loss,
    robust_regression,
    squared_residual,
    start_near_minimiser,
)

__all__ = [
    "CATALOGUE",
    "Dataset",
    "FederatedData",
    "LinearProblem",
    "LinearRegression",
    "Quadratics",
    "RobustRegression",
    "fetch",
    "label_histogram",
    "linear_problem",
    "linear_regression",
    "load",
    "opposed_parabolas",
    "partition",
    "plot_label_histogram",
    "quadratic_loss",
    "quadratics",
    "robust_loss",
    "robust_regression",
    "squared_residual",
    "start_near_minimiser",
    "where",
]
