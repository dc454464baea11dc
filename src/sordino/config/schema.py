"""The sections of a run file and their keys.

[algorithm], [bound] and [privacy] take the arguments of factories (methods, bounders, mechanisms), so that every option
is declared once, in a signature.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from sordino.errors import LARGEST_SEED, MOST_ROUNDS, NO_SUCH_SEED, require, use_one_of

Factory = Callable[..., Any]
TOML_TYPES = (bool, int, float, str, list, dict, NoneType)


class Registries(NamedTuple):
    """The names that a run file may use, and their factories."""

    methods: Mapping[str, Factory]
    bounders: Mapping[str, Factory]
    mechanisms: Mapping[str, Factory]


def registries() -> Registries:
    """The registries as they are now: names may have been added since the last call."""
    # Imports inside the functions of this package are for speed only: METHODS and plans load JAX, which takes seconds,
    # and the command line loads this package for every command, `sordino --help` included.
    from sordino.algorithms import METHODS
    from sordino.bounding import BOUNDERS
    from sordino.mechanisms import MECHANISMS

    return Registries(METHODS, BOUNDERS, MECHANISMS)


def _within(low: int, high: float, remedy: str) -> AfterValidator:
    """Refuse other numbers when the file is read, before anything is promised about them."""

    def check(value: int | None) -> int | None:
        if value is not None and not low <= value <= high:
            raise PydanticCustomError("range", remedy)
        return value

    return AfterValidator(check)


def _one_of(registry: Literal["methods", "mechanisms"]) -> AfterValidator:
    """Refuse names that are not in the registry."""

    def check(value: str | None) -> str | None:
        names = registries()._asdict()[registry]
        if value is not None and value not in names:
            raise PydanticCustomError("name", "{remedy}", {"remedy": use_one_of(value, names)})
        return value

    return AfterValidator(check)


def _positive(value: float | list[float] | None) -> float | list[float] | None:
    """Refuse an epsilon that no noise gives, and no numbers at all."""
    if value == []:
        raise PydanticCustomError("empty", "give one number, or one for each client")
    if value is not None and not all(each > 0 for each in (value if isinstance(value, list) else [value])):
        raise PydanticCustomError("range", "must be positive")
    return value


AnySection = TypeVar("AnySection", bound="Section")
AT_LEAST_1 = _within(1, float("inf"), "must be at least 1")


class Section(BaseModel):
    """A table of a run file. Unknown keys are errors; whole numbers may stand for floats, but not the reverse."""

    model_config = ConfigDict(extra="forbid", strict=True)


class TaskSection(Section):
    """[task]: the data, their partition into clients, and the model."""

    name: str
    clients: int | None = None
    partition: str | None = None
    model: str | None = None
    partition_seed: int = 0
    augment: str | None = None
    precision: str = "default"
    options: dict[str, Any] = {}  # of the data set, for instance { scale = 2.0 } for quadratics


class AlgorithmSection(Section):
    """[algorithm]: the name of a method. The arguments of its factory are further keys."""

    name: Annotated[str, _one_of("methods")]


class BoundSection(Section):
    """[bound]: the bounders are its keys."""


class PrivacySection(Section):
    """[privacy]: the noise, the party that adds it, and the guarantee. The mechanism's options are further keys."""

    trust: str = "central"
    mechanism: Annotated[str | None, _one_of("mechanisms")] = None
    # A list has one for each client (methods that protect records).
    epsilon: Annotated[float | list[float] | None, AfterValidator(_positive)] = None
    delta: float | list[float] | None = None
    relation: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The mechanism's options that the file gives."""
        return self.model_dump(exclude=set(PrivacySection.model_fields), exclude_none=True, exclude_unset=True)


class RunSection(Section):
    """[run]: the number of rounds, the cohort and the seed."""

    rounds: Annotated[int, _within(1, MOST_ROUNDS, f"must be at least 1, and at most {MOST_ROUNDS:,}")]
    cohort: str = "full"
    seed: Annotated[int | None, _within(0, LARGEST_SEED, NO_SUCH_SEED)] = None  # None: fresh, from the system
    evaluate_every: Annotated[int | None, AT_LEAST_1] = None
    chunk: Annotated[int | None, AT_LEAST_1] = None
    transcript: bool = False


class RulesSection(Section):
    """[rules]: the constants of theorems that other keys name, as server_lr = "theorem-1"."""

    model_config = ConfigDict(extra="allow", strict=True)

    from_data: list[str] = []  # the constants that were computed from clients' records


class File(Section):
    """A run file without the keys that depend on its method and mechanism, which `file_model` adds."""

    task: TaskSection
    algorithm: AlgorithmSection
    bound: BoundSection = BoundSection()
    privacy: PrivacySection = PrivacySection()
    run: RunSection
    rules: RulesSection = RulesSection()


class _UnknownMethod(AlgorithmSection):
    model_config = ConfigDict(extra="ignore")  # the error is about the name


class _UnknownMechanism(PrivacySection):
    model_config = ConfigDict(extra="ignore")


def file_model(method: object, mechanism: object) -> type[File]:
    """The model of the files with this method and this mechanism; None where a file names no mechanism."""
    return _file_model(_algorithm_section(method), _bound_section(), _privacy_section(mechanism))


@functools.cache
def _file_model(
    algorithm: type[AlgorithmSection], bound: type[BoundSection], privacy: type[PrivacySection]
) -> type[File]:
    return create_model(
        "File", __base__=File, algorithm=(algorithm, ...), bound=(bound, bound()), privacy=(privacy, privacy())
    )


@functools.cache
def _with_arguments(section: type[AnySection], factory: Factory) -> type[AnySection]:
    return create_model(section.__name__, __base__=section, **_arguments(factory))


def _algorithm_section(method: object) -> type[AlgorithmSection]:
    factory = registries().methods.get(str(method))
    if factory is None:
        return _UnknownMethod
    takes_bound = "bound" in inspect.signature(factory).parameters
    require(takes_bound, "algorithm", method, "its factory must take bound, which [bound] gives")
    return _with_arguments(AlgorithmSection, factory)


def _bound_section() -> type[BoundSection]:
    return _bound_section_with(tuple(registries().bounders.items()))


@functools.cache
def _bound_section_with(bounders: tuple[tuple[str, Factory], ...]) -> type[BoundSection]:
    """A bounder with one argument takes its value, clip = 1.0; a bounder with several takes a table of them."""
    keys: dict[str, Any] = {}
    for name, factory in bounders:
        kinds = [kind for kind, _ in _arguments(factory).values()]
        table: Any = dict
        kind = kinds[0] if len(kinds) == 1 else table[str, functools.reduce(operator.or_, kinds, float)]
        keys[name] = (kind | None, None)
    return create_model("BoundSection", __base__=BoundSection, **keys)


def _privacy_section(mechanism: object) -> type[PrivacySection]:
    # Without a name the plan takes Gaussian noise where an epsilon or a noise multiplier is given.
    factory = registries().mechanisms.get("gaussian" if mechanism is None else str(mechanism))
    return _UnknownMechanism if factory is None else _with_arguments(PrivacySection, factory)


def _arguments(factory: Factory) -> dict[str, Any]:
    """Type and default of every argument that a file can give; Python objects, such as optimisers, are left out."""
    hints, keys = get_type_hints(factory), {}
    for name, parameter in inspect.signature(factory).parameters.items():
        require(name in hints, factory.__name__, name, "give this argument of the factory a type hint")
        kind = _in_toml(hints[name])
        if kind is not None:
            keys[name] = (kind, ... if parameter.default is parameter.empty else parameter.default)
    return keys


def _in_toml(hint: object) -> Any:
    """The part of a type hint that TOML can hold, or None: float | dict of float | dict | Callable."""
    kept = [part for part in _alternatives(hint) if part in TOML_TYPES or get_origin(part) in (*TOML_TYPES, Literal)]
    return functools.reduce(operator.or_, kept) if set(kept) - {NoneType} else None


def _alternatives(hint: object) -> tuple[object, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def keys_of(section: str) -> Iterator[tuple[str, FieldInfo]]:
    """Every key of the section, for each method and mechanism that gives it."""
    models: dict[str, list[type[Section]]] = {
        "task": [TaskSection],
        "algorithm": [_algorithm_section(method) for method in registries().methods],
        "bound": [_bound_section()],
        "privacy": [_privacy_section(mechanism) for mechanism in registries().mechanisms],
        "run": [RunSection],
        "rules": [RulesSection],
    }
    return itertools.chain.from_iterable(model.model_fields.items() for model in models.get(section, []))


def takes_list(section: str, key: str) -> bool:
    """Whether the value of a key may itself be a list, so that a list there is one value and not a sweep."""
    alternatives = [part for name, field in keys_of(section) if name == key for part in _alternatives(field.annotation)]
    return any((get_origin(part) or part) is list for part in alternatives)
