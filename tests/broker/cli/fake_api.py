"""A node's API that answers as a test wants it."""

from __future__ import annotations

from typing import Any

from headrace_broker.cli.api_client import ApiAnswer, ApiClient, ApiError


class FakeApi(ApiClient):
    """Stands for the class `ApiClient` and for what it makes; notes who asks for what.

    Attributes:
        asked: log-ins and requests.
        answers: to the next requests.
    """

    def __init__(self) -> None:
        super().__init__("")
        self.asked: list[tuple[Any, ...]] = []
        self.answers: list[ApiAnswer | ApiError] = []

    def __call__(self, address: str, user: str, password: str) -> FakeApi:
        self.asked.append((address, user, password))
        self.address = address
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
