"""Tables on terminals of any width: no figure loses a digit, and no text is taken for markup."""

from __future__ import annotations

import pytest

from sordino.cli.output import print_rows, show

WIDTHS = [8, 20, 40, 60, 80, 200]
ROWS = [
    {"client": f"hospital-of-a-long-name-{number}", "records": 1000 + number, "epsilon": 0.492357 + number, "why": why}
    for number, why in enumerate(("a reason of several words", "between 0.12345 and 0.23456"))
]


@pytest.mark.parametrize("width", WIDTHS)
def test_no_figure_is_cut_or_broken(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    result = {"epsilon_without_step_size": 0.492357, "noise_multiplier": 1.23456789, "note": "several words"}
    show("A title", result | {"rows": ROWS}, as_json=False)
    said = capsys.readouterr().out
    assert "…" not in said
    for figure in ("0.4924", "1.23456789", "1000", "1001", "1.493", "0.12345", "0.23456"):
        assert figure in said


@pytest.mark.parametrize("width", WIDTHS)
def test_a_column_is_kept_whole(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    print_rows(ROWS, whole="client", caption="A caption", boxed=False)
    said = capsys.readouterr().out
    assert "hospital-of-a-long-name-1" in said
    assert "…" not in said


@pytest.mark.parametrize("width", WIDTHS)
def test_brackets_are_no_markup(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    warning = {"code": "a-code", "message": "[red]x"}
    show("[b]", {"a": "[c]", "rows": [{"[d]": "[/e]"}], "warnings": [warning]}, as_json=False)
    said = capsys.readouterr().out
    assert all(text in said for text in ("[b]", "[c]", "[d]", "[/e]", "[red]x"))


def test_the_calculator_on_a_narrow_terminal(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    said = run("account", "gaussian", "--noise-multiplier", "8", "--rounds", "10", "--delta", "1e-5").stdout
    assert "epsilon: 1.535" in said
