"""What people who look on see: the nodes of a deployment and its studies, from the files that a server writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from sordino.deploy.status import RUNNING, StudyStatus, read_status


class NodeStatus(NamedTuple):
    """One node."""

    connected: bool | None  # None where it is not known
    rounds: int  # of all studies, whose messages were used
    latest: str


class View(NamedTuple):
    """Everything at one moment."""

    nodes: dict[str, NodeStatus]
    studies: tuple[StudyStatus, ...]


def view_of(names: Iterable[str], connected: Iterable[str] | None, folders: Iterable[Path]) -> View:
    """The nodes and studies, from the names of those that are connected and the folders of studies, the newest last."""
    studies = tuple(found for folder in folders if (found := read_status(folder)) is not None)
    now_here = None if connected is None else set(connected)
    nodes = {name: _node(name, None if now_here is None else name in now_here, studies) for name in names}
    return View(nodes, studies)


def changes(before: View, after: View) -> list[str]:
    """One line for each thing that has happened."""
    lines = [
        f"{name} is connected" if node.connected else f"{name} is not connected any more"
        for name, node in after.nodes.items()
        if node.connected is not None and node.connected != _was_connected(before, name)
    ]
    known: Mapping[str, StudyStatus] = {study.name: study for study in before.studies}
    for study in after.studies:
        earlier = known.get(study.name)
        if earlier is None or study.round != earlier.round:
            lines.append(f"study {study.name}: {progress(study)}")
        if earlier is not None and study.state != earlier.state:
            lines.append(f"study {study.name} is {study.state}{f': {study.why}' if study.why else ''}")
    return lines


def progress(study: StudyStatus) -> str:
    """Round 3 of 20, 4 of 4 messages used, accuracy 71.3 %."""
    parts = [f"round {study.round} of {study.rounds}"]
    if study.round and study.state == RUNNING:
        parts.append(f"{study.used} of {len(study.members)} messages used")
    return ", ".join([*parts, *([measured(study)] if study.measured else [])])


def measured(study: StudyStatus) -> str:
    """Accuracy and loss on the server's own records."""
    found = study.measured
    parts = [f"accuracy {100 * found['accuracy']:.1f} %"] if "accuracy" in found else []
    return ", ".join([*parts, *([f"loss {found['test_loss']:.3f}"] if "test_loss" in found else [])])


def _node(name: str, connected: bool | None, studies: tuple[StudyStatus, ...]) -> NodeStatus:
    takes_part = [study for study in studies if name in study.members]
    newest = max(takes_part, key=lambda study: study.updated, default=None)
    latest = "" if newest is None else newest.members[name].latest
    return NodeStatus(connected, sum(study.members[name].rounds for study in takes_part), latest)


def _was_connected(view: View, name: str) -> bool:
    return name in view.nodes and bool(view.nodes[name].connected)
