"""An entry for the registry of deployments of differential privacy (OpenDP, proposed to be hosted by NIST).

The fields are those of `schemas/deployments-schema.yaml` in github.com/opendp/deployments-registry-data as of July
2026. What a run does not know says TO FILL.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from sordino.errors import Refused
from sordino.privacy import wording
from sordino.privacy.guarantee import Guarantee
from sordino.report.exported import Exported
from sordino.types import Draws, SeedOrigin, Trust

HEAD = """\
# An entry for the registry of deployments of differential privacy.
# Fill in every field that says TO FILL, check the others, and delete these lines.
"""
_MODELS = {
    Trust.CENTRAL: "Central",
    Trust.LOCAL: "Local",
    Trust.SHUFFLE: "Shuffle",
    Trust.SECURE_AGGREGATION: "Secure aggregation",
}


def registry_yaml(exported: Exported) -> str:
    """The entry of a run whose guarantee holds for the model as it is released; others are refused."""
    main = exported.main
    if main is None:
        raise Refused("this run promises nothing to anybody", "register a run with a guarantee")
    certificate = exported.certificate
    if certificate.seed is SeedOrigin.GIVEN or certificate.draws in (Draws.FLOAT32, Draws.SIMULATED_MESSAGES):
        reason = wording.seed_line(certificate) or wording.draws_line(certificate)
        raise Refused(f"this run is an experiment and no deployment. {reason}", "register a run without these limits")
    return HEAD + yaml.dump(_entry(exported, main), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def _entry(exported: Exported, main: Guarantee) -> dict[str, Any]:
    run, certificate = exported.run, exported.certificate
    slug = re.sub(r"[^a-z0-9]+", "-", run.name.lower()).strip("-")
    parameters = {"epsilon": float(wording.format_epsilon(main.epsilon))}
    if main.delta > 0:
        parameters["delta"] = float(wording.format_delta(main.delta))
    return {
        "url_slug": f"{slug}-TO-FILL-organisation-and-year",
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": run.name,
                "data_curators": ["TO FILL"],
                "intended_use": "TO FILL",
                "data_product_type": "Machine learning model",
                "data_product_region": "TO FILL",
                "description": f"A model trained on {run.task} by {run.method or 'TO FILL'} in {run.done} rounds of "
                "federated learning. TO FILL",
                "publication_date": "TO FILL (YYYY-MM-DD)",
                "data_product_sector": "TO FILL",
            },
            "dp_variant": {
                "variant_name": "Approximate DP" if main.delta > 0 else "Pure DP",
                "data_domain": "TO FILL",
                "unprotected_quantities": _lines([warning.message for warning in certificate.warnings]),
            },
            "privacy_loss": {
                "privacy_unit": f"{main.unit.capitalize()}-level",
                "privacy_unit_details": wording.glossary([main]),
                "privacy_parameters": parameters,
                "privacy_parameters_details": _lines([str(total) for total in certificate.totals]),
            },
            "deployment_model": {
                "model_name": _model_name(exported),
                "actors": _lines([f"{total.observer}: {wording.ROLES[total.observer]}" for total in certificate.totals])
                + "TO FILL\n",
                "release_type": "One release",
                "release_type_details": "TO FILL",
                "data_source_type": "Static",
                "access_type": "Non-interactive",
            },
            "accounting": {
                "post_processing": "TO FILL",
                "composition": f"All {main.rounds} rounds are composed by the accountant: {main.accountant}.",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": f"TO FILL. {wording.SELECTION_NOT_COVERED}",
                "mechanisms": _lines([*exported.mechanisms, wording.draws_line(certificate)]),
                "justification": _lines([f"Assumed: {text}" for text in (*certificate.assumptions, *main.assumptions)])
                + "TO FILL\n",
            },
            "administrative": {
                "sources": f"sordino {run.environment.get('sordino', '')}. TO FILL",
                "notes": _lines([f"{each.name}: {each.value}" for each in run.digests if not each.private]),
                "registry_authors": ["TO FILL"],
            },
        },
    }


def _model_name(exported: Exported) -> str:
    """By the party that adds the noise, as the run file says it; a run from Python has none."""
    settings = exported.run.settings
    if not settings:
        return "TO FILL (Central, Local, Shuffle or Federated)"
    return _MODELS[Trust.parse(settings.get("privacy", {}).get("trust", "central"))]


def _lines(texts: list[str]) -> str:
    return "".join(f"- {text}\n" for text in texts if text)


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, which people can edit."""


def _text(dumper: _Dumper, text: str) -> object:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
