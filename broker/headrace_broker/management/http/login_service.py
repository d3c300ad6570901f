"""Identity of a request: Basic credentials, or a client certificate that stands for a user."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from headrace_broker.catalog.view import CatalogView
from headrace_broker.management.http.access import PAGE_TOKEN, TAGS, Caller
from headrace_broker.management.http.answer import ApiError, forbidden
from headrace_broker.management.http.origin import check_origin, is_of_page
from headrace_broker.management.http.request_id import REQUEST_ID
from headrace_broker.management.http.status_source import StatusSource
from headrace_broker.runtime.security.audit import ACTOR, Actor
from headrace_broker.runtime.security.authenticator import Verdict
from headrace_broker.runtime.security.basic_credentials import parse_basic
from headrace_broker.runtime.security.tls import ServerTls

PROTOCOL: Final = "http"


class LoginService:
    """Lets requests in.

    Args:
        source: knows the passwords.
        view: knows the users.

    Attributes:
        tls: what certificates are read by, None without a listener for TLS.
        page: user who is logged in at the requesting web page, None for none.
    """

    def __init__(self, source: StatusSource, view: CatalogView) -> None:
        self.tls: ServerTls | None = None
        self.page: Callable[[web.Request], Awaitable[Caller | None]] | None = None
        self._source = source
        self._view = view

    async def enter(self, request: web.Request) -> Caller:
        """Authenticate the caller, and record it for later actions of this task.

        Raises:
            ApiError: 401, nobody, or the log-in is wrong; 403, the user has no tag for it, or a
                page of somebody else's asks for a change; 429, too many log-ins have failed; 503,
                too many log-ins at the page are being asked about.
        """
        PAGE_TOKEN.set("")  # a connection's requests may share a context
        check_origin(request)
        found = await self._caller(request)
        if found is None:
            reason = "log in with a user of the broker"
            raise ApiError(401, "not_authorized", reason, _challenge(request))
        if not found.manages:
            raise forbidden(f"tags: must have one of {', '.join(sorted(TAGS))}")
        return found

    async def _caller(self, request: web.Request) -> Caller | None:
        """Return the caller, None unless the log-in is right."""
        if self.page is not None and "Authorization" not in request.headers:
            found = await self.page(request)
            if found is not None:
                name_actor(found.name)
                return found
        host = request.remote or ""
        login = parse_basic(request.headers.get("Authorization", ""))
        if login is not None:
            name, password = login
            name_actor(name)
            verdict = await self._source.authenticate(name, password, host)
            check_verdict(verdict)
            # One that was looked at before the user's sessions were ended is of before that.
            right = bool(verdict) and verdict.epoch == self._view.session_epoch(name)
        else:
            name = self._certified(request)
            name_actor(name)
            right = bool(name) and self._source.admits(name, host)
        user = self._view.user(name) if right else None
        return Caller(user.name, user.tags) if user is not None else None

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
    """Return the facts about a request before its log-in is checked."""
    transport = request.transport
    peer = transport.get_extra_info("peername") if transport is not None else None
    where = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(request.remote)
    return Actor("", where, PROTOCOL, REQUEST_ID.get())


def name_actor(user: str) -> None:
    """Note who a request says to be from."""
    actor = ACTOR.get()
    assert actor is not None, "set as the request arrives"
    ACTOR.set(actor._replace(user=user))


def check_verdict(verdict: Verdict) -> None:
    """Refuse a log-in that was not checked.

    Raises:
        ApiError: 429, too many have failed.
    """
    if verdict.wait_s <= 0:
        return
    seconds = math.ceil(verdict.wait_s)
    raise ApiError(
        429,
        "too_many_failures",
        f"too many log-ins have failed; the next one is looked at in {seconds} s",
        {"Retry-After": str(seconds)},
    )


def _challenge(request: web.Request) -> dict[str, str]:
    """Return the headers that ask for a log-in; for the web page, which asks itself, none."""
    return {} if is_of_page(request) else {"WWW-Authenticate": 'Basic realm="Headrace"'}
