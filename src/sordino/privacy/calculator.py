"""The privacy calculator behind `sordino account`: the cost of noise, and the noise that a budget needs.

Every function returns a flat table of plain values. Its figures come with the unit, relation, observer, scope,
accountant and warnings that they need.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Annotated

from sordino.errors import InvalidInput, require
from sordino.privacy import published, wording
from sordino.privacy.accountants import account_of
from sordino.privacy.binomial import binomial_bits, binomial_event, cpsgd_coins, cpsgd_epsilon, paper_binomial_bits
from sordino.privacy.calibration import Target, calibrate_gaussian
from sordino.privacy.certification import certify
from sordino.privacy.events import (
    Claimed,
    Composed,
    DiscreteNoise,
    Gaussian,
    Laplace,
    Repeated,
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
from sordino.privacy.sampling import Full, parse_sampling
from sordino.privacy.secure_sum import Lattice, lattice_for, least_multiplier, shares_of
from sordino.privacy.shuffle import shuffle_epsilon
from sordino.privacy.tdl import log_not_worst_delta, tdl_normalizer, tdl_tail, tdl_variance
from sordino.types import Event, Observer, Relation, Unit, Warning

# Arguments with their help on the command line
Epsilon = Annotated[float | None, "epsilon."]
Delta = Annotated[float | None, "delta, below 1 over the number of protected units."]
Rounds = Annotated[int | None, "Number of rounds in which a unit may take part (default 1)."]
CohortText = Annotated[str, "Who takes part in a round, in secret: full, poisson:Q, fixed:K/N or with-replacement:K/N."]
RelationText = Annotated[str, "Neighbours: add-remove, zero-out or replace-one."]
UnitText = Annotated[str, "What is protected: client or record."]
ObserverText = Annotated[str, "The observer: server, model user, outsider or peer."]
Units = Annotated[int | None, "Number of protected units, printed beside delta."]
Dim = Annotated[int, "Number of coordinates d."]
Levels = Annotated[int, "Quantisation levels s."]
Mu = Annotated[float | None, "Assume the sensitivities of the paper's eq. (6); nothing enforces them."]

_MOST_SHUFFLED = 100_000_000


def gaussian(
    noise_multiplier: Annotated[float | None, "Noise std over the sensitivity under the stated relation."] = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    rounds: Rounds = None,
    cohort: CohortText = "full",
    relation: RelationText = "add-remove",
    unit: UnitText = "client",
    observer: ObserverText = "model user",
    units: Units = None,
    formula: Annotated[str | None, "Take the noise of one round from a published formula: classical."] = None,
) -> Json:
    """Gaussian noise: give two of noise multiplier, epsilon and delta; the third is computed."""
    sampling, related, seen_by = parse_sampling(cohort), Relation.parse(relation), Observer.parse(observer)
    if formula is not None:
        require(formula == "classical", "formula", formula, "use classical, or leave it out for the exact calibration")
        if epsilon is None or delta is None:
            raise InvalidInput("formula", formula, "give --epsilon and --delta with it")
        noise_multiplier, epsilon = published.classical_gaussian_noise(epsilon, delta), None
    given = {"noise_multiplier": noise_multiplier, "epsilon": epsilon, "delta": delta}
    asked = {}
    if noise_multiplier is None and epsilon is not None and delta is not None:
        noise_multiplier = calibrate_gaussian(
            epsilon=epsilon, delta=delta, rounds=rounds or 1, sampling=sampling, relation=related
        )
    elif noise_multiplier is not None and epsilon is not None and delta is None:
        asked = {"epsilon": epsilon}
        event = Repeated(sampled(Gaussian(noise_multiplier), sampling), rounds or 1)
        delta = account_of(event, related).delta(epsilon)
    elif noise_multiplier is None or delta is None or epsilon is not None:
        said = ", ".join(f"{name} = {value}" for name, value in given.items() if value is not None)
        raise InvalidInput("given", said or "nothing", "give exactly two of --noise-multiplier, --epsilon and --delta")
    certificate = certify(
        Gaussian(noise_multiplier),
        relation=related,
        observer=seen_by,
        rounds=1 if rounds is None and seen_by is not Observer.SERVER else rounds,
        delta=delta,
        unit=unit,
        sampling=sampling,
        units=units,
    )
    result = {"mechanism": "gaussian", "noise_multiplier": noise_multiplier, "cohort": cohort}
    return result | certified(certificate) | asked


def laplace(
    noise_multiplier: Annotated[float, "Noise scale b over the L1 sensitivity."],
    delta: Annotated[float, "delta of the total."] = 0.0,
    rounds: Annotated[int, "Number of rounds."] = 1,
    cohort: CohortText = "full",
    relation: RelationText = "add-remove",
    units: Units = None,
) -> Json:
    """Laplace noise: pure DP, composed exactly."""
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
    return result | certified(certificate)


def secure_aggregation(
    clients: Annotated[int, "Clients that are asked in a round."],
    dim: Dim,
    delta: Annotated[float, "delta of the total."],
    noise_multiplier: Annotated[float | None, "Honest noise std over the sensitivity of a rounded message."] = None,
    epsilon: Annotated[float | None, "epsilon of the total, instead of the noise multiplier."] = None,
    rounds: Annotated[int, "Number of rounds in which a client may take part."] = 1,
    bits: Annotated[int, "Bits of a coordinate: sums are modulo 2^bits."] = 20,
    dropouts: Annotated[float, "Share of the clients that may not answer."] = 0.0,
    colluding: Annotated[int, "Clients that may tell the server their noise."] = 0,
    relation: RelationText = "zero-out",
) -> Json:
    """Secure aggregation: shares of discrete Gaussian noise, for messages of norm 1, seen in modular sums alone."""
    related = Relation.parse(relation)
    require(
        related is not Relation.ADD_REMOVE, "relation", relation, "who answers is seen: use zero-out or replace-one"
    )
    shares = shares_of(clients, clients, dropouts, colluding)
    if (noise_multiplier is None) == (epsilon is None):
        raise InvalidInput("epsilon", epsilon, "give exactly one of --epsilon and --noise-multiplier")

    def lattice_of(z: float) -> Lattice:
        return lattice_for(z, bits=bits, d=dim, bound=1.0, relation=related, shares=shares)

    if noise_multiplier is None:
        assert epsilon is not None
        target = Target(epsilon, delta, rounds, Full(), related)
        noise_multiplier = least_multiplier(target, lambda z: lattice_of(z).event(related, shares.honest))
    lattice = lattice_of(noise_multiplier)
    certificate = certify(
        lattice.event(related, shares.honest),
        relation=related,
        observer=Observer.SERVER,
        rounds=rounds,
        delta=delta,
        units=clients if delta < 1 / clients else None,
        assumptions=(wording.assume_secure_sums(bits), wording.assume_shares(shares.fewest, colluding)),
    )
    result = {
        "mechanism": "distributed discrete gaussian",
        "noise_multiplier": noise_multiplier,
        "honest_shares": shares.honest,
        "share_std_in_steps": lattice.share_std,
        "lattice_step": lattice.step,
        "noise_std": lattice.noise_std(shares.honest),
        "sensitivity_in_steps": related.sensitivity_factor * lattice.norm,
        "lengthened_by_rounding": lattice.lengthened(1.0),
        "bits_per_message": bits * lattice.d,
    }
    return result | certified(certificate)


def tdl(
    m: Annotated[int, "The noise lives on {-m, ..., m}."],
    alpha: Annotated[str, "Decay alpha; a fraction such as 1/6 is understood."],
    shift: Annotated[str, "Integer shift between neighbours, as 2,2,2 or 2x3 (three coordinates by 2)."],
    epsilon: Epsilon = None,
    delta: Delta = None,
    relation: RelationText = "replace-one",
) -> Json:
    """Truncated discrete Laplace noise: normalizer, variance, and the exact delta (or epsilon) for one shift."""
    decay, shifts = _fraction("alpha", alpha), _shifts(shift)
    account = account_of(DiscreteNoise("tdl", (m, decay), shifts), Relation.parse(relation))
    if epsilon is not None and delta is None:
        delta = account.delta(epsilon)
    elif delta is not None and epsilon is None:
        epsilon = account.epsilon(delta)
    else:
        raise InvalidInput("epsilon", epsilon, "give exactly one of --epsilon and --delta")
    result = {
        "mechanism": "tdl",
        "m": m,
        "alpha": decay,
        "normalizer": tdl_normalizer(m, decay),
        "variance": tdl_variance(m, decay),
        "tails": [{"shift": k, "coordinates": count, "tau": tdl_tail(k, m, decay)} for k, count in shifts],
        "epsilon": epsilon,
        "delta": delta,
    }
    return result | _one_message(account.accountant, wording.ONE_SHIFT, wording.PER_MESSAGE, relation=relation)


def qtdl(
    dim: Dim,
    levels: Levels,
    epsilon: Annotated[float, "epsilon of one message."],
    mu: Mu = None,
    delta: Annotated[float, "delta of the sound calibrations."] = 3e-6,
    relation: RelationText = "replace-one",
) -> Json:
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
    dim: Dim,
    levels: Levels,
    epsilon: Epsilon = None,
    coins: Annotated[int | None, "Number of coins N, instead of epsilon."] = None,
    mu: Mu = None,
    delta: Annotated[float, "delta of one message."] = 3e-6,
    relation: RelationText = "replace-one",
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


def privunit(
    dim: Dim,
    eps0: Annotated[float, "Privacy of the choice of the cap."],
    eps1: Annotated[float, "Privacy of the cap itself."],
    eps2: Annotated[float | None, "Privacy of the norm by ScalarDP, for the whole message."] = None,
    gamma: Annotated[str, "exact, sufficient (condition-1) or condition-2."] = "exact",
    rounds: Annotated[int, "Number of messages of one client."] = 1,
    delta: Annotated[float, "delta of the total; 0 for pure DP."] = 0.0,
) -> Json:
    """PrivUnit: p, gamma, m and the exact epsilon of a direction (with --eps2, of direction and norm)."""
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
    return result | certified(certificate.with_warnings(*([wording.PER_MESSAGE] if rounds == 1 else [])))


def scalar_dp(
    eps2: Annotated[float, "epsilon of the norm."],
    bound: Annotated[float, "The largest norm C."] = 1.0,
) -> Json:
    """ScalarDP: k, a, b and the constants of the squared-norm estimate."""
    c = scalar_dp_constants(eps2, bound)
    constants = {"k": c.k, "a": c.a, "b": c.b, "c1": c.c1, "c2": c.c2, "c3": c.c3}
    result = {"mechanism": "scalar-dp", **constants, "epsilon": c.epsilon, "delta": 0.0}
    warnings = [wording.PER_MESSAGE] + ([] if c.sign_recoverable else [wording.TRANSMIT_LEVEL])
    return result | _one_message("randomised response, exact", *warnings)


def shuffle(
    eps0: Annotated[float, "epsilon of one local message."],
    n: Annotated[int, f"Number of shuffled messages, at most {_MOST_SHUFFLED:,}."],
    delta: Annotated[float, "delta after shuffling."],
    delta0: Annotated[float, "delta of one local message."] = 0.0,
    method: Annotated[str, "numeric or closed (Feldman, McMillan and Talwar 2021)."] = "numeric",
) -> Json:
    """Amplification by shuffling one message from each of n clients."""
    require(n <= _MOST_SHUFFLED, "n", n, f"give --n at most {_MOST_SHUFFLED:,}")
    epsilon = shuffle_epsilon(eps0, n, delta, delta0, method)
    result = {"mechanism": "shuffle", "eps0": eps0, "n": n, "method": method, "epsilon": epsilon, "delta": delta}
    accountant = f"shuffling, Feldman-McMillan-Talwar 2021, {method}"
    statement = _one_message(accountant, wording.shuffler(wording.ASSUME_HONEST_SHUFFLER))
    return result | statement | {"assumptions": [wording.ASSUME_HONEST_SHUFFLER]}


def _bounds(dim: int, levels: int, mu: float | None, relation: str) -> Sensitivities:
    if mu is None:
        return client_sensitivities(dim, levels, Relation.parse(relation))
    return assumed_sensitivities(dim, levels, mu)


def _fraction(field: str, text: str) -> float:
    """A number, or a fraction a/b."""
    top, slash, bottom = text.partition("/")
    try:
        return float(top) / float(bottom) if slash else float(top)
    except (ValueError, ZeroDivisionError):
        raise InvalidInput(field, text, "write a number such as 0.1, or a fraction such as 1/6") from None


def _shifts(text: str) -> tuple[tuple[int, int], ...]:
    """'2,2,2' or '2x3' as ((2, 3),): coordinates that move by 2, and how many."""
    counts: Counter[int] = Counter()
    for part in text.split(","):
        k, times, count = part.partition("x")
        try:
            moved, coordinates = int(k), int(count) if times else 1
        except ValueError:
            raise InvalidInput("shift", text, "write whole numbers as 2,2,2 or 2x3") from None
        require(coordinates >= 1, "shift", text, "write 2x3 for three coordinates that move by 2")
        counts[abs(moved)] += coordinates
    return tuple(sorted((k, count) for k, count in counts.items() if k))


def certified(certificate: Certificate) -> Json:
    """The certificate of one observer as a flat table: the total, with the single round inside."""
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
    assumptions = [] if assumption is None else [assumption]
    return {
        "unit": Unit.CLIENT if assumption is None else Unit.RECORD,
        "relation": Relation.parse(relation),
        "observer": Observer.SERVER,
        "scope": "one round",
        "rounds": 1,
        "accountant": accountant,
        "assumptions": assumptions,
        "units": None,
        "warnings": [warning.to_json() for warning in (*warnings, *map(wording.assumed, assumptions))],
    }
