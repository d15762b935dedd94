"""TLS of a run's own etcd: certificates by an authority whose private key follows from the run's key.

So each process with the run's key can show a certificate and verify the others'. Names are not checked: no
stranger can have a certificate.
"""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cerebro_elastic.system.run_key import RunKey

NAME = "etcd.cerebro"
"""The name in each certificate, for clients that cannot leave out the check of names (gRPC)."""
_AUTHORITY = "cerebro run"
_CURVE = ec.SECP256R1()
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""The number of points of the curve. Its private keys are the numbers below it, from 1 on."""
# Machines whose clocks are wrong take part too.
_BEGIN, _END = datetime(2000, 1, 1), datetime(9999, 12, 31, 23, 59, 59)
_OTHER_USAGES = (
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """PEM files."""

    authority: Path
    certificate: Path
    """A certificate by it, for a server and for clients."""
    private_key: Path

    @classmethod
    def write(cls, key: RunKey, folder: Path) -> CertificateFiles:
        """Make a new certificate of ``key``, and write it to ``folder``, for this user alone."""
        files = cls(folder / "ca.pem", folder / "tls.pem", folder / "tls.key")
        authority = ec.derive_private_key(_private_number(key.secret), _CURVE)
        private = ec.generate_private_key(_CURVE)
        pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        _write(files.authority, _certificate(_AUTHORITY, authority, authority))
        _write(files.certificate, _certificate(NAME, private, authority))
        _write(files.private_key, pem)
        return files


@cache
def client_context(key: RunKey) -> ssl.SSLContext:
    """How clients with the ``key`` connect."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    with tempfile.TemporaryDirectory(prefix="cerebro-tls-") as folder:
        files = CertificateFiles.write(key, Path(folder))
        context.load_verify_locations(files.authority)
        context.load_cert_chain(files.certificate, files.private_key)
    return context


def _certificate(
    subject: str, private: ec.EllipticCurvePrivateKey, authority: ec.EllipticCurvePrivateKey
) -> bytes:
    """A certificate for the key ``private`` by the ``authority``, perhaps its own, in PEM."""
    is_authority = private is authority
    builder = (
        x509.CertificateBuilder(
            _named(_AUTHORITY),
            _named(subject),
            private.public_key(),
            x509.random_serial_number(),
            _BEGIN,
            _END,
        )
        .add_extension(x509.BasicConstraints(is_authority, 0 if is_authority else None), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=True, key_cert_sign=is_authority, **dict.fromkeys(_OTHER_USAGES, False)
            ),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(private.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False
        )
    )
    if not is_authority:
        # etcd's gateway is a client of its own server, with the server's certificate.
        both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = builder.add_extension(both, critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
    return builder.sign(authority, hashes.SHA256()).public_bytes(Encoding.PEM)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _private_number(secret: bytes) -> int:
    """A private key from ``secret``. By 48 bytes all are equally likely."""
    derived = HKDF(hashes.SHA256(), 48, None, b"cerebro: the authority of a run's etcd").derive(secret)
    return int.from_bytes(derived, "big") % (_ORDER - 1) + 1


def _write(file: Path, content: bytes) -> None:
    file.unlink(missing_ok=True)
    file.touch(0o600)
    file.write_bytes(content)
