"""`sordino board [FOLDER]` and `sordino runs [FOLDER]`: what a folder of runs holds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sordino.cli.output import Json, print_json, print_rows
from sordino.cli.progress import working
from sordino.errors import InvalidInput, require

Folder = Annotated[Path, typer.Argument(help="The folder of all runs.")]
Public = Annotated[bool, typer.Option("--public", help="Leave out figures that no guarantee covers.")]


def runs_command(folder: Folder = Path("runs"), public: Public = False, json: Json = False) -> None:
    """List the runs of a folder: task, method, rounds, epsilon and against whom, and what was measured last."""
    from sordino.report.listing import holds_something, list_runs, listed_run

    with working("reading"):
        listed = list_runs(folder, public=public)
    if json:
        print_json({"folder": str(folder), "runs": [each.to_json() for each in listed]})
        return
    if not listed:
        itself = f"{folder} is a {listed_run(folder).kind} itself: sordino report {folder}"
        none = f"{folder} holds no runs: sordino run FILE.toml --runs {folder}"
        print(itself if holds_something(folder) else none)
        return
    rows = [
        {
            "run": each.name if each.kind == "run" else f"{each.name} ({each.kind})",
            "task": each.task,
            "method": each.method,
            "done": f"{each.done}/{each.planned or '?'}" + (" ..." if each.going else ""),
            "epsilon": f"{each.epsilon} *" if each.caution else each.epsilon,
            "against": each.against,
            "measured": each.value or each.note or "-",
        }
        for each in listed
    ]
    print_rows(rows, title=f"Runs in {folder}", boxed=False)
    for caution in dict.fromkeys(each.caution for each in listed if each.caution):
        some = [each.name for each in listed if each.caution == caution]
        named = ", ".join(some[:3]) + (f" and {len(some) - 3} more" if len(some) > 3 else "")
        print(f"* {named}: {caution}. Do not publish the model as private.")
    if any(each.going for each in listed):
        print("... not finished. Rounds of a run, points of a sweep, runs of a comparison.")
        print("Epsilon is that of all planned rounds.")


def board_command(
    folder: Folder = Path("runs"),
    host: Annotated[
        str, typer.Option(help="Address or name to listen at; others than loopback are reached from the network.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 takes a free one.")] = 8765,
    public: Public = False,
) -> None:
    """Show the runs of a folder in a browser: a list, live curves, several runs at once, and reports. Read only."""
    import socket

    import uvicorn

    from sordino.report.board import board_app
    from sordino.report.hosts import is_address, is_loopback

    require(folder.is_dir(), "folder", str(folder), "is not a folder: give the folder of all runs")
    require(0 <= port < 2**16, "port", port, "must lie between 0 and 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        if isinstance(error, socket.gaierror):
            remedy = f"is not known here ({error.strerror}): give an address or a name of this machine"
            raise InvalidInput("host", host, remedy) from None
        raise InvalidInput("port", port, f"cannot listen at {host} ({error.strerror}): choose another") from None
    if not is_loopback(host) and not public:
        said = "metrics computed on the clients' records are shown to whoever reaches this address: --public hides them"
        print(f"warning: {said}", file=sys.stderr)
    names = [] if is_address(host) else [host]
    names += [] if is_loopback(host) else [socket.gethostname()]
    shown = f"[{host}]" if ":" in host else host
    print(f"http://{shown}:{listener.getsockname()[1]}/", flush=True)
    app = board_app(folder, hosts=names, public=public)
    uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)).run([listener])
