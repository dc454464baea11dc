"""`sordino certify FILE.dsse.json --verify KEY.pub`: what a node or a server of a deployment has signed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sordino.cli.deploy_report import print_faults, print_promises
from sordino.cli.output import print_json, show
from sordino.deploy.both_sides import signed_statement
from sordino.deploy.statements import NODE_STATEMENT, SERVER_STATEMENT, certificate_in, rounds_in, shown
from sordino.errors import MOST_ROUNDS, InvalidInput, one_line, require
from sordino.privacy.guarantee import Certificate
from sordino.privacy.signing import VerifyingKey

SUFFIX = ".dsse.json"


def show_statement(path: Path, key: VerifyingKey | None, *, as_json: bool) -> None:
    """Verify a signed statement and print it with its certificates; exit code 1 if it names a disagreement."""
    require(path.is_file(), "file", str(path), "no such file: check the path")
    remedy = "whose signature is it? Give the signer's public key: --verify node.key.pub"
    if key is None:
        raise InvalidInput("verify", None, remedy)
    found = [signed_statement(path, key, kind) for kind in (NODE_STATEMENT, SERVER_STATEMENT)]
    stated = next((each for each, _ in found if each is not None), None)
    if stated is None:
        why = next((why for _, why in found if "no statement of type" not in why), None)
        other = "is not a statement of a node or a server; a run's signature is checked with the run's folder"
        raise InvalidInput("file", str(path), other if why is None else why.removeprefix(f"{path.name} "))
    try:
        facts, parts, faults = _read(stated["predicate"])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InvalidInput("file", str(path), "is signed, but was written by another version of Sordino") from None
    facts |= {"signed_by": key.id, "checked": "the signature; the figures are what the signer states"}
    if as_json:
        plain = {name: None if one is None else one.to_json() for one, name in parts}
        print_json(facts | {"certificates": plain, "disagreements": faults})
    else:
        show(f"Signed statement {path}", facts)
        print_promises(parts)
    print_faults(faults)


def _read(predicate: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[Certificate | None, str]], list[str]]:
    """Facts, the certificate of each node, and what the signer disagrees with."""
    facts: dict[str, Any] = {name: one_line(predicate[name]) for name in ("study", "digest", "software", "signedAt")}
    if "member" in predicate:
        name = one_line(predicate["member"])
        facts |= {"node": name, "rounds answered": _rounds(predicate)}
        if predicate["tornRounds"]:
            facts |= {"torn rounds, counted": int(predicate["tornRounds"])}
        return facts, [(certificate_in(predicate), name)], [str(each) for each in predicate["disagreements"]]
    members = predicate["members"]
    facts |= {f"rounds used of {one_line(name)}": _rounds(part) for name, part in members.items()}
    return facts, [(certificate_in(part), one_line(name)) for name, part in members.items()], []


def _rounds(part: dict[str, Any]) -> str:
    return shown(rounds_in(part["rounds"], MOST_ROUNDS))
