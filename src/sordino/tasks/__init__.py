"""Tasks: what is learnt, by whom, from which records; and what of it a plan may know."""

from sordino.tasks.named import task as task
from sordino.tasks.population import DataFacts as DataFacts
from sordino.tasks.population import Population as Population
from sordino.tasks.predictor import ClientEvaluations as ClientEvaluations
from sordino.tasks.predictor import Evaluation as Evaluation
from sordino.tasks.predictor import Predictor as Predictor
from sordino.tasks.problems import PROBLEMS as PROBLEMS
from sordino.tasks.task import Measure as Measure
from sordino.tasks.task import Records as Records
from sordino.tasks.task import Task as Task
from sordino.tasks.task import evaluate as evaluate
