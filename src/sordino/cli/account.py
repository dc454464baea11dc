"""`sordino account MECHANISM ...`: the privacy calculator."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from sordino.cli.output import show, working
from sordino.errors import InvalidInput, require
from sordino.privacy import calculator
from sordino.privacy.tdl import shift_counts

app = typer.Typer(
    help="The privacy calculator: the cost of noise, and the noise that a budget needs.", no_args_is_help=True
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Epsilon = Annotated[float | None, typer.Option(help="epsilon.")]
Delta = Annotated[float | None, typer.Option(help="delta, below 1 over the number of protected units.")]
Rounds = Annotated[int | None, typer.Option(help="Number of rounds in which a unit may take part (default 1).")]
CohortText = Annotated[
    str, typer.Option(help="Who takes part in a round, in secret: full, poisson:Q, fixed:K/N or with-replacement:K/N.")
]
RelationText = Annotated[str, typer.Option(help="Neighbours: add-remove, zero-out or replace-one.")]
UnitText = Annotated[str, typer.Option(help="What is protected: client or record.")]
ObserverText = Annotated[str, typer.Option(help="The observer: server, model user, outsider or peer.")]
Units = Annotated[int | None, typer.Option(help="Number of protected units, printed beside delta.")]
Dim = Annotated[int, typer.Option(help="Number of coordinates d.")]
Levels = Annotated[int, typer.Option(help="Quantisation levels s.")]
Mu = Annotated[
    float | None, typer.Option(help="Assume the sensitivities of the paper's eq. (6); nothing enforces them.")
]


def _account(title: str, as_json: bool, calculate: Callable[[], dict[str, object]]) -> None:
    with working("accounting"):
        result = calculate()
    show(title, result, as_json=as_json)


@app.command("gaussian")
def gaussian_command(
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise std over the sensitivity under the stated relation.")
    ] = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    rounds: Rounds = None,
    cohort: CohortText = "full",
    relation: RelationText = "add-remove",
    unit: UnitText = "client",
    observer: ObserverText = "model user",
    units: Units = None,
    formula: Annotated[
        str | None, typer.Option(help="Take the noise of one round from a published formula: classical.")
    ] = None,
    json: Json = False,
) -> None:
    """Gaussian noise: give two of noise multiplier, epsilon and delta; the third is computed."""
    _account(
        "Gaussian noise",
        json,
        lambda: calculator.gaussian(
            noise_multiplier=noise_multiplier,
            epsilon=epsilon,
            delta=delta,
            rounds=rounds,
            cohort=cohort,
            relation=relation,
            unit=unit,
            observer=observer,
            units=units,
            formula=formula,
        ),
    )


@app.command("laplace")
def laplace_command(
    noise_multiplier: Annotated[float, typer.Option(help="Noise scale b over the L1 sensitivity.")],
    delta: Annotated[float, typer.Option(help="delta of the total.")] = 0.0,
    rounds: Annotated[int, typer.Option(help="Number of rounds.")] = 1,
    cohort: CohortText = "full",
    relation: RelationText = "add-remove",
    units: Units = None,
    json: Json = False,
) -> None:
    """Laplace noise: pure DP, composed exactly."""
    _account(
        "Laplace noise",
        json,
        lambda: calculator.laplace(
            noise_multiplier=noise_multiplier,
            delta=delta,
            rounds=rounds,
            cohort=cohort,
            relation=relation,
            units=units,
        ),
    )


@app.command("tdl")
def tdl_command(
    m: Annotated[int, typer.Option(help="The noise lives on {-m, ..., m}.")],
    alpha: Annotated[str, typer.Option(help="Decay alpha; a fraction such as 1/6 is understood.")],
    shift: Annotated[
        str, typer.Option(help="Integer shift between neighbours, as 2,2,2 or 2x3 (three coordinates by 2).")
    ],
    epsilon: Epsilon = None,
    delta: Delta = None,
    relation: RelationText = "replace-one",
    json: Json = False,
) -> None:
    """Truncated discrete Laplace noise: normalizer, variance, and the exact delta (or epsilon) for one shift."""
    _account(
        "Truncated discrete Laplace",
        json,
        lambda: calculator.tdl(
            m=m, alpha=_fraction("alpha", alpha), shift=_shift(shift), epsilon=epsilon, delta=delta, relation=relation
        ),
    )


@app.command("qtdl")
def qtdl_command(
    dim: Dim,
    levels: Levels,
    epsilon: Annotated[float, typer.Option(help="epsilon of one message.")],
    mu: Mu = None,
    delta: Annotated[float, typer.Option(help="delta of the sound calibrations.")] = 3e-6,
    relation: RelationText = "replace-one",
    json: Json = False,
) -> None:
    """Quantised messages: the paper's Theorem 1 with its true delta, and the sound choices with bits and noise."""
    _account(
        "QTDL",
        json,
        lambda: calculator.qtdl(dim=dim, levels=levels, epsilon=epsilon, mu=mu, delta=delta, relation=relation),
    )


@app.command("binomial")
def binomial_command(
    dim: Dim,
    levels: Levels,
    epsilon: Epsilon = None,
    coins: Annotated[int | None, typer.Option(help="Number of coins N, instead of epsilon.")] = None,
    mu: Mu = None,
    delta: Annotated[float, typer.Option(help="delta of one message.")] = 3e-6,
    relation: RelationText = "replace-one",
    json: Json = False,
) -> None:
    """Binomial noise (cpSGD): coins, bits (true and as the paper counts them), claimed and proven epsilon."""
    _account(
        "Binomial noise",
        json,
        lambda: calculator.binomial(
            dim=dim, levels=levels, epsilon=epsilon, coins=coins, mu=mu, delta=delta, relation=relation
        ),
    )


@app.command("privunit")
def privunit_command(
    dim: Dim,
    eps0: Annotated[float, typer.Option(help="Privacy of the choice of the cap.")],
    eps1: Annotated[float, typer.Option(help="Privacy of the cap itself.")],
    eps2: Annotated[float | None, typer.Option(help="Privacy of the norm by ScalarDP, for the whole message.")] = None,
    gamma: Annotated[str, typer.Option(help="exact, sufficient (condition-1) or condition-2.")] = "exact",
    rounds: Annotated[int, typer.Option(help="Number of messages of one client.")] = 1,
    delta: Annotated[float, typer.Option(help="delta of the total; 0 for pure DP.")] = 0.0,
    json: Json = False,
) -> None:
    """PrivUnit: p, gamma, m and the exact epsilon of a direction (with --eps2, of direction and norm)."""
    _account(
        "PrivUnit",
        json,
        lambda: calculator.privunit(dim=dim, eps0=eps0, eps1=eps1, eps2=eps2, gamma=gamma, rounds=rounds, delta=delta),
    )


@app.command("scalar-dp")
def scalar_dp_command(
    eps2: Annotated[float, typer.Option(help="epsilon of the norm.")],
    bound: Annotated[float, typer.Option(help="The largest norm C.")] = 1.0,
    json: Json = False,
) -> None:
    """ScalarDP: k, a, b and the constants of the squared-norm estimate."""
    _account("ScalarDP", json, lambda: calculator.scalar_dp(eps2=eps2, bound=bound))


@app.command("shuffle")
def shuffle_command(
    eps0: Annotated[float, typer.Option(help="epsilon of one local message.")],
    n: Annotated[int, typer.Option(help="Number of shuffled messages.", max=100_000_000)],
    delta: Annotated[float, typer.Option(help="delta after shuffling.")],
    delta0: Annotated[float, typer.Option(help="delta of one local message.")] = 0.0,
    method: Annotated[str, typer.Option(help="numeric or closed (Feldman, McMillan and Talwar 2021).")] = "numeric",
    json: Json = False,
) -> None:
    """Amplification by shuffling one message from each of n clients."""
    _account("Shuffling", json, lambda: calculator.shuffle(eps0=eps0, n=n, delta=delta, delta0=delta0, method=method))


@app.command("compose")
def compose_command(
    file: Annotated[Path, typer.Argument(help="TOML: delta, relation, rounds and [[release]] tables; see the docs.")],
    json: Json = False,
) -> None:
    """Several releases from a TOML file, composed (for example a vector and a step size)."""
    try:
        spec = tomllib.loads(file.read_text())
    except OSError as error:
        raise InvalidInput("file", str(file), f"cannot be read ({error.strerror}): check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput("file", str(file), f"is not valid TOML: {error}") from None
    _account(f"Composition of {file}", json, lambda: calculator.compose(spec=spec, source=str(file)))


def _fraction(field: str, text: str) -> float:
    """A number, or a fraction a/b."""
    top, slash, bottom = text.partition("/")
    try:
        return float(top) / float(bottom) if slash else float(top)
    except (ValueError, ZeroDivisionError):
        raise InvalidInput(field, text, "write a number such as 0.1, or a fraction such as 1/6") from None


def _shift(text: str) -> calculator.Shift:
    """'2,2,2' or '2x3' as ((2, 3),)."""
    flat: list[int] = []
    pairs: list[tuple[int, int]] = []
    for part in text.split(","):
        k, times, count = part.partition("x")
        try:
            moved, coordinates = int(k), int(count) if times else 1
        except ValueError:
            raise InvalidInput("shift", text, "write whole numbers as 2,2,2 or 2x3") from None
        require(coordinates >= 1, "shift", text, "write 2x3 for three coordinates that move by 2")
        if times:
            pairs.append((abs(moved), coordinates))
        else:
            flat.append(moved)
    return tuple((k, count) for k, count in pairs if k) + shift_counts(flat)
