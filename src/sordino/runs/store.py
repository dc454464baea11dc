"""The folder of a run, of a point of a sweep, and of a sweep: created, opened, locked, written and read here alone.

    runs/<name>/                config.toml certificate.json environment.json reading.json ledger.jsonl metrics.jsonl
                                model.safetensors checkpoint.npz records.sha256 seed.private digests.salt
    runs/<name>/points/00007/   the same for every point of a sweep, but for a fresh seed, which all points share

The ledger is written before a segment of rounds runs, since the segment releases all of its rounds. A run that was
killed and is resumed repeats rounds with the same keys, which releases the same messages again and nothing new; the
ledger already holds them. At the end the ledger gets the digests of all files, and `environment.json` is written once
more, with the seconds: it marks a finished run.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from sordino.errors import InvalidInput, require
from sordino.files import held, require_folder, write_atomically
from sordino.privacy.events import of_run
from sordino.privacy.guarantee import Certificate
from sordino.privacy.ledger import Ledger, read_ledger
from sordino.privacy.ledger_record import Release, joint_release
from sordino.runs.digests import digests_of, new_salt, plain_digest, require_first_files, salted_digest, write_salt
from sordino.runs.identity import fingerprint
from sordino.runs.metrics import as_lines, environment
from sordino.runs.model_file import Card
from sordino.runs.model_file import model_bytes as model_bytes
from sordino.runs.names import (
    CERTIFICATE,
    CHECKPOINT,
    CONFIG,
    ENVIRONMENT,
    LEDGER,
    METRICS,
    MODEL,
    POINTS,
    READING,
    RECORDS,
)
from sordino.runs.point import Point, Row
from sordino.runs.same_run import require_same_config, require_same_records
from sordino.runs.seeds import FreshSeed
from sordino.runs.stored import Json, StoredRun, read_json
from sordino.tasks import Predictor, Task


class RunStore:
    """The folder of one run, which this process alone writes to until it closes the store."""

    def __init__(self, folder: Path, ledger: Ledger, releases: tuple[Release, ...], entered: int, longest: int) -> None:
        self.folder = folder
        self._ledger, self._releases, self._entered, self._longest = ledger, releases, entered, longest

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the ledger, also after an error, so that the run can be resumed."""
        self._ledger.close()

    @classmethod
    def open(
        cls,
        point: Point,
        task: Task,
        *,
        identity: Callable[[], bytes],
        longest: int,
        transcript: bool = False,
        resume: bool | None = None,
    ) -> Self:
        """Create the folder of a point, or continue it.

        Args:
          point: resolved, with its folder.
          task: what it runs on.
          identity: all that decides how it ends, asked for if there can be a run; it goes on only with the same.
          longest: the most rounds between two evaluations.
          transcript: whether all messages are kept.
          resume: whether there must be a run already (True), must be none (False), or may be one (None).
        """
        folder = point.folder
        assert folder is not None
        require_folder("folder", folder)
        there = (folder / LEDGER).exists()
        require(not (folder / POINTS).exists(), "run", str(folder), "holds a sweep: choose another name")
        require(there or not resume, "resume", str(folder), "nothing has been run here: run without --resume")
        require(
            resume is not False or not there, "run", str(folder), "exists already: choose another name, or --resume"
        )
        if there:
            return cls._continue(folder, point, task, identity(), transcript)
        return cls._create(folder, point, task, identity(), longest, transcript)

    @classmethod
    def _create(cls, folder: Path, point: Point, task: Task, identity: bytes, longest: int, transcript: bool) -> Self:
        name = secrets.token_hex(8)
        releases = _releases(point, name)
        folder.mkdir(parents=True, exist_ok=True)
        salt, config = new_salt(), None if point.config is None else point.config.encode()
        reading = None if task.data.reading is None else _as_json(task.data.reading.to_json())
        certificate = _as_json(point.certificate.to_json())
        digests = {
            CERTIFICATE: plain_digest(certificate),
            CONFIG: None if config is None else salted_digest(config, salt),
        }
        if reading is not None:
            digests[READING] = salted_digest(reading, salt)

        def write_companions() -> None:
            write_salt(folder, salt)
            if config is not None:
                write_atomically(folder / CONFIG, config, private=True)
            if reading is not None:
                write_atomically(folder / READING, reading, private=True)
            write_atomically(folder / CERTIFICATE, certificate)
            given = point.seed if isinstance(point.seed, int) else None  # a fresh seed is named nowhere
            write_atomically(folder / ENVIRONMENT, _as_json(environment() | {"seed": given}), private=True)
            write_atomically(folder / RECORDS, identity.hex().encode(), private=True)
            if isinstance(point.seed, FreshSeed) and not point.seed.shared:
                point.seed.write(folder)

        ledger = Ledger.create(
            folder / LEDGER,
            unit=point.answer.certificate.guarantees[0].unit,
            relation=point.plan.relation,
            worst_release=joint_release(releases),
            longest=longest,
            description=_description(point, task, name, transcript) | {"files": digests},
            prepare=write_companions,  # a run that is refused must not change the files of another
        )
        return cls(folder, ledger, releases, 0, longest)

    @classmethod
    def _continue(cls, folder: Path, point: Point, task: Task, identity: bytes, transcript: bool) -> Self:
        require_same_config(folder, point.config)
        record = read_ledger(folder / LEDGER)
        name = str(record.description.get("run"))
        releases = _releases(point, name)
        planned = {(release, observers): event for release, observers, event in releases}
        entries = [entry for entry in record.entries if entry.rounds is not None]
        same = all(planned.get((entry.release, entry.observers)) == entry.event for entry in entries)
        remedy = "was started with another configuration or version: resume with the same, or choose another name"
        described = {key: value for key, value in record.description.items() if key != "files"}
        same = same and described == _description(point, task, name, transcript)
        require(same, "resume", str(folder), remedy)
        # Rounds that run again draw the same noise: on other records, two releases would show the difference.
        otherwise = "its version of JAX, processes, seed, records, loss, chunk or devices have changed since"
        require_same_records(folder, identity.hex(), "resume", otherwise)
        stated = Certificate.from_json(read_json(folder / CERTIFICATE))
        remedy = f"{CERTIFICATE} is not that of the plan: restore it, or choose another name"
        require(stated == point.certificate, "resume", str(folder), remedy)
        require_first_files(folder, record)
        entered = max((entry.rounds.stop for entry in entries if entry.rounds is not None), default=0)
        return cls(folder, Ledger.open(folder / LEDGER), releases, entered, record.longest)

    @staticmethod
    def read(folder: Path) -> StoredRun:
        """What a folder holds, whether its run is finished or not. Takes no lock and writes nothing."""
        return StoredRun.read(folder)

    def enter(self, stop: int) -> None:
        """Write the rounds before `stop` into the ledger, unless a killed run did already; only then may they run."""
        while self._entered < stop:
            upto = min(stop, self._entered + self._longest)
            self._ledger.append_all(range(self._entered, upto), self._releases)
            self._entered = upto

    def append_metrics(self, row: Row) -> None:
        """Add one line."""
        with (self.folder / METRICS).open("ab") as file:
            file.write(as_lines([row]))

    def restore_metrics(self, rows: list[Row]) -> None:
        """Keep these lines, of the rounds that are done; later ones belong to rounds that will run again."""
        write_atomically(self.folder / METRICS, as_lines(rows), private=True)

    def finish(self, trained: Predictor | None, seconds: float) -> None:
        """Save the model, unless it is None, end the ledger, and mark the run as finished.

        A run that was finished before ends as its ledger says; it is not entered twice.
        """
        ended = self._ledger.finish_entry
        model = None if trained is None else model_bytes(trained.params, Card.of(trained))
        if model is not None and ended is not None:
            known = ended.files.get(MODEL)
            remedy = f"its {MODEL} would not be the one that the ledger names: restore {CHECKPOINT} and run again"
            require(known in (None, plain_digest(model)), "resume", str(self.folder), remedy)
            model = None if known is None else model
        if model is not None:
            write_atomically(self.folder / MODEL, model)
        made = read_json(self.folder / ENVIRONMENT)
        seconds = round(seconds, 3) if ended is None else ended.description.get("seconds", seconds)
        marked = None if "seconds" in made else _as_json(made | {"seconds": seconds})
        if ended is None:
            # The mark comes last: without it the run is resumed, and the ledger's end stays as it is.
            digests = digests_of(self.folder, {ENVIRONMENT: marked} if marked else {}, make_salt=True)
            self._ledger.finish(digests, {"seconds": seconds})
        if marked is not None:
            write_atomically(self.folder / ENVIRONMENT, marked, private=True)


class SweepStore:
    """The folder of a sweep, which this process alone writes to until it closes the store."""

    def __init__(self, folder: Path, config: str, records: bytes, *, seeded: bool) -> None:
        """Make the folder, or take it up again if it holds the same sweep and no other process is at it.

        `seeded` says that the file names seeds. If it does not, all points share a fresh one (`seed`): the engine runs
        points of one seed together.
        """
        self.folder = folder
        self.seed: FreshSeed | None = None
        require_folder("folder", folder)
        require(not (folder / LEDGER).exists(), "run", str(folder), "holds a single run: choose another name")
        self._require_same(config, records)
        (folder / POINTS).mkdir(parents=True, exist_ok=True)
        self._lock = held(folder / ".lock", _in_use(folder))
        self._lock.__enter__()
        try:
            self._require_same(config, records)  # another process may have been first
            if not seeded:
                self.seed = self._fresh_seed()
            write_atomically(folder / RECORDS, records.hex().encode(), private=True)
            write_atomically(folder / CONFIG, config.encode(), private=True)  # last: it says that the sweep has begun
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__(None, None, None)

    def point(self, number: int) -> Path:
        """The folder of a point."""
        return self.folder / POINTS / f"{number:05d}"

    def finished(self, number: int) -> StoredRun | None:
        """A finished point, None if it has to be run."""
        folder = self.point(number)
        if not (folder / ENVIRONMENT).exists():
            return None
        stored = RunStore.read(folder)
        return stored if stored.finished else None

    def keep_models(self, numbers: Container[int]) -> None:
        """Delete the models of all other points."""
        for folder in point_folders(self.folder):
            if int(folder.name) not in numbers:
                (folder / MODEL).unlink(missing_ok=True)

    def _fresh_seed(self) -> FreshSeed:
        if (self.folder / CONFIG).exists():
            return FreshSeed.read(self.folder, "run", shared=True)
        seed = FreshSeed.draw(shared=True)
        seed.write(self.folder)
        return seed

    def _require_same(self, config: str, records: bytes) -> None:
        kept = self.folder / CONFIG
        if kept.exists():
            remedy = f"holds another sweep: run {kept} to complete that one, or choose another name"
            require(kept.read_text() == config, "run", str(self.folder), remedy)
            require_same_records(self.folder, records.hex(), "run", "its points were run on other records")


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Hold a lock beside a folder that may come and go."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with held(folder.with_name(f"{folder.name}.lock"), _in_use(folder)):
        yield


def point_folders(folder: Path) -> list[Path]:
    """The folders of a sweep's points in their order; none if the folder holds no sweep."""
    points = folder / POINTS
    return sorted(path for path in points.iterdir() if path.name.isdigit() and path.is_dir()) if points.is_dir() else []


def _in_use(folder: Path) -> InvalidInput:
    remedy = "another process is at this: wait until it ends, or choose another name or part"
    return InvalidInput("run", str(folder), remedy)


def _releases(point: Point, name: str) -> tuple[Release, ...]:
    """What each round releases, as events of a run of its own: another run goes through the records anew."""
    return tuple(
        (release, observers, of_run(event, f"run {name}")) for release, observers, event in point.answer.releases
    )


def _description(point: Point, task: Task, name: str, transcript: bool) -> Json:
    """What the ledger's header says of the run: all that `certify` needs, and what a resumed run must agree with.

    Others may see it: it holds neither the seed nor anything about the records, not even how many a client has.
    """
    certificate = point.certificate
    totals = certificate.totals
    return {
        "task": task.name,
        "delta": totals[0].delta,
        "units": totals[0].units,
        "rounds": point.plan.rounds,
        "run": name,
        "assumptions": {str(total.observer): list(total.assumptions) for total in totals},
        "warnings": [[warning.code, warning.message] for warning in certificate.warnings],
        "draws": certificate.draws,
        "seed": certificate.seed,  # where it comes from
        "assumed_by_all": list(certificate.assumptions),
        "fingerprint": fingerprint(point, task, transcript),
    }


def _as_json(values: Json) -> bytes:
    return json.dumps(values, indent=2).encode()
