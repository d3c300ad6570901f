"""connection.blocked, connection.unblocked and channel.flow for what stops a client's publishes."""

from __future__ import annotations

from typing import Any, Final, final

from mypy_extensions import i64
from pamqp import commands
from typing_extensions import override

from headrace_broker.codecs.method import cut_short_string
from headrace_broker.flow.blocked import NOT_BLOCKED, Blocked
from headrace_broker.gateways.amqp.connection.channels import Channels
from headrace_broker.gateways.amqp.messages.connection_output import ConnectionOutput
from headrace_broker.gateways.publishing.admission_control import BlockedNotifier
from headrace_broker.gateways.publishing.timers import TIMER_TELL
from headrace_broker.logs.log_event import CONNECTION, DEBUG, GATE_CLOSED, GATE_OPENED, log_event
from headrace_broker.model.flow import LIMIT_NAMES, is_alarm
from headrace_broker.model.limits import TELL_AFTER_MS_MAX
from headrace_broker.model.reply_code import NOT_ALLOWED, AmqpError
from headrace_broker.runtime.contract.port import ConnectionInfo

BLOCKED_AFTER: Final = "headrace.blocked-after-ms"  # client properties
CHANNEL_FLOW: Final = "headrace.channel-flow"


@final
class ConnectionBlockedNotifier(BlockedNotifier):
    """Tells a client of alarms, and of other limits that stop it.

    Alarms are told to clients that publish, at once or with their first publish while one is on:
    some clients stop to write whatever they do when they hear of one. What else stops a client is
    told when it has lasted, to those for which that is on.
    """

    def __init__(self, output: ConnectionOutput, info: ConnectionInfo, channels: Channels) -> None:
        self.tell_blocked = False  # the client understands connection.blocked
        self._output = output
        self._info = info
        self._channels = channels
        self._watches = False
        self._after_ms: i64 = 0  # as the client has asked, 0 for what the broker says
        self._channel_flow = False  # as the client has asked
        self._blocked = output.broker.blocked
        self._told_alarm = False  # by connection.blocked
        self._told_flow = False  # the same, of what else stops it
        output.admission.notifier = self

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

    def watch(self) -> None:
        """Watch alarms, the one that is on included, until `unwatch`."""
        self._watches = True
        self._blocked.watch(self.blocked_changed)
        self.blocked_changed(NOT_BLOCKED, self._blocked.now)

    def unwatch(self) -> None:
        """Stop watching alarms."""
        if self._watches:
            self._watches = False
            self._blocked.unwatch(self.blocked_changed)

    # Alarms

    def blocked_changed(self, before: Blocked, now: Blocked) -> None:
        """Tell the client of an alarm, another alarm, or its end."""
        if before is now:
            return
        admission = self._output.admission
        admission.blocked_changed()
        if now.is_on:
            if admission.publisher:
                self._tell_alarm()
            if not before.is_on:
                self._tell_channels(False)
            return
        self._tell_channels(True)
        if self._told_alarm:
            self._tell_unblocked()
            if admission.is_stopped:
                self._tell_later()

    def _tell_alarm(self) -> None:
        if self.tell_blocked and not self._told_alarm:
            self._output.admission.timers.cancel(TIMER_TELL)
            self._told_alarm = True
            self._told_flow = False
            self._tell_blocked(self._blocked.now.reason)

    def _tell_blocked(self, reason: str) -> None:
        self._output.send(0, commands.Connection.Blocked(cut_short_string(reason)))

    def _tell_unblocked(self) -> None:
        self._told_alarm = self._told_flow = False
        self._output.send(0, commands.Connection.Unblocked())

    def _tell_channels(self, active: bool) -> None:
        """Send channel.flow, where that is on."""
        info = self._info
        output = self._output
        if active:
            wanted = output.channels_stopped  # those that were stopped go on, whatever is on now
        else:
            rules = output.broker.client_flow
            wanted = self._channel_flow or rules.channel_flow(info.user, info.vhost)
        if wanted:
            output.channels_stopped = not active
            self._channels.tell_flow(active)

    # Other limits

    @override
    def stopped(self) -> None:
        if CONNECTION.isEnabledFor(DEBUG):
            info = self._info
            who = {"user": info.user, "vhost": info.vhost}
            log_event(CONNECTION, GATE_CLOSED, connection=info.name, **who)
        if self._blocked.now.is_on:
            self._tell_alarm()
        else:
            self._tell_later()

    @override
    def going(self) -> None:
        if CONNECTION.isEnabledFor(DEBUG):
            log_event(CONNECTION, GATE_OPENED, connection=self._info.name)
        self._output.admission.timers.cancel(TIMER_TELL)
        if self._told_flow:
            self._tell_unblocked()

    def _tell_later(self) -> None:
        if not self.tell_blocked:
            return
        info = self._info
        after_ms = self._after_ms
        if after_ms == 0:
            after_ms = self._output.broker.client_flow.blocked_after_ms(info.user, info.vhost)
        if after_ms > 0:
            self._output.admission.timers.set(TIMER_TELL, after_ms / 1000, self._tell_flow)

    def _tell_flow(self) -> None:
        """It was stopped for so long without a pause."""
        if self._blocked.now.is_on or not self._output.admission.is_stopped:
            return
        flow = self._info.flow
        if is_alarm(flow.limit):  # which is over: what stops it now is not known yet
            self._tell_later()
            return
        reason = f"flow: {LIMIT_NAMES[int(flow.limit)]}"
        queue = self._output.broker.queue_by_group(int(flow.group))
        if queue is not None:
            reason = f"{reason} {queue.name}"
        self._told_flow = True
        self._tell_blocked(reason)
