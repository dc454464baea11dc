"""Simulation: thousands of clients as one compiled program."""

from sordino.planning import Plan, plan
from sordino.simulation.running import Run, load_model, simulate
from sordino.tasks import Task, task

__all__ = ["Plan", "Run", "Task", "load_model", "plan", "simulate", "task"]
