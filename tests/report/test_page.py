"""What a report holds: who is promised what, what is left out for the public, how large it is; and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path

import pytest

from sordino.data.datasets import OWN_NAMES
from sordino.errors import InvalidInput, SordinoError
from sordino.privacy.guarantee import Certificate, Guarantee
from sordino.privacy.signing import read_signing_key, read_verifying_key
from sordino.privacy.wording import constants_from_data, why_not_covered
from sordino.report.hosts import is_address, name_of
from sordino.report.html import report_html
from sordino.report.matrix import matrix_of
from sordino.report.page import page_of
from sordino.report.readers import named, readers
from sordino.report.subject import Grid, Point, Shown, Signed, Subject, public_task, read_subject
from sordino.runs.description import describe
from sordino.runs.signature import sign_run
from sordino.types import Draws, Observer, Relation, SeedOrigin, Unit, Warning
from tests.web.makers import run_into

TOTAL = Guarantee(Unit.CLIENT, Relation.ADD_REMOVE, Observer.MODEL_USER, "all rounds", 50, 2.0, 1e-5, "a", (), 100)
COVERED = Certificate((TOTAL,), (), Draws.LATTICE, SeedOrigin.ENTROPY)
PRIVATE = {"mean_norm": 1.234567, "clipped_share": 0.5}


def shown(rows: int = 3, certificate: Certificate = COVERED, **more: object) -> Shown:
    history = [
        {"round": n + 1, "accuracy": 0.5 + 0.4 * math.sin(n), "test_loss": 2.0 + math.cos(n), "epsilon": 0.01 * n + 0.1,
         "epsilon_of": "x", "step_size": 1 + n % 7, "not_private": PRIVATE | {"signal_to_noise": 1 / (n + 1)}}
        for n in range(rows)
    ]  # fmt: skip
    return Shown("a-run", certificate, history, 50, True, **more)


def page(*runs: Shown, public: bool = False):
    return page_of(Subject("run", "a-run", runs), public=public)


def keys(made) -> set[str]:
    return {chart.quantity.key for chart in made.charts}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return run_into(tmp_path_factory.mktemp("runs") / "a-run", rounds=4)


def test_a_covered_run_shows_the_public_what_was_measured_but_nothing_about_records():
    assert keys(page(shown(), public=True)) == {"accuracy", "test_loss", "epsilon", "step_size"}
    assert keys(page(shown())) >= {"accuracy", "mean_norm", "clipped_share"}
    assert {chart.quantity.key for chart in page(shown()).charts if chart.private} == {*PRIVATE, "signal_to_noise"}


@pytest.mark.parametrize(
    "change",
    [
        {"seed": SeedOrigin.GIVEN},
        {"seed": SeedOrigin.SHARED},
        {"draws": Draws.FLOAT32},
        {"draws": Draws.SIMULATED_MESSAGES},
        {"warnings": (Warning("measured-on-clients", "Measured on clients."),)},
        {"warnings": (Warning("no-valid-guarantee", "None."),)},
        {"guarantees": (dataclasses.replace(TOTAL, epsilon=math.inf),)},
        {"guarantees": (dataclasses.replace(TOTAL, observer=Observer.OUTSIDER),)},  # about the last model alone
    ],
    ids=str,
)
def test_what_no_guarantee_covers_is_marked_and_left_out_for_the_public(change):
    certificate = dataclasses.replace(COVERED, **change)
    assert why_not_covered(COVERED) is None
    assert why_not_covered(certificate)
    run = shown(
        certificate=certificate, environment={"seed": 5, "jax": "0"}, settings={"run": {"seed": 5, "rounds": 50}}
    )
    assert keys(page(run, public=True)) == {"epsilon"}
    made = page(run)
    assert all(chart.private for chart in made.charts if chart.quantity.key != "epsilon")
    text = report_html(page(run, public=True))
    assert "1.2345" not in text
    assert "seed</dt>" not in text
    assert "seed</dt>" in report_html(made)


def test_comparing_runs_is_not_covered():
    assert keys(page(shown(), shown(), public=True)) == {"epsilon"}


def test_the_public_report_of_a_real_run_has_no_figure_of_the_records(folder):
    text = report_html(page_of(read_subject([folder], readers()), public=True))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    secrets = [f"{row['not_private'][key]:.5g}" for row in rows for key in ("mean_norm", "signal_to_noise")]
    assert not [figure for figure in secrets if figure in text]
    assert (folder / "records.sha256").read_text() not in text


def test_ten_thousand_rounds_stay_small_and_say_so():
    text = report_html(page(*(shown(10_000) for _ in range(3))))
    assert len(text) < 1_500_000
    assert "of 10,000 evaluations" in text


@pytest.mark.parametrize("file", ["certificate.json", "metrics.jsonl", "model.safetensors", "ledger.jsonl"])
def test_no_report_of_files_that_disagree(folder, tmp_path, file):
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / file).write_bytes((copy / file).read_bytes()[:-20] + b"x" * 20)
    with pytest.raises(SordinoError, match=file):
        read_subject([copy], readers())


def test_signatures(folder, tmp_path):
    import subprocess

    copy = shutil.copytree(folder, tmp_path / "copy")
    for name in ("mine", "other"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    sign_run(copy, read_signing_key(tmp_path / "mine"))
    assert read_subject([copy], readers()).runs[0].signature.state is Signed.UNCHECKED
    mine, other = (read_verifying_key(tmp_path / f"{name}.pub") for name in ("mine", "other"))
    found = read_subject([copy], readers(mine)).runs[0].signature
    assert (found.state, found.key) == (Signed.VERIFIED, mine.id)
    for path, key in ((copy, other), (folder, mine)):  # another key; not signed at all
        with pytest.raises(SordinoError, match=r"signature\.dsse\.json"):
            read_subject([path], readers(key))


def test_a_title_is_no_markup():
    text = report_html(page(dataclasses.replace(shown(), name="</script><u>", task="<s>")))
    assert "<u>" not in text
    assert "<s>" not in text


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="no run, sweep, comparison or study"):
        read_subject([tmp_path], readers())


def test_the_picture_has_a_row_for_each_client_or_their_range():
    def certificate(clients: int) -> Certificate:
        own = (
            dataclasses.replace(TOTAL, unit=Unit.RECORD, client=f"hospital {n}", epsilon=0.5 + n)
            for n in range(clients)
        )
        return Certificate((dataclasses.replace(TOTAL, unit=Unit.RECORD), *own))

    few, many = matrix_of(certificate(4)), matrix_of(certificate(40))
    assert [line.what for line in few.lines][1:] == [f"one record of 100 of hospital {n}" for n in range(4)]
    assert len(many.lines) == 2
    assert many.lines[1].cells[0].level == max(line.cells[0].level for line in many.rest) == 4
    assert many.lines[1].cells[0].figures[0].startswith("epsilon 39.50")
    assert len(many.rest) == 40


def test_what_limits_least_is_the_highest_level():
    def level(epsilon: float, delta: float = 1e-5) -> int:
        guarantee = dataclasses.replace(TOTAL, epsilon=epsilon, delta=delta, units=None)
        return matrix_of(Certificate((guarantee,))).lines[0].cells[0].level

    assert [level(epsilon) for epsilon in (0.05, 1.0, 8.0, 30.0, math.inf)] == [1, 2, 3, 4, 5]
    assert level(0.05, delta=0.5) == 4  # everything, with a probability of one half


def test_every_certificate_is_printed_with_its_warnings_and_assumptions():
    runs = [
        dataclasses.replace(
            shown(certificate=dataclasses.replace(COVERED, warnings=(Warning(f"code-{n}", f"Beware of {n}."),))),
            name=f"run-{n}",
        )
        for n in range(6)
    ]
    text = report_html(page(*runs))
    assert all(f"Beware of {n}." in text for n in range(6))
    assert text.count("Exact statements") == 6


def test_the_order_of_runs_tells_the_public_nothing():
    grid = Grid(("a",), "accuracy", (), None)
    runs = tuple(dataclasses.replace(shown(), name=name) for name in ("00002", "00000", "00001"))
    made = page_of(Subject("sweep", "s", runs, grid=grid), public=True)
    assert [line.run.name for line in made.headlines] == ["00000", "00001", "00002"]


@pytest.mark.parametrize("host", ["[::1].example.org", "[::1]x:80", "[::1]:80.example.org"])
def test_an_address_with_more_behind_it_is_a_name(host):
    assert not is_address(name_of(host))
    assert is_address(name_of("[::1]:80"))
    assert is_address(name_of("[::1]"))


@pytest.mark.parametrize(("change", "says"), [({"seed": SeedOrigin.GIVEN}, "seed given"),
                                              ({"seed": SeedOrigin.SHARED}, "seed shared"),
                                              ({"draws": Draws.FLOAT32}, "float32"),
                                              ({"draws": Draws.SIMULATED_MESSAGES}, "simulated")])  # fmt: skip
def test_a_paragraph_about_a_run_says_what_limits_its_epsilon(change, says):
    rows = shown().rows
    assert says in describe("digits", rows, dataclasses.replace(COVERED, **change), None)
    assert "do not publish" not in describe("digits", rows, COVERED, None)


def test_the_public_sees_no_constant_that_was_computed_from_the_data():
    rules = {"R": 3.0777, "L_max": 2.0, "from_data": ["R"]}
    run = shown(settings={"rules": rules}, certificate=COVERED.with_warnings(constants_from_data(["R"], ["server_lr"])))
    everybody, owner = (report_html(page(run, public=public)) for public in (True, False))
    assert "3.0777" in owner
    assert "3.0777" not in everybody
    assert "computed from the clients" in everybody


def test_the_public_sees_no_path_in_the_name_of_a_point():
    point = Point("00001", {"task.name": "csv:ward-7.csv", "rules.R": 3.0777, "algorithm.local_lr": 0.3}, 0.5)
    run = named(shown(), point)
    assert run.name == "00001: csv:ward-7.csv, R 3.0777, local_lr 0.3"
    page = page_of(Subject("sweep", "a-sweep", (run,)), public=True)
    assert page.run.name == "00001: local_lr 0.3"


@pytest.mark.parametrize("name", OWN_NAMES)
def test_a_task_of_ones_own_is_named_by_its_kind_alone(name):
    kind, _, _ = name.partition(":")
    assert public_task(f"{kind}:secret-clinic") == kind
