"""One connection of a client of the HTTP API."""

from __future__ import annotations

import asyncio
import logging
import traceback
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from typing_extensions import override

from headrace_broker.management.http.answer import error_answer
from headrace_broker.management.http.headers import protect
from headrace_broker.model.limits import HTTP_CONNECTIONS_MAX, HTTP_CONNECTIONS_OF_ADDRESS
from headrace_broker.runtime.calls.fair_places import FairPlaces, NoPlaceError
from headrace_broker.runtime.security.login_limit import site
from headrace_broker.runtime.security.unproven_log import unproven

_LOG: Final = logging.getLogger("headrace.http")


class HttpPlaces:
    """Places for the connections of one server, whatever listener they come by.

    A connection that comes when there is none has one without a request closed.

    Args:
        connections_max: of all addresses.
        of_address_max: of one.
    """

    def __init__(
        self,
        connections_max: int = HTTP_CONNECTIONS_MAX,
        of_address_max: int = HTTP_CONNECTIONS_OF_ADDRESS,
    ) -> None:
        self._places: FairPlaces[HttpConnection] = FairPlaces(
            connections_max, of_address_max, lambda connection: connection.is_idle
        )

    def enter(self, connection: HttpConnection, address: str) -> None:
        """Admit a connection, or close it."""
        places = self._places
        try:
            loser = places.take(address, connection)
        except NoPlaceError:
            text = "HTTP connection refused: there are %d, %d of them from its address"
            _LOG.warning(text, places.taken, places.of(address), extra=unproven(address))
            connection.drop()
            return
        if loser is not None:
            loser.drop()

    def leave(self, connection: HttpConnection, address: str) -> None:
        """Forget a connection, which may have lost its place."""
        self._places.leave(address, connection)


class HttpConnection(web.RequestHandler):
    """Answers requests; of one that is none of HTTP nothing is logged but that it came.

    Its lines may hold a header with a password, which aiohttp would log with all the rest.

    Args:
        server: answers the requests that are some.
        idle_s: seconds until a connection without a request is closed.
        places: for connections; one without a place is closed.
    """

    __slots__ = ("_places", "_site")

    def __init__(self, server: web.Server, idle_s: float, places: HttpPlaces) -> None:
        self._places = places
        self._site = ""
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=idle_s,
            access_log=None,  # type: ignore[arg-type]  # none is kept, as with AppRunner
        )

    @property
    def is_idle(self) -> bool:
        """True while no request is under way: none has come whole, or all are answered."""
        return self._current_request is None and not self._messages

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a place, if need be that of one without a request."""
        peer = transport.get_extra_info("peername")
        self._site = site(str(peer[0])) if isinstance(peer, tuple) else ""
        super().connection_made(transport)
        self._places.enter(self, self._site)

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        """Give the place back."""
        self._places.leave(self, self._site)
        super().connection_lost(exc)

    def drop(self) -> None:
        """Close it at once."""
        if self.transport is not None:
            self.transport.abort()

    @override
    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer malformed requests, and those that failed by a fault of this node."""
        del message  # it says what was sent
        bad = isinstance(exc, HttpProcessingError)
        if bad:
            what = "not a request of HTTP that is understood here"
            _LOG.info("HTTP from %s: %s", request.remote, what, extra=_of(request))
        else:
            what = "a fault of this node; its log says more"
            _log_fault(request, exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun; another cannot be given")
        error = "bad_request" if bad else "internal_error"
        answer = error_answer(400 if bad else status, error, what)
        protect(answer, "")
        answer.force_close()
        return answer

    @override
    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log a fault that comes from outside of all requests' handlers."""
        error = kw.get("exc_info")
        text = "HTTP: a connection ended by a fault: %s"
        _LOG.error(text, _where(error if isinstance(error, BaseException) else None))


def _of(request: web.BaseRequest) -> dict[str, str]:
    return unproven(request.remote or "")


def _log_fault(request: web.BaseRequest, error: BaseException | None) -> None:
    text = "HTTP from %s: not answered for a fault: %s"
    _LOG.error(text, request.remote, _where(error), extra=_of(request))


def _where(error: BaseException | None) -> str:
    """Return type and place of an error; its text may be the input."""
    if error is None:
        return "unknown"
    frames = traceback.extract_tb(error.__traceback__)
    places = ", ".join(f"{frame.filename}:{frame.lineno}" for frame in frames[-4:])
    return f"{type(error).__name__} at {places or 'an unknown place'}"
