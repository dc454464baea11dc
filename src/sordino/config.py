"""A run as a TOML file: what may stand in it, and what to say, with file and line, when something else does."""

from __future__ import annotations

import functools
import inspect
import json
import operator
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from sordino.errors import LARGEST_SEED, MOST_ROUNDS, NO_SUCH_SEED, InvalidInput, Refused, SordinoError, require
from sordino.variations import variations

__all__ = ["Config", "Sweep", "SweepPoint", "load_config", "load_sweep"]

NOT_IN_A_FILE = ("bound", "server_optimiser")  # [bound] says the first; the second is a Python object
OF_THE_MODEL = ("hidden", "norm", "dtype", "input_shape")  # what `[task] model` spells, or must fit
BARE_KEY = r"[A-Za-z0-9_-]+"  # of TOML


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class TaskSection(_Section):
    """[task]: the data, how they are dealt to clients, and the model."""

    name: str
    clients: int | None = None
    partition: str | None = None
    model: str | None = None
    partition_seed: int = 0
    augment: str | None = None
    options: dict[str, Any] = {}  # of the data set: scale = 2.0 of quadratics, for instance


class PrivacySection(_Section):
    """[privacy]: the noise, where it is added, and the guarantee that it is to meet."""

    trust: str = "central"
    mechanism: str | None = None
    epsilon: float | list[float] | None = None  # of methods that protect records, perhaps one a client
    delta: float | list[float] | None = None
    noise_multiplier: float | None = None
    calibration: str = "numeric"
    relation: str | None = None
    message_epsilon: float | None = None  # of qtdl and binomial, as are the next three
    message_delta: float | None = None
    levels: int | None = None
    noise: str | None = None  # of qtdl, and of methods that protect records
    mu: float | None = None  # assumed sensitivities
    message_eps0: float | None = None  # of privunit, as are the next three
    message_eps1: float | None = None
    message_eps2: float | None = None
    gamma: str | None = None


def _within(low: int, high: float, remedy: str) -> AfterValidator:
    """Refuse other numbers with file and line, before `sordino plan` promises what cannot run."""

    def check(value: int | None) -> int | None:
        if value is not None and not low <= value <= high:
            raise PydanticCustomError("range", remedy)
        return value

    return AfterValidator(check)


AT_LEAST_1 = _within(1, float("inf"), "must be at least 1")
USUAL_ROUNDS = _within(1, MOST_ROUNDS, f"must be at least 1, and at most {MOST_ROUNDS:,}")
SEEDS = _within(0, LARGEST_SEED, NO_SUCH_SEED)


class RunSection(_Section):
    """[run]: how long, who takes part, and the seed."""

    rounds: Annotated[int, USUAL_ROUNDS]
    cohort: str = "full"
    seed: Annotated[int, SEEDS] = 0
    evaluate_every: Annotated[int | None, AT_LEAST_1] = None
    chunk: Annotated[int | None, AT_LEAST_1] = None
    transcript: bool = False


class _File(_Section):
    """A run file whose [algorithm] and [bound] have not been looked into: `_file_model` does."""

    task: TaskSection
    algorithm: Any
    bound: Any = None
    privacy: PrivacySection = PrivacySection()
    run: RunSection


def _file_model(method: str | None = None) -> type[_File]:
    """The file of one method; without one, [algorithm] is not looked into."""
    from sordino.bounding import BOUNDERS

    return _file_model_with(method, tuple(BOUNDERS))


@functools.cache
def _file_model_with(method: str | None, bounders: tuple[str, ...]) -> type[_File]:
    """[algorithm] and [bound] take the arguments of their factories, so that there is one list of them."""
    bound = create_model("BoundSection", __base__=_Section, **{name: _bound_key(name) for name in bounders})
    algorithm = (Any if method is None else _algorithm_section(method), ...)
    return create_model("File", __base__=_File, algorithm=algorithm, bound=(bound, bound()))


def _algorithm_section(method: str) -> Any:
    """[algorithm] of one method."""
    from sordino.algorithms import METHODS

    hints, parameters = get_type_hints(METHODS[method]), inspect.signature(METHODS[method]).parameters
    require("bound" in parameters, "algorithm", method, "its factory must take bound, which [bound] gives")
    keys: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if name not in NOT_IN_A_FILE:
            require(name in hints, "algorithm", method, f"give the argument {name} of its factory a type hint")
            keys[name] = (hints[name], ... if parameter.default is parameter.empty else parameter.default)
    return create_model("AlgorithmSection", __base__=_Section, name=(str, ...), **keys)


def _bound_key(bounder: str) -> Any:
    """A bounder of one argument is given its value, clip = 1.0; one of several takes a table of them."""
    from sordino.bounding import BOUNDERS

    hints = get_type_hints(BOUNDERS[bounder])
    types = [hints[name] for name in inspect.signature(BOUNDERS[bounder]).parameters]
    if len(types) == 1:
        return types[0] | None, None
    table: Any = dict  # of what the arguments may be
    return table[str, functools.reduce(operator.or_, types, float)] | None, None


@dataclass(frozen=True)
class Config:
    """A checked file, and the task and plan that it describes."""

    path: Path
    text: str
    changed: str  # the text with the changes of --set
    file: _File

    @property
    def task_key(self) -> str:
        """Equal for files with the same task."""
        return self.file.task.model_dump_json()

    def task(self) -> Any:
        """The task; reads the data."""
        from sordino.simulation.tasks import task

        section = self.file.task
        return self._located(
            lambda: task(
                section.name,
                clients=section.clients,
                partition=section.partition,
                model=section.model,
                partition_seed=section.partition_seed,
                augment=section.augment,
                **section.options,
            ),
            "task",
        )

    def plan(self) -> Any:
        """The plan."""
        from sordino.simulation.planning import plan

        run, privacy = self.file.run, self.file.privacy
        quantised = ("message_epsilon", "message_delta", "levels", "noise", "mu")
        names = (*quantised, "message_eps0", "message_eps1", "message_eps2", "gamma")
        options = {name: getattr(privacy, name) for name in names if getattr(privacy, name) is not None}
        algorithm = self._located(self._algorithm, "algorithm", "bound")
        return self._located(
            lambda: plan(
                algorithm,
                rounds=run.rounds,
                cohort=run.cohort,
                epsilon=privacy.epsilon,
                delta=privacy.delta,
                noise_multiplier=privacy.noise_multiplier,
                calibration=privacy.calibration,
                mechanism=privacy.mechanism,
                trust=privacy.trust,
                relation=privacy.relation,
                **options,
            ),
            "privacy",
            "run",
        )

    def resolve(self, plan: Any, task: Any) -> Any:
        """The plan for the task, with errors that name the line."""
        return self._located(lambda: plan.resolve(task.d, task.clients, task), "run", "privacy", "algorithm", "bound")

    def _algorithm(self) -> Any:
        from sordino.algorithms import METHODS

        section = self.file.algorithm
        return METHODS[section.name](bound=self._bound(), **section.model_dump(exclude={"name"}))

    def _bound(self) -> Any:
        from sordino.bounding import BOUNDERS

        given = {key: value for key, value in self.file.bound.model_dump().items() if value is not None}
        if len(given) > 1:
            *names, last = BOUNDERS
            raise InvalidInput("bound", given, f"give one of {', '.join(names)} and {last}")
        for name, value in given.items():
            arguments = list(inspect.signature(BOUNDERS[name]).parameters)
            try:
                return BOUNDERS[name](**({arguments[0]: value} if len(arguments) == 1 else value))
            except TypeError as error:  # of adaptive_clip = {...}
                raise InvalidInput(name, value, f"other keys are needed: {error}") from None
        return None

    def _located(self, make: Callable[[], Any], *sections: str) -> Any:
        """Run `make`, made from these sections; an error about a value gets the file and the line where it stands."""
        try:
            return make()
        except InvalidInput as error:
            error = self._as_in_the_file(error) if "task" in sections else error
            raise InvalidInput(self._place(error, sections), error.value, error.remedy) from None
        except Refused as error:
            raise SordinoError(f"{self.path}: {error}") from None

    def _as_in_the_file(self, error: InvalidInput) -> InvalidInput:
        """An error of the task's factory, whose parts have other names for some keys of [task]."""
        section, field = self.file.task, error.field
        if field in section.options:
            return error
        if field in OF_THE_MODEL:
            return InvalidInput("model", section.model, f"{field} = {error.value!r}: {error.remedy}")
        if field == "seed" and error.value == section.partition_seed:
            field = "partition_seed"
        return InvalidInput("name" if field == "data set" else field, error.value, error.remedy)

    def _place(self, error: InvalidInput, sections: tuple[str, ...]) -> str:
        """Where the value that an error is about was given: file, line, [section] key; no line where it was not."""
        others = [name for name in _File.model_fields if name not in sections]
        for name in (*sections, *others):
            section = getattr(self.file, name)
            given = {key: getattr(section, key) for key in section.model_fields_set}
            if error.field in given and (name in sections or _is_of(error.value, given[error.field])):
                return self._source.of(name, error.field)
        if "task" in sections and error.field in self.file.task.options:
            name = f"[task.options] {error.field}"
            inside = line_of(self.text, "task.options", error.field) is not None
            return self._source.of(*(("task.options", error.field) if inside else ("task", "options")), name=name)
        known = [name for name in sections if error.field in type(getattr(self.file, name)).model_fields]
        return f"{self.path}: [{known[0]}] {error.field}" if known else f"{self.path}: {error.field}"

    @property
    def _source(self) -> _Source:
        return _Source(self.path, self.text, self.changed)


class _Source(NamedTuple):
    """A file, and what --set made of it."""

    path: Path
    text: str
    changed: str

    def of(self, section: str, key: str = "", name: str | None = None) -> str:
        """File, line and name of a key, or of its section; --set, if that wrote the key."""
        name = name or f"[{section}] {key}".rstrip()
        if key and _line(self.text, section, key) != _line(self.changed, section, key):
            return f"{self.path}, --set: {name}"
        line = line_of(self.text, section, key) or line_of(self.text, section, "")
        return f"{self.path}:{line}: {name}" if line else f"{self.path}: {name}"


def _line(text: str, section: str, key: str) -> str | None:
    number = line_of(text, section, key)
    return None if number is None else text.splitlines()[number - 1]


class SweepPoint(NamedTuple):
    """One run of a sweep: what is its own, by section.key, and its configuration."""

    values: dict[str, Any]
    config: Config


@dataclass(frozen=True)
class Sweep:
    """A file that stands for many runs."""

    path: Path
    changed: str  # the text with the changes of --set
    points: tuple[SweepPoint, ...]

    @property
    def varied(self) -> tuple[str, ...]:
        """The keys that take several values, in the order of the file, grids first."""
        return tuple(self.points[0].values)

    def tasks(self) -> dict[str, Any]:
        """The tasks of the points, each data set read once."""
        made: dict[str, Any] = {}
        for _, config in self.points:
            if config.task_key not in made:
                made[config.task_key] = config.task()
        return made


def load_config(path: Path, changes: tuple[str, ...] = ()) -> Config:
    """Read and check a file that holds one run; `changes` are section.key=value, as in --set."""
    sweep = load_sweep(path, changes)
    if sweep.varied:
        raise InvalidInput("file", str(path), f"holds {len(sweep.points)} runs, not one: `sordino run` takes it")
    return sweep.points[0].config


def load_sweep(path: Path, changes: tuple[str, ...] = ()) -> Sweep:
    """Read and check a file that may stand for many runs; see `sordino.variations`."""
    try:
        text = path.read_text()
    except OSError as error:
        raise InvalidInput("file", str(path), f"cannot be read ({error.strerror}): check the path") from None
    except UnicodeDecodeError:
        raise InvalidInput("file", str(path), "is not text: give a TOML file") from None
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput("file", str(path), f"is not valid TOML: {error}") from None
    changed = text
    for change in changes:
        changed, values = _apply(changed, change)
    source = _Source(path, text, changed)
    try:
        several = variations(values, _takes_list)
    except InvalidInput as error:
        section, _, key = error.field.partition(".")
        place = source.of(section, key.partition(".")[0], name=f"[{section}] {key}")
        raise InvalidInput(place, error.value, error.remedy) from None
    points = [SweepPoint(own, Config(path, text, changed, _checked(values, source))) for values, own in several]
    return Sweep(path, changed, tuple(points))


def _checked(values: dict[str, Any], source: _Source) -> _File:
    model = _file_model()
    try:
        model.model_validate(_floats(values, model))  # the other sections first: they do not depend on the method
        model = _file_model(_method_of(values["algorithm"], source))
        return model.model_validate(_floats(values, model))
    except ValidationError as error:
        raise _first_error(error, source, model) from None


def _fields(annotation: Any) -> dict[str, FieldInfo]:
    """Of a section's model; none for a value that is no section."""
    return getattr(annotation, "model_fields", {})


def _takes_list(section: str, key: str) -> bool:
    """Whether a key's own value may be a list, so that a list there is not a sweep."""
    from sordino.algorithms import METHODS

    models = [_file_model(method) for method in METHODS]
    sections = [_fields(model.model_fields[section].annotation) for model in models if section in model.model_fields]
    known = [fields[key].annotation for fields in sections if key in fields]
    return any("list" in str(annotation) or "tuple" in str(annotation) for annotation in known)


def _method_of(algorithm: Any, source: _Source) -> str:
    """The name in [algorithm], if it is one of ours."""
    from sordino.algorithms import METHODS

    method = algorithm.get("name") if isinstance(algorithm, dict) else None
    if method not in METHODS:
        raise InvalidInput(source.of("algorithm", "name"), method, "use one of " + ", ".join(METHODS))
    return str(method)


def line_of(text: str, section: str, key: str) -> int | None:
    """The line of `key` in `[section]`, or of the section itself for an empty key; from 1."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[\s*([\w.-]+)\s*\]", line)
        if header:
            inside = header[1] == section
            if inside and not key:
                return number
        elif inside and re.match(rf"\s*{re.escape(key)}\s*=", line):
            return number
    return None


def _apply(text: str, change: str) -> tuple[str, dict[str, Any]]:
    """Write section.key=value into the text, the value read as TOML (or as plain text); also what the text now says."""
    name, equals, value = change.partition("=")
    section, dot, key = name.strip().partition(".")
    if not (equals and dot and re.fullmatch(BARE_KEY, section) and re.fullmatch(BARE_KEY, key)):
        raise InvalidInput("set", change, "write section.key=value, for instance run.rounds=50")
    literal = value.strip()
    try:
        wanted = tomllib.loads(f"value = {literal}")["value"]
    except tomllib.TOMLDecodeError:
        wanted, literal = literal, json.dumps(literal)
    lines = text.splitlines()
    place, header = line_of(text, section, key), line_of(text, section, "")
    if place:
        lines[place - 1] = f"{key} = {literal}"
    elif header:
        lines.insert(header, f"{key} = {literal}")
    else:
        lines += [f"[{section}]", f"{key} = {literal}"]
    changed = "\n".join(lines) + "\n"
    try:
        values = tomllib.loads(changed)
        understood = _same(values[section][key], wanted)
    except (tomllib.TOMLDecodeError, KeyError, TypeError):
        understood = False
    require(understood, "set", change, "cannot be set from here, where the file spreads it over lines: edit the file")
    return changed, values


def _same(one: Any, other: Any) -> bool:
    """Whether two values are written alike; nan, which does not equal itself, is."""
    return repr(one) == repr(other)


def _is_of(value: Any, given: Any) -> bool:
    """Whether an error's value is what a key was given, or a part of it: a number of adaptive_clip = {...}."""
    parts = given.values() if isinstance(given, dict) else given if isinstance(given, list) else ()
    return any(_same(value, one) or (isinstance(value, int | float) and value == one) for one in (given, *parts))


def _floats(values: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Whole numbers where a float is expected are meant as floats: epsilon = 5."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        field = model.model_fields.get(key)
        if field is None:
            result[key] = value
        elif isinstance(value, dict) and isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            result[key] = _floats(value, field.annotation)
        elif type(value) is int and "float" in str(field.annotation) and abs(value) < 2**1023:  # else not a float
            result[key] = float(value)
        else:
            result[key] = value
    return result


def _first_error(error: ValidationError, source: _Source, model: type[_File]) -> InvalidInput:
    """The first thing that is wrong, unknown names before all: file, line, key, value, remedy."""
    # A misspelt key is also a missing one: what stands there says more than what does not.
    first = min(error.errors(), key=lambda wrong: wrong["type"] != "extra_forbidden")
    section, *rest = (str(part) for part in first["loc"])
    key = rest[0] if rest else ""
    place = source.of(section, key)
    section_model = model.model_fields[section].annotation if section in model.model_fields else None
    if first["type"] == "extra_forbidden":
        known = _fields(section_model) if section_model else model.model_fields
        return InvalidInput(place, first["input"], f"is not known; use {', '.join(known)}")
    if first["type"] == "missing":
        return InvalidInput(place, None, "is missing: add it")
    return InvalidInput(place, first["input"], first["msg"].lower())
