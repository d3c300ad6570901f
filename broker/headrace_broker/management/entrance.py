"""Who makes a request: Basic credentials, or a client certificate that stands for a user."""

from __future__ import annotations

import math
from typing import Final

from aiohttp import web

from headrace_broker.catalog.view import CatalogView
from headrace_broker.management.access import TAGS, Caller
from headrace_broker.management.answer import ApiError, forbidden
from headrace_broker.management.request_id import REQUEST_ID
from headrace_broker.management.status_source import StatusSource
from headrace_broker.runtime.audit import ACTOR, Actor
from headrace_broker.runtime.basic_credentials import parse_basic
from headrace_broker.runtime.tls import ServerTls

PROTOCOL: Final = "http"


class Entrance:
    """Lets requests in.

    Args:
        source: knows the passwords.
        view: knows the users.

    Attributes:
        tls: what certificates are read by, None without a listener for TLS.
    """

    def __init__(self, source: StatusSource, view: CatalogView) -> None:
        self.tls: ServerTls | None = None
        self._source = source
        self._view = view

    async def enter(self, request: web.Request) -> Caller:
        """Return who asks, and note who it is for what this task does from now on.

        Raises:
            ApiError: 401, nobody, or the log-in is wrong; 403, the user has no tag for it; 429, too
                many log-ins have failed.
        """
        host = request.remote or ""
        login = parse_basic(request.headers.get("Authorization", ""))
        if login is not None:
            name, password = login
            _name(name)
            verdict = await self._source.authenticate(name, password, host)
            if verdict.wait_s > 0:
                raise _later(verdict.wait_s)
            right = bool(verdict)
        else:
            name = self._certified(request)
            _name(name)
            right = bool(name) and self._source.admits(name, host)
        user = self._view.user(name) if right else None
        if user is None:
            raise ApiError(
                401,
                "not_authorized",
                "log in with a user of the broker",
                {"WWW-Authenticate": 'Basic realm="Headrace"'},
            )
        if not TAGS.intersection(user.tags):
            raise forbidden(f"tags: must have one of {', '.join(sorted(TAGS))}")
        return Caller(user.name, user.tags)

    def _certified(self, request: web.Request) -> str:
        """Return the user whom the client's certificate stands for, "" for none."""
        transport = request.transport
        if self.tls is None or transport is None:
            return ""
        if transport.get_extra_info("ssl_object") is None:
            return ""
        session = self.tls.describe(transport)
        return session.login if session.external else ""


def arrival(request: web.Request) -> Actor:
    """Return what is known of a request before anybody looks at its log-in."""
    transport = request.transport
    peer = transport.get_extra_info("peername") if transport is not None else None
    where = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(request.remote)
    return Actor("", where, PROTOCOL, REQUEST_ID.get())


def _name(user: str) -> None:
    """Note who a request says to be from."""
    actor = ACTOR.get()
    assert actor is not None, "set as the request arrives"
    ACTOR.set(actor._replace(user=user))


def _later(wait_s: float) -> ApiError:
    seconds = math.ceil(wait_s)
    return ApiError(
        429,
        "too_many_failures",
        f"too many log-ins have failed; the next one is looked at in {seconds} s",
        {"Retry-After": str(seconds)},
    )
