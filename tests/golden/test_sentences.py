"""Every printed guarantee, warning and assumption, compared with tests/golden/sentences.txt.

Write the file anew with `python -m tests.golden.test_sentences`, and read its difference.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from pathlib import Path

from sordino.privacy import wording
from sordino.privacy.guarantee import Certificate, Guarantee
from sordino.privacy.sampling import Poisson
from sordino.privacy.wording import calculations, caveats
from sordino.types import Draws, Observer, Relation, SeedOrigin, Unit

FILE = Path(__file__).parent / "sentences.txt"
SERVER, USER = Observer.SERVER, Observer.MODEL_USER

# Arguments of every public function of `caveats` and `calculations`; several where a sentence has several forms.
CAVEATS: dict[str, list[tuple[tuple, dict]]] = {
    "assume_sampling_hidden": [((Poisson(0.1), USER), {})],
    "assume_record_samplings_hidden": [((SERVER,), {})],
    "assume_shuffler": [((100,), {}), ((99,), {"others": True})],
    "assume_secure_aggregation": [((1,), {}), ((3,), {})],
    "assume_first_noise_secret": [((1, SERVER), {}), ((3, USER), {})],
    "assume_secure_sums": [((16,), {})],
    "assume_shares": [((950, 0), {}), ((950, 50), {})],
    "noise_for_rounding": [((100_000, 0.048), {})],
    "assume_paper_sensitivities": [((0.1,), {})],
    "claim_of_theorem_1": [((10.0, 328810, -1500.0), {}), ((1.0, 20, -0.5), {})],
    "claim_of_norm_ec": [((8.0, 1e-5, 50, Relation.ZERO_OUT, 21.3), {})],
    "claim_of_eq_5": [((5.0, 1e-5, 200, 1.0, Relation.ADD_REMOVE, 7.8), {})],
    "no_valid_guarantee": [(("A paper claims too much. This is false.",), {})],
    "not_private": [((SERVER,), {})],
    "assumed": [((wording.assume_paper_sensitivities(0.1),), {})],
    "unfinished": [((3, 5), {})],
    "recovered": [((1,), {})],
    "numbers_are_public": [((20,), {}), ((1000, 50.0), {})],
    "no_amplification": [(("fixed:10",), {})],
    "total_counts": [((50,), {})],
    "run_alone": [((None,), {}), ((SeedOrigin.GIVEN,), {}), ((SeedOrigin.SHARED,), {})],
    "may_share_noise": [((SeedOrigin.GIVEN,), {}), ((SeedOrigin.SHARED,), {})],
    "holds_constants": [(("loss", "my_loss", [784]), {}), (("method", "Mine", [784, 100]), {})],
    "step_size_cost": [((1.0, 1.25, 0.02), {})],
    "delta_too_large": [((0.05, 50), {}), ((0.05, 50, Unit.CLIENT), {})],
    "rounded_sums": [(("sums of 100 messages", 0.0213, "use a smaller cohort"), {})],
    "shape_depends_on_data": [((10,), {})],
    "words_depend_on_data": [((["sex", "stage"],), {})],
    "test_set_of_clients": [((True,), {}), ((False,), {})],
    "test_set_held_out": [((True,), {}), ((False,), {})],
    "clients_dealt_anew": [((20,), {})],
    "names_are_clients": [((Unit.CLIENT,), {}), ((Unit.RECORD,), {})],
    "constants_from_data": [((["R"], ["algorithm.server_lr"]), {}), ((["R", "gap"], ["run.rounds", "bound.clip"]), {})],
    "beta_too_large": [(("2.5",), {})],
    "beta_above_2_alpha": [(("beta", "0.5", "0.2"), {"smoothed": True}), (("beta C", "0.5", "0"), {"smoothed": False})],
    "beta_above_alpha_plus_R": [(("beta", "0.5", "0.1", None), {}), (("beta", "0.5", "0.1", 0.2), {})],
    "claim_not_proven": [((9.99999,), {})],
    "shuffler": [((wording.ASSUME_HONEST_SHUFFLER,), {})],
    "step_size_constants": [(([1.0], None, {"beta": 0.25}), {}), (([1.0, 2.0], 3.0, {"beta": 0.25}), {})],
}

TOTAL = Guarantee(
    Unit.CLIENT,
    Relation.ADD_REMOVE,
    USER,
    "all rounds",
    50,
    7.99991,
    1e-5,
    "exact Gaussian",
    (wording.ASSUME_SERVER_TRUSTED, wording.assume_sampling_hidden(Poisson(0.1), USER)),
    1000,
)
ONE_ROUND = dataclasses.replace(TOTAL, scope="one round", rounds=1, epsilon=0.51234)
EXPOSED = dataclasses.replace(TOTAL, observer=SERVER, epsilon=math.inf, assumptions=(), accountant="none")
RECORD = Guarantee(Unit.RECORD, Relation.REPLACE_ONE, SERVER, "all rounds", 5, 1.0, 1e-6, "PLD", (), 400)
WARNINGS = (wording.not_private(SERVER), wording.THIS_RUN_ALONE, wording.RECORDS_OVERLAP)
COST = {
    "task": "digits",
    "unit": "client",
    "units": 20,
    "relation": "add-remove",
    "observer": "model user",
    "assumptions": [wording.ASSUME_SERVER_TRUSTED],
    "runs": 6,
    "delta": 1e-3,
    "shared_noise": False,
    "accountant": "exact Gaussian",
    "epsilon_of_all_runs": 9.5,
    "epsilon_with_independent_noise": 9.5,
    "epsilon_of_private_selection": 6.25,
}


def certificates() -> dict[str, Certificate]:
    clients = [f"client {i}" for i in range(30)]
    own = [dataclasses.replace(RECORD, client=name, epsilon=0.5 + i / 30, units=40) for i, name in enumerate(clients)]
    run = Certificate((EXPOSED, ONE_ROUND, TOTAL), WARNINGS)
    single = dataclasses.replace(TOTAL, rounds=1, epsilon=0.51234)
    grounds = {"draws": Draws.FLOAT32, "seed": SeedOrigin.GIVEN, "assumptions": (wording.ASSUME_OWN_RECORDS,)}
    return {
        "a run": run,
        "a run with a given seed": dataclasses.replace(run, **grounds),
        "a single round": Certificate((ONE_ROUND, single)),
        "three clients": Certificate((RECORD, *own[:3])),
        "thirty clients": Certificate((RECORD, *own)),
        "two runs composed": Certificate.compose(run, Certificate((EXPOSED, TOTAL), WARNINGS)),
    }


def in_plain_words() -> list[str]:
    """Every unit, relation, observer, size of epsilon and way to draw noise."""
    kinds = [certificate_of(unit, relation) for unit in Unit for relation in Relation]
    lines = [text for kind in kinds for text in (wording.plain_paragraph(kind), wording.glossary(kind.guarantees))]
    return [*lines, *(f"{draws}: {wording.draws_line(Certificate((TOTAL,), draws=draws))}" for draws in Draws)]


def certificate_of(unit: Unit, relation: Relation) -> Certificate:
    """Small, middling, large and huge epsilons, with and without delta."""
    one = dataclasses.replace(RECORD, unit=unit, relation=relation)
    figures = {SERVER: (0.5, 0.0), USER: (1.5, 1e-6), Observer.OUTSIDER: (10.001, 1e-6), Observer.PEER: (5000.0, 0.0)}
    return Certificate(tuple(dataclasses.replace(one, observer=o, epsilon=e, delta=d) for o, (e, d) in figures.items()))


def costs() -> dict[str, dict]:
    refused = {key: value for key, value in COST.items() if not key.startswith("epsilon")} | {
        "note": "refused: a reason"
    }
    return {
        "all runs": COST,
        "some runs": COST | {"runs": 4},
        "shared noise": COST | {"shared_noise": True, "epsilon_of_all_runs": math.inf},
        "server": COST | {"observer": "server"},
        "no noise": COST | {"epsilon_of_all_runs": math.inf, "epsilon_with_independent_noise": math.inf},
        "no figure": refused,
    }


def disagreements() -> list[str]:
    client = dataclasses.replace(RECORD, client="Cleveland")
    return [
        wording.promises_less(TOTAL, 9.0, 0),
        wording.promises_less(TOTAL, 9.0, 2),
        wording.promises_less(TOTAL, TOTAL.epsilon + 1e-7, 0),
        wording.promises_more(EXPOSED, 9.0),
        wording.not_in_ledger(TOTAL),
        wording.not_in_certificate(TOTAL),
        wording.other_clients(client, 1),
        wording.other_clients(client, 3),
        wording.not_recomputable(1e-5, "refused: a reason"),
        wording.delta_not_in_certificate(1e-5),
    ]


def said(value: object) -> str:
    return wording.warning_line(value) if isinstance(value, wording.Warning) else str(value)


def sentences() -> str:
    """All sentences, each under the name of what writes it."""
    lines = ["# Caveats"]
    for name, value in public_caveats().items():
        values = [value(*args, **options) for args, options in CAVEATS[name]] if callable(value) else [value]
        lines += [f"{name}: {said(each)}" for each in values]
    lines += ["", "# Guarantees"]
    for guarantee in (TOTAL, ONE_ROUND, EXPOSED, RECORD, dataclasses.replace(RECORD, client="Cleveland")):
        lines += [str(guarantee), f"    of {guarantee.whose}", f"    {wording.total_sentence(guarantee)}"]
    for name, certificate in certificates().items():
        lines += ["", f"# Certificate of {name}", str(certificate)]
        lines += [f"    results page: {' | '.join(promise)}" for promise in wording.promises(certificate)]
        lines += [f"    table: {wording.table_note(certificate)}"]
    lines += ["", "# In plain words", *in_plain_words(), "", "# Picture of a report", *in_cells()]
    lines += [f"{name}: {text}" for name, text in vars(wording.picture).items() if _is_reason(name, text)]
    lines += [f"{code}: {text}" for code, text in wording.NOT_COVERED.items()]
    lines += ["", "# Comparison"]
    lines += wording.comparison_notes(
        {"a": certificates()["a run with a given seed"], "b": certificates()["three clients"]}
    )
    lines += ["", "# Disagreements of certificate and ledger", *disagreements()]
    lines += ["", "# Costs of a sweep of 6 points"]
    lines += [f"{name}: {wording.tuning_sentence(cost, 6)}" for name, cost in costs().items()]
    lines += [wording.separate_costs(6), wording.SELECTION_NOT_COVERED, wording.TUNING_NOT_COVERED]
    lines += [wording.SHARED_NOISE, wording.PRICES_OF_CHOOSING, wording.held_out(20, 100, 0)]
    lines += [wording.at_the_edge("fedavg", "bound.clip", 0.5, "smallest"), "", "# Short warnings"]
    lines += [f"{code}: {text}" for code, text in wording.SHORT_WARNINGS.items()]
    return "\n".join(lines) + "\n"


def in_cells() -> list[str]:
    """Each level of a report's picture."""
    levels = [dataclasses.replace(TOTAL, epsilon=epsilon) for epsilon in (0.05, 1.0, 8.0, 30.0)] + [EXPOSED]
    levels.append(dataclasses.replace(TOTAL, delta=0.5, units=None))
    return [f"{wording.level(g)} {wording.amount(g)}: {', '.join(wording.cell_lines(g))}" for g in levels]


def _is_reason(name: str, text: object) -> bool:
    return name in ("NO_NOISE", "IDEAL_NOISE", "GIVEN_SEED", "SHARED_SEED", "SEVERAL_RUNS") and isinstance(text, str)


def public_caveats() -> dict[str, object]:
    return {
        name: value
        for module in (caveats, calculations)
        for name, value in vars(module).items()
        if (inspect.isfunction(value) and value.__module__ == module.__name__ and not name.startswith("_"))
        or isinstance(value, wording.Warning)
        or (isinstance(value, str) and name.startswith("ASSUME"))
    }


def test_every_sentence_is_as_in_the_file():
    assert sentences().splitlines() == FILE.read_text().splitlines()


def test_every_caveat_has_an_example():
    assert {name for name, value in public_caveats().items() if inspect.isfunction(value)} == CAVEATS.keys()


def test_a_printed_epsilon_never_stands_alone():
    """Wherever an epsilon is printed, so are its unit, relation, observer, delta, accountant and assumptions."""
    words = ("one client of 1000", "add-remove", "model user", "1e-05", "exact Gaussian", *TOTAL.assumptions)
    certificate = Certificate((TOTAL,))
    printed = (
        str(TOTAL),
        TOTAL.whose,
        wording.total_sentence(TOTAL),
        str(certificate),
        " ".join(wording.promises(certificate)[0]),
    )
    assert all(word in text for word in words for text in printed)


if __name__ == "__main__":
    FILE.write_text(sentences())
