"""The board in a browser, and over HTTP: list, live curves, several runs at once, and who may ask."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request

import pytest

from sordino.report.board import board_app
from tests.web.browser import PAINTED
from tests.web.makers import run_into, serving

pytestmark = pytest.mark.xdist_group("browser")  # one browser for all workers

ROW = "document.querySelector('tr[data-name={}]')"


@pytest.fixture
def folder(runs, tmp_path):
    return shutil.copytree(runs, tmp_path / "runs")


def ask(port: int, path: str, host: str | None = None) -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": host} if host else {})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_list_filter_and_overlay(tab, folder):
    with serving(board_app(folder)) as port:
        tab.open(f"http://127.0.0.1:{port}/")
        tab.until("document.querySelectorAll('#runs tr').length === 2")
        for name in ("first", "second"):
            tab.value(ROW.format(name) + ".click()")
        tab.until("document.querySelectorAll('#chart-accuracy .u-label').length === 3")
        tab.value(
            "(() => { const f = document.getElementById('filter'); f.value = 'sec';"
            " f.dispatchEvent(new Event('input')); })()"
        )
        assert tab.value("[...document.querySelectorAll('#runs tr')].map((row) => row.dataset.name)") == ["second"]
        assert tab.complaints == []
        assert all(
            address.startswith(f"http://127.0.0.1:{port}/") or address.startswith("data:") for address in tab.asked
        )


def test_a_run_is_followed_while_it_goes_on(tab, folder):
    whole = (folder / "first" / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    going = folder / "going"
    shutil.copytree(folder / "first", going)
    made = json.loads((going / "environment.json").read_bytes())
    (going / "environment.json").write_text(json.dumps({key: made[key] for key in made if key != "seconds"}))
    (going / "metrics.jsonl").write_bytes(b"".join(whole[:3]))
    with serving(board_app(folder)) as port:
        tab.open(f"http://127.0.0.1:{port}/")
        tab.until("document.querySelector('#which')?.textContent === 'going'")  # what is not finished is drawn unasked
        tab.until("document.querySelector('#chart-accuracy canvas') !== null")
        assert tab.value(ROW.format("going") + ".querySelector('.state').textContent") == "3 / 12"
        with (going / "metrics.jsonl").open("ab") as file:
            file.write(b"".join(whole[3:9]))
        tab.until(ROW.format("going") + ".querySelector('.state').textContent === '9 / 12'")
        run_into(folder / "third", rounds=2)
        tab.until(ROW.format("third") + " !== null")
        assert tab.complaints == []


@pytest.mark.parametrize("width", [390, 1280])
def test_charts_are_drawn_in_both_colours_within_the_screen(tab, folder, width):
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    tab.resize(width)
    with serving(board_app(folder)) as port:
        tab.open(f"http://127.0.0.1:{port}/")
        tab.until("document.querySelectorAll('#runs tr').length === 2")
        tab.value(ROW.format("second") + ".click()")
        tab.until("document.querySelector('#chart-epsilon canvas') !== null")
        light = tab.value(paper)
        assert tab.value(PAINTED % "epsilon") > 3  # paper, grid, ticks, line
        tab.prefer("dark")
        tab.until(f"{paper} !== '{light}'")
        assert tab.value(PAINTED % "epsilon") > 3
        tab.value("document.getElementById('theme').click()")
        assert tab.value(paper) == light
        assert tab.value("document.documentElement.scrollWidth") == width
        assert tab.complaints == []


def test_the_cursor_shows_values(tab, folder):
    with serving(board_app(folder)) as port:
        tab.open(f"http://127.0.0.1:{port}/")
        tab.until("document.querySelectorAll('#runs tr').length === 2")
        tab.value(ROW.format("second") + ".click()")
        tab.until("document.querySelector('#chart-epsilon canvas') !== null")
        tab.move(*tab.inside("#chart-epsilon .u-over"))
        tab.until("document.querySelectorAll('#chart-epsilon .u-value')[0].textContent === '9'")
        assert tab.value("document.querySelectorAll('#chart-epsilon .u-value')[1].textContent") == "6"


def test_only_known_names_are_answered(folder):
    with serving(board_app(folder, hosts=["board.example"])) as port:
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", "BOARD.example"):
            assert ask(port, "/runs", host)[0] == 200, host
        for host in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example"):
            for path in ("/", "/runs", "/curves?run=first", "/changes", "/report/first"):
                assert ask(port, path, host) == (421, "unknown host")


def test_reports_and_what_is_no_run(folder):
    (folder / "first" / "certificate.json").write_text("{}")
    with serving(board_app(folder)) as port:
        status, text = ask(port, "/report/second")
        assert status == 200
        assert "Who could learn how much" in text
        status, text = ask(port, "/report/first")
        assert status == 409
        assert "certificate.json" in text
        assert "Who could" not in text
        for name in ("none", "..", "%2e%2e", "..%2fruns", "second%2f..%2fsecond"):
            assert ask(port, f"/report/{name}")[0] == 404, name
        listed = {run["name"]: run for run in json.loads(ask(port, "/runs")[1])}
        assert listed["first"]["kind"] == "damaged"
        assert listed["second"]["kind"] == "run"


def test_the_public_board_holds_back_what_no_guarantee_covers(folder):
    run_into(folder / "seeded", seed=3, rounds=3)
    with serving(board_app(folder, public=True)) as port:

        def keys(name):
            return {chart["key"] for chart in json.loads(ask(port, f"/curves?run={name}")[1])}

        assert keys("first") == {"accuracy", "test_loss", "epsilon", "step_size"}
        assert keys("seeded") == {"epsilon"}
        listed = {run["name"]: run["value"] for run in json.loads(ask(port, "/runs")[1])}
        assert listed["seeded"] is None
        assert listed["first"].endswith("%")
