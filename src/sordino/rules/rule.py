"""What a rule is: a function of a theorem, and what the command line, run files and the page of the docs need of it.

A rule is a pure function with keyword arguments. Their annotations say what they mean, and whether they are facts that
nobody can read off a run file, which the theorem assumes of the data or the loss. `rule` checks every argument before
the function runs: counts are whole and at least 1, other numbers are positive and finite unless their annotation says
otherwise. The function checks what its theorem demands beyond that. A rule makes no guarantee of privacy: nothing here
is read by an accountant.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Annotated, NamedTuple, ParamSpec, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from sordino.errors import InvalidInput, did_you_mean, require, require_count

P = ParamSpec("P")
Found = TypeVar("Found")  # the NamedTuple that a rule returns
Number: TypeAlias = float | int
OneOrEach: TypeAlias = float | list[float]  # one for all clients, or one a client
CountOrEach: TypeAlias = int | list[int]


@dataclass(frozen=True)
class Says:
    """What an argument or a result means, and the range of an argument."""

    text: str
    assumed: bool = False  # a fact about the data or the loss
    zero: bool = False  # whether 0 is allowed
    below: float = math.inf
    most: float = math.inf


def assumed(text: str, *, zero: bool = False, most: float = math.inf) -> Says:
    """The annotation of a fact that the theorem assumes of the data or the loss."""
    return Says(text, assumed=True, zero=zero, most=most)


class Argument(NamedTuple):
    """An argument of a rule."""

    name: str
    says: Says
    kinds: tuple[object, ...]  # int, float, list[float], ...
    required: bool
    default: object


@dataclass(frozen=True, eq=False)
class Rule:
    """A theorem's rule, for everything that is generated from the registry."""

    paper: int
    theorem: str  # as the paper counts it: "Theorem 2.1, convex"
    function: Callable[..., object]
    assumes: tuple[str, ...]  # of the data and the losses, beyond the numbers among the arguments
    erratum: str  # what is wrong or loose in the paper, and what the rule does about it
    methods: tuple[str, ...] = ()  # methods of run files that it is about
    sets: Mapping[str, str] = field(default_factory=dict)  # "run.rounds" -> the field of the result
    reads: Mapping[str, str] = field(default_factory=dict)  # argument -> the key of a run file that holds it
    needs: Mapping[str, object] = field(default_factory=dict)  # what keys of the run file the theorem is about

    @property
    def name(self) -> str:
        """paper4-theorem-1: from the function, so that Python and the command line agree."""
        return f"paper{self.paper}-{self.short_name}"

    @property
    def short_name(self) -> str:
        """theorem-1, as a run file may say where only one paper's rule fits its method."""
        kind, *rest = self.function.__name__.split("_")
        digits, words = [part for part in rest if len(part) <= 2], [part for part in rest if len(part) > 2]
        return "-".join(filter(None, (kind, ".".join(digits), *words)))

    @property
    def formula(self) -> str:
        """The theorem, from the function's docstring."""
        return inspect.cleandoc(self.function.__doc__ or "")

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """What it takes, in order."""
        hints = get_type_hints(self.function, include_extras=True)
        parameters = inspect.signature(self.function).parameters
        return tuple(_argument(name, hints[name], parameter.default) for name, parameter in parameters.items())

    @property
    def results(self) -> dict[str, str]:
        """What it gives, and what each number means."""
        returned = get_type_hints(self.function)["return"]
        hints = get_type_hints(returned, include_extras=True)
        return {name: _says(name, hint).text for name, hint in hints.items()}

    def compute(self, arguments: Mapping[str, object]) -> dict[str, object]:
        """The rule's numbers for arguments by name."""
        known = [argument.name for argument in self.arguments]
        for name, value in arguments.items():
            require(name in known, name, value, f"{did_you_mean(name, known)}{self.name} takes {', '.join(known)}")
        for argument in self.arguments:  # what is wrong comes before what is missing
            if argument.name in arguments:
                _check(argument, arguments[argument.name])
        missing = [argument for argument in self.arguments if argument.required and argument.name not in arguments]
        if missing:
            says = "; ".join(f"{argument.name}, {argument.says.text}" for argument in missing)
            raise InvalidInput(missing[0].name, None, f"{self.name} also needs {says}")
        found = self.function(**arguments)
        assert isinstance(found, tuple)
        return dict(zip(self.results, found, strict=True))


REGISTRY: dict[str, Rule] = {}


def rule(
    paper: int,
    theorem: str,
    *,
    assumes: tuple[str, ...] = (),
    erratum: str = "",
    methods: tuple[str, ...] = (),
    sets: Mapping[str, str] | None = None,
    reads: Mapping[str, str] | None = None,
    needs: Mapping[str, object] | None = None,
) -> Callable[[Callable[P, Found]], Callable[P, Found]]:
    """Enter a function into the registry and check its arguments before it runs."""

    def enter(function: Callable[P, Found]) -> Callable[P, Found]:
        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> Found:
            for argument in made.arguments:
                if argument.name in kwargs:
                    _check(argument, kwargs[argument.name])
            return function(*args, **kwargs)

        made = Rule(paper, theorem, checked, assumes, erratum, methods, sets or {}, reads or {}, needs or {})
        require(made.name not in REGISTRY, "rule", made.name, "is registered already: rename one of the functions")
        REGISTRY[made.name] = made
        return checked

    return enter


def _argument(name: str, hint: object, default: object) -> Argument:
    says, bare = _says(name, hint), get_args(hint)[0]
    kinds = get_args(bare) if get_origin(bare) in (Union, UnionType) else (bare,)
    required = default is inspect.Parameter.empty
    return Argument(name, says, kinds, required, None if required else default)


def _says(name: str, hint: object) -> Says:
    found = [part for part in get_args(hint) if isinstance(part, Says)] if get_origin(hint) is Annotated else []
    require(len(found) == 1, name, str(hint), "annotate it with what it means: Annotated[float, Says(...)]")
    return found[0]


def _check(argument: Argument, value: object) -> None:
    """Refuse a value of another kind, or outside its range."""
    if value is None and NoneType in argument.kinds:
        return
    if isinstance(value, bool) and bool in argument.kinds:
        return
    several = [kind for kind in argument.kinds if get_origin(kind) is list]
    if several and isinstance(value, list | tuple):
        require(len(value) > 0, argument.name, value, "give one number, or one for each client")
        for each in value:
            _check_number(argument, each, whole=get_args(several[0])[0] is int)
        return
    _check_number(argument, value, whole=float not in argument.kinds)


def _check_number(argument: Argument, value: object, *, whole: bool) -> None:
    name, says = argument.name, argument.says
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if whole:
        require_count(value, name)
    elif not (isinstance(value, int | float) and number and math.isfinite(value)):
        raise InvalidInput(name, value, f"must be a finite number: {says.text}")
    if not isinstance(value, int | float):
        return
    require(value > 0 or (says.zero and value == 0), name, value, f"must be {'0, or ' * says.zero}positive")
    require(value < says.below, name, value, f"must lie below {says.below:g}")
    require(value <= says.most, name, value, f"must be at most {says.most:g}")
