"""Order of a channel's inputs while some wait: which of them may overtake which."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64
from pamqp import commands

from headrace_broker.codecs.event import Acked, ContentTooLarge, Method, Rejected
from headrace_broker.codecs.frame import BASIC_ACK, BASIC_NACK, BASIC_REJECT
from headrace_broker.gateways.amqp.channel.channel_port import METHOD_CLOSE, Input
from headrace_broker.gateways.publishing.command import (
    BARRIER,
    ORDERED,
    OVERTAKES_ALL,
    OVERTAKES_PUBLISHES,
    BufferedInput,
    Command,
)

TX_COMMIT: Final = 0x005A0014
# What comes behind these means something else than before them.
_BARRIERS: Final = frozenset(
    {METHOD_CLOSE, TX_COMMIT, int(commands.Tx.Select.index), int(commands.Tx.Rollback.index)}
)
# As settlements do.
_OVERTAKE_ALL: Final = frozenset(
    {
        int(commands.Basic.Recover.index),
        int(commands.Basic.RecoverAsync.index),
        int(commands.Basic.CancelOk.index),
        int(commands.Channel.Flow.index),
        int(commands.Channel.FlowOk.index),
    }
)
# But not for instance a basic.consume.
_OVERTAKE_PUBLISHES: Final = frozenset(
    {int(commands.Basic.Cancel.index), int(commands.Basic.Qos.index)}
)
_SETTLEMENTS: Final = frozenset({BASIC_ACK, BASIC_REJECT, BASIC_NACK})
NO_METHOD: Final = 0  # index of a failure that no method of the client caused
# When one of these fails, what is held came before it; otherwise it came behind.
OVERTAKING: Final = _OVERTAKE_ALL | _OVERTAKE_PUBLISHES | _SETTLEMENTS | {NO_METHOD}


@final
class ChannelCommand(Command):
    """An input other than publishes that waits."""

    def __init__(self, event: Acked | Rejected | Method | ContentTooLarge) -> None:
        byte_count = len(event.payload) if isinstance(event, Method) else 0
        closes = isinstance(event, Method) and event.index == METHOD_CLOSE
        super().__init__(order_of(event), byte_count, closes)
        self.event = event  # the input


def order_of(event: Input) -> i64:
    """Return the order of an input, see `publishing.command`."""
    if isinstance(event, (Acked, Rejected)):
        return OVERTAKES_ALL
    if not isinstance(event, Method):
        return ORDERED
    index = int(event.index)
    if index in _OVERTAKE_ALL:
        return OVERTAKES_ALL
    if index in _OVERTAKE_PUBLISHES:
        return OVERTAKES_PUBLISHES
    return BARRIER if index in _BARRIERS else ORDERED


def wrap(event: Input) -> BufferedInput:
    """Return an input as it waits."""
    return event if isinstance(event, list) else ChannelCommand(event)


def unwrap(waiting: BufferedInput) -> Input:
    """Return an input that has waited; it was made by `wrap`."""
    if isinstance(waiting, list):
        return waiting
    assert isinstance(waiting, ChannelCommand), "made by wrap"
    return waiting.event
