"""Health checks: 200 when all is well, 503 and a reason when not."""

from __future__ import annotations

import time

import pytest

from headrace_broker.catalog.command import PutPermission, PutVhost
from headrace_broker.model.definition import Permission, Vhost
from headrace_broker.model.stats import Listener, NodeStats
from headrace_broker.model.status import MessageCounters, ObjectTotals

CHECKS = "/api/health/checks/"


@pytest.fixture(autouse=True)
def own(node):
    listeners = (Listener("amqp", "127.0.0.1", 5672), Listener("https", "127.0.0.1", 15671, True))
    totals = ObjectTotals(connections=10)
    node.stats.rows = [
        NodeStats(1, "n1", "0", 0, 1, 1, totals, MessageCounters(), listeners, [], sockets_total=11)
    ]


@pytest.mark.parametrize(
    "check",
    [
        *("alarms", "local-alarms", "virtual-hosts", "ready-to-serve-clients"),
        *("node-is-quorum-critical", "node-is-mirror-sync-critical", "port-listener/5672"),
        *("protocol-listener/amqp", "protocol-listener/amqp091", "protocol-listener/HTTPS"),
        *("certificate-expiration/1/months", "below-node-connection-limit"),
        "quorum-queues-without-elected-leaders/all-vhosts",
        "quorum-queues-without-elected-leaders/vhost/%2F",
    ],
)
def test_all_is_well(api, node, check):
    node.do(PutPermission(Permission("alice", "/", "", "", "")))
    status, body = api("GET", CHECKS + check, user="alice")
    assert (status, body["status"]) == (200, "ok")


def failed(api, check):
    status, body = api("GET", CHECKS + check)
    assert (status, body["status"]) == (503, "failed")
    return body


def test_listeners_that_lack_are_named(api):
    assert failed(api, "port-listener/1") == {
        "status": "failed",
        "reason": "No active listener",
        "missing": 1,
        "ports": [5672, 15671],
    }
    assert failed(api, "protocol-listener/mqtt")["protocols"] == ["amqp", "https"]


def test_a_node_that_takes_no_clients_says_why(api, node):
    node.reason = "too few nodes"
    assert failed(api, "ready-to-serve-clients")["reason"] == "too few nodes"
    failed(api, "virtual-hosts")


def test_certificates_that_end_soon(api, refused, node):
    node.certificate_end_s = time.time() + 10 * 86_400 + 60
    for fine in ("10/days", "1/weeks"):
        assert api("GET", f"{CHECKS}certificate-expiration/{fine}")[0] == 200
    for late in ("11/days", "2/weeks", "1/months", "1/years"):
        assert failed(api, f"certificate-expiration/{late}")["reason"] == "Certificates expiring"
    for wrong in ("1/hours", "0/days", "x/days"):
        refused(400, "GET", f"{CHECKS}certificate-expiration/{wrong}")


def test_queues_that_need_the_node_are_named(api, node):
    node.critical = []
    assert api("GET", CHECKS + "node-is-quorum-critical")[1] == {"status": "ok"}
    node.critical = [("/", "q")]
    shown = failed(api, "node-is-quorum-critical")["queues"]
    assert shown == [{"name": "q", "virtual_host": "/", "type": "quorum"}]


def test_queues_without_a_leader_are_named(api, node):
    node.do(PutVhost(Vhost("v")))
    node.leaderless = [("v", "q")]
    path = "quorum-queues-without-elected-leaders/"
    assert failed(api, path + "all-vhosts")["queues"][0]["name"] == "q"
    assert failed(api, path + "vhost/v")["queues"][0]["virtual_host"] == "v"
    assert api("GET", CHECKS + path + "vhost/%2F")[0] == 200
    assert api("GET", CHECKS + path + "vhost/w")[0] == 404
    assert failed(api, path + "all-vhosts/pattern/%5Eq")["queues"][0]["name"] == "q"
    assert api("GET", CHECKS + path + "vhost/v/pattern/r")[0] == 200
    assert api("GET", CHECKS + path + "vhost/v/pattern/(")[0] == 400


def test_one_of_several_protocols_is_enough(api):
    assert api("GET", CHECKS + "protocol-listener/mqtt,amqp091")[1]["protocol"] == "amqp"
    assert failed(api, "protocol-listener/mqtt,stomp")["missing"] == "mqtt,stomp"


@pytest.mark.parametrize("path", ["is-in-service", "metadata-store/initialized/with-data"])
def test_a_node_that_is_not_ready_is_not_in_service(api, node, path):
    assert api("GET", CHECKS + path)[0] == 200
    node.reason = "it is being drained"
    assert failed(api, path)["reason"] == "it is being drained"


def test_a_full_node(api, node):
    node.stats.rows = [
        NodeStats(
            1,
            "n1",
            "0",
            0,
            1,
            1,
            ObjectTotals(connections=11),
            MessageCounters(),
            (),
            [],
            sockets_total=11,
        )
    ]
    assert failed(api, "below-node-connection-limit")["limit"] == 11


def test_queues_of_vhosts_that_one_may_not_look_at_are_not_named(api, node, refused):
    node.do(PutVhost(Vhost("v")))
    node.leaderless = node.critical = [("v", "q")]
    path = "quorum-queues-without-elected-leaders/"
    for every in ("all-vhosts", "all-vhosts/pattern/q"):
        assert api("GET", CHECKS + path + every, user="alice") == (200, {"status": "ok"})
    assert api("GET", CHECKS + "node-is-quorum-critical", user="alice")[1]["queues"] == []
    for suffix in ("", "/pattern/q"):
        there, absent = (
            refused(403, "GET", f"{CHECKS}{path}vhost/{vhost}{suffix}", user="alice")
            for vhost in ("v", "w")
        )
        assert there.replace("'v'", "'w'") == absent
