"""`sordino account MECHANISM ...`: the privacy calculator. Each function of `privacy.calculator` is a command."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, get_args

import typer

from sordino.cli.output import show
from sordino.cli.progress import working
from sordino.privacy import calculator
from sordino.privacy.release_file import compose

app = typer.Typer(
    help="The privacy calculator: the cost of noise, and the noise that a budget needs.", no_args_is_help=True
)
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _account(title: str, as_json: bool, calculate: Callable[[], dict[str, object]]) -> None:
    with working("accounting"):
        result = calculate()
    show(title, result, as_json=as_json)


def _option(parameter: Parameter) -> Parameter:
    kind, text = get_args(parameter.annotation)
    return parameter.replace(annotation=Annotated[kind, typer.Option(help=text)])


def _add_command(title: str, calculate: Callable[..., dict[str, object]]) -> None:
    """Add a function of the calculator. Its arguments become options, with the help that annotates them."""

    def command(json: bool, **arguments: object) -> None:
        _account(title, json, lambda: calculate(**arguments))

    options = [_option(parameter) for parameter in signature(calculate, eval_str=True).parameters.values()]
    options.append(Parameter("json", Parameter.KEYWORD_ONLY, default=False, annotation=Json))
    command.__signature__ = Signature(options)  # type: ignore[attr-defined]
    command.__annotations__ = {option.name: option.annotation for option in options}
    app.command(calculate.__name__.replace("_", "-"), help=calculate.__doc__)(command)


_add_command("Gaussian noise", calculator.gaussian)
_add_command("Laplace noise", calculator.laplace)
_add_command("Secure aggregation", calculator.secure_aggregation)
_add_command("Truncated discrete Laplace", calculator.tdl)
_add_command("QTDL", calculator.qtdl)
_add_command("Binomial noise", calculator.binomial)
_add_command("PrivUnit", calculator.privunit)
_add_command("ScalarDP", calculator.scalar_dp)
_add_command("Shuffling", calculator.shuffle)


@app.command("compose")
def compose_command(
    file: Annotated[Path, typer.Argument(help="TOML: delta, relation, rounds and [[release]] tables; see the docs.")],
    json: Json = False,
) -> None:
    """Several releases from a TOML file, composed (for example a vector and a step size)."""
    _account(f"Composition of {file}", json, lambda: compose(file))
