"""A run file as text: reading it, changing it by --set, and naming the place of a value in error messages."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_origin

import tomlkit
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from tomlkit.exceptions import TOMLKitError

from sordino.config.schema import File, Section, registries
from sordino.config.toml import read_toml
from sordino.errors import InvalidInput, Refused, SordinoError, require, use_one_of

BARE_KEY = r"[A-Za-z0-9_-]+"  # of TOML
KEYS_IN_MODEL = ("hidden", "norm", "dtype", "input_shape")  # errors about them are errors about `[task] model`


class Source(NamedTuple):
    """A run file, and the changes that --set made to it."""

    path: Path
    text: str
    changed: str  # the text with the changes
    set_keys: frozenset[tuple[str, str]]  # (section, key) of each change

    def place(self, section: str, key: str = "", name: str | None = None) -> str:
        """File, line and name of a key, or of its section if the key is not there; --set instead of the line."""
        name = name or (f"[{section}] {key}".rstrip() if section else key)
        if (section, key) in self.set_keys:
            return f"{self.path}, --set: {name}"
        line = self.line(section, key) or self.line(section)
        return f"{self.path}:{line}: {name}" if line else f"{self.path}: {name}"

    def line(self, section: str, key: str = "") -> int | None:
        """The line of a key, or of its section's header for an empty key; the first line is 1.

        Keys before the first header are of the section "".
        """
        inside = not section
        for number, line in enumerate(self.text.splitlines(), 1):
            header = re.match(r"\s*\[\s*([\w.-]+)\s*\]", line)
            if header:
                inside = header[1] == section
            found = header if not key else re.match(rf"\s*{re.escape(key)}\s*=", line)
            if inside and found:
                return number
        return None


def unchanged(path: Path) -> tuple[Source, dict[str, Any]]:
    """The file as it is, and its values."""
    text, values = read_toml(path)
    return Source(path, text, text, frozenset()), values


def read(path: Path, changes: tuple[str, ...] = ()) -> tuple[Source, dict[str, Any]]:
    """The file and its values after the changes, each written section.key=value."""
    source, values = unchanged(path)
    if not changes:
        return source, values
    document = tomlkit.parse(source.text)
    set_keys = frozenset([_set(document, change) for change in changes])
    changed = tomlkit.dumps(document)
    return Source(path, source.text, changed, set_keys), tomllib.loads(changed)


def _set(document: tomlkit.TOMLDocument, change: str) -> tuple[str, str]:
    """Write section.key=value into the document. The value is TOML; anything else is taken as plain text."""
    name, equals, literal = change.partition("=")
    section, dot, key = name.strip().partition(".")
    if not (equals and dot and re.fullmatch(BARE_KEY, section) and re.fullmatch(BARE_KEY, key)):
        raise InvalidInput("set", change, "write section.key=value, for instance run.rounds=50")
    value = literal_value(literal)
    table = document.setdefault(section, tomlkit.table())
    require(isinstance(table, dict), "set", change, f"{section} is not a section of the file")
    table[key] = value
    return section, key


def literal_value(text: str) -> Any:
    """A value from the command line: TOML; anything else is taken as plain text."""
    try:
        return tomlkit.parse(f"value = {text.strip()}").item("value")
    except TOMLKitError:
        return tomlkit.item(text.strip())


# What a value must be, by pydantic's name for the mistake.
KINDS = {
    "string_type": "must be text, in quotes",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list, in brackets",
    "dict_type": "must be a table, in braces",
    "finite_number": "must be a finite number",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt:g}",
    "less_than_equal": "must be at most {le}",
}


@contextmanager
def located(source: Source, file: File, *sections: str) -> Iterator[None]:
    """Add the file, and the line where the value stands, to errors from code that works on these sections."""
    try:
        yield
    except InvalidInput as error:
        error = _in_terms_of_task(error, file) if "task" in sections else error
        raise InvalidInput(_place_of(error, source, file, sections), error.value, error.remedy) from None
    except Refused as error:
        raise SordinoError(f"{source.path}: {error}") from None


def _in_terms_of_task(error: InvalidInput, file: File) -> InvalidInput:
    """An error of the data or of the model, whose fields have other names than the keys of [task]."""
    task, field = file.task, error.field
    if field in task.options:
        return error
    if field in KEYS_IN_MODEL:
        return InvalidInput("model", task.model, f"{field} = {error.value!r}: {error.remedy}")
    if field == "seed" and error.value == task.partition_seed:
        field = "partition_seed"
    return InvalidInput("name" if field == "data set" else field, error.value, error.remedy)


def _place_of(error: InvalidInput, source: Source, file: File, sections: tuple[str, ...]) -> str:
    """The place of the value that an error is about, without a line if the file does not give it.

    A key of a section that is not concerned is named only if it has the error's value.
    """
    tables: dict[str, Section] = dict(file)
    for name in (*sections, *(name for name in tables if name not in sections)):
        given = tables[name].model_dump(include=tables[name].model_fields_set)
        if error.field in given and (name in sections or _is_part_of(error.value, given[error.field])):
            return source.place(name, error.field)
    if "task" in sections and error.field in file.task.options:
        own_table = source.line("task.options", error.field) is not None
        place = ("task.options", error.field) if own_table else ("task", "options")
        return source.place(*place, name=f"[task.options] {error.field}")
    known = [name for name in sections if error.field in type(tables[name]).model_fields]
    return f"{source.path}: [{known[0]}] {error.field}" if known else f"{source.path}: {error.field}"


def _is_part_of(value: object, given: object) -> bool:
    """Whether an error's value is what a key was given, or one entry of it: a number in adaptive_clip = {...}."""
    entries = given.values() if isinstance(given, dict) else given if isinstance(given, list) else ()
    # By repr, since nan does not equal itself; 8 and 8.0 are also the same value.
    return any(
        repr(value) == repr(one) or (isinstance(value, int | float) and value == one) for one in (given, *entries)
    )


def invalid_input(error: ValidationError, source: Source, model: type[BaseModel]) -> InvalidInput:
    """The first mistake that pydantic found in a file of sections, with file, line, key, value and remedy."""
    # Unknown keys first: a misspelt key is also a missing one, and the misspelling says more.
    first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    section, key = _section_and_key(first, model)
    place = source.place(section, key)
    if first["type"] == "extra_forbidden":
        return InvalidInput(place, first["input"], _remedy_for_unknown(section, key, model))
    if first["type"] == "missing":
        return InvalidInput(place, None, "is missing: add it")
    if first["type"] == "model_type":
        return InvalidInput(place, first["input"], "must be a table: write its keys below a line [section]")
    remedy = KINDS.get(first["type"])
    return InvalidInput(
        place, first["input"], remedy.format(**first.get("ctx", {})) if remedy else _lower(first["msg"])
    )


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _section_and_key(found: ErrorDetails, model: type[BaseModel]) -> tuple[str, str]:
    """Where a mistake is. A key that stands before all sections, as a name or a port, has the section ""."""
    first, *rest = (str(part) for part in found["loc"])
    if rest:
        return first, rest[0]
    if first in model.model_fields:
        annotation = model.model_fields[first].annotation
        return (first, "") if _is_table(annotation) else ("", first)
    return (first, "") if isinstance(found["input"], dict) else ("", first)


def _is_table(annotation: object) -> bool:
    return any(_is_section(part) or get_origin(part) is dict for part in (annotation, *get_args(annotation)))


def _is_section(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)


def keys_in(section: str, model: type[BaseModel]) -> list[str]:
    """The keys that a section may have; without a section, those of the whole file."""
    if section not in model.model_fields:
        return list(model.model_fields)
    annotation = model.model_fields[section].annotation
    sections = [part for part in (*get_args(annotation), annotation) if _is_section(part)]
    return list(sections[0].model_fields) if sections else []


def _remedy_for_unknown(section: str, key: str, model: type[BaseModel]) -> str:
    if section == "privacy":
        owners = [
            name for name, factory in registries().mechanisms.items() if key in inspect.signature(factory).parameters
        ]
        if owners:
            return f"is an option of {' and '.join(owners)}: set mechanism to one that has it, or leave {key} out"
    return f"is not known; {use_one_of(key or section, keys_in(section, model))}"
