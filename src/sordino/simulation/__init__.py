"""Simulation: thousands of clients as one compiled program."""

from sordino.simulation.planning import Plan, plan
from sordino.simulation.running import Run, load_model, simulate
from sordino.simulation.tasks import Task, task

__all__ = ["Plan", "Run", "Task", "load_model", "plan", "simulate", "task"]
