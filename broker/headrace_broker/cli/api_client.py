"""A small client of a node's HTTP API, for commands."""

from __future__ import annotations

import base64
import http.client
from typing import Any

import msgspec

from headrace_broker.config import split_address

REQUEST_S_MAX = 2.0  # seconds until a node counts as not answering


class ApiError(Exception):
    """A node did not answer, or refused."""


class ApiClient:
    """Talks to one node.

    Args:
        address: HOST:PORT of its HTTP listener.
        user: a user of the broker.
        password: theirs.
    """

    def __init__(self, address: str, user: str = "guest", password: str = "guest") -> None:  # noqa: S107
        self.address = address
        login = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._headers = {"Authorization": f"Basic {login}"}

    def get(self, path: str) -> tuple[int, Any]:
        """Return status and decoded JSON body of a GET.

        Raises:
            ApiError: no answer in time, or one that is no JSON.
        """
        host, port = split_address(self.address)
        connection = http.client.HTTPConnection(host, port, timeout=REQUEST_S_MAX)
        try:
            connection.request("GET", path, headers=self._headers)
            response = connection.getresponse()
            return response.status, msgspec.json.decode(response.read())
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            raise ApiError(f"{self.address}{path}: {error}") from error
        finally:
            connection.close()

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
