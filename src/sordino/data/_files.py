"""Files of public data sets: found, or downloaded from their publisher, and always checked.

A file is looked for in $SORDINO_DATA/NAME, then in the cache ($SORDINO_CACHE/NAME, by default
~/.cache/sordino/NAME). Downloads go to the cache; a file appears there only when it is complete and its checksum is
right.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

from sordino.errors import InvalidInput
from sordino.files import cache_folder, replacing

_TIMEOUT_SECONDS = 60
_BLOCK_BYTES = 1 << 18


class File(NamedTuple):
    """One file: its name, its checksum ("sha256:...", or the kind that its publisher gives) and its addresses."""

    name: str
    checksum: str
    urls: tuple[str, ...] = ()  # mirrors, tried in order


class Source(NamedTuple):
    """The files of a data set. A data set may have several forms; the first form is the one that is downloaded."""

    name: str
    forms: tuple[tuple[File, ...], ...]
    other_folder: str | None = None  # a second name for the folder


def published(checksums: Mapping[str, str], *mirrors: str) -> tuple[File, ...]:
    """Files that lie under their own names at each mirror; without mirrors they can only be found."""
    return tuple(
        File(name, checksum, tuple(mirror + name for mirror in mirrors)) for name, checksum in checksums.items()
    )


def places(source: Source) -> list[Path]:
    """The folders that are searched for the files, in this order."""
    names = [source.name] if source.other_folder is None else [source.name, source.other_folder]
    shared = os.environ.get("SORDINO_DATA")
    kept = [Path(shared).expanduser() / name for name in names] if shared else []
    return [*kept, cache_folder() / source.name]


def find(source: Source) -> tuple[Path, tuple[File, ...]] | None:
    """The first folder that holds all files of one form, unchecked; None if there is none."""
    for folder in places(source):
        for form in source.forms:
            if all((folder / file.name).is_file() for file in form):
                return folder, form
    return None


def obtain(source: Source) -> tuple[Path, ...]:
    """The paths of the files, with checked contents; missing files are downloaded."""
    found = find(source)
    if found is None:
        return fetch(source)
    folder, form = found
    for file in form:
        problem = _mismatch(folder / file.name, file.checksum)
        if problem:
            remedy = f"corrupt, {problem}: delete it, then run `sordino data fetch {source.name}`"
            raise InvalidInput("file", str(folder / file.name), remedy)
    return tuple(folder / file.name for file in form)


def fetch(source: Source) -> tuple[Path, ...]:
    """Download the first form into the cache."""
    paths = tuple(cache_folder() / source.name / file.name for file in source.forms[0])
    for file, path in zip(source.forms[0], paths, strict=True):
        problem = _download(file, path)
        if problem is not None:
            raise InvalidInput("data set", source.name, _not_here(source, problem))
    return paths


def check(contents: bytes, checksum: str, what: str) -> None:
    """Raise unless the bytes have the checksum."""
    algorithm, _, expected = checksum.partition(":")
    found = hashlib.new(algorithm, contents, usedforsecurity=False).hexdigest()
    if found != expected:
        raise InvalidInput("file", what, f"corrupt, expected {checksum}, found {algorithm}:{found}: download it again")


def _mismatch(path: Path, checksum: str) -> str | None:
    algorithm, _, expected = checksum.partition(":")
    with open(path, "rb") as stream:
        found = hashlib.file_digest(stream, partial(hashlib.new, algorithm, usedforsecurity=False)).hexdigest()
    return None if found == expected else f"expected {checksum}, found {algorithm}:{found}"


def _not_here(source: Source, problem: str) -> str:
    wanted = ", ".join(file.name for file in source.forms[0])
    shared = os.environ.get("SORDINO_DATA")
    downloadable = any(file.urls for file in source.forms[0])
    fetching = f"run `sordino data fetch {source.name}` where there is a network, or " if downloadable else ""
    return (
        f"not in {', '.join(str(place) for place in places(source))}, and not downloaded ({problem}); "
        f"{fetching}put {wanted} into "
        f"$SORDINO_DATA/{source.name} ($SORDINO_DATA is {shared or 'not set'})"
    )


def _download(file: File, path: Path) -> str | None:
    """Download one file to `path` and check it; on failure leave nothing there and return the reasons."""
    if not file.urls:
        return "nobody publishes it"
    problems = []
    for url in file.urls:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as stream:
                stream.writelines(_blocks(url))
                stream.flush()
                problem = _mismatch(Path(stream.name), file.checksum)
                if problem:
                    raise OSError(f"corrupt, {problem}")
            return None
        except (OSError, HTTPException) as error:
            problems.append(f"{url}: {error}")
    return "; ".join(problems)


def _blocks(url: str) -> Iterator[bytes]:
    """The bytes behind a URL, with a progress bar on a terminal's stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    request = Request(url, headers={"User-Agent": "sordino"})
    with (
        urlopen(request, timeout=_TIMEOUT_SECONDS) as response,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        length = response.headers.get("Content-Length")
        task = progress.add_task(url.rpartition("/")[2], total=int(length) if length else None)
        while block := response.read(_BLOCK_BYTES):
            progress.advance(task, len(block))
            yield block
