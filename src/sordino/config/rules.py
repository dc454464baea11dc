"""Keys of a run file that name a theorem instead of a number: `server_lr = "theorem-1"`.

[rules] holds the constants that the theorem assumes; what the file says elsewhere (rounds, beta, ...) is read there.
The rule's precondition is checked when the file is read, before anything runs. Everything after this sees numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sordino.config.locate import Source
from sordino.errors import InvalidInput, require
from sordino.rules import RULES, Rule

Values = dict[str, Any]  # TOML, parsed
Place = tuple[str, ...]  # a section and a key
LEFT_OUT = {"algorithm.local_steps": 1, "run.cohort": "full"}  # what a key says that is left out; others are false
FROM_DATA = "from_data"  # of [rules]: the constants that were computed from clients' records


@dataclass(frozen=True)
class Resolved:
    """A key that a rule gave a number."""

    place: tuple[str, ...]  # of the key
    written: str
    value: float
    rule: Rule
    arguments: dict[str, object]

    @property
    def row(self) -> dict[str, object]:
        """What a plan prints."""
        facts = [argument.name for argument in self.rule.arguments if argument.says.assumed]
        known = [f"{name} = {self.arguments[name]:g}" for name in facts if name in self.arguments]
        key = f"[{'.'.join(self.place[:-1])}] {self.place[-1]}"
        assumed = "; ".join([*self.rule.assumes, *known])
        return {"key": key, "value": self.value, "rule": self.rule.name, "assumed": assumed}


def resolve_rules(values: Values, source: Source) -> tuple[Values, tuple[Resolved, ...]]:
    """The file with numbers in the place of rules."""
    method = _value(values, ("algorithm", "name"))
    places = [place for place in _settable(method) if isinstance(_value(values, place), str)]
    given = values.get("rules", {})
    if not isinstance(given, dict):
        return values, ()  # the schema says what is wrong
    constants = {name: value for name, value in given.items() if name != FROM_DATA}
    if not places:
        remedy = 'no key of the file names a rule, as server_lr = "theorem-1": leave the constants out'
        if "rules" in values:
            raise InvalidInput(source.place("rules"), given, remedy)
        return values, ()
    changed, found, used = copy.deepcopy(values), dict[Place, Resolved](), set[str]()
    for rule, its_places in _in_order({place: _rule_for(values, place, source) for place in places}, values, source):
        _require_setting(rule, values, source)
        arguments, where = _arguments(rule, changed, constants, source)
        try:
            results = rule.compute(arguments)
        except InvalidInput as error:
            at = where.get(error.field, ("rules", error.field))
            raise InvalidInput(source.place(*at), error.value, f"{rule.name}: {error.remedy}") from None
        for place in its_places:
            value = results[rule.sets[".".join(place)]]
            assert isinstance(value, int | float)
            _put(changed, place, value)
            found[place] = Resolved(place, str(_value(values, place)), value, rule, arguments)
        used |= set(arguments)
    for name in constants:
        remedy = (
            f"is not a constant of {', '.join(dict.fromkeys(each.rule.name for each in found.values()))}: leave it out"
        )
        if name not in used:
            raise InvalidInput(source.place("rules", name), constants[name], remedy)
    return changed, tuple(found[place] for place in places)


def with_names(values: Values, resolved: tuple[Resolved, ...]) -> Values:
    """A run file with the names of rules again, in the place of their numbers."""
    changed = copy.deepcopy(values)
    for each in resolved:
        _put(changed, each.place, each.written)
    return changed


def takes_list(name: str) -> bool:
    """Whether the value of a constant may itself be a list: one number a client, or the names in from_data."""
    kinds = [
        str(kind)
        for rule in RULES.values()
        for argument in rule.arguments
        if argument.name == name
        for kind in argument.kinds
    ]
    return name == FROM_DATA or any(kind.startswith("list") for kind in kinds)


def _in_order(rules: dict[Place, Rule], values: Values, source: Source) -> Iterator[tuple[Rule, list[Place]]]:
    """Each rule with the keys that name it: a key that another rule reads comes before that rule."""
    left = dict(rules)
    while left:
        for rule in dict.fromkeys(left.values()):
            read = [key for key, other in left.items() if other is not rule and ".".join(key) in rule.reads.values()]
            if not read:
                break
        else:
            place = next(iter(left))
            remedy = "reads a key that another rule gives, which reads this one: write one of them as a number"
            raise InvalidInput(source.place(*place), _value(values, place), remedy)
        its_places = [place for place, other in left.items() if other is rule]
        yield rule, its_places
        left = {place: other for place, other in left.items() if other is not rule}


def _settable(method: object) -> Iterator[tuple[str, ...]]:
    """The keys that a rule about a method may give. Of another method such a key may be a word, as step_size is."""
    fitting = (rule for rule in RULES.values() if method in rule.methods)
    return (tuple(place.split(".")) for place in dict.fromkeys(key for rule in fitting for key in rule.sets))


def _rule_for(values: Values, place: tuple[str, ...], source: Source) -> Rule:
    """The rule that a key names: in full, or as the theorem of a paper that fits the method."""
    written, method, key = str(_value(values, place)), _value(values, ("algorithm", "name")), ".".join(place)
    fitting = [rule for rule in RULES.values() if method in rule.methods and key in rule.sets]
    found = [rule for rule in fitting if written in (rule.name, rule.short_name)]
    if not found:  # theorem-2.1 is theorem-2.1-convex or theorem-2.1-strongly-convex
        kind = "strongly-convex" if _value(values, ("algorithm", "mu")) else "convex"
        found = [rule for rule in fitting if f"{written}-{kind}" in (rule.name, rule.short_name)]
    at = source.place(place[0], place[1], name=f"[{'.'.join(place[:-1])}] {place[-1]}")
    if len(found) != 1:
        several = found or fitting
        names = ("one of " if len(several) > 1 else "") + ", ".join(rule.name for rule in several)
        raise InvalidInput(at, written, f"must be a number, or {names}")
    return found[0]


def _require_setting(rule: Rule, values: Values, source: Source) -> None:
    """Refuse a theorem about another form of the method."""
    for key, wanted in rule.needs.items():
        section, _, name = key.partition(".")
        found = _value(values, (section, name))
        if found is None:
            found = LEFT_OUT.get(key, False)
        if found != wanted:
            remedy = f"{rule.name} is about {name} = {str(wanted).lower() if isinstance(wanted, bool) else wanted}"
            raise InvalidInput(source.place(section, name), found, f"{remedy}: set it so, or name another rule")


def _arguments(
    rule: Rule, values: Values, constants: Values, source: Source
) -> tuple[dict[str, object], dict[str, tuple[str, str]]]:
    """The rule's arguments, and the section and key that each comes from."""
    arguments: dict[str, object] = {}
    where: dict[str, tuple[str, str]] = {}
    for argument in rule.arguments:
        place = tuple(rule.reads.get(argument.name, "").split("."))
        read = _value(values, place) if len(place) > 1 else None
        usable = read is not None and not isinstance(read, str | dict)
        if argument.name in constants:
            value = constants[argument.name]
            remedy = f"[{place[0]}] {place[-1]} says {read}: leave it out here"
            if usable and read != value:
                raise InvalidInput(source.place("rules", argument.name), value, remedy)
            arguments[argument.name], where[argument.name] = value, ("rules", argument.name)
        elif usable:
            arguments[argument.name], where[argument.name] = read, (place[0], place[1])
    return arguments, where


def _value(values: Values, place: tuple[str, ...]) -> object:
    inside: object = values
    for key in place:
        if not isinstance(inside, dict) or key not in inside:
            return None
        inside = inside[key]
    return inside


def _put(values: Values, place: tuple[str, ...], value: object) -> None:
    inside = values
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value


def require_dimension(rows: tuple[Resolved, ...], d: int) -> None:
    """Refuse a rule that was computed for another number of parameters than the task's."""
    for each in rows:
        claimed = each.arguments.get("d", d)
        remedy = f"the model of this task has {d} parameters: write d = {d}"
        require(claimed == d, "d", claimed, remedy)
