"""docs/run_file.md lists the keys, types, defaults and values that a run file has, no more and no fewer."""

from __future__ import annotations

import inspect
import json
import re
import tomllib
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

import pytest

from sordino.algorithms import METHODS
from sordino.bounding import BOUNDERS
from sordino.config import load_sweep
from sordino.config.schema import File, file_model, keys_of, registries
from sordino.data import CATALOGUE
from sordino.data.augmentation import AUGMENTATIONS
from sordino.data.datasets import OWN_DATA
from sordino.data.on_disk import open_records
from sordino.data.partition import SCHEMES
from sordino.mechanisms.gaussian import CALIBRATIONS
from sordino.planning import parse_cohort
from sordino.planning.arguments import RECORD_CALIBRATIONS
from sordino.privacy.privunit import GAMMA_RULES
from sordino.privacy.quantized import NOISE_LAWS
from sordino.tasks import PROBLEMS
from sordino.types import Relation
from tests.pages import run_file_with

PAGE = Path(__file__).parents[2] / "docs" / "run_file.md"
SECTIONS = {name: dict(keys_of(name)) for name in File.model_fields if name != "algorithm"}
WORDS = {str: "string", int: "integer", float: "number", bool: "boolean", list: "list", dict: "table"}

Row = dict[str, str]


def tables_of(text: str) -> list[list[Row]]:
    """Every table, as rows by the heads of its columns."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        head, _, *rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in block.splitlines()]
        found.append([dict(zip(head, row, strict=True)) for row in rows])
    return found


def sections_of(text: str) -> dict[str, str]:
    """What stands below each `## [section]`."""
    parts = re.split(r"^## (.*)\n", text, flags=re.M)
    return {head.strip("[]"): body for head, body in zip(parts[1::2], parts[2::2], strict=True) if head[0] == "["}


def keys_in(text: str, section: str) -> dict[str, Row]:
    """The rows of a section's tables of keys."""
    rows = [row for table in tables_of(sections_of(text)[section]) if "key" in table[0] for row in table]
    keys = {row["key"].strip("`"): row for row in rows}
    assert len(keys) == len(rows)  # none twice
    return keys


def values_of(text: str, head: str) -> dict[str, Row]:
    """The rows of the tables whose first column has this head, by the names in it."""
    rows = [row for table in tables_of(text) if next(iter(table[0])) == head for row in table]
    return {name: row for row in rows for name in re.findall(r"`([^`]+)`", row[head])}


def blocks_of(text: str) -> list[str]:
    return re.findall(r"```toml\n(.*?)```", text, re.S)


def words_of(annotation: Any) -> set[str]:
    """The types that a key takes, in the page's words; a list of numbers is a list."""
    kinds = [annotation] if get_origin(annotation) in (dict, list) or not get_args(annotation) else get_args(annotation)
    return {WORDS[get_origin(kind) or kind] for kind in kinds if kind is not NoneType}


def wrong_keys(text: str, section: str) -> dict[str, str]:
    """What the page says wrongly of a section's keys, or does not say."""
    fields, listed = SECTIONS[section], keys_in(text, section)
    wrong = dict.fromkeys(fields.keys() - listed.keys(), "not in the page")
    wrong |= dict.fromkeys(listed.keys() - fields.keys(), "not in the model")
    for key in fields.keys() & listed.keys():
        field, row = fields[key], listed[key]
        default = "required" if field.is_required() else "-" if field.default is None else field.default
        written = row["default"].strip("`")
        if row["default"].startswith("`"):
            written = tomllib.loads(f"value = {written}")["value"]
        if (type(written), written) != (type(default), default):
            wrong[key] = f"default {default!r}"
        elif set(row["type"].split(" or ")) != words_of(field.annotation):
            wrong[key] = f"type {words_of(field.annotation)}"
        elif not row["values"] or not row["meaning"]:
            wrong[key] = "nothing said"
    return wrong


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text()


@pytest.mark.parametrize("section", SECTIONS)
def test_the_keys_of_a_section_are_those_of_its_model(page, section):
    assert wrong_keys(page, section) == {}


def test_the_page_has_every_section(page):
    assert set(sections_of(page)) == set(File.model_fields)
    listed = values_of(page, "section")
    assert {name.strip("[]") for name in listed} == set(File.model_fields)
    for name, field in File.model_fields.items():
        assert (listed[f"[{name}]"]["may be left out"] == "no") == field.is_required()


@pytest.mark.parametrize(
    ("right", "wrong", "section", "key"),
    [
        ("| `seed` | integer |", "| `sead` | integer |", "run", "seed"),
        ("| `seed` | integer |", "| `sead` | integer |", "run", "sead"),
        ("| `seed` | integer |", "| `seed` | number |", "run", "seed"),
        ("| `mu` | number | - |", "| `mu` | number | `0.1` |", "privacy", "mu"),
        ("| `epsilon` | number or list |", "| `epsilon` | number |", "privacy", "epsilon"),
        ("| `rounds` | integer | required |", "| `rounds` | integer | - |", "run", "rounds"),
        ("| `partition_seed` | integer | `0` |", "| `partition_seed` | integer | `0.0` |", "task", "partition_seed"),
    ],
)
def test_a_stale_page_is_found(page, right, wrong, section, key):
    assert page.count(right) == 1
    assert key in wrong_keys(page.replace(right, wrong), section)


def test_a_key_without_a_row_is_found(page):
    without = "".join(line for line in page.splitlines(keepends=True) if not line.startswith("| `chunk` |"))
    assert wrong_keys(without, "run") == {"chunk": "not in the page"}


def test_the_methods_and_what_they_need(page):
    assert set(keys_in(page, "algorithm")) == {"name"}
    needs = {name: re.findall(r"`(\w+)`", row["needs"]) for name, row in values_of(page, "method").items()}
    required = {}
    for name in METHODS:
        keys = file_model(name, None).model_fields["algorithm"].annotation.model_fields
        required[name] = [key for key, field in keys.items() if field.is_required() and key != "name"]
    assert needs == required
    for name, row in values_of(page, "method").items():
        target = re.search(r"\]\((.*)\)", row["page"])[1]
        assert name in (PAGE.parent / target).read_text()


VALUES = {
    "mechanism": list(registries().mechanisms),
    "calibration": sorted({*CALIBRATIONS, *RECORD_CALIBRATIONS}),
    "relation": [str(relation.value) for relation in Relation],
    "augment": [*AUGMENTATIONS, "none"],
    "partition": [*SCHEMES, "natural"],
    "noise": NOISE_LAWS,
    "trust": ["central", "local", "shuffle", "secure-aggregation"],
    "cohort": ["full", "fixed:K", "poisson:Q", "unreliable:LOW-HIGH", "unreliable:M=P,M=P"],
    "problem": list(PROBLEMS),
}


@pytest.mark.parametrize("head", VALUES)
def test_the_values_of_a_key(page, head):
    assert sorted(values_of(page, head)) == sorted(VALUES[head])


def test_what_stands_in_no_table_of_values(page):
    assert keys_in(page, "privacy")["gamma"]["values"].split(", ") == list(GAMMA_RULES)
    assert {name.partition(":")[0] for name in values_of(page, "name")} == {*OWN_DATA, "disk"}
    datasets = [name for row in values_of(page, "data set").values() for name in re.findall("`(.*?)`", row["data set"])]
    assert set(datasets) == set(CATALOGUE)
    adaptive = inspect.signature(BOUNDERS["adaptive_clip"]).parameters.values()
    defaults = {p.name: "required" if p.default is p.empty else str(p.default) for p in adaptive}
    assert {name: row["default"] for name, row in values_of(page, "adaptive_clip").items()} == defaults


@pytest.mark.parametrize("head", ["problem", "data set", "name"])
def test_the_options_of_data(page, head):
    loaders = PROBLEMS | {name: entry.load for name, entry in CATALOGUE.items()} | OWN_DATA | {"disk": open_records}
    for name, row in values_of(page, head).items():
        parameters = inspect.signature(loaders[name.partition(":")[0]]).parameters.values()
        known = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
        assert set(re.findall(r"`(\w+)`", row["options"])) == set(known), name
        for option, default in re.findall(r"`(\w+)` \((.*?)\)", row["options"]):
            assert json.loads(default) == known[option], (name, option)


@pytest.mark.parametrize("cohort", ["full", "fixed:3", "poisson:0.5", "unreliable:2-4"])
def test_cohorts_are_written_as_the_page_says(page, cohort):
    assert str(parse_cohort(cohort)) == cohort
    assert any(cohort.partition(":")[0] == name.partition(":")[0] for name in values_of(page, "cohort"))


# --- The files of the page ----------------------------------------------------------------------------------------


def test_the_whole_file_is_planned(run, page, tmp_path):
    path = tmp_path / "digits.toml"
    path.write_text(blocks_of(page)[0])
    said = json.loads(run("plan", str(path), "--json").stdout)
    assert (said["clients"], said["rounds"], said["cohort"], said["trust"]) == (100, 20, "full", "central")
    total = {row["observer"]: row["epsilon"] for row in said["guarantees"] if row["scope"] == "all rounds"}
    assert total["server"] == "inf"
    assert total["model user"] == pytest.approx(8.0, abs=0.01)
    assert list(tmp_path.iterdir()) == [path]


def test_the_changes_of_the_page(run, page, tmp_path):
    path = tmp_path / "digits.toml"
    path.write_text(blocks_of(page)[0])
    first = next(line for line in page.splitlines() if "sordino plan digits.toml --set" in line)
    changes = first.split()[4:]
    assert changes[::2] == ["--set", "--set"]
    assert json.loads(run("plan", str(path), *changes, "--json").stdout)["rounds"] == 50
    ((_, config),) = load_sweep(path, tuple(changes[1::2])).points
    assert (config.file.run.rounds, config.file.task.partition) == (50, "shards:2")


def test_the_parts_of_files_are_valid(page, tmp_path):
    """A part takes the place of its sections in the whole file."""
    points = []
    for part in blocks_of(page)[1:]:
        path = tmp_path / "part.toml"
        path.write_text(run_file_with(part))
        points.append(len(load_sweep(path).points))
    assert points == [1, 1, 1, 6]


def test_one_epsilon_per_client(run, page, tmp_path):
    path = tmp_path / "four.toml"
    path.write_text(next(block for block in blocks_of(page) if "noisy_mb_sgd" in block))
    said = json.loads(run("plan", str(path), "--json").stdout)
    assert [row["epsilon"] for row in said["each_client"]] == pytest.approx([1.0, 2.0, 4.0, 8.0], abs=0.01)
