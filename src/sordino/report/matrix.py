"""Who could learn what, as a table of cells: observers are its columns, and what is protected are its rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sordino.privacy import wording
from sordino.privacy.guarantee import Certificate, Guarantee
from sordino.report.subject import Member
from sordino.types import Observer, Unit

MOST_CLIENTS = 8  # with a row each; beyond that one row gives the range, and a list all of them


@dataclass(frozen=True)
class Cell:
    """How much one observer may learn about one unit."""

    level: int  # 1 little ... 5 no limit
    amount: str
    figures: tuple[str, ...]
    of: Guarantee


@dataclass(frozen=True)
class Line:
    """A row: what is protected, in which rounds, and a cell for each observer (None: nothing is stated)."""

    what: str
    when: str
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Matrix:
    """The whole picture; `rest` are the rows of single clients that the picture sums up."""

    observers: tuple[Observer, ...]
    lines: tuple[Line, ...]
    rest: tuple[Line, ...] = ()

    @property
    def roles(self) -> dict[Observer, str]:
        """What each observer sees."""
        return {observer: wording.ROLES[observer] for observer in self.observers}


def matrix_of(certificate: Certificate, members: Sequence[Member] = ()) -> Matrix:
    """The picture of a certificate, or of the certificates of a study's members."""
    observers = tuple(each for each in Observer if any(g.observer is each for g in certificate.guarantees))
    if members:
        return _folded(observers, (), [_of_member(member, observers) for member in members])
    whole = [g for g in certificate.guarantees if g.client is None]
    kinds = dict.fromkeys((g.unit, g.units, g.relation, g.scope, g.rounds) for g in whole)
    lines = []
    for kind in sorted(kinds, key=lambda kind: kind[3]):  # all rounds before one round
        some = [g for g in whole if (g.unit, g.units, g.relation, g.scope, g.rounds) == kind]
        single = kind[3] == "one round" and all(g.rounds == 1 for g in certificate.totals)
        if not single:  # over a single round the total says it already
            lines.append(_line(_what(some[0]), some, observers))
    clients = dict.fromkeys(g.client for g in certificate.guarantees if g.client is not None)
    own = [
        _line(f"{_what(some[0])} of {client}", some, observers)
        for client in clients
        if (some := [g for g in certificate.guarantees if g.client == client and g.scope == "all rounds"])
    ]
    return _folded(observers, tuple(lines), own)


def _folded(observers: tuple[Observer, ...], lines: tuple[Line, ...], own: Sequence[Line]) -> Matrix:
    if len(own) <= MOST_CLIENTS:
        return Matrix(observers, (*lines, *own))
    cells = tuple(_worst(column) for column in zip(*(line.cells for line in own), strict=True))
    records = any(cell is not None and cell.of.unit is Unit.RECORD for cell in cells)
    ranges = Line(f"{'one record of ' * records}each of {len(own)} clients", own[0].when, cells)
    return Matrix(observers, (*lines, ranges), tuple(own))


def _worst(cells: Iterable[Cell | None]) -> Cell | None:
    """The cell of the client who is protected least, with the largest epsilon and the largest delta of all."""
    known = [cell for cell in cells if cell is not None]
    if not known:
        return None
    worst = max(known, key=lambda cell: (cell.level, cell.of.epsilon))
    largest = replace(worst.of, delta=max(cell.of.delta for cell in known), units=None)
    return Cell(worst.level, worst.amount, tuple(f"{text} or less" for text in wording.cell_lines(largest)), largest)


def _of_member(member: Member, observers: tuple[Observer, ...]) -> Line:
    if member.certificate is None:
        return Line(member.name, "sent nothing", (None,) * len(observers))
    totals = [g for g in member.certificate.guarantees if g.scope == "all rounds"]
    line = _line(f"{_what(totals[0])}, {member.name}", totals, observers)
    return Line(line.what, f"over {member.rounds} rounds", line.cells)


def _what(guarantee: Guarantee) -> str:
    return f"one {guarantee.unit}" + (f" of {guarantee.units:,}" if guarantee.units else "")


def _line(what: str, guarantees: Sequence[Guarantee], observers: tuple[Observer, ...]) -> Line:
    """Of several statements about an observer, the first that promises something."""
    ordered = sorted(guarantees, key=lambda g: not g.private)
    chosen = {g.observer: g for g in reversed(ordered)}
    when = "in one round" if ordered[0].scope == "one round" else f"over all {ordered[0].rounds} rounds"
    cells = tuple(_cell(chosen[observer]) if observer in chosen else None for observer in observers)
    return Line(what, when, cells)


def _cell(guarantee: Guarantee) -> Cell:
    return Cell(wording.level(guarantee), wording.amount(guarantee), wording.cell_lines(guarantee), guarantee)
