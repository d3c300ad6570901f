"""A small client of the brokers' HTTP API."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import aiohttp
import msgspec

from headrace_operator.answer import read_answer
from headrace_operator.expected_error import HttpError

REQUEST_SECONDS: Final = 15.0  # until a node counts as not answering; it may wait for others
FORGET_SECONDS: Final = 40.0  # likewise, when it waits for replicas to leave a node
CONNECT_SECONDS: Final = 3.0
AT_ONCE: Final = 8  # requests under way for one question about many queues


class Endpoint(NamedTuple):
    """Addresses of nodes, and the login for them.

    Attributes:
        urls: such as http://10.0.0.1:15672, in the order in which they are asked.
        username: of an administrator.
        password: theirs.
        tls: by which their certificates are judged; None in the clear.
        server_name: that their certificates are for; "" for what stands in the URL.
    """

    urls: tuple[str, ...]
    username: str
    password: str
    tls: ssl.SSLContext | None = None
    server_name: str = ""


class BrokerError(HttpError):
    """A node refused, or none answered."""

    @property
    def unreachable(self) -> bool:
        """True if no node has answered."""
        return self.status == 0

    @property
    def temporary(self) -> bool:
        """True if it may change by itself in a moment, without a change of a resource."""
        return self.status in (0, 401, 408, 409, 423, 429) or self.status >= 500


class BrokerApi:
    """Talks to the nodes of one cluster: to the first of them that answers.

    Calls raise BrokerError where it refuses, or none answers.

    Args:
        session: whose connections are used.
        endpoint: where the nodes are.
    """

    def __init__(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        self._session = session
        self._endpoint = endpoint

    @property
    def login(self) -> tuple[str, str]:
        """Name and password of the administrator that calls."""
        return self._endpoint.username, self._endpoint.password

    def logged_in(self, username: str, password: str) -> BrokerApi:
        """Return a client of the same nodes for another log-in."""
        endpoint = self._endpoint._replace(username=username, password=password)
        return BrokerApi(self._session, endpoint)

    def without(self, url: str) -> BrokerApi:
        """Return a client that does not ask one of the nodes."""
        urls = tuple([each for each in self._endpoint.urls if each != url])
        return BrokerApi(self._session, self._endpoint._replace(urls=urls))

    async def get(self, *parts: str) -> Any:
        """Return the object at a path, None without one."""
        try:
            return await self.request("GET", path_of(*parts))
        except BrokerError as error:
            if error.status == 404:
                return None
            raise

    async def rows(self, *parts: str) -> list[dict[str, Any]]:
        """Return the rows of a listing."""
        found: list[dict[str, Any]] = await self.request("GET", path_of(*parts)) or []
        return found

    async def put(self, body: Any, *parts: str) -> None:
        """Set the object at a path."""
        await self.request("PUT", path_of(*parts), body)

    async def post(self, body: Any, *parts: str) -> Any:
        """Ask for something to be done."""
        return await self.request("POST", path_of(*parts), body)

    async def delete(self, *parts: str, query: str = "", seconds: float = REQUEST_SECONDS) -> Any:
        """Delete the object at a path, if there is one."""
        path = path_of(*parts) + (f"?{query}" if query else "")
        try:
            return await self.request("DELETE", path, seconds=seconds)
        except BrokerError as error:
            if error.status == 404:
                return None
            raise

    async def request(
        self, method: str, path: str, body: Any = None, seconds: float = REQUEST_SECONDS
    ) -> Any:
        """Make a request, and return the answer.

        Args:
            method: of HTTP.
            path: quoted, with its query.
            body: becomes JSON; None for none.
            seconds: how long a node may be silent.
        """
        problem = "there is no node to ask"
        for url in self._endpoint.urls:
            try:
                return await self._once(url, method, path, body, seconds)
            except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError) as error:
                problem = f"{url}: {str(error) or type(error).__name__}"
            except BrokerError as error:
                if error.status != 503:  # another one may be better off
                    raise
                if url == self._endpoint.urls[-1]:
                    raise
        raise BrokerError(0, problem)

    async def _once(self, url: str, method: str, path: str, body: Any, seconds: float) -> Any:
        endpoint = self._endpoint
        login = aiohttp.encode_basic_auth(endpoint.username, endpoint.password)
        headers = {"Authorization": login, "Content-Type": "application/json"}
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        async with self._session.request(
            method,
            f"{url}{path}",
            data=msgspec.json.encode(body) if body is not None else None,
            headers=headers,
            timeout=timeout,
            ssl=endpoint.tls if endpoint.tls is not None else True,
            server_hostname=endpoint.server_name or None,
        ) as answer:
            data = await read_answer(answer)
            status = answer.status
        found = msgspec.json.decode(data) if data else None
        if status >= 400:
            reason = found.get("reason") if isinstance(found, dict) else None
            raise BrokerError(status, str(reason or f"status {status}"))
        return found


async def each_of(questions: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """Ask many questions, a few at a time, and return the answers in their order."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def ask(question: Callable[[], Awaitable[Any]]) -> Any:
        async with slots:
            return await question()

    return list(await asyncio.gather(*[ask(question) for question in questions]))


def path_of(*parts: str) -> str:
    """Return "/api/..." with each part as one segment."""
    return "/api/" + "/".join(quote(part, safe="") for part in parts)
