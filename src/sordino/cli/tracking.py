"""`sordino run --track`: metrics go to a tracker as well."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from sordino.privacy.guarantee import Certificate
    from sordino.runs.point import Progress

Track = Annotated[str | None, typer.Option(help="Also send metrics to tensorboard, mlflow or wandb.")]
TrackPrivate = Annotated[
    bool, typer.Option("--track-private", help="Send there also what no guarantee of the run covers.")
]


class Sending(NamedTuple):
    """A tracker, and whether it gets everything."""

    tracker: str
    everything: bool


@contextmanager
def tracking(sending: Sending | None, certificate: Certificate, folder: Path) -> Iterator[Progress]:
    """Send rows to a tracker, if there is one, and say what is held back."""
    from sordino.report.tracking import Tracking

    if sending is None:
        yield lambda row: None
        return
    with Tracking(sending.tracker, certificate, folder, everything=sending.everything) as rows:
        if rows.held_back:
            print(f"{sending.tracker} gets epsilon alone, because {rows.held_back}: --track-private", file=sys.stderr)
        yield rows.send
