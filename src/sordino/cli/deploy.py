"""`sordino deploy ...`: set a deployment up, run its parts, conduct studies, check what both sides say."""

from __future__ import annotations

import importlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sordino.cli.output import Json, Set
from sordino.cli.progress import working
from sordino.errors import InvalidInput, require

if TYPE_CHECKING:
    from sordino.cli.deploy_table import Screen
    from sordino.deploy.flower.session import Link
    from sordino.deploy.look import View
    from sordino.deploy.places import ServerPlace
    from sordino.deploy.server import Server
    from sordino.deploy.server_study import ServerStudy

app = typer.Typer(help="Train on real machines: a server, and nodes that decide for themselves.", no_args_is_help=True)

Place = Annotated[Path, typer.Argument(help="A deployment's folder, a server's folder, or its server.toml.")]
Study = Annotated[Path, typer.Argument(help="A study: an ordinary run file.")]
Name = Annotated[str | None, typer.Option(help="Name of the study; the file's name if left out.")]
JOINING = 15.0  # seconds for which `run` waits for nodes that are absent
STARTING = 120.0  # and `up`, which has just started them
LOOKS = 2.0  # seconds between two questions to the SuperLink


@app.command("init")
def init_command(
    folder: Annotated[Path, typer.Argument(help="The new folder.")],
    nodes: Annotated[int | None, typer.Option(help="Number of nodes, called node1, node2, ...")] = None,
    name: Annotated[list[str] | None, typer.Option(help="Name of a node. Repeat it for each node.")] = None,
    host: Annotated[str, typer.Option(help="Name or address by which nodes reach the server.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port of the server. In a trial its nodes use the next ones.")] = 9400,
    example: Annotated[bool, typer.Option("--example", help="Write records to try it with, too.")] = False,
) -> None:
    """Make the keys, the TLS certificates and the settings of a server and its nodes, each in a folder of its own."""
    from sordino.deploy.example import example as make_example
    from sordino.deploy.setup import Deployment, node_names

    names = node_names(nodes, name or ())
    wanted = Deployment(folder, names, host, port)
    wanted.check()
    with working("making keys"):
        Deployment(folder, names, host, port, make_example(len(names)) if example else None).make()
    print(f"{folder}: a server and {len(names)} nodes. {folder / 'README.md'} says which folder goes where.")
    if example:
        print(f"try it: sordino deploy up {folder} --run {folder / 'study.toml'}")
    else:
        print("next: put each node's records beside its node.toml, and read the rules in that file")


@app.command("server")
def server_command(place: Place = Path("server.toml")) -> None:
    """Run the server: let in the nodes of server.toml, carry messages, until Ctrl-C."""
    _require_flower()
    from sordino.cli.deploy_table import Screen
    from sordino.deploy import machine

    found = _server_place(place)
    with machine.on_signal() as stop, Screen() as screen, machine.serving(found) as link:
        screen.say(f"server {found.settings.name} is up: nodes reach it at port {found.settings.port}. Ctrl-C ends it")
        with screen.watching(_look(found, link), live=False):
            stop.wait()
        screen.say("the server ends")


@app.command("node")
def node_command(
    place: Annotated[Path, typer.Argument(help="A node's folder, or its node.toml.")] = Path("node.toml"),
) -> None:
    """Run one node, on the machine that holds its records: answer the server by node.toml's rules, until Ctrl-C."""
    _require_flower()
    from sordino.cli.deploy_table import Screen
    from sordino.deploy import machine
    from sordino.deploy.places import NodePlace

    with machine.on_signal() as stop, Screen():
        machine.work(NodePlace.of(place), stop)


@app.command("up")
def up_command(
    place: Place,
    run: Annotated[Path | None, typer.Option(help="Conduct this study, then stop everything.")] = None,
    name: Name = None,
    set: Set = None,
    json: Json = False,
) -> None:
    """Run a whole deployment on this machine, to try it: the server and every node, a process each, until Ctrl-C."""
    _require_flower()
    from sordino.cli.deploy_table import Screen
    from sordino.deploy import machine

    found = _server_place(place)
    if run is None:
        given = name or set or ["--json"] * json
        require(not given, "run", None, "--name, --set and --json are for a study: add --run STUDY.toml")
        with machine.on_signal() as stop, Screen() as screen, machine.trial(found) as link:
            screen.say(f"the server and {len(found.settings.nodes)} nodes are starting. Ctrl-C ends them")
            with screen.watching(_look(found, link)):
                stop.wait()
        return
    _check_study(found, run, name, set)
    with _resumable(found, _study_name(run, name)), machine.end_by_signal(), Screen() as screen, machine.trial(found):
        _conduct(found, screen, STARTING, _beginning(run, name, set))
    _report(found, _study_name(run, name), as_json=json)


@app.command("run")
def run_command(place: Place, study: Study, name: Name = None, set: Set = None, json: Json = False) -> None:
    """Conduct a study, on the server's machine, to its end. Ctrl-C keeps what is done: `resume` goes on."""
    _require_flower()
    from sordino.cli.deploy_table import Screen
    from sordino.deploy import machine

    found = _server_place(place)
    _check_study(found, study, name, set)
    with _resumable(found, _study_name(study, name)), machine.end_by_signal(), Screen() as screen:
        _conduct(found, screen, JOINING, _beginning(study, name, set))
    _report(found, _study_name(study, name), as_json=json)


@app.command("resume")
def resume_command(
    place: Place, name: Annotated[str, typer.Argument(help="The study's name.")], json: Json = False
) -> None:
    """Go on with a study that was stopped or interrupted; ask again for statements that are missing."""
    _require_flower()
    from sordino.cli.deploy_table import Screen
    from sordino.deploy import machine

    found = _server_place(place)
    found.study(name)
    with _resumable(found, name), machine.end_by_signal(), Screen() as screen:
        _conduct(found, screen, JOINING, lambda server: server.resume(name))
    _report(found, name, as_json=json)


@app.command("status")
def status_command(place: Place, json: Json = False) -> None:
    """Show where every study stands."""
    from sordino.cli.deploy_report import show_studies
    from sordino.deploy.status import read_status

    found = _server_place(place)
    studies = [status for folder in found.studies() if (status := read_status(folder)) is not None]
    show_studies(studies, found.state, as_json=json)


@app.command("stop")
def stop_command(
    place: Place, name: Annotated[str | None, typer.Argument(help="The study; all that run, if left out.")] = None
) -> None:
    """Stop studies. The round in progress is finished first, and `resume` goes on from there."""
    from sordino.deploy.server_study import STOP
    from sordino.deploy.status import RUNNING, read_status

    found = _server_place(place)
    folders = found.studies() if name is None else [found.study(name)]
    states = {folder: status.state for folder in folders if (status := read_status(folder)) is not None}
    running = [folder for folder, state in states.items() if state == RUNNING]
    if not running:
        named = next(iter(states.values()), "not begun") if name is not None else None
        none = "no study runs; Ctrl-C in its terminal ends `deploy up`, `deploy server` or `deploy node`"
        print(none if name is None else f"study {name} does not run: it is {named}")
    for folder in running:
        (folder / STOP).touch()
        print(f"study {folder.name} stops after the round in progress")


@app.command("certify")
def certify_command(
    place: Annotated[Path, typer.Argument(help="A deployment's, a server's or a node's folder, or its toml file.")],
    name: Annotated[str | None, typer.Argument(help="The study; the newest, if left out. Not for a node.")] = None,
    json: Json = False,
) -> None:
    """Compare what both sides signed of a study; on a node, show its own account and what is left of its budget.

    The exit code is 1 if a signature, a statement, a ledger or a certificate is missing or disagrees.
    """
    from sordino.cli.deploy_report import show_own_account
    from sordino.deploy.own_account import own_account
    from sordino.deploy.places import NodePlace

    node = NodePlace.found(place)
    if node is None:
        _report(_server_place(place), name, as_json=json)
        return
    require(name is None, "name", name, "a node's account is about all its studies: leave the name out")
    with working("accounting"):
        account = own_account(node)
    show_own_account(account, as_json=json)


# --- Studies ---------------------------------------------------------------------------------------------------------


def _check_study(found: ServerPlace, file: Path, name: str | None, set: list[str] | None) -> None:
    """Refuse what cannot begin, before anything is started."""
    from sordino.config import load_config
    from sordino.deploy.settings import require_node_name
    from sordino.deploy.study import protects_records

    protects_records(load_config(file, tuple(set or ())))
    chosen = _study_name(file, name)
    require_node_name("name", chosen)
    taken = chosen in [folder.name for folder in found.studies()]
    remedy = "there is a study of this name: choose another with --name, or go on with `sordino deploy resume`"
    require(not taken, "name", chosen, remedy)


def _study_name(file: Path, name: str | None) -> str:
    return file.stem if name is None else name


def _beginning(file: Path, name: str | None, set: list[str] | None) -> Callable[[Server], ServerStudy]:
    """Begin the study of a file with its changes."""
    from sordino.config import load_config

    def begin(server: Server) -> ServerStudy:
        with tempfile.TemporaryDirectory() as scratch:
            changed = Path(scratch) / file.name
            changed.write_text(load_config(file, tuple(set or ())).changed)
            return server.begin(changed, _study_name(file, name))

    return begin


def _conduct(found: ServerPlace, screen: Screen, patience: float, work: Callable[[Server], ServerStudy]) -> None:
    from sordino.deploy import machine

    with machine.server_of(found) as server, screen.watching(_look(found, machine.link_of(found))):
        absent = machine.ask_nodes(server.exchange, list(found.settings.nodes), patience)
        if absent:
            screen.say(f"not connected: {', '.join(absent)}")
        work(server)


@contextmanager
def _resumable(found: ServerPlace, name: str) -> Iterator[None]:
    """Say how a study goes on that ends before its last round."""
    from sordino.cli import stopped
    from sordino.deploy.conduct import Stopped, TooFewReplies

    resume = f"sordino deploy resume {found.folder} {name}"
    try:
        yield
    except Stopped:
        print(f"study {name} is stopped; go on with: {resume}", file=sys.stderr)
        raise typer.Exit(1) from None
    except TooFewReplies as error:
        print(f"error: {error}" + f"\ngo on with: {resume}" * error.resumable, file=sys.stderr)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        begun = name in [folder.name for folder in found.studies()]
        stopped(f"what is done is kept, go on with: {resume}" if begun else "the study has not begun")


def _report(found: ServerPlace, name: str | None, *, as_json: bool) -> None:
    """Both sides of a study, from the files of the server and of the nodes that are on this machine."""
    from sordino.cli.deploy_report import show_both_sides
    from sordino.deploy.both_sides import compare
    from sordino.deploy.places import NodePlace

    folder = found.study(name)
    states = {node: NodePlace(path).state for node, path in found.nodes_here.items()}
    with working("comparing"):
        both = compare(folder, found.public_key, states)
    show_both_sides(both, as_json=as_json)


# --- Places and lines ------------------------------------------------------------------------------------------------


def _server_place(given: Path) -> ServerPlace:
    from sordino.deploy.places import ServerPlace

    found = ServerPlace.of(given)
    _ = found.settings  # read, and so checked, now
    return found


def _look(found: ServerPlace, link: Link) -> Callable[[], View]:
    """Looks at all nodes and studies, and asks the SuperLink now and then which nodes are connected."""
    from sordino.deploy import machine
    from sordino.deploy.look import view_of

    asked = -LOOKS
    known: frozenset[str] | None = None

    def look() -> View:
        nonlocal asked, known
        if time.monotonic() > asked + LOOKS:
            asked, known = time.monotonic(), machine.now_connected(link)
        return view_of(found.settings.nodes, known, found.studies())

    return look


def _require_flower() -> None:
    try:
        importlib.import_module("flwr")
    except ImportError:
        remedy = "is not installed: pip install 'sordino[deploy]'"
        raise InvalidInput("extra", "deploy", remedy) from None
