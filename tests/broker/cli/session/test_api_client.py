"""How the address of a node's API may be written."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Iterator

import pytest

from headrace_broker.cli.api_client import ApiClient, ApiError


class Node(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.HTTPServer(("127.0.0.1", 0), Node) as server:
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
