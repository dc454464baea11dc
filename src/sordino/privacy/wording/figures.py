"""Printed epsilons and deltas: rounded up, so that no sentence promises more than was computed."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context


def format_epsilon(epsilon: float) -> str:
    """Four significant digits, rounded up; an excess below 1e-6 of the last digit is ignored."""
    if not math.isfinite(epsilon):
        return "infinite"
    if epsilon == 0:
        return "0"
    if epsilon < 1e-9:
        return "1e-09"
    digits = 3 - math.floor(math.log10(epsilon))
    scale = 10.0**digits
    return f"{math.ceil(round(epsilon * scale, 6)) / scale:.{max(0, digits)}f}"


def format_delta(delta: float) -> str:
    """Six significant digits, rounded up."""
    nearest = f"{delta:.6g}"
    if float(nearest) >= delta:
        return nearest
    return f"{float(Context(prec=6, rounding=ROUND_CEILING).create_decimal_from_float(delta)):.6g}"
