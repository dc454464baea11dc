"""Signed statements about files: an in-toto Statement v1 in a DSSE envelope, signed with an Ed25519 or ECDSA key.

    signature = sign(PAE(payloadType, payload)),    PAE(t, p) = "DSSEv1" SP len(t) SP t SP len(p) SP p

The type of the payload is signed with it, so that a signature made for another purpose cannot be passed off as one of
these. Keys are files in OpenSSH or PEM format, and have the id that `ssh-keygen -l` prints. Nothing here knows about
the folders of runs: a node of a deployment signs with the same functions.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
    load_ssh_private_key,
    load_ssh_public_key,
)

from sordino.errors import InvalidInput, SordinoError, one_line, require

Json: TypeAlias = dict[str, Any]
PrivateKey: TypeAlias = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey
PublicKey: TypeAlias = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey
Digests: TypeAlias = Mapping[str, Mapping[str, str]]  # by name of the file, then by name of the algorithm

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
LARGEST_FILE = 100_000  # bytes of a key file: a larger one is something else

_CURVES: dict[str, hashes.HashAlgorithm] = {"secp256r1": hashes.SHA256(), "secp384r1": hashes.SHA384()}
_KINDS = "Ed25519 or ECDSA on P-256 or P-384"
_MAKE_ONE = 'make one with ssh-keygen -t ed25519 -f KEY -N ""'


class SignatureError(SordinoError):
    """An envelope that is not what the trusted key signed: a stable code and a sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass(frozen=True)
class VerifyingKey:
    """A public key."""

    public: PublicKey

    @property
    def line(self) -> str:
        """One line of OpenSSH, without a comment."""
        return self.public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()

    @property
    def id(self) -> str:
        """As `ssh-keygen -l` prints it: SHA256:..."""
        written = self.public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        digest = hashlib.sha256(base64.b64decode(written.split()[1])).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether this key signed the message."""
        try:
            if isinstance(self.public, ed25519.Ed25519PublicKey):
                self.public.verify(signature, message)
            else:
                self.public.verify(signature, message, ec.ECDSA(_CURVES[self.public.curve.name]))
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, repr=False)
class SigningKey:
    """A private key."""

    private: PrivateKey

    @property
    def public(self) -> VerifyingKey:
        """The public part."""
        return VerifyingKey(self.private.public_key())

    @property
    def id(self) -> str:
        """The id of the public part."""
        return self.public.id

    def sign(self, message: bytes) -> bytes:
        """The signature of a message: 64 bytes of Ed25519, or ECDSA in DER."""
        if isinstance(self.private, ed25519.Ed25519PrivateKey):
            return self.private.sign(message)
        return self.private.sign(message, ec.ECDSA(_CURVES[self.private.curve.name]))


# --- Keys ------------------------------------------------------------------------------------------------------------


def read_signing_key(path: Path, ask: Callable[[], bytes] | None = None, *, field: str = "sign") -> SigningKey:
    """The private key in a file that `field` names; `ask` is called for the passphrase of an encrypted one."""
    data = _key_bytes(field, path)
    if b"PRIVATE KEY" not in data:
        raise InvalidInput(field, str(path), f"is not a private key: give the file without .pub, or {_MAKE_ONE}")
    load = load_ssh_private_key if b"OPENSSH" in data else load_pem_private_key
    try:
        try:
            private = load(data, None)
        except TypeError:  # the key is encrypted
            if ask is None:
                remedy = "is encrypted, and there is no terminal to ask for its passphrase: give a key without one"
                raise InvalidInput(field, str(path), remedy) from None
            private = load(data, ask())
    except UnsupportedAlgorithm as error:
        raise InvalidInput(field, str(path), f"cannot be read here ({error}): {_MAKE_ONE}") from None
    except (ValueError, TypeError) as error:
        if isinstance(error, InvalidInput):
            raise
        remedy = f"cannot be read (damaged, or a wrong passphrase): check it, or {_MAKE_ONE}"
        raise InvalidInput(field, str(path), remedy) from None
    if isinstance(private, ed25519.Ed25519PrivateKey):
        return SigningKey(private)
    if isinstance(private, ec.EllipticCurvePrivateKey) and private.curve.name in _CURVES:
        return SigningKey(private)
    raise InvalidInput(field, str(path), f"is a key of another kind: use {_KINDS}; {_MAKE_ONE}")


def read_verifying_key(path: Path, *, field: str = "verify") -> VerifyingKey:
    """The public key in a file that `field` names."""
    data = _key_bytes(field, path)
    require(b"PRIVATE KEY" not in data, field, str(path), "is a private key: give the public one, usually KEY.pub")
    return _verifying_key(data, str(path), field)


def parse_verifying_key(text: str) -> VerifyingKey:
    """The public key in a text."""
    return _verifying_key(text.encode(), text, "verify")


def _verifying_key(data: bytes, shown: str, field: str) -> VerifyingKey:
    load = load_pem_public_key if b"-----BEGIN" in data else load_ssh_public_key
    try:
        public = load(data)
    except (ValueError, UnsupportedAlgorithm):
        remedy = f"is not a public key in OpenSSH or PEM format: use {_KINDS}"
        raise InvalidInput(field, shown, remedy) from None
    if isinstance(public, ed25519.Ed25519PublicKey):
        return VerifyingKey(public)
    if isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name in _CURVES:
        return VerifyingKey(public)
    raise InvalidInput(field, shown, f"is a key of another kind: use {_KINDS}")


def _key_bytes(field: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise InvalidInput(field, str(path), f"cannot be read ({error.strerror}): check the path") from None
    require(len(data) <= LARGEST_FILE, field, str(path), "is too large for a key: check the path")
    return data


# --- Statements and envelopes ----------------------------------------------------------------------------------------


def statement(subjects: Digests, predicate_type: str, predicate: Json) -> Json:
    """An in-toto Statement v1: the predicate holds for the files with these digests."""
    return {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": dict(digest)} for name, digest in subjects.items()],
        "predicateType": predicate_type,
        "predicate": predicate,
    }


def subjects_of(stated: Json) -> dict[str, dict[str, str]]:
    """The digests of a statement by name of the file."""
    try:
        return {str(each["name"]): dict(each["digest"]) for each in stated["subject"]}
    except (KeyError, TypeError, ValueError):
        raise SignatureError("other-statement", "the signed statement names no files; sign again") from None


def sign(stated: Json, *keys: SigningKey) -> Json:
    """The envelope of a statement, with a signature by each key."""
    payload = json.dumps(stated, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    message = _pre_authentication_encoding(PAYLOAD_TYPE, payload)
    return {
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"keyid": key.id, "sig": base64.b64encode(key.sign(message)).decode()} for key in keys],
    }


def verify(envelope: object, key: VerifyingKey, predicate_type: str) -> Json:
    """The statement in an envelope, provided that `key` signed it and that it is of this type."""
    try:
        if not isinstance(envelope, dict):
            raise TypeError
        payload_type, payload = str(envelope["payloadType"]), _base64(envelope["payload"])
        signatures = [(str(each["keyid"]), _base64(each["sig"])) for each in envelope["signatures"]]
    except (KeyError, TypeError, ValueError):
        raise SignatureError("envelope-changed", "is no DSSE envelope; restore it, or sign again") from None
    own = [signature for key_id, signature in signatures if key_id == key.id]
    if not own:
        others = ", ".join(one_line(key_id) for key_id, _ in signatures) or "nobody"
        raise SignatureError("another-key", f"is signed by {others}, not by {key.id}; ask the signer for their key")
    message = _pre_authentication_encoding(payload_type, payload)
    if not any(key.verifies(signature, message) for signature in own):
        changed = f"was changed since {key.id} signed, or is not by that key; restore it, or ask for a new one"
        raise SignatureError("envelope-changed", changed)
    try:
        stated = json.loads(payload)
    except (ValueError, RecursionError):
        stated = None
    kinds = (payload_type, stated.get("_type"), stated.get("predicateType")) if isinstance(stated, dict) else ()
    if kinds != (PAYLOAD_TYPE, STATEMENT_TYPE, predicate_type) or not isinstance(stated.get("predicate"), dict):
        raise SignatureError("other-statement", f"is not a statement of type {predicate_type}; sign again")
    return dict(stated)


def _pre_authentication_encoding(payload_type: str, payload: bytes) -> bytes:
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def _base64(text: object) -> bytes:
    """Standard or URL-safe base64, as DSSE allows."""
    if not isinstance(text, str):
        raise TypeError
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except binascii.Error as error:
        raise ValueError from error
