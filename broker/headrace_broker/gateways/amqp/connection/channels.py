"""The channels of a connection by number."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64
from pamqp import commands

from headrace_broker.codecs.event import Acked
from headrace_broker.gateways.amqp.channel import Channel
from headrace_broker.gateways.amqp.channel_port import (
    ChannelOwner,
    Input,
    input_index,
    input_kind,
)
from headrace_broker.gateways.amqp.outlet import Outlet
from headrace_broker.gateways.amqp.states import CHANNEL_INPUT_OPEN
from headrace_broker.model.reply_code import NOT_ALLOWED, AmqpError
from headrace_broker.runtime.port import ConnectionInfo


@final
class Channels:
    """Those that are open, and those whose close-ok is due."""

    def __init__(self, outlet: Outlet, owner: ChannelOwner, info: ConnectionInfo) -> None:
        self._outlet = outlet
        self._owner = owner
        self._info = info
        self._by_number: dict[int, Channel] = {}
        self._acking: list[Channel] = []

    def find(self, number: int) -> Channel | None:
        """Return a channel, None for a closed one."""
        return self._by_number.get(number)

    def open_channels(self) -> list[Channel]:
        """Return the channels that may be used, by number."""
        return [self._by_number[number] for number in sorted(self._by_number)]

    def take(self, number: i64, event: Input) -> None:
        """Give an input to a channel."""
        channel = self._by_number.get(int(number))
        if channel is None:
            opens = input_kind(event) == CHANNEL_INPUT_OPEN
            refusal = self._refusal() if opens else ""
            if refusal:
                self._owner.fail(AmqpError(NOT_ALLOWED, refusal), input_index(event))
                return
            channel = Channel(number, self._outlet, self._owner)
            channel.take(event)  # refuses all but channel.open
            if channel.is_open:
                self._by_number[int(number)] = channel
                self._info.channels = len(self._by_number)
                self._info.channels_opened += 1
            return
        if isinstance(event, Acked) and (not self._acking or self._acking[-1] is not channel):
            self._acking.append(channel)
        channel.take(event)

    def _refusal(self) -> str:
        """Return why one more is too many, "" when it is not.

        The limits are on how many are open; numbers may be any, as in RabbitMQ.
        """
        count = len(self._by_number)
        limit = self._info.channel_max
        if count >= limit:
            text = f"number of channels opened ({count}) has reached the negotiated channel_max"
            return f"{text} ({limit})"
        return self._outlet.broker.client_counts.channel_refusal(self._info.user)

    def end_chunk(self) -> None:
        """Settle the acks that have gathered."""
        for channel in self._acking:
            channel.end_chunk()
        self._acking = []

    def tell_flow(self, active: bool) -> None:
        """Send channel.flow to all clients' channels; they answer with channel.flow-ok."""
        for channel in self.open_channels():
            channel.send(commands.Channel.Flow(active))

    def remove(self, number: i64) -> None:
        """Forget a channel that is closed."""
        channel = self._by_number.pop(int(number), None)
        if channel is not None:
            self._info.passed.add(channel.links.traffic)
        self._info.channels = len(self._by_number)

    def drop_all(self) -> None:
        """The connection ends."""
        channels = self._by_number
        self._by_number = {}
        self._info.channels = 0
        for channel in channels.values():
            channel.drop()
            self._info.passed.add(channel.links.traffic)
