"""`python -m sordino.experiments.pages` writes the pages of results in docs/ and the README's summary from results/."""

from __future__ import annotations

from pathlib import Path

from sordino.config import tasks_of
from sordino.data import where
from sordino.errors import InvalidInput
from sordino.experiments.specs import find_spec
from sordino.report import results
from sordino.report.results import Result, with_summary


def results_pages(folder: Path) -> dict[str, str]:
    """All pages of a results folder by their names in docs/, with the warnings of today."""
    return results.pages(folder, _certificates_today)


def _certificates_today(table: Result) -> list[Result]:
    """The kept certificates with the warnings of today added: a result may be older than a warning.

    Only where the data are at hand on every machine, that is synthetic or embedded, so that the page is the same
    everywhere.
    """
    kept: list[Result] = table["guarantees"]
    try:
        spec = find_spec(f"{table['paper']}-{table['name']}")
    except InvalidInput:  # made by a script
        return kept
    if not all(where(name) == "embedded" for name in spec.file.data):
        return kept
    points = spec.points(quick=False)
    tasks = tasks_of(point.config for point in points)
    today = {}
    for cell, config in points:
        certificate = config.point(tasks[config.task_key]).answer.certificate
        today[cell.row, cell.column] = certificate.to_json()["warnings"]
    return [each | {"warnings": [*each["warnings"], *today.get((each["row"], each["column"]), ())]} for each in kept]


if __name__ == "__main__":
    for name, text in results_pages(Path("results")).items():
        page = Path("docs", name)
        page.parent.mkdir(exist_ok=True)
        page.write_text(text)
    Path("README.md").write_text(with_summary(Path("README.md").read_text(), Path("results")))
