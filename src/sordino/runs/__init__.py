"""Runs: one loop over compiled rounds for a single run and for a sweep, and one store of their folders."""

from sordino.runs.loop import Options as Options
from sordino.runs.loop import OutOfTime as OutOfTime
from sordino.runs.metrics import environment as environment
from sordino.runs.model_file import load_model as load_model
from sordino.runs.point import Point as Point
from sordino.runs.point import Run as Run
from sordino.runs.store import RunStore as RunStore
from sordino.runs.store import SweepStore as SweepStore
from sordino.runs.stored import StoredRun as StoredRun
from sordino.runs.stored import load_run as load_run
from sordino.runs.sweep import simulate as simulate
from sordino.runs.sweep import sweep as sweep
