"""A run in a paragraph: what was trained, how good it is, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

from sordino.privacy.guarantee import Certificate
from sordino.privacy.wording import format_epsilon, short_caution
from sordino.tasks import Predictor

Row: TypeAlias = dict[str, Any]  # one line of metrics


def describe(
    task: str,
    history: Sequence[Row],
    certificate: Certificate,
    model: Predictor | None,
    *,
    seconds: float | None = None,
    folder: str | None = None,
) -> str:
    """A paragraph about a run; `folder` holds it, and `model` is None where none is kept."""
    at = "" if folder is None else f" in {folder}"
    if not history:
        return f"Run of {task}{at}: no round was measured yet."
    last = history[-1]
    took = "" if seconds is None else f" in {seconds:.3g} s"
    parts = [f"Run of {task}{at}: {last['round']} rounds{took}."]
    if model is not None:
        numbers = sum(int(np.size(leaf)) for leaf in jax.tree.leaves(model.params))
        parts.append(f"{model.model.name}, {numbers:,} parameters, {model.classes or 'no'} classes.")
    measured = f"accuracy {100 * last['accuracy']:.1f} %, " if "accuracy" in last else ""
    parts.append(f"On the test records: {measured}loss {last['test_loss']:.4g}.")
    epsilon = last.get("epsilon", "inf")
    private = isinstance(epsilon, float) and np.isfinite(epsilon)
    spent = f"epsilon = {format_epsilon(epsilon)} of {last['epsilon_of']}" if private else "it is not private"
    caution = short_caution(certificate) if private else ""
    parts.append(f"What it promises: {spent}{f' ({caution}: do not publish it as private)' if caution else ''}.")
    codes = ", ".join(dict.fromkeys(warning.code for warning in certificate.warnings))
    parts.append(f"The certificate has the whole statement{f', with warnings: {codes}' if codes else ''}.")
    return " ".join(parts)
