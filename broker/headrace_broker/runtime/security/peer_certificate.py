"""Certificates that gRPC has verified: whom they name, and whether they were revoked.

What `ssl` does for the other listeners gRPC leaves to its callers.

Source: RFC 5280, sections 4 (certificates) and 5 (revocation lists).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Final

from cryptography import x509

from headrace_broker.runtime.security.certificate import CertificateRefusedError, Name

# As OpenSSL calls them; others are called by their numbers, by OpenSSL too.
REVOKED: Final = "it was revoked"
_LONG_NAMES: Final = {
    "0.9.2342.19200300.100.1.1": "userId",
    "0.9.2342.19200300.100.1.25": "domainComponent",
    "1.2.840.113549.1.9.1": "emailAddress",
    "2.5.4.10": "organizationName",
    "2.5.4.11": "organizationalUnitName",
    "2.5.4.12": "title",
    "2.5.4.3": "commonName",
    "2.5.4.4": "surname",
    "2.5.4.42": "givenName",
    "2.5.4.5": "serialNumber",
    "2.5.4.6": "countryName",
    "2.5.4.7": "localityName",
    "2.5.4.8": "stateOrProvinceName",
    "2.5.4.9": "streetAddress",
}


class PeerCertificate:
    """Names in a verified certificate; CertificateRefusedError where it cannot be read."""

    def __init__(self, pem: bytes) -> None:
        try:
            self._certificate = x509.load_pem_x509_certificate(pem)
            self.subject = _name(self._certificate.subject)
            self.issuer = _name(self._certificate.issuer)
        except ValueError as error:
            raise CertificateRefusedError(f"it cannot be read: {error}") from error
        # when it ends, as OpenSSL writes it
        self.not_after = self._certificate.not_valid_after_utc.strftime("%b %e %H:%M:%S %Y GMT")

    def check(self, lists: RevocationLists) -> None:
        """Refuse, by CertificateRefusedError, what was revoked or may have been."""
        lists.check(self._certificate)


class RevocationLists:
    """The revocation lists in a file, each by its issuer; ValueError for anything else."""

    def __init__(
        self,
        pem: bytes,  # the file's bytes; the file is believed, whoever signed its lists
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self._now = now  # the time of day
        end = b"-----END X509 CRL-----"
        pieces = [piece + end for piece in pem.split(end)[:-1]]
        lists = [x509.load_pem_x509_crl(piece) for piece in pieces]
        if not lists:
            raise ValueError("no revocation list")
        self._lists = {each.issuer: each for each in lists}

    def check(self, certificate: x509.Certificate) -> None:
        """Refuse a certificate; see `PeerCertificate.check`."""
        found = self._lists.get(certificate.issuer)
        if found is None:
            raise CertificateRefusedError("there is no revocation list of its issuer")
        if found.next_update_utc is not None and found.next_update_utc < self._now():
            raise CertificateRefusedError("the revocation list of its issuer has expired")
        if found.get_revoked_certificate_by_serial_number(certificate.serial_number) is not None:
            raise CertificateRefusedError(REVOKED)


def _name(name: x509.Name) -> Name:
    return tuple(
        tuple(
            (_LONG_NAMES.get(each.oid.dotted_string, each.oid.dotted_string), str(each.value))
            for each in relative
        )
        for relative in name.rdns
    )
