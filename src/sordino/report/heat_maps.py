"""Heat maps: a number for each pair of values, a panel for each method or setting."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["HeatMap", "draw_heat_maps"]


class HeatMap(NamedTuple):
    """`values[i][j]` belongs to downs[i] and alongs[j]; None where nothing was tried, NaN where it was lost."""

    downs: Sequence[str]
    alongs: Sequence[str]
    values: Sequence[Sequence[float | None]]


def draw_heat_maps(
    maps: Mapping[str, HeatMap], path: Path, *, label: str, down: str = "", along: str = "", title: str = ""
) -> None:
    """All maps, up to three side by side, by their names, on one scale of colours."""
    from matplotlib.figure import Figure

    across = min(3, len(maps))
    rows = -(-len(maps) // across)
    figure = Figure(figsize=(4.6 * across + 1, 4.2 * rows), layout="constrained")
    figure.suptitle(title)
    finite = [value for each in maps.values() for row in each.values for value in row if value is not None]
    finite = [value for value in finite if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    all_axes = figure.subplots(rows, across, squeeze=False).ravel()
    for unused in all_axes[len(maps) :]:
        unused.set_axis_off()
    for axes, (name, each) in zip(all_axes, maps.items(), strict=False):
        table = [[math.nan if value is None else value for value in row] for row in each.values]
        image = axes.imshow(table, origin="lower", aspect="auto", vmin=low, vmax=high)
        axes.set_xticks(range(len(each.alongs)), each.alongs, rotation=45, fontsize=8)
        axes.set_yticks(range(len(each.downs)), each.downs, fontsize=8)
        axes.set(xlabel=along, ylabel=down)
        axes.set_title(name, fontsize=9)
        for i, j in itertools.product(range(len(each.downs)), range(len(each.alongs))):
            value = each.values[i][j]
            text = "" if value is None else "lost" if math.isnan(value) else f"{value:.3g}"
            dark = value is not None and value < (low + high) / 2
            axes.text(j, i, text, ha="center", va="center", color="white" if dark else "black", fontsize=7)
    figure.colorbar(image, ax=all_axes.tolist(), label=label)
    figure.savefig(path, dpi=110)
