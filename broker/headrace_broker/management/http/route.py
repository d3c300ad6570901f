"""One row for each thing that the API does: what registers it also describes it.

The server registers these rows and nothing else, checks the role that a row asks for before it
calls the handler, and makes the OpenAPI document of them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

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
    """A parameter of a query, or a header.

    Attributes:
        schema: JSON schema of its values.
        place: "query" or "header".
    """

    name: str
    text: str
    schema: dict[str, Any] = _TEXT
    place: str = "query"


class Route(NamedTuple):
    """Row of the route table: a method, a path and its answer.

    Attributes:
        method: GET, PUT, POST or DELETE; GET answers HEAD as well.
        path: as aiohttp's router has it; a name in braces may have an expression.
        summary: one sentence for people.
        role: tag that is needed, NOBODY where no log-in is.
        query: parameters.
        body: type of the body, None where none is read.
        answer: type of what is answered with 200, None where nothing is.
        codes: statuses beside those that the method, the path and the role bring.
        listing: the answer is a list of `answer` that may be asked for in pages.
        tag: heading under which it is described; "" for the first word of the path.
        media: content type of the answer.
        failed: type of what is answered with 503 beside an error, None for nothing else.
        values: JSON schemas of names in the path that are not any text.
        unpaced: answered at once, however many other requests wait for their turn.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    role: str = MANAGEMENT
    query: tuple[Parameter, ...] = ()
    body: Any = None
    answer: Any = None
    codes: tuple[int, ...] = ()
    listing: bool = False
    tag: str = ""
    media: str = JSON
    failed: Any = None
    values: Mapping[str, dict[str, Any]] = MappingProxyType({})
    unpaced: bool = False

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


def described(rows: Iterable[Route | web.RouteDef]) -> list[Route]:
    """Return rows as routes; those of aiohttp's kind have no summary."""
    return [
        row if isinstance(row, Route) else Route(row.method, row.path, row.handler, "")
        for row in rows
    ]


def listed(
    path: str, handler: Handler, summary: str, answer: Any, role: str = MANAGEMENT, **more: Any
) -> Route:
    """Return the row of a list."""
    return Route("GET", path, handler, summary, role, answer=answer, listing=True, **more)


def got(
    path: str, handler: Handler, summary: str, answer: Any, role: str = MANAGEMENT, **more: Any
) -> Route:
    """Return the row of a GET route."""
    return Route("GET", path, handler, summary, role, answer=answer, **more)


def put(
    path: str, handler: Handler, summary: str, body: Any, role: str = MANAGEMENT, **more: Any
) -> Route:
    """Return the row of a PUT route."""
    return Route("PUT", path, handler, summary, role, body=body, **more)


def posted(
    path: str, handler: Handler, summary: str, body: Any, role: str = MANAGEMENT, **more: Any
) -> Route:
    """Return the row of a POST route."""
    return Route("POST", path, handler, summary, role, body=body, **more)


def deleted(
    path: str, handler: Handler, summary: str, role: str = MANAGEMENT, **more: Any
) -> Route:
    """Return the row of a DELETE route."""
    return Route("DELETE", path, handler, summary, role, **more)
