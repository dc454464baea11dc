"""Flower 1.41 as the transport: TLS, node keys, a guarded SuperLink, and nodes that run installed code alone.

    server   superlink (a process), `session` (in the server's process): start a run, take its task, exchange
    node     supernode (a process), `worker.serve` (in the node's own process): take each message, answer with `handle`

Flower's executor is started nowhere, so that no code of an app bundle runs on the server or on a node.
The modules use internals of flwr: pyproject.toml pins it, and tests/deploy/test_flower.py is the test of an upgrade.
"""
