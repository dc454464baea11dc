"""`sordino report RUN...`: one HTML file about runs, a sweep, a comparison or a study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sordino.cli.output import Json, require_file, show
from sordino.cli.progress import working
from sordino.errors import require
from sordino.files import write_atomically


def report_command(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Folders of runs; or of one sweep or study, or of what `sordino compare` keeps."),
    ],
    out: Annotated[Path | None, typer.Option(help="The HTML file; beside the run if left out.")] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Leave out what is computed from private data, and the seed.")
    ] = False,
    verify: Annotated[Path | None, typer.Option(help="Check signatures with this public key (OpenSSH or PEM).")] = None,
    json: Json = False,
) -> None:
    """Write a report: the certificate in plain words, who could learn what, charts, settings, digests and warnings.

    The file holds everything that it shows and loads nothing. It prints on two pages.
    """
    from sordino.privacy.signing import read_verifying_key
    from sordino.report.html import report_html
    from sordino.report.page import page_of
    from sordino.report.readers import readers
    from sordino.report.subject import read_subject

    twice = next((run for run in runs if runs.count(run) > 1), None)
    require(twice is None, "run", str(twice), "is named twice: name each run once")
    path = out or _beside(runs, public)
    require(path.suffix == ".html", "out", str(path), "name a file that ends in .html")
    if out is not None:
        require_file("out", out)
    key = None if verify is None else read_verifying_key(verify)
    with working("reading"):
        subject = read_subject(runs, readers(key))
        text = report_html(page_of(subject, public=public))
    write_atomically(path, text.encode(), private=not public)
    result = {"report": str(path), "kind": subject.kind, "runs": len(subject.runs), "public": public}
    show("Report", result | {"bytes": path.stat().st_size}, as_json=json)


def _beside(runs: list[Path], public: bool) -> Path:
    name = "report-public.html" if public else "report.html"
    if len(runs) > 1:
        return runs[0].parent / name
    return runs[0] / name if runs[0].is_dir() else runs[0].with_suffix(".html")
