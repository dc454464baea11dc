"""Keys and certificates of a deployment: the server's TLS, a key for each node, shared secrets of one machine."""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sordino.files import write_atomically

__all__ = ["make_node_key", "make_secret", "make_tls"]

LIFETIME = datetime.timedelta(days=825)  # some systems accept no server certificate that lives longer
EARLIER = datetime.timedelta(hours=1)  # clocks of other machines may be behind


def make_tls(folder: Path, hosts: Sequence[str]) -> None:
    """Write ca.crt, ca.key, server.pem and server.key; nodes need ca.crt, and reach the server as one of the hosts."""
    folder.mkdir(parents=True, exist_ok=True)
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    issuer = _name("Sordino deployment CA")
    root = (
        _builder(issuer, issuer, authority.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA384())
    )
    names = [_general_name(host) for host in dict.fromkeys([*hosts, "localhost", "127.0.0.1"])]
    certificate = (
        _builder(_name("Sordino server"), issuer, server.public_key())
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(server.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA384())
    )
    for name, key in (("ca.key", authority), ("server.key", server)):
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_atomically(folder / name, pem, private=True)
    write_atomically(folder / "server.pem", certificate.public_bytes(Encoding.PEM))
    write_atomically(folder / "ca.crt", root.public_bytes(Encoding.PEM))


def make_node_key(path: Path) -> Path:
    """Write a P-384 key as `ssh-keygen -t ecdsa -b 384` would -> the file of its public half, for the server."""
    key = ec.generate_private_key(ec.SECP384R1())
    write_atomically(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), private=True)
    line = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    public = path.with_name(path.name + ".pub")
    write_atomically(public, line + b" " + path.name.encode() + b"\n")
    return public


def make_secret(path: Path) -> None:
    """Write 32 random bytes that two processes of one machine share."""
    write_atomically(path, secrets.token_bytes(32), private=True)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + LIFETIME)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
