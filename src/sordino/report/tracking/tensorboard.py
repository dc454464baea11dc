"""TensorBoard: an event file in the folder `tensorboard` of the run. Nothing leaves the machine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path


class TensorBoard:
    """Writes scalars and texts as TensorBoard reads them; needs the package tensorboard alone."""

    def __init__(self, name: str, folder: Path) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.plugins.text.summary_v2 import text_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._events, self._summaries, self._text = event_pb2, summary_pb2, text_pb
        self._writer = EventFileWriter(str(folder / "tensorboard"))

    def log(self, values: Mapping[str, float], step: int) -> None:
        scalars = [self._summaries.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        summary = self._summaries.Summary(value=scalars)
        self._writer.add_event(self._events.Event(wall_time=time.time(), step=step, summary=summary))

    def text(self, name: str, text: str) -> None:
        self._writer.add_event(self._events.Event(wall_time=time.time(), summary=self._text(name, text)))

    def close(self) -> None:
        self._writer.close()
