"""FedEXP and DP-FedEXP: FedAvg whose server extrapolates, with a step size computed from the messages.

Takakura, Liew, Hasegawa: Accelerating Differentially Private Federated Learning via Adaptive Extrapolation
(Algorithms 1 and 2; FedEXP without privacy: Jhunjhunwala, Wang, Joshi):

    for t = 1, ..., T
      server sends w^(t-1) to all clients
      client i:  Delta~_i = w_i^(t-1,tau) - w^(t-1)                       tau local steps of size eta_l
                 Delta_i  = min{C / ||Delta~_i||, 1} Delta~_i
                 send c_i = LocalRandomizer(Delta_i)                       local;   central: Delta_i itself
      server:    c~ = (1/M) sum_i c_i                                      central: + N(0, sigma^2 / M)
                 eta_g by (6), (8) or (7), see `extrapolation`
                 w^(t) = w^(t-1) + eta_g c~
    return (w^(T-1) + w^(T)) / 2

Everything but eta_g is FedAvg (messages here are w^(t-1) - w_i^(t-1,tau), so the server subtracts). The boxes return
w^(T); the paper's experiments return the mean of the last two iterates, since the step size makes them oscillate.
"""

from __future__ import annotations

from sordino.algorithms.fedavg import FedAvg, fedavg
from sordino.algorithms.schedules import StepSize
from sordino.errors import names_keywords
from sordino.types import Bounder


@names_keywords
def fedexp(
    *,
    local_steps: int,
    local_lr: StepSize,
    bound: Bounder | None = None,
    batch_size: int | None = None,
    weight_decay: float = 0.0,
    proximal: float = 0.0,
    sam_radius: float = 0.0,
    bound_schedule: StepSize | None = None,
    step_size: str = "corrected",
    step_cost: float | None = None,
    output: str = "mean-of-last-two",
) -> FedAvg:
    """FedEXP, LDP-FedEXP or CDP-FedEXP: noise and trust are chosen by the plan.

    The arguments that are not listed are those of `fedavg`.

    Args:
      local_steps: tau.
      local_lr: eta_l.
      bound: `so.clip(C)` or another fixed bound; None sends the update as it is (not private).
      step_size: "corrected", or "naive" for equation (3), which local noise makes explode.
      step_cost: with central trust, the largest share of a message's mu that the release behind the step size may cost;
        if left out, sigma_xi = d sigma^2 / M, which is cheap only for M much smaller than d.
    """
    return fedavg(
        local_steps=local_steps,
        local_lr=local_lr,
        bound=bound,
        batch_size=batch_size,
        weight_decay=weight_decay,
        proximal=proximal,
        sam_radius=sam_radius,
        bound_schedule=bound_schedule,
        message="difference",
        output=output,
        step_size=step_size,
        step_cost=step_cost,
    )
