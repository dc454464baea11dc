"""A round of a study on three warm nodes against a bare Flower round of the same bytes, with the same processes.

    python -m bench.flower [--nodes 3] [--parameters 250000] [--rounds 9]

Loopback, TLS, node keys, one process a node. A round of the study is everything: the request's signature, local
training, noise on the lattice for every coordinate, ledger and stored answer on disk, the signed message of 4 bytes a
parameter, the server's checks, sum, step and checkpoint. The bare round is `Grid.send_and_receive` on nodes that send
the bytes back; it is measured after every round of the study. The floor is one with its wait of 3 s shortened.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from bench.timing import Bench, Row
from sordino.deploy.flower.credentials import make_node_key, make_secret, make_tls
from sordino.deploy.flower.exchange import FlowerExchange
from sordino.deploy.flower.processes import free_port, register_node, start_superlink, start_supernode, wait_until_up
from sordino.deploy.flower.session import Link, session
from sordino.deploy.flower.worker import serve
from sordino.deploy.node import Node
from sordino.deploy.server import Server
from sordino.deploy.server_study import ServerStudy
from sordino.deploy.settings import read_server_file
from sordino.deploy.wire import MAGIC, arrays_size

DEADLINE = 120.0
RECORDS, HIDDEN = 20, 500
NODE = """name = "{name}"
port = {port}
[server]
address = "{address}"
[data]
file = "records.npz"
label = "y"
features = ["x"]
classes = 2
[protect]
unit = "client"
relation = "zero-out"
[budget]
epsilon = 1e6
delta = 1e-3
measure = "gaussian"
[accept]
methods = ["fedavg"]
smallest_noise = 0.1
"""
STUDY = """[task]
name = "bench"
model = "mlp:{hidden}"
[algorithm]
name = "fedavg"
local_steps = 1
local_lr = 0.1
[bound]
clip = 1.0
[privacy]
trust = "local"
relation = "zero-out"
noise_multiplier = 1.0
delta = 1e-3
[run]
rounds = {rounds}
"""


def work(home: Path, address: str, secret: Path) -> None:
    """A node's process: frames of a study are handled, other bytes are sent back."""
    node = Node.read(home / "node.toml")

    def handle(request: bytes) -> bytes:
        return node.handle(request) if request.startswith(MAGIC) else request

    serve(handle, address, secret, threading.Event())


@contextmanager
def deployment(folder: Path, nodes: int, features: int) -> Iterator[FlowerExchange]:
    """A server's folder with its nodes, connected."""
    rng, spawn = np.random.default_rng(0), multiprocessing.get_context("spawn")
    make_tls(folder, [])
    make_secret(folder / "secret")
    make_node_key(folder / "signing.key")
    port, names = free_port(), [f"node{i}" for i in range(nodes)]
    link = Link(f"127.0.0.1:{port}", folder / "ca.crt")
    with ExitStack() as stack:
        stack.enter_context(start_superlink(folder, folder, folder / "secret", "127.0.0.1", port))
        wait_until_up(link)
        for name in names:
            home, port = folder / name, free_port()
            home.mkdir()
            register_node(link, name, make_node_key(home / "node.key"))
            (home / "server.pub").write_bytes((folder / "signing.key.pub").read_bytes())
            (home / "node.toml").write_text(NODE.format(name=name, port=port, address=link.address))
            x = rng.normal(size=(RECORDS, features)).astype(np.float32)
            np.savez(home / "records.npz", x=x, y=rng.integers(0, 2, RECORDS))
            stack.enter_context(start_supernode(home, link, home / "node.key", folder / "secret", port, wait=0.1))
            process = spawn.Process(target=work, args=(home, f"127.0.0.1:{port}", folder / "secret"), daemon=True)
            process.start()
            stack.callback(process.terminate)
        keys = "\n".join(f'{name} = "{name}/node.key.pub"' for name in names)
        (folder / "server.toml").write_text(
            f'port = 1\nkey = "signing.key"\n[rounds]\nfewest = {nodes}\n[nodes]\n{keys}\n'
        )
        exchange = stack.enter_context(session(link, folder / "secret"))
        while len(exchange.nodes()) < nodes:
            time.sleep(0.1)
        yield exchange


def bare(exchange: FlowerExchange, size: int, *, short: bool) -> float:
    """Seconds of a Flower round of fresh bytes."""
    ids, end = exchange._ids(), time.monotonic() + DEADLINE
    data = os.urandom(size)  # fresh, or Flower would upload nothing; the same for all nodes, as a study's request is
    messages = [exchange._message(node, 0, data, end) for node in ids.values()]
    start = time.perf_counter()
    if short:
        left, pause = {*exchange.grid.push_messages(messages)}, exchange.poll
        while left:
            left -= {reply.metadata.reply_to_message_id for reply in exchange.grid.pull_messages(left)}
            time.sleep(pause if left else 0.0)
    else:
        assert len([*exchange.grid.send_and_receive(messages, timeout=DEADLINE)]) == len(ids)
    return time.perf_counter() - start


def measured(nodes: int, parameters: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of the study's rounds, of bare ones and of bare ones with short waits, in turn; the first is left out."""
    features = max(1, parameters // HIDDEN - 3)  # of an MLP with one hidden layer and two outputs
    seconds: dict[str, list[float]] = {"study": [], "bare": [], "bare_short_waits": []}
    with tempfile.TemporaryDirectory() as place, deployment(Path(place), nodes, features) as exchange:
        folder = Path(place)
        file = folder / "study.toml"
        file.write_text(STUDY.format(hidden=HIDDEN, rounds=rounds + 1))

        def told(kept: ServerStudy) -> None:
            if len(kept.lines) > len(seconds["bare"]) and kept.done <= rounds + 1:
                size = arrays_size(kept.study.request)
                seconds["study"].append(kept.lines[-1].seconds)
                seconds["bare"].append(bare(exchange, size, short=False))
                seconds["bare_short_waits"].append(bare(exchange, size, short=True))

        Server(read_server_file(folder / "server.toml"), folder, exchange, watch=told).begin(file, "bench")
    return {name: each[1:] for name, each in seconds.items()}  # the first round compiles


def flower_round() -> Iterator[Row]:
    """A deployed round with 1 MB messages against a bare Flower round."""
    seconds = {name: statistics.median(each) for name, each in measured(3, 250_000, 7).items()}
    yield Row("deployed round, 3 nodes, 1 MB", seconds["study"], seconds["bare"], 1.5, "a bare Flower round")


BENCHES: list[Bench] = [flower_round]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--parameters", type=int, default=250_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    every = measured(options.nodes, options.parameters, options.rounds)
    seconds = {name: statistics.median(each) for name, each in every.items()}
    result = {
        **vars(options),
        "seconds": seconds,
        "ratio": seconds["study"] / seconds["bare"],
        "ratio_short_waits": seconds["study"] / seconds["bare_short_waits"],
        "every": every,
        "load_average": os.getloadavg()[0],
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
