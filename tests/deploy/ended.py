"""Reads what a study leaves: the journal, the model, and what both sides have signed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

from sordino.deploy.node_study import OWN_STATEMENT
from sordino.deploy.server_study import JOURNAL, MEMBERS, MODEL, STATEMENT, ServerStudy
from sordino.deploy.statements import NODE_STATEMENT, SERVER_STATEMENT
from sordino.deploy.wire import Kind
from sordino.privacy.signing import read_verifying_key, verify
from tests.deploy.clinic import Clinics


def is_round(request: bytes) -> bool:
    """Whether a request asks for a message."""
    return request[6] == Kind.ROUND


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / JOURNAL).read_bytes().splitlines()]


def model_of(folder: Path) -> dict[str, Any]:
    return {name: each.tolist() for name, each in load_file(folder / MODEL).items()}


def told_by_server(clinics: Clinics, kept: ServerStudy) -> dict[str, Any]:
    """What the server signed, of each member."""
    key = read_verifying_key(clinics.folder / "server" / "server.key.pub")
    envelope = json.loads((kept.folder / STATEMENT).read_bytes())
    return dict(verify(envelope, key, SERVER_STATEMENT)["predicate"]["members"])


def told_by_node(clinics: Clinics, kept: ServerStudy, name: str) -> dict[str, Any]:
    """What a node signed; the server has the same bytes."""
    key = read_verifying_key(clinics.home(name) / "node.key.pub")
    data = (kept.folder / MEMBERS / f"{name}.dsse.json").read_bytes()
    assert (study_of_node(clinics, kept, name) / OWN_STATEMENT).read_bytes() == data
    return dict(verify(json.loads(data), key, NODE_STATEMENT)["predicate"])


def study_of_node(clinics: Clinics, kept: ServerStudy, name: str) -> Path:
    return clinics.home(name) / "state" / "studies" / kept.study.description.digest.hex()
