"""Sockets of the HTTP API, in the clear or over TLS."""

from __future__ import annotations

import asyncio

from aiohttp import web

from headrace_broker.management.http.connection import HttpConnection, HttpPlaces
from headrace_broker.model.limits import (
    HTTP_HANDSHAKES_MAX,
    HTTP_IDLE_SECONDS_MAX,
    LISTEN_BACKLOG,
)
from headrace_broker.runtime.security.tls import ServerTls
from headrace_broker.runtime.security.tls_server import TlsServer


class HttpListener:
    """A listening socket for HTTP clients.

    Args:
        server: answers them; other listeners may share it.
        tls: serve TLS so, None to serve in the clear.
        places: for connections; other listeners may share them.
        idle_s: seconds until a connection without a request is closed.
    """

    def __init__(
        self,
        server: web.Server,
        tls: ServerTls | None = None,
        places: HttpPlaces | None = None,
        idle_s: float = HTTP_IDLE_SECONDS_MAX,
    ) -> None:
        self._idle_s = idle_s
        self._http = server
        self._places = places or HttpPlaces()
        self._tls = TlsServer(tls, self._shaking, _forget) if tls is not None else None
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Begin to accept; returns the bound port.

        Raises:
            OSError: the address cannot be bound; nothing is left open.
        """
        if self._tls is not None:
            return await self._tls.start(host, port)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._speak, host, port, backlog=LISTEN_BACKLOG)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop accepting; accepted connections belong to the server."""
        if self._tls is not None:
            await self._tls.stop()
        if self._server is not None:
            self._server.close()
            self._server = None

    def _speak(self) -> HttpConnection:
        return HttpConnection(self._http, self._idle_s, self._places)

    def _shaking(self) -> HttpConnection:
        """Return what speaks with a client after its handshake, for which it has a place."""
        assert self._tls is not None, "it asks"
        if self._tls.handshakes >= HTTP_HANDSHAKES_MAX:
            self._tls.drop_oldest()
        return self._speak()


def _forget(protocol: asyncio.BaseProtocol) -> None:
    """Do nothing: of a client that did not get through its handshake nothing is kept."""
    del protocol
