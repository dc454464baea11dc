"""What happens in a deployment, as it happens: a live table on a terminal, else one line for each event."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from sordino.deploy.look import View, changes, measured
from sordino.deploy.status import RUNNING

PAUSE = 1.0  # seconds between two looks
CONNECTED = {True: "[green]connected[/]", False: "[red]absent[/]", None: "?"}


class Screen:
    """The stderr of a command that runs for long. Within its block it shows the log too, as lines with their time."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        self._handler = _Printing(self)

    def __enter__(self) -> Screen:
        logging.getLogger().addHandler(self._handler)
        logging.getLogger("sordino").setLevel(logging.INFO)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self._handler)
        logging.getLogger("sordino").setLevel(logging.NOTSET)

    def say(self, line: str) -> None:
        """One line; above the live table, where there is one."""
        self.console.print(f"{time.strftime('%H:%M:%S')} {line}", markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def watching(self, look: Callable[[], View], *, live: bool = True) -> Iterator[None]:
        """Show what `look` finds until the block ends."""
        if live and self.console.is_terminal:
            with (
                Live(tables(look()), console=self.console, auto_refresh=False) as shown,
                _repeating(lambda: shown.update(tables(look()), refresh=True)),
            ):
                yield
        else:
            with _repeating(_Events(look, self.say).tell):
                yield


class _Events:
    """Says what has changed since the last look."""

    def __init__(self, look: Callable[[], View], say: Callable[[str], None]) -> None:
        self.look, self.say = look, say
        self.before = View({}, look().studies)  # what ended long ago is no event

    def tell(self) -> None:
        """Look, and say what is new."""
        after = self.look()
        for line in changes(self.before, after):
            self.say(line)
        self.before = after


class _Printing(logging.Handler):
    """Prints records through a screen, so that they do not tear a live table."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self.screen = screen
        self.addFilter(logging.Filter("sordino"))

    def emit(self, record: logging.LogRecord) -> None:
        """One line, with a traceback below it if there is one."""
        self.screen.say(self.format(record))


@contextmanager
def _repeating(work: Callable[[], None]) -> Iterator[None]:
    """Do the work again and again in a thread, and once more at the end."""
    ended = threading.Event()

    def again() -> None:
        while not ended.wait(PAUSE):
            work()

    thread = threading.Thread(target=again, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        work()


def tables(view: View) -> RenderableType:
    """Nodes and studies."""
    nodes = Table(title="Nodes", title_justify="left")
    for name in ("node", "now", "rounds used", "latest message"):
        nodes.add_column(name, justify="right" if name == "rounds used" else "left")
    for name, node in view.nodes.items():
        nodes.add_row(escape(name), CONNECTED[node.connected], str(node.rounds), escape(node.latest or "-"))
    if not view.studies:
        return Group(nodes, "No study yet.")
    studies = Table(title="Studies", title_justify="left")
    for name in ("study", "state", "round", "messages", "on the server's records"):
        studies.add_column(name, justify="right" if name == "round" else "left")
    for study in view.studies:
        state = f"[bold]{study.state}[/]" if study.state == RUNNING else study.state
        messages = f"{study.used} of {len(study.members)}" if study.round else "-"
        done = f"{study.round} of {study.rounds}"
        studies.add_row(escape(study.name), state, done, messages, measured(study) or "-")
    return Group(nodes, studies)
