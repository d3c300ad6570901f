"""Requests that are none, that come by another name, and what answers say of the node."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Iterable
from typing import Any

import aiohttp
import pytest

from headrace_broker.app import host_names
from headrace_broker.config.configuration import load_config
from headrace_broker.management.http.hosts import Hosts
from headrace_broker.management.metric_server import MetricServer
from headrace_broker.management.server import ManagementServer

SECRET = "Z3Vlc3Q6c2VjcmV0"


def ask(node: Any, data: bytes, metrics: bool = False, hosts: Iterable[str] = ()) -> str:
    """Return what a server says to bytes."""

    async def talk() -> str:
        known = Hosts(hosts)
        server: Any = (
            MetricServer(node, node, True, known)
            if metrics
            else ManagementServer(node, node, hosts=known)
        )
        port = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        answer = await reader.read()
        writer.close()
        await server.stop()
        return answer.decode()

    return asyncio.run(talk())


@pytest.mark.parametrize("metrics", [False, True], ids=["api", "metrics"])
@pytest.mark.parametrize(
    "bytes_text",
    [
        f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization : Basic {SECRET}\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {SECRET}\x00\r\n\r\n",
        f"{SECRET} GET /\r\n\r\n",
        f"GET / HTTP/1.1\r\nAuthorization: Basic {SECRET}{'x' * 20_000}\r\n\r\n",
        f"POST /api/queues HTTP/1.1\r\nContent-Length: {SECRET}\r\n\r\n",
        f"GET / HTTP/1.1\r\nTransfer-Encoding: {SECRET}\r\nContent-Length: 5\r\n\r\n",
    ],
    ids=["header", "NUL", "method", "length", "content", "encoding"],
)
def test_what_is_no_request_is_refused_and_nothing_of_it_is_logged(
    node: Any, bytes_text: str, metrics: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        answer = ask(node, bytes_text.encode(), metrics)
    assert answer.partition(" ")[2].startswith("400 ")
    assert SECRET not in answer
    assert SECRET not in caplog.text
    assert "Authorization" not in caplog.text
    assert "Traceback" not in caplog.text
    (found,) = [each for each in caplog.records if each.name == "headrace.http"]
    assert found.getMessage() == (
        "HTTP from 127.0.0.1: not a request of HTTP that is understood here"
    )
    assert vars(found)["unproven"] == "127.0.0.1"  # so that nobody fills the log with it


@pytest.mark.parametrize("metrics", [False, True], ids=["api", "metrics"])
def test_no_answer_says_which_versions_run_or_may_be_taken_for_a_script(
    node: Any, metrics: bool
) -> None:
    for path in (b"/", b"/api/overview", b"/api/health/live", b"/none", b"/metrics", b"\0"):
        lines = b"GET " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        head = ask(node, lines, metrics).partition("\r\n\r\n")[0]
        headers = dict(line.lower().partition(": ")[::2] for line in head.splitlines()[1:])
        assert headers["server"] == "headrace"
        assert aiohttp.__version__ not in head
        assert f"{sys.version_info.major}.{sys.version_info.minor}" not in head
        assert headers["x-content-type-options"] == "nosniff"
        if path.startswith(b"/api"):
            assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:15672", True),
        ("[::1]:15672", True),
        ("10.1.2.3", True),  # a kubelet's probe, Prometheus, the operator
        ("[fd00::1]", True),
        ("localhost:15672", True),
        ("app.localhost", True),
        ("n1", True),
        ("N1.", True),
        ("mill.shop.svc:15672", True),
        ("mill-0.mill-nodes.shop.svc", True),
        ("mill-nodes.shop.svc", False),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("n1.evil.example", False),
        ("evil.example:15672", False),
        ("xmill.shop.svc", False),
        ("2130706433", False),  # browsers write such addresses in full
        ("[evil.example]", False),
    ],
)
def test_a_node_answers_by_its_own_names_and_by_addresses(host: str, allowed: bool) -> None:
    hosts = Hosts(["n1", "", "mill.shop.svc", "*.mill-nodes.shop.svc"])
    assert hosts.allows(host) is allowed


@pytest.mark.parametrize("metrics", [False, True], ids=["api", "metrics"])
@pytest.mark.parametrize("path", ["/", "/api/whoami", "/api/health/live", "/metrics"])
def test_a_page_whose_name_leads_here_gets_nothing(
    node: Any, path: str, metrics: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def lines(host: str) -> bytes:
        login = "Authorization: Basic Z3Vlc3Q6Z3Vlc3Q="
        return (
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{login}\r\nConnection: close\r\n\r\n"
        ).encode()

    with caplog.at_level(logging.INFO):
        answer = ask(node, lines("evil.example:15672"), metrics)
    assert answer.startswith("HTTP/1.1 421 ")
    assert "'evil.example:15672' is no name of this node; http.hosts" in answer
    assert "http.hosts in its configuration may allow it" in caplog.text
    assert not ask(node, lines("127.0.0.1"), metrics).startswith("HTTP/1.1 421")
    own = ask(node, lines("evil.example:15672"), metrics, ["evil.example"])
    assert not own.startswith("HTTP/1.1 421")


def test_a_node_knows_the_names_that_its_configuration_gives_it() -> None:
    environment = {
        "HEADRACE_NODE_NAME": "n2",
        "HEADRACE_NODE_DATA_DIR": "/data",
        "HEADRACE_CLUSTER_NODES": "1=n1@a.example:7100,2=n2@b.example:7100",
        "HEADRACE_CLUSTER_JOIN_SECRET_FILE": "/secret",
        "HEADRACE_LISTENERS_HTTP": "web.example:15672",
        "HEADRACE_HTTP_HOSTS": "proxy.example",
    }
    hosts = Hosts(host_names(load_config(None, environment)))
    own = ("n2", "b.example", "web.example", "proxy.example", socket.gethostname())
    assert all(hosts.allows(name) for name in own)
    assert not hosts.allows("evil.example")
