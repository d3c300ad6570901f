"""The name of a request, by which its answer and its log lines are found."""

from __future__ import annotations

import logging
import re
import secrets
from contextvars import ContextVar
from typing import Any, Final

HEADER: Final = "X-Request-Id"
NO_REQUEST: Final = "-"

# What a client may call its request: nothing that could look like another line of a log.
_ALLOWED: Final = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")

# Set for each request, in its own task, before anything is done for it.
REQUEST_ID: Final[ContextVar[str]] = ContextVar("REQUEST_ID", default=NO_REQUEST)


def name_request(given: str) -> str:
    """Return the name that a client gave to its request, or a new one, and set REQUEST_ID."""
    name = given if _ALLOWED.fullmatch(given) else secrets.token_hex(8)
    REQUEST_ID.set(name)
    return name


def record_requests() -> None:
    """Give all log records from now on the attribute `request_id`, NO_REQUEST outside of one."""
    make = logging.getLogRecordFactory()
    if getattr(make, "names_requests", False):
        return

    def named(*args: Any, **more: Any) -> logging.LogRecord:
        record = make(*args, **more)
        record.request_id = REQUEST_ID.get()
        return record

    named.names_requests = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(named)
