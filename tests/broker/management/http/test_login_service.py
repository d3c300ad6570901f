"""Identity of a request: credentials, and client certificates."""

from __future__ import annotations

import asyncio
import base64
import ssl
from typing import Any

import aiohttp
import pytest

from headrace_broker.config.tls import TlsSection
from headrace_broker.management.server import ManagementServer
from headrace_broker.runtime.security.tls import ServerTls


@pytest.fixture
def ask(node, certificates):
    """Asks /api/whoami over TLS; returns status and body."""

    async def talk(pair: Any, headers: dict[str, str], more: dict[str, Any]) -> tuple[int, Any]:
        section: dict[str, Any] = {
            "certificate_file": str(certificates.server.certificate),
            "key_file": str(certificates.server.key),
            "ca_file": str(certificates.authority.file),
            "verify": "peer",
            "login_from": "common_name",
        }
        context = ssl.create_default_context(cafile=str(certificates.authority.file))
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        server = ManagementServer(node, node)
        port = await server.start("127.0.0.1", 0, ServerTls(TlsSection(**(section | more))))
        try:
            async with (
                aiohttp.ClientSession(headers=headers) as session,
                session.get(f"https://localhost:{port}/api/whoami", ssl=context) as answer,
            ):
                return answer.status, await answer.json()
        finally:
            await server.stop()

    return lambda pair=None, headers=None, **more: asyncio.run(talk(pair, headers or {}, more))


def test_a_certificate_stands_for_its_user(ask, certificates):
    status, body = ask(certificates.client)
    assert (status, body["name"]) == (200, "guest")


def test_credentials_come_before_a_certificate(ask, certificates):
    wrong = {"Authorization": "Basic " + base64.b64encode(b"guest:wrong").decode()}
    assert ask(certificates.client, wrong)[0] == 401


def test_without_a_certificate_that_names_a_user_nobody_asks(ask, certificates):
    assert ask()[0] == 401
    assert ask(certificates.authority.sign("/CN=nobody", "http-nobody"))[0] == 401
    assert ask(certificates.client, login_from="none")[0] == 401
