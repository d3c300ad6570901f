"""The names that a certificate allows a node to have."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headrace_raftlog.model.tls import NodeCertificate
from headrace_raftlog.transport.identity import StreamRefusedError
from headrace_raftlog.transport.security import MutualTls


@pytest.mark.parametrize(
    ("names", "usage", "refused"),
    [
        (["n3\0.evil"], (), "is no name of a host"),
        (["n3", "x\x1b.evil"], (), "is no name of a host"),
        (["n3"], (ExtendedKeyUsageOID.CLIENT_AUTH,), "serverAuth and clientAuth"),
        (["n3"], (ExtendedKeyUsageOID.SERVER_AUTH,), "serverAuth and clientAuth"),
        (["n4"], (), "names 'n4'"),
        ([], (), "names nobody"),
        (["N3"], (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH), ""),
        (["n3"], (ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,), ""),
    ],
)
def test_a_certificate_is_judged_by_all_that_it_says(identity_of, names, usage, refused):
    class Call:
        """Call as gRPC presents it: names end at a NUL."""

        def auth_context(self) -> dict[str, list[bytes]]:
            cut = [name.partition("\0")[0].encode() for name in names]
            return {"peer_dns": cut, "x509_pem_cert": [certificate(names, usage)]}

    call: Any = Call()
    own = NodeCertificate(b"", b"", b"")
    security = MutualTls(lambda: own, lambda node: f"n{node}")
    if refused:
        with pytest.raises(StreamRefusedError, match=refused):
            security.check(call, identity_of(3))
    else:
        security.check(call, identity_of(3))


def certificate(names: list[str], usage: tuple[x509.ObjectIdentifier, ...]) -> bytes:
    """Return a certificate (PEM) with any names; nobody looks here who has signed it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "n3")])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
    )
    if names:
        found = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
        builder = builder.add_extension(found, critical=False)
    if usage:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
