"""The API over TLS, and how long and how many clients are waited for."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from headrace_broker.config.tls import TlsSection
from headrace_broker.management.http import listener
from headrace_broker.management.http.connection import HttpPlaces
from headrace_broker.management.http.listener import HttpListener
from headrace_broker.runtime.security.tls import ServerTls


async def answer(request: web.Request) -> web.Response:
    return web.Response(text=request.path)


async def wait(request: web.Request) -> web.StreamResponse:
    """Begin to answer, and go on once the request's body is there."""
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"waits")
    await request.read()
    return response


def serve(
    body: Callable[[int], Awaitable[None]],
    tls: Any = None,
    places: HttpPlaces | None = None,
    idle_s: float = 20,
) -> None:
    async def main() -> None:
        app = web.Application()
        app.router.add_post("/wait", wait)
        app.router.add_get("/{path}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        assert runner.server is not None
        served = HttpListener(runner.server, tls, places, idle_s)
        port = await served.start("127.0.0.1", 0)
        try:
            async with asyncio.timeout(30):
                await body(port)
        finally:
            await served.stop()
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


class Client:
    """A connection, of which bytes are read until its end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @staticmethod
    async def connect(port: int, address: str = "127.0.0.1") -> Client:
        """Connect from an address of loopback."""
        where = (address, 0)
        return Client(*await asyncio.open_connection("127.0.0.1", port, local_addr=where))

    async def ask(self, path: str = "/x") -> bytes:
        """Send a request and return the first line of its answer."""
        self.writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return await self.reader.readline()

    async def is_closed(self) -> bool:
        """Read to the end, which has to come."""
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.writer.close()


def test_a_connection_without_a_request_gives_way_to_others():
    async def body(port: int) -> None:
        held = []
        for address in ("127.0.0.2", "127.0.0.3", "127.0.0.3"):
            held.append(await Client.connect(port, address))
            held[-1].writer.write(b"GET /x HTTP/1.1\r\n")  # and no more
            await asyncio.sleep(0)
        probe = await Client.connect(port)
        assert await probe.ask() == b"HTTP/1.1 200 OK\r\n"
        assert await held[1].is_closed()
        for each in (held[0], held[2]):
            each.writer.write(b"Host: x\r\n\r\n")
            assert await each.reader.readline() == b"HTTP/1.1 200 OK\r\n"
        for each in (*held, probe):
            each.close()

    serve(body, places=HttpPlaces(3, 2))


def test_an_address_that_has_its_part_loses_its_own_connections():
    async def body(port: int) -> None:
        other = await Client.connect(port, "127.0.0.2")
        held = [await Client.connect(port) for _ in range(3)]
        assert await held[2].ask() == b"HTTP/1.1 200 OK\r\n"
        assert await held[0].is_closed()
        assert await other.ask() == b"HTTP/1.1 200 OK\r\n"
        for each in (other, *held):
            each.close()

    serve(body, places=HttpPlaces(100, 2))


def test_a_request_under_way_keeps_its_connection():
    async def body(port: int) -> None:
        busy = await Client.connect(port)
        busy.writer.write(b"POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n")
        assert await busy.reader.readline() == b"HTTP/1.1 200 OK\r\n"
        late = await Client.connect(port)
        assert await late.is_closed()
        idle = await Client.connect(port, "127.0.0.2")
        assert await idle.ask() == b"HTTP/1.1 200 OK\r\n"
        probe = await Client.connect(port, "127.0.0.3")
        assert await probe.ask() == b"HTTP/1.1 200 OK\r\n"
        busy.writer.write(b"x")
        assert (await busy.reader.readuntil(b"0\r\n\r\n")).endswith(b"waits\r\n0\r\n\r\n")
        for each in (busy, late, idle, probe):
            each.close()

    serve(body, places=HttpPlaces(2, 1))


def test_a_handshake_that_takes_long_gives_way_to_others(tls, certificates, monkeypatch):
    monkeypatch.setattr(listener, "HTTP_HANDSHAKES_MAX", 2)

    async def body(port: int) -> None:
        held = [await Client.connect(port) for _ in range(3)]
        assert await get(port, certificates, certificates.client) == "/x"
        assert await held[0].is_closed()
        for each in held:
            each.close()

    serve(body, tls)
