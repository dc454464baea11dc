"""From a file of patients to a model and predictions, as a new user would go; and every wrong turn on the way."""

from __future__ import annotations

import csv
import inspect
import json
import re
import shlex
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

import sordino as so
from sordino.data.own import OWN_DATA
from tests import patients
from tests.pages import ROOT, blocks_of, commands_of

RUN = """\
[algorithm]
name = "fedavg"
local_steps = 10
local_lr = 0.3

[bound]
clip = 1.0

[privacy]
noise_multiplier = 0.5
delta = 1e-3

[run]
rounds = 15
"""
TASK = """\
[task]
name = "csv:patients.csv"
model = "mlp:16"

[task.options]
client = "clinic"
label = "diagnosis"
labels = ["benign", "malignant"]
encoding = "latin-1"
ignore = [""]
test_share = 0.2
categories = { sex = ["female", "male"], stage = ["I", "II", "III"] }
ranges = { age = [18, 100], radius = [5, 30], area = [50, 2500] }

"""


@pytest.fixture(scope="module")
def home(run, tmp_path_factory) -> Path:
    """A folder with the patients, and a finished run."""
    home = tmp_path_factory.mktemp("home")
    patients.write(home / "patients.csv")
    (home / "patients.toml").write_text(TASK + RUN)
    with pytest.MonkeyPatch.context() as here:
        here.chdir(home)
        run("run", "patients.toml")
    return home


@pytest.fixture
def there(home, monkeypatch) -> Path:
    monkeypatch.chdir(home)
    return home


# --- The way --------------------------------------------------------------------------------------------------------


def test_each_refusal_names_the_next_step(run, tmp_path, monkeypatch):
    """From the bare file: encoding, index, label, test records. Every remedy, followed, leads on."""
    monkeypatch.chdir(tmp_path)
    patients.write(tmp_path / "patients.csv")
    lines = ['[task]\nname = "csv:patients.csv"\n[task.options]\n']
    steps = [
        ('encoding = "latin-1"', 'encoding = "latin-1"'),
        ("no such column: use one of '', clinic", 'label = "diagnosis"'),
        ("ignore = ['']", 'ignore = [""]'),
        ('options = { client = "..." }', 'client = "clinic"'),
        ("test_share = 0.2", "test_share = 0.2"),
    ]
    for remedy, line in steps:
        (tmp_path / "patients.toml").write_text("\n".join(lines) + "\n" + RUN)
        refused = run("plan", "patients.toml", code=2).stderr
        assert remedy in refused
        assert len(refused.splitlines()) == 1
        lines.append(line)
    (tmp_path / "patients.toml").write_text("\n".join(lines) + "\n" + RUN)
    planned = json.loads(run("plan", "patients.toml", "--json").stdout)
    assert planned["clients"] == 12
    assert "shape-depends-on-data" in {warning["code"] for warning in planned["warnings"]}


def test_predictions_of_new_patients(run, there):
    rows = patients.rows(40, seed=8)
    with open("new.csv", "w", encoding="utf-8", newline="") as file:  # another encoding, columns in another order
        writer = csv.writer(file)
        writer.writerow([*patients.HEADER[:0:-1][1:], "name"])  # without diagnosis and index, with one column more
        writer.writerows([*row[:0:-1][1:], "Zoë"] for row in rows)
    said = json.loads(
        run("predict", "runs/patients", "new.csv", "--encoding", "utf-8", "--out", "p.csv", "--json").stdout
    )
    assert said == {"records": 40, "predictions": "p.csv"}
    with open("p.csv", newline="") as file:
        predicted = list(csv.DictReader(file))
    assert [row["row"] for row in predicted] == [str(line) for line in range(2, 42)]
    right = [row["prediction"] == patient[-1] for row, patient in zip(predicted, rows, strict=True)]
    assert np.mean(right) > 0.8
    for row in predicted:
        benign = float(row["probability of benign"])
        assert benign + float(row["probability of malignant"]) == pytest.approx(1, abs=1e-5)
        assert row["prediction"] == ("benign" if benign > 0.5 else "malignant")


def test_evaluation_says_that_it_is_not_covered(run, there):
    said = json.loads(run("evaluate", "runs/patients", "patients.csv", "--json").stdout)
    assert said["records"] == 569
    assert 0.85 < said["accuracy"] <= 1
    assert "private data" in said["note"]
    assert "covered by no certificate" in said["note"]
    assert said["accuracy"] == so.load_run("runs/patients").evaluate(patients.columns()).accuracy


def test_the_files_of_the_run_agree(run, there):
    said = json.loads(run("certify", "runs/patients", "--json").stdout)
    assert {"reading.json", "model.safetensors"} <= set(said["agree"])
    assert (there / "runs" / "patients" / "reading.json").stat().st_mode & 0o077 == 0


def test_a_changed_reading_is_noticed(run, there, tmp_path):
    import shutil

    shutil.copytree(there / "runs" / "patients", tmp_path / "run")
    path = tmp_path / "run" / "reading.json"
    path.write_text(path.read_text().replace("30.0", "3.0"))
    assert "reading.json" in run("certify", str(tmp_path / "run"), code=1).stderr


def test_exports(run, there):
    from safetensors.numpy import load_file

    for format, name in (("safetensors", "a.safetensors"), ("torch", "b.safetensors"), ("onnx", "c.onnx")):
        said = json.loads(run("export", "runs/patients", "--format", format, "--out", name, "--json").stdout)
        assert said["labels"] == ["benign", "malignant"]
        assert said["columns"][0]["name"] == "age"
    assert set(load_file("a.safetensors")) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert set(load_file("b.safetensors")) == {"layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"}
    onnx = pytest.importorskip("onnx")
    known = {entry.key: entry.value for entry in onnx.load("c.onnx").metadata_props}
    assert json.loads(known["labels"]) == ["benign", "malignant"]


def test_counted_words_do_not_leave_with_the_model(run, there):
    onnx = pytest.importorskip("onnx")
    text = (TASK + RUN).replace('labels = ["benign", "malignant"]\n', "").replace("rounds = 15", "rounds = 1")
    (there / "counted.toml").write_text(text)
    run("run", "counted.toml")
    run("export", "runs/counted", "--format", "onnx", "--out", "counted.onnx")
    assert onnx.load("counted.onnx")
    for name in ("counted.onnx", "runs/counted/model.safetensors", "runs/counted/ledger.jsonl"):
        assert b"malignant" not in (there / name).read_bytes()
    assert set(so.load_run("runs/counted").predict(patients.columns())) <= {"benign", "malignant"}


def test_a_run_on_arrays_takes_arrays(run, there):
    (there / "digits.toml").write_text('[task]\nname = "digits"\nclients = 10\npartition = "iid"\n\n' + RUN)
    run("run", "digits.toml", "--set", "run.rounds=2")
    data = so.task("digits", clients=10).data
    np.savez("digits.npz", x=data.x_test, y=data.y_test)
    said = json.loads(run("evaluate", "runs/digits", "digits.npz", "--json").stdout)
    assert said["accuracy"] == pytest.approx(so.load_run("runs/digits").metrics[-1]["accuracy"])
    assert json.loads(run("predict", "runs/digits", "digits.npz", "--out", "d.csv", "--json").stdout)["records"] == 359


# --- What a file holds ----------------------------------------------------------------------------------------------


def test_info_of_a_run_file(run, there, tmp_path):
    picture = tmp_path / "labels.png"
    said = json.loads(run("data", "info", "patients.toml", "--plot", str(picture), "--json").stdout)
    assert "private data" in said["computed from"]
    assert (said["records"], said["test records"], said["clients"]) == (456, 113, 12)
    assert said["labels"] == ["benign", "malignant"]
    wanted = so.task("csv:patients.csv", encoding="latin-1", ignore=[""], **patients.OPTIONS).data
    for each, name, start, size in zip(said["each client"], wanted.names, wanted.start, wanted.size, strict=True):
        ill = int(wanted.y[start : start + size].sum())
        assert each == {"client": name, "records": size, "labels": {"benign": size - ill, "malignant": ill}}
    assert picture.read_bytes().startswith(b"\x89PNG")
    table = run("data", "info", "patients.toml").stdout
    assert table.count("█") > 12
    assert "computed from private data" in table


def test_info_of_a_file_by_options(run, there):
    given = {"encoding": "latin-1", "label": "diagnosis", "ignore": '[""]', "client": "clinic"}
    options = [part for key, value in given.items() for part in ("--option", f"{key}={value}")]
    said = json.loads(run("data", "info", "patients.csv", *options, "--json").stdout)
    assert (said["clients"], said["records"], said["partition"]) == (12, 569, "natural")
    assert [row["counted"] for row in said["columns"]] == [False, False, False, True, True]


# --- Wrong turns ----------------------------------------------------------------------------------------------------

SMALL = "client,age,sex,label\na,1,f,no\na,2,m,yes\nb,3,f,no\nb,4,m,yes\n"
FILES = {
    "small.csv": SMALL.encode(),
    "latin.csv": SMALL.replace("a,", "Orléans,").encode("latin-1"),
    "utf16.csv": SMALL.encode("utf-16"),
    "semicolons.csv": SMALL.replace(",", ";").encode(),
    "twice.csv": SMALL.replace("sex", "age").encode(),
    "index.csv": b"," + SMALL.encode(),
    "unnamed.csv": "\n".join(
        f"{name},{row}" for name, row in zip(["Unnamed: 0", 0, 1, 2, 3], SMALL.split(), strict=True)
    ).encode(),
    "short.csv": (SMALL + "b,5\n").encode(),
    "gap.csv": (SMALL + "b,,f,no\n").encode(),
    "unlabelled.csv": (SMALL + "b,5,f,\n").encode(),
    "nobody.csv": (SMALL + ",5,f,no\n").encode(),
    "word.csv": (SMALL + "b,old,f,no\n").encode(),
    "third.csv": (SMALL + "b,5,f,maybe\n").encode(),
    "split.csv": SMALL.replace("sex", "split").encode(),
    "open.csv": (SMALL + 'b,"5,f,no\nb,5,f,no\n').encode(),
    "swallowed.csv": (SMALL + 'b,5,"f,no\nb,5,f",no\n').encode(),
    "marked.csv": SMALL.encode("utf-8-sig"),
    "marked16.csv": ("\ufeff" + SMALL).encode("utf-16-le"),
    "zero.csv": SMALL.encode() + b"\0\0",
    "empty.csv": b"",
    "header.csv": b"client,age,label\n",
    "bad.parquet": b"PAR1 is not enough",
    "data.txt": SMALL.encode(),
}
# Options of [task.options] for csv:FILE, and the field of the error.
OPTIONS = {
    ("small.csv", ""): "holds no test records",
    ("small.csv", "test_share = 2"): "test_share = 2:",
    ("small.csv", "test_share = '20 %'"): "test_share = '20 %':",
    ("small.csv", "test_share = true"): "test_share = True:",
    ("small.csv", "split_seed = -1\ntest_share = 0.5"): "split_seed = -1:",
    ("small.csv", "label = 'diagnosis'"): "label = 'diagnosis': no such column",
    ("small.csv", "label = 3"): "label = 3: no such column",
    ("small.csv", "client = 'clinic'"): "client = 'clinic': no such column",
    ("small.csv", "client = 'label'"): "client = 'label': is the column of the labels",
    ("small.csv", "features = ['weight']"): "features = 'weight': no such column",
    ("small.csv", "features = []"): "features = []:",
    ("small.csv", "features = 3"): "features = 3:",
    ("small.csv", "ignore = ['id']"): "ignore = 'id':",
    ("small.csv", "ignore = 'age'"): "ignore = 'age':",
    ("small.csv", "ignore = ['age', 'sex']"): "there are no features",
    ("small.csv", "labels = ['no']"): "small.csv: row 3, column `label` = 'yes': is not one of the labels",
    ("small.csv", "labels = []"): "labels = []:",
    ("small.csv", "labels = 'no'"): "labels = 'no':",
    ("small.csv", "classes = 2"): "classes = 2: labels are words",
    ("small.csv", "classes = 2\nlabels = ['no', 'yes']"): "classes = 2: labels are named already",
    ("small.csv", "ranges = { age = [0] }"): "ranges.age = [0]:",
    ("small.csv", "ranges = { age = ['a', 'b'] }"): "ranges.age = ['a', 'b']:",
    ("small.csv", "ranges = { age = [nan, 1.0] }"): "ranges.age = [nan, 1.0]:",
    ("small.csv", "ranges = { weight = [0, 1] }"): "ranges = 'weight': no such column",
    ("small.csv", "ranges = { sex = [0, 1] }"): "row 2, column `sex` = 'f': must be a finite number",
    ("small.csv", "ranges = 3"): "ranges = 3: give a table",
    ("small.csv", "categories = { sex = ['f'] }"): "row 3, column `sex` = 'm': is not a category",
    ("small.csv", "categories = { sex = 'fm' }"): "categories.sex = 'fm':",
    ("small.csv", "missing = { age = 'old' }"): "missing.age = 'old':",
    ("small.csv", "missing = { age = nan }"): "missing.age = nan:",
    ("small.csv", "encoding = 'klingon'"): "encoding = 'klingon': is not known",
    ("small.csv", "encoding = 'hex'"): "encoding = 'hex': is not an encoding of text",
    ("small.csv", "delimiter = ', '"): "delimiter = ', ':",
    ("small.csv", "separator = ';'"): "separator = ';': csv takes",
    ("small.csv", "clients = 2"): "clients = 2: is a key of [task] itself",
    ("small.csv", "y = 2"): "y = 2: names no option",
    ("latin.csv", ""): "line 2 is not utf-8",
    ("utf16.csv", ""): 'encoding = "utf-16"',
    ("semicolons.csv", ""): "delimiter = ';'",
    ("twice.csv", ""): "columns = 'age': appears twice",
    ("index.csv", ""): "write 5 values",
    ("unnamed.csv", ""): "columns = 'Unnamed: 0': is an index",
    ("short.csv", ""): "row 6 = ['b', '5']:",
    ("gap.csv", ""): "row 6, column `age` = '': is missing",
    ("unlabelled.csv", ""): "row 6, column `label` = '': is missing",
    ("nobody.csv", ""): "row 6, column `client` = '': is missing",
    ("word.csv", ""): "row 6, column `age` = 'old':",
    (
        "third.csv",
        "labels = ['no', 'yes']",
    ): "third.csv: row 6, column `label` = 'maybe': is not one of the labels no, yes: correct it, or add it",
    ("split.csv", ""): "row 2, column `split` = 'f': write train or test",
    ("zero.csv", ""): "zero bytes",
    ("empty.csv", ""): "is empty",
    ("header.csv", ""): "holds no records",
    ("never.csv", ""): "no such file",
    ("open.csv", ""): "open.csv': line 6 is not the start of a CSV row",
    ("swallowed.csv", ""): "swallowed.csv: row 7",
    ("marked.csv", 'encoding = "latin-1"'): "begins with a mark of another encoding",
    ("marked.csv", 'encoding = "cp1252"'): "begins with a mark of another encoding",
    ("marked16.csv", 'encoding = "utf-16-le"'): "begins with a mark of another encoding",
    ("small.csv", "ranges = { age = [-1e308, 1e308] }"): "its width must be finite",
    ("bad.parquet", ""): "is not readable",
}
COMMANDS = {
    "predict runs/never small.csv": "run = 'runs/never': there is no run here",
    "predict runs patients.csv": "run = 'runs': there is no run here",
    "predict runs/patients never.csv": "data = 'never.csv': no such file",
    "predict runs/patients data.txt": "data = 'data.txt': give a file that ends in",
    "predict runs/patients small.csv": "columns = 'radius': no such column",
    "predict runs/patients open.csv": "open.csv': line 6 is not the start of a CSV row",
    "predict runs/patients patients.csv --encoding utf-8": "is not utf-8",
    "predict runs/patients patients.csv --out patients.toml": "out = 'patients.toml': exists already",
    "predict runs/patients patients.csv --out small.csv/p.csv": "out = 'small.csv': cannot be a folder",
    "predict runs/patients some.npz": "the run was trained on a table",
    "evaluate runs/patients bad.parquet": "is not readable",
    "evaluate runs/patients bad.parquet --encoding latin-1": "encoding = 'latin-1': is for CSV files",
    "evaluate runs/patients unlabelled.csv": "no such column",
    "export runs/patients --format keras": "--format",
    "export runs/patients --out patients.csv": "out = 'patients.csv': a file of format safetensors ends in",
    "export runs/patients --out some.safetensors": "out = 'some.safetensors': exists already",
    "export runs/never": "there is no run here",
    "data info never.csv": "no such file",
    "data info never.toml": "cannot be read",
    "data info data.txt": "unknown: use one of",
    "data info small.csv --option label": "option = 'label': write KEY=VALUE",
    "data info small.csv --option colour=blue": "colour = 'blue': csv takes",
    "data info small.csv --partition natural --clients 7": "has 2 natural clients",
    "data info patients.toml --option label=x": "the run file has options",
    "data info leaf:runs": "leaf",
}


@pytest.fixture(scope="module")
def wrong(home) -> Path:
    for name, contents in FILES.items():
        (home / name).write_bytes(contents)
    np.savez(home / "some.npz", x=np.zeros((2, 8)))
    (home / "some.safetensors").write_bytes(b"")
    return home


@pytest.mark.parametrize(("file", "options"), OPTIONS)
def test_a_wrong_file_or_option_is_one_line(run, wrong, monkeypatch, file, options):
    monkeypatch.chdir(wrong)
    kind = Path(file).suffix[1:]
    (wrong / "wrong.toml").write_text(f'[task]\nname = "{kind}:{file}"\n[task.options]\n{options}\n\n{RUN}')
    said = run("run", "wrong.toml", code=2).stderr
    assert OPTIONS[file, options] in said
    assert len(said.splitlines()) == 1
    assert not (wrong / "runs" / "wrong").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_command_is_one_line(run, wrong, monkeypatch, command):
    monkeypatch.chdir(wrong)
    said = run(*command.split(), code=2).stderr
    assert COMMANDS[command] in said
    assert len(said.splitlines()) == 1


def test_features_beyond_their_bound_are_warned_about_in_one_line(run, there):
    method = '[algorithm]\nname = "noisy_mb_sgd"\nlipschitz = 1.0\nradius = 3.0\nfeature_bound = 1.0\n\n'
    privacy = '[privacy]\ntrust = "local"\nnoise_multiplier = 1.0\ndelta = 1e-4\n\n[run]\nrounds = 1\n'
    (there / "bound.toml").write_text(TASK.replace('"mlp:16"', '"logistic"') + method + privacy)
    said = run("run", "bound.toml").stderr
    assert said.startswith("warning: feature_bound = 1: ")
    assert sum("feature_bound" in line for line in said.splitlines()) == 1
    assert "feature_bound" not in (there / "runs" / "bound" / "certificate.json").read_text()


# --- The page -------------------------------------------------------------------------------------------------------

DOCS = ROOT / "docs"
PAGE = (DOCS / "own_data.md").read_text()


def test_the_example_of_the_page_prints_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, printed = re.search(r"```python\n(.*?)```\s+prints\s+```\n(.*?)```", PAGE, re.S).groups()
    out = StringIO()
    with redirect_stdout(out):
        exec(compile(code, "own_data.md", "exec"), {})
    assert out.getvalue() == printed


START = "index.md"  # shows the same run file, and the shortest way to a report


def test_the_run_file_of_the_page_is_planned(run, there):
    (there / "page.toml").write_text(run_file_of("own_data.md"))
    planned = json.loads(run("plan", "page.toml", "--json").stdout)
    assert planned["clients"] == 12
    assert "shape-depends-on-data" not in {warning["code"] for warning in planned["warnings"]}


def run_file_of(page: str) -> str:
    """The run file of a page that reads the patients."""
    (found,) = (block.text for block in blocks_of(DOCS / page) if "csv:patients.csv" in block.text)
    return found


def followed(run, page: str, folder: Path, monkeypatch) -> list[str]:
    """Do what a page says in a folder with the patients -> its commands, in order."""
    monkeypatch.chdir(folder)
    patients.write(folder / "patients.csv")
    patients.write(folder / "new.csv", patients=50)
    (folder / "patients.toml").write_text(run_file_of(page))
    blocks = [block for block in blocks_of(DOCS / page) if block.language == "console" and "patients" in block.text]
    commands = [line for block in blocks for line, _ in commands_of(block)]
    for line in commands:
        program, *words = shlex.split(line, comments=True)
        if program == "sordino":  # `make dist` installs the package
            run(*words)
    return commands


def test_five_commands_lead_from_a_table_to_a_report(run, tmp_path, monkeypatch):
    commands = followed(run, START, tmp_path, monkeypatch)
    assert [line.split()[:2] for line in commands] == [
        ["pip", "install"],
        ["sordino", "data"],
        ["sordino", "plan"],
        ["sordino", "run"],
        ["sordino", "report"],
    ]
    text = (tmp_path / "runs" / "patients" / "report.html").read_text()
    for words in ("What this certificate says", "one client of 12", "Test accuracy (%)"):
        assert words in text
    assert "Orl" not in text  # no client's name
    assert run_file_of(START) == run_file_of("own_data.md")


def test_the_commands_of_the_page_run(run, tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    commands = followed(run, "own_data.md", tmp_path, monkeypatch)
    assert [line.split()[1] for line in commands] == ["data", "plan", "run", "predict", "report", "evaluate", "export"]
    made = tmp_path / "runs" / "patients"
    assert (tmp_path / "labels.png").exists()
    assert (made / "report.html").exists()
    with open("predictions.csv", newline="") as file:
        assert {row["prediction"] for row in csv.DictReader(file)} == {"benign", "malignant"}
    assert list(tmp_path.rglob("*.onnx"))


def test_the_page_has_every_option():
    options = set(inspect.signature(OWN_DATA["csv"]).parameters) - {"file"}
    listed = {name for row in re.findall(r"^\| (`.*?) \|", PAGE, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert options <= listed


def test_there_are_enough_mistakes():
    assert len(OPTIONS) + len(COMMANDS) >= 70
