"""Parts of a table that were run apart, as one result."""

from __future__ import annotations

import copy
import json
import sys

import pytest

from experiments import merge_parts
from experiments.merge_parts import merged
from sordino.errors import InvalidInput
from sordino.experiments.specs import find_spec

CELLS = [("beta 0.01", "norm-ec"), ("beta 0.1", "norm-ec"), ("beta 0.01", "clip21")]


SPEC = find_spec("paper4-table3")


def part(cells, commit="aaa", date="2026-01-01", command="first", **made):
    entries = [{"row": row, "column": column} for row, column in cells]
    return {
        "name": "table3",
        "title": "A table",
        "metric": "accuracy",
        "rows": [entry | {"mean": float(place)} for place, entry in enumerate(entries)],
        "guarantees": [entry | {"claim": None} for entry in entries],
        "provenance": {
            "commit": commit,
            "versions": {"jax": "1"},
            "device": "gpu",
            "date": date,
            "command": command,
            **made,
        },
    }


def test_rows_stand_in_the_order_of_the_table_and_every_commit_is_named():
    older = part([CELLS[2]], earlier_commits=["zzz"])
    newer = part([CELLS[1], CELLS[0]], commit="bbb", date="2026-01-02", command="second")
    result = merged([newer, older], CELLS, scope="most of it", note="Two runs.")
    assert [(row["row"], row["column"], row["mean"]) for row in result["rows"]] == [
        ("beta 0.01", "norm-ec", 1.0),
        ("beta 0.1", "norm-ec", 0.0),
        ("beta 0.01", "clip21", 0.0),
    ]
    assert [(each["row"], each["column"]) for each in result["guarantees"]] == CELLS
    made = result["provenance"]
    assert (made["commit"], made["earlier_commits"], made["date"]) == ("bbb", ["zzz", "aaa"], "2026-01-02")
    assert made["command"] == "first; second"
    assert (result["scope"], result["note"]) == ("most of it", "Two runs.")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda p: p.update(metric="error"), "metric"),
        (lambda p: p.update(name="table4"), "name"),
        (lambda p: p["provenance"].update(device="cpu"), "device"),
        (lambda p: p["provenance"].update(versions={"jax": "2"}), "versions"),
        (lambda p: p["rows"].append({"row": "beta 0.01", "column": "norm-ec"}), "cells"),
        (lambda p: p["rows"].append({"row": "beta 7", "column": "norm-ec"}), "cells"),
    ],
)
def test_what_does_not_belong_together_is_refused(change, field):
    first, second = part(CELLS[:1]), part(CELLS[1:])
    other = copy.deepcopy(second)
    change(other)
    with pytest.raises(InvalidInput) as error:
        merged([first, other], CELLS, scope="", note="")
    assert error.value.field == field
    with pytest.raises(InvalidInput, match="two results"):
        merged([first], CELLS, scope="", note="")


def test_the_command_joins_results_and_curves(tmp_path, monkeypatch, capsys):
    cells = [(point.cell.row, point.cell.column) for point in SPEC.points(quick=False)]
    folder = tmp_path / "paper4"
    folder.mkdir()
    for name, (row, column) in (("a", cells[0]), ("b", cells[3])):
        (folder / f"{name}.json").write_text(json.dumps(part([(row, column)])))
        for figure in SPEC.file.figures:
            lines = f"panel,line,round,{figure.metric}\n{row},{column},10,50\n"
            (folder / f"{name}-{figure.name}.csv").write_text(lines)
    paths = [str(folder / f"{name}.json") for name in ("b", "a")]
    whole = folder / "table3.json"
    monkeypatch.setattr(sys, "argv", ["merge_parts", *paths, "--to", str(whole), "--scope", "two", "--note", "A note."])
    merge_parts.main()
    result = json.loads(whole.read_text())
    assert [(row["row"], row["column"]) for row in result["rows"]] == [cells[0], cells[3]]
    assert (folder / "table3-curves.csv").read_text().splitlines() == [
        "panel,line,round,accuracy",
        f"{cells[3][0]},{cells[3][1]},10,50",
        f"{cells[0][0]},{cells[0][1]},10,50",
    ]
    monkeypatch.setattr(
        sys, "argv", ["merge_parts", paths[0], paths[0], "--to", str(whole), "--scope", "", "--note", ""]
    )
    with pytest.raises(SystemExit) as stopped:
        merge_parts.main()
    assert stopped.value.code == 2
    assert "are in two parts: leave one out" in capsys.readouterr().err
    assert json.loads(whole.read_text()) == result  # as before
    for figure in SPEC.file.figures:
        assert (folder / f"table3-{figure.name}.png").read_bytes().startswith(b"\x89PNG")
