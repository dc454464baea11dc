"""The section about privacy of a model card, as Markdown."""

from __future__ import annotations

from sordino.privacy import wording
from sordino.report.exported import Exported
from sordino.report.subject import Signed


def card_markdown(exported: Exported) -> str:
    """The section of a finished run."""
    run, certificate = exported.run, exported.certificate
    lines = ["## Privacy", ""]
    lines += [f"> {line}\n" for line in wording.cautions(certificate)]
    lines += [wording.plain_paragraph(certificate), ""]
    lines += ["| against | sees | protected | rounds | epsilon | delta | accountant |", "|---|---|---|---|---|---|---|"]
    for total in certificate.totals:
        of = f" of {total.units:,}" if total.units else ""
        protected = f"one {total.unit}{of}, {total.relation}"
        figures = f"{wording.format_epsilon(total.epsilon)} | {wording.format_delta(total.delta)}"
        lines.append(
            f"| {total.observer} | {wording.ROLES[total.observer]} | {protected} | {total.rounds} | {figures} | "
            f"{total.accountant} |"
        )
    clients = {guarantee.client for guarantee in certificate.guarantees} - {None}
    if clients:
        lines += ["", f"Each of {len(clients)} clients has a guarantee of its own: see the certificate of the run."]
    assumed = [*certificate.assumptions, *(text for total in certificate.totals for text in total.assumptions)]
    if assumed:
        lines += ["", "These figures assume:", "", *(f"- {text}" for text in dict.fromkeys(assumed))]
    if certificate.warnings:
        lines += ["", "Beside the figures:", "", *(f"- {warning.message}" for warning in certificate.warnings)]
    lines += ["", "Mechanisms:", "", *(f"- {text}" for text in exported.mechanisms)]
    lines += ["", wording.glossary(certificate.totals), "", _checked(exported)]
    lines += ["", *(f"- {each.name}: `{each.value}`" for each in run.digests if not each.private)]
    return "\n".join(lines) + "\n"


def _checked(exported: Exported) -> str:
    signature = exported.run.signature
    signed = {
        Signed.VERIFIED: f"the signature of key `{signature.key}` holds",
        Signed.UNCHECKED: "there is a signature, which was not checked",
        Signed.UNSIGNED: "the run is not signed",
    }[signature.state]
    version = exported.run.environment.get("sordino", "")
    return f"Made by Sordino {version}; the files of the run agreed with its ledger, and {signed}."
