"""What a publish's properties are looked through for before it is routed.

Most messages have none of the properties that matter here, which their flags tell; of the others
only the octets asked for are read.

Source: https://www.rabbitmq.com/docs/validated-user-id, /docs/direct-reply-to, /docs/ttl
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i16_be
from mypy_extensions import i64

from headrace_broker.core.distribution import may_distribute
from headrace_broker.core.property_edit import replace_text
from headrace_broker.core.property_reader import (
    EXPIRATION,
    HEADERS,
    INVALID,
    REPLY_TO,
    USER_ID,
    PropertyReader,
)
from headrace_broker.gateways.amqp.outlet import Outlet
from headrace_broker.model.limits import TTL_MS_MAX
from headrace_broker.model.message import Publish
from headrace_broker.model.reply_code import PRECONDITION_FAILED, AmqpError
from headrace_broker.model.reply_queue import REPLY_QUEUE

IMPERSONATOR: Final = "impersonator"  # tag of users who may publish in other users' names

_LOOKED_AT: Final = HEADERS | REPLY_TO | EXPIRATION | USER_ID
_REPLY_OCTETS: Final = REPLY_QUEUE.encode()


def worth_a_look(publishes: list[Publish]) -> bool:
    """Return whether the flags of one of them announce a property that matters here."""
    flags: i64 = 0
    for publish in publishes:
        flags |= i64(read_i16_be(publish.properties, 0))
    return (flags & _LOOKED_AT) != 0


@final
class Screen:
    """Checks the properties of a channel's publishes.

    Attributes:
        reply_name: where direct replies to this channel go, "" while it has no consumer for them.
    """

    def __init__(self, outlet: Outlet) -> None:
        self.reply_name = ""
        self._outlet = outlet
        self._reader = PropertyReader()

    def distributes(self, publish: Publish) -> bool:
        """Return whether a message may have further routing keys in its headers."""
        flags: i64 = i64(read_i16_be(publish.properties, 0))
        return (flags & HEADERS) != 0 and may_distribute(publish.properties)

    def check(self, publish: Publish) -> Publish:
        """Return the message as it goes on: with a name in `reply-to` that replies find.

        Raises:
            AmqpError: PRECONDITION_FAILED naming the property that is wrong.
        """
        properties = publish.properties
        flags: i64 = i64(read_i16_be(properties, 0))
        if flags & (USER_ID | EXPIRATION):
            self._reader.scan_block(properties, 0, len(properties))
            if flags & USER_ID:
                self._check_user(self._reader.text(properties, USER_ID) or b"")
            if flags & EXPIRATION:
                self._check_expiration(self._reader.text(properties, EXPIRATION) or b"")
        if flags & REPLY_TO and _REPLY_OCTETS in properties:
            return self._name_replies(publish)
        return publish

    def _check_user(self, claimed: bytes) -> None:
        user = self._outlet.user
        if claimed == user.encode():
            return
        if IMPERSONATOR not in self._outlet.broker.user_tags(user):
            name = claimed.decode("utf-8", "replace")
            text = f"user_id property set to '{name}' but authenticated user was '{user}'"
            raise AmqpError(PRECONDITION_FAILED, text)

    def _check_expiration(self, value: bytes) -> None:
        milliseconds = self._reader.expiration_ms
        if milliseconds == INVALID or milliseconds > TTL_MS_MAX:
            rule = f"not a whole number of milliseconds from 0 to {TTL_MS_MAX}"
            text = f"invalid expiration '{value.decode('utf-8', 'replace')}': {rule}"
            raise AmqpError(PRECONDITION_FAILED, text)

    def _name_replies(self, publish: Publish) -> Publish:
        properties = publish.properties
        self._reader.scan_block(properties, 0, len(properties))
        if self._reader.text(properties, REPLY_TO) != _REPLY_OCTETS:
            return publish
        if not self.reply_name:
            raise AmqpError(PRECONDITION_FAILED, "fast reply consumer does not exist")
        named = replace_text(properties, REPLY_TO, self.reply_name.encode())
        return with_properties(publish, named)


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
