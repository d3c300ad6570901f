"""Single messages as commands know them, whatever the protocol."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol

import click
import msgspec

TEXTS: Final = frozenset(
    {
        "content_type",
        "content_encoding",
        "correlation_id",
        "reply_to",
        "message_id",
        "type",
        "user_id",
        "app_id",
        "cluster_id",
    }
)
NUMBERS: Final = frozenset({"delivery_mode", "priority", "expiration"})
TIMESTAMP: Final = "timestamp"
BYTE_MAX: Final = 255
EXPIRATION_MS_MAX: Final = (1 << 32) - 1  # milliseconds; more than any broker takes


class LoadMessage(NamedTuple):
    """A message to publish."""

    body: bytes
    exchange: str  # "" for the default exchange
    routing_key: str
    headers: Mapping[str, Any]
    properties: Mapping[str, Any]  # by AMQP's names; `expiration` in ms


class Taken(NamedTuple):
    """A message that was taken from a queue."""

    body: bytes
    exchange: str
    routing_key: str
    redelivered: bool
    properties: Mapping[str, Any]  # by AMQP's names, those that are there; with `headers`


Show = Callable[[Taken], None]


class LoadClient(Protocol):
    """Publishes and takes messages over one protocol."""

    async def publish(self, letters: Iterable[LoadMessage]) -> None:
        """Publish messages and wait until all are safe; one that reaches no queue is an error."""

    async def take(self, queue: str, count: int, until_empty: bool, show: Show) -> None:
        """Take messages and settle each once shown, until `count` (0: never) or none waits."""


def properties_of(given: Sequence[str]) -> dict[str, Any]:
    """Return KEY=VALUE arguments as properties of a `LoadMessage`; click.BadParameter if wrong."""
    found: dict[str, Any] = {}
    for each in given:
        key, sign, text = each.partition("=")
        if not sign:
            raise _wrong(f"'{each}' must be KEY=VALUE")
        found[key] = _value_of(key, text)
    return found


def _value_of(key: str, text: str) -> Any:
    if key in TEXTS:
        return text
    if key in NUMBERS:
        most = EXPIRATION_MS_MAX if key == "expiration" else BYTE_MAX
        if not (text.isascii() and text.isdigit() and int(text) <= most):
            raise _wrong(f"{key}: must be a whole number from 0 to {most}, not '{text}'")
        return int(text)
    if key == TIMESTAMP:
        try:
            if text.isascii() and text.isdigit():
                return datetime.fromtimestamp(int(text), UTC)
            return datetime.fromisoformat(text)
        except (ValueError, OverflowError, OSError):
            rule = "must be seconds since 1970, or a time as 2026-01-31T12:00:00Z"
            raise _wrong(f"{key}: {rule}, not '{text}'") from None
    names = ", ".join(sorted({*TEXTS, *NUMBERS, TIMESTAMP}))
    raise _wrong(f"'{key}' is none of {names}")


def _wrong(text: str) -> click.BadParameter:
    return click.BadParameter(text, param_hint="--property")


def text_line(taken: Taken) -> str:
    """Return the body of a message as a line."""
    return taken.body.decode("utf-8", "backslashreplace")


def json_line(taken: Taken) -> str:
    """Return all there is of a message; a body that is no text in base64."""
    try:
        body = {"body": taken.body.decode("utf-8"), "encoding": "string"}
    except UnicodeDecodeError:
        body = {"body": base64.b64encode(taken.body).decode(), "encoding": "base64"}
    found = {
        "exchange": taken.exchange,
        "routing_key": taken.routing_key,
        "redelivered": taken.redelivered,
        "properties": taken.properties,
        **body,
    }
    return msgspec.json.encode(found, enc_hook=str).decode()
