"""Answers have the fields and types of the API's description."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headrace_broker.catalog.command import DeclareQueue, PutVhost
from headrace_broker.management.server import ManagementServer
from headrace_broker.model.definition import Vhost
from headrace_broker.model.flow_status import ActivityStatus
from headrace_broker.model.stats import (
    EXCHANGE_FIGURES,
    NODE_FIGURES,
    QUEUE_FIGURES,
    VHOST_FIGURES,
    ExchangeStats,
    Listener,
    NodeStats,
    QueueStats,
    VhostStats,
)
from headrace_broker.model.status import (
    ChannelStatus,
    ConnectionStatus,
    ConsumerStatus,
    LeaseGroupStatus,
    MessageCounters,
    ObjectTotals,
    TlsStatus,
)
from headrace_broker.runtime.clients.client_list import ClientListing, ClientRow

NAME = "10.0.0.1:5000 -> 10.0.1.1:5672"
BLOCKED = ActivityStatus("credit", 1, 5, (0.5, 0.5, 0.5), {"credit": (0.5, 0.5, 0.5, 1)})


def twice(figures: tuple[str, ...]) -> list[tuple[int, ...]]:
    """Two samples."""
    return [(1_000, *[1] * len(figures)), (6_000, *[2] * len(figures))]


@pytest.fixture
def full(node: Any) -> Any:
    """A node that has something of everything."""
    node.do(PutVhost(Vhost("v", "quorum", "text", ("tag",))))
    node.do(DeclareQueue("/", "q", "quorum"))
    node.here.add("q")
    group = node.view.queue("/", "q").group
    totals = ObjectTotals(1, 2, 3, 4, 5)
    listeners = (Listener("amqp", "h", 5672), Listener("http", "h", 15672))
    own = NodeStats(
        *(1, "n1", "0", 1, 2, 3, totals, MessageCounters(), listeners),
        last=twice(NODE_FIGURES),
        samples=twice(NODE_FIGURES)[::-1],
    )
    node.stats.rows = [
        own,
        QueueStats(group, twice(QUEUE_FIGURES), twice(QUEUE_FIGURES)[::-1]),
        VhostStats("/", twice(VHOST_FIGURES), twice(VHOST_FIGURES)[::-1]),
        ExchangeStats("/", "amq.topic", twice(EXCHANGE_FIGURES), twice(EXCHANGE_FIGURES)[::-1]),
    ]
    tls = TlsStatus("TLSv1.3", "TLS_AES", "CN=a", "CN=ca", "Dec  1 2030")
    connection = ConnectionStatus(
        *("n1", "n1/1/1", NAME, "guest", "/", "PLAIN", 1700, "flow", 2047, 131072, 60, 1),
        tls=tls,
        flow=BLOCKED,
    )
    consumer = ConsumerStatus("tag", "q", True, False, 10, {})
    channel = ChannelStatus(1, 10, 0, True, 4, 5, (consumer,), flow=BLOCKED)
    node.listing = ClientListing([ClientRow(connection), ClientRow(connection, channel)])
    node.leases.groups = [LeaseGroupStatus("/", "q", "g", "n1", 1, 2, 1, 0, 1, 1, 10)]
    return node


AGES = "lengths_age=60&msg_rates_age=60"
ASKED = {
    "/api/overview": f"/api/overview?{AGES}",
    "/api/vhosts": f"/api/vhosts?{AGES}",
    "/api/exchanges": f"/api/exchanges?{AGES}",
    "/api/queues": f"/api/queues?{AGES}",
    "/api/queues/{vhost}/{queue}": f"/api/queues/%2F/q?{AGES}",
    "/api/connections": "/api/connections",
    "/api/channels": "/api/channels",
    "/api/consumers": "/api/consumers",
    "/api/users": "/api/users",
    "/api/permissions": "/api/permissions",
    "/api/whoami": "/api/whoami",
    "/api/health/checks/port-listener/{port}": "/api/health/checks/port-listener/5672",
}


def named(kind: Any) -> set[str]:
    """The fields of a type."""
    info: Any = msgspec.inspect.type_info(kind)
    return {field.encode_name for field in info.fields}


@pytest.mark.parametrize("template", ASKED)
def test_answers_have_no_other_fields_than_are_described_and_of_these_types(
    api: Any, full: Any, template: str
) -> None:
    routes = ManagementServer(full, full).routes()
    [route] = [each for each in routes if (each.method, each.template) == ("GET", template)]
    status, body = api("GET", ASKED[template])
    assert status == 200
    rows = body if route.listing else [body]
    assert rows
    for row in rows:
        msgspec.convert(row, route.answer)
        assert row.keys() <= named(route.answer)


def test_a_full_row_has_all_that_is_described(api: Any, full: Any) -> None:
    for template in ("/api/connections", "/api/channels", "/api/exchanges", "/api/vhosts"):
        routes = ManagementServer(full, full).routes()
        [route] = [each for each in routes if (each.method, each.template) == ("GET", template)]
        assert api("GET", ASKED[template])[1][0].keys() == named(route.answer)
