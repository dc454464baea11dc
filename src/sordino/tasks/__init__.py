"""Tasks: what is learnt, by whom, from which records; and what of it a plan may know."""

from sordino.tasks.named import task
from sordino.tasks.population import DataFacts, Population
from sordino.tasks.problems import PROBLEMS
from sordino.tasks.task import Measure, Records, Task, evaluate

__all__ = ["PROBLEMS", "DataFacts", "Measure", "Population", "Records", "Task", "evaluate", "task"]
