"""`sordino account MECHANISM ...`: the privacy calculator."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from sordino.cli.output import show, working
from sordino.errors import InvalidInput, require
from sordino.privacy import published
from sordino.privacy.accountants import account_of
from sordino.privacy.binomial import binomial_bits, binomial_event, cpsgd_coins, cpsgd_epsilon, paper_binomial_bits
from sordino.privacy.calibration import calibrate_gaussian
from sordino.privacy.certification import certify
from sordino.privacy.events import (
    Approximate,
    Claimed,
    Composed,
    DiscreteNoise,
    Event,
    Gaussian,
    Laplace,
    NonPrivate,
    Pure,
    Repeated,
    ZeroConcentrated,
    sampled,
)
from sordino.privacy.gaussian import gaussian_epsilon
from sordino.privacy.guarantee import Certificate, Warning
from sordino.privacy.privunit import privunit_constants, scalar_dp_constants
from sordino.privacy.quantized import (
    Sensitivities,
    assumed_sensitivities,
    calibrations,
    client_sensitivities,
    theorem_1_calibration,
)
from sordino.privacy.sampling import Sampling, parse_sampling
from sordino.privacy.shuffle import shuffle_epsilon
from sordino.privacy.tdl import log_not_worst_delta, shift_counts, tdl_normalizer, tdl_tail, tdl_variance
from sordino.types import Observer, Relation, Unit

app = typer.Typer(help="The privacy calculator: what noise costs, and what a budget needs.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Epsilon = Annotated[float | None, typer.Option(help="epsilon.")]
Delta = Annotated[float | None, typer.Option(help="delta, below 1 over the number of protected units.")]
Rounds = Annotated[int | None, typer.Option(help="In how many rounds a unit may take part (1 if left out).")]
SamplingText = Annotated[
    str, typer.Option(help="full, poisson:Q, without-replacement:K/N or with-replacement:K/N, drawn in secret.")
]
RelationText = Annotated[str, typer.Option(help="Neighbours: add-remove, zero-out or replace-one.")]
UnitText = Annotated[str, typer.Option(help="What is protected: client or record.")]
ObserverText = Annotated[str, typer.Option(help="Who looks: server, model user, outsider or peer.")]
Units = Annotated[int | None, typer.Option(help="How many units are protected; printed beside delta.")]
Dim = Annotated[int, typer.Option(help="Number of coordinates d.")]
Levels = Annotated[int, typer.Option(help="Quantisation levels s.")]
Mu = Annotated[
    float | None, typer.Option(help="Assume the sensitivities of the paper's eq. (6); nothing enforces them.")
]

LOCAL = Warning("per-message", "this is one message; it composes over every round that a client takes part in")


@app.command("gaussian")
def gaussian_command(
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise std over the sensitivity under the stated relation.")
    ] = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    rounds: Rounds = None,
    sampling: SamplingText = "full",
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
    drawn, related = parse_sampling(sampling), Relation.parse(relation)
    if formula is not None:
        require(formula == "classical", "formula", formula, "use classical, or leave it out for the exact calibration")
        if epsilon is None or delta is None:
            raise InvalidInput("formula", formula, "give --epsilon and --delta with it")
        noise_multiplier, epsilon = published.classical_gaussian_noise(epsilon, delta), None
    with working("accounting"):
        noise_multiplier, epsilon, delta = _solve(noise_multiplier, epsilon, delta, rounds or 1, drawn, related)
        certificate = certify(
            Gaussian(noise_multiplier),
            relation=related,
            observer=Observer.parse(observer),
            rounds=rounds if rounds is not None or Observer.parse(observer) is Observer.SERVER else 1,
            delta=delta,
            unit=Unit.parse(unit),
            sampling=drawn,
            units=units,
        )
    result = {"mechanism": "gaussian", "noise_multiplier": noise_multiplier, "sampling": sampling}
    show("Gaussian noise", result | _certified(certificate, epsilon), as_json=json)


def _solve(
    noise_multiplier: float | None,
    epsilon: float | None,
    delta: float | None,
    rounds: int,
    sampling: Sampling,
    relation: Relation,
) -> tuple[float, float | None, float]:
    """Fill in the missing one; epsilon stays None where the certificate is to compute it."""
    if [noise_multiplier, epsilon, delta].count(None) != 1:
        given = ", ".join(
            f"{name} = {value}"
            for name, value in (("noise_multiplier", noise_multiplier), ("epsilon", epsilon), ("delta", delta))
            if value is not None
        )
        raise InvalidInput("given", given or "nothing", "give exactly two of --noise-multiplier, --epsilon and --delta")
    if noise_multiplier is None:
        assert epsilon is not None
        assert delta is not None
        solved = calibrate_gaussian(epsilon=epsilon, delta=delta, rounds=rounds, sampling=sampling, relation=relation)
        return solved, None, delta
    if delta is None:
        assert epsilon is not None
        event = Repeated(sampled(Gaussian(noise_multiplier), sampling), rounds)
        return noise_multiplier, epsilon, account_of(event, relation).delta(epsilon)
    return noise_multiplier, None, delta


@app.command("laplace")
def laplace_command(
    noise_multiplier: Annotated[float, typer.Option(help="Noise scale b over the L1 sensitivity.")],
    delta: Annotated[float, typer.Option(help="delta of the total.")] = 0.0,
    rounds: Annotated[int, typer.Option(help="Number of rounds.")] = 1,
    sampling: SamplingText = "full",
    relation: RelationText = "add-remove",
    units: Units = None,
    json: Json = False,
) -> None:
    """Laplace noise: pure DP, composed exactly."""
    with working("accounting"):
        certificate = certify(
            Laplace(noise_multiplier),
            relation=Relation.parse(relation),
            observer=Observer.MODEL_USER,
            rounds=rounds,
            delta=delta,
            sampling=parse_sampling(sampling),
            units=units,
        )
    result = {"mechanism": "laplace", "noise_multiplier": noise_multiplier, "sampling": sampling}
    show("Laplace noise", result | _certified(certificate), as_json=json)


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
    rate, shifts = _number("alpha", alpha), _shift(shift)
    require((epsilon is None) != (delta is None), "epsilon", epsilon, "give exactly one of --epsilon and --delta")
    account = account_of(DiscreteNoise("tdl", (m, rate), shifts), Relation.parse(relation))
    with working("convolving"):
        if delta is None:
            assert epsilon is not None
            delta = account.delta(epsilon)
        else:
            epsilon = account.epsilon(delta)
    one_shift = Warning("one-shift", "this is the figure for the given shift, not for the worst one")
    result = {
        "mechanism": "tdl",
        "m": m,
        "alpha": rate,
        "normalizer": tdl_normalizer(m, rate),
        "variance": tdl_variance(m, rate),
        "tails": [{"shift": k, "coordinates": count, "tau": tdl_tail(k, m, rate)} for k, count in shifts],
        "epsilon": epsilon,
        "delta": delta,
    }
    statement = _statement(relation, Observer.SERVER, account.accountant, (one_shift, LOCAL))
    show("Truncated discrete Laplace", result | statement, as_json=json)


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
    bounds = _bounds(dim, levels, mu, relation)
    sound = calibrations(bounds, epsilon, delta)
    paper = theorem_1_calibration(bounds, epsilon)
    assert paper.alpha is not None
    log_kept = log_not_worst_delta(paper.support, paper.alpha, dim, bounds.l1, bounds.linf)
    assert isinstance(paper.event, Claimed)
    result = {
        "mechanism": "qtdl, Theorem 1 calibration: no valid guarantee",
        "m": paper.support,
        "t": paper.bits,
        "alpha": paper.alpha,
        "noise_std": paper.noise_std / levels,
        "epsilon": epsilon,
        "delta": paper.delta,
        "delta_one_coordinate": tdl_tail(int(bounds.linf), paper.support, paper.alpha),
        "log10_one_minus_delta": log_kept / math.log(10),
        "delta_claimed": f"2^-{dim}",
        "sensitivity_l1": bounds.l1,
        "sensitivity_l2": bounds.l2,
        "sensitivity_linf": bounds.linf,
        "default": sound[0].law,
        "sound": [
            {
                "noise": choice.law,
                "epsilon": epsilon,
                "delta": choice.delta,
                "bits": choice.bits,
                "noise_std": choice.noise_std / levels,
                "m": choice.support,
            }
            for choice in sound
        ],
    }
    warnings = [Warning("no-valid-guarantee", paper.event.claim), LOCAL, *_assumed(bounds)]
    statement = _statement(relation, Observer.SERVER, "exact truncation", tuple(warnings), _unit(mu))
    show("QTDL", result | statement, as_json=json)


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
    """Binomial noise (cpSGD): coins, bits as the paper counts them and as they are, the claim and what is proven."""
    require((epsilon is None) != (coins is None), "epsilon", epsilon, "give exactly one of --epsilon and --coins")
    require(0 < delta < 1, "delta", delta, "must lie in (0, 1)")
    bounds = _bounds(dim, levels, mu, relation)
    N = coins if coins is not None else cpsgd_coins(epsilon or 0.0, bounds, delta)
    account = account_of(binomial_event(N, bounds, delta / 10), Relation.parse(relation))
    claimed = cpsgd_epsilon(N, bounds, delta)
    proven = account.epsilon(delta)
    warnings = [LOCAL, *_assumed(bounds)]
    if proven > claimed:
        text = (
            f"cpSGD's Theorem 1 claims epsilon = {claimed:.6g}: its classical Gaussian term is proven for epsilon <= 1"
        )
        warnings.insert(0, Warning("claim-not-proven", text))
    result = {
        "mechanism": "binomial",
        "coins": N,
        "t_paper": paper_binomial_bits(levels, N),
        "t": binomial_bits(levels, N),
        "noise_std": math.sqrt(N) / 2 / levels,
        "epsilon_claimed": claimed,
        "epsilon": proven,
        "epsilon_gaussian_limit": gaussian_epsilon(bounds.l2 / (math.sqrt(N) / 2), delta),
        "delta": delta,
    }
    statement = _statement(relation, Observer.SERVER, account.accountant, tuple(warnings), _unit(mu))
    show("Binomial noise", result | statement, as_json=json)


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
    constants = privunit_constants(dim, eps0, eps1, gamma)
    event: Event = constants.event
    if eps2 is not None:
        event = Composed((event, scalar_dp_constants(eps2).event))
    with working("accounting"):
        certificate = certify(
            event, relation=Relation.REPLACE_ONE, observer=Observer.SERVER, rounds=rounds, delta=delta
        )
    result = {
        "mechanism": "privunit" if eps2 is None else "privunit x scalar-dp",
        "p": constants.p,
        "gamma": constants.gamma,
        "gamma_rule": gamma,
        "q": constants.q,
        "m": constants.m,
    }
    show("PrivUnit", result | _certified(certificate, extra=(LOCAL,) if rounds == 1 else ()), as_json=json)


@app.command("scalar-dp")
def scalar_dp_command(
    eps2: Annotated[float, typer.Option(help="epsilon of the norm.")],
    bound: Annotated[float, typer.Option(help="The largest norm C.")] = 1.0,
    json: Json = False,
) -> None:
    """ScalarDP: k, a, b and the constants of the squared-norm estimate."""
    c = scalar_dp_constants(eps2, bound)
    warnings = [LOCAL]
    if not c.sign_recoverable:
        text = "two levels have the same magnitude at this eps2: the level must be transmitted"
        warnings.append(Warning("transmit-level", text))
    result = {
        "mechanism": "scalar-dp",
        **{"k": c.k, "a": c.a, "b": c.b, "c1": c.c1, "c2": c.c2, "c3": c.c3},
        "epsilon": c.epsilon,
        "delta": 0.0,
    }
    statement = _statement("replace-one", Observer.SERVER, "randomised response, exact", tuple(warnings))
    show("ScalarDP", result | statement, as_json=json)


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
    with working("accounting"):
        epsilon = shuffle_epsilon(eps0, n, delta, delta0, method)
    trust = Warning(
        "shuffler",
        "holds against whoever sees the shuffled messages, if the shuffler is honest and the others add their noise",
    )
    result = {"mechanism": "shuffle", "eps0": eps0, "n": n, "method": method, "epsilon": epsilon, "delta": delta}
    accountant = f"shuffling, Feldman-McMillan-Talwar 2021, {method}"
    show("Shuffling", result | _statement("replace-one", Observer.SERVER, accountant, (trust,)), as_json=json)


@app.command("compose")
def compose_command(
    file: Annotated[Path, typer.Argument(help="TOML: delta, relation, rounds and [[release]] tables; see the docs.")],
    json: Json = False,
) -> None:
    """Several releases from a TOML file, composed: a vector and a step size, say."""
    spec = _read_toml(file)
    rounds, relation = _whole(spec, "rounds", file, 1), Relation.parse(spec.pop("relation", "add-remove"))
    delta = _real(spec, "delta", file)
    units = _whole(spec, "units", file) if "units" in spec else None
    observer, unit = Observer.parse(spec.pop("observer", "model user")), Unit.parse(spec.pop("unit", "client"))
    drawn = parse_sampling(str(spec.pop("sampling", "full")))
    releases = _required(spec, "release", file)
    _no_more(spec, file, "delta, relation, rounds, sampling, units, observer, unit, release")
    if not (isinstance(releases, list) and releases and all(isinstance(entry, dict) for entry in releases)):
        raise InvalidInput("release", releases, f"in {file}: give at least one [[release]] table")
    named = [(entry.get("name", entry.get("mechanism")), _release(dict(entry), file)) for entry in releases]
    with working("composing"):
        whole = Composed(tuple(event for _, event in named))
        certificate = certify(
            whole,
            relation=relation,
            observer=observer,
            rounds=rounds,
            delta=delta,
            unit=unit,
            units=units,
            sampling=drawn,
        )
        alone = [
            {
                "release": name,
                "epsilon": account_of(Repeated(sampled(event, drawn), rounds), relation).epsilon(delta),
                "delta": delta,
            }
            for name, event in named
        ]
    result = {"mechanism": f"{len(named)} releases", **_certified(certificate), "releases": alone}
    show(f"Composition of {file}", result, as_json=json)


def _release(entry: dict[str, Any], file: Path) -> Event:
    """One [[release]] table as an event of one round."""
    mechanism = str(_required(entry, "mechanism", file))
    entry.pop("name", None)
    repeat = _whole(entry, "times", file, 1)
    makers = {
        "gaussian": ("noise_multiplier", Gaussian),
        "laplace": ("noise_multiplier", Laplace),
        "pure": ("epsilon", Pure),
        "zcdp": ("rho", ZeroConcentrated),
    }
    event: Event
    if mechanism in makers:
        key, make = makers[mechanism]
        event = make(_real(entry, key, file))
    elif mechanism == "approximate":
        event = Approximate(Pure(_real(entry, "epsilon", file)), _real(entry, "delta", file))
    elif mechanism == "privunit":
        d, eps0, eps1 = _whole(entry, "dim", file), _real(entry, "eps0", file), _real(entry, "eps1", file)
        parts = [privunit_constants(d, eps0, eps1, entry.pop("gamma", "exact")).event]
        if "eps2" in entry:
            parts.append(scalar_dp_constants(_real(entry, "eps2", file)).event)
        event = Composed(tuple(parts))
    elif mechanism == "none":
        event = NonPrivate()
    else:
        known = ", ".join([*makers, "approximate", "privunit", "none"])
        raise InvalidInput("mechanism", mechanism, f"in {file}: use one of {known}")
    _no_more(entry, file, "mechanism, name, times and the mechanism's own numbers; sampling stands above, once")
    return Repeated(event, repeat) if repeat != 1 else event


def _certified(
    certificate: Certificate, epsilon: float | None = None, extra: tuple[Warning, ...] = ()
) -> dict[str, Any]:
    """A certificate of one observer as flat JSON: the total, with the single round inside."""
    one_round, total = certificate.guarantees
    flat = total.to_json() | {"scope": total.scope if total.rounds > 1 else "one round"}
    if epsilon is not None:
        flat["epsilon"] = epsilon
    if total.rounds > 1:
        flat["one_round"] = {"epsilon": one_round.to_json()["epsilon"], "delta": one_round.delta}
    warnings = [warning.to_json() for warning in (*certificate.warnings, *extra)]
    return flat | {"warnings": warnings}


def _statement(
    relation: str, observer: Observer, accountant: str, warnings: tuple[Warning, ...], unit: Unit = Unit.CLIENT
) -> dict[str, Any]:
    """What a figure for one message says about itself."""
    return {
        "unit": unit,
        "relation": Relation.parse(relation),
        "observer": observer,
        "scope": "one round",
        "rounds": 1,
        "accountant": accountant,
        "assumptions": [warning.message for warning in warnings if warning.code in ("assumed", "shuffler")],
        "units": None,
        "warnings": [warning.to_json() for warning in warnings],
    }


def _bounds(dim: int, levels: int, mu: float | None, relation: str) -> Sensitivities:
    if mu is None:
        return client_sensitivities(dim, levels, Relation.parse(relation))
    return assumed_sensitivities(dim, levels, mu)


def _unit(mu: float | None) -> Unit:
    """Eq. (6) is about one sample inside a client; the worst case is about the whole client."""
    return Unit.CLIENT if mu is None else Unit.RECORD


def _assumed(bounds: Sensitivities) -> list[Warning]:
    return [] if bounds.assumption is None else [Warning("assumed", bounds.assumption)]


def _number(field: str, text: str) -> float:
    """A number, or a fraction a/b."""
    top, slash, bottom = text.partition("/")
    try:
        return float(top) / float(bottom) if slash else float(top)
    except (ValueError, ZeroDivisionError):
        raise InvalidInput(field, text, "write a number such as 0.1, or a fraction such as 1/6") from None


def _shift(text: str) -> tuple[tuple[int, int], ...]:
    """'2,2,2' or '2x3' as ((2, 3),)."""
    flat: list[int] = []
    pairs: list[tuple[int, int]] = []
    try:
        for part in text.split(","):
            k, times, count = part.partition("x")
            if times:
                require(int(count) >= 1, "shift", text, "write 2x3 for three coordinates that move by 2")
                pairs.append((abs(int(k)), int(count)))
            else:
                flat.append(int(k))
    except ValueError as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput("shift", text, "write whole numbers as 2,2,2 or 2x3") from None
    return tuple((k, count) for k, count in pairs if k) + shift_counts(flat)


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise InvalidInput("file", str(file), f"cannot be read ({error.strerror}): check the path") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput("file", str(file), f"is not valid TOML: {error}") from None


def _required(table: dict[str, Any], key: str, file: Path) -> Any:
    if key not in table:
        raise InvalidInput(key, None, f"is missing in {file}: add it")
    return table.pop(key)


def _real(table: dict[str, Any], key: str, file: Path) -> float:
    value = _required(table, key, file)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput(key, value, f"in {file}: must be a number")
    return float(value)


def _whole(table: dict[str, Any], key: str, file: Path, default: int | None = None) -> int:
    value = table.pop(key, default) if default is not None else _required(table, key, file)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInput(key, value, f"in {file}: must be a whole number, at least 1")
    return value


def _no_more(table: dict[str, Any], file: Path, known: str) -> None:
    for key, value in table.items():
        raise InvalidInput(key, value, f"is not known in {file}; known here: {known}")
