"""/api/connections, /api/channels and /api/consumers: of all nodes that answer.

A listing that lacks something says so in the header PARTIAL_HEADER.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
from aiohttp import web

from headrace_broker.catalog.view import CatalogView
from headrace_broker.catalog.viewer import Viewer, shown_activity, shown_vhost, viewer_of
from headrace_broker.management.http.access import Caller, caller
from headrace_broker.management.http.answer import (
    PARTIAL_HEADER,
    done,
    forbidden,
    json_answer,
    not_found,
    partial,
    unavailable,
)
from headrace_broker.management.http.endpoints import Endpoints
from headrace_broker.management.http.listing import COLUMNS, chosen, columns, listing
from headrace_broker.management.http.route import Parameter, deleted, got, listed
from headrace_broker.management.resources.leases import render_group
from headrace_broker.management.view.figures import counted, with_deliver_get
from headrace_broker.management.view.flow_rendering import render_activity
from headrace_broker.management.view.view import ChannelView, ConnectionView, ConsumerView
from headrace_broker.model.limits import LISTING_ROWS_MAX, LISTING_TURN_ROWS
from headrace_broker.model.stats import BYTE_FIGURES, CLIENT_FIGURES
from headrace_broker.model.status import ChannelStatus, ConsumerStatus
from headrace_broker.runtime.clients.client_list import ClientRow

Row = dict[str, Any]
_OTHERS: Final = "tags: other users' connections are closed by administrators only"
REASON: Final = Parameter("X-Reason", "For the client and the log.", place="header")


class ClientEndpoints(Endpoints):
    """Routes of client connections and their channels and consumers."""

    async def _rows(
        self, request: web.Request, channels: bool
    ) -> tuple[list[ClientRow], dict[str, str]]:
        """Return the rows that the asker may see in what the path names, and headers."""
        who = caller()
        vhost = await self._asked_vhost(request)
        name, user = request.match_info.get("name"), request.match_info.get("user")
        every = await self._node.clients(channels)
        viewer = viewer_of(who, self._node.view)
        rows = [
            shown_client(row, self._node.view, viewer)
            for row in every.rows
            if (vhost is None or row.connection.vhost == vhost)
            and (name is None or name in (row.connection.name, row.connection.id))
            and (user is None or row.connection.user == user)
            and viewer.knows(row.connection.user)
        ]
        return rows, partial(every.missing, every.left_out)

    @listed("/api/connections", "Connections that the user sees.", ConnectionView)
    @listed("/api/vhosts/{vhost}/connections", "Connections that the user sees.", ConnectionView)
    @listed("/api/connections/username/{user}", "Connections of a user.", ConnectionView)
    async def _connections(self, request: web.Request) -> web.Response:
        rows, headers = await self._rows(request, channels=False)
        return await listing(
            request, rows, self._render_connection, name=_connection_name, headers=headers
        )

    @got("/api/connections/{name}", "A connection, by name or id.", ConnectionView, query=COLUMNS)
    async def _connection(self, request: web.Request) -> web.Response:
        rows, headers = await self._rows(request, channels=False)
        if not rows:
            raise not_found(f"connection '{request.match_info['name']}'")
        row = chosen(self._render_connection(rows[0]), columns(request))
        return json_answer(row, headers=headers)

    @deleted("/api/connections/{name}", "Close a connection.", query=(REASON,))
    async def _close(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        who = caller()
        if not who.administers:
            await self._check_own(request, who, name)
        count, missing = await self._node.close_connection(name, _reason(request))
        if count:
            return done()
        if missing:
            raise unavailable(
                f"no connection '{name}' on the nodes that answer; these do not: "
                f"{', '.join(missing)}"
            )
        raise not_found(f"connection '{name}'")

    @deleted(
        "/api/connections/username/{user}", "Close the connections of a user.", query=(REASON,)
    )
    async def _close_all(self, request: web.Request) -> web.Response:
        who, user = caller(), request.match_info["user"]
        if user != who.name and not who.administers:
            raise forbidden(_OTHERS)
        rows, headers = await self._rows(request, channels=False)
        for row in rows:
            await self._node.close_connection(row.connection.id, _reason(request))
        response = done()
        response.headers.update(headers)
        return response

    async def _check_own(self, request: web.Request, who: Caller, name: str) -> None:
        """Refuse to close other users' connections; one that cannot be seen is not found."""
        rows, _ = await self._rows(request, channels=False)
        if not rows:
            raise not_found(f"connection '{name}'")
        if any(row.connection.user != who.name for row in rows):
            raise forbidden(_OTHERS)

    @listed("/api/connections/{name}/channels", "Channels that the user sees.", ChannelView)
    @listed("/api/channels", "Channels that the user sees.", ChannelView)
    @listed("/api/vhosts/{vhost}/channels", "Channels that the user sees.", ChannelView)
    async def _channels(self, request: web.Request) -> web.Response:
        rows, headers = await self._rows(request, channels=True)
        return await listing(
            request, rows, self._render_channel, name=_channel_name, headers=headers
        )

    @got("/api/channels/{channel}", "A channel.", ChannelView, query=COLUMNS)
    async def _channel(self, request: web.Request) -> web.Response:
        name = request.match_info["channel"]
        rows, headers = await self._rows(request, channels=True)
        for row in rows:
            rendered = self._render_channel(row)
            if rendered["name"] == name:
                return json_answer(chosen(rendered, columns(request)), headers=headers)
        raise not_found(f"channel '{name}'")

    def _render_connection(self, row: ClientRow) -> dict[str, Any]:
        return _render_connection(row, self._node.view)

    def _render_channel(self, row: ClientRow) -> dict[str, Any]:
        return render_channel(row, self._node.view)

    @listed("/api/consumers", "Consumers that the user sees.", ConsumerView)
    @listed("/api/consumers/{vhost}", "Consumers that the user sees.", ConsumerView)
    async def _consumers(self, request: web.Request) -> web.Response:
        who = caller()
        vhost = await self._asked_vhost(request)
        found = await self._node.clients(channels=True)
        groups, silent = await self._node.leases.everyone()
        missing = tuple(dict.fromkeys((*found.missing, *silent)))
        headers = partial(missing, found.left_out)
        rendered = [
            render_group(group)
            for group in groups
            if vhost in (None, group.vhost) and who.sees(self._node.view, group.vhost)
        ]
        for at, row in enumerate(found.rows, 1):
            if at % LISTING_TURN_ROWS == 0:
                await asyncio.sleep(0)
            place = row.connection.vhost
            if vhost not in (None, place) or not who.sees(self._node.view, place):
                continue
            assert row.channel is not None
            rendered += [self._consumer(row, row.channel, each) for each in row.channel.consumers]
            if len(rendered) > LISTING_ROWS_MAX:
                headers = {PARTIAL_HEADER: f"more than {LISTING_ROWS_MAX} consumers"}
                break
        shown = rendered[:LISTING_ROWS_MAX]
        return await listing(
            request, shown, dict, name=lambda row: str(row["consumer_tag"]), headers=headers
        )

    def _consumer(
        self, row: ClientRow, channel: ChannelStatus, consumer: ConsumerStatus
    ) -> dict[str, Any]:
        queue = self._node.view.queue(row.connection.vhost, consumer.queue)
        single = queue is not None and queue.arguments.get("x-single-active-consumer") is True
        # Which one of several is the active one only the queue's leader knows.
        return {**_render_consumer(row, channel, consumer), "active": None if single else True}


def shown_client(row: ClientRow, view: CatalogView, viewer: Viewer) -> ClientRow:
    """Return a connection or channel that may be known, without names that may not."""
    connection, channel = row.connection, row.channel
    if viewer.monitors:
        return row
    flow = shown_activity(connection.flow, view, viewer)
    vhost = shown_vhost(connection.vhost, viewer)
    connection = msgspec.structs.replace(connection, vhost=vhost, flow=flow)
    if channel is not None:
        flow = shown_activity(channel.flow, view, viewer)
        channel = msgspec.structs.replace(channel, flow=flow)
    return ClientRow(connection, channel)


def _reason(request: web.Request) -> str:
    """Return the reason in a header, which may be any bytes; those that are no UTF-8 show so."""
    reason = request.headers.get("X-Reason", "")
    return reason.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _connection_name(row: ClientRow) -> str:
    return row.connection.name


def _channel_name(row: ClientRow) -> str:
    assert row.channel is not None, "channels were asked for"
    return f"{row.connection.name} ({row.channel.number})"


def _render_connection(row: ClientRow, view: CatalogView) -> dict[str, Any]:
    connection = row.connection
    host, port = connection.local
    peer_host, peer_port = connection.peer
    tls = connection.tls
    counts, rates, byte_count = connection.counts, connection.rates, len(BYTE_FIGURES)
    return {
        "id": connection.id,
        "name": connection.name,
        "user_provided_name": connection.user_provided_name or None,
        "node": connection.node,
        "type": "network",
        "protocol": connection.protocol,
        "user": connection.user,
        "vhost": connection.vhost,
        "auth_mechanism": connection.mechanism,
        "host": host,
        "port": port,
        "peer_host": peer_host,
        "peer_port": peer_port,
        "ssl": tls is not None,
        "ssl_protocol": tls.version if tls is not None else None,
        "ssl_cipher": tls.cipher if tls is not None else None,
        "peer_cert_subject": tls.subject or None if tls is not None else None,
        "peer_cert_issuer": tls.issuer or None if tls is not None else None,
        "peer_cert_validity": tls.not_after or None if tls is not None else None,
        "state": connection.state,
        "flow": render_activity(connection.flow, view),
        "buffered_bytes": connection.buffered_bytes,
        "channels": connection.channels,
        "channel_max": connection.channel_max,
        "frame_max": connection.frame_max,
        "timeout": connection.heartbeat_s,
        "connected_at": connection.connected_at_ms,
        "client_properties": connection.client_properties,
        **counted(BYTE_FIGURES, counts[:byte_count], rates[:byte_count]),
        "message_stats": message_stats(counts[byte_count:], rates[byte_count:]),
    }


def message_stats(counts: tuple[int, ...], rates: tuple[float, ...]) -> Row:
    """Return the field `message_stats` of a connection or channel; see `figures.counted`."""
    return with_deliver_get(counted(CLIENT_FIGURES, counts, rates))


def _details(row: ClientRow) -> dict[str, Any]:
    host, port = row.connection.peer
    return {"name": row.connection.name, "peer_host": host, "peer_port": port}


def render_channel(row: ClientRow, view: CatalogView) -> dict[str, Any]:
    """Return a row of GET /api/channels."""
    channel = row.channel
    assert channel is not None, "channels were asked for"
    return {
        "id": f"{row.connection.id}/{channel.number}",
        "name": f"{row.connection.name} ({channel.number})",
        "number": channel.number,
        "node": row.connection.node,
        "user": row.connection.user,
        "vhost": row.connection.vhost,
        "state": channel.state,
        "flow": render_activity(channel.flow, view),
        "connection_details": _details(row),
        "confirm": channel.confirm,
        "prefetch_count": channel.prefetch_count,
        "global_prefetch_count": channel.global_prefetch_count,
        "consumer_count": len(channel.consumers),
        "messages_unacknowledged": channel.messages_unacknowledged,
        "messages_unconfirmed": channel.messages_unconfirmed,
        "message_stats": message_stats(channel.counts, channel.rates),
    }


def _render_consumer(
    row: ClientRow, channel: ChannelStatus, consumer: ConsumerStatus
) -> dict[str, Any]:
    name = row.connection.name
    host, port = row.connection.peer
    return {
        "consumer_tag": consumer.tag,
        "queue": {"name": consumer.queue, "vhost": row.connection.vhost},
        "channel_details": {
            "id": f"{row.connection.id}/{channel.number}",
            "name": f"{name} ({channel.number})",
            "number": channel.number,
            "node": row.connection.node,
            "connection_name": name,
            "peer_host": host,
            "peer_port": port,
            "user": row.connection.user,
        },
        "ack_required": consumer.ack_required,
        "exclusive": consumer.exclusive,
        "prefetch_count": consumer.prefetch_count,
        "arguments": consumer.arguments,
    }
