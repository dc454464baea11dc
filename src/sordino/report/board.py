"""A page over a folder of runs: a list, curves of what is running, several runs at once, links to reports.

Everything is read from files; nothing is written, and no request leaves the machine. The page asks for the list once,
and then hears of every run that changes (server-sent events).

    GET /                  the page
    GET /runs              the list
    GET /curves?run=...    the curves of some runs
    GET /changes           a stream of runs that have changed
    GET /report/NAME       a report
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from sordino.errors import SordinoError
from sordino.report.hosts import KnownHosts
from sordino.report.html import board_html, report_html
from sordino.report.listing import Listed, folder_named, listed_run, run_folders, stamp
from sordino.report.page import MOST_LINES, charts_of, page_of, why_private
from sordino.report.readers import readers
from sordino.report.subject import Shown, planned_rounds, read_subject, settings_of
from sordino.runs.store import RunStore

SECONDS = 0.5  # between two looks at the folder
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}


class Board:
    """What the page shows of a folder; `public` leaves out figures that no guarantee covers."""

    def __init__(self, folder: Path, *, public: bool = False) -> None:
        self._folder, self._public = folder, public
        self._known: dict[str, tuple[object, Listed]] = {}

    def listed(self) -> list[Listed]:
        """All runs; a folder is read again only if it has changed."""
        return [self._listed(folder) for folder in run_folders(self._folder)]

    def changed(self, since: dict[str, object]) -> tuple[dict[str, object], list[Listed]]:
        """The stamps of all runs, and those runs whose stamp is not the one in `since`."""
        folders = {folder.name: folder for folder in run_folders(self._folder)}
        stamps: dict[str, object] = {name: stamp(folder) for name, folder in folders.items()}
        return stamps, [self._listed(folders[name]) for name in stamps if since.get(name) != stamps[name]]

    def curves(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Charts of some runs."""
        runs = [run for name in names[:MOST_LINES] if (run := self._shown(name)) is not None]
        charts = charts_of(runs, why_private(runs))
        return [chart.to_json() for chart in charts if not (self._public and chart.private)]

    def report(self, name: str) -> str | None:
        """The HTML of a report; None if there is no such run."""
        folder = folder_named(self._folder, name)
        return None if folder is None else report_html(page_of(read_subject([folder], readers()), public=self._public))

    def _listed(self, folder: Path) -> Listed:
        now = stamp(folder)
        known = self._known.get(folder.name)
        if known is None or known[0] != now:
            known = now, listed_run(folder, public=self._public)
            self._known[folder.name] = known
        return known[1]

    def _shown(self, name: str) -> Shown | None:
        """A run as it is now, whether finished or not."""
        folder = folder_named(self._folder, name)
        try:
            stored = None if folder is None else RunStore.read(folder)
        except SordinoError:
            return None
        if stored is None or not all("round" in row for row in stored.metrics):  # damaged, as the list says
            return None
        planned = planned_rounds(stored.certificate)
        settings = settings_of(stored.config)
        return Shown(name, stored.certificate, stored.metrics, planned, stored.finished, settings=settings)


def board_app(folder: Path, *, hosts: Sequence[str] = (), public: bool = False) -> Starlette:
    """The board of a folder as a web application."""
    board = Board(folder, public=public)

    async def page(_: Request) -> Response:
        return HTMLResponse(board_html({"folder": str(folder), "public": public, "most": MOST_LINES}), headers=HEADERS)

    async def runs(_: Request) -> Response:
        listed = await run_in_threadpool(board.listed)
        return JSONResponse([each.to_json() for each in listed], headers=HEADERS)

    async def curves(request: Request) -> Response:
        names = request.query_params.getlist("run")
        return JSONResponse(await run_in_threadpool(board.curves, names), headers=HEADERS)

    async def changes(request: Request) -> Response:
        return StreamingResponse(_changes(board, request), media_type="text/event-stream", headers=HEADERS)

    async def report(request: Request) -> Response:
        try:
            text = await run_in_threadpool(board.report, request.path_params["name"])
        except SordinoError as error:
            return PlainTextResponse(str(error), status_code=409, headers=HEADERS)
        if text is None:
            return PlainTextResponse("there is no such run", status_code=404, headers=HEADERS)
        return HTMLResponse(text, headers=HEADERS)

    routes = [
        Route("/", page),
        Route("/runs", runs),
        Route("/curves", curves),
        Route("/changes", changes),
        Route("/report/{name}", report),
    ]
    return Starlette(routes=routes, middleware=[Middleware(KnownHosts, names=tuple(hosts))])


async def _changes(board: Board, request: Request) -> AsyncIterator[str]:
    """An event for every look at the folder in which some run has changed; a comment keeps the line open."""
    stamps, _ = await run_in_threadpool(board.changed, {})
    yield ": watching\n\n"
    quiet = 0
    while not await request.is_disconnected():
        await anyio.sleep(SECONDS)
        stamps, changed = await run_in_threadpool(board.changed, stamps)
        quiet = 0 if changed else quiet + 1
        if changed:
            yield f"data: {json.dumps([each.to_json() for each in changed])}\n\n"
        elif quiet % 30 == 0:
            yield ": still watching\n\n"
