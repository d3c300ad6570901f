"""Common handling of requests: request id, caller, errors, and a line in the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import hdrs, web

from headrace_broker.catalog import access
from headrace_broker.catalog.access import Caller
from headrace_broker.management.http.access import CALLER, caller
from headrace_broker.management.http.answer import ApiError, amqp_refusal, error_answer
from headrace_broker.management.http.hosts import Hosts
from headrace_broker.management.http.login_service import LoginService, arrival
from headrace_broker.management.http.request_id import HEADER, REQUEST_ID, name_request
from headrace_broker.management.http.route import (
    ADMINISTRATOR,
    MONITORING,
    NOBODY,
    POLICYMAKER,
    Handler,
    Route,
)
from headrace_broker.model.limits import CALL_RETRY_SECONDS, REQUEST_BODY_BYTES_MAX
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.calls.gate import CallGate, TooManyCallsError
from headrace_broker.runtime.metrics.requests import HttpMeter
from headrace_broker.runtime.security import audit
from headrace_broker.runtime.security.audit import ACTOR
from headrace_broker.runtime.security.unproven_log import unproven

COMPRESSED_BYTES_MIN: Final = 1024  # below it a packet is one packet either way
PATH_LETTERS_MAX: Final = 512  # of a path in the log

_CHECKS: Final[dict[str, Callable[[Caller], None]]] = {
    POLICYMAKER: access.check_makes_policies,
    MONITORING: access.check_monitors,
    ADMINISTRATOR: access.check_administers,
}
FORBIDDEN: Final = 403
PAGE: Final = "page"  # what the web page is counted under
_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

log = logging.getLogger("headrace.http")


class Guard:
    """Lets requests pass to those handlers that their users may ask."""

    def __init__(
        self,
        entrance: LoginService,
        meter: HttpMeter,
        hosts: Hosts | None = None,
        calls: CallGate | None = None,
    ) -> None:
        self._calls = calls or CallGate()  # has requests take turns on the loop
        self._entrance = entrance
        self._hosts = hosts or Hosts()  # the names by which this node may be asked
        self._meter = meter
        self._open: set[str] = set()  # paths for which no log-in is asked
        self._unpaced: set[str] = set()  # paths of requests that do not wait for their turn
        self._headings: dict[str, str] = {}  # by path as aiohttp writes it

    def guarded(self, row: Route) -> Handler:
        """Return a route's handler behind a check of the caller."""
        self._headings[row.template] = row.heading if row.path.strip("/") else PAGE
        if row.unpaced:
            self._unpaced.add(row.path)
        if row.role == NOBODY:
            self._open.add(row.path)
            return row.handler
        check = _CHECKS.get(row.role)

        async def handle(request: web.Request) -> web.StreamResponse:
            await self._log_in(request)
            if check is not None:
                check(caller())
            return await row.handler(request)

        return handle

    async def _log_in(self, request: web.Request) -> None:
        """Find out who asks; ApiError 401 if unknown, 403 without a tag, 429 after failures."""
        CALLER.set(await self._entrance.enter(request))

    @web.middleware
    async def handle(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Name a request, answer it in JSON whatever goes wrong, and note it in the log."""
        name = name_request(request.headers.get(HEADER, ""))
        actor = arrival(request)
        ACTOR.set(actor)
        began = time.monotonic()
        if request.path in self._unpaced:
            response = await self._answered(request, handler)
        else:
            response = await self._in_turn(request, handler, actor.peer)
        streamed = response.prepared
        if not streamed:
            response.headers[HEADER] = name
            _compress(request, response)
        seconds = time.monotonic() - began
        taken = None if streamed else seconds
        self._meter.answered(self._heading(request), request.method, response.status, taken)
        _note(request, response.status, seconds)
        return response

    async def _in_turn(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
        peer: str,
    ) -> web.StreamResponse:
        """Answer a request when the turn of its connection comes; 429 where too many wait."""
        resource = request.match_info.route.resource
        path = resource.canonical if resource is not None else "of nothing that there is"
        try:
            async with self._calls.begin(peer, f"HTTP {request.method} {path}") as turns:
                return await turns.paced(self._answered(request, handler))
        except TooManyCallsError as error:
            retry = {"Retry-After": str(CALL_RETRY_SECONDS)}
            return error_answer(429, "too_many_requests", str(error), retry)

    def _heading(self, request: web.Request) -> str:
        """Return the heading of the route that a request met, "" for none."""
        resource = request.match_info.route.resource
        return self._headings.get(resource.canonical, "") if resource is not None else ""

    async def _answered(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        try:
            self._hosts.check(request)
            if request.match_info.http_exception is not None and request.path not in self._open:
                await self._log_in(request)  # what there is not is nobody's business either
            return await handler(request)
        except ApiError as error:
            return _refusal(request, error)
        except AmqpError as error:
            return _refusal(request, amqp_refusal(error))
        except web.HTTPRequestEntityTooLarge:
            reason = f"body: must have at most {REQUEST_BODY_BYTES_MAX} bytes"
            return error_answer(413, "payload_too_large", reason)
        except web.HTTPMethodNotAllowed as error:
            allow = {"Allow": error.headers["Allow"]}
            return error_answer(405, "method_not_allowed", f"allowed: {allow['Allow']}", allow)
        except web.HTTPNotFound:
            return error_answer(404, "not_found", f"there is no {request.path}")
        except Exception:
            log.exception("%s %s failed [%s]", request.method, _path(request), REQUEST_ID.get())
            reason = f"a fault of this node; its log says more of the request {REQUEST_ID.get()}"
            return error_answer(500, "internal_error", reason)


def _refusal(request: web.Request, error: ApiError) -> web.Response:
    """Answer with a refusal; refused changes are recorded."""
    if error.status == FORBIDDEN and request.method not in _READS:
        audit.record("request", f"{request.method} {_path(request)}", error.reason)
    return error_answer(error.status, error.error, error.reason, error.headers)


def _compress(request: web.Request, response: web.StreamResponse) -> None:
    """Compress a large answer for a client that accepts it."""
    if not isinstance(response, web.Response) or not isinstance(response.body, bytes):
        return
    if len(response.body) < COMPRESSED_BYTES_MIN:
        return
    response.headers[hdrs.VARY] = hdrs.ACCEPT_ENCODING
    taken = request.headers.get(hdrs.ACCEPT_ENCODING, "").lower().replace(" ", "").split(",")
    if "gzip;q=0" not in taken and any(each.partition(";")[0] == "gzip" for each in taken):
        response.enable_compression(web.ContentCoding.gzip)


def _note(request: web.Request, status: int, seconds: float) -> None:
    level = logging.DEBUG if request.method in _READS else logging.INFO
    if not log.isEnabledFor(level):
        return
    who = CALLER.get(None)
    log.log(
        level,
        "%s %s by %s: %d in %.0f ms [%s]",
        request.method,
        _path(request),
        ascii(who.name) if who is not None else "nobody",
        status,
        1000 * seconds,
        REQUEST_ID.get(),
        extra=unproven(request.remote or "") if who is None else None,
    )


def _path(request: web.Request) -> str:
    """Return the path as it was sent, which has no letters that a line of a log cannot."""
    return request.rel_url.raw_path[:PATH_LETTERS_MAX]
