"""Identity of a client certificate.

Source: RFC 4514 (distinguished names as text); which part of the certificate names the user, and
several common names joined by commas, as in RabbitMQ.
"""

from __future__ import annotations

import ssl
from typing import Any, Final

from headrace_broker.model.tls import TlsSession

NONE: Final = "none"
COMMON_NAME: Final = "common_name"
DISTINGUISHED_NAME: Final = "distinguished_name"

_SHORT_NAMES: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_ESCAPED: Final = frozenset('",+;<>\\')


class CertificateRefusedError(Exception):
    """A certificate that is valid otherwise is not taken; the text says why."""


# As ssl.SSLSocket.getpeercert gives it: relative names, each of pairs of type and value.
Name = tuple[tuple[tuple[str, str], ...], ...]


def describe(ssl_object: ssl.SSLObject, login_from: str) -> TlsSession:
    """Return what a finished handshake has agreed.

    Args:
        ssl_object: of the transport.
        login_from: COMMON_NAME, DISTINGUISHED_NAME, or NONE: certificates name no users.
    """
    cipher = ssl_object.cipher()
    session = TlsSession(ssl_object.version() or "", cipher[0] if cipher is not None else "")
    session.external = login_from != NONE
    certificate: dict[str, Any] = ssl_object.getpeercert() or {}  # empty unless it was verified
    if certificate:
        subject: Name = certificate.get("subject", ())
        issuer: Name = certificate.get("issuer", ())
        set_client(session, subject, issuer, str(certificate.get("notAfter", "")), login_from)
    return session


def set_client(
    session: TlsSession, subject: Name, issuer: Name, not_after: str, login_from: str
) -> None:
    """Set the owner of the client's verified certificate.

    Args:
        session: where it is noted.
        subject: whom the certificate names.
        issuer: who signed it.
        not_after: when it ends, as OpenSSL writes it.
        login_from: see `describe`.
    """
    session.subject = distinguished_name(subject)
    session.issuer = distinguished_name(issuer)
    session.not_after = not_after
    if login_from == DISTINGUISHED_NAME:
        session.login = session.subject
    elif login_from == COMMON_NAME:
        session.login = _names(subject)


def distinguished_name(name: Name) -> str:
    """Return a name as RFC 4514 writes it: the most specific part first."""
    parts = (
        "+".join(f"{_SHORT_NAMES.get(kind, kind)}={_escape(value)}" for kind, value in relative)
        for relative in reversed(name)
    )
    return ",".join(parts)


def _names(name: Name) -> str:
    return ",".join(value for part in name for kind, value in part if kind == "commonName")


def _escape(value: str) -> str:
    text = "".join(f"\\{each}" if each in _ESCAPED else each for each in value)
    text = text.replace("\0", "\\00")
    if text.startswith((" ", "#")):
        text = f"\\{text}"
    if value.endswith(" ") and len(value) > 1:
        text = f"{text[:-1]}\\ "
    return text
