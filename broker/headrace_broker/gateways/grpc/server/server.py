"""The gRPC listener for clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import grpc
from grpc_reflection.v1alpha import reflection

from headrace_broker.gateways.grpc.server.call import Admission, Naming
from headrace_broker.gateways.grpc.server.health import HealthService
from headrace_broker.gateways.grpc.server.request_gate import RequestGate
from headrace_broker.gateways.grpc.server.request_room import RequestRoom
from headrace_broker.model.limits import (
    GRPC_CALLS_PER_CONNECTION,
    GRPC_CONNECTIONS_MAX,
    GRPC_HANDSHAKE_MS,
    GRPC_IDLE_MS,
    GRPC_LOOKAHEAD_BYTES,
    GRPC_METADATA_BYTES_MAX,
    GRPC_OVERHEAD_BYTES,
)
from headrace_broker.runtime.calls.gate import CallGate
from headrace_broker.runtime.security.tls import ServerTls
from headrace_raftlog.accepting import listening_problem

SHUTTING_DOWN: Final = "the broker is shutting down"
STOP_S_MAX: Final = 2.0  # seconds that calls get at stop
KEEPALIVE_MS: Final = 30_000  # milliseconds between probes of a connection on which nothing moves
KEEPALIVE_TIMEOUT_MS: Final = 20_000  # milliseconds without an answer after which it is gone


class Service(Protocol):
    """One service of the listener; health and reflection come by themselves."""

    name: str  # its full name, as `headrace.broker.v1.Messaging`

    def add_to(self, server: grpc.aio.Server) -> None:
        """Register with a server."""

    async def stop(self, reason: str) -> None:
        """End what calls do by themselves, and say why; they are cut off soon after."""


class GrpcServer:
    """Serves clients of one node."""

    def __init__(
        self,
        services: Sequence[Service],  # what is served
        # returns why clients should not be sent here now, "" when they may
        not_ready_reason: Callable[[], str],
        message_bytes_max: int,  # bytes of the largest body of a message
        admission: Admission,
        connections_max: int = GRPC_CONNECTIONS_MAX,  # of each listener
        calls: CallGate | None = None,
        is_shared: bool = False,  # other processes of the node accept at the addresses too
    ) -> None:
        self._admission = admission  # lets calls in
        self._turns = calls or CallGate()  # has calls take turns on the loop
        self._room = RequestRoom(message_bytes_max + GRPC_OVERHEAD_BYTES)
        self._services = tuple(services)
        self._health = HealthService(not_ready_reason, [service.name for service in services])
        self._is_shared = is_shared
        bytes_max = message_bytes_max + GRPC_OVERHEAD_BYTES
        self._options = server_options(bytes_max, connections_max, is_shared)
        self._server: grpc.aio.Server | None = None
        self._listeners: tuple[tuple[str, ServerTls | None], ...] = ()

    async def start(self, *listeners: tuple[str, ServerTls | None]) -> list[int]:
        """Listen, and return the ports (those asked for, or free ones where that was 0).

        Args:
            listeners: each HOST:PORT, an IPv6 host in brackets, and what TLS is served with there,
                None to serve in the clear.

        Raises:
            OSError: an address cannot be bound; nothing is left running.
        """
        open_services = frozenset({self._health.name, reflection.SERVICE_NAME})
        gate = RequestGate(self._admission, open_services, self._turns, self._room)
        interceptors = (gate, Naming())
        server = grpc.aio.server(interceptors=interceptors, options=self._options)
        for service in self._services:
            service.add_to(server)
        self._health.add_to(server)
        names = [service.name for service in self._services]
        reflection.enable_server_reflection(
            [*names, self._health.name, reflection.SERVICE_NAME], server
        )
        ports = [_add_port(server, address, tls) for address, tls in listeners]
        await server.start()
        self._server = server
        hosts = [address.rpartition(":")[0] for address, _ in listeners]
        places = [f"{host}:{port}" for host, port in zip(hosts, ports, strict=True)]
        self._listeners = tuple(zip(places, [tls for _, tls in listeners], strict=True))
        return ports

    def hold(self, *listeners: tuple[str, ServerTls | None]) -> None:
        """Note where to listen from `resume` on."""
        self._listeners = listeners

    async def resume(self) -> tuple[tuple[str, ServerTls | None], ...]:
        """Listen again, unless it does; return where that began now, as `start` was told.

        Raises:
            OSError: an address cannot be bound.
        """
        if self._server is not None:
            return ()
        await self.start(*self._listeners)
        return self._listeners

    async def dismiss(self, reason: str) -> None:
        """End all clients' connections and listen anew: one address may find another node.

        Connections that stay would bring the same clients back, whatever their streams are told.
        Where other processes of the node listen too, this one does no more until `resume`.

        Raises:
            OSError: somebody else has taken an address.
        """
        listeners = self._listeners
        await self.stop(reason)
        if not self._is_shared:
            await self.start(*listeners)

    async def stop(self, reason: str = SHUTTING_DOWN) -> None:
        """Stop listening; a server that was not started is left alone."""
        if self._server is None:
            return
        for service in self._services:
            await service.stop(reason)
        await self._server.stop(STOP_S_MAX)
        self._server = None


def _add_port(server: grpc.aio.Server, address: str, tls: ServerTls | None) -> int:
    try:
        if tls is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, tls.grpc_credentials())
    except RuntimeError as error:
        why = listening_problem(address) or str(error)
        raise OSError(f"gRPC cannot listen on {address}: {why}") from error


def server_options(
    receive_bytes_max: int, connections_max: int = GRPC_CONNECTIONS_MAX, is_shared: bool = False
) -> list[tuple[str, int]]:
    """Return the options of a server that takes messages up to a size, and so many connections."""
    return [
        ("grpc.max_receive_message_length", receive_bytes_max),
        ("grpc.max_send_message_length", -1),  # answers are bounded where they are made
        ("grpc.max_concurrent_streams", GRPC_CALLS_PER_CONNECTION),
        ("grpc.max_allowed_incoming_connections", connections_max),
        ("grpc.server_handshake_timeout_ms", GRPC_HANDSHAKE_MS),
        ("grpc.max_connection_idle_ms", GRPC_IDLE_MS),
        ("grpc.max_metadata_size", GRPC_METADATA_BYTES_MAX),
        ("grpc.absolute_max_metadata_size", GRPC_METADATA_BYTES_MAX),
        # A stream that is not read takes this much and no more: left to itself, gRPC makes the
        # window larger as the connection gets faster.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", GRPC_LOOKAHEAD_BYTES),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 6),
        # Two processes on one port each get half of the connections: right for those of one node.
        ("grpc.so_reuseport", int(is_shared)),
    ]
