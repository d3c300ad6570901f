"""The HTTP API over a real socket, with a fake node behind it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from headrace_broker.management.server import ManagementServer


class Api:
    """Makes requests; each goes to a server of its own."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.headers: Any = {}  # of the last answer

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        user: str = "guest",
        headers: dict[str, str] | None = None,
        data: bytes | None = None,
    ) -> tuple[int, Any]:
        """Status and decoded body, None without one."""
        login = base64.b64encode(f"{user}:{user}".encode()).decode()
        more = {"Authorization": f"Basic {login}", **(headers or {})}

        async def talk() -> tuple[int, Any]:
            server = ManagementServer(self.node, self.node)
            port = await server.start("127.0.0.1", 0)
            try:
                async with (
                    aiohttp.ClientSession() as session,
                    session.request(
                        method, f"http://127.0.0.1:{port}{path}", json=body, data=data, headers=more
                    ) as answer,
                ):
                    self.headers = answer.headers.copy()
                    text = await answer.read()
                    return answer.status, await answer.json() if text else None
            finally:
                await server.stop()

        return asyncio.run(talk())


@pytest.fixture
def node(fake_node: Any) -> Any:
    return fake_node


@pytest.fixture
def api(fake_node: Any) -> Api:
    return Api(fake_node)


@pytest.fixture
def refused(api: Api) -> Callable[..., str]:
    """Makes a request that must be refused with a status, and returns the reason."""

    def request(status: int, method: str, path: str, *args: Any, **more: Any) -> str:
        found, body = api(method, path, *args, **more)
        assert found == status, body
        return str(body["reason"])

    return request
