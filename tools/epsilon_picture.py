"""`python -m tools.epsilon_picture` draws docs/figures/epsilon.svg: epsilon and delta of Gaussian noise, to scale.

A number that one client moves by 1 is released with Gaussian noise of std 1. The curve p is the law of the release with
the client, q without. Where p exceeds e^epsilon q, its excess is delta.
"""

from __future__ import annotations

import math
from pathlib import Path

from sordino.privacy.gaussian import gaussian_delta

PAGE = Path(__file__).parents[1] / "docs" / "figures" / "epsilon.svg"
EPSILON = 1.0
LEFT, RIGHT, STEP = -3.6, 6.0, 0.05
WIDTH, HEIGHT, MARGIN, TOP = 760, 320, 24, 20
HIGHEST = 0.55  # of the densities shown

STYLE = """
  .paper { fill: #ffffff } .ink { fill: #1f2430 } .faint { fill: #5b6272 } .axis { stroke: #5b6272; stroke-width: 1 }
  .with { stroke: #0b6bcb } .without { stroke: #b3541e } .limit { stroke: #b3541e; stroke-dasharray: 6 5 }
  .with, .without, .limit { fill: none; stroke-width: 2.5 } .excess { fill: #0b6bcb; fill-opacity: 0.35 }
  .name-with { fill: #0b6bcb } .name-without { fill: #b3541e }
  text { font: 15px system-ui, sans-serif }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #161a22 } .ink { fill: #e6e9ef } .faint { fill: #a2a9b8 } .axis { stroke: #a2a9b8 }
    .with { stroke: #6db3f8 } .without { stroke: #f0a070 } .limit { stroke: #f0a070 } .excess { fill: #6db3f8 }
    .name-with { fill: #6db3f8 } .name-without { fill: #f0a070 }
  }
"""


def density(x: float, mean: float) -> float:
    """The density of N(mean, 1)."""
    return math.exp(-((x - mean) ** 2) / 2) / math.sqrt(2 * math.pi)


def place(x: float, height: float) -> str:
    """A point of the picture."""
    across = MARGIN + (x - LEFT) / (RIGHT - LEFT) * (WIDTH - 2 * MARGIN)
    down = TOP + (1 - height / HIGHEST) * (HEIGHT - TOP - 60)
    return f"{across:.1f},{down:.1f}"


def line(kind: str, heights: list[tuple[float, float]]) -> str:
    """A curve, cut where it leaves the picture."""
    points = " ".join(place(x, y) for x, y in heights if y <= HIGHEST)
    return f'<polyline class="{kind}" points="{points}"/>'


def text(kind: str, x: float, height: float, words: str) -> str:
    """Words that begin at a point."""
    across, down = place(x, height).split(",")
    return f'<text class="{kind}" x="{across}" y="{down}">{words}</text>'


def picture() -> str:
    """The picture as SVG."""
    xs = [LEFT + STEP * i for i in range(round((RIGHT - LEFT) / STEP) + 1)]
    p = [(x, density(x, 1.0)) for x in xs]
    q = [(x, density(x, 0.0)) for x in xs]
    limit = [(x, math.exp(EPSILON) * height) for x, height in q if x > 0]  # the side of the client
    crossing = EPSILON + 0.5  # p = e^epsilon q
    beyond = [crossing] + [x for x in xs if x > crossing]
    upper = [place(x, density(x, 1.0)) for x in beyond]
    lower = [place(x, math.exp(EPSILON) * density(x, 0.0)) for x in reversed(beyond)]
    delta = gaussian_delta(EPSILON, 1.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        "<title>Two laws of a noisy release, with and without one client</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="10"/>',
        f'<polygon class="excess" points="{" ".join(upper + lower)}"/>',
        f'<polyline class="axis" points="{place(LEFT, 0)} {place(RIGHT, 0)}"/>',
        line("without", q),
        line("limit", limit),
        line("with", p),
        text("name-without", -3.4, 0.3, "q: without the client"),
        text("name-with", 2.2, 0.3, "p: with the client"),
        text("name-without", 1.3, 0.5, f"e^epsilon q, for epsilon = {EPSILON:g}"),
        text("ink", 2.7, 0.16, f"delta = {delta:.3f}: the shaded area,"),
        text("ink", 2.7, 0.125, "where p exceeds e^epsilon q"),
        text("faint", -3.4, -0.05, "the number that is released; one client moves it by 1, the noise has std 1"),
        "</svg>\n",
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(picture())
