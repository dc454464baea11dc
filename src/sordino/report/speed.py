"""The history of what `sordino bench` measured: a line of JSON each time, and a picture of all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HISTORY, PICTURE = "history.jsonl", "history.png"
DRAWN = (
    ("s_per_round", "seconds a round"),
    ("peak_mib", "peak memory (MiB)"),
    ("beside_rounds", "share of a run beside its rounds"),
)


def add_to_history(folder: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Append measurements, and draw all that are there; the path of the picture."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / HISTORY).open("a") as file:
        file.writelines(json.dumps(dict(row)) + "\n" for row in rows)
    history = [json.loads(line) for line in (folder / HISTORY).read_text().splitlines()]
    plot_speed(history, folder / PICTURE)
    return folder / PICTURE


def plot_speed(history: Sequence[Mapping[str, Any]], path: Path) -> None:
    """A panel for each figure, a line for each workload and device, in the order of measuring."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 3.6), layout="constrained")
    for axes, (name, label) in zip(figure.subplots(1, len(DRAWN)), DRAWN, strict=True):
        lines: dict[str, list[Mapping[str, Any]]] = {}
        for row in history:
            if row.get(name) is not None:
                lines.setdefault(f"{row['workload']}, {row['device']}", []).append(row)
        for title, rows in lines.items():
            axes.plot([row["date"][:10] for row in rows], [row[name] for row in rows], marker="o", label=title)
        axes.set(title=label, ylim=(0, None) if name == "beside_rounds" else None)
        if name != "beside_rounds":
            axes.set_yscale("log")
        axes.tick_params(axis="x", rotation=30, labelsize="small")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small")
    figure.savefig(path, dpi=110)
