"""Certificates for others: JSON that follows its published schema, a registry's entry, a model card; trackers."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from pydantic import ValidationError

from sordino.errors import InvalidInput, Refused
from sordino.privacy.guarantee import Certificate
from sordino.report import tracking
from sordino.report.card import card_markdown
from sordino.report.exported import ExportModel, export, export_json, schema_text
from sordino.report.registry import registry_yaml
from sordino.report.tracking import Tracking, require_tracker
from tests.web.makers import run_into

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("runs")
    run_into(home / "fresh", rounds=3)
    run_into(home / "seeded", rounds=3, seed=1)
    return home


def test_the_published_schema_is_that_of_the_code():
    assert (ROOT / "docs" / "schema" / "certificate.json").read_text() == schema_text()


@pytest.mark.parametrize("name", ["fresh", "seeded"])
def test_real_certificates_follow_the_schema(runs, name):
    plain = json.loads(json.dumps(export_json(export(runs / name)), allow_nan=False))
    ExportModel.model_validate(plain)
    stated = json.loads((runs / name / "certificate.json").read_text())
    assert Certificate.from_json(plain["certificate"]) == Certificate.from_json(stated)
    broken = (
        plain | {"unknown": 1},
        {key: plain[key] for key in plain if key != "certificate"},
        plain | {"schema": "v2"},
    )
    for each in broken:
        with pytest.raises(ValidationError):
            ExportModel.model_validate(each)


def _of_certificate(**change: object):
    return lambda plain: plain["certificate"].update(change)


def _of_guarantee(**change: object):
    return lambda plain: plain["certificate"]["guarantees"][0].update(change)


@pytest.mark.parametrize(
    "spoil",
    [
        _of_guarantee(epsilon=-1.0),
        _of_guarantee(epsilon=math.nan),
        _of_guarantee(epsilon="infinite"),
        _of_guarantee(units=0),
        _of_guarantee(rounds=0),
        _of_certificate(guarantees=[]),
        lambda plain: plain.update(rounds=0),
        lambda plain: plain.update(digests={}),
    ],
)
def test_wrong_figures_do_not_follow_the_schema(runs, spoil):
    plain = export_json(export(runs / "fresh"))
    ExportModel.model_validate(plain)
    spoil(plain)
    with pytest.raises(ValidationError):
        ExportModel.model_validate(plain)


def test_the_words_of_a_certificate_begin_with_what_limits_it(runs):
    assert "seed" in export_json(export(runs / "seeded"))["in_words"].split(". ")[0]


def test_no_export_before_the_end(runs, tmp_path):
    import shutil

    copy = shutil.copytree(runs / "fresh", tmp_path / "copy")
    lines = (copy / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "ledger.jsonl").write_bytes(b"".join(lines[:-1]))
    with pytest.raises(Exception, match=r"ledger\.jsonl"):  # a ledger cut short
        export(copy)


# The required fields and the words of the registry's schema, as of July 2026.
BASIC = {
    "name",
    "data_curators",
    "description",
    "intended_use",
    "data_product_type",
    "data_product_region",
    "publication_date",
    "data_product_sector",
}
SECTIONS = {
    "dp_variant": {"variant_name", "data_domain", "unprotected_quantities"},
    "privacy_loss": {
        "privacy_unit",
        "privacy_unit_details",
        "privacy_parameters",
        "privacy_parameters_details",
    },
    "deployment_model": {
        "model_name",
        "model_name_details",
        "actors",
        "release_type",
        "release_type_details",
        "data_source_type",
        "data_source_type_details",
        "access_type",
        "access_type_details",
    },
    "accounting": {"post_processing", "composition"},
    "implementation": {"preprocessing_and_hyperparameter_tuning", "mechanisms", "justification"},
    "administrative": {"sources", "notes", "registry_authors"},
}


def test_the_registry_entry_has_the_registrys_fields(runs):
    entry = yaml.safe_load(registry_yaml(export(runs / "fresh")))
    assert set(entry) == {"url_slug", "status", "tier", "deployment"}
    assert (entry["status"], entry["tier"]) == ("Draft", 3)
    deployment = entry["deployment"]
    assert set(deployment) == {"basic", *SECTIONS}
    assert set(deployment["basic"]) == BASIC
    for name, fields in SECTIONS.items():
        assert set(deployment[name]) <= fields, name
    assert deployment["dp_variant"]["variant_name"] == "Approximate DP"
    assert deployment["privacy_loss"]["privacy_parameters"] == {"epsilon": pytest.approx(6.0, abs=0.01), "delta": 1e-3}
    assert deployment["basic"]["data_curators"] == ["TO FILL"]
    assert deployment["deployment_model"]["release_type"] == "One release"
    assert "noise_multiplier" in deployment["implementation"]["mechanisms"]


def test_an_experiment_is_not_registered(runs):
    with pytest.raises(Refused, match="experiment"):
        registry_yaml(export(runs / "seeded"))


def test_the_card_says_what_limits_the_figures(runs):
    fresh, seeded = (card_markdown(export(runs / name)) for name in ("fresh", "seeded"))
    assert "| model user |" in fresh
    assert "The seed is fixed" in seeded
    assert "The seed is fixed" not in fresh
    for text in (fresh, seeded):
        rows = [line for line in text.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in rows}) == 1


def test_formats_on_the_command_line(runs, capsys, monkeypatch):
    from sordino.cli import main

    for form, start in (("json", "{"), ("registry", "#"), ("card", "## Privacy")):
        monkeypatch.setattr(sys, "argv", ["sordino", "certify", str(runs / "fresh"), "--format", form])
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code
        assert capsys.readouterr().out.startswith(start)


# --- Trackers --------------------------------------------------------------------------------------------------------


class Kept:
    """A tracker that keeps what it is sent."""

    sent: list[tuple[dict[str, float], int]]

    def __init__(self, name: str, folder: Path) -> None:
        Kept.sent, Kept.closed, Kept.texts = [], False, {}

    def log(self, values, step):
        Kept.sent.append((dict(values), step))

    def text(self, name, text):
        Kept.texts[name] = text

    def close(self):
        Kept.closed = True


ROW = {
    "round": 3,
    "accuracy": 0.5,
    "test_loss": math.nan,
    "epsilon": 1.5,
    "epsilon_of": "whose",
    "rounds": 9,
    "seconds": 2.0,
    "not_private": {"mean_norm": 2.0, "signal_to_noise": None},
}


@pytest.fixture
def kept(monkeypatch):
    monkeypatch.setitem(tracking.TRACKERS, "kept", Kept)
    module = ModuleType("kept")
    monkeypatch.setitem(sys.modules, "kept", module)
    module.__spec__ = __import__("importlib.machinery", fromlist=["ModuleSpec"]).ModuleSpec("kept", None)


@pytest.mark.parametrize(
    ("name", "everything", "keys"),
    [
        ("fresh", False, {"epsilon", "accuracy"}),
        ("seeded", False, {"epsilon"}),
        ("seeded", True, {"epsilon", "accuracy", "not_private/mean_norm"}),
    ],
)
def test_a_tracker_gets_what_a_guarantee_covers(kept, runs, name, everything, keys):
    certificate = Certificate.from_json(json.loads((runs / name / "certificate.json").read_text()))
    with Tracking("kept", certificate, runs / name, everything=everything) as rows:
        assert bool(rows.held_back) == (keys == {"epsilon"})
        rows.send(ROW)
    ((values, step),) = Kept.sent
    assert (set(values), step) == (keys, 3)
    assert Kept.texts == {"certificate": str(certificate)}
    assert Kept.closed


def test_trackers_that_are_not_there_are_refused():
    with pytest.raises(InvalidInput, match="tensorboard, mlflow, wandb"):
        require_tracker("paper")
    for name in tracking.TRACKERS:
        if __import__("importlib.util", fromlist=["util"]).find_spec(name) is None:
            with pytest.raises(InvalidInput, match=f"pip install {name}"):
                require_tracker(name)
