"""Where the parts of a deployment lie on this machine.

FOLDER              server/server.toml, nodes/<name>/node.toml      a trial
FOLDER/server, or a copy of it, or its server.toml                  a server
FOLDER/nodes/east, or a copy of it, or its node.toml                a node
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sordino.deploy.server_study import studies_in
from sordino.deploy.settings import NodeFile, ServerFile, read_node_file, read_server_file
from sordino.errors import InvalidInput, require, use_one_of
from sordino.privacy.signing import VerifyingKey, read_verifying_key

SERVER_FILE, NODE_FILE = "server.toml", "node.toml"


@dataclass(frozen=True)
class _Place(ABC):
    """One side of a deployment, on its machine."""

    path: Path  # of its settings

    @property
    @abstractmethod
    def settings(self) -> NodeFile | ServerFile:
        """What the file says."""

    @property
    def folder(self) -> Path:
        """Where relative paths start."""
        return self.path.parent

    @property
    def state(self) -> Path:
        """Where studies, or ledgers, are kept."""
        return self.folder / self.settings.state


class ServerPlace(_Place):
    """A server's folder."""

    @classmethod
    def of(cls, given: Path) -> ServerPlace:
        """The server of a deployment's folder, of a server's folder, or of a server.toml."""
        for path in (given / "server" / SERVER_FILE, given / SERVER_FILE, given):
            if path.is_file() and path.suffix == ".toml":
                return cls(path.resolve())
        remedy = "there is no server here: give a deployment's folder, a server's folder or its server.toml"
        raise InvalidInput("folder", str(given), remedy)

    @cached_property
    def settings(self) -> ServerFile:
        """server.toml."""
        return read_server_file(self.path)

    @property
    def tls(self) -> Path:
        """The folder of certificates."""
        return self.folder / self.settings.tls

    @property
    def secret(self) -> Path:
        """The file of the secret of this machine's processes."""
        return self.folder / self.settings.secret

    @property
    def public_key(self) -> VerifyingKey:
        """The server's own."""
        return read_verifying_key(self.folder / f"{self.settings.key}.pub", field=self.settings.place("", "key"))

    @property
    def node_keys(self) -> dict[str, Path]:
        """The files of the nodes' public keys, by name."""
        return {name: self.folder / file for name, file in self.settings.nodes.items()}

    @property
    def nodes_here(self) -> dict[str, Path]:
        """The node.toml of every node whose folder is on this machine too, as in a trial."""
        places = {name: self.folder.parent / "nodes" / name / NODE_FILE for name in self.settings.nodes}
        return {name: path for name, path in places.items() if path.is_file()}

    def studies(self) -> list[Path]:
        """The folders of all studies, the newest last."""
        return studies_in(self.state)

    def study(self, name: str | None) -> Path:
        """The folder of a study; of the only one, or of the newest, if no name is given."""
        found = self.studies()
        require(bool(found), "study", name, f"there is none in {self.state}: start one with `sordino deploy run`")
        if name is None:
            return found[-1]
        names = [folder.name for folder in found]
        require(name in names, "study", name, f"there is none of this name: {use_one_of(name, names)}")
        return found[names.index(name)]


class NodePlace(_Place):
    """A node's folder."""

    @classmethod
    def of(cls, given: Path) -> NodePlace:
        """The node of a folder or of a node.toml."""
        found = cls.found(given)
        if found is None:
            remedy = "there is no node here: give a node's folder or its node.toml"
            raise InvalidInput("node", str(given), remedy)
        return found

    @classmethod
    def found(cls, given: Path) -> NodePlace | None:
        """The same; None where there is none."""
        if (given / NODE_FILE).is_file():
            return cls((given / NODE_FILE).resolve())
        is_one = given.is_file() and given.suffix == ".toml" and "[accept]" in given.read_text(errors="replace")
        return cls(given.resolve()) if is_one else None

    @cached_property
    def settings(self) -> NodeFile:
        """node.toml."""
        return read_node_file(self.path)
