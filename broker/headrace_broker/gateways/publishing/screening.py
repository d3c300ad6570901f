"""Checks of a publish's properties before it is routed.

Most messages have nothing that matters here, which takes some ten nanoseconds to see: by their
property flags, or else by a walk over a few lengths.

Source: https://www.rabbitmq.com/docs/validated-user-id, /docs/direct-reply-to, /docs/ttl
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i16_be, read_i32_be
from mypy_extensions import i64

from headrace_broker.core.property_edit import replace_text
from headrace_broker.core.property_reader import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CORRELATION_ID,
    DELIVERY_MODE,
    EXPIRATION,
    HEADERS,
    INVALID,
    PRIORITY,
    REPLY_TO,
    USER_ID,
    PropertyReader,
)
from headrace_broker.core.routing.distribution import holds_copies
from headrace_broker.gateways.publishing.output_buffer import OutputBuffer
from headrace_broker.model.limits import TTL_MS_MAX
from headrace_broker.model.message import Publish
from headrace_broker.model.reply_code import PRECONDITION_FAILED, AmqpError
from headrace_broker.model.reply_queue import REPLY_QUEUE

IMPERSONATOR: Final = "impersonator"  # tag of users who may publish in other users' names

_LOOKED_AT: Final = HEADERS | REPLY_TO | EXPIRATION | USER_ID
_REPLY_BYTES: Final = REPLY_QUEUE.encode()
_REPLY_LENGTH: Final = 21  # of that
_U32: Final = 0xFFFFFFFF
# And what has to be stepped over to get there.
_STEPPED_OVER: Final = CONTENT_TYPE | CONTENT_ENCODING | DELIVERY_MODE | PRIORITY | CORRELATION_ID


def remarks(properties: bytes) -> i64:
    """Return the flags of the properties that matter here, 0 for most messages.

    HEADERS stands for CC or BCC among them, REPLY_TO for the name of the pseudo-queue; USER_ID and
    EXPIRATION always matter. The block is well formed.
    """
    flags: i64 = i64(read_i16_be(properties, 0)) & (_LOOKED_AT | _STEPPED_OVER)
    found: i64 = flags & (USER_ID | EXPIRATION)
    if flags & (HEADERS | REPLY_TO) == 0:
        return found
    pos: i64 = 2
    if flags & CONTENT_TYPE:
        pos += 1 + properties[pos]
    if flags & CONTENT_ENCODING:
        pos += 1 + properties[pos]
    if flags & HEADERS:
        stop: i64 = pos + 4 + (i64(read_i32_be(properties, pos)) & _U32)
        if holds_copies(properties, pos + 4, stop):
            found |= HEADERS
        pos = stop
    if flags & REPLY_TO:
        if flags & DELIVERY_MODE:
            pos += 1
        if flags & PRIORITY:
            pos += 1
        if flags & CORRELATION_ID:
            pos += 1 + properties[pos]
        if properties[pos] == _REPLY_LENGTH and _is_reply_queue(properties, pos + 1):
            found |= REPLY_TO
    return found


def _is_reply_queue(properties: bytes, start: i64) -> bool:
    return properties[start : start + _REPLY_LENGTH] == _REPLY_BYTES


def worth_a_look(publishes: list[Publish]) -> bool:
    """Return whether one of them has a property that matters here."""
    for publish in publishes:
        flags: i64 = i64(read_i16_be(publish.properties, 0))
        if flags & _LOOKED_AT and remarks(publish.properties) != 0:
            return True
    return False


@final
class Screen:
    """Checks the properties of a channel's publishes."""

    def __init__(self, output: OutputBuffer) -> None:
        # where direct replies to this channel go, "" while it has no consumer for them
        self.reply_name = ""
        self._output = output
        self._reader = PropertyReader()

    def check(self, publish: Publish, found: i64) -> Publish:
        """Return the message in its final form: with a name in `reply-to` that replies find.

        Args:
            publish: the message.
            found: its `remarks`.

        Raises:
            AmqpError: PRECONDITION_FAILED naming the property that is wrong.
        """
        properties = publish.properties
        if found & (USER_ID | EXPIRATION):
            self._reader.scan_block(properties, 0, len(properties))
            if found & USER_ID:
                self._check_user(self._reader.text(properties, USER_ID) or b"")
            if found & EXPIRATION:
                self._check_expiration(self._reader.text(properties, EXPIRATION) or b"")
        if found & REPLY_TO:
            if not self.reply_name:
                raise AmqpError(PRECONDITION_FAILED, "fast reply consumer does not exist")
            named = replace_text(properties, REPLY_TO, self.reply_name.encode())
            return with_properties(publish, named)
        return publish

    def _check_user(self, claimed: bytes) -> None:
        user = self._output.user
        if claimed == user.encode():
            return
        if IMPERSONATOR not in self._output.broker.user_tags(user):
            name = claimed.decode("utf-8", "replace")
            text = f"user_id property set to '{name}' but authenticated user was '{user}'"
            raise AmqpError(PRECONDITION_FAILED, text)

    def _check_expiration(self, value: bytes) -> None:
        milliseconds = self._reader.expiration_ms
        if milliseconds == INVALID or milliseconds > TTL_MS_MAX:
            rule = f"not a whole number of milliseconds from 0 to {TTL_MS_MAX}"
            text = f"invalid expiration '{value.decode('utf-8', 'replace')}': {rule}"
            raise AmqpError(PRECONDITION_FAILED, text)


def with_properties(publish: Publish, properties: bytes) -> Publish:
    """Return a message that differs in its properties only."""
    return Publish(
        publish.channel,
        publish.route,
        publish.mandatory,
        publish.immediate,
        properties,
        publish.body,
    )
