"""Files that people write: every bad value is named with its file, its key, what it is and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sordino.data import load
from sordino.deploy.node import Node
from sordino.deploy.records import node_records, read_records, server_records
from sordino.deploy.settings import DataSection, read_node_file, read_server_file
from sordino.errors import InvalidInput
from sordino.types import Relation, Unit
from sordino.words import Measure
from tests import patients

NODE = """\
name = "east"
port = 19000

[server]
address = "127.0.0.1:18000"

[data]
file = "records.csv"
classes = 2

[budget]
epsilon = 8.0
delta = 1e-5

[accept]
methods = ["fedavg"]
"""
SERVER = """\
port = 18000

[nodes]
east = "east.pub"
"""

# What is replaced in the file, by what, the key that the message names, and what it shows of the value.
NODE_MISTAKES = [
    ('name = "east"', "", "name", "None"),
    ('name = "east"', "name = 3", "name", "3"),
    ('name = "east"', 'name = "../east"', "name", "../east"),
    ('name = "east"', 'name = "e e"', "name", "e e"),
    ('name = "east"', 'name = "east"\ncolour = "red"', "colour", "red"),
    ("port = 19000", "port = 0", "port", "0"),
    ("port = 19000", "port = 65536", "port", "65536"),
    ("port = 19000", 'port = "http"', "port", "http"),
    ("classes = 2", "classes = 1", "data.classes", "1"),
    ("classes = 2", "classes = 2.5", "data.classes", "2.5"),
    ('file = "records.csv"', "", "data.file", "None"),
    ("epsilon = 8.0", "epsilon = 0.0", "budget.epsilon", "0.0"),
    ("epsilon = 8.0", "epsilon = -1", "budget.epsilon", "-1"),
    ("epsilon = 8.0", "epsilon = inf", "budget.epsilon", "inf"),
    ("epsilon = 8.0", "epsilon = nan", "budget.epsilon", "nan"),
    ("epsilon = 8.0", "", "budget.epsilon", "None"),
    ("delta = 1e-5", "delta = 1.0", "budget.delta", "1.0"),
    ("delta = 1e-5", "delta = -1e-5", "budget.delta", "-1e-05"),
    ("delta = 1e-5", "delta = 0.0", "delta", "0.0"),
    ("delta = 1e-5", "delta = 1e-5\nperiod_days = 0", "budget.period_days", "0"),
    ("delta = 1e-5", 'delta = 1e-5\nmeasure = "feeling"', "measure", "feeling"),
    ("delta = 1e-5", "delta = 1e-5\norder = 1.0", "order", "1.0"),
    ("delta = 1e-5", 'delta = 1e-5\nmeasure = "gaussian"\norder = 16.0', "order", "16.0"),
    ("delta = 1e-5", "delta = 1e-5\nfailures = 1e-5", "failures", "1e-05"),
    ("epsilon = 8.0", "epsilon = 0.1", "epsilon", "0.1"),  # of order 16, delta takes more than that
    ('methods = ["fedavg"]', "", "accept.methods", "None"),
    ('methods = ["fedavg"]', 'methods = "fedavg"', "accept.methods", "fedavg"),
    ('methods = ["fedavg"]', 'methods = ["fedavg"]\ntrust = []', "accept.trust", "[]"),
    ('methods = ["fedavg"]', 'methods = ["fedavg"]\ntrust = ["everybody"]', "trust", "everybody"),
    (
        'methods = ["fedavg"]',
        'methods = ["fedavg"]\ntrust = ["secure-aggregation"]',
        "accept.trust",
        "secure-aggregation",
    ),
    ('methods = ["fedavg"]', 'methods = ["fedavg"]\nsmallest_noise = -1', "accept.smallest_noise", "-1"),
    ('methods = ["fedavg"]', 'methods = ["fedavg"]\nlargest_bound = 0', "accept.largest_bound", "0"),
    ('methods = ["fedavg"]', 'methods = ["fedavg"]\nlargest_model = 0', "accept.largest_model", "0"),
    ('methods = ["fedavg"]', 'methods = ["fedavg"]\nmost_rounds = 1.5', "accept.most_rounds", "1.5"),
    ('methods = ["fedavg"]', 'methods = ["fedavg"]\nmost_layers = 0', "accept.most_layers", "0"),
    ('methods = ["fedavg"]', 'methods = ["fedavg"]\nmost_local_steps = 0', "accept.most_local_steps", "0"),
    ('methods = ["fedavg"]', 'methods = ["fedavg"]\nmost_members = 0', "accept.most_members", "0"),
    ('methods = ["fedavg"]', 'methods = ["fedavg"]\nmost_studies = 0', "accept.most_studies", "0"),
    ('methods = ["fedavg"]', 'methods = ["fedavg"]\npause = -1', "accept.pause", "-1"),
    ("[accept]", '[protect]\nunit = "hospital"\n[accept]', "unit", "hospital"),
    ("[accept]", '[protect]\nrelation = "cousins"\n[accept]', "protect.relation", "cousins"),
    ("[accept]", '[protect]\nrelation = "add-remove"\n[accept]', "protect.relation", "add-remove"),  # of a record
    ('methods = ["fedavg"]', 'methods = ["fedavgg"]', "accept.methods", "fedavgg"),
    ('methods = ["fedavg"]', "methods = []", "accept.methods", "[]"),
    ('methods = ["fedavg"]', 'methods = ["fedavg"]\nmechanisms = []', "accept.mechanisms", "[]"),
    ('methods = ["fedavg"]', 'methods = ["fedavg"]\nmechanisms = ["gausian"]', "accept.mechanisms", "gausian"),
    ('"127.0.0.1:18000"', '"127.0.0.1"', "server.address", "127.0.0.1"),
    ('"127.0.0.1:18000"', '"127.0.0.1:0"', "server.address", "127.0.0.1:0"),
    ('"127.0.0.1:18000"', '":18000"', "server.address", ":18000"),
    ('"127.0.0.1:18000"', '"127.0.0.1:http"', "server.address", "http"),
    ("epsilon = 8.0", "epsilonn = 8.0", "budget.epsilonn", "8.0"),
    ("[budget]", "[bugdet]", "bugdet", "epsilon"),
]
SERVER_MISTAKES = [
    ("port = 18000", "", "port", "None"),
    ("port = 18000", "port = -1", "port", "-1"),
    ("port = 18000", 'port = 18000\nname = "a/b"', "name", "a/b"),
    ("port = 18000", "port = 18000\nlargest_message = 1", "largest_message", "1"),
    ('east = "east.pub"', '"../east" = "east.pub"', "nodes", "../east"),
    ('east = "east.pub"', "east = 3", "nodes.east", "3"),
    ("[nodes]", "[rounds]\nfewest = 2\n[nodes]", "fewest", "2"),
    ("[nodes]", "[rounds]\nfewest = 0\n[nodes]", "rounds.fewest", "0"),
    ("[nodes]", "[rounds]\ndeadline = 0\n[nodes]", "rounds.deadline", "0"),
    ("[nodes]", "[rounds]\nattempts = 0\n[nodes]", "rounds.attempts", "0"),
    ("[nodes]", "[rounds]\npause = -1\n[nodes]", "rounds.pause", "-1"),
    ("[nodes]", "[rounds]\nlate_joiners = 1\n[nodes]", "rounds.late_joiners", "1"),
    ("[nodes]", "[round]\n[nodes]", "round", "{}"),
]


def refusal(path: Path, read: Callable[[Path], object]) -> InvalidInput:
    with pytest.raises(InvalidInput) as error:
        read(path)
    return error.value


def about(error: InvalidInput, path: Path, key: str, value: str) -> None:
    """One line that names file, key, value and remedy."""
    said = str(error)
    assert "\n" not in said
    assert re.match(rf"{re.escape(str(path))}:(\d+:)? ", said)
    section, _, name = key.rpartition(".")
    assert f": [{section}] " in error.field or not section
    assert error.field.split()[-1].strip("[]") == name
    assert value in str(error.value)
    assert len(error.remedy) > 5


@pytest.mark.parametrize(("old", "new", "key", "value"), NODE_MISTAKES)
def test_a_mistake_in_node_toml_is_named(old: str, new: str, key: str, value: str, tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    assert NODE.count(old) == 1
    path.write_text(NODE.replace(old, new))
    about(refusal(path, read_node_file), path, key, value)


@pytest.mark.parametrize(("old", "new", "key", "value"), SERVER_MISTAKES)
def test_a_mistake_in_server_toml_is_named(old: str, new: str, key: str, value: str, tmp_path: Path) -> None:
    path = tmp_path / "server.toml"
    assert SERVER.count(old) == 1
    path.write_text(SERVER.replace(old, new))
    about(refusal(path, read_server_file), path, key, value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("epsilon = 8.0", "epsilon = -1", "node.toml:12: [budget] epsilon = -1: must be above 0"),
        ("epsilon = 8.0", "epsilonn = 8", "node.toml:12: [budget] epsilonn = 8: is not known; did you mean epsilon? "),
        ("[budget]", "[bugdet]", "is not known; did you mean budget? "),
        ('["fedavg"]', '["fedavgg"]', "node.toml:16: [accept] methods = 'fedavgg': did you mean fedavg? use one of "),
        ("port = 19000", 'port = "http"', "node.toml:2: port = 'http': must be a whole number"),
    ],
)
def test_mistakes_are_told_as_in_run_files(old: str, new: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(NODE.replace(old, new))
    assert said in str(refusal(path, read_node_file))


def test_delta_is_below_one_over_the_records(tmp_path: Path) -> None:
    (tmp_path / "records.csv").write_text(TABLE)
    path = tmp_path / "node.toml"
    path.write_text(NODE.replace("1e-5", "0.4"))
    assert len(node_records(read_node_file(path), tmp_path).y) == 2
    path.write_text(NODE.replace("1e-5", "0.5"))
    error = refusal(path, lambda path: node_records(read_node_file(path), tmp_path))
    assert error.field == f"{path}:13: [budget] delta"
    path.write_text(NODE.replace("1e-5", "0.5").replace("[accept]", '[protect]\nunit = "client"\n[accept]'))
    node_records(read_node_file(path), tmp_path)


def test_mistakes_in_records_and_keys_name_the_key_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(NODE.replace("records.csv", "."))
    error = refusal(path, lambda path: node_records(read_node_file(path), tmp_path))
    assert error.field == f"{path}:8: [data] file"
    assert error.remedy.startswith("is a folder")
    path.write_text(NODE.replace("port", 'key = "nope"\nport'))
    (tmp_path / "records.csv").write_text(TABLE)
    assert refusal(path, Node.read).field == f"{path}:2: key"
    path = tmp_path / "server.toml"
    path.write_text(SERVER.replace("[nodes]", "[test]\nfile = 'x.csv'\nclasses = 2\n[nodes]"))
    assert (
        refusal(path, lambda path: server_records(read_server_file(path), tmp_path)).field == f"{path}:4: [test] file"
    )


@pytest.mark.parametrize("data", [b"name = ", b"\xff\xfe", b"name = 'a'\nname = 'b'", None])
@pytest.mark.parametrize("read", [read_node_file, read_server_file])
def test_a_file_that_is_no_toml_is_named(data: bytes | None, read: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    if data is not None:
        path.write_bytes(data)
    assert str(path) in str(refusal(path, read))


def test_defaults_protect_records_strictly(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text(NODE)
    file = read_node_file(path)
    assert (file.unit, file.relation) == (Unit.RECORD, Relation.REPLACE_ONE)
    assert {str(trust) for trust in file.trusts} == {"local"}
    assert (file.filter().measure, file.filter().order) == (Measure.RENYI, 5.0)
    assert 0 < file.filter().capacity < 8.0
    (tmp_path / "server.toml").write_text(SERVER)
    assert not read_server_file(tmp_path / "server.toml").rounds.late_joiners


# --- Records ---------------------------------------------------------------------------------------------------------

TABLE = "age,weight,label\n1,2.5,0\n-3,4e1,1\n"


def section(**changes: Any) -> DataSection:
    return DataSection(**({"file": "records.csv", "classes": 2} | changes))


def test_records_of_all_kinds_of_files_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "records.csv").write_text(TABLE + "\n")
    found = [read_records(section(), tmp_path)]
    columns = {"age": np.array([1, -3]), "weight": np.array([2.5, 40.0]), "label": np.array([0, 1])}
    np.savez(tmp_path / "records.npz", **columns)
    found.append(read_records(section(file="records.npz"), tmp_path))
    stacked = np.array([[1, 2.5], [-3, 40]])
    np.savez(tmp_path / "stacked.npz", x=stacked, y=columns["label"], noise=np.full(2, np.nan))
    found.append(read_records(section(file="stacked.npz", label="y", features=["x"]), tmp_path))
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(columns), tmp_path / "records.parquet")
    found.append(read_records(section(file=str(tmp_path / "records.parquet")), tmp_path / "elsewhere"))
    for x, y in found:
        assert (x.dtype, y.dtype) == (np.float32, np.int32)
        assert x.tolist() == stacked.tolist()
        assert y.tolist() == [0, 1]


def test_a_table_with_words_is_read_as_a_run_reads_it(tmp_path: Path) -> None:
    patients.write(tmp_path / "records.csv")
    told = {"ignore": ["", "clinic"], "encoding": "latin-1", **patients.OPTIONS}
    told = {name: value for name, value in told.items() if name not in ("client", "test_share")}
    found = read_records(section(**told), tmp_path)
    local = load(f"csv:{tmp_path / 'records.csv'}", **told)
    np.testing.assert_array_equal(found.x, local.x)
    np.testing.assert_array_equal(found.y, local.y)


def test_options_of_tables_are_not_for_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "records.npz", x=np.ones((2, 2)), label=np.array([0, 1]))
    error = refusal(
        tmp_path, lambda folder: read_records(section(file="records.npz", features=["x"], ignore=["y"]), folder)
    )
    assert error.field == "ignore"


def test_columns_are_taken_in_the_order_of_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "records.csv").write_text(TABLE)
    assert read_records(section(features=["weight", "age"]), tmp_path).x.tolist() == [[2.5, 1], [40, -3]]


# The text of records.csv, what [data] says, what the message names, and a part of what it shows.
RECORD_MISTAKES: list[tuple[str, dict[str, Any], str, str]] = [
    (TABLE, {"file": "other.csv"}, "file", "other.csv"),
    (TABLE, {"file": "."}, "file", ""),
    (TABLE, {"label": "sick"}, "label", "sick"),
    (TABLE, {"features": ["height"]}, "features", "height"),
    (TABLE, {"features": ["age", "label"]}, "features", "label"),
    (TABLE, {"features": []}, "features", "[]"),
    (TABLE.replace("4e1,1", "4e1,2"), {}, "classes", "2"),
    (TABLE.replace("4e1,1", "4e1,-1"), {}, "label", "-1"),
    (TABLE.replace("4e1,1", "4e1,0.5"), {}, "label", "0.5"),
    (TABLE.replace("-3", "nan"), {}, "row 3, column `age`", "nan"),
    (TABLE.replace("-3", "-inf"), {}, "row 3, column `age`", "-inf"),
    (TABLE.replace("-3", "1e39"), {}, "row 3, column `age`", "1e39"),
    (TABLE.replace("-3", "three"), {}, "row 3, column `age`", "three"),
    (TABLE.replace("1,2.5", "one,2.5").replace("-3", "three"), {}, "column", "age"),
    (TABLE.replace("-3", ""), {}, "row 3, column `age`", ""),
    (TABLE.replace("-3,4e1", "-3"), {}, "row 3", "-3"),
    (TABLE.replace("age", "weight"), {}, "columns", "weight"),
    ("age,weight,label\n", {}, "file", "records.csv"),
    ("", {}, "file", "records.csv"),
    (TABLE.replace("-3", '"-3'), {}, "file", "records.csv"),
    (TABLE, {"labels": ["well", "ill", "dead"]}, "labels", "dead"),
    (TABLE, {"ranges": {"height": [0, 1]}}, "ranges", "height"),
    (TABLE, {"encoding": "klingon"}, "encoding", "klingon"),
    (TABLE.replace("age", "split"), {}, "columns", "split"),
]


@pytest.mark.parametrize(("text", "data", "field", "value"), RECORD_MISTAKES)
def test_a_mistake_in_records_is_named(text: str, data: dict[str, Any], field: str, value: str, tmp_path: Path) -> None:
    (tmp_path / "records.csv").write_text(text)
    error = refusal(tmp_path, lambda folder: read_records(section(**data), folder))
    assert field in error.field
    assert value in str(error.value)
    assert len(error.remedy) > 5


@pytest.mark.parametrize("name", ["records.npz", "records.parquet", "records.xls"])
def test_a_file_that_is_not_what_its_name_says_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"PK\x03\x04 no such thing")
    error = refusal(tmp_path, lambda folder: read_records(section(file=name), folder))
    assert (error.field, name in str(error.value)) == ("file", True)


def test_an_array_of_objects_is_not_loaded(tmp_path: Path) -> None:
    """It would run code."""
    np.savez(tmp_path / "records.npz", x=np.array([{}, {}], object), label=np.array([0, 1]))
    error = refusal(tmp_path, lambda folder: read_records(section(file="records.npz"), folder))
    assert error.field == "file"


def test_records_of_unequal_length_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "records.npz", x=np.ones((3, 2)), label=np.array([0, 1]))
    error = refusal(tmp_path, lambda folder: read_records(section(file="records.npz", features=["x"]), folder))
    assert "records.npz: label" in error.field
    np.savez(tmp_path / "records.npz", a=np.ones(3), b=np.ones(2), label=np.array([0, 1, 1]))
    error = refusal(tmp_path, lambda folder: read_records(section(file="records.npz"), folder))
    assert "records.npz" in error.field
