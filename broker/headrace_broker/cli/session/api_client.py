"""A small client of a node's HTTP API, for commands."""

from __future__ import annotations

import base64
import contextlib
import http.client
import ssl
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from headrace_broker.config.configuration import split_address

PARTIAL_HEADER = "X-Headrace-Partial"  # of a listing that lacks something
SERVER = "Headrace"  # what nodes call themselves in a header, unless a proxy between writes its own
REQUEST_S_MAX = 8.0  # seconds until a node counts as not answering; it may wait five for others


class ApiError(Exception):
    """A node did not answer, or refused."""


class ApiAnswer(NamedTuple):
    """Answer of a node."""

    status: int  # of HTTP
    body: Any  # decoded from JSON, None for none
    partial: str = ""  # what a listing lacks, "" for nothing

    @property
    def reason(self) -> str:
        """Reason of a refusal."""
        found = self.body.get("reason") if isinstance(self.body, dict) else None
        return str(found or f"status {self.status}")


class ApiPlace(NamedTuple):
    """Address of a node's API; `scheme` is "http", "https", or "" where none was named."""

    scheme: str
    host: str
    port: int


def api_place(address: str) -> ApiPlace:
    """Take apart HOST:PORT, or the same as a URL without a path; ValueError for anything else."""
    scheme, _, place = address.rpartition("://")
    if scheme in ("", "http", "https"):
        with contextlib.suppress(ValueError):
            return ApiPlace(scheme, *split_address(place.removesuffix("/")))
    forms = "HOST:PORT, http:// or https:// before it, the port 0 to 65535"
    raise ValueError(f"'{address}' must be {forms}")


class ApiClient:
    """Talks to one node."""

    def __init__(
        self,
        address: str,
        user: str = "guest",
        password: str = "guest",  # noqa: S107
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.address = address  # HOST:PORT of its HTTP listener, or a URL without a path
        self._tls = tls  # checks the node; None: not, or by the system's authorities (HTTPS)
        self._recognised = False
        login = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {login}"}

    def get(self, path: str) -> tuple[int, Any]:
        """Return status and decoded JSON body of a GET; ApiError as `request`."""
        answer = self.request("GET", path)
        return answer.status, answer.body

    def request(
        self,
        method: str,  # of HTTP
        path: str,  # quoted, with its query
        body: Any = None,  # becomes JSON; None for no body
        headers: dict[str, str] | None = None,
        seconds: float = REQUEST_S_MAX,  # how long the node may be silent
    ) -> ApiAnswer:
        """Make a request.

        Raises ApiError: no answer of a node in time; ValueError: the address cannot be one.
        """
        answer, server = self._exchange(method, path, body, headers, seconds)
        if not self._recognised and answer.status < http.HTTPStatus.MULTIPLE_CHOICES:
            if server != SERVER:
                self._recognise(path, seconds)
            self._recognised = True
        return answer

    def _recognise(self, path: str, seconds: float) -> None:
        """Ask who it is that answers without a node's name: a proxy may have taken it away."""
        found, _ = self._exchange("GET", "/api/overview", None, None, seconds)
        if found.status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
            return  # a user who may not ask
        if not isinstance(found.body, dict) or found.body.get("product_name") != SERVER:
            raise ApiError(
                f"{self.address}{path}: something answers there, but it is no node of Headrace "
                "(is it the address of the HTTP listener?)"
            )

    def _exchange(
        self, method: str, path: str, body: Any, headers: dict[str, str] | None, seconds: float
    ) -> tuple[ApiAnswer, str]:
        """Return an answer, and what its server calls itself."""
        connection = self._connection(seconds)
        data = msgspec.json.encode(body) if body is not None else None
        try:
            connection.request(method, path, data, {**self._headers, **(headers or {})})
            response = connection.getresponse()
            text = response.read()
            decoded = msgspec.json.decode(text) if text else None
            partial = response.getheader(PARTIAL_HEADER, "")
            answer = ApiAnswer(response.status, decoded, partial)
            return answer, response.getheader("Server", "")
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            raise ApiError(f"{self.address}{path}: {error}") from error
        finally:
            connection.close()

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        scheme, host, port = api_place(self.address)
        tls = self._tls
        if scheme == "http" and tls is not None:
            raise ValueError(f"{self.address}: TLS is asked for, so it must be https://")
        if scheme == "https" and tls is None:
            tls = ssl.create_default_context()
        if tls is None:
            return http.client.HTTPConnection(host, port, timeout=seconds)
        return http.client.HTTPSConnection(host, port, timeout=seconds, context=tls)

    def not_ready_reason(self) -> str:
        """Return "" when the node is ready for clients, otherwise why not."""
        try:
            status, body = self.get("/api/health/ready")
        except ApiError:
            return "no answer"
        return "" if status == 200 else str(body.get("reason", status))

    def overview(self) -> dict[str, Any] | None:
        """Return GET /api/overview, None when the node does not answer or refuses."""
        try:
            status, body = self.get("/api/overview")
        except ApiError:
            return None
        return body if status == 200 and isinstance(body, dict) else None


def path_of(*parts: str) -> str:
    """Return "/api/..." with each part as one segment."""
    return "/api/" + "/".join(quote(part, safe="") for part in parts)
