"""What has been spent after each evaluation of a run, found in a thread while the device computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

from sordino.runs.metrics import Spent, spent
from sordino.runs.point import Point


class Spending:
    """epsilon of every point at all evaluations to come; the plan decides it, and no round has to wait for it."""

    def __init__(self, points: Mapping[int, Point], stops: Sequence[int], held: ExitStack) -> None:
        """Begin with the first of `stops`; `held` ends the thread."""
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spending")
        held.callback(thread.shutdown, cancel_futures=True)
        self._found: dict[int, dict[int, Future[Spent]]] = {
            stop: {number: thread.submit(spent, stop, point) for number, point in points.items()} for stop in stops
        }

    def after(self, stop: int) -> dict[int, Spent]:
        """What each point has spent after round `stop`."""
        return {number: found.result() for number, found in self._found.pop(stop).items()}
