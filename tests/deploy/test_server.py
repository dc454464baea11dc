"""A server that is killed, whose disk is full, or whose files are damaged: it goes on, or says what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest

from sordino.deploy.conduct import TooFewReplies
from sordino.deploy.seam import Reason, Reply
from sordino.deploy.server_study import CHECKPOINT, JOURNAL, ServerStudy
from sordino.deploy.status import STATUS
from sordino.errors import InvalidInput, SordinoError
from tests.deploy.clinic import CENTRAL, CLIENTS, LOCAL, NAMES, Clinics, LocalExchange
from tests.deploy.ended import lines_of, model_of, told_by_node
from tests.deploy.faults import RoundWords, Steps
from tests.toys import Killed

pytestmark = pytest.mark.usefixtures("shared_programs", "no_power_cuts")


# --- Kills and full disks --------------------------------------------------------------------------------------------


@dataclass
class Machine(LocalExchange):
    """The exchange of a server whose durable steps are counted; words begin anew in every round, on every machine."""

    steps: Steps | None = None
    words: RoundWords | None = None

    def _ask(self, round: int, name: str, request: bytes) -> Reply:
        assert self.words is not None
        self.words.begin(1, round, NAMES.index(name))
        if self.steps is None:
            return super()._ask(round, name, request)
        with self.steps.elsewhere():
            return super()._ask(round, name, request)

    def __call__(self, round: int, requests: Mapping[str, bytes], deadline: float) -> Mapping[str, Reply]:
        replies = super().__call__(round, requests, deadline)
        assert self.words is not None
        self.words.begin(0, round)
        return replies


TEXTS = {"local": LOCAL, "central": CENTRAL}


def repeatable(folder: Path) -> tuple[Clinics, RoundWords]:
    clinics, words = Clinics(folder, **CLIENTS), RoundWords()
    clinics.exchange = Machine(words=words)
    clinics.open_all(words=words)
    return clinics, words


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The models of studies that nobody killed."""
    models = {}
    for name, text in TEXTS.items():
        clinics, words = repeatable(tmp_path_factory.mktemp(name) / "all")
        models[name] = model_of(clinics.run(text, words=words).folder)
        clinics.close()
    assert models["local"] != models["central"]
    return models


def begun_or_resumed(clinics: Clinics, text: str, words: RoundWords) -> ServerStudy:
    """What a person does after a crash."""
    server = clinics.server(words=words)
    if (server.study_folder("trial") / "description.json").exists():
        return server.resume("trial")
    return server.begin(clinics.write_study(text), "trial")


def interrupted(
    folder: Path, text: str, step: int, monkeypatch: pytest.MonkeyPatch, *, done: bool, error: BaseException
) -> tuple[Clinics, RoundWords, bool]:
    clinics, words = repeatable(folder)
    with monkeypatch.context() as patch:
        exchange = clinics.exchange
        assert isinstance(exchange, Machine)
        exchange.steps = Steps(patch, step, done=done, error=error)
        try:
            begun_or_resumed(clinics, text, words)
            stopped = False
        except type(error):
            stopped = True
        exchange.steps = None
    return clinics, words, stopped


def require_same(clinics: Clinics, kept: ServerStudy, model: dict[str, Any]) -> None:
    assert model_of(kept.folder) == model
    assert [line["round"] for line in lines_of(kept.folder)] == [1, 2, 3]
    for name in NAMES:
        assert told_by_node(clinics, kept, name)["rounds"] == [[1, 3]]
        assert told_by_node(clinics, kept, name)["disagreements"] == []


@pytest.mark.parametrize("name", ["local", "central"])
@pytest.mark.parametrize("step", [2, 8, 11, 14, 17, 22, 26, 31])
def test_a_server_killed_at_a_durable_step_goes_on(
    step: int, name: str, undisturbed: dict[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clinics, words, _ = interrupted(tmp_path / "a", TEXTS[name], step, monkeypatch, done=step % 2 == 0, error=Killed())
    require_same(clinics, begun_or_resumed(clinics, TEXTS[name], words), undisturbed[name])
    clinics.close()


@pytest.mark.slow
@pytest.mark.parametrize("error", [Killed(), OSError(ENOSPC, "No space left on device")], ids=["kill", "full disk"])
def test_a_server_stopped_at_any_durable_step_goes_on(
    error: BaseException, undisturbed: dict[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, stopped = 1, True
    while stopped:
        folder = tmp_path / str(step)
        clinics, words, stopped = interrupted(folder, CENTRAL, step, monkeypatch, done=False, error=error)
        require_same(clinics, begun_or_resumed(clinics, CENTRAL, words), undisturbed["central"])
        clinics.close()
        step += 1
    assert step > 30


@pytest.mark.parametrize("step", [9, 13, 20])
def test_a_server_whose_disk_is_full_says_so_and_goes_on_later(
    step: int, undisturbed: dict[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = OSError(ENOSPC, "No space left on device")
    clinics, words, stopped = interrupted(tmp_path / "a", LOCAL, step, monkeypatch, done=False, error=full)
    assert stopped
    require_same(clinics, begun_or_resumed(clinics, LOCAL, words), undisturbed["local"])
    clinics.close()


def test_a_server_killed_while_it_waits_asks_again(undisturbed: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    """Killed with the replies of round 2 in hand, some of them: the nodes send the same messages again."""
    clinics, words = repeatable(tmp_path / "a")
    west = clinics.nodes["west"].handle

    def killed(round: int, data: bytes) -> Reply:
        if round == 2:
            raise Killed
        return west(data)

    clinics.exchange.broken["west"] = killed
    with pytest.raises(Killed):
        begun_or_resumed(clinics, LOCAL, words)
    folder = clinics.server().study_folder("trial")
    assert json.loads((folder / STATUS).read_bytes())["state"] == "interrupted"
    clinics.exchange.broken.clear()
    kept = begun_or_resumed(clinics, LOCAL, words)
    require_same(clinics, kept, undisturbed["local"])
    assert begun_or_resumed(clinics, LOCAL, words).done == 3  # and once more changes nothing
    require_same(clinics, kept, undisturbed["local"])
    clinics.close()


def test_a_message_that_a_killed_server_received_counts(tmp_path: Path) -> None:
    """Its node is gone when the study goes on: the server cannot know whether it had answered, and counts the round."""
    clinics, words = repeatable(tmp_path / "a")
    west = clinics.nodes["west"].handle

    def killed(round: int, data: bytes) -> Reply:
        if round == 2:
            raise Killed  # east has answered by now
        return west(data)

    clinics.exchange.broken["west"] = killed
    with pytest.raises(Killed):
        begun_or_resumed(clinics, LOCAL, words)
    clinics.exchange.broken = {"east": lambda round, data: Reason.LOST}
    kept = begun_or_resumed(clinics, LOCAL, words)
    assert {name: each.unused for name, each in kept.used().items()} == {"east": (2,), "north": (), "west": ()}
    clinics.close()


def stopped_after_two(folder: Path) -> tuple[Clinics, RoundWords, Path]:
    """A study of which two rounds are done, and of the third nobody's reply came."""
    clinics, words = repeatable(folder)
    clinics.exchange.broken = {
        name: lambda round, data, handle=node.handle: Reason.LOST if round == 3 else handle(data)  # type: ignore[misc]
        for name, node in clinics.nodes.items()
    }
    with pytest.raises(TooFewReplies, match="round 3"):
        begun_or_resumed(clinics, LOCAL, words)
    clinics.exchange.broken.clear()
    return clinics, words, clinics.server().study_folder("trial")


def test_a_torn_line_of_the_journal_is_a_round_that_is_asked_again(
    undisturbed: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    clinics, words, folder = stopped_after_two(tmp_path / "a")
    with (folder / JOURNAL).open("ab") as file:
        file.write(b'{"measured":{},"missing":{},"round":3,"seco')
    require_same(clinics, begun_or_resumed(clinics, LOCAL, words), undisturbed["local"])
    clinics.close()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a lost line": lambda folder: (folder / JOURNAL).write_bytes((folder / JOURNAL).read_bytes().split(b"\n", 1)[1]),
    "no journal": lambda folder: (folder / JOURNAL).unlink(),
    "no checkpoint": lambda folder: (folder / CHECKPOINT).unlink(),
    "half a checkpoint": lambda folder: (folder / CHECKPOINT).write_bytes((folder / CHECKPOINT).read_bytes()[:200]),
    "another description": lambda folder: (folder / "description.json").write_text("{}"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damage_that_no_crash_makes_is_refused(damage: Callable[[Path], object], tmp_path: Path) -> None:
    clinics, words, folder = stopped_after_two(tmp_path / "a")
    damage(folder)
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.suffix != ".lock"}
    with pytest.raises(SordinoError, match=r"restore|written canonically|is not what"):
        begun_or_resumed(clinics, LOCAL, words)
    assert {path: path.read_bytes() for path in before} == before  # nothing is repaired away
    clinics.close()


def test_one_server_at_a_time_drives_a_study(tmp_path: Path) -> None:
    clinics, words, folder = stopped_after_two(tmp_path / "a")
    with ServerStudy.open(folder):
        with pytest.raises(InvalidInput, match="another process drives it"):
            clinics.server().resume("trial")
        with pytest.raises(InvalidInput, match="trial"):
            clinics.run(LOCAL)
    with pytest.raises(InvalidInput, match="there is a study of this name"):
        clinics.run(LOCAL)
    with pytest.raises(InvalidInput, match="there is none of this name"):
        clinics.server().resume("other")
    assert begun_or_resumed(clinics, LOCAL, words).done == 3
    clinics.close()


def test_a_run_file_that_cannot_be_deployed_leaves_its_name_free(tmp_path: Path) -> None:
    clinics = Clinics(tmp_path, **CLIENTS)
    clinics.open_all()
    with pytest.raises(SordinoError, match="cohort"):
        clinics.run(LOCAL.replace("rounds = 3", 'rounds = 3\ncohort = "poisson:0.5"'))
    assert clinics.run(LOCAL).done == 3
    clinics.close()


def test_a_plan_beyond_the_budgets_is_for_a_new_study(tmp_path: Path) -> None:
    """The plan of a study is fixed: it would be refused again."""
    clinics = Clinics(tmp_path, epsilon=7.9, **CLIENTS)
    clinics.open_all()
    with pytest.raises(TooFewReplies, match=r"BUDGET.*start a new study, under another --name") as error:
        clinics.run(LOCAL)
    assert not error.value.resumable
    assert "resume" not in str(error.value)
    clinics.close()
