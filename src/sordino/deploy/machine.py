"""What runs on one machine: a server's SuperLink, a node with its SuperNode, or all of them for a trial.

    server   SuperLink (a process), which lets in the nodes of server.toml
    node     SuperNode (a process), and the node's own process, which answers its messages
    study    a session with the SuperLink of this machine, in the process that conducts the study

The module needs the extra `deploy`.
"""

from __future__ import annotations

import errno
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from types import FrameType

from sordino.deploy.flower.parent import end_with_parent
from sordino.deploy.flower.processes import Supervised, environment, start_superlink, start_supernode, wait_until_up
from sordino.deploy.flower.roll import connected, let_in
from sordino.deploy.flower.session import Link, session
from sordino.deploy.flower.worker import serve
from sordino.deploy.node import Node
from sordino.deploy.places import NodePlace, ServerPlace
from sordino.deploy.records import node_records, server_records
from sordino.deploy.seam import Exchange
from sordino.deploy.server import Server, Watch
from sordino.deploy.settings import NodeFile, ServerFile
from sordino.errors import InvalidInput, SordinoError, require
from sordino.files import held
from sordino.privacy.signing import read_signing_key, read_verifying_key

__all__ = ["ask_nodes", "end_by_signal", "now_connected", "on_signal", "server_of", "serving", "trial", "work"]

log = logging.getLogger(__name__)
LOCAL = "127.0.0.1"
START = 60.0  # seconds within which a SuperLink must be up
ANSWER = 5.0  # seconds within which a SuperLink that is up answers
NODE_LOG = "node.log"
SIGNALS = tuple(signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if name in signal.Signals.__members__)


# --- The server ------------------------------------------------------------------------------------------------------


@contextmanager
def serving(place: ServerPlace) -> Iterator[Link]:
    """The SuperLink of a server.toml, until the block ends; it lets in the nodes of that file, and no others."""
    check_server(place)
    settings = place.settings
    place.state.mkdir(parents=True, exist_ok=True)
    in_use = InvalidInput("state", str(place.state), "another server uses it: end that one first")
    with held(place.state / ".server.lock", in_use), _as_one_line():
        _require_free(settings, settings.host)
        link = link_of(place)
        with start_superlink(
            place.state, place.tls, place.secret, settings.host, settings.port, settings.largest_message
        ) as superlink:
            _wait(superlink, link)
            changes = let_in(link, place.node_keys)
            for words, names in (("let in", changes.added), ("removed", changes.removed)):
                if names:
                    log.info("%s: %s", words, ", ".join(names))
            yield link


def check_server(place: ServerPlace) -> None:
    """Refuse what cannot run, before anything is started."""
    settings = place.settings
    read_signing_key(place.folder / settings.key, field=settings.place("", "key"))
    for name, path in place.node_keys.items():
        read_verifying_key(path, field=settings.place("nodes", name))
    files = [place.secret, *(place.tls / name for name in ("ca.crt", "server.pem", "server.key"))]
    for path in files:
        require(path.is_file(), "file", str(path), "is missing: `sordino deploy init` makes all files of a server")
    server_records(settings, place.folder)


def link_of(place: ServerPlace) -> Link:
    """The server's SuperLink, from its own machine."""
    return Link(f"{LOCAL}:{place.settings.port}", place.tls / "ca.crt")


def now_connected(link: Link) -> frozenset[str] | None:
    """The names of nodes that are connected; None where the SuperLink does not say."""
    try:
        return connected(link)
    except ConnectionError:
        return None


def _wait(superlink: Supervised, link: Link) -> None:
    end = time.monotonic() + START
    while True:
        try:
            return wait_until_up(link, 0.5)
        except TimeoutError:
            if superlink.starts > 1 or not superlink.alive() or time.monotonic() > end:
                raise SordinoError(f"the SuperLink does not start: {superlink.log} says why") from None


# --- A study ---------------------------------------------------------------------------------------------------------


@contextmanager
def server_of(place: ServerPlace, watch: Watch | None = None) -> Iterator[Server]:
    """The server of studies, in a session with the SuperLink that runs on this machine."""
    check_server(place)
    link = link_of(place)
    try:
        wait_until_up(link, ANSWER)
    except TimeoutError:
        remedy = f"start `sordino deploy server {place.path}`, or `sordino deploy up` with the deployment's folder"
        raise SordinoError(f"no server runs at {link.address}: {remedy}") from None
    with _as_one_line(), session(link, place.secret) as exchange:
        yield Server(place.settings, place.folder, exchange, watch=watch)


def ask_nodes(exchange: Exchange, names: Sequence[str], seconds: float) -> tuple[str, ...]:
    """Wait until all these nodes are connected, or so long -> those that are absent."""
    end = time.monotonic() + seconds
    while absent := sorted(set(names) - set(exchange.nodes())):
        if time.monotonic() > end:
            return tuple(absent)
        time.sleep(0.2)
    return ()


# --- A node ----------------------------------------------------------------------------------------------------------


def work(place: NodePlace, stop: threading.Event) -> None:
    """Be a node until `stop` is set: the message in progress is answered first."""
    end_with_parent()
    check_node(place)
    settings, folder = place.settings, place.folder
    with Node.read(place.path) as node, _as_one_line():
        _warm()
        _require_free(settings, LOCAL)
        link = Link(settings.server.address, folder / settings.server.ca)
        key, secret = folder / settings.key, folder / settings.secret
        with start_supernode(place.state, link, key, secret, settings.port):
            log.info("node %s: %d records, server %s", settings.name, len(node.records.y), settings.server.address)
            _wait_for(settings.port, stop)
            serve(node.handle, f"{LOCAL}:{settings.port}", secret, stop)
    log.info("node %s has ended", settings.name)


def check_node(place: NodePlace) -> None:
    """Refuse what cannot run, before anything is started."""
    settings, folder = place.settings, place.folder
    read_signing_key(folder / settings.key, field=settings.place("", "key"))
    read_verifying_key(folder / settings.server.key, field=settings.place("server", "key"))
    for path in (folder / settings.secret, folder / settings.server.ca):
        require(path.is_file(), "file", str(path), "is missing: `sordino deploy init` makes all files of a node")
    node_records(settings, folder)


def _wait_for(port: int, stop: threading.Event) -> None:
    """Return when a process listens, or when there is nothing to wait for any more; the worker waits longer."""
    end = time.monotonic() + START
    while not stop.is_set() and time.monotonic() < end:
        try:
            return socket.create_connection((LOCAL, port), timeout=1).close()
        except OSError:
            stop.wait(0.1)


def _warm() -> None:
    """JAX starts its devices now, and not while a server waits."""
    import jax.numpy as jnp

    jnp.zeros(1).block_until_ready()


# --- A trial ---------------------------------------------------------------------------------------------------------


@contextmanager
def trial(place: ServerPlace) -> Iterator[Link]:
    """A server and all its nodes on this machine, each a process of its own, until the block ends."""
    here = {name: NodePlace(path) for name, path in place.nodes_here.items()}
    missing = sorted(set(place.settings.nodes) - set(here))
    remedy = "a trial needs all nodes in the folder nodes/ beside the server's: use `sordino deploy server` elsewhere"
    require(not missing, "nodes", ", ".join(missing), remedy)
    for node in here.values():
        check_node(node)
    with serving(place) as link:
        nodes: list[Supervised] = []
        try:
            for node in here.values():
                output = node.folder / NODE_LOG
                nodes.append(Supervised(_own_command("node", node.path), output, environment(node.state), pause=5.0))
            yield link
        finally:
            with ThreadPoolExecutor(max(1, len(nodes))) as together:
                list(together.map(Supervised.stop, nodes))


def _own_command(*arguments: object) -> list[str]:
    main = "from sordino.cli import main; main()"
    return [sys.executable, "-c", main, "deploy", *map(str, arguments)]


# --- Signals and errors ----------------------------------------------------------------------------------------------


@contextmanager
def on_signal() -> Iterator[threading.Event]:
    """An event that Ctrl-C, SIGTERM and the end of the terminal set."""
    stop = threading.Event()
    with _handling(lambda number, frame: stop.set()):
        yield stop


@contextmanager
def end_by_signal() -> Iterator[None]:
    """The first Ctrl-C or SIGTERM raises KeyboardInterrupt; later ones do not disturb what is put in order then."""

    def first(number: int, frame: FrameType | None) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt("ended by Ctrl-C or a signal")

    with _handling(first):
        yield


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    with ExitStack() as resources:
        for each in SIGNALS:
            resources.callback(signal.signal, each, signal.signal(each, handler))
        yield


@contextmanager
def _as_one_line() -> Iterator[None]:
    """What a transport raises is an OSError, which else would read as a file's."""
    try:
        yield
    except (ConnectionError, TimeoutError) as error:
        raise SordinoError(str(error)) from error


def _require_free(settings: ServerFile | NodeFile, host: str) -> None:
    port = settings.port
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
                remedy = f"is not an address of this machine ({error.strerror}): give one that is, or 0.0.0.0 for all"
                raise InvalidInput(settings.place("", "host"), host, remedy) from None
            remedy = f"cannot be used on {host} ({error.strerror}): end the program that uses it, or choose another"
            raise InvalidInput(settings.place("", "port"), port, remedy) from None
