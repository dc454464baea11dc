"""The folder of a new deployment: keys, certificates and settings, a part for each machine.

server/         server.toml, server.key, server.secret, tls/, nodes/<name>.pub     to the server's machine
nodes/<name>/   node.toml, node.key, node.secret, ca.crt, server.pub               to that node's machine
study.toml, README.md, system/                                                     for people
"""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

from sordino.deploy.example import Example, as_csv
from sordino.deploy.flower.credentials import make_node_key, make_secret, make_tls
from sordino.deploy.settings import read_node_file, read_server_file, require_node_name
from sordino.errors import InvalidInput, require
from sordino.files import write_atomically

LOCAL, EVERYWHERE = "127.0.0.1", "0.0.0.0"
TEMPLATES = files("sordino.deploy") / "templates"
SYSTEM_FILES = ("sordino-server.service", "sordino-node.service", "Containerfile")
MOST_NODES = 1000
LAST_PORT = 65535
COLUMN = 30  # of the comments behind settings


@dataclass(frozen=True)
class Deployment:
    """What a new deployment is to be."""

    folder: Path
    names: tuple[str, ...]
    host: str  # by which nodes reach the server
    port: int  # of the server; in a trial on one machine its nodes use the next ones
    example: Example | None = None

    def check(self) -> None:
        """Refuse what cannot be, before anything is written."""
        require(0 < len(self.names) <= MOST_NODES, "nodes", len(self.names), f"give 1 to {MOST_NODES}")
        for name in self.names:
            require_node_name("name", name)
        alike = {name.lower() for name in self.names}  # some file systems ignore case
        require(len(alike) == len(self.names), "name", list(self.names), "give each node a name of its own")
        _require_host(self.host)
        most = LAST_PORT - len(self.names)
        require(1024 <= self.port <= most, "port", self.port, f"choose one from 1024 to {most}")
        empty = not self.folder.exists() or (self.folder.is_dir() and not any(self.folder.iterdir()))
        require(empty, "folder", str(self.folder), "exists and is not empty: choose another")

    def make(self) -> None:
        """Write everything, or nothing."""
        self.check()
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{self.folder.name}-", dir=self.folder.parent))  # of its owner alone
        try:
            self._write_server(staging / "server")
            for i, name in enumerate(self.names):
                self._write_node(staging, i, name)
            self._write_papers(staging)
            read_server_file(staging / "server" / "server.toml")
            for name in self.names:
                read_node_file(staging / "nodes" / name / "node.toml")
            os.replace(staging, self.folder)
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise

    def _write_server(self, server: Path) -> None:
        (server / "nodes").mkdir(parents=True)
        make_tls(server / "tls", [self.host])
        make_node_key(server / "server.key")
        make_secret(server / "server.secret")
        filled = _filled(
            "server.toml",
            listen=LOCAL if self.host == LOCAL else EVERYWHERE,
            port=self.port,
            nodes="\n".join(f'"{name}" = "nodes/{name}.pub"' for name in self.names),
            fewest=len(self.names) // 2 + 1,
            test=self._test_section(),
        )
        (server / "server.toml").write_text(filled)
        if self.example is not None:
            write_atomically(server / "test.csv", as_csv(self.example.columns, self.example.test), private=True)

    def _test_section(self) -> str:
        lines = (
            "[test]                        # the server's own records, on which models are measured",
            'file = "test.csv"             # .csv, .npz or .parquet, with the columns that the nodes have',
            'label = "label"               # the column of labels',
            '# features = ["age", "rate"]  # columns, where they are not all others; more keys: see node.toml',
            f"classes = {2 if self.example is None else self.example.classes}",
        )
        return "\n".join(lines if self.example is not None else [f"# {line.removeprefix('# ')}" for line in lines])

    def _write_node(self, staging: Path, i: int, name: str) -> None:
        home, server = staging / "nodes" / name, staging / "server"
        home.mkdir(parents=True)
        shutil.copyfile(make_node_key(home / "node.key"), server / "nodes" / f"{name}.pub")
        make_secret(home / "node.secret")
        shutil.copyfile(server / "server.key.pub", home / "server.pub")
        shutil.copyfile(server / "tls" / "ca.crt", home / "ca.crt")
        filled = _filled(
            "node.toml",
            name=name,
            port=self.port + 1 + i,
            address=f"{self.host}:{self.port}",
            classes=2 if self.example is None else self.example.classes,
            budget_epsilon=8.0,
            budget_delta="1e-5",
        )
        (home / "node.toml").write_text(filled)
        if self.example is not None:
            write_atomically(home / "records.csv", as_csv(self.example.columns, self.example.parts[i]), private=True)

    def _write_papers(self, staging: Path) -> None:
        given = self.example
        study = _filled(
            "study.toml",
            task="records" if given is None else given.task,
            feature_bound=10.0 if given is None else given.feature_bound,
            feature_words="set that of your columns" if given is None else given.feature_words,
            epsilon=4.0,
            delta="1e-5",
            rounds=40,
        )
        (staging / "study.toml").write_text(study)
        rows = (
            f"| `nodes/{name}/` | the machine of {name} | `node.key`, `node.secret`, `state/` |" for name in self.names
        )
        put = " Put the records beside it, as `records.csv`: columns of numbers and a column `label`."
        about = "Every node needs records of its own before it can start: see step 1." if given is None else given.words
        readme = _filled(
            "README.md",
            count=len(self.names),
            records=about,
            folders="\n".join(rows),
            folder=self.folder.name,
            host=self.host,
            port=self.port,
            put_records="" if given is not None else put,
        )
        (staging / "README.md").write_text(readme)
        (staging / "system").mkdir()
        for name in SYSTEM_FILES:
            (staging / "system" / name).write_text(_filled(name, port=self.port))


def node_names(nodes: int | None, names: Sequence[str]) -> tuple[str, ...]:
    """The names that were given, or node1, node2, ..."""
    both = nodes is not None and bool(names)
    require(not both, "nodes", nodes, "give --nodes, or a --name for each node, and not both")
    require(nodes is not None or bool(names), "nodes", None, "give --nodes N, or a --name for each node")
    require(nodes is None or 0 < nodes <= MOST_NODES, "nodes", nodes, f"give 1 to {MOST_NODES}")
    return tuple(names) or tuple(f"node{i + 1}" for i in range(nodes or 0))


def _require_host(host: str) -> None:
    """A name or an IPv4 address: Flower's addresses are host:port."""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        found = None
    label = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    named = re.fullmatch(rf"{label}(\.{label})*", host) is not None and not re.fullmatch(r"[0-9.]+", host)
    numeric = isinstance(found, ipaddress.IPv4Address) and not found.is_unspecified
    if not (numeric or (named and len(host) <= 253)):
        raise InvalidInput("host", host, "give the name or IPv4 address by which the nodes reach the server")


def _filled(template: str, **values: object) -> str:
    """A template with its values; the comments behind settings stand in one column."""
    text = Template((TEMPLATES / template).read_text()).substitute(values)
    return re.sub(r"^([^#\n]*\S) +# ", lambda found: f"{found[1]:<{COLUMN - 1}} # ", text, flags=re.MULTILINE)
