"""Identity of a caller: credentials, and client certificates."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import grpc
import pytest

from headrace_broker.config.tls import TlsSection
from headrace_broker.gateways.grpc.server.authentication import authenticate
from headrace_broker.gateways.grpc.server.errors import CallError
from headrace_broker.runtime.security.audit import ACTOR
from headrace_broker.runtime.security.tls import ServerTls


class Call:
    """The context of a call over TLS, after the handshake."""

    def __init__(self, *metadata: tuple[str, str], certificate: bytes = b"") -> None:
        self.metadata = metadata
        self.certificate = certificate

    def peer(self) -> str:
        return "ipv4:127.0.0.1:4711"

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self.metadata

    def auth_context(self) -> dict[str, list[bytes]]:
        found = {"ssl_tls_version": [b"TLSv1.3"]}
        return found | ({"x509_pem_cert": [self.certificate]} if self.certificate else {})


@pytest.fixture
def tls(certificates):
    def make(**more: Any) -> ServerTls:
        section: dict[str, Any] = {
            "certificate_file": str(certificates.server.certificate),
            "key_file": str(certificates.server.key),
            "ca_file": str(certificates.authority.file),
            "verify": "peer",
            "login_from": "common_name",
        }
        return ServerTls(TlsSection(**(section | more)))

    return make


def basic(text: str) -> tuple[str, str]:
    return "authorization", "Basic " + base64.b64encode(text.encode()).decode()


def log_in(broker: Any, call: Call, tls: ServerTls | None) -> Any:
    async def ask() -> Any:
        caller = await authenticate(broker, call, tls)  # type: ignore[arg-type]
        return caller, ACTOR.get()

    return asyncio.run(ask())


def refusal(broker: Any, call: Call, tls: ServerTls | None) -> CallError:
    with pytest.raises(CallError) as caught:
        log_in(broker, call, tls)
    assert caught.value.code is grpc.StatusCode.UNAUTHENTICATED
    return caught.value


def test_a_certificate_stands_for_its_user(broker, tls, certificates):
    pem = certificates.client.certificate.read_bytes()
    caller, actor = log_in(broker, Call(("x-request-id", "r-1"), certificate=pem), tls())
    assert (caller.user, caller.host, caller.port) == ("guest", "127.0.0.1", 4711)
    assert actor == ("guest", "127.0.0.1:4711", "grpc", "r-1")


def test_credentials_come_before_a_certificate(broker, tls, certificates):
    pem = certificates.client.certificate.read_bytes()
    refusal(broker, Call(basic("guest:wrong"), certificate=pem), tls())
    refusal(broker, Call(("authorization", "Basic !"), certificate=pem), tls())


def test_a_certificate_that_names_no_user_is_of_no_use(broker, tls, certificates):
    pem = certificates.client.certificate.read_bytes()
    nobody = certificates.authority.sign("/CN=nobody", "grpc-nobody").certificate.read_bytes()
    refusal(broker, Call(), tls())
    refusal(broker, Call(certificate=nobody), tls())
    refusal(broker, Call(certificate=pem), tls(login_from="none"))
    refusal(broker, Call(certificate=pem), None)


def test_a_revoked_certificate_is_refused_whatever_else_is_right(broker, tls, certificates):
    revoked = certificates.authority.sign("/CN=guest", "grpc-gone")
    lists = certificates.authority.revoke(revoked.certificate)
    call = Call(basic("guest:guest"), certificate=revoked.certificate.read_bytes())
    assert "it was revoked" in refusal(broker, call, tls(crl_file=str(lists))).text


def test_who_has_failed_too_often_is_told_when_to_come_back(broker, tls):
    broker.wait_s = 2.5
    error = refusal(broker, Call(basic("guest:guest")), None)
    assert (error.reason, error.retry_ms) == ("TOO_MANY_FAILURES", 2500)
