"""Names in certificates as text."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from headrace_broker.runtime.security.certificate import describe, distinguished_name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ((), ""),
        (((("commonName", "guest"),),), "CN=guest"),
        (
            ((("countryName", "DE"),), (("organizationName", "Mill"),), (("commonName", "a"),)),
            "CN=a,O=Mill,C=DE",
        ),
        (((("commonName", "a"), ("userId", "7")),), "CN=a+UID=7"),
        (((("organizationName", 'a,b+c"d\\e<f>;'),),), 'O=a\\,b\\+c\\"d\\\\e\\<f\\>\\;'),
        (((("commonName", " x "),),), "CN=\\ x\\ "),
        (((("commonName", " "),),), "CN=\\ "),
        (((("commonName", "#1"),),), "CN=\\#1"),
        (((("commonName", "a\0b"),),), "CN=a\\00b"),
        (((("emailAddress", "a@b"),),), "emailAddress=a@b"),
    ],
)
def test_a_name_is_written_as_rfc_4514_says(name, text):
    assert distinguished_name(name) == text


class Handshake(ssl.SSLObject):
    """Result of a handshake."""

    certificate: Any

    def __new__(cls, certificate):
        self = object.__new__(cls)
        self.certificate = certificate
        return self

    def __init__(self, certificate):  # SSLObject's says that it has no constructor
        pass

    def version(self):
        return "TLSv1.3"

    def cipher(self):
        return ("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256)

    def getpeercert(self, binary_form=False):
        return self.certificate


SUBJECT = ((("organizationName", "Mill"),), (("commonName", "a"),))


@pytest.mark.parametrize(
    ("subject", "login_from", "login"),
    [
        (SUBJECT, "none", ""),
        (SUBJECT, "common_name", "a"),
        (SUBJECT, "distinguished_name", "CN=a,O=Mill"),
        (((("commonName", "a"),), (("commonName", "b"),)), "common_name", "a,b"),
        (((("organizationName", "Mill"),),), "common_name", ""),
    ],
)
def test_a_verified_certificate_stands_for_a_user(subject, login_from, login):
    certificate = {"subject": subject, "issuer": SUBJECT, "notAfter": "Dec  1 2030 GMT"}
    session = describe(Handshake(certificate), login_from)
    assert (session.login, session.external) == (login, login_from != "none")
    assert (session.version, session.cipher) == ("TLSv1.3", "TLS_AES_256_GCM_SHA384")
    assert (session.issuer, session.not_after) == ("CN=a,O=Mill", "Dec  1 2030 GMT")


@pytest.mark.parametrize("certificate", [None, {}], ids=["none shown", "not verified"])
def test_without_a_verified_certificate_there_is_no_user(certificate):
    session = describe(Handshake(certificate), "distinguished_name")
    assert (session.login, session.subject) == ("", "")
