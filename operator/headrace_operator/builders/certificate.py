"""Certificates of an authority of one's own: made, issued, and read.

Keys are made by chance; all else follows from the arguments, and the time is passed in.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BACKDATE: Final = timedelta(minutes=5)  # for clocks that are behind
_DER: Final = serialization.Encoding.DER
_COMMON_NAME_MAX: Final = 64  # letters, as X.509 has it


class Pair(NamedTuple):
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes


class Facts(NamedTuple):
    """Fields of a certificate.

    Attributes:
        made_at: when it was made.
        not_after: when it ends.
        names: DNS names and addresses that it is for.
        key: identifies the certificate's key.
        authority: identifies the key of who has signed it.
    """

    made_at: datetime
    not_after: datetime
    names: frozenset[str]
    key: bytes
    authority: bytes


class CertificateError(Exception):
    """Not a valid pair of certificate and key; the text says why."""


def new_authority(name: str, now: datetime, days: int) -> Pair:
    """Return an authority that signs certificates and no other authorities.

    Args:
        name: for people.
        now: with a time zone.
        days: that it is good for.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    builder = _begun(subject, subject, key, now, now + timedelta(days=days))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(authority: Pair, name: str, names: Iterable[str], now: datetime, days: int) -> Pair:
    """Return a certificate for servers and clients; it ends with its authority at the latest.

    Args:
        authority: who signs.
        name: for people.
        names: DNS names and IP addresses.
        now: with a time zone.
        days: that it is good for.

    Raises:
        CertificateError: the authority is none.
    """
    issuer, issuer_key = _loaded(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    ends = min(now + timedelta(days=days), issuer.not_valid_after_utc)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = _begun(_subject(name), issuer.subject, key, now, ends)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    builder = builder.add_extension(
        x509.SubjectAlternativeName([_general_name(each) for each in sorted(set(names))]), False
    )
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
    )
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def read(certificate: bytes) -> Facts:
    """Return what a certificate says, the first one of those in a file.

    Raises:
        CertificateError: it is none.
    """
    try:
        found = x509.load_pem_x509_certificate(certificate)
        extensions = found.extensions
    except ValueError as error:
        raise CertificateError(f"not a certificate in PEM: {error}") from error
    names: frozenset[str] = frozenset()
    authority = b""
    for extension in extensions:
        value = extension.value
        if isinstance(value, x509.SubjectAlternativeName):
            addresses = value.get_values_for_type(x509.IPAddress)
            names = frozenset([*value.get_values_for_type(x509.DNSName), *map(str, addresses)])
        elif isinstance(value, x509.AuthorityKeyIdentifier):
            authority = value.key_identifier or b""
    own = x509.SubjectKeyIdentifier.from_public_key(found.public_key()).key_identifier
    made_at = found.not_valid_before_utc + BACKDATE
    return Facts(made_at, found.not_valid_after_utc, names, own, authority)


def read_pair(pair: Pair) -> Facts:
    """Return the facts of a certificate and its key.

    Raises:
        CertificateError: it is none, or the key is not its key.
    """
    facts = read(pair.certificate)
    try:
        key = serialization.load_pem_private_key(pair.key, password=None)
    except (ValueError, TypeError) as error:
        raise CertificateError(f"not a key in PEM: {error}") from error
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public = x509.load_pem_x509_certificate(pair.certificate).public_key()
    own, shown = (each.public_bytes(_DER, form) for each in (key.public_key(), public))
    if own != shown:
        raise CertificateError("the key is not the certificate's")
    return facts


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:_COMMON_NAME_MAX])])


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    ends: datetime,
) -> x509.CertificateBuilder:
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(ends)
        .add_extension(own, critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def _loaded(pair: Pair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, password=None)
    except ValueError as error:
        raise CertificateError(f"not a certificate and its key in PEM: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError("the authority's key is not one of an elliptic curve")
    return certificate, key
