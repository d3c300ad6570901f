"""Common handling of every request."""

from __future__ import annotations

import asyncio
import base64
import gzip
import logging
import re
from typing import Any

import aiohttp
import pytest

from headrace_broker.flow.call_turns import CallClient
from headrace_broker.management.http.guard import Guard
from headrace_broker.management.http.login_service import LoginService
from headrace_broker.management.http.request_id import REQUEST_ID, record_requests
from headrace_broker.management.http.route import ADMINISTRATOR, MONITORING, NOBODY, POLICYMAKER
from headrace_broker.management.server import ManagementServer
from headrace_broker.model.limits import CALL_STEP_US, CALLS_WAITING_MAX
from headrace_broker.runtime.calls.gate import CallGate
from headrace_broker.runtime.metrics.requests import HttpMeter

LOGIN = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}


def test_a_request_is_named_by_its_client(api):
    api("GET", "/api/whoami", headers={"X-Request-Id": "deploy-7/a"})
    assert api.headers["X-Request-Id"] == "deploy-7/a"


@pytest.mark.parametrize("name", ["", "a b", "x" * 129, "\u00e9"])
def test_a_request_without_a_good_name_gets_one(api, name):
    api("GET", "/api/whoami", headers={"X-Request-Id": name})
    first = api.headers["X-Request-Id"]
    api("GET", "/api/nothing", headers={"X-Request-Id": name})
    assert len(first) == 16
    assert api.headers["X-Request-Id"] not in ("", first)


def test_changes_are_noted_with_user_and_name(api, caplog):
    name = "headrace.http"
    with caplog.at_level(logging.INFO, name):
        api("PUT", "/api/vhosts/a%0Ab", body={}, headers={"X-Request-Id": "r-1"})
        api("GET", "/api/vhosts", headers={"X-Request-Id": "r-2"})
    (line,) = [each.getMessage() for each in caplog.records if each.name == name]
    assert line.startswith("PUT /api/vhosts/a%0Ab by 'guest': 201 in ")
    assert line.endswith(" ms [r-1]")


def test_log_records_name_their_request(caplog):
    before = logging.getLogRecordFactory()
    try:
        record_requests()
        record_requests()  # a second time changes nothing
        REQUEST_ID.set("r-9")
        logging.getLogger("x").warning("hello")
        assert caplog.records[0].request_id == "r-9"
    finally:
        logging.setLogRecordFactory(before)


def test_a_fault_is_answered_in_json_and_noted(api, node, caplog, monkeypatch):
    def broken() -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(node, "overview", broken)
    status, body = asyncio.run(_without_samples(node, "/api/overview"))
    assert (status, body["error"]) == (500, "internal_error")
    assert "r-3" in body["reason"]
    assert "r-3" in caplog.messages[0]


async def _without_samples(node: Any, path: str) -> tuple[int, Any]:
    server = ManagementServer(node, node)
    app = server.application()
    runner = aiohttp.web.AppRunner(app)
    await runner.setup()
    site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        url = f"http://127.0.0.1:{runner.addresses[0][1]}{path}"
        async with (
            aiohttp.ClientSession(headers=LOGIN) as session,
            session.get(url, headers={"X-Request-Id": "r-3"}) as answer,
        ):
            return answer.status, await answer.json()
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("accepts", "packed"),
    [("gzip", True), ("deflate, gzip;q=0.5", True), ("gzip;q=0", False), ("br", False)],
)
def test_large_answers_are_compressed_for_who_takes_that(node, accepts, packed):
    async def talk() -> tuple[str, bytes]:
        server = ManagementServer(node, node)
        port = await server.start("127.0.0.1", 0)
        try:
            async with (
                aiohttp.ClientSession(auto_decompress=False) as session,
                session.get(
                    f"http://127.0.0.1:{port}/api/openapi.json",
                    headers={"Accept-Encoding": accepts},
                ) as answer,
            ):
                return answer.headers.get("Content-Encoding", ""), await answer.read()
        finally:
            await server.stop()

    encoding, byte_count = asyncio.run(talk())
    assert encoding == ("gzip" if packed else "")
    text = gzip.decompress(byte_count) if packed else byte_count
    assert text.startswith(b'{"openapi"')


def test_a_body_that_is_too_large_is_refused_before_it_is_read_whole(refused):
    reason = refused(413, "PUT", "/api/vhosts/v", data=b" " * 70_000)
    assert reason == "body: must have at most 65536 bytes"


ROLES = {
    "mon": {MONITORING},
    "pol": {POLICYMAKER},
    "alice": set(),
    "guest": {MONITORING, POLICYMAKER, ADMINISTRATOR},
}
SPECIAL = {MONITORING, POLICYMAKER, ADMINISTRATOR}


def test_each_route_asks_for_the_tag_of_its_row(node):
    """Users with any tag, at all paths: the row decides, whatever the handler does."""

    async def talk() -> None:
        server = ManagementServer(node, node)
        port = await server.start("127.0.0.1", 0)
        rows = [row for row in server.routes() if row.role != NOBODY]
        assert {row.role for row in rows} >= SPECIAL
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
                for row in rows:
                    path = re.sub(r"\{\w+\}", "nothing", row.template.replace("{kind}", "q"))
                    for user, roles in ROLES.items():
                        status, text = await ask(session, row.method, path, user)
                        refused = row.role in SPECIAL - roles
                        assert refused == ("tags: this is for" in text), (row, user, text)
                        assert not refused or status == 403
                    assert (await ask(session, row.method, path, "app"))[0] == 403
        finally:
            await server.stop()

    async def ask(
        session: aiohttp.ClientSession, method: str, path: str, user: str
    ) -> tuple[int, str]:
        login = base64.b64encode(f"{user}:{user}".encode()).decode()
        headers = {"Authorization": f"Basic {login}"}
        async with session.request(method, path, json={}, headers=headers) as answer:
            return answer.status, await answer.text()

    asyncio.run(talk())


def test_guard_lets_pass_what_asks_for_nobody(node):
    guard = Guard(LoginService(node, node.view), HttpMeter())
    rows = ManagementServer(node, node).routes()
    for row in rows:
        assert (guard.guarded(row) is row.handler) == (row.role == NOBODY), row.path


@pytest.mark.parametrize(
    ("path", "status"), [("/api/whoami", 429), ("/api/nothing", 429), ("/api/health/live", 200)]
)
def test_past_the_bound_of_requests_that_wait_all_but_probes_are_refused(node, path, status):
    async def talk() -> tuple[int, Any, str]:
        calls = CallGate()
        server = ManagementServer(node, node, calls=calls)
        port = await server.start("127.0.0.1", 0)
        try:
            async with aiohttp.ClientSession(headers=LOGIN) as session:
                calls.turns._call_later = lambda seconds, callback: None
                calls.turns.took(CallClient(), CALL_STEP_US + 1)  # a pause without an end
                calls.turns.waiting = CALLS_WAITING_MAX
                async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                    return answer.status, await answer.json(), answer.headers.get("Retry-After", "")
        finally:
            await server.stop()

    found, body, retry = asyncio.run(talk())
    assert found == status
    if status == 429:
        assert body["error"] == "too_many_requests"
        assert f"{CALLS_WAITING_MAX} calls wait for their turn" in body["reason"]
        assert retry == "1"
