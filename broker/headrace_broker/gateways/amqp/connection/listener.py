"""Accepts AMQP 0-9-1 clients."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Coroutine, Iterator
from typing import Any, Final

from headrace_broker.gateways.amqp.connection.pace import Pace
from headrace_broker.gateways.amqp.connection.protocol import AmqpProtocol
from headrace_broker.model.limits import CLOSE_SECONDS_MAX, CONNECTIONS_MAX, LISTEN_BACKLOG
from headrace_broker.runtime.broker_port import Broker
from headrace_broker.runtime.clients.client_counts import BY_NODE
from headrace_broker.runtime.contract.receive_buffer import bound_receive_buffer
from headrace_broker.runtime.security.tls import ServerTls
from headrace_broker.runtime.security.tls_server import TlsServer
from headrace_broker.runtime.security.unproven_log import unproven

SHUTTING_DOWN: Final = "the broker is shutting down"

_LOG: Final = logging.getLogger("headrace.connection")


class AmqpListener:
    """A listening socket and the connections that came through it."""

    def __init__(
        self,
        broker: Broker,
        host: str,
        port: int,
        tls: ServerTls | None = None,  # serve TLS so
        connections_max: int = CONNECTIONS_MAX,
        # make connection ids; listeners of one node share them
        numbers: Iterator[int] | None = None,
        is_shared: bool = False,  # the node's other processes accept there too: SO_REUSEPORT
    ) -> None:
        self.port = port  # 0 for any free one; the bound one, once started
        self._broker = broker  # the node that serves them
        self._host = host  # address to bind
        self._tls = TlsServer(tls, self._admit, self._failed) if tls is not None else None
        self._is_shared = is_shared
        self._describe = tls.describe if tls is not None else None
        # further clients are refused by closing their socket
        self._connections_max = connections_max
        self._pace: Pace | None = None
        self._server: asyncio.Server | None = None
        self._protocols: set[AmqpProtocol] = set()
        self._numbers = numbers if numbers is not None else itertools.count(1)
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._supervisor: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    async def start(self) -> None:
        """Begin to accept.

        Raises:
            OSError: the address cannot be bound.
        """
        ready = asyncio.Event()
        self._supervisor = asyncio.create_task(self._supervise(ready), name="amqp listener")
        await ready.wait()
        loop = asyncio.get_running_loop()
        self._pace = Pace(loop.call_soon)
        try:
            if self._tls is not None:
                self.port = await self._tls.start(self._host, self.port, self._is_shared)
                return
            self._server = await loop.create_server(
                self._accept,
                self._host,
                self.port,
                backlog=LISTEN_BACKLOG,
                reuse_port=self._is_shared,
                start_serving=False,
            )
            for listening in self._server.sockets:
                bound_receive_buffer(listening)
            await self._server.start_serving()
        except OSError:
            await self.stop()
            raise
        self.port = self._server.sockets[0].getsockname()[1]

    async def suspend(self) -> None:
        """Stop accepting; the clients that are there stay."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._tls is not None:
            await self._tls.stop()

    async def stop(self, reason: str = SHUTTING_DOWN) -> None:
        """Stop accepting, ask clients to go, wait a moment, and cut off who stays.

        Args:
            reason: for the clients.
        """
        await self.suspend()
        for protocol in list(self._protocols):
            if protocol.connection is None:
                protocol.abort()
            else:
                protocol.connection.shut_down(reason)
        try:
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await self._empty.wait()
        except TimeoutError:
            for protocol in list(self._protocols):
                protocol.abort()
            await self._empty.wait()
        self._stopping.set()
        if self._supervisor is not None:
            await self._supervisor
            self._supervisor = None

    async def _supervise(self, ready: asyncio.Event) -> None:
        """Own the tasks of all connections' operations; at the stop they get a moment to end."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            ready.set()
            await self._stopping.wait()
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS_MAX)
            self._group = None
            for task in self._tasks:
                task.cancel()

    def _accept(self) -> asyncio.BaseProtocol:
        return self._admit() or _Refusal()

    def _admit(self) -> AmqpProtocol | None:
        if len(self._protocols) >= self._connections_max:
            _LOG.warning(
                "connection refused: there are %d", len(self._protocols), extra=unproven("")
            )
            self._broker.client_counts.refused_connections[BY_NODE] += 1
            return None
        assert self._pace is not None, "nobody is accepted before the start"
        connection_id = f"{self._broker.node_name}/{self._broker.boot}/{next(self._numbers)}"
        protocol = AmqpProtocol(
            self._broker, connection_id, self._start, self._closed, self._pace, self._describe
        )
        self._protocols.add(protocol)
        self._empty.clear()
        return protocol

    def _failed(self, protocol: asyncio.BaseProtocol) -> None:
        """Forget a client that did not get through its TLS handshake."""
        if isinstance(protocol, AmqpProtocol) and protocol.connection is None:
            self._closed(protocol)

    def _start(self, operation: Coroutine[Any, Any, None]) -> None:
        if self._group is None:
            operation.close()
            return
        task = self._group.create_task(operation)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _closed(self, protocol: AmqpProtocol) -> None:
        self._protocols.discard(protocol)
        if not self._protocols:
            self._empty.set()


class _Refusal(asyncio.Protocol):
    """Closes the socket at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
