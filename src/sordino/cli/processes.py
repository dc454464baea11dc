"""`sordino run` in several processes: those of one machine are started here, and each is watched until it ends.

JAX ends a process whose fellows are gone with words of its own and a signal. So the command that a person gives trains
nothing itself, also where it stands for one process of several machines: it starts a member, and says in one line what
became of it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from sordino.cli.member import LOST, LOST_BY, MEMBER, note
from sordino.cores import share_of_cores
from sordino.errors import InvalidInput, one_line, require

if TYPE_CHECKING:
    from sordino.runs.processes import Group

Processes = Annotated[int | None, typer.Option(help="Train in so many processes on this machine.")]
Coordinator = Annotated[
    str | None, typer.Option(help="HOST:PORT of process 0, where a run has processes on several machines.")
]
ProcessId = Annotated[int | None, typer.Option(help="Which of the processes this is: 0, 1, ...; with --coordinator.")]
NumProcesses = Annotated[int | None, typer.Option(help="How many processes there are; with --coordinator.")]

MOST = 1024  # processes
POLL = 0.05  # seconds between two looks
GRACE = 1.0  # seconds for the process that is the cause to end, too
CHECKPOINT = 10.0  # seconds for process 0 to keep its checkpoint after Ctrl-C, between two evaluations


@dataclass(frozen=True)
class Together:
    """The processes of a run: all of them on this machine, or one of several machines."""

    count: int
    coordinator: str | None = None  # None: on this machine
    index: int | None = None  # None: all of them

    @property
    def has_folder(self) -> bool:
        """Whether process 0, which writes the run's folder, is on this machine."""
        return self.index in (None, 0)

    @property
    def is_member(self) -> bool:
        """Whether this process is one of them, and not the one that watches."""
        return MEMBER in os.environ

    def join(self) -> Group:
        """Meet the others."""
        from sordino.runs.processes import PATIENCE, Group

        assert self.coordinator is not None
        assert self.index is not None
        note(f"they did not meet at {self.coordinator} within {PATIENCE} seconds")  # JAX ends the process then
        group = Group.join(self.coordinator, self.index, self.count)
        note("")
        return group


def wanted(
    processes: int | None, coordinator: str | None, process_id: int | None, num_processes: int | None
) -> Together | None:
    """What the options ask for; None: one process."""
    if processes is not None:
        remedy = "is for several machines, and --processes for one: give either"
        for name, value in (
            ("coordinator", coordinator),
            ("process-id", process_id),
            ("num-processes", num_processes),
        ):
            require(value is None, name, value, remedy)
        require(1 <= processes <= MOST, "processes", processes, f"must be at least 1, and at most {MOST}")
        return None if processes == 1 else Together(processes)
    if coordinator is None:
        remedy = "belongs to --coordinator HOST:PORT: give both, or --processes N for one machine"
        require(process_id is None, "process-id", process_id, remedy)
        require(num_processes is None, "num-processes", num_processes, remedy)
        return None
    host, _, port = coordinator.rpartition(":")
    named = bool(host) and port.isdecimal() and 0 < int(port) < 2**16
    require(named, "coordinator", coordinator, "must be HOST:PORT of process 0, as 10.0.0.1:7000")
    if num_processes is None or process_id is None:
        field = "num-processes" if num_processes is None else "process-id"
        raise InvalidInput(field, None, "is missing: with --coordinator give --process-id I and --num-processes N")
    require(2 <= num_processes <= MOST, "num-processes", num_processes, f"must be at least 2, and at most {MOST}")
    remedy = f"must be one of 0 to {num_processes - 1}: each process has a number of its own"
    require(0 <= process_id < num_processes, "process-id", process_id, remedy)
    return Together(num_processes, coordinator, process_id)


def require_one_run(sweep: bool, file: Path, track: str | None) -> None:
    """Refuse what several processes do not do."""
    require(not sweep, "file", str(file), "is a sweep, which runs in one process: leave out --processes, --coordinator")
    require(track is None, "track", track, "works in one process: leave it out, or --processes and --coordinator")


def run_arguments(
    file: Path, changes: Sequence[str] | None, folder: Path, resume: bool, sign: Path | None, *, as_json: bool
) -> list[str]:
    """The command of a member, which does what this command was asked to do."""
    changed = [part for change in changes or () for part in ("--set", change)]
    given = ["run", str(file), *changed, "--runs", str(folder.parent), "--name", folder.name]
    signed = [] if sign is None else ["--sign", str(sign)]
    return [*given, *signed, *["--resume"] * resume, *["--json"] * as_json]


class Member:
    """A process of the run, with what it says."""

    def __init__(self, index: int, together: Together, coordinator: str, arguments: list[str], logs: Path) -> None:
        self.index = index
        self._said, library = logs / f"said-{index}", logs / f"library-{index}"
        self._shown = index == 0 or together.coordinator is not None  # its words are those of the command
        whose = ["--coordinator", coordinator, "--process-id", str(index), "--num-processes", str(together.count)]
        cores = share_of_cores(together.count) if together.coordinator is None else {}
        with ExitStack() as opened:
            said = None if self._shown else opened.enter_context(self._said.open("wb"))
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from sordino.cli.member import main; main()", *arguments, *whose],
                stdin=subprocess.PIPE,  # it ends when this does
                stdout=said,
                stderr=said,
                env=os.environ | cores | {MEMBER: str(library)},
                start_new_session=True,  # Ctrl-C is passed on to process 0 alone
            )
        self._library = library

    @property
    def code(self) -> int | None:
        """How it has ended; None: it runs."""
        return self.process.poll()

    @property
    def is_lost(self) -> bool:
        """Whether it ended because another one did."""
        return self.code in (LOST, -signal.SIGABRT)

    @property
    def has_said_why(self) -> bool:
        """Whether its own words are on the screen."""
        return self._shown and self.code is not None and self.code > 0 and self.code != LOST

    def why(self) -> str:
        """Its last word, if it is a message of ours."""
        return _last(self._said, "error: ")

    def loss(self) -> str:
        """What its library said of the others, in a few words."""
        return _last(self._library, LOST_BY)

    def kill(self) -> None:
        """End it at once."""
        if self.code is None:
            self.process.kill()
        self.process.wait()


def supervise(together: Together, arguments: list[str], folder: Path) -> NoReturn:
    """Start the members that belong here, wait for them, and end as they did."""
    coordinator = together.coordinator or f"127.0.0.1:{_free_port()}"
    indices = range(together.count) if together.index is None else [together.index]
    with ExitStack() as held:
        logs = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="sordino-")))
        members: list[Member] = []
        for index in indices:
            members.append(Member(index, together, coordinator, arguments, logs))
            held.callback(members[-1].kill)
        try:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
            code = _ended(members, together, folder)
        except KeyboardInterrupt:
            code = _interrupted(members[0])
    sys.exit(code)


def _ended(members: list[Member], together: Together, folder: Path) -> int:
    """Wait until all have ended well, or one has not; say what went wrong where that was not said."""
    while all(member.code in (None, 0) for member in members):
        if all(member.code == 0 for member in members):
            return 0
        time.sleep(POLL)
    until = time.monotonic() + GRACE
    while time.monotonic() < until and not any(member.code and not member.is_lost for member in members):
        time.sleep(POLL)
    bad = [member for member in members if member.code]
    cause = min(bad, key=lambda member: (member.is_lost, member.index))
    code = cause.code
    assert code is not None
    if cause.has_said_why:
        return code
    why = cause.why()
    if code == 2 and why:
        print(f"error: process {cause.index} of {together.count}: {why}", file=sys.stderr)
        return 2
    print(f"error: {_what_became(cause, together, code, why)}; {_how_on(folder, together)}", file=sys.stderr)
    return 1


def _what_became(member: Member, together: Together, code: int, why: str) -> str:
    who = f"process {member.index} of {together.count}"
    if member.is_lost:
        detail = member.loss()
        return f"{who} lost the others, of which one has ended or cannot be reached{f' ({detail})' if detail else ''}"
    if code < 0:
        return f"{who} was ended by {signal.Signals(-code).name}"
    return f"{who} ended with exit status {code}{f' ({why})' if why else ''}"


def _how_on(folder: Path, together: Together) -> str:
    from sordino.runs.names import LEDGER

    if not together.has_folder:
        return "start every process again, with --resume if the run had begun"
    begun = (folder / LEDGER).exists()
    return "the run goes on with --resume and as many processes" if begun else "the run had not begun: start it again"


def _interrupted(leader: Member) -> int:
    """Let the first process keep its checkpoint; a second Ctrl-C does not wait."""
    from sordino.cli import STOPPED

    try:
        if leader.code is None:
            leader.process.send_signal(signal.SIGINT)
            leader.process.wait(CHECKPOINT)
    except (KeyboardInterrupt, subprocess.TimeoutExpired):
        print("stopped: a run goes on with --resume", file=sys.stderr)
    return STOPPED


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _last(file: Path, mark: str) -> str:
    """What follows a mark in the last line that begins with it."""
    lines = file.read_text(errors="replace").splitlines() if file.exists() else []
    found = [line.removeprefix(mark) for line in lines if line.startswith(mark)]
    return one_line(found[-1]) if found else ""
