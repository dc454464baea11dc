"""A round through Sordino's exchange against a bare Flower round of the same bytes, with the same processes.

    python -m bench.flower [--nodes 3] [--bytes 1000000] [--repetitions 7]

Loopback, TLS, node keys. The bare round is `Grid.send_and_receive`; the floor is one with its wait of 3 s between two
questions shortened to the exchange's.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.timing import interleaved
from sordino.deploy.flower.credentials import make_node_key, make_secret, make_tls
from sordino.deploy.flower.exchange import FlowerExchange
from sordino.deploy.flower.processes import free_port, register_node, start_superlink, start_supernode, wait_until_up
from sordino.deploy.flower.session import Link, session
from sordino.deploy.flower.worker import serve

DEADLINE = 120.0


def echo(request: bytes) -> bytes:
    return request


@contextmanager
def deployment(folder: Path, nodes: int) -> Iterator[FlowerExchange]:
    make_tls(folder, [])
    make_secret(folder / "secret")
    port, stop = free_port(), threading.Event()
    link = Link(f"127.0.0.1:{port}", folder / "ca.crt")
    with ExitStack() as stack:
        stack.enter_context(start_superlink(folder, folder, folder / "secret", "127.0.0.1", port))
        wait_until_up(link)
        for name in (f"node{i}" for i in range(nodes)):
            home, port = folder / name, free_port()
            home.mkdir()
            register_node(link, name, make_node_key(home / "key"))
            stack.enter_context(start_supernode(home, link, home / "key", folder / "secret", port, wait=0.1))
            work = (echo, f"127.0.0.1:{port}", folder / "secret", stop)
            threading.Thread(target=serve, args=work, daemon=True).start()
        stack.callback(stop.set)
        exchange = stack.enter_context(session(link, folder / "secret"))
        while len(exchange.nodes()) < nodes:
            time.sleep(0.1)
        yield exchange


def rounds(exchange: FlowerExchange, size: int, repetitions: int) -> list[float]:
    """Seconds of a round: ours, bare, and bare with short waits."""

    def requests() -> dict[str, bytes]:
        return dict.fromkeys(exchange.nodes(), os.urandom(size))  # fresh, or Flower would upload nothing

    def ours() -> float:
        todo, start = requests(), time.perf_counter()
        replies = exchange(0, todo, DEADLINE)
        assert replies == todo
        return time.perf_counter() - start

    def bare(short: bool = False) -> float:
        ids, end = exchange._ids(), time.monotonic() + DEADLINE
        messages = [exchange._message(ids[name], 0, data, end) for name, data in requests().items()]
        start = time.perf_counter()
        if short:
            left, pause = {*exchange.grid.push_messages(messages)}, exchange.poll
            while left:
                left -= {reply.metadata.reply_to_message_id for reply in exchange.grid.pull_messages(left)}
                time.sleep(pause if left else 0.0)
        else:
            assert len([*exchange.grid.send_and_receive(messages, timeout=DEADLINE)]) == len(ids)
        return time.perf_counter() - start

    return interleaved(ours, bare, lambda: bare(short=True), repetitions=repetitions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--bytes", type=int, default=1_000_000)
    parser.add_argument("--repetitions", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, deployment(Path(folder), options.nodes) as exchange:
        ours, bare, short = rounds(exchange, options.bytes, options.repetitions)
    result = {
        "nodes": options.nodes,
        "bytes": options.bytes,
        "seconds_exchange": ours,
        "seconds_bare": bare,
        "seconds_bare_short_waits": short,
        "ratio": ours / bare,
        "ratio_short_waits": ours / short,
        "load_average": os.getloadavg()[0],
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
