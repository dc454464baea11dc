"""A certificate in plain words: who could learn what, under what; how the noise was drawn; what its terms mean.

(epsilon, delta) bounds the probability of every conclusion: with one unit changed, it is at most e^epsilon times as
high, plus delta. It does not say that the odds stay within e^epsilon except with probability delta, which is more, and
which Gaussian noise does not give.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sordino.privacy.wording.figures import format_delta, format_epsilon
from sordino.types import Draws, Observer, Relation, SeedOrigin, Unit

if TYPE_CHECKING:  # guarantee.py prints itself through this package
    from sordino.privacy.guarantee import Certificate, Guarantee

AS_PERCENT = 1.0  # the largest epsilon whose factor is said in per cent
# The largest epsilon for each phrase: factors of 1.11, 20 and 22,027; beyond, the factor is no limit worth the name.
LARGE_DELTA = 1e-3  # beyond it the probability of a failure is what a reader must hear first
AMOUNTS = {0.1: "learns little", 3.0: "learns a limited amount", 10.0: "may learn much"}

SEED_GIVEN = (
    "The seed is fixed and not secret: whoever knows it can remove the noise, and no figure below holds against them. "
    "Do not publish the model, and do not use the seed again on the same data."
)

# (who looks, at the start of a sentence and inside it, and the word that stands for them)
_OBSERVERS = {
    Observer.SERVER: ("The server", "the server", "it"),
    Observer.MODEL_USER: ("Somebody who sees this run's models", "somebody who sees this run's models", "they"),
    Observer.OUTSIDER: ("Somebody who sees the last model", "somebody who sees the last model", "they"),
    Observer.PEER: ("Another client that sees every message", "another client that sees every message", "it"),
}

# What each observer sees.
ROLES = {
    Observer.SERVER: "collects the clients' messages",
    Observer.MODEL_USER: "sees the model after every round",
    Observer.OUTSIDER: "sees the last model alone",
    Observer.PEER: "another client, which sees what the server sees",
}

_CHANGES = {
    (Unit.CLIENT, Relation.ADD_REMOVE): "whether that client took part",
    (Unit.CLIENT, Relation.ZERO_OUT): "whether that client's contribution was there or replaced by nothing",
    (Unit.CLIENT, Relation.REPLACE_ONE): "replacing that client's data by any others",
    (Unit.RECORD, Relation.ADD_REMOVE): "whether that record was among the data",
    (Unit.RECORD, Relation.ZERO_OUT): "whether that record's contribution was there or replaced by nothing",
    (Unit.RECORD, Relation.REPLACE_ONE): "replacing that record by any other",
}

_DRAWS = {
    Draws.LATTICE: (
        "Noise is drawn as integers from a proven distribution. The figures hold for the models as they are released, "
        "rounding and sampler included."
    ),
    Draws.FLOAT32: (
        "The figures describe ideal noise. The noise of this run is float32, or from tables of limited precision, and "
        "can be distinguished from ideal noise: do not publish this model as private."
    ),
    Draws.SIMULATED_MESSAGES: (
        "Simulated messages: no real message left a client, and the figures describe a deployment whose clients draw "
        "ideal noise. The model of this simulation carries float32 noise: do not publish it as private."
    ),
}


def seed_line(certificate: Certificate) -> str:
    """A warning about a seed that was given by hand; empty where there is none, or nothing is promised."""
    private = any(guarantee.private for guarantee in certificate.guarantees)
    return SEED_GIVEN if private and certificate.seed is SeedOrigin.GIVEN else ""


def draws_line(certificate: Certificate) -> str:
    """How the noise was drawn; empty without noise, and where it is not known."""
    return "" if certificate.draws is None else _DRAWS.get(certificate.draws, "")


def cautions(certificate: Certificate) -> list[str]:
    """What limits every figure: a seed that is known, noise that is not the ideal one."""
    return [line for line in (seed_line(certificate), draws_line(certificate)) if line]


def plain_paragraph(certificate: Certificate) -> str:
    """Who could learn what about one client or record over all rounds: those whom noise limits first."""
    return " ".join(plain_sentences(certificate))


def plain_sentences(certificate: Certificate) -> list[str]:
    """The same, an entry for each observer."""
    chosen: dict[Observer, Guarantee] = {}
    for guarantee in sorted(certificate.totals, key=lambda total: not total.private):
        chosen.setdefault(guarantee.observer, guarantee)
    sentences = [_learns(guarantee) if guarantee.private else _unlimited(guarantee) for guarantee in chosen.values()]
    private = [guarantee for guarantee in chosen.values() if guarantee.private]
    rests = private and (certificate.assumptions or any(guarantee.assumptions for guarantee in private))
    return [*sentences, *(["These limits hold only under the assumptions listed below."] if rests else [])]


def _learns(guarantee: Guarantee) -> str:
    start, _, pronoun = _OBSERVERS[guarantee.observer]
    most = next((most for most in AMOUNTS if guarantee.epsilon <= most), None)
    much = "may learn almost everything" if most is None else AMOUNTS[most]
    if guarantee.delta > LARGE_DELTA:
        much = f"may learn everything with probability {format_delta(guarantee.delta)}"
    bound, beyond = (
        f"at most {_factor(guarantee.epsilon)}",
        " A factor this large offers little protection." * (most is None),
    )
    delta = f", plus an additional probability of {format_delta(guarantee.delta)}" if guarantee.delta > 0 else ""
    when = "in its one round" if guarantee.rounds == 1 else f"over all {guarantee.rounds} rounds"
    change = _CHANGES[guarantee.unit, guarantee.relation]
    return (
        f"{start} {much} about any one {guarantee.unit}: {when}, {change} changes the probability of any conclusion "
        f"that {pronoun} may draw by {bound}{delta}.{beyond}"
    )


def _unlimited(guarantee: Guarantee) -> str:
    return f"No guarantee limits what {_OBSERVERS[guarantee.observer][1]} learns about any one {guarantee.unit}."


def _factor(epsilon: float) -> str:
    """e^epsilon, rounded up from the epsilon that is printed."""
    printed = format_epsilon(epsilon)
    shown = max(epsilon, float(printed))
    if epsilon <= AS_PERCENT:
        return f"{_rounded_up(100 * math.expm1(shown))} % of its value"
    if epsilon <= max(AMOUNTS):
        return f"a factor of e^{printed} = {_rounded_up(math.exp(shown))}"
    tens = shown / math.log(10)
    power = math.floor(tens)
    return f"a factor of e^{printed} = {_rounded_up(10 ** (tens - power))} x 10^{power}"


def _rounded_up(value: float) -> str:
    """Three digits, or the whole number where it has more."""
    if value <= 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(value)))
    return f"{math.ceil(round(value * 10**digits, 6)) / 10**digits:,.{digits}f}"


def glossary(guarantees: Sequence[Guarantee]) -> str:
    """One clause for each term of the guarantees' lines."""
    unit = " or ".join(dict.fromkeys(guarantee.unit for guarantee in guarantees))
    meanings: dict[str, str] = {
        **{str(observer): role for observer, role in ROLES.items()},
        "one round": f"the figure for a single round (a {unit} used in several rounds gets the figure for all rounds)",
        Relation.ADD_REMOVE: f"compares the data with and without one {unit}",
        Relation.ZERO_OUT: f"compares one {unit}'s contribution with none (how many there are is public)",
        Relation.REPLACE_ONE: f"compares one {unit} with any other in its place",
    }
    used = {*(g.observer for g in guarantees), *(g.relation for g in guarantees), *(g.scope for g in guarantees)}
    terms = [f"{term}: {meaning}" for term, meaning in meanings.items() if term in used]
    return f"Terms: {'; '.join(terms)}." if terms else ""


def assumptions_line(assumptions: Iterable[str]) -> str:
    """What every figure of a certificate rests on; empty without assumptions."""
    listed = "; ".join(assumptions)
    return f"All figures assume: {listed}." if listed else ""
