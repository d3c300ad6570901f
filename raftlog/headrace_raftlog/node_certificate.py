"""The names that a certificate allows a node to have.

Source: RFC 5280, sections 4.2.1.6 (alternative names) and 4.2.1.12 (extended key usage).
"""

from __future__ import annotations

from typing import Final

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

_BOTH: Final = frozenset([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])


def node_names(pem: bytes) -> list[str]:
    """Return the alternative names (DNS) of a certificate that a node may show.

    Raises ValueError: it cannot be read, has a name with characters that no name has, or is for
    servers or clients only: a node is both.
    """
    certificate = x509.load_pem_x509_certificate(pem)
    names: list[str] = []
    for extension in certificate.extensions:
        value = extension.value
        if isinstance(value, x509.ExtendedKeyUsage):
            usages = frozenset(value)
            if ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE not in usages and not usages >= _BOTH:
                raise ValueError(
                    "its extended key usage must have serverAuth and clientAuth, or be left out"
                )
        elif isinstance(value, x509.SubjectAlternativeName):
            names = value.get_values_for_type(x509.DNSName)
    for name in names:
        if not name.isascii() or not name.isprintable() or " " in name:
            raise ValueError(f"its alternative name {name!r} is no name of a host")
    return names
