"""The client connections of the cluster: their owners, their channels, and closing them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from headrace_broker.catalog.event import Event, VhostRemoved
from headrace_broker.model.limits import LISTING_ROWS_MAX
from headrace_broker.model.status import ChannelStatus, ConnectionStatus, TlsStatus
from headrace_broker.runtime.clients.flow_state import activity_status, state_name
from headrace_broker.runtime.contract.json_value import json_table
from headrace_broker.runtime.contract.port import ConnectionInfo
from headrace_broker.runtime.rpc.correlator import Rpc
from headrace_broker.runtime.rpc.listing import Asked, ask_everywhere, serve_rows
from headrace_broker.runtime.rpc.protocol import RpcError
from headrace_broker.runtime.rpc.question import Close, List

DEFAULT_REASON: Final = "Closed via management API"


def _no_rates(connection: str, channel: int) -> tuple[float, ...]:
    return ()


def _now_us() -> int:
    return time.monotonic_ns() // 1000


class ClientRow(msgspec.Struct, frozen=True):
    """A connection, or one of its channels."""

    connection: ConnectionStatus  # without its client's properties where channels are listed
    channel: ChannelStatus | None = None  # None where connections are listed


class ClientListing(msgspec.Struct, frozen=True):
    """Rows of all nodes that answered."""

    rows: list[ClientRow]
    missing: tuple[str, ...] = ()  # names of the nodes that did not
    left_out: int = 0  # rows at least that are not in the list: too many, or too large ones


class ClientList:
    """Lists and closes connections on all nodes."""

    def __init__(
        self,
        node_name: str,
        connections: Callable[[], dict[str, ConnectionInfo]],
        peers: dict[int, str],
        rpc: Rpc,
        clock_us: Callable[[], int] = _now_us,
    ) -> None:
        # what is added per second at a connection and, unless that is 0, a channel of it
        self.rates: Callable[[str, int], tuple[float, ...]] = _no_rates
        self._clock_us = clock_us  # the clock of activities
        self._node_name = node_name  # of this node
        self._connections = connections  # its open connections by id
        self._peers = peers  # name by id of the other nodes; they may change
        self._rpc = rpc  # asks them
        serve_rows(rpc, List, self._rows)
        rpc.serve(Close, lambda _, question: self._close(question))

    async def everyone(
        self, channels: bool = False, rows_max: int = LISTING_ROWS_MAX
    ) -> ClientListing:
        """Return the connections of the cluster, or its channels with their consumers."""
        question = List(channels)
        asked = Asked(question, ClientRow, rows_max + 1)
        found = await ask_everywhere(self._rpc, self._peers, asked, self._rows(question))
        left_out = found.left_out + max(len(found.rows) - rows_max, 0)
        return ClientListing(found.rows[:rows_max], found.missing, left_out)

    async def close(self, name: str, reason: str) -> tuple[int, tuple[str, ...]]:
        """Close connections by name or id; return how many, and nodes that did not answer."""
        question = Close(name, reason or DEFAULT_REASON)
        count = self._close(question)
        peers = dict(self._peers)
        asked = [self._closed(peer, question) for peer in peers]
        missing: list[str] = []
        for peer, closed in zip(peers.values(), await asyncio.gather(*asked), strict=True):
            if closed is None:
                missing.append(peer)
            else:
                count += closed
        return count, tuple(missing)

    async def _closed(self, peer: int, question: Close) -> int | None:
        try:
            return await self._rpc.ask(peer, question)
        except RpcError:
            return None

    def on_events(self, events: list[Event]) -> None:
        """Close connections here whose vhost is gone; `PermissionWatches` does it for users."""
        gone = {event.vhost.name for event in events if isinstance(event, VhostRemoved)}
        if not gone:
            return
        for info in list(self._connections().values()):
            if info.vhost in gone and info.control is not None:
                info.control.shut_down(f"vhost '{info.vhost}' was deleted")

    # This node's

    def _rows(self, question: List) -> Iterator[ClientRow]:
        for info in list(self._connections().values()):
            if not question.channels:
                yield ClientRow(self._status(info, json_table(info.client_properties)))
            elif info.control is not None:
                status = self._status(info, {})
                counts = {number: each.counts() for number, each in info.control.traffic()}
                for channel in info.control.channels(self._clock_us()):
                    yield ClientRow(status, self._counted(info, channel, counts))

    def _counted(
        self, info: ConnectionInfo, channel: ChannelStatus, counts: dict[int, tuple[int, ...]]
    ) -> ChannelStatus:
        return msgspec.structs.replace(
            channel,
            counts=counts.get(channel.number, ()),
            rates=self.rates(info.id, channel.number),
        )

    def _status(self, info: ConnectionInfo, properties: dict[str, Any]) -> ConnectionStatus:
        tls = info.tls
        now = self._clock_us()
        return ConnectionStatus(
            node=self._node_name,
            id=info.id,
            name=info.name,
            user=info.user,
            vhost=info.vhost,
            mechanism=info.mechanism,
            connected_at_ms=info.connected_at_ms,
            state=state_name(info.state, info.flow, now),
            channel_max=info.channel_max,
            frame_max=info.frame_max,
            heartbeat_s=info.heartbeat_s,
            channels=info.channels,
            client_properties=properties,
            flow=activity_status(info.flow, now),
            buffered_bytes=info.buffered_bytes,
            protocol=info.protocol,
            counts=(*info.byte_counts(), *info.traffic()),
            rates=self.rates(info.id, 0),
            tls=None
            if tls is None
            else TlsStatus(tls.version, tls.cipher, tls.subject, tls.issuer, tls.not_after),
        )

    def _close(self, question: Close) -> int:
        count = 0
        for info in list(self._connections().values()):
            if question.name in (info.name, info.id) and info.control is not None:
                info.control.shut_down(question.reason)
                count += 1
        return count
