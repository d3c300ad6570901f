"""Syntax of the address of a node's API."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest
from click.testing import CliRunner

from headrace_broker.cli.main import main
from headrace_broker.cli.session.api_client import ApiClient, ApiError


class Place(http.server.BaseHTTPRequestHandler):
    """Answers with the value set for a path, by default an empty object."""

    called = "Headrace"
    answers: ClassVar[dict[str, tuple[int, bytes]]] = {}

    def do_GET(self) -> None:
        status, body = self.answers.get(self.path, (200, b"{}"))
        self.send_response_only(status)
        self.send_header("Server", self.called)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_GET  # noqa: N815 - as the base class has it

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(Place, "answers", {})
    with http.server.HTTPServer(("127.0.0.1", 0), Place) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("form", ["127.0.0.1:{}", "http://127.0.0.1:{}", "http://127.0.0.1:{}/"])
def test_an_address_may_be_a_url(port: int, form: str) -> None:
    assert ApiClient(form.format(port)).get("/api/whoami") == (200, {})


def test_an_https_url_is_asked_over_tls(port: int) -> None:
    with pytest.raises(ApiError, match=rf"https://127.0.0.1:{port}/api/whoami: .*SSL"):
        ApiClient(f"https://127.0.0.1:{port}").get("/api/whoami")


@pytest.mark.parametrize(
    ("address", "tls", "rule"),
    [
        ("ftp://127.0.0.1:1", None, "must be HOST:PORT, http:// or https:// before it"),
        ("http://127.0.0.1:1", ssl.create_default_context(), "so it must be https://"),
        ("http://127.0.0.1", None, "'http://127.0.0.1' must be HOST:PORT"),
    ],
)
def test_another_address_is_refused(address: str, tls: ssl.SSLContext | None, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        ApiClient(address, tls=tls).get("/api/whoami")


OVERVIEW = "/api/overview"


@pytest.mark.parametrize("overview", [(200, b"{}"), (200, b"[1]"), (404, b"{}"), (500, b"null")])
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_something_else_that_answers_with_json_is_no_node(
    port: int, monkeypatch: pytest.MonkeyPatch, overview: tuple[int, bytes], method: str
) -> None:
    monkeypatch.setattr(Place, "called", "nginx")
    Place.answers[OVERVIEW] = overview
    client = ApiClient(f"127.0.0.1:{port}")
    for _ in range(2):
        with pytest.raises(ApiError, match=rf"^127.0.0.1:{port}/api/vhosts: .* no node of Headr"):
            client.request(method, "/api/vhosts")


@pytest.mark.parametrize("overview", [(200, b'{"product_name": "Headrace"}'), (403, b"{}")])
def test_node_behind_a_proxy_is_a_node(
    port: int, monkeypatch: pytest.MonkeyPatch, overview: tuple[int, bytes]
) -> None:
    monkeypatch.setattr(Place, "called", "nginx")
    Place.answers[OVERVIEW] = overview
    assert ApiClient(f"127.0.0.1:{port}").get("/api/vhosts") == (200, {})


def test_commands_say_that_what_answers_is_no_node(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Place, "called", "nginx")
    for words in (["vhost", "list"], ["flow", "limits"], ["queue", "list"], ["ctl", "status"]):
        result = CliRunner().invoke(main, [*words, "--api", f"127.0.0.1:{port}"])
        assert "no node of Headrace" in result.output, (words, result.output, result.exception)
        assert isinstance(result.exception, SystemExit)
