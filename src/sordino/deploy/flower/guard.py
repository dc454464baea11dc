"""A guard in front of the SuperLink: strangers reach the paths of nodes and the health check; bodies are bounded.

Control, Runtime and Fleet API share one port, and the open-source SuperLink asks callers of Control for no credential:
who reaches it may register nodes, submit code and stop runs.
"""

from __future__ import annotations

import os

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["LIMIT_VARIABLE", "Guard"]

TRUSTED = "127.0.0.1"  # the server's own machine
LIMIT_VARIABLE = "SORDINO_MAX_BODY"
DEFAULT_LIMIT = 64 << 20  # bytes of one request; Flower sends arrays in pieces of 5 MB, so this does not bound a model


class Guard:
    """The outermost ASGI layer. Node keys are checked behind it."""

    def __init__(self, app: ASGIApp, limit: int | None = None) -> None:
        self.app = app
        self.limit = int(os.environ.get(LIMIT_VARIABLE, DEFAULT_LIMIT)) if limit is None else limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it with 403 (not for strangers), 400 or 413 (too large)."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        trusted = (scope.get("client") or ("", 0))[0] == TRUSTED
        if scope["type"] != "http":
            return await self.app(scope, receive, send) if trusted else await _close(send)
        if not trusted and not _for_strangers(scope["path"]):
            return await PlainTextResponse("forbidden", 403)(scope, receive, send)
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit():
            return await PlainTextResponse("malformed", 400)(scope, receive, send)
        if int(length) > self.limit:
            return await PlainTextResponse("too large", 413)(scope, receive, send)
        seen = 0

        async def counted() -> Message:
            """The next piece of a body; a body without a declared length ends the connection where it is too large."""
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            return {"type": "http.disconnect"} if seen > self.limit else message

        await self.app(scope, counted, send)


def _for_strangers(path: str) -> bool:
    parts = path.split("/")
    return path == "/health" or (path.startswith("/v1/fleet/") and ".." not in parts and "." not in parts)


async def _close(send: Send) -> None:
    await send({"type": "websocket.close", "code": 1008})
