"""All commands together."""

from __future__ import annotations

from typing import Annotated

import typer

import sordino
from sordino.cli import (
    account,
    apply,
    audit,
    bench,
    board,
    certify,
    compare,
    data,
    demo,
    deploy,
    report,
    reproduce,
    rules,
    run,
)

app = typer.Typer(
    name="sordino",
    help="Differentially private federated learning, with a truthful certificate for every run.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(value: bool) -> None:
    if value:
        print(f"sordino {sordino.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


app.add_typer(account.app, name="account")
app.add_typer(data.app, name="data")
app.add_typer(deploy.app, name="deploy")
app.command("run")(run.run_command)
app.command("plan")(run.plan_command)
app.command("predict")(apply.predict_command)
app.command("evaluate")(apply.evaluate_command)
app.command("export")(apply.export_command)
app.command("certify")(certify.certify_command)
app.command("compare")(compare.compare_command)
app.command("board")(board.board_command)
app.command("runs")(board.runs_command)
app.command("report")(report.report_command)
app.command("reproduce")(reproduce.reproduce_command)
app.command("rules")(rules.rules_command)
app.command("demo")(demo.demo_command)
app.command("bench")(bench.bench_command)
app.command("audit")(audit.audit_command)
