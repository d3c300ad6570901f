"""Sockets of the HTTP API, in the clear or over TLS."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from aiohttp import web

from headrace_broker.management.connection import HttpConnection
from headrace_broker.model.limits import (
    HTTP_CONNECTIONS_MAX,
    HTTP_IDLE_SECONDS_MAX,
    LISTEN_BACKLOG,
)
from headrace_broker.runtime.tls import ServerTls
from headrace_broker.runtime.tls_server import TlsServer
from headrace_broker.runtime.unproven_log import unproven

_LOG: Final = logging.getLogger(__name__)


class HttpListener:
    """A listening socket whose clients speak HTTP.

    Args:
        server: answers them; other listeners may share it.
        tls: serve TLS so, None to serve in the clear.
        connections_max: further clients are refused by closing their socket.
        idle_s: seconds until a connection without a request is closed.
    """

    def __init__(
        self,
        server: web.Server,
        tls: ServerTls | None = None,
        connections_max: int = HTTP_CONNECTIONS_MAX,
        idle_s: float = HTTP_IDLE_SECONDS_MAX,
    ) -> None:
        self._idle_s = idle_s
        self._http = server
        self._connections_max = connections_max
        self._tls = TlsServer(tls, self._admit, _forget) if tls is not None else None
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Begin to accept; returns the bound port.

        Raises:
            OSError: the address cannot be bound; nothing is left open.
        """
        if self._tls is not None:
            return await self._tls.start(host, port)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, host, port, backlog=LISTEN_BACKLOG)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop accepting; who was accepted is the server's business."""
        if self._tls is not None:
            await self._tls.stop()
        if self._server is not None:
            self._server.close()
            self._server = None

    def _accept(self) -> asyncio.BaseProtocol:
        return self._admit() or _Refusal()

    def _admit(self) -> asyncio.BaseProtocol | None:
        count = len(self._http.connections)
        if self._tls is not None:
            count += self._tls.handshakes
        if count >= self._connections_max:
            _LOG.warning("HTTP connection refused: there are %d", count, extra=unproven(""))
            return None
        return HttpConnection(self._http, self._idle_s)


class _Refusal(asyncio.Protocol):
    """Closes the socket at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _forget(protocol: asyncio.BaseProtocol) -> None:
    """Do nothing: of a client that did not get through its handshake nothing is kept."""
    del protocol
