"""Log-ins at the web page: a cookie that scripts cannot read, and a token for changes.

The cookie is sent by the browser alone, so a request that changes something has to show as well
what only a script of this page can know: a token that follows from the cookie's.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from aiohttp import web

from headrace_broker.catalog.access import refused
from headrace_broker.catalog.permission_watch import ANYWHERE, PermissionWatch
from headrace_broker.management.http.access import PAGE_TOKEN, Caller
from headrace_broker.management.http.answer import ApiError, done, forbidden, json_answer
from headrace_broker.management.http.body import decode
from headrace_broker.management.http.login_service import check_verdict, name_actor
from headrace_broker.management.http.origin import CHANGE_HEADER, PAGE_PREFIX, SAFE, check_origin
from headrace_broker.management.http.route import NOBODY, Route
from headrace_broker.model import build_info
from headrace_broker.model.definition import User
from headrace_broker.model.limits import PAGE_LOGIN_BYTES_MAX
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.administration.administration import NodeAdministration
from headrace_broker.runtime.administration.status import NodeStatusSource
from headrace_broker.runtime.security.page_logins import LoginsBusyError


class LoginBody(msgspec.Struct):
    """Body of POST /page/login."""

    user: str
    password: str


def change_token(token: str) -> str:
    """Return what a request that changes something has to show beside the cookie."""
    return hashlib.sha256(b"change:" + token.encode("utf-8", "surrogateescape")).hexdigest()


class PageLogin:
    """Log-ins and log-outs of the page, and the user of a request."""

    def __init__(self, node: NodeAdministration, status: NodeStatusSource) -> None:
        self._node = node  # keeps log-ins
        self._status = status  # checks passwords

    def routes(self) -> list[Route]:
        """Return the route table."""
        return [
            Route("POST", PAGE_PREFIX + "login", self._log_in, "Log in.", NOBODY, body=LoginBody),
            Route("POST", PAGE_PREFIX + "logout", self._log_out, "Log out."),
            Route("GET", PAGE_PREFIX + "session", self._session, "Who is logged in.", NOBODY),
        ]

    async def caller(self, request: web.Request) -> Caller | None:
        """Return the logged-in user, None without one.

        Raises ApiError: 403, a change that is not the page's; 503, too many log-ins are asked
        about.
        """
        token = request.cookies.get(self._cookie(), "")
        try:
            user = await self._node.page_logins.find(token) if token else None
        except LoginsBusyError:
            reason = "other nodes are being asked about too many log-ins: try again"
            raise ApiError(503, "unavailable", reason) from None
        if user is None or not self._status.admits(user.name, request.remote or ""):
            return None
        if request.method not in SAFE:
            shown = request.headers.get(CHANGE_HEADER, "").encode("utf-8", "surrogateescape")
            if not hmac.compare_digest(shown, change_token(token).encode()):
                raise forbidden(f"{CHANGE_HEADER}: is not that of the log-in")
        PAGE_TOKEN.set(token)
        return Caller(user.name, user.tags)

    def user(self, who: Caller) -> User | None:
        """Return the current entry of a user, None if it was deleted."""
        return self._node.view.user(who.name)

    @contextlib.contextmanager
    def watched(self, who: Caller, over: Callable[[], None]) -> Iterator[None]:
        """Tell a stream, perhaps more than once, that its log-in is over or its user was changed.

        ApiError 401 where it is over already.
        """
        token = PAGE_TOKEN.get()
        user = self.user(who)

        def judge() -> None:
            if self.user(who) != user:
                raise refused(f"user '{who.name}' was changed")

        standing = PermissionWatch(
            who.name, ANYWHERE, judge, lambda _: over(), self._node.view.session_epoch(who.name)
        )
        try:
            self._node.standings.enter(standing)
        except AmqpError as error:
            raise ApiError(401, "not_authorized", error.text) from None
        if token:
            self._node.page_logins.watch(token, over)
        try:
            yield
        finally:
            self._node.page_logins.unwatch(token, over)
            self._node.standings.leave(standing)

    def _cookie(self) -> str:
        """Return the cookie's name; browsers keep one for all ports of a host."""
        return f"headrace-{self._status.overview().cluster_name}"

    async def _log_in(self, request: web.Request) -> web.Response:
        check_origin(request)
        if request.content_type != "application/json":
            raise ApiError(415, "unsupported_media_type", "body: must be application/json")
        if (request.content_length or 0) > PAGE_LOGIN_BYTES_MAX:
            reason = f"body: must have at most {PAGE_LOGIN_BYTES_MAX} bytes"
            raise ApiError(413, "payload_too_large", reason)
        body = await decode(request, LoginBody)
        name_actor(body.user)
        verdict = await self._status.authenticate(body.user, body.password, request.remote or "")
        check_verdict(verdict)
        view = self._node.view
        user = view.user(body.user) if verdict else None
        if user is None or verdict.epoch != view.session_epoch(body.user):
            raise ApiError(401, "not_authorized", "user or password is wrong")
        found = Caller(user.name, user.tags)
        if not found.manages:
            raise forbidden("tags: this user may not manage the broker")
        token = self._node.page_logins.open(user)
        answer = json_answer(self._render(found, token))
        answer.set_cookie(
            self._cookie(),
            token,
            path="/",
            httponly=True,
            samesite="Strict",
            secure=_is_secure(request),
        )
        return answer

    async def _log_out(self, request: web.Request) -> web.Response:
        token = PAGE_TOKEN.get()
        if token:  # else any cookie may stand beside a password or certificate
            await self._node.page_logins.end(token)
        answer = done()
        answer.del_cookie(self._cookie(), path="/")
        return answer

    async def _session(self, request: web.Request) -> web.Response:
        """Return the logged-in user; null without one, which is no error."""
        found = await self.caller(request)
        token = request.cookies.get(self._cookie(), "")
        body = self._render(found, token) if found is not None and found.manages else None
        return json_answer(body, headers={"Cache-Control": "no-store"})

    def _render(self, found: Caller, token: str) -> dict[str, Any]:
        overview = self._status.overview()
        return {
            "user": found.name,
            "tags": list(found.tags),
            "administers": found.administers,
            "monitors": found.monitors,
            "makes_policies": found.makes_policies,
            "change_token": change_token(token),
            "cluster": overview.cluster_name,
            "node": overview.node,
            "version": build_info.VERSION,
        }


def _is_secure(request: web.Request) -> bool:
    """Return whether the browser speaks TLS, to this node or to what stands before it."""
    return request.secure or request.headers.get("X-Forwarded-Proto", "") == "https"
