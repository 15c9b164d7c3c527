"""Certificates for the server and keys for the sites, for local use and first trials.

The federation has its own authority, which signs the server's certificate; sites trust only that
authority. A site proves its identity with an elliptic-curve key; the server registers its public
half.
"""

from __future__ import annotations

import ipaddress
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headstart._atomic_files import write_bytes

YEARS = 5


def make_certificates(folder: Path, host: str) -> None:
    """Write ``ca.crt``, ``ca.key``, ``server.crt`` and ``server.key`` for a server of this name."""
    authority_key, authority = _authority()
    key = _key()
    name = _name("Headstart server")
    names = {host, "localhost", "127.0.0.1"}
    certificate = (
        _builder(name, authority.subject, key)
        .add_extension(x509.SubjectAlternativeName([_alternative(n) for n in sorted(names)]), False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), False
        )
        .sign(authority_key, hashes.SHA384())
    )
    pem = serialization.Encoding.PEM
    write_bytes(folder / "ca.crt", authority.public_bytes(pem))
    _write_secret(folder / "ca.key", _plain(authority_key, serialization.PrivateFormat.PKCS8))
    write_bytes(folder / "server.crt", certificate.public_bytes(pem))
    _write_secret(folder / "server.key", _plain(key, serialization.PrivateFormat.PKCS8))


def make_site_key(private: Path) -> Path:
    """Write a site's key and its public half, and return the path of the public half."""
    key = _key()
    _write_secret(private, _plain(key, serialization.PrivateFormat.OpenSSH))
    ssh = serialization.Encoding.OpenSSH
    public = key.public_key().public_bytes(ssh, serialization.PublicFormat.OpenSSH)
    path = private.with_name(private.name + ".pub")
    write_bytes(path, public + b"\n")
    return path


def _authority() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = _key()
    name = _name("Headstart federation")
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, key_cert_sign=True, crl_sign=True,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
    certificate = (
        _builder(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .sign(key, hashes.SHA384())
    )
    return key, certificate


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=365 * YEARS))
    )


def _key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _plain(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, from the first moment on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
