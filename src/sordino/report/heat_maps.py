"""Heat maps: a number for each pair of values, a panel for each method or setting."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sordino.report.figures import panels_of, save_privately

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage


class HeatMap(NamedTuple):
    """`values[i][j]` belongs to downs[i] and alongs[j]: None without a run, NaN if a run diverged."""

    downs: Sequence[str]
    alongs: Sequence[str]
    values: Sequence[Sequence[float | None]]


def draw_heat_maps(
    maps: Mapping[str, HeatMap], path: Path, *, label: str, down: str = "", along: str = "", title: str = ""
) -> None:
    """Draw all maps with one colour scale, up to three side by side, each below its name."""
    values = [value for each in maps.values() for row in each.values for value in row if value is not None]
    finite = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    figure, panels = panels_of(title, maps, width=4.6, height=4.2)
    for name, axes in panels.items():
        image = _draw(axes, maps[name], min(finite), max(finite))
        axes.set(xlabel=along, ylabel=down)
    figure.colorbar(image, ax=list(panels.values()), label=label)
    save_privately(figure, path, dpi=110)


def _draw(axes: Axes, heat_map: HeatMap, low: float, high: float) -> AxesImage:
    downs, alongs, values = heat_map
    table = [[math.nan if value is None else value for value in row] for row in values]
    image = axes.imshow(table, origin="lower", aspect="auto", vmin=low, vmax=high)
    axes.set_xticks(range(len(alongs)), alongs, rotation=45, fontsize=8)
    axes.set_yticks(range(len(downs)), downs, fontsize=8)
    for i, j in itertools.product(range(len(downs)), range(len(alongs))):
        value = values[i][j]
        text = "" if value is None else "lost" if math.isnan(value) else f"{value:.3g}"
        dark = value is not None and value < (low + high) / 2
        axes.text(j, i, text, ha="center", va="center", color="white" if dark else "black", fontsize=7)
    return image
