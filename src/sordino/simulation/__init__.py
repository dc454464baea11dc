"""Simulation: thousands of clients as one compiled program."""

from sordino.simulation.planning import Plan, plan
from sordino.simulation.tasks import Task, task

__all__ = ["Plan", "Task", "plan", "task"]
