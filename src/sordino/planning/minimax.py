"""How far a plan that protects records is from what no algorithm without a trusted server can beat.

`minimax` is the lower bound of paper 2's Theorem E.4 on the empirical risk, `risk_bound` what Theorems 2.1 and D.1
allow with the noise of the plan: D V / sqrt(R), or V^2 / (mu R) for a strongly convex objective. Both leave out
constants and logarithms, and the second what too few rounds leave over.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from sordino.errors import InvalidInput
from sordino.planning.arguments import Arguments
from sordino.planning.cohort import FullCohort
from sordino.planning.record_clients import RecordClients
from sordino.rules.paper2 import theorem_E_4_convex, theorem_E_4_strongly_convex
from sordino.types import Trust


def distance_to_minimax(
    plan: Arguments, clients: RecordClients, d: int, constants: Mapping[str, float]
) -> dict[str, float]:
    """The two bounds and their ratio; nothing where the theorem is silent: clients that differ, or do not answer."""
    alike = all(np.all(values == values[0]) for values in (clients.sizes, clients.lipschitz, clients.delta))
    answering = isinstance(plan.cohort, FullCohort) and plan.trusted is Trust.LOCAL
    if clients.epsilon is None or not {"D", "V", "mu"} <= set(constants) or not (alike and answering):
        return {}
    if np.any(clients.epsilon != clients.epsilon[0]):
        return {}
    D, V, mu, L = constants["D"], constants["V"], constants["mu"], float(clients.lipschitz[0])
    n, N, epsilon = int(clients.sizes[0]), len(clients), float(clients.epsilon[0])
    try:
        if mu > 0:  # the regulariser's gradient is at most mu D
            lower = theorem_E_4_strongly_convex(n=n, N=N, d=d, L=L + mu * D, D=D, mu=mu, epsilon=epsilon).risk
        else:
            lower = theorem_E_4_convex(n=n, N=N, d=d, L=L, D=D, epsilon=epsilon).risk
    except InvalidInput:
        return {}
    upper = V**2 / (mu * plan.rounds) if mu > 0 else D * V / math.sqrt(plan.rounds)
    return {"minimax": lower, "risk_bound": upper, "distance_to_minimax": upper / lower}
