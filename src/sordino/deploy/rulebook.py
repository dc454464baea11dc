"""What a node checks before it computes anything: every number of a study against its own rules.

A refusal has a reason that travels, as one byte, and words that stay in the node's log.
"""

from __future__ import annotations

import math

from sordino.config import Config
from sordino.deploy.records import OwnRecords
from sordino.deploy.seam import Reason
from sordino.deploy.settings import NodeFile
from sordino.deploy.study import Description, ModelSize, Study, model_of, size_of
from sordino.errors import BudgetExceeded, Refused, SordinoError
from sordino.privacy.events import Gaussian, NonPrivate, Repeated, Sampled, ZeroConcentrated
from sordino.privacy.filter import Filter, Spent
from sordino.privacy.tally import pure_bound, tally_of
from sordino.types import Event, Trust, Unit


class Refusal(SordinoError):
    """The node does not answer."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def require_own_description(
    rules: NodeFile, records: OwnRecords, own_key: str, description: Description, counts: bool
) -> int:
    """The node's number in a study; refused where the description is not about this node and its records.

    `counts` says that the study protects records, and so has everybody's number of them; another one may have none,
    not even the right one: whoever guesses would learn it from the answer.
    """
    if any((each.records is not None) != counts for each in description.members):
        raise Refusal(
            Reason.PLAN, f"study {description.name}: numbers of records are given where they must not be, or not"
        )
    members, most = len(description.members), rules.accept.most_members
    if counts and members > most:
        raise Refusal(Reason.WORK, f"study {description.name}: {members} members, at most {most} are accepted")
    index = description.index(rules.name)
    if index is None or description.members[index].key != own_key:
        raise Refusal(Reason.PLAN, f"study {description.name}: {rules.name} with its key is not among the members")
    if description.shape != records.x.shape[1:] or description.classes != rules.data.classes:
        raise Refusal(
            Reason.DATA,
            f"study {description.name}: records of shape {description.shape} and {description.classes} classes, and "
            f"here are {records.x.shape[1:]} and {rules.data.classes}",
        )
    told = description.members[index].records
    if counts and told != len(records.y):
        raise Refusal(Reason.DATA, f"study {description.name}: {told} records here, and there are {len(records.y)}")
    return index


def require_accepted_plan(rules: NodeFile, config: Config) -> bool:
    """Refuse a run file by what it says, before anything is calibrated -> whether its study counts records."""
    plan, accept, name = config.plan(), rules.accept, config.file.algorithm.name
    if name not in accept.methods:
        raise Refusal(Reason.METHOD, f"method {name}: accepted are {', '.join(accept.methods)}")
    if plan.trusted not in rules.trusts:
        raise Refusal(Reason.TRUST, f"trust {plan.trusted}: accepted are {', '.join(accept.trust)}")
    if plan.rounds > accept.most_rounds:
        raise Refusal(Reason.BUDGET, f"{plan.rounds} rounds: at most {accept.most_rounds} are accepted")
    steps = config.file.algorithm.model_dump().get("local_steps", 1)
    if steps > accept.most_local_steps:
        raise Refusal(Reason.WORK, f"{steps} local steps: at most {accept.most_local_steps} are accepted")
    named = (config.file.task.model or "").count(",")  # sizes of layers, before anything is made of them
    _require_small(rules, ModelSize(0, named))
    unit = plan.method.privacy.unit
    if plan.trusted is not Trust.NONE:
        if plan.mechanism not in accept.mechanisms:
            raise Refusal(Reason.METHOD, f"mechanism {plan.mechanism}: accepted are {', '.join(accept.mechanisms)}")
        if (unit, plan.relation) != (rules.unit, rules.relation):
            raise Refusal(
                Reason.UNIT,
                f"the study protects one {unit} ({plan.relation}), and this node protects one {rules.unit} "
                f"({rules.relation})",
            )
    return unit is Unit.RECORD


def require_accepted_model(rules: NodeFile, config: Config, description: Description) -> None:
    """Refuse a model that is larger or deeper than the node allows, before an array of its size is made."""
    _require_small(rules, size_of(model_of(config, description.shape, description.classes)))


def _require_small(rules: NodeFile, size: ModelSize) -> None:
    accept = rules.accept
    if size.parameters > accept.largest_model:
        raise Refusal(Reason.WORK, f"a model of {size.parameters} parameters: at most {accept.largest_model}")
    if size.layers > accept.most_layers:
        raise Refusal(Reason.WORK, f"a model of {size.layers} layers: at most {accept.most_layers}")


def require_accepted(rules: NodeFile, study: Study, i: int) -> None:
    """Refuse a study that asks for more than the node allows."""
    require_accepted_plan(rules, study.config)
    _require_small(rules, study.size)
    if study.plan.resolved.trust is Trust.NONE:
        return
    bound, most = largest_part(study, i), rules.accept.largest_bound
    if not bound <= most:
        raise Refusal(Reason.BOUND, f"bound {bound:g}: at most {most:g} is accepted")
    _require_noise(rules, released(study, i))


def largest_part(study: Study, i: int) -> float:
    """The bound of what one unit puts into a message: a message's, or that of one record's gradient."""
    if study.plan.unit is Unit.RECORD:
        numbers = study.numbers(i)
        assert numbers is not None
        return float(numbers.lipschitz)
    bound = study.rules.method.bound
    return math.inf if bound is None else float(bound.limit)


def released(study: Study, i: int) -> Event:
    """What a round costs the node against whom it trusts least: the server, or, with central trust, model users."""
    return study.plan.model_costs[i] if study.plan.resolved.trust is Trust.CENTRAL else study.plan.costs[i]


def _require_noise(rules: NodeFile, event: Event) -> None:
    least, most = rules.accept.smallest_noise, rules.accept.largest_message_epsilon
    for leaf in tally_of(event, rules.relation).leaves:
        inner = leaf.event if isinstance(leaf, Sampled) else leaf
        if isinstance(inner, Gaussian):
            if not inner.noise_multiplier >= least:
                raise Refusal(Reason.NOISE, f"noise multiplier {inner.noise_multiplier:g}: at least {least:g}")
        elif isinstance(inner, ZeroConcentrated) and not math.isfinite(pure_bound(inner)):
            alike = 2 * (inner.rho + inner.xi)  # z^-2 of Gaussian noise that is concentrated alike
            if not alike * least**2 <= 1:
                raise Refusal(Reason.NOISE, f"as much noise as multiplier {alike**-0.5:g} means: at least {least:g}")
        elif isinstance(inner, NonPrivate):
            raise Refusal(Reason.NOISE, "messages without noise")
        elif not pure_bound(inner) <= most:
            raise Refusal(Reason.NOISE, f"epsilon {pure_bound(inner):g} a message: at most {most:g}")


def require_budget(filter: Filter, spent: Spent, event: Event, rounds: int = 1) -> Spent:
    """What will have been spent after so many rounds, or a refusal."""
    try:
        return filter.require(spent, Repeated(event, rounds, unit=event.unit, relation=event.relation))
    except (BudgetExceeded, Refused) as error:
        raise Refusal(Reason.BUDGET, str(error)) from None
