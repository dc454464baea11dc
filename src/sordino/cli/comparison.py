"""What `sordino compare` prints, within the width of the terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from sordino.cli.output import print_rows, print_text, show
from sordino.privacy import wording

if TYPE_CHECKING:
    from sordino.experiments.comparing import Outcome

NOT_COVERED = f"{wording.SELECTION_NOT_COVERED} {wording.SHARED_NOISE}"


def show_comparison(result: dict[str, Any], outcomes: list[Outcome]) -> None:
    """Everything within the width of the terminal."""
    own = ("rows", "pairs", "edges", "choosing", "held_out", "tables")
    show("Comparison", {key: value for key, value in result.items() if key not in own and value is not None})
    measure, reference = result["measure"], result["reference"]
    shown = [_figures(row, reference) for row in result["rows"]]
    print_rows(shown, title=f"{measure} on the test set, best first")
    if result["held_out"] is not None:
        print_rows([_chosen(row) for row in result["rows"]], title="best points, chosen on held-out clients")
        prices = [_price(price) for price in result["choosing"]["prices"]]
        print_rows(prices, title="price of choosing, for a client in training")
        print_text(wording.PRICES_OF_CHOOSING, wording.held_out(**result["held_out"]))
        print_text(*(f"warning: {wording.at_the_edge(**edge)}" for edge in result["edges"]))
    promises: dict[str, list[str]] = {}
    for each in outcomes:
        promises.setdefault(str(each.guarantee), []).append(each.name)
    print_text(*(f"{', '.join(names)}: {promise}" for promise, names in promises.items()))
    print_text(*wording.comparison_notes({each.name: each.certificate for each in outcomes}), NOT_COVERED)


def _figures(row: dict[str, Any], reference: str) -> dict[str, str]:
    """A row for people: intervals in brackets."""
    difference, p = "-", "-"
    if "difference" in row:
        difference = f"{row['difference']:+.3g} [{row['difference_low']:+.3g}, {row['difference_high']:+.3g}]"
        p = "-" if math.isnan(row["p"]) else f"{row['p']:.2g}"
    mean = f"{row['mean']:.4g} [{row['low']:.4g}, {row['high']:.4g}]"
    return {"method": row["method"], "mean [95 %]": mean, f"less {reference}": difference, "p": p}


def _chosen(row: dict[str, Any]) -> dict[str, str]:
    values = ", ".join(f"{key} = {value}" for key, value in row["best"].items())
    tried = f"{row['tried']} of {row['of']}"
    return {"method": row["method"], "best": values or "-", "score": f"{row['score']:.4g}", "tried": tried}


def _price(price: dict[str, Any]) -> dict[str, Any]:
    together, selection = (price.get(f"epsilon_{key}") for key in ("with_independent_noise", "of_private_selection"))
    named = {"method": price["method"], "runs": price["runs"], "epsilon of one run": price["epsilon_of_one_run"]}
    return named | {"epsilon of all runs": together, "epsilon of the best of them": selection}
