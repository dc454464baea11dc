"""Rules of paper 2. Lowy and Razaviyayn: Private Federated Learning Without a Trusted Server.

N clients with n records each, of whom M answer in a round; losses are L-Lipschitz in w, and W is the ball of radius D.
Every client's noise protects each of its records from the server. `ensemble` has M~ and Xi~ for clients that differ.
The noise of the theorems, sigma^2 = 256 L^2 R Xi, is true and 5 to 26 times too large. `noise_rate` = sigma^2 / (L^2 R)
puts the noise of an accountant in the place of Xi in steps and rounds, from which the paper drops the 256.
"""

from sordino.rules.paper2.algorithm1 import (
    lemma_D_2_convex,
    lemma_D_2_strongly_convex,
    theorem_2_1_convex,
    theorem_2_1_strongly_convex,
    theorem_2_2_convex,
    theorem_2_2_strongly_convex,
)
from sordino.rules.paper2.algorithm2 import (
    theorem_2_3_convex,
    theorem_2_3_strongly_convex,
    theorem_2_4_convex,
    theorem_2_4_strongly_convex,
    theorem_D_1_convex,
    theorem_D_1_strongly_convex,
)
from sordino.rules.paper2.lower_bounds import (
    theorem_3_1_convex,
    theorem_3_1_strongly_convex,
    theorem_E_3_convex,
    theorem_E_3_strongly_convex,
    theorem_E_4_convex,
    theorem_E_4_strongly_convex,
    theorem_E_5_convex,
    theorem_E_5_strongly_convex,
)
from sordino.rules.paper2.shuffling import theorem_4_1_convex, theorem_4_1_strongly_convex

__all__ = [
    "lemma_D_2_convex",
    "lemma_D_2_strongly_convex",
    "theorem_2_1_convex",
    "theorem_2_1_strongly_convex",
    "theorem_2_2_convex",
    "theorem_2_2_strongly_convex",
    "theorem_2_3_convex",
    "theorem_2_3_strongly_convex",
    "theorem_2_4_convex",
    "theorem_2_4_strongly_convex",
    "theorem_3_1_convex",
    "theorem_3_1_strongly_convex",
    "theorem_4_1_convex",
    "theorem_4_1_strongly_convex",
    "theorem_D_1_convex",
    "theorem_D_1_strongly_convex",
    "theorem_E_3_convex",
    "theorem_E_3_strongly_convex",
    "theorem_E_4_convex",
    "theorem_E_4_strongly_convex",
    "theorem_E_5_convex",
    "theorem_E_5_strongly_convex",
]
