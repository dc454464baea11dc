"""Which names a local server may be called by.

A page of another site can make its own name lead to 127.0.0.1 (DNS rebinding) and would then read the answers. Its
requests still carry that name. Answer only to addresses, to localhost and to names that were given.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class KnownHosts:
    """Answers 421 to requests for another name."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app, self._names = app, {"localhost", *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._known(scope):
            await PlainTextResponse("unknown host", status_code=421)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _known(self, scope: Scope) -> bool:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        return len(hosts) == 1 and (name_of(hosts[0]) in self._names or is_address(name_of(hosts[0])))


def name_of(host: str) -> str:
    """A Host header without its port: "[::1]:80" is "::1"."""
    if host.startswith("["):
        address, _, port = host[1:].partition("]")
        return address if re.fullmatch(r"(:\d*)?", port, re.ASCII) else host  # "[::1].example.org" is no address
    return host.rpartition(":")[0].lower() if host.count(":") == 1 else host.lower()


def is_address(name: str) -> bool:
    """Whether it is an address, which no name server can lead elsewhere."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(name: str) -> bool:
    """Whether a server at this host is reached from its own machine alone."""
    return name == "localhost" or (is_address(name) and ipaddress.ip_address(name).is_loopback)
