"""The papers' theorems as functions: step sizes, rounds, batches, clips and bounds, with their preconditions.

A function is named after its theorem, in the module of its paper. `RULES` is the registry that `sordino rules`, run
files and docs/rules.md are made from. The numbers concern convergence alone: no accountant reads them.
"""

from sordino.rules import paper0, paper1, paper2, paper3, paper4
from sordino.rules.rule import REGISTRY as RULES
from sordino.rules.rule import Rule

__all__ = ["RULES", "Rule", "paper0", "paper1", "paper2", "paper3", "paper4"]
