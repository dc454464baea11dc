"""Published tables beside ours: `python -m experiments.tables [NAME ...] --commit HASH`.

Every cell is a run file; this reads tables.toml, trains each with several seeds, and writes results/paper<k>/NAME.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tomllib
from pathlib import Path
from typing import Any

from sordino.config import load_config
from sordino.simulation.running import environment, simulate

HERE = Path(__file__).parent


def run_cell(
    cell: dict[str, Any], metric: str, seeds: int, tasks: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """One cell: its figures, and the certificate of its run."""
    config = load_config(HERE / cell["file"])
    key = config.file.task.model_dump_json()
    if key not in tasks:
        tasks[key] = config.task()
    accuracies = []
    for seed in range(seeds):
        run = simulate(config.plan(), tasks[key], seed=seed, evaluate_every=100)
        accuracies.append(100 * run.mean_accuracy())
    values = [100 - accuracy for accuracy in accuracies] if "error" in metric else accuracies
    row = {
        "row": cell["row"],
        "column": cell["column"],
        "paper": cell.get("paper"),
        "mean": round(statistics.mean(values), 3),
        "std": round(statistics.stdev(values), 3) if seeds > 1 else None,
        "seeds": list(range(seeds)),
    }
    return row, {"row": cell["row"], "column": cell["column"], **run.certificate.to_json()}


def main() -> None:
    """Run the tables that are asked for, all if none is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--commit", required=True, help="what the code is at, for the record")
    parser.add_argument("--out", type=Path, default=Path("results"))
    arguments = parser.parse_args()
    tables = tomllib.loads((HERE / "tables.toml").read_text())["table"]
    known = [f"paper{table['paper']}/{table['name']}" for table in tables]
    if unknown := set(arguments.names) - {name for long in known for name in (long, long.partition("/")[2])}:
        sys.exit(f"error: {', '.join(sorted(unknown))}: no such table; use {', '.join(known)}")
    tasks: dict[str, Any] = {}
    for table in tables:
        called = {table["name"], f"paper{table['paper']}/{table['name']}"}
        if arguments.names and not called & set(arguments.names):
            continue
        rows, guarantees = [], []
        for cell in table["cells"]:
            row, guarantee = run_cell(cell, table["metric"], arguments.seeds, tasks)
            print(
                f"{table['name']}: {row['row']}, {row['column']}: {row['mean']} (paper {row['paper']})", file=sys.stderr
            )
            rows.append(row)
            guarantees.append(guarantee)
        command = f"python -m experiments.tables paper{table['paper']}/{table['name']} --seeds {arguments.seeds}"
        made = environment()
        provenance = {
            "commit": arguments.commit,
            "versions": {name: made[name] for name in ("sordino", "jax", "numpy", "python")},
            "device": made["device"],
            "date": made["date"],
            "command": command,
        }
        path = arguments.out / f"paper{table['paper']}" / f"{table['name']}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        result = {
            "name": table["name"],
            "metric": table["metric"],
            "rows": rows,
            "guarantees": guarantees,
            "provenance": provenance,
        }
        path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
