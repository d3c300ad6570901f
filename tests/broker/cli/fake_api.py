"""A node's API that answers as a test wants it."""

from __future__ import annotations

import ssl
from typing import Any

from headrace_broker.cli.session.api_client import ApiAnswer, ApiClient, ApiError


class FakeApi(ApiClient):
    """Stands for the class `ApiClient` and its objects; records requests.

    Attributes:
        asked: log-ins and requests.
        answers: to the next requests.
        tls: what checks the node, None in the clear.
    """

    def __init__(self) -> None:
        super().__init__("")
        self.asked: list[tuple[Any, ...]] = []
        self.answers: list[ApiAnswer | ApiError] = []
        self.tls: ssl.SSLContext | None = None

    def __call__(
        self, address: str, user: str, password: str, tls: ssl.SSLContext | None
    ) -> FakeApi:
        self.asked.append((address, user, password))
        self.address = address
        self.tls = tls
        return self

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        seconds: float = 0.0,
    ) -> ApiAnswer:
        self.asked.append((method, path, body))
        answer = self.answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer
