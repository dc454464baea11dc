"""Flower as the transport, on loopback: a SuperLink with TLS and node keys, three nodes, and what they refuse."""

from __future__ import annotations

import http.client
import io
import os
import socket
import ssl
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from sordino.deploy.flower.credentials import make_node_key, make_secret
from sordino.deploy.flower.exchange import FlowerExchange
from sordino.deploy.flower.processes import free_port, run_status, start_supernode, stop_run, submit_run
from sordino.deploy.flower.session import Link, session
from sordino.deploy.seam import Reason
from tests.deploy.loopback import MAX_BODY, Loopback, eventually

pytestmark = pytest.mark.xdist_group("flower")  # one SuperLink for all workers

NAMES = ("east", "north", "west")
LONG = 120.0  # a deadline that is never reached


def name_and_request(name: str) -> Callable[[bytes], bytes]:
    return lambda request: name.encode() + b":" + request


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    it = Loopback.start(tmp_path_factory.mktemp("flower"))
    try:
        for name in NAMES:
            key = it.folder / name / "key"
            key.parent.mkdir()
            make_node_key(key)
            it.start_node(name, key, name_and_request(name))
        yield it
    finally:
        it.end()


@pytest.fixture(scope="module")
def exchange(deployment: Loopback) -> Iterator[FlowerExchange]:
    with session(deployment.link, deployment.secret) as it:
        eventually(lambda: it.nodes() == NAMES)
        yield it


def request(link: Link, source: str, method: str, path: str, body: bytes = b"") -> int:
    """The status of a request that comes from an address of this machine."""
    host, port = link.address.split(":")
    context = ssl.create_default_context(cafile=str(link.ca))
    connection = http.client.HTTPSConnection(host, int(port), source_address=(source, 0), context=context, timeout=30)
    try:
        connection.request(method, path, body)
        return connection.getresponse().status
    finally:
        connection.close()


def test_every_node_answers(exchange: FlowerExchange) -> None:
    requests = {name: os.urandom(9) * 700_000 for name in NAMES}  # more than one of Flower's pieces
    assert exchange(1, requests, LONG) == {name: name.encode() + b":" + requests[name] for name in NAMES}
    assert exchange(2, {"west": b""}, LONG) == {"west": b"west:"}


def test_equal_requests_and_equal_replies(deployment: Loopback, exchange: FlowerExchange) -> None:
    before = dict(deployment.handles)
    deployment.handles.update(dict.fromkeys(NAMES, lambda request: request))
    try:
        for round in range(3):
            assert exchange(round, dict.fromkeys(NAMES, b"the same"), LONG) == dict.fromkeys(NAMES, b"the same")
    finally:
        deployment.handles.update(before)


def test_a_node_that_is_late_is_silent(deployment: Loopback, exchange: FlowerExchange) -> None:
    wake = threading.Event()

    def late(request: bytes) -> bytes:
        wake.wait(LONG)
        return request

    answers = {name: name_and_request(name)(b"x") for name in NAMES}
    assert exchange(3, dict.fromkeys(NAMES, b"x"), LONG) == answers
    deployment.handles["north"] = late
    try:
        assert exchange(4, dict.fromkeys(NAMES, b"x"), 5.0) == {**answers, "north": Reason.SILENT}
    finally:
        deployment.handles["north"] = name_and_request("north")
        wake.set()
    assert exchange(5, {"north": b"y"}, LONG) == {"north": b"north:y"}  # not the late reply


def test_a_node_that_fails_is_lost_and_says_nothing(
    deployment: Loopback, exchange: FlowerExchange, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(request: bytes) -> bytes:
        raise RuntimeError("a secret of the data")

    deployment.handles["east"] = fails
    try:
        replies = exchange(6, {"east": b"x", "nobody": b"x"}, LONG)
    finally:
        deployment.handles["east"] = name_and_request("east")
    assert replies == {"east": Reason.SILENT, "nobody": Reason.LOST}
    said = [record.getMessage() for record in caplog.records if record.name == "sordino.deploy.flower.exchange"]
    assert said
    assert "secret" not in " ".join(said)


def test_code_of_a_bundle_runs_nowhere(deployment: Loopback, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    code = f"open({str(marker)!r}, 'w').close()\nfrom flwr.clientapp import ClientApp\napp = ClientApp()\n"
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("evil/__init__.py", "")
        archive.writestr("evil/app.py", code)
        archive.writestr(
            "pyproject.toml",
            '[project]\nname = "evil"\nversion = "1.0.0"\ndescription = "x"\nlicense = "Apache-2.0"\n'
            '[tool.flwr.app]\npublisher = "evil"\n[tool.flwr.app.config]\n'
            '[tool.flwr.app.components]\nserverapp = "evil.app:app"\nclientapp = "evil.app:app"\n',
        )
    run = submit_run(deployment.link, file.getvalue())
    with session(deployment.link, deployment.secret, run) as exchange:
        assert exchange(1, dict.fromkeys(NAMES, b"x"), LONG) == {name: name.encode() + b":x" for name in NAMES}
        assert run_status(deployment.link, run) == "running"
    assert run_status(deployment.link, run) == "finished:completed"
    assert not marker.exists()
    assert not list(deployment.folder.rglob("evil*"))  # the bundle is not even unpacked


def test_a_stopped_run_raises(deployment: Loopback) -> None:
    run = submit_run(deployment.link)
    with session(deployment.link, deployment.secret, run) as exchange:
        assert stop_run(deployment.link, run)
        with pytest.raises(ConnectionError, match="ended the run"):
            exchange(1, {"east": b"x"}, LONG)
    assert run_status(deployment.link, run) == "finished:stopped"


def test_a_session_ends_abandoned_runs_and_needs_the_secret(deployment: Loopback, tmp_path: Path) -> None:
    abandoned = submit_run(deployment.link)
    make_secret(tmp_path / "other")
    with pytest.raises(ConnectionError, match="gives no task"), session(deployment.link, tmp_path / "other"):
        pass
    with session(deployment.link, deployment.secret) as exchange:
        assert exchange.nodes() == NAMES
    assert run_status(deployment.link, abandoned) == "finished:failed"


def test_an_unregistered_key_is_refused(deployment: Loopback, exchange: FlowerExchange, tmp_path: Path) -> None:
    make_node_key(tmp_path / "key")
    make_secret(tmp_path / "secret")
    with start_supernode(
        tmp_path, deployment.link, tmp_path / "key", tmp_path / "secret", free_port(), pause=600
    ) as it:
        eventually(lambda: not it.alive())
    assert "SuperNode ID" not in (tmp_path / "supernode.log").read_text()
    assert exchange.nodes() == NAMES


def test_plain_http_is_refused(deployment: Loopback) -> None:
    host, port = deployment.link.address.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        try:
            answer = connection.recv(100)
        except ConnectionResetError:
            answer = b""
    assert not answer.startswith(b"HTTP")


def test_strangers_reach_the_paths_of_nodes_alone(deployment: Loopback) -> None:
    stranger, server = "127.0.0.2", "127.0.0.1"
    for path in ("/v1/control/list-runs", "/v1/control/register-node", "/v1/runtime/acquire-task"):
        assert request(deployment.link, stranger, "POST", path) == 403
        assert request(deployment.link, stranger, "POST", "/v1/fleet/../" + path[4:]) in (403, 404)
        assert request(deployment.link, stranger, "POST", "/v1/fleet/%2e%2e/" + path[4:]) in (403, 404)
    for path in ("/docs", "/openapi.json", "/", "/v1/fleet"):
        assert request(deployment.link, stranger, "GET", path) == 403
    assert request(deployment.link, server, "GET", "/docs") == 200
    assert request(deployment.link, stranger, "GET", "/health") == 200
    # behind the guard the SuperLink asks for the signature of a node
    assert request(deployment.link, stranger, "POST", "/v1/fleet/pull-messages") not in (403, 404, 200)


def test_large_bodies_are_refused(deployment: Loopback) -> None:
    path = "/v1/fleet/push-object"
    assert request(deployment.link, "127.0.0.2", "POST", path, b"0" * 1000) != 413
    host, port = deployment.link.address.split(":")
    context = ssl.create_default_context(cafile=str(deployment.link.ca))
    with (
        socket.create_connection((host, int(port)), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {MAX_BODY + 1}\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


def test_private_files_are_private(deployment: Loopback) -> None:
    for name in ("tls/ca.key", "tls/server.key", "server.secret", "east/key", "east/secret"):
        assert (deployment.folder / name).stat().st_mode & 0o777 == 0o600
    assert (deployment.folder / "east" / "key.pub").read_text().startswith("ecdsa-sha2-nistp384 ")


@pytest.mark.slow
def test_a_killed_node_comes_back(deployment: Loopback) -> None:
    with session(deployment.link, deployment.secret) as exchange:
        eventually(lambda: exchange.nodes() == NAMES)  # or the SuperLink would have nothing to refuse
        assert exchange(1, {"west": b"x"}, LONG) == {"west": b"west:x"}
        node = deployment.nodes["west"]
        log, starts = node.log.read_text().count("SuperNode ID"), node.starts
        deployment.kill_node("west")
        eventually(lambda: node.log.read_text().count("SuperNode ID") > log, 2 * LONG)
        assert node.starts > starts + 1  # the first of them was refused
        eventually(lambda: exchange(2, {"west": b"y"}, 10.0) == {"west": b"west:y"}, 2 * LONG)
