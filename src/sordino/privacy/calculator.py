"""The privacy calculator behind `sordino account`: the cost of noise, and the noise that a budget needs.

Every function returns a flat table of plain values. Its figures come with the unit, relation, observer, scope,
accountant and warnings that they need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from sordino.errors import InvalidInput, require
from sordino.privacy import published, wording
from sordino.privacy.accountants import account_of
from sordino.privacy.binomial import binomial_bits, binomial_event, cpsgd_coins, cpsgd_epsilon, paper_binomial_bits
from sordino.privacy.calibration import calibrate_gaussian
from sordino.privacy.certification import certify
from sordino.privacy.events import (
    Approximate,
    Claimed,
    Composed,
    DiscreteNoise,
    Gaussian,
    Laplace,
    NonPrivate,
    Pure,
    Repeated,
    ZeroConcentrated,
    sampled,
)
from sordino.privacy.gaussian import gaussian_epsilon
from sordino.privacy.guarantee import Certificate, Json
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
from sordino.privacy.tdl import log_not_worst_delta, tdl_normalizer, tdl_tail, tdl_variance
from sordino.types import Event, Observer, Relation, Unit, Warning

Shift: TypeAlias = tuple[
    tuple[int, int], ...
]  # pairs of an integer shift and the number of coordinates that move by it


# --- Noise on sums ------------------------------------------------------------------------------------------------


def gaussian(
    *,
    noise_multiplier: float | None,
    epsilon: float | None,
    delta: float | None,
    rounds: int | None,
    cohort: str,
    relation: str,
    unit: str,
    observer: str,
    units: int | None,
    formula: str | None,
) -> Json:
    """Gaussian noise: two of noise multiplier, epsilon and delta are given, the third is computed."""
    drawn, related, seen_by = parse_sampling(cohort), Relation.parse(relation), Observer.parse(observer)
    if formula is not None:
        require(formula == "classical", "formula", formula, "use classical, or leave it out for the exact calibration")
        if epsilon is None or delta is None:
            raise InvalidInput("formula", formula, "give --epsilon and --delta with it")
        noise_multiplier, epsilon = published.classical_gaussian_noise(epsilon, delta), None
    noise_multiplier, epsilon, delta = _solve(noise_multiplier, epsilon, delta, rounds or 1, drawn, related)
    certificate = certify(
        Gaussian(noise_multiplier),
        relation=related,
        observer=seen_by,
        rounds=1 if rounds is None and seen_by is not Observer.SERVER else rounds,
        delta=delta,
        unit=unit,
        sampling=drawn,
        units=units,
    )
    result = {"mechanism": "gaussian", "noise_multiplier": noise_multiplier, "cohort": cohort}
    return result | _certified(certificate) | ({} if epsilon is None else {"epsilon": epsilon})


def _solve(
    noise_multiplier: float | None,
    epsilon: float | None,
    delta: float | None,
    rounds: int,
    sampling: Sampling,
    relation: Relation,
) -> tuple[float, float | None, float]:
    """Fill in the missing value; epsilon stays None unless delta was computed for it."""
    given = {"noise_multiplier": noise_multiplier, "epsilon": epsilon, "delta": delta}
    if epsilon is not None and delta is not None and noise_multiplier is None:
        solved = calibrate_gaussian(epsilon=epsilon, delta=delta, rounds=rounds, sampling=sampling, relation=relation)
        return solved, None, delta
    if noise_multiplier is not None and epsilon is not None and delta is None:
        event = Repeated(sampled(Gaussian(noise_multiplier), sampling), rounds)
        return noise_multiplier, epsilon, account_of(event, relation).delta(epsilon)
    if noise_multiplier is not None and delta is not None and epsilon is None:
        return noise_multiplier, None, delta
    said = ", ".join(f"{name} = {value}" for name, value in given.items() if value is not None)
    raise InvalidInput("given", said or "nothing", "give exactly two of --noise-multiplier, --epsilon and --delta")


def laplace(
    *, noise_multiplier: float, delta: float, rounds: int, cohort: str, relation: str, units: int | None
) -> Json:
    """Laplace noise: pure differential privacy, composed exactly."""
    certificate = certify(
        Laplace(noise_multiplier),
        relation=relation,
        observer=Observer.MODEL_USER,
        rounds=rounds,
        delta=delta,
        sampling=parse_sampling(cohort),
        units=units,
    )
    result = {"mechanism": "laplace", "noise_multiplier": noise_multiplier, "cohort": cohort}
    return result | _certified(certificate)


# --- Noise of one message -----------------------------------------------------------------------------------------


def tdl(*, m: int, alpha: float, shift: Shift, epsilon: float | None, delta: float | None, relation: str) -> Json:
    """Truncated discrete Laplace noise: normalizer, variance, and the exact delta (or epsilon) for one shift."""
    account = account_of(DiscreteNoise("tdl", (m, alpha), shift), Relation.parse(relation))
    if epsilon is not None and delta is None:
        delta = account.delta(epsilon)
    elif delta is not None and epsilon is None:
        epsilon = account.epsilon(delta)
    else:
        raise InvalidInput("epsilon", epsilon, "give exactly one of --epsilon and --delta")
    result = {
        "mechanism": "tdl",
        "m": m,
        "alpha": alpha,
        "normalizer": tdl_normalizer(m, alpha),
        "variance": tdl_variance(m, alpha),
        "tails": [{"shift": k, "coordinates": count, "tau": tdl_tail(k, m, alpha)} for k, count in shift],
        "epsilon": epsilon,
        "delta": delta,
    }
    return result | _one_message(account.accountant, wording.ONE_SHIFT, wording.PER_MESSAGE, relation=relation)


def qtdl(*, dim: int, levels: int, epsilon: float, mu: float | None, delta: float, relation: str) -> Json:
    """Quantised messages: the paper's Theorem 1 with its true delta, and the sound choices with bits and noise."""
    bounds = _bounds(dim, levels, mu, relation)
    sound = calibrations(bounds, epsilon, delta)
    paper = theorem_1_calibration(bounds, epsilon)
    assert paper.alpha is not None
    assert isinstance(paper.event, Claimed)
    log_kept = log_not_worst_delta(paper.support, paper.alpha, dim, bounds.l1, bounds.linf)
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
    warnings = wording.no_valid_guarantee(paper.event.claim), wording.PER_MESSAGE
    return result | _one_message("exact truncation", *warnings, relation=relation, assumption=bounds.assumption)


def binomial(
    *, dim: int, levels: int, epsilon: float | None, coins: int | None, mu: float | None, delta: float, relation: str
) -> Json:
    """Binomial noise (cpSGD): coins, bits (true and as the paper counts them), claimed and proven epsilon."""
    require((epsilon is None) != (coins is None), "epsilon", epsilon, "give exactly one of --epsilon and --coins")
    require(0 < delta < 1, "delta", delta, "must lie in (0, 1)")
    bounds = _bounds(dim, levels, mu, relation)
    N = coins if coins is not None else cpsgd_coins(epsilon or 0.0, bounds, delta)
    account = account_of(binomial_event(N, bounds, delta / 10), Relation.parse(relation))
    claimed, proven = cpsgd_epsilon(N, bounds, delta), account.epsilon(delta)
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
    warnings = [wording.claim_not_proven(claimed)] if proven > claimed else []
    warnings.append(wording.PER_MESSAGE)
    return result | _one_message(account.accountant, *warnings, relation=relation, assumption=bounds.assumption)


def privunit(*, dim: int, eps0: float, eps1: float, eps2: float | None, gamma: str, rounds: int, delta: float) -> Json:
    """PrivUnit: p, gamma, m and the exact epsilon of a direction (with eps2, of direction and norm)."""
    constants = privunit_constants(dim, eps0, eps1, gamma)
    event: Event = constants.event
    if eps2 is not None:
        event = Composed((event, scalar_dp_constants(eps2).event))
    certificate = certify(event, relation=Relation.REPLACE_ONE, observer=Observer.SERVER, rounds=rounds, delta=delta)
    result = {
        "mechanism": "privunit" if eps2 is None else "privunit x scalar-dp",
        "p": constants.p,
        "gamma": constants.gamma,
        "gamma_rule": gamma,
        "q": constants.q,
        "m": constants.m,
    }
    return result | _certified(certificate.with_warnings(*([wording.PER_MESSAGE] if rounds == 1 else [])))


def scalar_dp(*, eps2: float, bound: float) -> Json:
    """ScalarDP: k, a, b and the constants of the squared-norm estimate."""
    c = scalar_dp_constants(eps2, bound)
    constants = {"k": c.k, "a": c.a, "b": c.b, "c1": c.c1, "c2": c.c2, "c3": c.c3}
    result = {"mechanism": "scalar-dp", **constants, "epsilon": c.epsilon, "delta": 0.0}
    warnings = [wording.PER_MESSAGE] + ([] if c.sign_recoverable else [wording.TRANSMIT_LEVEL])
    return result | _one_message("randomised response, exact", *warnings)


def shuffle(*, eps0: float, n: int, delta: float, delta0: float, method: str) -> Json:
    """Amplification by shuffling one message from each of n clients."""
    epsilon = shuffle_epsilon(eps0, n, delta, delta0, method)
    result = {"mechanism": "shuffle", "eps0": eps0, "n": n, "method": method, "epsilon": epsilon, "delta": delta}
    accountant = f"shuffling, Feldman-McMillan-Talwar 2021, {method}"
    statement = _one_message(accountant, wording.shuffler(wording.ASSUME_HONEST_SHUFFLER))
    return result | statement | {"assumptions": [wording.ASSUME_HONEST_SHUFFLER]}


def _bounds(dim: int, levels: int, mu: float | None, relation: str) -> Sensitivities:
    if mu is None:
        return client_sensitivities(dim, levels, Relation.parse(relation))
    return assumed_sensitivities(dim, levels, mu)


# --- Several releases ---------------------------------------------------------------------------------------------


def compose(spec: Json, source: str) -> Json:
    """Several releases of one round, composed; `spec` is the table of the TOML file `source`, which errors name."""
    table = _Table(dict(spec), source)
    rounds, relation = table.whole("rounds", 1), Relation.parse(table.pop("relation", "add-remove"))
    delta = table.real("delta")
    units = table.whole("units") if "units" in spec else None
    observer, unit = Observer.parse(table.pop("observer", "model user")), Unit.parse(table.pop("unit", "client"))
    sampling = parse_sampling(str(table.pop("cohort", "full")))
    releases = table.pop("release")
    table.finish("delta, relation, rounds, cohort, units, observer, unit, release")
    if not (isinstance(releases, list) and releases and all(isinstance(entry, dict) for entry in releases)):
        raise InvalidInput("release", releases, f"in {source}: give at least one [[release]] table")
    names = [entry.get("name", entry.get("mechanism")) for entry in releases]
    events = [_release(_Table(dict(entry), source)) for entry in releases]
    certificate = certify(
        Composed(tuple(events)),
        relation=relation,
        observer=observer,
        rounds=rounds,
        delta=delta,
        unit=unit,
        units=units,
        sampling=sampling,
    )
    alone = [account_of(Repeated(sampled(event, sampling), rounds), relation).epsilon(delta) for event in events]
    return {
        "mechanism": f"{len(events)} releases",
        **_certified(certificate),
        "releases": [
            {"release": name, "epsilon": epsilon, "delta": delta} for name, epsilon in zip(names, alone, strict=True)
        ],
    }


class _Table:
    """A TOML table that is read key by key; errors name the key, its value and the file."""

    def __init__(self, values: Json, source: str) -> None:
        self.values, self.source = values, source

    def pop(self, key: str, default: object = None) -> Any:
        if key not in self.values and default is None:
            raise InvalidInput(key, None, f"is missing in {self.source}: add it")
        return self.values.pop(key, default)

    def real(self, key: str) -> float:
        value = self.pop(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidInput(key, value, f"in {self.source}: must be a number")
        return float(value)

    def whole(self, key: str, default: int | None = None) -> int:
        value = self.pop(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidInput(key, value, f"in {self.source}: must be a whole number, at least 1")
        return value

    def finish(self, known: str) -> None:
        for key, value in self.values.items():
            raise InvalidInput(key, value, f"is not known in {self.source}; known here: {known}")


def _privunit_release(table: _Table) -> Event:
    constants = privunit_constants(
        table.whole("dim"), table.real("eps0"), table.real("eps1"), table.pop("gamma", "exact")
    )
    norm = [scalar_dp_constants(table.real("eps2")).event] if "eps2" in table.values else []
    return Composed((constants.event, *norm))


_RELEASES: dict[str, Callable[[_Table], Event]] = {
    "gaussian": lambda table: Gaussian(table.real("noise_multiplier")),
    "laplace": lambda table: Laplace(table.real("noise_multiplier")),
    "pure": lambda table: Pure(table.real("epsilon")),
    "zcdp": lambda table: ZeroConcentrated(table.real("rho")),
    "approximate": lambda table: Approximate(Pure(table.real("epsilon")), table.real("delta")),
    "privunit": _privunit_release,
    "none": lambda table: NonPrivate(),
}


def _release(table: _Table) -> Event:
    """One [[release]] table as an event of one round."""
    mechanism, times = str(table.pop("mechanism")), table.whole("times", 1)
    table.values.pop("name", None)
    if mechanism not in _RELEASES:
        raise InvalidInput("mechanism", mechanism, f"in {table.source}: use one of {', '.join(_RELEASES)}")
    event = _RELEASES[mechanism](table)
    table.finish("mechanism, name, times and the mechanism's own numbers; the cohort is set once, above the releases")
    return Repeated(event, times) if times != 1 else event


# --- Statements ---------------------------------------------------------------------------------------------------


def _certified(certificate: Certificate) -> Json:
    """A certificate of one observer as a flat table: the total, with the single round inside."""
    one_round, total = certificate.guarantees
    flat = total.to_json() | {"scope": total.scope if total.rounds > 1 else "one round"}
    if total.rounds > 1:
        flat["one_round"] = {"epsilon": one_round.to_json()["epsilon"], "delta": one_round.delta}
    return flat | {"warnings": certificate.to_json()["warnings"]}


def _one_message(
    accountant: str, *warnings: Warning, relation: str = "replace-one", assumption: str | None = None
) -> Json:
    """The statement beside a figure for one message against the server.

    An assumed sensitivity, eq. (6), is about one record inside a client; the worst case is about the whole client.
    """
    assumed: Sequence[Warning] = [] if assumption is None else [wording.assumed(assumption)]
    return {
        "unit": Unit.CLIENT if assumption is None else Unit.RECORD,
        "relation": Relation.parse(relation),
        "observer": Observer.SERVER,
        "scope": "one round",
        "rounds": 1,
        "accountant": accountant,
        "assumptions": [] if assumption is None else [assumption],
        "units": None,
        "warnings": [warning.to_json() for warning in (*warnings, *assumed)],
    }
