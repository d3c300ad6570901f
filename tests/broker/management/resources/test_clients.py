"""/api/connections, /api/channels and /api/consumers."""

from __future__ import annotations

import asyncio
import base64

import msgspec
import pytest
from msgspec import structs

from headrace_broker.catalog.command import DeclareQueue, DeletePermission, PutPermission
from headrace_broker.management.server import ManagementServer
from headrace_broker.model.definition import Permission
from headrace_broker.model.flow_status import ActivityStatus
from headrace_broker.model.status import (
    ChannelStatus,
    ConnectionStatus,
    ConsumerStatus,
    LeaseGroupStatus,
    TlsStatus,
)
from headrace_broker.runtime.clients.client_list import ClientListing, ClientRow

TLS = TlsStatus("TLSv1.3", "TLS_AES", "CN=a", "CN=ca", "Dec  1 2030")


def connection(number: int, user: str, tls: TlsStatus | None = None) -> ConnectionStatus:
    name = f"10.0.0.{number}:5000 -> 10.0.1.1:5672"
    return ConnectionStatus(
        node="n1",
        id=f"n1/1/{number}",
        name=name,
        user=user,
        vhost="/",
        mechanism="PLAIN",
        connected_at_ms=1700,
        state="running",
        channel_max=2047,
        frame_max=131072,
        heartbeat_s=60,
        channels=1,
        client_properties={"product": "x"},
        tls=tls,
    )


def name_of(number: int) -> str:
    return f"10.0.0.{number}:5000%20->%2010.0.1.1:5672"


@pytest.fixture
def busy(node):
    """Two connections; that of alice has a channel with a consumer."""
    first, second = connection(1, "guest", TLS), connection(2, "alice")
    consumer = ConsumerStatus("tag", "q", True, False, 10, {"x-priority": 1})
    channel = ChannelStatus(3, 10, 0, True, 4, 5, (consumer,))
    node.listing = ClientListing([ClientRow(first), ClientRow(second), ClientRow(second, channel)])
    return node


def test_connections_are_listed_with_rabbitmqs_fields(api, busy):
    rows = api("GET", "/api/connections")[1]
    assert [row["user"] for row in rows] == ["guest", "alice"]
    assert rows[0].pop("message_stats")["publish"] == 0
    byte_count = [name for name in rows[0] if name.startswith(("recv_", "send_"))]
    counted = {name: rows[0].pop(name) for name in byte_count}
    assert counted.keys() >= {"recv_oct", "recv_oct_details", "send_cnt"}
    assert rows[0] == {
        "id": "n1/1/1",
        "name": "10.0.0.1:5000 -> 10.0.1.1:5672",
        "node": "n1",
        "type": "network",
        "protocol": "AMQP 0-9-1",
        "user": "guest",
        "vhost": "/",
        "auth_mechanism": "PLAIN",
        "host": "10.0.1.1",
        "port": 5672,
        "peer_host": "10.0.0.1",
        "peer_port": 5000,
        "ssl": True,
        "ssl_protocol": "TLSv1.3",
        "ssl_cipher": "TLS_AES",
        "peer_cert_subject": "CN=a",
        "peer_cert_issuer": "CN=ca",
        "peer_cert_validity": "Dec  1 2030",
        "state": "running",
        "flow": {
            "limit": None,
            "queue": None,
            "since_ms": None,
            "stopped": {"last_1s": 0.0, "last_10s": 0.0, "last_60s": 0.0},
            "by_limit": {},
        },
        "buffered_bytes": 0,
        "channels": 1,
        "channel_max": 2047,
        "frame_max": 131072,
        "timeout": 60,
        "connected_at": 1700,
        "client_properties": {"product": "x"},
        "user_provided_name": None,
    }
    assert (rows[1]["ssl"], rows[1]["ssl_protocol"], rows[1]["peer_cert_subject"]) == (
        False,
        None,
        None,
    )
    assert "X-Headrace-Partial" not in api.headers
    assert api("GET", f"/api/connections/{name_of(2)}") == (200, rows[1])
    assert api("GET", "/api/connections/n1%2F1%2F2") == (200, rows[1])
    assert api("GET", "/api/connections/gone")[0] == 404


@pytest.mark.parametrize(
    ("properties", "name"),
    [({"connection_name": "shop"}, "shop"), ({"connection_name": 7}, None), ({}, None)],
)
def test_a_connection_has_the_name_that_its_client_gave_it(api, node, properties, name):
    named = structs.replace(connection(1, "guest"), client_properties=properties)
    node.listing = ClientListing([ClientRow(named)])
    [row] = api("GET", "/api/connections")[1]
    assert row["user_provided_name"] == name


def test_what_passes_connections_and_channels_is_counted_and_has_rates(api, node):
    counts = (900, 9, 800, 8, 10, 7, 2, 1, 40, 30, 20, 10, 5, 6, 60)
    rates = tuple(float(each) / 10 for each in counts)
    first = structs.replace(connection(1, "guest"), counts=counts, rates=rates)
    channel = ChannelStatus(3, 10, 0, True, 4, 5, counts=counts[4:])  # its rates are not known
    node.listing = ClientListing([ClientRow(first), ClientRow(first, channel)])
    [row] = api("GET", "/api/connections")[1]
    assert (row["recv_oct"], row["recv_oct_details"]) == (900, {"rate": 90.0})
    assert (row["send_cnt"], row["send_cnt_details"]) == (8, {"rate": 0.8})
    stats = row["message_stats"]
    assert (stats["publish"], stats["publish_details"]["rate"]) == (10, 1.0)
    assert (stats["return_unroutable"], stats["drop_unroutable"]) == (2, 1)
    assert (stats["deliver_get"], stats["deliver_get_details"]["rate"]) == (100, 10.0)
    assert (stats["redeliver"], stats["ack"], stats["ack_details"]["rate"]) == (6, 60, 6.0)
    [row] = api("GET", "/api/channels")[1]
    stats = row["message_stats"]
    assert (stats["deliver"], stats["deliver_details"]) == (40, {"rate": 0.0})
    query = "columns=name,message_stats.publish_details.rate"
    assert api("GET", f"/api/connections/{name_of(1)}?{query}")[1] == {
        "name": first.name,
        "message_stats": {"publish_details": {"rate": 1.0}},
    }


def test_channels_and_consumers_are_listed(api, busy):
    [row] = api("GET", "/api/channels")[1]
    assert row["name"] == "10.0.0.2:5000 -> 10.0.1.1:5672 (3)"
    assert row["connection_details"]["peer_port"] == 5000
    assert (row["confirm"], row["messages_unacknowledged"], row["consumer_count"]) == (True, 4, 1)
    assert api("GET", f"/api/channels/{name_of(2)}%20(3)") == (200, row)
    assert api("GET", f"/api/channels/{name_of(2)}%20(4)")[0] == 404
    assert api("GET", f"/api/connections/{name_of(2)}/channels") == (200, [row])
    assert api("GET", "/api/vhosts/%2F/channels") == (200, [row])
    [consumer] = api("GET", "/api/consumers")[1]
    assert api("GET", "/api/consumers/%2F") == (200, [consumer])
    assert consumer["queue"] == {"name": "q", "vhost": "/"}
    assert (consumer["consumer_tag"], consumer["prefetch_count"]) == ("tag", 10)
    assert consumer["channel_details"]["number"] == 3
    assert consumer["arguments"] == {"x-priority": 1}


def test_groups_that_lease_messages_are_among_the_consumers(api, busy):
    busy.leases.groups = [
        LeaseGroupStatus("/", "q", "job", "n2", 3, 8, 5, 1700, 2, 900, 9000),
        LeaseGroupStatus("other", "q", "job", "n2", 1, 1, 0, 0, 0, 0, 0),
    ]
    busy.leases.missing = ("n3",)
    rows = api("GET", "/api/consumers/%2F")[1]
    assert [row["consumer_tag"] for row in rows] == ["job", "tag"]
    assert rows[0]["queue"] == {"name": "q", "vhost": "/"}
    assert (rows[0]["channel_details"], rows[0]["ack_required"]) == ({}, True)
    group = rows[0]["lease_group"]
    assert (group["epoch"], group["next_lease"], group["settled"]) == (3, 8, 5)
    assert (group["leases"], group["messages"], group["byte_count"]) == (2, 900, 9000)
    assert api.headers["X-Headrace-Partial"] == "no answer from n3"


def test_what_stops_a_connection_and_its_channel_is_listed(api, node):
    node.do(DeclareQueue("/", "orders", "quorum"))
    group = node.view.queue("/", "orders").group
    flow = ActivityStatus("account", group, 9, (1.0, 0.5, 0.1), {"account": (1.0, 0.5, 0.1, group)})
    stopped = msgspec.structs.replace(connection(1, "guest"), state="flow", flow=flow)
    stopped = msgspec.structs.replace(stopped, buffered_bytes=77)
    channel = ChannelStatus(3, 10, 0, True, 4, 5, (), "blocked", flow)
    node.listing = ClientListing([ClientRow(stopped), ClientRow(stopped, channel)])
    shares = {"last_1s": 1.0, "last_10s": 0.5, "last_60s": 0.1}
    [row] = api("GET", "/api/connections")[1]
    assert (row["state"], row["buffered_bytes"]) == ("flow", 77)
    assert row["flow"] == {
        "limit": "account",
        "queue": "orders",
        "since_ms": 9,
        "stopped": shares,
        "by_limit": {"account": {**shares, "queue": "orders"}},
    }
    [channel] = api("GET", "/api/channels")[1]
    assert (channel["state"], channel["flow"]) == ("blocked", row["flow"])


def test_a_partial_listing_says_what_it_lacks(api, busy):
    busy.listing = ClientListing(busy.listing.rows, ("n2", "n3"), 5)
    for path in ("/api/connections", "/api/channels", "/api/consumers"):
        assert api("GET", path)[0] == 200
        lacks = api.headers["X-Headrace-Partial"]
        assert lacks == "no answer from n2, n3; 5 rows or more left out"


def test_a_connection_is_closed_with_a_reason(api, busy, refused):
    path = f"/api/connections/{name_of(2)}"
    assert api("DELETE", path, headers={"X-Reason": "too loud"}) == (204, None)
    assert busy.closed == [("10.0.0.2:5000 -> 10.0.1.1:5672", "too loud")]
    assert refused(404, "DELETE", "/api/connections/gone") == "no connection 'gone'"
    busy.missing = ("n2",)
    reason = refused(503, "DELETE", "/api/connections/gone")
    assert reason == "no connection 'gone' on the nodes that answer; these do not: n2"


def test_a_reason_that_is_no_utf_8_is_told_as_far_as_it_is(busy):
    async def close() -> bytes:
        server = ManagementServer(busy, busy)
        port = await server.start("127.0.0.1", 0)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            login = base64.b64encode(b"guest:guest")
            path = f"/api/connections/{name_of(2)}".encode()
            writer.write(
                b"DELETE %b HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic %b\r\n"
                b"X-Reason: too \xff loud\r\nConnection: close\r\n\r\n" % (path, login)
            )
            answer = await reader.read()
            writer.close()
            return answer
        finally:
            await server.stop()

    assert asyncio.run(close()).startswith(b"HTTP/1.1 204 ")
    assert busy.closed == [("10.0.0.2:5000 -> 10.0.1.1:5672", "too \N{REPLACEMENT CHARACTER} loud")]


def test_users_see_and_close_their_own_connections_only(api, busy, refused):
    busy.do(PutPermission(Permission("alice", "/", "", "", "")))
    rows = api("GET", "/api/connections", user="alice")[1]
    assert [row["user"] for row in rows] == ["alice"]
    assert len(api("GET", "/api/connections", user="mon")[1]) == 2
    assert api("DELETE", f"/api/connections/{name_of(2)}", user="alice") == (204, None)
    refused(404, "DELETE", f"/api/connections/{name_of(1)}", user="alice")
    assert "administrators" in refused(403, "DELETE", f"/api/connections/{name_of(1)}", user="mon")
    assert api("GET", "/api/consumers", user="pol") == (200, [])
    assert [name for name, _ in busy.closed] == ["10.0.0.2:5000 -> 10.0.1.1:5672"]


def test_ones_own_connection_names_no_vhost_and_queue_of_it_without_a_permission(api, node):
    node.do(DeclareQueue("/", "orders", "quorum"))
    group = node.view.queue("/", "orders").group
    flow = ActivityStatus("account", group, 9, (1.0, 0.5, 0.1), {"account": (1.0, 0.5, 0.1, group)})
    stopped = msgspec.structs.replace(connection(1, "alice"), state="flow", flow=flow)
    channel = ChannelStatus(3, 10, 0, True, 4, 5, (), "blocked", flow)
    rows = ClientListing([ClientRow(stopped), ClientRow(stopped, channel)])
    node.listing = rows

    def told(path, user):
        [row] = api("GET", path, user=user)[1]
        return row["vhost"], row["flow"]["queue"], row["flow"]["by_limit"]["account"]["queue"]

    for path in ("/api/connections", "/api/channels"):
        assert told(path, "alice") == ("", None, None)
        assert told(path, "guest") == ("/", "orders", "orders")
        node.do(PutPermission(Permission("alice", "/", "", "", "")))
        assert told(path, "alice") == ("/", "orders", "orders")
        node.do(DeletePermission("alice", "/"))
