"""One row for each thing that the API does: what registers it also describes it.

The server registers these rows and nothing else, checks the role that a row asks for before it
calls the handler, and makes the OpenAPI document of them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# Roles: the tags of RabbitMQ's management, and anybody at all.
NOBODY: Final = ""  # no log-in is asked for
MANAGEMENT: Final = "management"
POLICYMAKER: Final = "policymaker"
MONITORING: Final = "monitoring"
ADMINISTRATOR: Final = "administrator"

JSON: Final = "application/json"

_TEXT: Final[dict[str, Any]] = {"type": "string"}
_NAME: Final = re.compile(r"\{(\w+)(?::([^{}]*))?\}")


class Parameter(NamedTuple):
    """A parameter of a query, or a header."""

    name: str
    text: str
    schema: dict[str, Any] = _TEXT  # JSON schema of its values
    place: str = "query"  # "query" or "header"


class Route(NamedTuple):
    """Row of the route table: a method, a path and its answer."""

    method: str  # GET, PUT, POST or DELETE; GET answers HEAD as well
    path: str  # as aiohttp's router has it; a name in braces may have an expression
    handler: Handler
    summary: str  # one sentence for people
    role: str = MANAGEMENT  # tag that is needed, NOBODY where no log-in is
    query: tuple[Parameter, ...] = ()  # parameters
    body: Any = None  # type of the body, None where none is read
    answer: Any = None  # type of what is answered with 200, None where nothing is
    codes: tuple[int, ...] = ()  # statuses beside those of method, path and role
    listing: bool = False  # the answer is a list of `answer` that may be asked for in pages
    tag: str = ""  # heading under which it is described; "" for the first word of the path
    media: str = JSON  # content type of the answer
    failed: Any = None  # type of what is answered with 503 beside an error, None for nothing else
    values: Mapping[str, dict[str, Any]] = MappingProxyType({})  # JSON schemas of names in the path
    unpaced: bool = False  # answered at once, however many other requests wait for their turn

    @property
    def names(self) -> dict[str, str]:
        """Names in the path, and the expression of each, "" for any text."""
        return {match[1]: match[2] or "" for match in _NAME.finditer(self.path)}

    @property
    def template(self) -> str:
        """The path as OpenAPI has it: without expressions."""
        return _NAME.sub(lambda match: "{" + match[1] + "}", self.path)

    @property
    def heading(self) -> str:
        """Heading of its description."""
        if self.tag:
            return self.tag
        words = [word for word in self.path.split("/") if word and word != "api"]
        return words[0]


H = TypeVar("H", bound=Callable[..., Awaitable[web.StreamResponse]])


def route(
    method: str, path: str, summary: str, role: str = MANAGEMENT, **more: Any
) -> Callable[[H], H]:
    """Decorate a method of `Endpoints` with a route that it answers; see `Route`."""

    def decorate(handler: H) -> H:
        rows: list[Route] = vars(handler).setdefault("routes", [])
        rows.insert(0, Route(method, path, handler, summary, role, **more))
        return handler

    return decorate


def listed(
    path: str, summary: str, answer: Any, role: str = MANAGEMENT, **more: Any
) -> Callable[[H], H]:
    """Decorate what answers with a list."""
    return route("GET", path, summary, role, answer=answer, listing=True, **more)


def got(
    path: str, summary: str, answer: Any, role: str = MANAGEMENT, **more: Any
) -> Callable[[H], H]:
    """Decorate what answers with one thing."""
    return route("GET", path, summary, role, answer=answer, **more)


def put(
    path: str, summary: str, body: Any, role: str = MANAGEMENT, **more: Any
) -> Callable[[H], H]:
    """Decorate what creates or changes something."""
    return route("PUT", path, summary, role, body=body, **more)


def posted(
    path: str, summary: str, body: Any, role: str = MANAGEMENT, **more: Any
) -> Callable[[H], H]:
    """Decorate what does something."""
    return route("POST", path, summary, role, body=body, **more)


def deleted(path: str, summary: str, role: str = MANAGEMENT, **more: Any) -> Callable[[H], H]:
    """Decorate what removes something."""
    return route("DELETE", path, summary, role, **more)
