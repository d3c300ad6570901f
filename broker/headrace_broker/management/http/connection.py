"""One connection of a client of the HTTP API."""

from __future__ import annotations

import asyncio
import logging
import traceback
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from typing_extensions import override

from headrace_broker.management.answer import error_answer
from headrace_broker.management.headers import protect
from headrace_broker.runtime.unproven_log import unproven

_LOG: Final = logging.getLogger(__name__)


class HttpConnection(web.RequestHandler):
    """Answers requests; of one that is none of HTTP nothing is logged but that it came.

    Its lines may hold a header with a password, which aiohttp would log with all the rest.

    Args:
        server: answers the requests that are some.
        idle_s: seconds until a connection without a request is closed.
    """

    __slots__ = ()

    def __init__(self, server: web.Server, idle_s: float) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=idle_s,
            access_log=None,  # type: ignore[arg-type]  # none is kept, as with AppRunner
        )

    @override
    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no request, or one that was not answered for a fault of this node."""
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
    """Return of which kind an error is and where it comes from; its text may be what was sent."""
    if error is None:
        return "unknown"
    frames = traceback.extract_tb(error.__traceback__)
    places = ", ".join(f"{frame.filename}:{frame.lineno}" for frame in frames[-4:])
    return f"{type(error).__name__} at {places or 'an unknown place'}"
