"""A report as the templates take it; what is computed from private data is marked, or left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sordino
from sordino.privacy import wording
from sordino.privacy.guarantee import Certificate, Guarantee
from sordino.report.matrix import Matrix, matrix_of
from sordino.report.series import MOST_POINTS, Quantity, Row, Series, quantities_of, series_of
from sordino.report.shapes import Bar, HeatMap, Lines, Parallel, bars_of, heat_maps, lines_of, parallel_of
from sordino.report.subject import Digest, Shown, Signed, Subject, Tables

MOST_LINES = 8  # of one chart; the page says how many there are
POINTS_OF_PAGE = 8_000  # of all charts together
DECADES = 100  # the ratio of largest to smallest from which on an axis is logarithmic


@dataclass(frozen=True)
class Chart:
    """One quantity over rounds, a line for each run that has it."""

    quantity: Quantity
    names: tuple[str, ...]
    places: tuple[int, ...]  # of these runs among all, which decide their colours
    series: tuple[Series, ...]
    private: bool
    bound: float | None
    log: bool
    still: Lines

    @property
    def thinned(self) -> Series | None:
        """The series with the most evaluations, if some are not drawn."""
        cut = [series for series in self.series if series.thinned]
        return max(cut, key=lambda series: series.whole, default=None)

    def to_json(self) -> dict[str, Any]:
        """What the page's script draws."""
        return {
            "key": self.quantity.key,
            "label": self.quantity.label,
            "unit": self.quantity.unit,
            "log": self.log,
            "bound": self.bound,
            "private": self.private,
            "lines": [
                {"name": name, "place": place, "rounds": each.rounds, "values": each.values}
                for name, place, each in zip(self.names, self.places, self.series, strict=True)
            ],
        }


@dataclass(frozen=True)
class Promise:
    """A certificate, the runs that have it, and its sentences."""

    names: tuple[str, ...]
    certificate: Certificate
    matrix: Matrix

    @property
    def cautions(self) -> list[str]:
        """What limits every figure: a seed that is known, noise that is not the real one."""
        return wording.cautions(self.certificate)

    @property
    def plain(self) -> list[str]:
        """Who could learn what, one sentence each."""
        return wording.plain_sentences(self.certificate)

    @property
    def exact(self) -> list[str]:
        """The guarantees that hold for every client, one line each."""
        return [str(guarantee) for guarantee in self.certificate.guarantees if guarantee.client is None]

    @property
    def terms(self) -> str:
        return wording.glossary(self.certificate.guarantees)


@dataclass(frozen=True)
class Headline:
    """A row of the table of runs; the measured figure is None where it is left out or not there."""

    run: Shown
    epsilon: str
    measured: str | None
    measured_name: str


@dataclass(frozen=True)
class Page:
    """All that a report shows."""

    subject: Subject
    public: bool
    promises: tuple[Promise, ...]
    headlines: tuple[Headline, ...]
    charts: tuple[Chart, ...]
    settings: Tables
    environment: Mapping[str, Any]
    digests: tuple[Digest, ...]
    why_private: str | None
    left_out: tuple[str, ...]
    maps: tuple[HeatMap, ...] = ()
    parallel: Parallel | None = None
    bars: tuple[Bar, ...] = ()
    version: str = sordino.__version__

    @property
    def run(self) -> Shown:
        """The first run."""
        return self.subject.runs[0]

    @property
    def verified(self) -> bool:
        return all(run.signature.state is Signed.VERIFIED for run in self.subject.runs)

    @property
    def notes(self) -> list[str]:
        return list(dict.fromkeys(note for run in self.subject.runs for note in run.notes))

    @property
    def measured_private(self) -> bool:
        """Whether measured figures are shown that are not for everybody."""
        return self.why_private is not None and not self.public


def page_of(subject: Subject, *, public: bool) -> Page:
    """Everything of a subject, or what may be shown to everybody."""
    if public:
        runs = tuple(replace(run, name=run.public_name or run.name) for run in subject.runs)
        if subject.grid or subject.compared:  # the order of the results would tell what is left out
            runs = tuple(sorted(runs, key=lambda run: run.name))
        subject = replace(subject, runs=runs)
    why = subject.grid.why_private if subject.grid else why_private(subject.runs)
    shows_measured = not (public and why)
    drawn = charts_of(subject.runs, why)
    charts = tuple(chart for chart in drawn if not (public and chart.private))
    hidden = [chart.quantity.title for chart in drawn if chart.private] if public else []
    run = subject.runs[0]
    grid = subject.grid if shows_measured else None
    compared = subject.compared if shows_measured else None
    return Page(
        subject=subject,
        public=public,
        promises=_promises(subject),
        headlines=tuple(_headline(run, shows_measured) for run in subject.runs),
        charts=charts,
        settings=_public_settings(run) if public else run.settings,
        environment=_public_environment(run) if public else run.environment,
        digests=tuple(each for each in run.digests if not (public and each.private)),
        why_private=why,
        left_out=tuple(dict.fromkeys(hidden)),
        maps=tuple(heat_maps(grid)) if grid else (),
        parallel=parallel_of(grid) if grid else None,
        bars=tuple(bars_of([dict(row) for row in compared.rows])) if compared else (),
    )


def _promises(subject: Subject) -> tuple[Promise, ...]:
    """The different certificates, in the order of the runs."""
    found: dict[str, list[Shown]] = {}
    for run in subject.runs:
        found.setdefault(str(run.certificate), []).append(run)
    return tuple(
        Promise(tuple(run.name for run in runs), runs[0].certificate, matrix_of(runs[0].certificate, subject.members))
        for runs in found.values()
    )


def _headline(run: Shown, shows_measured: bool) -> Headline:
    total = promised_total(run.certificate)
    epsilon = "no guarantee" if total is None else f"{wording.format_epsilon(total.epsilon)} ({total.observer})"
    name, text = measured_of(run.rows)
    return Headline(run, epsilon, text if shows_measured else None, name)


def promised_total(certificate: Certificate) -> Guarantee | None:
    """The total against the first observer who is promised something; None if nobody is."""
    return next((total for total in certificate.totals if total.private), None)


def measured_of(rows: Sequence[Row]) -> tuple[str, str | None]:
    """The name of the most informative measure, and its last value as people read it."""
    if not rows:
        return "", None
    quantity = next((each for each in quantities_of(rows) if each.key in rows[-1] and not each.on_records), None)
    if quantity is None or quantity.key == "epsilon":
        return "", None
    value = rows[-1][quantity.key]
    if value != value:
        return quantity.title.lower(), "lost"
    return quantity.title.lower(), f"{quantity.factor * value:.4g}" + (f" {quantity.unit}" if quantity.unit else "")


# --- Charts ----------------------------------------------------------------------------------------------------------


def why_private(runs: Sequence[Shown]) -> str | None:
    """Why what was measured in these runs is not for everybody; None where a guarantee covers it."""
    reasons = [run.why_private for run in runs if run.why_private is not None]
    return reasons[0] if reasons else wording.SEVERAL_RUNS if len(runs) > 1 else None


def charts_of(runs: Sequence[Shown], why: str | None) -> list[Chart]:
    """The charts of the first runs; `why` marks what was measured as private."""
    runs = runs[:MOST_LINES]
    quantities = {each.key: each for run in runs for each in quantities_of(run.rows)}
    most = max(60, POINTS_OF_PAGE // max(1, len(runs) * len(quantities)))
    charts = []
    for quantity in quantities.values():
        each_run = [series_of(run.rows, quantity, min(most, MOST_POINTS)) for run in runs]
        found = [(place, series) for place, series in enumerate(each_run) if series is not None]
        drawn = tuple(series for _, series in found)
        if not found or _says_nothing(quantity, drawn):
            continue
        bound = _bound(runs[found[0][0]].settings) if quantity.key == "mean_norm" else None
        private = quantity.on_records or (why is not None and quantity.key not in ("epsilon", "used", "seconds"))
        log = quantity.log and _spans_decades(drawn)
        still = lines_of(drawn, bound, log=log)
        places = tuple(place for place, _ in found)
        names = tuple(runs[place].name for place in places)
        charts.append(Chart(quantity, names, places, drawn, private, bound, log, still))
    return charts


def _says_nothing(quantity: Quantity, drawn: Sequence[Series]) -> bool:
    """Whether it is a count that never changes."""
    steady = len({value for series in drawn for value in series.values}) == 1
    return steady and quantity.key in ("dropped", "participants")


def _spans_decades(series: Sequence[Series]) -> bool:
    """Whether a logarithmic axis shows more."""
    values = [value for each in series for value in each.values if value is not None]
    return min(values) > 0 and max(values) > DECADES * min(values)


def _bound(settings: Tables) -> float | None:
    """The limit of a bounder that has one number."""
    limits = [value for value in settings.get("bound", {}).values() if isinstance(value, int | float)]
    return float(limits[0]) if len(limits) == 1 else None


# --- What everybody may see ------------------------------------------------------------------------------------------

_OPEN_TASK = ("clients", "partition", "model", "augment", "precision")
_SECRET_ENVIRONMENT = ("seed",)


def _public_settings(run: Shown) -> Tables:
    """The run file without the seed, paths and options of the data, and constants that were computed from them."""
    shown = {name: dict(table) for name, table in run.settings.items()}
    task = {key: value for key, value in shown.get("task", {}).items() if key in _OPEN_TASK}
    shown["task"] = {"name": run.task} | task
    shown.get("run", {}).pop("seed", None)
    constants = shown.get("rules", {})
    for name in constants.get("from_data", ()):
        constants.pop(name, None)
    return shown


def _public_environment(run: Shown) -> Mapping[str, Any]:
    return {key: value for key, value in run.environment.items() if key not in _SECRET_ENVIRONMENT}
