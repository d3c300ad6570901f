"""Answers and refusals of the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from headrace_broker.catalog.result import Exists, NotFound, Ok, Result, UpgradePending
from headrace_broker.model.reply_code import (
    ACCESS_REFUSED,
    INTERNAL_ERROR,
    NOT_FOUND,
    AmqpError,
    UpgradePendingError,
)

PARTIAL_HEADER: Final = "X-Headrace-Partial"  # says what a listing lacks


class ApiError(Exception):
    """A request is refused."""

    def __init__(
        self, status: int, error: str, reason: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(reason)
        self.headers = headers  # of the answer
        self.status = status
        self.error = error  # a word for programs
        self.reason = reason  # a sentence for people, naming field and rule


def bad_request(reason: str) -> ApiError:
    """Return the refusal of a request that breaks a rule."""
    return ApiError(400, "bad_request", reason)


def forbidden(reason: str) -> ApiError:
    """Return the refusal of what a user may not do."""
    return ApiError(403, "access_refused", reason)


def not_found(what: str) -> ApiError:
    """Return the refusal of a request about something that is not there."""
    return ApiError(404, "not_found", f"no {what}")


def unavailable(reason: str) -> ApiError:
    """Return the refusal of what too few nodes are there for."""
    return ApiError(503, "unavailable", reason)


def upgrade_pending(reason: str) -> ApiError:
    """Return the refusal of what a node of the cluster is too old for."""
    return ApiError(409, "upgrade_pending", reason)


def json_bytes(body: Any) -> bytes:
    """Return JSON; what stands for bytes that are no UTF-8 is replaced."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(printable(body))


def printable(value: Any) -> Any:
    """Return a value whose texts have no surrogates, which stand for bytes that are no UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {printable(name): printable(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [printable(inner) for inner in value]
    return value


def json_answer(
    body: Any, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    """Return an answer with a JSON body."""
    return web.Response(
        body=json_bytes(body), status=status, content_type="application/json", headers=headers
    )


def error_answer(
    status: int, error: str, reason: str, headers: dict[str, str] | None = None
) -> web.Response:
    """Return a refusal."""
    return json_answer({"error": error, "reason": reason}, status, headers)


def done(created: bool = False) -> web.Response:
    """Return the answer to a change: 201 when it created something, otherwise 204."""
    return web.Response(status=201 if created else 204)


def amqp_refusal(error: AmqpError) -> ApiError:
    """Return the HTTP form of an AMQP error."""
    if error.code == NOT_FOUND:
        return ApiError(404, "not_found", error.text)
    if error.code == ACCESS_REFUSED:
        return forbidden(error.text)
    if error.code == INTERNAL_ERROR:
        return unavailable(error.text)
    if isinstance(error, UpgradePendingError):
        return upgrade_pending(error.text)
    return bad_request(str(error))


def partial(missing: Sequence[str], left_out: int = 0) -> dict[str, str]:
    """Return the headers of a listing without the rows of some nodes, and so many others."""
    lacks = [f"no answer from {', '.join(missing)}"] if missing else []
    if left_out:
        lacks.append(f"{left_out} rows or more left out")
    return {PARTIAL_HEADER: "; ".join(lacks)} if lacks else {}


def check(result: Result) -> Any:
    """Return what the catalog says that it did; ApiError where it did nothing."""
    if isinstance(result, Ok):
        return result.value
    if isinstance(result, Exists):
        return result.current
    if isinstance(result, NotFound):
        raise not_found(result.what)
    if isinstance(result, UpgradePending):
        raise upgrade_pending(result.reason)
    raise bad_request(result.text)
