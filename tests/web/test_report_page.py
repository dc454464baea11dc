"""A report in a browser: charts, hover, themes, widths, print; and nothing is loaded from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sordino.report.html import report_html
from sordino.report.page import page_of
from sordino.report.readers import readers
from sordino.report.subject import read_subject
from tests.web.browser import PAINTED

pytestmark = pytest.mark.xdist_group("browser")  # one browser for all workers


def written(folder: Path, *paths: Path, public: bool = False) -> Path:
    file = folder / "report.html"
    file.write_text(report_html(page_of(read_subject(paths, readers()), public=public)), encoding="utf-8")
    return file


@pytest.fixture
def report(runs, tmp_path) -> Path:
    return written(tmp_path, runs / "first")


def test_charts_are_drawn_and_nothing_is_loaded(tab, report):
    tab.open(report)
    keys = tab.value("JSON.parse(document.getElementById('data').textContent).charts.map((chart) => chart.key)")
    assert {"accuracy", "test_loss", "epsilon", "step_size", "mean_norm"} <= set(keys)
    for key in keys:
        assert tab.value(PAINTED % key) > 3, key  # paper, grid, ticks, line
    assert tab.asked == [report.as_uri()]
    assert tab.complaints == []


def test_what_the_page_forbids_does_not_happen(tab, report):
    """The policy is really there: a script that somebody adds does not run, and no address is asked."""
    text = report.read_text().replace("</main>", "<img src='https://example.org/x.png'><script>window.bad=1</script>")
    report.write_text(text)
    tab.open(report)
    assert tab.value("window.bad === undefined")
    assert any("Content Security Policy" in complaint for complaint in tab.complaints)
    assert not [
        event
        for event in tab.events
        if event["method"] == "Network.responseReceived" and "example.org" in event["params"]["response"]["url"]
    ]


def test_hover_shows_values(tab, report):
    tab.open(report)
    tab.move(*tab.inside("#chart-epsilon .u-over"))
    tab.until("document.querySelectorAll('#chart-epsilon .u-value')[0].textContent === '12'")
    assert tab.value("document.querySelectorAll('#chart-epsilon .u-value')[1].textContent") == "6"


def test_two_runs_share_a_chart(tab, runs, tmp_path):
    tab.open(written(tmp_path, runs / "first", runs / "second"))
    names = tab.value("[...document.querySelectorAll('#chart-accuracy .u-label')].map((each) => each.textContent)")
    assert names == ["round", "first", "second"]
    assert tab.complaints == []


def test_colours_follow_the_system_and_the_button(tab, report):
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    tab.open(report)
    light = tab.value(paper)
    tab.prefer("dark")
    tab.until(f"{paper} !== '{light}'")
    dark, painted = tab.value(paper), tab.value(PAINTED % "epsilon")
    assert painted > 3
    tab.value("document.getElementById('theme').click()")
    assert tab.value(paper) == light != dark
    assert tab.complaints == []


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_screen(tab, runs, tmp_path, width):
    tab.resize(width)
    tab.open(written(tmp_path, runs / "first", runs / "second"))
    assert tab.value("document.documentElement.scrollWidth") == width


def test_it_prints_on_two_pages_with_its_charts(tab, report):
    tab.open(report)
    pages = len(re.findall(rb"/Type\s*/Page\b", tab.pdf()))
    assert 1 <= pages <= 2
    tab.call("Emulation.setEmulatedMedia", media="print")
    shown = "[...document.querySelectorAll('.still')].every((each) => each.getBoundingClientRect().height > 40)"
    assert tab.value(shown)
    assert tab.value("document.querySelector('.live').getBoundingClientRect().height") == 0


def test_charts_stand_there_without_scripts(tab, report):
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    tab.open(report)
    assert tab.call(
        "Runtime.evaluate",
        expression="document.querySelector('.still').getBoundingClientRect().height > 40",
        returnByValue=True,
    )["result"]["value"]
