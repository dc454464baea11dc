"""Shapes of a page's own pictures: paths, bars, cells and ticks as numbers, which templates draw as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sordino.report.series import Series, thinned
from sordino.report.subject import Grid, Point

WIDTH, HEIGHT = 340.0, 150.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 8.0, 8.0, 22.0
STILL_POINTS = 120  # of a line in a still picture
SHADES = 8


@dataclass(frozen=True)
class Tick:
    """A mark on an axis: its place and its text."""

    place: float
    text: str


@dataclass(frozen=True)
class Lines:
    """A still chart: one path for each line, and the ticks of both axes."""

    paths: tuple[str, ...]
    downs: tuple[Tick, ...]
    alongs: tuple[Tick, ...]
    bound: float | None  # place of a horizontal rule


def lines_of(series: Sequence[Series], bound: float | None, *, log: bool) -> Lines:
    """The shape of a chart of some series."""
    values = [value for each in series for value in each.values if value is not None]
    values += [] if bound is None else [bound]
    low, high = _scaled(min(values), log), _scaled(max(values), log)
    low, high = (low - 0.5, high + 0.5) if high - low < 1e-12 * max(1.0, abs(high)) else (low, high)
    last = max(each.rounds[-1] for each in series)
    first = min(each.rounds[0] for each in series)

    def x(number: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (number - first) / max(1, last - first)

    def y(value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - _scaled(value, log)) / (high - low)

    paths = tuple(_path([(x(n), None if v is None else y(v)) for n, v in _few(each)]) for each in series)
    shown = [10**v if log else v for v in (low, (low + high) / 2, high)]
    downs = tuple(Tick(y(value), f"{value:.3g}") for value in shown)
    alongs = tuple(Tick(x(n), str(n)) for n in dict.fromkeys((first, (first + last) // 2, last)))
    return Lines(paths, downs, alongs, None if bound is None else y(bound))


def _few(series: Series) -> list[tuple[int, float | None]]:
    return thinned(list(zip(series.rounds, series.values, strict=True)), STILL_POINTS)


def _scaled(value: float, log: bool) -> float:
    return math.log10(value) if log else value


def _path(points: Sequence[tuple[float, float | None]]) -> str:
    """An SVG path with a gap where there is no number."""
    parts, pen = [], "M"
    for x, y in points:
        if y is None:
            pen = "M"
            continue
        parts.append(f"{pen}{x:.1f} {y:.1f}")
        pen = "L"
    return "".join(parts) + ("h.1" if len(parts) == 1 else "")  # one point is seen as a dot


# --- Sweeps ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Square:
    """A cell of a heat map: its shade, -1 where there is nothing, and its text."""

    shade: int
    text: str


@dataclass(frozen=True)
class HeatMap:
    """One panel: squares[i][j] belongs to downs[i] and alongs[j]."""

    name: str
    down: str
    along: str
    downs: tuple[str, ...]
    alongs: tuple[str, ...]
    squares: tuple[tuple[Square, ...], ...]


def heat_maps(grid: Grid) -> list[HeatMap]:
    """Means over seeds for the two varied numbers with the most values; a panel for each value of the other keys."""
    keys = [key for key in grid.varied if key != "run.seed"]
    counts = {key: len({point.values[key] for point in grid.points}) for key in keys}
    numbers = [key for key in keys if counts[key] > 1 and all(isinstance(p.values[key], float) for p in grid.points)]
    chosen = sorted(numbers, key=lambda key: -counts[key])[:2]
    if len(chosen) < 2:
        return []
    down, along = (key for key in keys if key in chosen)
    others = [key for key in keys if key not in chosen and counts[key] > 1]
    panels: dict[str, list[Point]] = {}
    for point in grid.points:
        panels.setdefault(", ".join(f"{key} = {_text(point.values[key])}" for key in others), []).append(point)
    means = {name: _means(points, down, along) for name, points in panels.items()}
    known = [mean for panel in means.values() for mean in panel.values() if mean is not None]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    downs, alongs = (sorted({float(p.values[key]) for p in grid.points}) for key in (down, along))
    return [
        HeatMap(
            name,
            down,
            along,
            tuple(map(_text, downs)),
            tuple(map(_text, alongs)),
            tuple(tuple(_square(panel, (a, b), low, high, grid.measure) for b in alongs) for a in reversed(downs)),
        )
        for name, panel in means.items()
    ]


def _means(points: Sequence[Point], down: str, along: str) -> dict[tuple[float, float], float | None]:
    found: dict[tuple[float, float], list[float | None]] = {}
    for point in points:
        found.setdefault((float(point.values[down]), float(point.values[along])), []).append(point.measured)
    return {place: _mean(values) for place, values in found.items()}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _square(
    panel: dict[tuple[float, float], float | None], place: tuple[float, float], low: float, high: float, measure: str
) -> Square:
    if place not in panel:
        return Square(-1, "")
    mean = panel[place]
    return Square(-1, "lost") if mean is None else Square(shade(mean, low, high), measured_text(mean, measure))


def shade(value: float, low: float, high: float) -> int:
    """0, ..., SHADES - 1."""
    return min(SHADES - 1, int(SHADES * (value - low) / (high - low))) if high > low else SHADES // 2


def measured_text(value: float, measure: str) -> str:
    """A figure as people read it."""
    return f"{100 * value:.1f} %" if measure.startswith("accuracy") else f"{value:.3g}"


@dataclass(frozen=True)
class Axis:
    """An axis of parallel coordinates."""

    name: str
    place: float
    ticks: tuple[Tick, ...]


@dataclass(frozen=True)
class Strand:
    """A point of a sweep as a line across all axes."""

    path: str
    shade: int
    title: str


@dataclass(frozen=True)
class Parallel:
    """Parallel coordinates: the varied keys, and last what was measured."""

    axes: tuple[Axis, ...]
    strands: tuple[Strand, ...]


def parallel_of(grid: Grid) -> Parallel | None:
    """The shape of a sweep of two or more keys; points that diverged have no line."""
    keys = [key for key in grid.varied if key != "run.seed"]
    sound = [point for point in grid.points if point.measured is not None]
    if len(keys) < 2 or not sound:
        return None
    step = (640.0 - 2 * 60) / len(keys)
    axes, columns = [], []
    for number, key in enumerate(keys):
        values = dict.fromkeys(sorted((p.values[key] for p in sound), key=lambda v: (isinstance(v, str), v)))
        places = {value: 190 - 150 * i / max(1, len(values) - 1) for i, value in enumerate(values)}
        axes.append(Axis(key, 60 + number * step, tuple(Tick(y, _text(v)) for v, y in places.items())))
        columns.append([places[point.values[key]] for point in sound])
    measured = [point.measured for point in sound if point.measured is not None]
    low, high = min(measured), max(measured)
    ends = dict.fromkeys((low, high))
    scale = {value: 190 - 150 * (value - low) / (high - low) if high > low else 115.0 for value in {*measured}}
    ticks = tuple(Tick(scale[value], measured_text(value, grid.measure)) for value in ends)
    axes.append(Axis(grid.measure.replace("_", " "), 60 + len(keys) * step, ticks))
    columns.append([scale[value] for value in measured])
    strands = tuple(
        Strand(
            "M" + "L".join(f"{axis.place:.1f} {y:.1f}" for axis, y in zip(axes, ys, strict=True)),
            shade(value, low, high),
            f"point {point.name}: {', '.join(f'{k} {_text(point.values[k])}' for k in keys)}: "
            f"{measured_text(value, grid.measure)}",
        )
        for point, value, ys in zip(sound, measured, zip(*columns, strict=True), strict=True)
    )
    return Parallel(tuple(axes), strands)


def _text(value: float | str) -> str:
    return f"{value:g}" if isinstance(value, float) else value


# --- Comparisons -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """A mean with its interval, as places along an axis of 100."""

    name: str
    text: str
    mean: float
    low: float
    high: float


def bars_of(rows: Sequence[dict[str, object]]) -> list[Bar]:
    """A bar for each method; those with a run that diverged are left out."""
    known = [
        (str(row["method"]), mean, _finite(row["low"]), _finite(row["high"]))
        for row in rows
        if (mean := _finite(row["mean"])) is not None
    ]
    ends = [value for _, mean, low, high in known for value in (mean, low, high) if value is not None]
    if not ends:
        return []
    least, most = min(ends), max(ends)
    least, most = (least - 0.5, most + 0.5) if most <= least else (least, most)

    def place(value: float) -> float:
        return 5 + 90 * (value - least) / (most - least)

    return [
        Bar(
            name,
            f"{mean:.4g}" + ("" if low is None or high is None else f" [{low:.4g}, {high:.4g}]"),
            place(mean),
            place(mean if low is None else low),
            place(mean if high is None else high),
        )
        for name, mean, low, high in known
    ]


def _finite(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
