"""A connection's place on the node: listed, and told what stops its publishes."""

from __future__ import annotations

from typing import Any, Final, final

from mypy_extensions import i64
from pamqp import commands
from typing_extensions import override

from headrace_broker.codecs.method import cut_short_string
from headrace_broker.gateways.amqp.brake import Teller
from headrace_broker.gateways.amqp.channels import Channels
from headrace_broker.gateways.amqp.outlet import Outlet
from headrace_broker.gateways.amqp.timers import TIMER_TELL
from headrace_broker.model.flow import LIMIT_NAMES
from headrace_broker.model.limits import TELL_AFTER_MS_MAX
from headrace_broker.model.reply_code import NOT_ALLOWED, AmqpError
from headrace_broker.runtime.port import ConnectionInfo

BLOCKED_AFTER: Final = "headrace.blocked-after-ms"  # client properties
CHANNEL_FLOW: Final = "headrace.channel-flow"


@final
class Presence(Teller):
    """Listed and watching from `enter` to `leave`.

    Alarms are told to clients that publish, at once or with their first publish while one is on:
    some clients stop to write whatever they do when they hear of one. What else stops a client is
    told when it has lasted, to those for which that is on.

    Attributes:
        tell_blocked: the client understands connection.blocked.
    """

    def __init__(self, outlet: Outlet, info: ConnectionInfo, channels: Channels) -> None:
        self.tell_blocked = False
        self._outlet = outlet
        self._info = info
        self._channels = channels
        self._here = False
        self._watcher = self.blocked_changed  # one object, so that it is known again
        self._after_ms: i64 = 0  # as the client has asked, 0 for what the broker says
        self._channel_flow = False  # as the client has asked
        self._alarm = ""
        self._told_alarm = False
        self._told_flow = False
        outlet.brake.teller = self

    def take_properties(self, properties: dict[str, Any]) -> None:
        """Take what the client wants to be told.

        Raises:
            AmqpError: NOT_ALLOWED, a property has a wrong type or value.
        """
        after = properties.get(BLOCKED_AFTER)
        if after is not None:
            if type(after) is not int or not 1 <= after <= TELL_AFTER_MS_MAX:
                text = f"client property '{BLOCKED_AFTER}' is not an integer"
                raise AmqpError(NOT_ALLOWED, f"{text} from 1 to {TELL_AFTER_MS_MAX}")
            self._after_ms = after
        flow = properties.get(CHANNEL_FLOW, False)
        if not isinstance(flow, bool):
            raise AmqpError(NOT_ALLOWED, f"client property '{CHANNEL_FLOW}' is not a boolean")
        self._channel_flow = flow

    def enter(self) -> None:
        """The connection is open."""
        broker = self._outlet.broker
        self._here = True
        cause = self._outlet.brake.account.cause
        cause.user, cause.vhost = self._info.user, self._info.vhost
        broker.connection_opened(self._info)
        broker.watch_blocked(self._watcher)
        reason = broker.blocked_reason()
        if reason:
            self.blocked_changed(reason)

    def leave(self) -> None:
        """It is closing; does nothing the second time."""
        if self._here:
            self._here = False
            self._outlet.broker.unwatch_blocked(self._watcher)
            self._outlet.broker.connection_closed(self._info)

    # Alarms

    def blocked_changed(self, reason: str) -> None:
        """Publishers are blocked for this reason, or with "" no longer."""
        brake = self._outlet.brake
        before = self._alarm
        self._alarm = reason
        brake.block(reason != "")
        if reason:
            if brake.publisher:
                self._tell_alarm()
            if not before:
                self._tell_channels(False)
            return
        if before:
            self._tell_channels(True)
        if self._told_alarm:
            self._told_alarm = False
            self._outlet.send(0, commands.Connection.Unblocked())
            if brake.is_stopped:
                self._tell_later()

    def _tell_alarm(self) -> None:
        if self.tell_blocked and not self._told_alarm:
            self._told_alarm = True
            self._told_flow = False
            self._outlet.brake.timers.cancel(TIMER_TELL)
            self._outlet.send(0, commands.Connection.Blocked(cut_short_string(self._alarm)))

    def _tell_channels(self, active: bool) -> None:
        """Send channel.flow, where that is on."""
        info = self._info
        outlet = self._outlet
        if active:
            wanted = outlet.channels_stopped  # those that were stopped go on, whatever is on now
        else:
            wanted = self._channel_flow or outlet.broker.tells_channel_flow(info.user, info.vhost)
        if wanted:
            outlet.channels_stopped = not active
            self._channels.tell_flow(active)

    # Other limits

    @override
    def stopped(self) -> None:
        if self._alarm:
            self._tell_alarm()
        else:
            self._tell_later()

    @override
    def going(self) -> None:
        self._outlet.brake.timers.cancel(TIMER_TELL)
        if self._told_flow:
            self._told_flow = False
            self._outlet.send(0, commands.Connection.Unblocked())

    def _tell_later(self) -> None:
        if not self.tell_blocked:
            return
        info = self._info
        after_ms = self._after_ms or self._outlet.broker.tell_after_ms(info.user, info.vhost)
        if after_ms > 0:
            self._outlet.brake.timers.set(TIMER_TELL, after_ms / 1000, self._tell_flow)

    def _tell_flow(self) -> None:
        """It was stopped for so long without a pause."""
        if self._alarm or not self._outlet.brake.is_stopped:
            return
        self._told_flow = True
        flow = self._info.flow
        reason = f"flow: {LIMIT_NAMES[int(flow.limit)]}"
        queue = self._outlet.broker.queue_by_group(int(flow.group))
        if queue is not None:
            reason = f"{reason} {queue.name}"
        self._outlet.send(0, commands.Connection.Blocked(cut_short_string(reason)))
