"""`sordino audit FILE.toml`: an empirical lower bound on the epsilon of one release, beside the certified one."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated

import typer

from sordino.cli.output import File, Json, Set, show_with_certificate
from sordino.cli.progress import working
from sordino.config import load_config
from sordino.errors import LARGEST_SEED


def audit_command(
    file: File,
    set: Set = None,
    trials: Annotated[int, typer.Option(help="Releases drawn under each of two neighbours.", max=10_000_000)] = 20_000,
    confidence: Annotated[float, typer.Option(help="Confidence of the lower bound.")] = 0.999,
    seed: Annotated[int, typer.Option(help="Seed of the draws.", min=0, max=LARGEST_SEED)] = 0,
    json: Json = False,
) -> None:
    """Compare an empirical lower bound on epsilon with the certified epsilon, for one release of one round.

    The audit draws from the plan's mechanism, at the model's dimension, on the two neighbouring inputs that are
    furthest apart. The exit code is 1 if the lower bound exceeds the certified epsilon; a smaller one proves nothing.
    """
    from sordino.rounds.auditing import audit_release

    config = load_config(file, tuple(set or ()))
    with working("planning"):
        plan, task = config.plan(), config.task()
        resolved = config.resolve(plan, task.population)
    with working("auditing"):
        found = audit_release(plan, resolved, task.d, trials=trials, confidence=confidence, seed=seed)
    certified, shown = found.certified, found.shown
    total = resolved.certificate.total(certified.observer, certified.relation)
    result: dict[str, object] = {
        "file": str(file),
        "audited": "the update of one round, not the whole run",
        "mechanism": plan.mechanism,
        "parameters": task.d,
        "unit": str(certified.unit),
        "observer": str(certified.observer),
        "relation": str(certified.relation),
        "neighbours": found.neighbours,
        "sampling": found.sampling,
        "releases_drawn": shown.samples,
        "confidence": shown.confidence,
        "delta": shown.delta,
        "audited_epsilon": shown.epsilon_lower,
        "scope": certified.scope,
        "epsilon_certified": certified.epsilon,
        "delta_certified": certified.delta,
        "accountant": certified.accountant,
        "rounds": total.rounds,
        "epsilon_over_all_rounds": total.epsilon,
        "delta_over_all_rounds": total.delta,
        "epsilon_claimed": None if found.claimed is None else found.claimed[0],
        "consistent": found.consistent,
    }
    # The figure of one round is always printed with the total and with the assumptions of both.
    promised = replace(resolved.certificate, guarantees=(certified, total))
    show_with_certificate(f"Audit of {file}", result, promised, as_json=json)
    if not found.consistent:
        said = "certified" if found.claimed is None else "claimed by the theorem"
        limit = certified.epsilon if found.claimed is None else found.claimed[0]
        print(f"violation: {shown}, more than the {limit:g} {said}", file=sys.stderr)
        raise typer.Exit(1)
