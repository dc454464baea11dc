"""Whatever is changed in the folder of a finished run, `sordino certify` names the file and exits with code 1.

A chain that was rebuilt with all of its digests needs a signature to be noticed.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

import sordino as so
from sordino.cli import main
from sordino.errors import InvalidInput
from sordino.privacy import signing
from sordino.privacy.certification import certify_ledger
from sordino.privacy.differences import differences
from sordino.privacy.ledger import read_ledger
from sordino.runs import Run, SweepStore
from sordino.runs.agreement import compare_run
from sordino.runs.blocks import Program
from sordino.runs.signature import PREDICATE_TYPE, sign_run
from sordino.types import Observer

TASK = so.task("digits", clients=6)
CONFIG = "[run]\nseed = 123456\n"  # of which the ledger must not tell


def small_run(folder: Path, *, seed: int = 0, local_lr: float = 0.5, resume: bool = False) -> Run:
    method = so.fedavg(local_steps=1, local_lr=local_lr, bound=so.clip(1.0))
    plan = so.plan(method, rounds=4, noise_multiplier=1.0, delta=1e-4)
    return so.simulate(plan, TASK, folder=folder, seed=seed, evaluate_every=2, config=CONFIG, resume=resume)


def certify(folder: Path, *options: str, code: int = 0) -> dict[str, Any]:
    """What `sordino certify --json` prints; without --json it exits alike, and names each file on a line."""
    printed = []
    for as_json in (["--json"], []):
        out, err = io.StringIO(), io.StringIO()
        arguments = ["sordino", "certify", str(folder), *options, *as_json]
        patched = mock.patch.object(sys, "argv", arguments)
        with patched, redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as stop:
            main()
        assert (stop.value.code or 0) == code, out.getvalue() + err.getvalue()
        printed.append((out.getvalue(), err.getvalue()))
    data = json.loads(printed[0][0])
    lines = printed[1][1].splitlines()
    assert len(lines) == len(data["disagreements"])
    for fault, line in zip(data["disagreements"], lines, strict=True):
        assert fault["file"] in line
        assert fault["message"] in line
    return data


def named(data: dict[str, Any]) -> set[str]:
    return {fault["file"] for fault in data["disagreements"]}


def codes(data: dict[str, Any]) -> set[tuple[str, str]]:
    return {(fault["file"], fault["code"]) for fault in data["disagreements"]}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    small_run(folder / "mine")
    small_run(folder / "other", seed=1, local_lr=0.25)
    return folder


@pytest.fixture
def run(runs, tmp_path) -> Path:
    """A finished run to tamper with; ../other is another."""
    shutil.copytree(runs / "other", tmp_path / "other")
    return Path(shutil.copytree(runs / "mine", tmp_path / "mine"))


# --- Keys ------------------------------------------------------------------------------------------------------------


def write_key(path: Path, private: Any, *, ssh: bool = True, passphrase: bytes | None = None) -> Path:
    locked = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase)
    private_format, public_format = (
        (PrivateFormat.OpenSSH, (Encoding.OpenSSH, PublicFormat.OpenSSH))
        if ssh
        else (PrivateFormat.PKCS8, (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    )
    path.write_bytes(private.private_bytes(Encoding.PEM, private_format, locked))
    path.with_name(f"{path.name}.pub").write_bytes(private.public_key().public_bytes(*public_format))
    return path


KEYS: dict[str, Callable[[Path], Path]] = {
    "ed25519": lambda path: write_key(path, ed25519.Ed25519PrivateKey.generate()),
    "ed25519 pem": lambda path: write_key(path, ed25519.Ed25519PrivateKey.generate(), ssh=False),
    "p256": lambda path: write_key(path, ec.generate_private_key(ec.SECP256R1())),
    "p384": lambda path: write_key(path, ec.generate_private_key(ec.SECP384R1())),
    "p384 pem": lambda path: write_key(path, ec.generate_private_key(ec.SECP384R1()), ssh=False),
}


@pytest.fixture(scope="module")
def key(tmp_path_factory) -> Path:
    return KEYS["ed25519"](tmp_path_factory.mktemp("keys") / "key")


@pytest.fixture(scope="module")
def other_key(tmp_path_factory) -> Path:
    return KEYS["ed25519"](tmp_path_factory.mktemp("keys") / "other_key")


def public(key: Path) -> str:
    return str(key.with_name(f"{key.name}.pub"))


@pytest.fixture
def signed(run, key) -> Path:
    certify(run, "--sign", str(key))
    return run


# --- Tampering -------------------------------------------------------------------------------------------------------


def edit_certificate(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "certificate.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data, indent=2))


def smaller_epsilon(folder: Path) -> None:
    def change(data: dict[str, Any]) -> None:
        for guarantee in data["guarantees"]:
            guarantee["epsilon"] = guarantee["epsilon"] / 2 if guarantee["epsilon"] != "inf" else 1.0

    edit_certificate(folder, change)


def without_assumption(folder: Path) -> None:
    edit_certificate(folder, lambda data: [each["assumptions"].clear() for each in data["guarantees"]])


def rebuild(folder: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Change the entries of a ledger and make chain and head fit, as somebody who knows the format would."""
    path = folder / "ledger.jsonl"
    entries = change([json.loads(line) for line in path.read_text().splitlines()])
    previous = "0" * 64
    for seq, entry in enumerate(entries):
        entry |= {"seq": seq, "previous": previous}
        entry.pop("hash", None)
        previous = entry["hash"] = hashlib.sha256(canonical(entry)).hexdigest()
    path.write_bytes(b"".join(canonical(entry) + b"\n" for entry in entries))
    head = {"count": len(entries), "hash": previous}
    path.with_name("ledger.jsonl.head").write_bytes(canonical(head) + b"\n")


def canonical(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()


def louder(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same ledger with ten times the noise."""
    for entry in entries:
        for release in entry.get("releases", ()):
            noise = release["event"].get("event", release["event"])  # as drawn by a sampler, or not
            if "noise_multiplier" in noise:
                noise["noise_multiplier"] *= 10
    return entries


def related_otherwise(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same releases below a header that claims replace-one for them."""
    entries[0]["relation"] = "replace-one"
    return entries


def unmarked(folder: Path) -> None:
    path = folder / "environment.json"
    made = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in made.items() if name != "seconds"}, indent=2))


def cut_and_unmarked(folder: Path) -> None:
    rebuild(folder, lambda entries: entries[:-3])
    unmarked(folder)


def change_line(folder: Path) -> None:
    path = folder / "ledger.jsonl"
    path.write_text(path.read_text().replace('"noise_multiplier":1.0', '"noise_multiplier":9.0', 1))


def drop_line(folder: Path, number: int) -> None:
    path = folder / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    del lines[number]
    path.write_bytes(b"".join(lines))


def swap_in(folder: Path, *names: str) -> None:
    for name in names:
        shutil.copy(folder.parent / "other" / name, folder / name)


def replaced(folder: Path, name: str, old: str, new: str) -> None:
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))


def no_end_and_another_model(folder: Path) -> None:
    """As if the run had not ended, so that its ledger names no model."""
    swap_in(folder, "model.safetensors")
    rebuild(folder, lambda entries: entries[:-1])
    unmarked(folder)


def beside_points(folder: Path) -> None:
    """A folder that looks like a sweep, whose only point is a good run, and a run beside it."""
    shutil.copytree(folder.parent / "other", folder / "points" / "00000")


TAMPERING: dict[str, tuple[Callable[[Path], object], set[str]]] = {
    "a smaller epsilon": (smaller_epsilon, {"certificate.json"}),
    "a warning less": (lambda run: edit_certificate(run, lambda data: data["warnings"].pop()), {"certificate.json"}),
    "an assumption less": (without_assumption, {"certificate.json"}),
    "another certificate": (lambda run: (run / "certificate.json").write_text("{}"), {"certificate.json"}),
    "random bytes as model": (
        lambda run: (run / "model.safetensors").write_bytes(os.urandom(2600)),
        {"model.safetensors"},
    ),
    "a model of another run": (lambda run: swap_in(run, "model.safetensors"), {"model.safetensors"}),
    "a changed line of the ledger": (change_line, {"ledger.jsonl"}),
    "a removed line": (lambda run: drop_line(run, 1), {"ledger.jsonl"}),
    "a removed last line": (lambda run: drop_line(run, -1), {"ledger.jsonl"}),
    "ten times the noise, chain rebuilt": (lambda run: rebuild(run, louder), {"ledger.jsonl"}),
    "another relation, chain rebuilt": (lambda run: rebuild(run, related_otherwise), {"ledger.jsonl"}),
    "fewer rounds, chain rebuilt": (
        lambda run: rebuild(run, lambda entries: [*entries[:-2], entries[-1]]),
        {"ledger.jsonl"},
    ),
    "no end, chain rebuilt": (
        lambda run: rebuild(run, lambda entries: entries[:-1]),
        {"ledger.jsonl", "model.safetensors"},
    ),
    "no end, and a model of another run": (no_end_and_another_model, {"model.safetensors"}),
    "the points of a sweep beside a run": (beside_points, {"points"}),
    "half the rounds, as if unfinished": (cut_and_unmarked, {"model.safetensors", "metrics.jsonl"}),
    "ledger and certificate of another run": (
        lambda run: swap_in(run, "ledger.jsonl", "ledger.jsonl.head", "certificate.json"),
        {"model.safetensors", "config.toml", "metrics.jsonl", "environment.json"},
    ),
    "the ledger of another run": (
        lambda run: swap_in(run, "ledger.jsonl"),
        {"ledger.jsonl"},
    ),
    "a changed run file": (lambda run: replaced(run, "config.toml", "123456", "0"), {"config.toml"}),
    "changed metrics": (
        lambda run: replaced(run, "metrics.jsonl", '"accuracy": 0', '"accuracy": 1'),
        {"metrics.jsonl"},
    ),
    "a changed environment": (lambda run: replaced(run, "environment.json", '"jax"', '"jaxx"'), {"environment.json"}),
    "the salt of another run": (
        lambda run: swap_in(run, "digests.salt"),
        {"config.toml", "metrics.jsonl", "environment.json"},
    ),
    "a damaged salt": (lambda run: (run / "digests.salt").write_text("no"), {"digests.salt"}),
} | {
    f"no {name}": (lambda run, name=name: (run / name).unlink(), {name})
    for name in (
        "ledger.jsonl",
        "certificate.json",
        "model.safetensors",
        "config.toml",
        "metrics.jsonl",
        "environment.json",
        "digests.salt",
    )
}
TAMPERING["no head"] = (lambda run: (run / "ledger.jsonl.head").unlink(), {"ledger.jsonl"})
TAMPERING["no ledger and no head"] = (
    lambda run: [(run / name).unlink() for name in ("ledger.jsonl", "ledger.jsonl.head")],
    {"ledger.jsonl"},
)


@pytest.mark.parametrize("kind", TAMPERING)
def test_the_changed_file_is_named(run, kind):
    tamper, expected = TAMPERING[kind]
    assert certify(run)["disagreements"] == []
    tamper(run)
    data = certify(run, code=1)
    assert named(data) == expected
    assert "guarantees" not in data  # which of two figures is true is not known


@pytest.mark.parametrize("kind", TAMPERING)
def test_no_changed_run_is_signed_or_verified(signed, key, kind):
    tamper, expected = TAMPERING[kind]
    assert certify(signed, "--verify", public(key))["signed_by"].startswith("SHA256:")
    tamper(signed)
    data = certify(signed, "--verify", public(key), code=1)
    assert expected <= named(data)
    assert "signed_by" not in data
    before = (signed / "signature.dsse.json").read_bytes()
    assert named(certify(signed, "--sign", str(key), code=1)) == expected
    assert (signed / "signature.dsse.json").read_bytes() == before


def rebuild_all(folder: Path) -> None:
    """Ten times the noise in the ledger, the smaller epsilon in the certificate, and every digest made to fit."""
    rebuild(folder, louder)
    record = read_ledger(folder / "ledger.jsonl")
    again = {g.observer: g.to_json() for g in certify_ledger(record, record.description["delta"]).guarantees}

    def change(data: dict[str, Any]) -> None:
        for guarantee in data["guarantees"]:
            if guarantee["scope"] == "all rounds":
                guarantee["epsilon"] = again[guarantee["observer"]]["epsilon"]

    edit_certificate(folder, change)
    digest = "sha256:" + hashlib.sha256((folder / "certificate.json").read_bytes()).hexdigest()

    def name_it(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for files in (entries[0]["description"]["files"], entries[-1]["files"]):
            files["certificate.json"] = digest
        return entries

    rebuild(folder, name_it)


def without_digests(folder: Path) -> None:
    """A ledger as an earlier version wrote it, for which no file can be compared."""

    def strip(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        del entries[0]["description"]["files"]
        return entries[:-1]

    rebuild(folder, strip)
    (folder / "model.safetensors").write_bytes(b"other")


@pytest.mark.parametrize("tamper", [rebuild_all, without_digests])
def test_a_chain_that_was_rebuilt_with_all_digests_needs_a_signature(signed, key, tamper):
    tamper(signed)
    assert certify(signed)["disagreements"] == []
    data = certify(signed, "--verify", public(key), code=1)
    assert {"ledger.jsonl", "ledger.jsonl.head"} < named(data)
    assert named(data) & {"certificate.json", "model.safetensors"}


# --- Signatures ------------------------------------------------------------------------------------------------------


def edit_envelope(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "signature.dsse.json"
    envelope = json.loads(path.read_text())
    change(envelope)
    path.write_text(json.dumps(envelope))


def smaller_payload(envelope: dict[str, Any]) -> None:
    payload = base64.b64decode(envelope["payload"]).replace(b'"units":6', b'"units":9')
    envelope["payload"] = base64.b64encode(payload).decode()


ENVELOPES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no envelope": (lambda run: (run / "signature.dsse.json").unlink(), "unsigned"),
    "no JSON": (lambda run: (run / "signature.dsse.json").write_text("{"), "envelope-changed"),
    "no object": (lambda run: (run / "signature.dsse.json").write_text("[]"), "envelope-changed"),
    "another payload": (lambda run: edit_envelope(run, smaller_payload), "envelope-changed"),
    "another type": (
        lambda run: edit_envelope(run, lambda envelope: envelope.update(payloadType="text/plain")),
        "envelope-changed",
    ),
    "no signatures": (lambda run: edit_envelope(run, lambda envelope: envelope.update(signatures=[])), "another-key"),
    "another key id": (
        lambda run: edit_envelope(run, lambda envelope: envelope["signatures"][0].update(keyid="SHA256:other")),
        "another-key",
    ),
    "another signature": (
        lambda run: edit_envelope(run, lambda envelope: envelope["signatures"][0].update(sig="AAAA")),
        "envelope-changed",
    ),
}


@pytest.mark.parametrize("kind", ENVELOPES)
def test_a_changed_envelope_is_refused(signed, key, kind):
    tamper, code = ENVELOPES[kind]
    tamper(signed)
    assert codes(certify(signed, "--verify", public(key), code=1)) == {("signature.dsse.json", code)}


def test_another_key_is_refused_also_with_the_id_of_the_right_one(signed, key, other_key):
    assert codes(certify(signed, "--verify", public(other_key), code=1)) == {("signature.dsse.json", "another-key")}
    certify(signed, "--sign", str(other_key))
    right = signing.read_signing_key(key).id
    assert codes(certify(signed, "--verify", public(key), code=1)) == {("signature.dsse.json", "another-key")}
    edit_envelope(signed, lambda envelope: envelope["signatures"][0].update(keyid=right))
    assert codes(certify(signed, "--verify", public(key), code=1)) == {("signature.dsse.json", "envelope-changed")}


def test_a_signature_of_another_run_names_every_file(signed, key):
    sign_run(signed.parent / "other", signing.read_signing_key(key))
    swap_in(signed, "signature.dsse.json")
    data = certify(signed, "--verify", public(key), code=1)
    assert named(data) >= {"ledger.jsonl", "model.safetensors", "config.toml", "metrics.jsonl", "environment.json"}


@pytest.mark.parametrize(
    "change",
    [
        lambda stated: stated.update(subject=[]),
        lambda stated: stated["subject"].pop(),
        lambda stated: stated.update(predicateType="https://example.com/other"),
        lambda stated: stated.update(predicate={}),
        lambda stated: stated.update(subject="none"),
    ],
)
def test_a_statement_about_something_else_is_refused_although_it_is_signed(signed, key, change):
    path, private = signed / "signature.dsse.json", signing.read_signing_key(key)
    stated = signing.verify(json.loads(path.read_text()), private.public, PREDICATE_TYPE)
    change(stated)
    path.write_text(json.dumps(signing.sign(stated, private)))
    certify(signed, "--verify", public(key), code=1)


def test_the_envelope_is_an_in_toto_statement_about_the_files(signed, key):
    envelope = json.loads((signed / "signature.dsse.json").read_text())
    assert envelope["payloadType"] == "application/vnd.in-toto+json"
    payload = base64.b64decode(envelope["payload"])
    stated = json.loads(payload)
    assert (stated["_type"], stated["predicateType"]) == ("https://in-toto.io/Statement/v1", PREDICATE_TYPE)
    digests = {each["name"]: each["digest"] for each in stated["subject"]}
    for name in ("certificate.json", "ledger.jsonl", "ledger.jsonl.head", "model.safetensors"):
        assert digests.pop(name) == {"sha256": hashlib.sha256((signed / name).read_bytes()).hexdigest()}
    assert {name: [*digest] for name, digest in digests.items()} == {
        name: ["hmac-sha256"] for name in ("config.toml", "metrics.jsonl", "environment.json")
    }
    assert stated["predicate"]["certificate"] == json.loads((signed / "certificate.json").read_text())
    assert stated["predicate"]["ledgerHash"] == json.loads((signed / "ledger.jsonl.head").read_text())["hash"]
    kind = envelope["payloadType"].encode()
    encoded = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
    (signature,) = envelope["signatures"]
    assert signing.read_verifying_key(Path(public(key))).verifies(base64.b64decode(signature["sig"]), encoded)


@pytest.mark.parametrize("kind", KEYS)
def test_every_kind_of_key_signs_and_has_the_id_that_ssh_keygen_prints(run, tmp_path, kind):
    key = KEYS[kind](tmp_path / "key")
    key.chmod(0o600)
    by = certify(run, "--sign", str(key))["signed_by"]
    assert certify(run, "--verify", public(key))["signed_by"] == by
    if shutil.which("ssh-keygen") and "pem" not in kind:
        assert by in subprocess.run(["ssh-keygen", "-lf", key], capture_output=True, text=True, check=True).stdout


def test_keys_that_cannot_sign_are_refused(tmp_path, key):
    (tmp_path / "nonsense").write_bytes(
        b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n"
    )
    (tmp_path / "large").write_bytes(b"PRIVATE KEY" * 10_000)
    rsa_key = write_key(tmp_path / "rsa", rsa.generate_private_key(65537, 2048))
    curve = write_key(tmp_path / "p521", ec.generate_private_key(ec.SECP521R1()))
    locked = write_key(tmp_path / "locked", ed25519.Ed25519PrivateKey.generate(), ssh=False, passphrase=b"word")
    refused = {
        tmp_path / "nowhere": "cannot be read",
        tmp_path / "nonsense": "cannot be read",
        tmp_path / "large": "too large",
        tmp_path: "cannot be read",
        rsa_key: "another kind",
        curve: "another kind",
        locked: "is encrypted",
        Path(public(key)): "is not a private key",
    }
    for path, words in refused.items():
        with pytest.raises(InvalidInput, match=words):
            signing.read_signing_key(path)
    with pytest.raises(InvalidInput, match="passphrase"):
        signing.read_signing_key(locked, lambda: b"wrong")
    assert signing.read_signing_key(locked, lambda: b"word").id.startswith("SHA256:")
    for path, words in {key: "private key", Path(public(rsa_key)): "another kind", tmp_path / "x": "read"}.items():
        with pytest.raises(InvalidInput, match=words):
            signing.read_verifying_key(path)
    (tmp_path / "x.pub").write_text("ssh-ed25519 nonsense")
    with pytest.raises(InvalidInput, match="is not a public key"):
        signing.read_verifying_key(tmp_path / "x.pub")


# --- What may be handed on -------------------------------------------------------------------------------------------


def test_what_is_handed_on_can_be_verified_without_the_secret_files(signed, key, tmp_path):
    """Nor does it let anybody check a guess of the seed, or of the records behind the metrics."""
    handed_on = tmp_path / "handed on"
    handed_on.mkdir()
    for name in ("certificate.json", "ledger.jsonl", "ledger.jsonl.head", "model.safetensors", "signature.dsse.json"):
        shutil.copy(signed / name, handed_on)
    data = certify(handed_on, "--verify", public(key))
    assert data["agree"] == ["model.safetensors", "certificate.json"]
    assert len(data["notes"]) == 1
    payload = base64.b64decode(json.loads((handed_on / "signature.dsse.json").read_text())["payload"])
    shown = (handed_on / "ledger.jsonl").read_bytes() + payload
    for name in ("config.toml", "metrics.jsonl", "environment.json", "digests.salt"):
        assert hashlib.sha256((signed / name).read_bytes()).hexdigest().encode() not in shown
    assert (signed / "digests.salt").read_bytes() not in shown


def test_two_runs_have_two_salts(runs):
    one, two = ((runs / name / "digests.salt").read_text() for name in ("mine", "other"))
    assert one != two
    assert len(bytes.fromhex(one)) == 32


# --- Runs that are not over, and sweeps ------------------------------------------------------------------------------


@pytest.fixture
def unfinished(tmp_path, monkeypatch) -> Path:
    """A run that stopped after half of its rounds."""
    advance = Program.advance

    class Stopped(Exception):
        pass

    def stop(self, state, start, end):
        if start >= 2:
            raise Stopped
        return advance(self, state, start, end)

    with monkeypatch.context() as patch:
        patch.setattr(Program, "advance", stop)
        with pytest.raises(Stopped):
            small_run(tmp_path / "half")
    return tmp_path / "half"


def test_an_unfinished_run_has_spent_less_and_agrees(unfinished, key):
    data = certify(unfinished)
    assert set(data["agree"]) == {"certificate.json", "config.toml"}
    with pytest.raises(InvalidInput, match="not finished"):
        sign_run(unfinished, signing.read_signing_key(key))
    assert named(certify(unfinished, "--verify", public(key), code=1)) == {"signature.dsse.json"}
    small_run(unfinished, resume=True)
    assert "model.safetensors" in certify(unfinished)["agree"]


def test_an_unfinished_run_is_compared_too(unfinished):
    smaller = json.loads((unfinished / "certificate.json").read_text())
    for guarantee in smaller["guarantees"]:
        guarantee["epsilon"] = 0.01
    whole = (unfinished / "certificate.json").read_bytes()
    (unfinished / "certificate.json").write_text(json.dumps(smaller))
    found = {each["code"] for each in certify(unfinished, code=1)["disagreements"]}
    assert {"changed", "promises-less"} <= found
    (unfinished / "certificate.json").write_bytes(whole)
    replaced(unfinished, "config.toml", "123456", "7")
    assert named(certify(unfinished, code=1)) == {"config.toml"}


def test_a_run_does_not_go_on_with_other_files_than_it_began_with(unfinished):
    salt = (unfinished / "digests.salt").read_bytes()
    (unfinished / "digests.salt").unlink()
    with pytest.raises(InvalidInput, match=r"digests\.salt is missing"):
        small_run(unfinished, resume=True)
    (unfinished / "digests.salt").write_bytes(salt)
    text = (unfinished / "certificate.json").read_text()
    (unfinished / "certificate.json").write_text(text + "\n")  # the same figures
    with pytest.raises(InvalidInput, match=r"certificate\.json has changed"):
        small_run(unfinished, resume=True)


def test_a_finished_run_ends_once_and_keeps_its_model(run):
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.suffix != ".npz"}
    small_run(run, resume=True)
    assert {name: (run / name).read_bytes() for name in before} == before
    (run / "model.safetensors").write_bytes(b"other")
    (run / "metrics.jsonl").unlink()
    small_run(run, resume=True)
    assert certify(run)["disagreements"] == []


def test_a_crash_after_the_end_of_the_ledger_is_repaired(run):
    """The mark of a finished run is written last."""
    unmarked(run)
    assert named(certify(run, code=1)) == {"environment.json"}
    ledger = (run / "ledger.jsonl").read_bytes()
    small_run(run, resume=True)
    assert certify(run)["disagreements"] == []
    assert (run / "ledger.jsonl").read_bytes() == ledger


def test_a_run_of_an_earlier_version_is_compared_by_its_figures_and_gets_an_end(run):
    def strip(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        del entries[0]["description"]["files"]
        return entries[:-1]

    rebuild(run, strip)
    (run / "digests.salt").unlink()
    assert certify(run)["agree"] == ["certificate.json"]
    smaller = shutil.copytree(run, run.parent / "smaller")
    smaller_epsilon(smaller)
    assert named(certify(smaller, code=1)) == {"certificate.json"}
    small_run(run, resume=True)
    assert len(certify(run)["agree"]) == 5


def test_a_torn_line_counts_more_than_the_certificate_says(unfinished):
    with (unfinished / "ledger.jsonl").open("ab") as ledger:
        ledger.write(b'{"event"')
    small_run(unfinished, resume=True)
    assert codes(certify(unfinished, code=1)) == {("certificate.json", "promises-less")}


def test_models_that_a_sweep_deleted_are_no_fault_and_changed_ones_are(tmp_path, key):
    with SweepStore(tmp_path / "sweep", "config", b"records", seeded=True) as store:
        for number in range(2):
            small_run(store.point(number), seed=number)
        store.keep_models([1])
    data = certify(tmp_path / "sweep", "--sign", str(key))
    assert [len(point["notes"]) for point in data["points"]] == [1, 0]
    assert certify(store.point(0), "--verify", public(key))["disagreements"] == []
    certify(tmp_path / "sweep", "--verify", public(key))
    shutil.copy(store.point(1) / "model.safetensors", store.point(0))
    expected = ("points/00000/model.safetensors", "changed")
    assert codes(certify(tmp_path / "sweep", code=1)) == {expected}
    for name in ("ledger.jsonl", "ledger.jsonl.head"):
        (store.point(1) / name).unlink()
    data = certify(tmp_path / "sweep", code=1)
    assert codes(data) == {expected, ("points/00001/ledger.jsonl", "missing")}
    assert ["guarantees" in point for point in data["points"]] == [False, False]


def test_a_ledger_alone_has_nothing_to_compare(run, key):
    data = certify(run / "ledger.jsonl")
    assert (data["disagreements"], data["agree"], len(data["notes"])) == ([], [], 1)


# --- Figures ---------------------------------------------------------------------------------------------------------

RECORDS = so.task("linear", clients=4, records=30, d=3, loss="logit", l2=0.1)
OPTIONS: dict[str, Any] = {"lipschitz": [1.0, 0.5, 1.0, 0.3], "radius": 1.0, "feature_bound": 1.0}
LOCAL: dict[str, Any] = {"trust": "local", "delta": 1e-4}


def fedavg() -> Any:
    return so.fedavg(local_steps=1, local_lr=0.5, bound=so.clip(1.0))


PLANS: dict[str, tuple[so.Task, Callable[[], so.Plan]]] = {
    "a secret cohort": (TASK, lambda: so.plan(fedavg(), rounds=3, noise_multiplier=1.0, cohort="poisson:0.5")),
    "local noise": (TASK, lambda: so.plan(fedavg(), rounds=3, noise_multiplier=5.0, relation="replace-one", **LOCAL)),
    "pure noise": (TASK, lambda: so.plan(fedavg(), rounds=3, mechanism="laplace", noise_multiplier=50.0, delta=1e-4)),
    "no noise": (TASK, lambda: so.plan(fedavg(), rounds=3, mechanism="none")),
    "clients of several kinds": (
        RECORDS,
        lambda: so.plan(
            so.accelerated_mb_sgd(**OPTIONS),
            rounds=3,
            epsilon=[1.0, 2.0, 4.0, 1.0],
            delta=[1e-5, 1e-6, 1e-5, 1e-4],
            trust="local",
        ),
    ),
    "one pass": (
        RECORDS,
        lambda: so.plan(
            so.noisy_mb_sgd(**OPTIONS, smoothness=1.0, batch_size=4, one_pass=True),
            rounds=3,
            noise_multiplier=2.0,
            **LOCAL,
        ),
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_every_figure_of_an_honest_run_is_found_again_and_every_smaller_one_refused(tmp_path, name):
    task, plan = PLANS[name]
    run = so.simulate(plan(), task, folder=tmp_path / "run")
    agreement = compare_run(tmp_path / "run")
    assert agreement.disagreements == ()
    record = agreement.record
    for place, guarantee in enumerate(run.certificate.guarantees):
        if guarantee.scope == "one round":
            continue  # the digest of the file covers it
        for factor, code in ((0.999, "less"), (1.001, "more")):
            epsilon = 1e6 if guarantee.epsilon == float("inf") else factor * guarantee.epsilon
            changed = dataclasses.replace(guarantee, epsilon=epsilon)
            guarantees = (*run.certificate.guarantees[:place], changed, *run.certificate.guarantees[place + 1 :])
            (found,) = differences(dataclasses.replace(run.certificate, guarantees=guarantees), record)
            expected = "other-clients" if guarantee.client else f"promises-{'less' if epsilon == 1e6 else code}"
            assert found.code == expected


def test_an_observer_who_is_left_out_or_invented_is_named(runs):
    record = read_ledger(runs / "mine" / "ledger.jsonl")
    stated = so.Certificate.from_json(json.loads((runs / "mine" / "certificate.json").read_text()))
    others = tuple(each for each in stated.guarantees if each.observer is not Observer.SERVER)
    (found,) = differences(dataclasses.replace(stated, guarantees=others), record)
    assert found.code == "not-in-certificate"
    peer = tuple(dataclasses.replace(each, observer=Observer.PEER) for each in others)
    (found,) = differences(dataclasses.replace(stated, guarantees=(*stated.guarantees, *peer)), record)
    assert found.code == "not-in-ledger"
    larger = tuple(dataclasses.replace(each, delta=1e-3) for each in stated.guarantees)
    assert "not-in-certificate" in {
        each.code for each in differences(dataclasses.replace(stated, guarantees=larger), record)
    }
