"""`python -m sordino.experiments.which_method` runs the study, writes results/which_method/ and docs/which_method.md.

A call that was interrupted goes on from runs/unfinished/which_method/ when it is repeated.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from sordino.experiments.provenance import Calls, provenance
from sordino.experiments.which_method.page import write_page
from sordino.experiments.which_method.study import RESULTS, Part, Study, StudyTask, load_study, parts_of, run_task
from sordino.files import write_atomically
from sordino.report.results import Result
from sordino.runs.store import one_at_a_time

COMMAND = "python -m sordino.experiments.which_method"
UNFINISHED = Path("runs/unfinished/which_method")


def main() -> None:
    """Run what is missing of the study, and write everything."""
    study = load_study()
    calls = Calls(UNFINISHED, provenance(COMMAND))
    if calls.elsewhere:
        print(f"{UNFINISHED} was begun on {calls.elsewhere}: all of it begins anew here", file=sys.stderr)
        shutil.rmtree(UNFINISHED)
        calls = Calls(UNFINISHED, provenance(COMMAND))
    with one_at_a_time(UNFINISHED):
        calls.note()
        for task in study.tasks:
            written = RESULTS / f"{task.name}.json"
            written.parent.mkdir(parents=True, exist_ok=True)
            result = _of_task(study, task) | {"provenance": calls.provenance}
            write_atomically(written, (json.dumps(result, indent=1, allow_nan=False) + "\n").encode())
            print(f"written: {written}", file=sys.stderr)
        write_page()
        shutil.rmtree(UNFINISHED)


def _of_task(study: Study, task: StudyTask) -> Result:
    """All comparisons on a task."""
    total = len(parts_of(study, task))

    def known(part: Part) -> Result | None:
        kept = UNFINISHED / f"{part.name}.json"
        found: Result | None = json.loads(kept.read_text()) if kept.exists() else None
        return found

    def keep(part: Part, result: Result) -> None:
        write_atomically(UNFINISHED / f"{part.name}.json", json.dumps(result, indent=1, allow_nan=False).encode())
        print(f"{part.name}: {result['rows'][0]['method']} first, of {total} comparisons", file=sys.stderr)

    return {"name": task.name, "about": task.about, "comparisons": list(run_task(study, task, known, keep))}


if __name__ == "__main__":
    main()
