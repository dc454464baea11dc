"""What a ledger says: its releases by round and observer, and what they cost together."""

from __future__ import annotations

import dataclasses
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias, cast

from sordino.errors import InvalidInput, LedgerError, require, require_count
from sordino.privacy.events import Composed, Repeated, Sampled, event_from_json, event_to_json, parts_of
from sordino.privacy.stated import require_stated, stated, stated_as
from sordino.types import Event, Observer, Relation, Unit

Release: TypeAlias = tuple[str, tuple[Observer, ...], Event]  # its name, its observers, and what it costs in one round
Json: TypeAlias = dict[str, Any]  # an object, as a line of the file holds it
Names: TypeAlias = Iterable[Observer | str]


@dataclass(frozen=True)
class Entry:
    """One release of a segment of rounds, or, without rounds, what a torn line is counted as."""

    seq: int
    time: str
    kind: str  # "release" or "recovered"
    rounds: range | None
    release: str
    observers: tuple[Observer, ...]
    event: Event  # of one round
    torn_rounds: int = 0  # rounds that a torn line may have held
    hash: str = ""  # of its line


@dataclass(frozen=True)
class Finish:
    """The last entry of a finished run: the digests of the files that belong to it, None for a file that it lacks."""

    time: str
    files: dict[str, str | None]
    description: dict[str, Any]

    @classmethod
    def of(cls, entry: Json) -> Finish:
        return cls(str(entry["time"]), digests_by_file(entry["files"]), dict(entry["description"]))


@dataclass(frozen=True)
class LedgerRecord:
    """The contents of a ledger: what is protected, and every release."""

    unit: Unit
    relation: Relation
    description: dict[str, Any]
    worst_release: dict[Observer, Event]
    longest: int
    entries: tuple[Entry, ...]
    finish: Finish | None = None  # None while releases may follow
    last_hash: str = ""  # of the chain

    @classmethod
    def of(cls, lines: list[Json]) -> LedgerRecord:
        header, *releases = lines
        ends = [place for place, entry in enumerate(lines) if entry["kind"] == "finished"]
        later = [entry["kind"] for entry in lines[ends[0] + 1 :]] if ends else []
        # A torn line may follow: it is counted, though nothing is released after the end.
        require(set(later) <= {"recovered"}, "kind", later, "a finished ledger holds no further release")
        require_count(header["longest"], "longest")
        record = cls(
            unit=Unit.parse(header["unit"]),
            relation=Relation.parse(header["relation"]),
            description=_described(header["description"]),
            worst_release=_by_observer(header["worst_release"]),
            longest=header["longest"],
            entries=tuple(each for entry in releases for each in _entries(entry)),
            finish=Finish.of(lines[ends[0]]) if ends else None,
            last_hash=str(lines[-1].get("hash", "")),
        )
        for event in (*record.worst_release.values(), *(entry.event for entry in record.entries)):
            require_stated(event, record.unit, record.relation)
        return record

    @property
    def first_files(self) -> dict[str, str | None]:
        """Digests of the files that the run began with; empty where the header names none."""
        return digests_by_file(self.description.get("files", {}))

    @property
    def recovered(self) -> int:
        """How many torn lines are counted as the worst release."""
        return len({entry.seq for entry in self.entries if entry.kind == "recovered"})

    @property
    def units(self) -> int | None:
        """How many units are protected, where the description says so."""
        return self.description.get("units")

    def rounds(self, observer: Observer | str | None = None) -> int:
        """How many different rounds have a release to `observer`, or to anybody."""
        wanted = None if observer is None else Observer.parse(observer)
        entered = [entry for entry in self.entries if wanted is None or wanted in entry.observers]
        return sum(count for count, _ in _stretches([(entry.rounds, entry.event) for entry in entered if entry.rounds]))

    def spent(self, observer: Observer | str) -> Event:
        """What the releases that `observer` saw cost together, equal rounds grouped, with the ledger's two words."""
        observer = Observer.parse(observer)
        shown, placed, apart = SampledRounds(), list[tuple[range, Event]](), Counter[Event]()
        latest = range(0)
        for entry in (entry for entry in self.entries if observer in entry.observers):
            require_stated(entry.event, self.unit, self.relation)
            if entry.rounds is not None:
                shown.add(entry.rounds, entry.release, (observer,), entry.event)
                placed.append((entry.rounds, entry.event))
                latest = entry.rounds
                continue
            # A torn line may have been one more release about the samples of the rounds before it.
            beside = latest[-entry.torn_rounds :]
            if beside and _of_the_same_sample(placed, beside, entry.event):
                placed.append((beside, entry.event))
                apart[entry.event] += entry.torn_rounds - len(beside)
            else:
                apart[entry.event] += entry.torn_rounds
        counts = Counter[Event]()
        for count, events in _stretches(placed):
            for event in of_one_round(events):
                counts[event] += count
        counts.update(apart)
        groups = tuple(Repeated(event, count) for event, count in counts.items() if count)
        return stated_as(groups[0] if len(groups) == 1 else Composed(groups), self.unit, self.relation)

    def after(
        self, *, release: str, observers: Names, event: Event, round: int | None = None, rounds: range | None = None
    ) -> LedgerRecord:
        """The record with one more release, for a budget to look at before the release is made."""
        eyes = observers_of(observers)
        entry = Entry(len(self.entries) + 1, "", "release", rounds_of(round, rounds), release, eyes, event)
        return dataclasses.replace(self, entries=(*self.entries, entry))


class SampledRounds:
    """The rounds whose samples a ledger has shown: the same release of a round is not accepted twice.

    Two runs that number their rounds alike draw two samples, which do not cost the same as one sample shown twice.
    """

    def __init__(self) -> None:
        self._shown: dict[tuple[str, Observer], list[range]] = {}

    def require_new(self, rounds: range, release: str, observers: Iterable[Observer], event: Event) -> None:
        """Raise if an observer has seen this release of one of these rounds before."""
        for observer in observers if _is_sampled(event) else ():
            for old in self._shown.get((release, observer), ()):
                both = range(max(old.start, rounds.start), min(old.stop, rounds.stop))
                if both:
                    remedy = "give every run a ledger of its own, or numbers of its own to its rounds"
                    raise LedgerError(f"round {both.start} holds {release!r} from a sample already: {remedy}")

    def add(self, rounds: range, release: str, observers: Iterable[Observer], event: Event) -> None:
        """Remember a release, unless one of its rounds is there already."""
        observers = tuple(observers)
        self.require_new(rounds, release, observers, event)
        for observer in observers if _is_sampled(event) else ():
            shown = self._shown.setdefault((release, observer), [])
            if shown and shown[-1].stop == rounds.start:
                shown[-1] = range(shown[-1].start, rounds.stop)
            else:
                shown.append(rounds)


def rounds_of(round: int | None, rounds: range | None) -> range:
    """The rounds of a release that was given as one round or as a segment."""
    require((round is None) != (rounds is None), "round", round, "give either one round or a range of rounds")
    first = operator.index(round or 0)
    segment = rounds if rounds is not None else range(first, first + 1)
    require(len(segment) > 0 and segment.step == 1, "rounds", segment, "must be consecutive rounds, at least one")
    return segment


def observers_of(observers: Names) -> tuple[Observer, ...]:
    """Named observers, at least one."""
    require(not isinstance(observers, str), "observers", observers, "give a list of observers")
    eyes = tuple(Observer.parse(observer) for observer in observers)
    require(bool(eyes), "observers", eyes, "name at least one observer")
    return eyes


def of_one_round(events: list[Event]) -> list[Event]:
    """The releases of one round, with those about the same sample joined: they were sampled once, not once each."""
    sampled = [event for event in events if _is_sampled(event)]
    nested = [event.kind for event in sampled if not isinstance(event, Sampled)]
    if len(sampled) > 1 and nested:
        raise LedgerError(
            f"one round holds {len(sampled)} releases from a sample, one of them inside a {nested[0]} event: record "
            "them as one event"
        )
    rest = [event for event in events if not isinstance(event, Sampled)]
    joint: dict[str, list[Sampled]] = {}
    for event in events:
        if isinstance(event, Sampled):
            joint.setdefault(str(event_to_json(event)["sampling"]), []).append(event)
    for group in joint.values():
        unit, relation = stated(Composed(tuple(group)))
        inner = Composed(tuple(event.event for event in group))
        together = Sampled(inner, group[0].sampling, unit=unit, relation=relation)
        rest.append(group[0] if len(group) == 1 else together)
    if len(joint) > 1:
        names = ", ".join(joint)
        raise LedgerError(f"one round holds releases from different samples ({names}): record them in other rounds")
    return rest


def joint_release(releases: Iterable[Release]) -> Mapping[Observer, Event]:
    """What one round shows to each observer, as one event."""
    releases = list(releases)
    joint = {}
    for observer in {observer: None for _, observers, _ in releases for observer in observers}:
        events = of_one_round([event for _, observers, event in releases if observer in observers])
        joint[observer] = events[0] if len(events) == 1 else Composed(tuple(events))
    return joint


def _is_sampled(event: Event) -> bool:
    return any(isinstance(part, Sampled) for part in parts_of(event))


def _of_the_same_sample(placed: list[tuple[range, Event]], rounds: range, event: Event) -> bool:
    """Whether `event` can be joined with the sampled releases of these rounds."""
    shown = [other for at, other in placed if at.start < rounds.stop and rounds.start < at.stop and _is_sampled(other)]
    return isinstance(event, Sampled) and all(
        isinstance(other, Sampled) and other.sampling == event.sampling for other in shown
    )


def _stretches(placed: list[tuple[range, Event]]) -> Iterator[tuple[int, list[Event]]]:
    """(number of rounds, their releases) for every stretch of rounds that have the same releases."""
    begin: dict[int, list[int]] = {}
    end: dict[int, list[int]] = {}
    for number, (rounds, _) in enumerate(placed):
        begin.setdefault(rounds.start, []).append(number)
        end.setdefault(rounds.stop, []).append(number)
    active: set[int] = set()
    for edge, following in pairwise(sorted(begin.keys() | end.keys())):
        active.difference_update(end.get(edge, ()))
        active.update(begin.get(edge, ()))
        if active:
            yield following - edge, [placed[number][1] for number in sorted(active)]


def _entries(entry: Json) -> Iterator[Entry]:
    seq, time, kind = entry["seq"], entry["time"], entry["kind"]
    if kind == "finished":
        return
    if kind == "recovered":
        require_count(entry["torn_rounds"], "torn_rounds")
        alike: dict[Event, list[Observer]] = {}
        for observer, event in _by_observer(entry["events"]).items():
            alike.setdefault(event, []).append(observer)
        for event, eyes in alike.items():
            yield Entry(seq, time, kind, None, "torn line", tuple(eyes), event, entry["torn_rounds"])
        return
    first, stop = entry["rounds"]
    for number in (first, stop):
        require(type(number) is int, "round", number, "must be a whole number")
    rounds = rounds_of(None, range(first, stop))
    for each in entry["releases"]:
        observers, event = observers_of(each["observers"]), event_from_json(each["event"])
        yield Entry(seq, time, kind, rounds, str(each["release"]), observers, event, hash=str(entry.get("hash", "")))


def digests_by_file(files: object) -> dict[str, str | None]:
    """Digests by the names of files, None for a file that is not kept."""
    named = isinstance(files, dict) and all(digest is None or isinstance(digest, str) for digest in files.values())
    require(named, "files", files, "must be digests by the names of files")
    return dict(cast(dict[str, str | None], files))


def _by_observer(events: dict[str, Json]) -> dict[Observer, Event]:
    require(bool(events), "worst_release", events, "name the costliest release for each observer")
    return {Observer.parse(observer): event_from_json(event) for observer, event in events.items()}


def _described(description: object) -> dict[str, Any]:
    """The description, provided that the fields a certificate takes from it have the right types."""
    if not isinstance(description, dict):
        raise InvalidInput("description", description, "must be an object")
    for name in ("units", "rounds"):
        value = description.get(name)
        require(value is None or type(value) is int, name, value, "must be a whole number")
    warnings, assumptions = description.get("warnings", []), description.get("assumptions", {})
    pairs = isinstance(warnings, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in warnings)
    require(pairs, "warnings", warnings, "must be pairs of a code and a text")
    digests_by_file(description.get("files", {}))
    lists = isinstance(assumptions, dict) and all(isinstance(texts, list) for texts in assumptions.values())
    require(lists, "assumptions", assumptions, "must be lists of texts by observer")
    return dict(description)
