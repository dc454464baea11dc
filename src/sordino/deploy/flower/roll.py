"""The nodes that the SuperLink lets in: those of server.toml, each with its key, and no others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.serialization import load_ssh_public_key
from flwr.proto.control_pb2 import ListNodesRequest, UnregisterNodeRequest
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.constant import NodeStatus
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from sordino.deploy.flower.session import Link, register_node
from sordino.errors import InvalidInput, require

__all__ = ["Changes", "connected", "let_in"]


class Changes(NamedTuple):
    """The names of nodes that were registered, and of those that were removed."""

    added: tuple[str, ...]
    removed: tuple[str, ...]


def connected(link: Link) -> frozenset[str]:
    """The names of the nodes that are connected now."""
    return frozenset(node.name for node in _nodes(link) if node.status == NodeStatus.ONLINE)


def let_in(link: Link, keys: Mapping[str, Path]) -> Changes:
    """Register these nodes, and remove all others. A key that was removed cannot be registered again."""
    wanted = {name: _key(path) for name, path in keys.items()}
    known = _nodes(link)
    removed = {node.public_key for node in known if node.status == NodeStatus.UNREGISTERED}
    present = [node for node in known if node.status != NodeStatus.UNREGISTERED]
    for name, key in wanted.items():
        if key in removed:
            remedy = "this key was removed before and cannot come back: make the node a new one"
            raise InvalidInput(f"[nodes] {name}", str(keys[name]), remedy)
        other = next((node.name for node in present if node.public_key == key and node.name != name), None)
        remedy = f"this key belongs to {other}: a node keeps its name for as long as it keeps its key"
        require(other is None, f"[nodes] {name}", str(keys[name]), remedy)
    leaving = [node for node in present if wanted.get(node.name) != node.public_key]
    for node in leaving:
        request = UnregisterNodeRequest(node_id=node.node_id)
        link.control(lambda client, request=request: client.UnregisterNode(request))  # type: ignore[misc]
    registered = {node.public_key for node in present}
    added = [name for name, key in wanted.items() if key not in registered]
    for name in added:
        register_node(link, name, keys[name])
    return Changes(tuple(added), tuple(node.name for node in leaving))


def _nodes(link: Link) -> list[NodeInfo]:
    return list(link.control(lambda client: client.ListNodes(ListNodesRequest())).nodes_info)


def _key(path: Path) -> bytes:
    return public_key_to_bytes(load_ssh_public_key(path.read_bytes()))  # type: ignore[arg-type]  # `Server` checks it
