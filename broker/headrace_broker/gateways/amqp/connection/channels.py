"""The channels of a connection by number."""

from __future__ import annotations

from collections import deque
from typing import final

from mypy_extensions import i64
from pamqp import commands

from headrace_broker.gateways.amqp.channel.channel import Channel
from headrace_broker.gateways.amqp.channel.channel_port import (
    ChannelOwner,
    Input,
    input_index,
    input_kind,
)
from headrace_broker.gateways.amqp.messages.connection_output import ConnectionOutput
from headrace_broker.gateways.amqp.model.states import CHANNEL_INPUT_OPEN
from headrace_broker.logs.log_event import (
    CHANNEL_CLOSED,
    CHANNEL_OPENED,
    CONNECTION,
    DEBUG,
    Event,
    log_event,
)
from headrace_broker.model.limits import CHANNEL_UNITS
from headrace_broker.model.reply_code import NOT_ALLOWED, AmqpError
from headrace_broker.runtime.contract.port import ConnectionInfo


@final
class Channels:
    """Open channels, and those with a close-ok due."""

    def __init__(self, output: ConnectionOutput, info: ConnectionInfo) -> None:
        self._output = output
        self._info = info
        self._by_number: dict[int, Channel] = {}
        self._leaving: deque[Channel] = deque()  # of a connection that ends, the next one first

    def find(self, number: int) -> Channel | None:
        """Return a channel, None for a closed one."""
        return self._by_number.get(number)

    def open_channels(self) -> list[Channel]:
        """Return the channels that may be used, by number."""
        return [self._by_number[number] for number in sorted(self._by_number)]

    def receive(self, number: i64, event: Input, owner: ChannelOwner) -> None:
        """Give an input to a channel; `owner` is the connection."""
        channel = self._by_number.get(int(number))
        if channel is None:
            opens = input_kind(event) == CHANNEL_INPUT_OPEN
            refusal = self._refusal() if opens else ""
            if refusal:
                owner.fail(AmqpError(NOT_ALLOWED, refusal), input_index(event))
                return
            channel = Channel(number, self._output, owner)
            channel.receive(event)  # refuses all but channel.open
            if channel.is_open:
                self._by_number[int(number)] = channel
                self._info.channels = len(self._by_number)
                self._info.channels_opened += 1
                if CONNECTION.isEnabledFor(DEBUG):
                    self._log(CHANNEL_OPENED, number)
            return
        channel.receive(event)

    def _log(self, event: Event, number: i64) -> None:
        log_event(CONNECTION, event, connection=self._info.name, channel=int(number))

    def _refusal(self) -> str:
        """Return why one more is too many, "" when it is not.

        The limits are on how many are open; numbers may be any, as in RabbitMQ.
        """
        count = len(self._by_number)
        limit = self._info.channel_max
        if count >= limit:
            text = f"number of channels opened ({count}) has reached the negotiated channel_max"
            return f"{text} ({limit})"
        return self._output.broker.client_counts.channel_refusal(self._info.user)

    def tell_flow(self, active: bool) -> None:
        """Send channel.flow to all clients' channels; they answer with channel.flow-ok."""
        for channel in self.open_channels():
            channel.send(commands.Channel.Flow(active))

    def remove(self, number: i64) -> None:
        """Forget a channel that is closed."""
        channel = self._by_number.pop(int(number), None)
        if channel is not None:
            self._info.passed.add(channel.links.traffic)
            _retire(channel)
            if CONNECTION.isEnabledFor(DEBUG):
                self._log(CHANNEL_CLOSED, number)
        self._info.channels = len(self._by_number)

    def drop_all(self) -> None:
        """The connection ends: none may be used any more; `give_up` gives back what they have."""
        channels = self._by_number
        self._by_number = {}
        for channel in channels.values():
            self._leaving.append(channel)
            channel.drop()
            self._info.passed.add(channel.links.traffic)  # now: what is counted never falls

    def give_up(self) -> bool:
        """Give up dropped channels as far as this turn allows; True once none is left."""
        output = self._output
        effort = output.effort
        failed = True
        try:
            while self._leaving and not effort.is_spent:
                channel = self._leaving.popleft()
                effort.spend(CHANNEL_UNITS + len(channel.consumers))
                self._info.channels = len(self._leaving)
                channel.give_up()
                _retire(channel)
            failed = False
        finally:  # a fault at one must not spare those behind it, nor the connection
            if self._leaving:
                effort.defer()
            if self._leaving or failed:
                output.wake()
        return not self._leaving and not output.ends_links


def _retire(channel: Channel) -> None:
    """Cut the references back to a channel of which its connection knows no more.

    It is freed at once then, and not by the garbage collector: that stops the loop for some
    milliseconds each time that a client has opened and closed a few hundred channels.
    """
    if not channel.is_busy and channel.admission.retire():
        channel.links.retire()
