"""The API over TLS, and how long and how many clients are waited for."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from headrace_broker.config_tls import TlsSection
from headrace_broker.management.listener import HttpListener
from headrace_broker.runtime.tls import ServerTls


async def answer(request: web.Request) -> web.Response:
    return web.Response(text=request.path)


def serve(
    body: Callable[[int], Awaitable[None]],
    tls: Any = None,
    connections_max: int = 100,
    idle_s: float = 20,
) -> None:
    async def main() -> None:
        app = web.Application()
        app.router.add_get("/{path}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        assert runner.server is not None
        listener = HttpListener(runner.server, tls, connections_max, idle_s)
        port = await listener.start("127.0.0.1", 0)
        try:
            async with asyncio.timeout(30):
                await body(port)
        finally:
            await listener.stop()
            await runner.cleanup()

    asyncio.run(main())


@pytest.fixture
def tls(certificates, tmp_path) -> ServerTls:
    for name in ("server.pem", "server.key"):
        shutil.copy(certificates.directory / name, tmp_path / name)
    shutil.copy(certificates.authority.file, tmp_path / "ca.pem")
    return ServerTls(
        TlsSection(
            certificate_file=str(tmp_path / "server.pem"),
            key_file=str(tmp_path / "server.key"),
            ca_file=str(tmp_path / "ca.pem"),
            verify="peer",
            fail_if_no_peer_cert=True,
        )
    )


async def get(port: int, certificates, pair=None) -> str:
    context = ssl.create_default_context(cafile=str(certificates.authority.file))
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"https://localhost:{port}/x", ssl=context) as found,
    ):
        return await found.text()


def test_the_api_is_served_over_tls_to_clients_with_a_right_certificate(tls, certificates):
    expired = certificates.authority.sign("/CN=guest", "http-expired", days=-1)
    stranger = certificates.stranger.sign("/CN=guest", "http-stranger")

    async def body(port: int) -> None:
        assert await get(port, certificates, certificates.client) == "/x"
        for pair in (None, expired, stranger):
            with pytest.raises(aiohttp.ClientError):
                await get(port, certificates, pair)

    serve(body, tls)


def test_a_renewal_counts_for_the_next_connection(tls, certificates, tmp_path):
    stranger = certificates.stranger.sign("/CN=guest", "http-newcomer")

    async def body(port: int) -> None:
        assert await get(port, certificates, certificates.client) == "/x"
        shutil.copy(certificates.stranger.file, tmp_path / "ca.pem")
        tls.renew()
        assert await get(port, certificates, stranger) == "/x"
        with pytest.raises(aiohttp.ClientError):
            await get(port, certificates, certificates.client)

    serve(body, tls)


@pytest.mark.parametrize("said", [b"", b"GET /x HTTP/1.1\r\nHost:"])
def test_who_sends_no_whole_request_is_cut_off(said):
    async def body(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        assert await reader.read() == b""
        writer.close()

    serve(body, idle_s=0.05)


@pytest.mark.parametrize("secure", [False, True])
def test_clients_beyond_the_limit_are_closed_and_handshakes_count(tls, secure):
    async def body(port: int) -> None:
        address = ("127.0.0.1", port)
        first = await asyncio.to_thread(socket.create_connection, address, 20)
        with first:
            second = await asyncio.to_thread(socket.create_connection, address, 20)
            with second:
                assert await asyncio.to_thread(second.recv, 1) == b""

    serve(body, tls if secure else None, 1)
