"""Rows of metrics, what has been spent after a round, and the environment of a run."""

from __future__ import annotations

import dataclasses
import json
import math
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np

import sordino
from sordino.errors import InvalidInput, SordinoError
from sordino.privacy.accountants import accounted
from sordino.rounds.engine import RoundInfo
from sordino.runs.point import Point, Row

Spent: TypeAlias = dict[str, float | str]  # epsilon, and its meaning


def metrics_row(rounds: int, measured: dict[str, float], spent: Spent, info: RoundInfo) -> Row:
    """One line of metrics, from means over the rounds. Everything computed on private data is under "not_private"."""
    ratio = float(info.signal_to_noise)
    of_the_method = {} if info.server is None else info.server._asdict()
    return {
        "round": rounds,
        **measured,
        **spent,
        **{name: float(value) for name, value in of_the_method.items()},
        "not_private": {
            "participants": float(info.participants),
            "mean_norm": float(info.mean_norm),
            "clipped_share": float(info.clipped_share),
            "dropped": int(info.dropped),
            "signal_to_noise": ratio if math.isfinite(ratio) else None,
        },
    }


def spent(rounds: int, point: Point) -> Spent:
    """epsilon after so many rounds against the observer who is promised something, and its meaning; "inf" for JSON."""
    resolved, relation = point.answer, point.plan.relation
    total = resolved.certificate.total(resolved.promised)
    epsilon, accountant = accounted(resolved.event_for(resolved.promised, rounds), total.delta, relation)
    so_far = dataclasses.replace(total, accountant=accountant)
    return {"epsilon": epsilon if math.isfinite(epsilon) else "inf", "epsilon_of": so_far.whose}


def require_bounded(point: Point, info: RoundInfo, start: int, stop: int) -> None:
    """Stop a run whose certificate is false: its method sends more than the bound that the noise was made for."""
    count = int(info.exceeds_limit)
    if count:
        rounds = f"round {start}" if stop == start + 1 else f"rounds {start} to {stop - 1}"
        raise SordinoError(
            f"{type(point.answer.method).__name__}.client: {count} messages of {rounds} are longer than the "
            "method's bound, for which the noise was made, so that no guarantee holds: bound the message last, before "
            "it is returned"
        )


def storable(value: object) -> object:
    """For JSON, which has no NaN and no infinity: null, as in a run that diverged."""
    if isinstance(value, dict):
        return {name: storable(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [storable(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_lines(rows: Iterable[Row]) -> bytes:
    """Rows as they stand in metrics.jsonl."""
    return "".join(json.dumps(storable(row), allow_nan=False) + "\n" for row in rows).encode()


def read_rows(path: Path) -> list[Row]:
    """The rows of a metrics.jsonl, without a last line that a crash has torn; null becomes NaN."""
    rows = []
    lines = path.read_bytes().decode(errors="replace").splitlines() if path.exists() else []
    for number, line in enumerate(lines, 1):
        try:
            row = dict(json.loads(line))
        except (ValueError, TypeError):
            if number < len(lines):
                remedy = "cannot be read: resume the run, which writes the file anew"
                raise InvalidInput("metrics", f"{path}, line {number}", remedy) from None
            continue
        rows.append({name: math.nan if value is None else value for name, value in row.items()})
    return rows


def environment() -> dict[str, Any]:
    """Versions, device and date."""
    device = jax.devices()[0]
    together = {"processes": jax.process_count()} if jax.process_count() > 1 else {}
    return {
        "sordino": sordino.__version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "device": f"{device.platform}: {device.device_kind}",
        "devices": jax.device_count(),
        **together,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
