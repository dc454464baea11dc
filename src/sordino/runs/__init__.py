"""Runs: one loop over compiled rounds for a single run and for a sweep, and one store of their folders."""

from sordino.runs.loop import Options, OutOfTime
from sordino.runs.metrics import environment
from sordino.runs.point import Point, Run
from sordino.runs.store import RunStore, StoredRun, SweepStore, load_model
from sordino.runs.sweep import simulate, sweep

__all__ = [
    "Options",
    "OutOfTime",
    "Point",
    "Run",
    "RunStore",
    "StoredRun",
    "SweepStore",
    "environment",
    "load_model",
    "simulate",
    "sweep",
]
