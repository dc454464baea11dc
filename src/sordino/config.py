"""A run as a TOML file: what may stand in it, and what to say, with file and line, when something else does."""

from __future__ import annotations

import functools
import inspect
import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.fields import FieldInfo

from sordino.errors import InvalidInput, Refused, SordinoError, require
from sordino.variations import variations

__all__ = ["Config", "Sweep", "SweepPoint", "load_config", "load_sweep"]

NOT_IN_A_FILE = ("bound", "server_optimiser")  # [bound] says the first; the second is a Python object


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class TaskSection(_Section):
    """[task]: the data, how they are dealt to clients, and the model."""

    name: str
    clients: int | None = None
    partition: str | None = None
    model: str = "logistic"
    partition_seed: int = 0
    augment: str | None = None
    options: dict[str, Any] = {}  # of the data set: scale = 2.0 of quadratics, for instance


class BoundSection(_Section):
    """[bound]: exactly one way to cap the norm of an update."""

    clip: float | None = None
    normalize: float | None = None
    smoothed_normalize: float | None = None
    adaptive_clip: dict[str, float] | None = None


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


class RunSection(_Section):
    """[run]: how long, who takes part, and the seed."""

    rounds: int
    cohort: str = "full"
    seed: int = 0
    evaluate_every: int | None = None
    chunk: int | None = None
    transcript: bool = False


class _File(_Section):
    """A run file whose [algorithm] has not been looked into: `_file_model` does, once the method is known."""

    task: TaskSection
    algorithm: Any
    bound: BoundSection = BoundSection()
    privacy: PrivacySection = PrivacySection()
    run: RunSection


@functools.cache
def _file_model(method: str) -> type[_File]:
    """The file of one method: [algorithm] takes the arguments of its factory, so that there is one list of them."""
    from sordino.algorithms import METHODS

    hints = get_type_hints(METHODS[method])
    keys: dict[str, Any] = {}
    for name, parameter in inspect.signature(METHODS[method]).parameters.items():
        if name not in NOT_IN_A_FILE:
            keys[name] = (hints[name], ... if parameter.default is parameter.empty else parameter.default)
    section: Any = create_model("AlgorithmSection", __base__=_Section, name=(str, ...), **keys)
    return create_model("File", __base__=_File, algorithm=(section, ...))


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
        algorithm = self._located(self._algorithm, "algorithm")
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
        )

    def resolve(self, plan: Any, task: Any) -> Any:
        """The plan for the task, with errors that name the line."""
        return self._located(lambda: plan.resolve(task.d, task.clients, task), "run")

    def _algorithm(self) -> Any:
        from sordino.algorithms import METHODS

        section = self.file.algorithm
        return METHODS[section.name](bound=self._bound(), **section.model_dump(exclude={"name"}))

    def _bound(self) -> Any:
        import sordino as so

        given = {key: value for key, value in self.file.bound.model_dump().items() if value is not None}
        if len(given) > 1:
            raise InvalidInput("bound", given, "give one of clip, normalize, smoothed_normalize and adaptive_clip")
        for name, value in given.items():
            factory = getattr(so, name)
            try:
                return factory(**value) if isinstance(value, dict) else factory(value)
            except TypeError as error:  # of adaptive_clip = {...}
                raise InvalidInput(name, value, f"other keys are needed: {error}") from None
        return None

    def _located(self, make: Any, section: str) -> Any:
        """Run `make`; an error about a value gets the file and the line where it stands."""
        try:
            return make()
        except InvalidInput as error:
            sections = [section, *(name for name in _File.model_fields if name != section)]
            key = "name" if error.field == "data set" else error.field
            for name in sections:
                line = line_of(self.text, name, key)
                if line:
                    raise InvalidInput(f"{self.path}:{line}: [{name}] {key}", error.value, error.remedy) from None
            raise InvalidInput(f"{self.path}: {error.field}", error.value, error.remedy) from None
        except Refused as error:
            raise SordinoError(f"{self.path}: {error}") from None


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
    try:
        several = variations(values, _takes_list)
    except InvalidInput as error:
        section, _, key = error.field.partition(".")
        line = line_of(text, section, key.partition(".")[0])
        place = f"{path}:{line}" if line else f"{path}"
        raise InvalidInput(f"{place}: [{section}] {key}", error.value, error.remedy) from None
    points = [SweepPoint(own, Config(path, text, changed, _checked(values, path, text))) for values, own in several]
    return Sweep(path, changed, tuple(points))


def _checked(values: dict[str, Any], path: Path, text: str) -> _File:
    model: type[_File] = _File
    try:
        model.model_validate(_floats(values, model))  # the other sections first: they do not depend on the method
        model = _file_model(_method_of(values["algorithm"], path, text))
        return model.model_validate(_floats(values, model))
    except ValidationError as error:
        raise _first_error(error, path, text, model) from None


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


def _method_of(algorithm: Any, path: Path, text: str) -> str:
    """The name in [algorithm], if it is one of ours."""
    from sordino.algorithms import METHODS

    method = algorithm.get("name") if isinstance(algorithm, dict) else None
    if method not in METHODS:
        line = line_of(text, "algorithm", "name") or line_of(text, "algorithm", "")
        remedy = "use one of " + ", ".join(METHODS)
        raise InvalidInput(f"{path}:{line}: [algorithm] name" if line else f"{path}: [algorithm] name", method, remedy)
    return str(method)


def line_of(text: str, section: str, key: str) -> int | None:
    """The line of `key` in `[section]`, or of the section itself for an empty key; from 1."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[\s*([\w-]+)\s*\]", line)
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
    if not (equals and dot and section and re.fullmatch(r"[\w-]+", key)):
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
        understood = values[section][key] == wanted
    except (tomllib.TOMLDecodeError, KeyError, TypeError):
        understood = False
    require(understood, "set", change, "cannot be set from here, where the file spreads it over lines: edit the file")
    return changed, values


def _floats(values: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Whole numbers where a float is expected are meant as floats: epsilon = 5."""
    result: dict[str, Any] = {}
    for key, value in values.items():
        field = model.model_fields.get(key)
        if field is None:
            result[key] = value
        elif isinstance(value, dict) and isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            result[key] = _floats(value, field.annotation)
        elif isinstance(value, int) and not isinstance(value, bool) and "float" in str(field.annotation):
            result[key] = float(value)
        else:
            result[key] = value
    return result


def _first_error(error: ValidationError, path: Path, text: str, model: type[_File]) -> InvalidInput:
    """The first thing that is wrong, unknown names before all: file, line, key, value, remedy."""
    # A misspelt key is also a missing one: what stands there says more than what does not.
    first = min(error.errors(), key=lambda wrong: wrong["type"] != "extra_forbidden")
    section, *rest = (str(part) for part in first["loc"])
    key = rest[0] if rest else ""
    line = line_of(text, section, key) or line_of(text, section, "")
    place = f"{path}:{line}" if line else f"{path}"
    section_model = model.model_fields[section].annotation if section in model.model_fields else None
    if first["type"] == "extra_forbidden":
        known = _fields(section_model) if section_model else model.model_fields
        return InvalidInput(
            f"{place}: [{section}] {key}".rstrip(), first["input"], f"is not known; use {', '.join(known)}"
        )
    if first["type"] == "missing":
        return InvalidInput(f"{place}: [{section}] {key}".rstrip(), None, "is missing: add it")
    return InvalidInput(f"{place}: [{section}] {key}".rstrip(), first["input"], first["msg"].lower())
