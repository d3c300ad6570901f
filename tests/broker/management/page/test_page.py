"""The page's files, log-ins and events over a real socket, with a fake node behind it."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
import pytest

from headrace_broker.catalog.command import DeleteUser, PutUser
from headrace_broker.management.page.files import load_files
from headrace_broker.management.server import ManagementServer
from headrace_broker.model.definition import User
from headrace_broker.model.flow import LEADERLESS, LIMIT_NAMES
from headrace_broker.model.flow_status import NodeFlow
from headrace_broker.model.limits import PAGE_LOGIN_BYTES_MAX
from headrace_broker.runtime.explain.flow_report import Listing
from headrace_broker.runtime.security.page_logins import LoginsBusyError

CHANGE = "X-Headrace-Change"


class Browser:
    """Keeps cookies; asks one server.

    Attributes:
        change: the token of the log-in.
    """

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self.session = session
        self.base = base
        self.change = ""

    async def ask(self, method: str, path: str, **more: Any) -> tuple[int, Any, Any]:
        """Status, headers, and body of an answer."""
        async with self.session.request(method, self.base + path, **more) as answer:
            text = await answer.text()
            found = json.loads(text) if answer.content_type == "application/json" else text
            return answer.status, answer.headers, found

    async def log_in(self, user: str = "guest", **more: Any) -> tuple[int, Any, Any]:
        body = {"user": user, "password": user}
        found = await self.ask("POST", "/page/login", json=body, **more)
        if found[0] == 200:
            self.change = found[2]["change_token"]
        return found


@pytest.fixture
def browse(node: Any) -> Callable[..., None]:
    """Runs a test with a browser before a server of its own."""

    def run(test: Callable[[Browser], Coroutine[Any, Any, None]]) -> None:
        async def all_of_it() -> None:
            server = ManagementServer(node, node)
            port = await server.start("127.0.0.1", 0)
            jar = aiohttp.CookieJar(unsafe=True)
            try:
                async with aiohttp.ClientSession(cookie_jar=jar) as session:
                    await test(Browser(session, f"http://127.0.0.1:{port}"))
            finally:
                await server.stop()

        asyncio.run(all_of_it())

    return run


# Files


def test_the_page_is_for_everybody_and_keeps_everything_else_out(browse):
    async def check(browser: Browser) -> None:
        status, headers, text = await browser.ask("GET", "/")
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert "<title>Headrace</title>" in text
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert "*" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"

    browse(check)


def test_a_file_that_is_the_same_is_not_sent_again(browse):
    async def check(browser: Browser) -> None:
        _, headers, text = await browser.ask("GET", "/page/static/main.js")
        assert headers["Content-Type"] == "text/javascript; charset=utf-8"
        assert headers["Cache-Control"] == "no-cache"
        same = {"If-None-Match": f'"other", {headers["ETag"]}'}
        status, again, body = await browser.ask("GET", "/page/static/main.js", headers=same)
        assert (status, body, again["ETag"]) == (304, "", headers["ETag"])
        assert "Content-Security-Policy" in again
        other = {"If-None-Match": '"other"'}
        assert (await browser.ask("GET", "/page/static/main.js", headers=other))[2] == text

    browse(check)


@pytest.mark.parametrize("name", ["nothing.js", "../server.py", "%2e%2e%2fserver.py", ""])
def test_other_files_are_not_there(browse, name):
    async def check(browser: Browser) -> None:
        assert (await browser.ask("GET", f"/page/static/{name}"))[0] in (401, 404)

    browse(check)


def test_files_name_only_files_that_are_there_and_nobody_else():
    files = load_files()
    for name, file in files.items():
        text = file.content.decode()
        for found in re.findall(r'from "\./([a-z_]+\.js)"|/page/static/([a-z_.]+)"', text):
            assert (found[0] or found[1]) in files, name
        outside = set(re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]+", text))
        assert outside <= {"http://www.w3.org"}, name
        assert not re.search(r"<script(?! src| type=\"module\" src)| on[a-z]+=|style=", text), name
        assert "innerHTML" not in text, name


def test_the_page_knows_every_limit_by_its_name():
    text = load_files()["part.js"].content.decode()
    table = text[text.index("export const LIMITS") :].partition("};")[0]
    named = set(re.findall(r"^  \"?([a-z-]+)\"?: ", table, re.MULTILINE))
    assert named == {*LIMIT_NAMES[1:], LEADERLESS}


def test_files_are_short():
    for name, file in load_files().items():
        lines = file.content.decode().splitlines()
        assert len(lines) <= 500, name


# Log-ins


def test_who_logs_in_is_known_by_a_cookie_that_scripts_do_not_see(browse):
    async def check(browser: Browser) -> None:
        assert (await browser.ask("GET", "/page/session"))[2] is None
        status, headers, told = await browser.log_in()
        assert status == 200
        cookie = headers["Set-Cookie"]
        assert cookie.startswith("headrace-test=1.")
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert "Path=/" in cookie
        assert "Secure" not in cookie  # nothing here is encrypted
        assert (told["user"], told["administers"], told["node"]) == ("guest", True, "n1")
        assert (await browser.ask("GET", "/page/session"))[2] == told
        status, _, who = await browser.ask("GET", "/api/whoami")
        assert (status, who["name"]) == (200, "guest")

    browse(check)


def test_behind_tls_the_cookie_is_for_tls_only(browse):
    async def check(browser: Browser) -> None:
        _, headers, _ = await browser.log_in(headers={"X-Forwarded-Proto": "https"})
        assert "Secure" in headers["Set-Cookie"]

    browse(check)


def test_a_wrong_password_and_a_user_without_a_tag_are_refused(browse):
    async def check(browser: Browser) -> None:
        wrong = {"user": "guest", "password": "wrong"}
        status, headers, told = await browser.ask("POST", "/page/login", json=wrong)
        assert (status, told["reason"]) == (401, "user or password is wrong")
        assert "WWW-Authenticate" not in headers  # the browser would ask, too
        status, _, told = await browser.log_in("app")
        assert (status, told["reason"]) == (403, "tags: this user may not manage the broker")
        assert (await browser.ask("GET", "/api/whoami"))[0] == 401

    browse(check)


def test_a_log_in_has_to_be_json_and_small(browse):
    async def check(browser: Browser) -> None:
        form = {"user": "guest", "password": "guest"}
        assert (await browser.ask("POST", "/page/login", data=form))[0] == 415
        large = {**form, "more": "x" * PAGE_LOGIN_BYTES_MAX}
        assert (await browser.ask("POST", "/page/login", json=large))[0] == 413
        status, _, told = await browser.ask("POST", "/page/login", json={"user": "guest"})
        assert (status, told["reason"]) == (400, "password: is missing")

    browse(check)


def test_a_change_takes_the_token_that_only_the_page_knows(browse, node):
    async def check(browser: Browser) -> None:
        await browser.log_in()
        path = "/api/queues/%2F/orders"
        status, _, told = await browser.ask("PUT", path, json={})
        assert (status, told["reason"]) == (403, f"{CHANGE}: is not that of the log-in")
        wrong = {CHANGE: "0" * 64}
        assert (await browser.ask("PUT", path, json={}, headers=wrong))[0] == 403
        right = {CHANGE: browser.change}
        assert (await browser.ask("PUT", path, json={}, headers=right))[0] == 201

    browse(check)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "null"},
    ],
)
@pytest.mark.parametrize("basic", [False, True])
def test_a_change_that_another_page_asks_for_is_refused(browse, headers, basic):
    async def check(browser: Browser) -> None:
        login = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
        if not basic:
            assert (await browser.log_in(headers=headers))[0] == 403
            await browser.log_in()
            login = {CHANGE: browser.change}
        path, shown = "/api/queues/%2F/q", {**login, **headers}
        status, _, told = await browser.ask("PUT", path, json={}, headers=shown)
        assert (status, told["reason"]) == (403, "Origin: must be this node's own page, or none")

    browse(check)


def test_a_log_out_ends_the_log_in(browse):
    async def check(browser: Browser) -> None:
        await browser.log_in()
        token = next(iter(browser.session.cookie_jar)).value
        assert (await browser.ask("POST", "/page/logout"))[0] == 403
        assert (await browser.ask("POST", "/page/logout", headers={CHANGE: browser.change}))[
            0
        ] == 204
        assert (await browser.ask("GET", "/page/session"))[2] is None
        stolen = {"Cookie": f"headrace-test={token}"}
        assert (await browser.ask("GET", "/api/whoami", headers=stolen))[0] == 401

    browse(check)


def test_who_asks_by_the_page_is_not_asked_by_the_browser(browse):
    async def check(browser: Browser) -> None:
        _, headers, _ = await browser.ask("GET", "/api/whoami", headers={CHANGE: ""})
        assert "WWW-Authenticate" not in headers
        _, headers, _ = await browser.ask("GET", "/api/whoami")
        assert headers["WWW-Authenticate"] == 'Basic realm="Headrace"'

    browse(check)


# Events


class Report:
    """Answers no question about flow control but that about nodes."""

    async def ask(self, question: Any, seconds: float) -> Listing:
        return Listing([NodeFlow("n1", figures={"buffered_bytes": 7})], ("n2",))


async def events(browser: Browser, path: str, count: int) -> list[tuple[str, Any]]:
    """The first events of a stream."""
    found: list[tuple[str, Any]] = []
    name = ""
    async with browser.session.get(browser.base + path) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["Cache-Control"] == "no-store"
        async for line in answer.content:
            text = line.decode().rstrip("\n")
            if text.startswith("event: "):
                name = text.removeprefix("event: ")
            elif text.startswith("data: "):
                found.append((name, json.loads(text.removeprefix("data: "))))
                if len(found) == count:
                    break
    return found


def test_events_tell_all_at_first_and_then_what_changes(browse, node):
    node.flow_report = Report()

    async def check(browser: Browser) -> None:
        await browser.log_in()
        [(first, cluster), (second, view)] = await events(browser, "/page/events?view=queues", 2)
        assert (first, second) == ("cluster", "view")
        assert cluster["whole"]
        assert cluster["put"]["about"]["cluster"] == "test"
        assert cluster["put"]["about"]["missing"] == ["n2"]
        assert view["put"]["more"] == {"shown": 0, "total": 0, "missing": ["n2"]}

    browse(check)


def test_a_stream_ends_with_the_log_in(browse, node):
    node.flow_report = Report()

    async def check(browser: Browser) -> None:
        await browser.log_in()
        async with browser.session.get(browser.base + "/page/events?view=quiet") as answer:
            async for line in answer.content:
                if line == b"event: view\n":
                    node.do(PutUser(User("guest", b"new", b"new", ("administrator",))))
                if line == b"event: over\n":
                    break
            else:
                raise AssertionError("nobody has said that it is over")

    browse(check)


@pytest.mark.parametrize(
    "command",
    [
        DeleteUser("mon"),
        PutUser(User("mon", b"s", b"h", ())),
        PutUser(User("mon", b"new", b"new", ("monitoring",))),
    ],
)
def test_a_stream_of_a_program_ends_when_its_user_is_another_one(browse, node, command):
    node.flow_report = Report()
    login = {"Authorization": f"Basic {base64.b64encode(b'mon:mon').decode()}"}

    async def check(browser: Browser) -> None:
        url = browser.base + "/page/events?view=quiet"
        async with asyncio.timeout(10), browser.session.get(url, headers=login) as answer:
            async for line in answer.content:
                if line == b"event: view\n":
                    node.do(command)
                if line == b"event: over\n":
                    return
        raise AssertionError("nobody has said that it is over")

    browse(check)


BASIC = {"Authorization": f"Basic {base64.b64encode(b'mon:mon').decode()}"}


@pytest.mark.parametrize("cookie", ["", "1.made-up", "headrace"])
def test_a_log_out_without_a_log_in_ends_no_stream(browse, node, cookie):
    node.flow_report = Report()
    headers = {**BASIC, "Cookie": f"headrace-test={cookie}"} if cookie else BASIC

    async def check(browser: Browser) -> None:
        url = browser.base + "/page/events?view=quiet"
        out = False
        async with asyncio.timeout(10), browser.session.get(url, headers=headers) as answer:
            async for line in answer.content:
                if line == b"event: view\n":
                    assert (await browser.ask("POST", "/page/logout", headers=headers))[0] == 204
                    out = True
                if line == b"event: over\n":
                    raise AssertionError("somebody else has logged out")
                if out and line == b":\n":  # it has looked again, and goes on
                    return
        raise AssertionError("the stream has ended")

    browse(check)


def test_a_log_out_beside_a_password_ends_no_log_in_and_asks_nobody(browse, node):
    async def check(browser: Browser) -> None:
        await browser.log_in()
        token = next(iter(browser.session.cookie_jar)).value
        ended: list[str] = []
        inner = node.page_logins.end

        async def end(token: str) -> None:
            ended.append(token)
            await inner(token)

        node.page_logins.end = end
        shown = {"Cookie": f"headrace-test={token}"}
        for cookie in (shown, {"Cookie": "headrace-test=1.made-up"}):
            out = await browser.ask("POST", "/page/logout", headers={**BASIC, **cookie})
            assert out[0] == 204
        assert (ended, await node.page_logins.find(token)) == ([], node.catalog.user("guest"))
        out = await browser.ask("POST", "/page/logout", headers={**shown, CHANGE: browser.change})
        assert (out[0], ended) == (204, [token])

    browse(check)


def test_a_log_in_that_cannot_be_asked_about_now_is_no_log_in_that_is_over(browse, node):
    async def check(browser: Browser) -> None:
        async def busy(token: str) -> User | None:
            raise LoginsBusyError

        node.page_logins.find = busy
        shown = {"Cookie": "headrace-test=2.x"}
        status, _, told = await browser.ask("GET", "/api/whoami", headers=shown)
        assert (status, told["error"]) == (503, "unavailable")
        assert told["reason"].startswith("other nodes are being asked about too many log-ins")

    browse(check)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("", "view: must be one of channels, connection"),
        ("?view=cluster", "view: must be one of"),
        (f"?view=queues&name={'x' * 256}", "name: must have at most 255 bytes"),
    ],
)
def test_a_view_that_is_not_there_is_refused(browse, query, reason):
    async def check(browser: Browser) -> None:
        await browser.log_in()
        status, _, told = await browser.ask("GET", f"/page/events{query}")
        assert status == 400
        assert told["reason"].startswith(reason)

    browse(check)


def test_events_are_for_who_is_logged_in(browse):
    async def check(browser: Browser) -> None:
        status, headers, _ = await browser.ask("GET", "/page/events?view=queues")
        assert status == 401
        assert "WWW-Authenticate" not in headers

    browse(check)
