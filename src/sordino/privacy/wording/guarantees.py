"""Guarantees, certificates and the cost of a sweep as sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sordino.privacy.wording.figures import format_delta, format_epsilon
from sordino.privacy.wording.plain import assumptions_line, draws_line, glossary, plain_paragraph, seed_line
from sordino.types import Draws, Observer, SeedOrigin, Warning

if TYPE_CHECKING:  # guarantee.py prints itself through this module
    from sordino.privacy.guarantee import Certificate, Guarantee

MOST_CLIENTS = 20  # with a printed line each; beyond that, one line gives the range (JSON always lists every client)


def guarantee_sentence(guarantee: Guarantee) -> str:
    """The line of one guarantee in a printed certificate."""
    figures = f"epsilon = {format_epsilon(guarantee.epsilon)}, delta = {format_delta(guarantee.delta)}"
    if not guarantee.private:
        figures = f"no guarantee ({figures})"
    return (
        f"{guarantee.observer}, {_rounds(guarantee.rounds)}: {figures} for {_protected(guarantee)} "
        f"({guarantee.relation}; {guarantee.accountant}){_assuming(guarantee.assumptions)}"
    )


def epsilon_context(guarantee: Guarantee) -> str:
    """The unit, relation, observer, delta, accountant and assumptions that accompany an epsilon printed alone."""
    return (
        f"{_protected(guarantee)} ({guarantee.relation}) against the {guarantee.observer} at delta "
        f"{format_delta(guarantee.delta)}, {guarantee.accountant}{_assuming(guarantee.assumptions)}"
    )


def total_sentence(guarantee: Guarantee) -> str:
    """A total over all rounds inside another sentence."""
    return f"epsilon = {format_epsilon(guarantee.epsilon)} over all rounds for {epsilon_context(guarantee)}"


def certificate_text(certificate: Certificate) -> str:
    """Plain words first, then a line for each guarantee and each warning, a glossary, and what all figures assume.

    Many clients' own guarantees become one line per observer.
    """
    single = {g.subject for g in certificate.guarantees if g.scope == "all rounds" and g.rounds == 1}
    # Over a single round the total and the figure for one round are the same: only the total is printed.
    shown = [g for g in certificate.guarantees if g.scope == "all rounds" or g.subject not in single]
    few = len({g.client for g in shown if g.client is not None}) <= MOST_CLIENTS
    lines = [guarantee_sentence(g) for g in shown if few or g.client is None]
    lines += [] if few else _client_ranges(shown)
    before = [plain_paragraph(certificate), draws_line(certificate)]
    if certificate.draws is not Draws.LATTICE:  # what follows is about ideal noise
        before.reverse()
    before.insert(0, seed_line(certificate))
    after = [*map(warning_line, certificate.warnings), glossary(shown), assumptions_line(certificate.assumptions)]
    return "\n".join(filter(None, [*before, *lines, *after]))


def warning_line(warning: Warning, about: str = "") -> str:
    """A warning as printed under a certificate; `about` names the methods that it concerns in a comparison."""
    return f"warning ({warning.code}){about}: {warning.message}"


def comparison_notes(certificates: Mapping[str, Certificate]) -> list[str]:
    """What several methods' certificates say beside their figures: each line once.

    Warnings, and the lines about noise, name the methods that they concern.
    """
    methods: dict[Warning, list[str]] = {}
    noises: dict[str, list[str]] = {}
    for name, certificate in certificates.items():
        noises.setdefault(draws_line(certificate), []).append(name)
        for warning in certificate.warnings:
            methods.setdefault(warning, []).append(name)
    seeds = dict.fromkeys(map(seed_line, certificates.values()))
    drawn = [line if len(noises) == 1 else f"{', '.join(names)}: {line}" for line, names in noises.items() if line]
    warnings = [
        warning_line(warning, ", all" if len(names) == len(certificates) else f", {', '.join(names)}")
        for warning, names in methods.items()
    ]
    assumed = dict.fromkeys(text for certificate in certificates.values() for text in certificate.assumptions)
    return [*filter(None, [*seeds, *drawn, *warnings, assumptions_line(assumed)])]


def _client_ranges(guarantees: Sequence[Guarantee]) -> list[str]:
    lines = []
    for observer in dict.fromkeys(g.observer for g in guarantees if g.client is not None):
        own = [g for g in guarantees if g.client is not None and g.observer is observer]
        low, high = (format_epsilon(choose(g.epsilon for g in own)) for choose in (min, max))
        figures = f"epsilon from {low} to {high}, delta at most {format_delta(max(g.delta for g in own))}"
        bases = (f"{g.relation}; {g.accountant}{_assuming(g.assumptions)}" for g in own)
        lines.append(
            f"{observer}, {_rounds(max(g.rounds for g in own))}, each of {len(own)} clients for its own records: "
            f"{figures} ({'; '.join(dict.fromkeys(bases))})"
        )
    return lines


def _rounds(rounds: int) -> str:
    return "in one round" if rounds == 1 else f"over all {rounds} rounds"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)


def _protected(guarantee: Guarantee) -> str:
    client = "" if guarantee.client is None else f" of {guarantee.client}"
    return f"one {guarantee.unit}{_of(guarantee.units)}{client}"


def _of(units: object) -> str:
    return "" if units is None else f" of {units}"


def _assuming(assumptions: Sequence[str], separator: str = "; ") -> str:
    return "".join(f"{separator}assuming {assumption}" for assumption in assumptions)


# --- Reports ----------------------------------------------------------------------------------------------------------

# Warnings that limit a guarantee, in the few words of a results page. The other codes concern every run, or how well
# a method trains.
SHORT_WARNINGS = {
    "no-valid-guarantee": "no valid guarantee",
    "idealised": "an idealisation, not the guarantee of a deployment",
    "delta-too-large": "delta is not below one over the number of protected units",
    "start-depends-on-data": "the initial model is computed from the data and is not covered",
    "shape-depends-on-data": "the model's shape reveals the largest label and is not covered",
    "measured-on-clients": "metrics on the clients' own records are not covered",
    "clients-dealt-anew": "protects the clients of this partition, not those of the data set",
    "dealt-by-label": "labels decided who holds which record, or which records are test records; that is not covered",
    "names-are-clients": "a person under several names counts as several",
    "records-overlap": "records overlap; content that several of them share is not covered",
    "constants-from-data": "constants of step sizes were computed from the records and are not covered",
    "step-size-cost": "the release of the step size takes a noticeable part of epsilon",
    "rounded-sums": "rounding may move a sum further than is accounted",
}


# How noise was drawn, where the figures describe ideal noise. Results of earlier versions do not say it.
SHORT_DRAWS = {
    None: "noise in float32, or simulated messages",
    Draws.FLOAT32: "noise in float32",
    Draws.SIMULATED_MESSAGES: "simulated messages",
}


# Seeds that somebody knows, or that other runs have.
SHORT_SEEDS = {SeedOrigin.GIVEN: "seed given by hand", SeedOrigin.SHARED: "seed shared with other runs"}


class Promise(NamedTuple):
    """What holds against some observers, as cells of a results page."""

    against: str
    holds: str
    limits: str  # assumptions and warnings; "-" if there are none


def promises(certificate: Certificate) -> tuple[Promise, ...]:
    """The totals for a results page, with what limits them; observers with the same total share an entry."""
    codes = {warning.code for warning in certificate.warnings}
    limits = [f"**{text}**" for code, text in SHORT_WARNINGS.items() if code in codes]
    if any(g.private for g in certificate.guarantees) and certificate.draws in SHORT_DRAWS:
        limits.append(SHORT_DRAWS[certificate.draws])
    against: dict[tuple[str, str], list[str]] = {}
    for g in certificate.totals:
        holds = (
            f"epsilon {format_epsilon(g.epsilon)} at delta {format_delta(g.delta)} for {_protected(g)} "
            f"({g.relation}, {_count(g.rounds, 'round')}; {g.accountant})"
        )
        rests = "; ".join([*(f"assuming {assumption}" for assumption in g.assumptions), *limits]) or "-"
        against.setdefault((holds, rests), []).append(str(g.observer))
    return tuple(Promise(", ".join(dict.fromkeys(who)), *texts) for texts, who in against.items())


def short_caution(certificate: Certificate) -> str:
    """What limits every figure, in the few words of a list; empty where nothing does, or nothing is promised."""
    if not any(guarantee.private for guarantee in certificate.guarantees):
        return ""
    seed = None if certificate.seed is None else SHORT_SEEDS.get(certificate.seed)
    draws = SHORT_DRAWS.get(certificate.draws)
    return ", ".join(filter(None, (seed, draws)))


def table_note(certificate: Certificate) -> str:
    """The column `epsilon_of` of a sweep's table: what each epsilon column states, and the codes of the warnings."""
    notes = {
        g.observer: f"epsilon_{g.observer.replace(' ', '_')}: {_protected(g)}, {g.relation}, against the {g.observer}, "
        f"{_rounds(g.rounds)}, {g.accountant}{_assuming(g.assumptions)}"
        for g in certificate.totals  # of several totals, the table holds the last
    }
    codes = ", ".join(warning.code for warning in certificate.warnings)
    return " | ".join([*notes.values(), *([f"warnings: {codes}"] if codes else [])])


SELECTION_NOT_COVERED = (
    "Each certificate covers a single run whose settings were fixed in advance. Choosing among runs by their results "
    "is not covered, even if the results are measured on public data: every compared model was trained on private data."
)
TUNING_NOT_COVERED = (
    "Each epsilon covers one run by itself. Its settings (learning rates, bounds) were usually chosen by results on "
    "the same data, by the paper's authors or by us. No epsilon covers that choice, nor an observer of several runs."
)
SHARED_NOISE = "Methods with the same seed share their noise, so no guarantee holds for an observer who sees several."


PRICES_OF_CHOOSING = (
    "All runs: what every round of the tuning runs costs together, if each has its own seed. Best of them: what it "
    "costs to publish only the best of a random number of runs (geometric with this mean; each with values drawn "
    "uniformly from the grid, its own seed, and a score that depends on its model and the held-out records alone; "
    "Papernot and Steinke 2022). There is no such figure where the server is the observer, since it sees every run. "
    "Each row counts the tuning runs of one method alone; the runs of best points, and of other methods, are "
    "additional."
)


def held_out(clients: int, of: int, seed: int) -> str:
    """What choosing by held-out clients costs, and whom."""
    return (
        f"{_count(clients, 'client')} of {of}, drawn by the public seed {seed}, train no model; their records choose "
        "the points. No guarantee covers them: the choice, and the scores behind it, depend on their records without "
        "noise. The guarantees of the other clients hold; with fewer clients in training, the same epsilon costs more "
        "accuracy."
    )


def at_the_edge(method: str, key: str, value: object, end: str) -> str:
    """A best value beyond which a better one may lie."""
    return f"{method}: the best {key} = {value} is the {end} that was tried: widen the grid beyond it."


def separate_costs(runs: int) -> str:
    """Added where a sweep has several costs, which are not composed with each other."""
    return f"Each of these figures counts its own runs; the cost of all {runs} runs together is not computed."


def tuning_sentence(cost: Mapping[str, object], points: int) -> str:
    """What trying all points of a sweep costs; `cost` is an entry of `report.sweeps.tuning_cost` and its observer."""
    runs = f"all {points} runs" if cost["runs"] == points else f"{cost['runs']} of the {points} runs"
    subject = (
        f"For one {cost['unit']}{_of(cost['units'])} of {cost['task']} ({cost['relation']}, "
        f"delta = {format_delta(_number(cost, 'delta'))}) against the {cost['observer']}, every round of {runs} "
        "together:"
    )
    if "epsilon_of_all_runs" not in cost:
        return f"{subject} no figure ({cost['note']})."
    independent = _number(cost, "epsilon_with_independent_noise")
    if math.isinf(independent):
        return f"{subject} no guarantee (epsilon = infinite)."
    assumptions = cost["assumptions"]
    assert isinstance(assumptions, list | tuple)
    figure = f"epsilon = {format_epsilon(independent)} ({cost['accountant']}){_assuming(assumptions)}."
    if cost["shared_noise"]:
        figure = (
            "no guarantee (epsilon = infinite), because runs with the same seed share their noise and comparing them "
            f"may cancel it. With a different seed for every run: {figure}"
        )
    text = f"{subject} {figure}"
    if cost["observer"] == str(Observer.SERVER):
        return f"{text} The server sees every run, whichever model is published."
    if "epsilon_of_private_selection" not in cost:
        return text
    selection = format_epsilon(_number(cost, "epsilon_of_private_selection"))
    return (
        f"{text} Publishing only the best of a random number of runs (geometric with mean {cost['runs']}; each with "
        "values drawn uniformly from these, its own seed, and a score computed from its model and public data alone) "
        f"would cost epsilon = {selection} (Papernot and Steinke 2022)."
    )


def _number(values: Mapping[str, object], key: str) -> float:
    value = values[key]
    assert isinstance(value, int | float)
    return float(value)
