"""A listening socket for TLS clients.

asyncio's own server neither tells why a handshake failed nor lets its certificates change.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from headrace_broker.model.limits import CLOSE_SECONDS_MAX, HANDSHAKE_SECONDS_MAX, LISTEN_BACKLOG
from headrace_broker.runtime.contract.receive_buffer import bound_receive_buffer
from headrace_broker.runtime.security.tls import ServerTls
from headrace_broker.runtime.security.unproven_log import unproven
from headrace_raftlog.accepting import accept
from headrace_raftlog.ending import end_tasks

ACCEPT_PAUSE_SECONDS: Final = 1.0  # after a failed accept: the process has no descriptors left

_LOG: Final = logging.getLogger("headrace.security")


class TlsServer:
    """Accepts sockets and hands them over to protocols after the handshake."""

    def __init__(
        self,
        tls: ServerTls,
        protocol: Callable[[], asyncio.BaseProtocol | None],
        failed: Callable[[asyncio.BaseProtocol], None],
    ) -> None:
        self._tls = tls  # what to show and ask for, looked at for each client
        self._protocol = protocol  # makes the protocol for a client, None to refuse it
        self._failed = failed  # told of a protocol whose client did not get through the handshake
        self._sockets: list[socket.socket] = []
        self._tasks: dict[asyncio.Task[None], None] = {}  # by socket and handshake, oldest first

    @property
    def handshakes(self) -> int:
        """Number of clients in their handshake."""
        return max(len(self._tasks) - len(self._sockets), 0)

    def drop_oldest(self) -> None:
        """Cut off the client that has been in its handshake for the longest."""
        if self.handshakes:
            oldest = next(itertools.islice(self._tasks, len(self._sockets), None))
            del self._tasks[oldest]
            oldest.cancel()

    async def start(self, host: str, port: int, is_shared: bool = False) -> int:
        """Begin to accept, with other processes if shared; returns the bound port.

        Raises OSError: nothing is left open.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        try:
            for family, _, _, _, address in dict.fromkeys(found):
                listening = socket.create_server(
                    (str(address[0]), int(address[1])),
                    family=family,
                    backlog=LISTEN_BACKLOG,
                    reuse_port=is_shared,
                )
                listening.setblocking(False)
                bound_receive_buffer(listening)
                self._sockets.append(listening)
        except OSError:
            await self.stop()
            raise
        for listening in self._sockets:
            self._start(self._accept(listening))
        return int(self._sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop accepting, and cut off running handshakes."""
        await end_tasks(self._tasks)
        for listening in self._sockets:
            listening.close()
        self._sockets.clear()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                client, address = await accept(listening)
            except ConnectionAbortedError:
                continue  # it has gone again
            except OSError as error:
                _LOG.error("accept failed: %s", error)
                await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
                continue
            protocol = self._protocol()
            if protocol is None:
                client.close()
            else:
                handshake = self._start(self._shake_hands(client, address, protocol))
                handshake.add_done_callback(partial(self._shaken, client, protocol))

    async def _shake_hands(
        self, client: socket.socket, address: Any, protocol: asyncio.BaseProtocol
    ) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                client,
                ssl=self._tls.context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS_MAX,
                ssl_shutdown_timeout=CLOSE_SECONDS_MAX,
            )
        except ssl.SSLError as error:
            _LOG.warning(
                "%s: TLS handshake failed: %s", address, _reason(error), extra=_of(address)
            )
            self._failed(protocol)
        except OSError as error:
            _LOG.info("%s: lost during the TLS handshake: %s", address, error, extra=_of(address))
            self._failed(protocol)

    def _shaken(
        self, client: socket.socket, protocol: asyncio.BaseProtocol, handshake: asyncio.Task[None]
    ) -> None:
        if handshake.cancelled():  # perhaps before it began
            self._failed(protocol)
            client.close()


def _of(address: Any) -> dict[str, str]:
    return unproven(str(address[0]) if isinstance(address, tuple) else "")


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    return str(error.reason or error)
