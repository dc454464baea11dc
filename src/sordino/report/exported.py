"""The certificate of a finished run for others: as JSON with a published schema (docs/schema/certificate.json).

python -m sordino.report.exported > docs/schema/certificate.json      writes the schema anew
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sordino.errors import require
from sordino.privacy.events import event_to_json
from sordino.privacy.guarantee import Certificate, Guarantee, Scope
from sordino.privacy.ledger import read_ledger
from sordino.privacy.signing import VerifyingKey
from sordino.report.page import promised_total
from sordino.report.readers import read_run
from sordino.report.subject import Shown
from sordino.types import Draws, Observer, Relation, SeedOrigin, Unit

SCHEMA = "https://sordino.dev/schema/certificate/v1"


@dataclass(frozen=True)
class Exported:
    """A finished run whose files agree, and the mechanisms in its ledger."""

    run: Shown
    mechanisms: tuple[str, ...]

    @property
    def main(self) -> Guarantee | None:
        """The total that a reader of the model asks for: against those who see models, else the first that promises."""
        seen = (Observer.MODEL_USER, Observer.OUTSIDER)
        of_models = (total for total in self.run.certificate.totals if total.private and total.observer in seen)
        return next(of_models, promised_total(self.run.certificate))

    @property
    def certificate(self) -> Certificate:
        return self.run.certificate


def export(folder: Path, key: VerifyingKey | None = None) -> Exported:
    """Read a run for export."""
    from sordino.runs.names import LEDGER

    run = read_run(folder, key)
    require(run.finished, "run", str(folder), "is not finished: a certificate is exported once all rounds are done")
    releases = {(entry.release, entry.observers, entry.event) for entry in read_ledger(folder / LEDGER).entries}
    named = sorted(
        f"{release}, seen by {', '.join(observers)}: {'; '.join(dict.fromkeys(_leaves(event_to_json(event))))}"
        for release, observers, event in releases
    )
    return Exported(run, tuple(named))


def _leaves(event: Mapping[str, Any]) -> Iterator[str]:
    """The mechanisms inside an event, with their numbers."""
    inner = [event["event"]] if "event" in event else event.get("events", [])
    if inner:
        for each in inner:
            yield from _leaves(each)
        return
    numbers = [f"{name} {value:.6g}" for name, value in event.items() if isinstance(value, float)]
    yield " ".join([str(event["kind"]), *numbers])


# --- JSON ------------------------------------------------------------------------------------------------------------


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class GuaranteeModel(_Strict):
    """(epsilon, delta)-differential privacy of one unit against one observer."""

    unit: Unit
    relation: Relation = Field(description="Which two data sets are neighbours.")
    observer: Observer
    scope: Scope
    rounds: int = Field(ge=1, description="Rounds that the scope covers.")
    epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)] | Literal["inf"] = Field(
        description="'inf' if nothing limits what the observer learns."
    )
    delta: float = Field(ge=0, le=1)
    accountant: str
    assumptions: list[str]
    units: Annotated[int, Field(ge=1)] | None = Field(description="Number of protected units.")
    client: str | None = Field(description="Holder of the protected records; null if it holds for every client.")


class WarningModel(_Strict):
    """What a reader must know beside the figures, with a stable code."""

    code: str
    message: str


class CertificateModel(_Strict):
    """All guarantees of a run, its warnings, and what every figure rests on."""

    draws: Draws | None = Field(description="How the noise was drawn; figures are exact for 'lattice' alone.")
    seed: SeedOrigin | None = Field(description="Where the seed came from.")
    assumptions: list[str]
    guarantees: list[GuaranteeModel] = Field(min_length=1)
    warnings: list[WarningModel]


class SignatureModel(_Strict):
    """The state of the signature when this file was made. It is no signature of this file."""

    state: Literal["verified", "signed, not checked", "not signed"]
    key: str
    at: str


class ExportModel(_Strict):
    """The certificate of one finished run, whose files agreed with its ledger when this file was made."""

    schema_: Literal["https://sordino.dev/schema/certificate/v1"] = Field(alias="schema")
    name: str
    task: str
    rounds: int = Field(ge=1)
    software: str
    date: str
    certificate: CertificateModel
    in_words: str
    mechanisms: list[str]
    digests: dict[str, str] = Field(
        min_length=1, description="Of ledger, model and files; keyed ones need the run's salt."
    )
    signature: SignatureModel


def export_json(exported: Exported) -> dict[str, Any]:
    """Plain values that follow the schema."""
    from sordino.privacy import wording

    run = exported.run
    plain = {
        "schema": SCHEMA,
        "name": run.name,
        "task": run.task,
        "rounds": run.done,
        "software": f"sordino {run.environment.get('sordino', '')}",
        "date": str(run.environment.get("date", "")),
        "certificate": run.certificate.to_json(),
        "in_words": " ".join([*wording.cautions(run.certificate), wording.plain_paragraph(run.certificate)]),
        "mechanisms": list(exported.mechanisms),
        "digests": {digest.name: digest.value for digest in run.digests if not digest.private},
        "signature": {"state": run.signature.state.value, "key": run.signature.key, "at": run.signature.at},
    }
    ExportModel.model_validate(plain)
    Certificate.from_json(plain["certificate"])  # rules between fields, as a total for every figure of one round
    return plain


def schema_text() -> str:
    """The published schema."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA}
    return json.dumps(schema | ExportModel.model_json_schema(), indent=2) + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")
