"""What a release says of itself: one version, a citation that tools read, files that a wheel holds."""

from __future__ import annotations

import re
import tomllib
import zipfile

import pytest
import yaml

import sordino
from tests.pages import ROOT
from tools import dist

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]


def test_the_version_stands_in_one_place():
    assert "version" not in PROJECT
    assert SETTINGS["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "sordino.__version__"}
    for name in ("pyproject.toml", "CITATION.cff", "zensical.toml"):
        assert f'"{sordino.__version__}"' not in (ROOT / name).read_text()


def test_the_changelog_begins_with_this_version():
    assert re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)[1] == sordino.__version__


def test_the_citation_has_the_keys_that_the_format_requires():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] in ("software", "dataset")
    assert citation["license"] == PROJECT["license"]
    assert [author["name"] for author in citation["authors"]] == [author["name"] for author in PROJECT["authors"]]


def test_extras_of_the_documents_are_those_of_the_package():
    extras = set(PROJECT["optional-dependencies"])
    text = (ROOT / "README.md").read_text() + (ROOT / "docs" / "index.md").read_text()
    said = set(re.findall(r"sordino\[(\w+)\]", text))
    assert {"gpu", "deploy", "docs"} <= said <= extras


def test_a_wheel_that_lacks_a_file_is_found(tmp_path):
    wheel = tmp_path / "some.whl"
    files = dist.packaged_files()
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in files:
            if path.name not in ("digits.npz", "py.typed"):
                archive.writestr(str(path.relative_to(ROOT / "src")), "")
    assert dist.missing_from(wheel) == {"sordino/data/embedded/digits.npz", "sordino/py.typed"}


def test_the_release_is_checked_with_a_run_file_of_the_documents():
    assert tomllib.loads(dist.first_run_file())["algorithm"]["name"] == "fedavg"


@pytest.mark.parametrize("target", ["test", "docs", "dist"])
def test_the_workflow_runs_targets_of_the_makefile(target):
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    commands = [step.get("run") for job in workflow["jobs"].values() for step in job["steps"]]
    assert f"make {target}" in commands
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)
    versions = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == versions
