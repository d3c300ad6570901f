"""Effects of the client's part of the handshake on a connection."""

from __future__ import annotations

from typing import Final, final

from pamqp import commands

from headrace_broker.codecs.frame_parser import FrameParser
from headrace_broker.gateways.amqp.connection import handshake
from headrace_broker.gateways.amqp.connection.blocked_notifier import ConnectionBlockedNotifier
from headrace_broker.gateways.amqp.connection.registration import Registration
from headrace_broker.gateways.amqp.messages.connection_output import ConnectionOutput
from headrace_broker.gateways.amqp.methods.authorization import check_vhost
from headrace_broker.gateways.amqp.model import states
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.contract.port import ConnectionInfo
from headrace_broker.runtime.security.audit import Actor, record_by

PROTOCOL: Final = "amqp"  # in the audit log

# What a method on channel 0 means to `states.CONNECTION_TABLE`.
CONNECTION_METHODS: Final = {
    commands.Connection.StartOk.index: states.START_OK,
    commands.Connection.TuneOk.index: states.TUNE_OK,
    commands.Connection.Open.index: states.OPEN,
    commands.Connection.Close.index: states.CLOSE,
    commands.Connection.CloseOk.index: states.CLOSE_OK,
    commands.Connection.UpdateSecret.index: states.UPDATE_SECRET,
}


@final
class Opening:
    """Checks the client's answers and applies them."""

    def __init__(
        self,
        info: ConnectionInfo,
        output: ConnectionOutput,
        parser: FrameParser,
        registration: Registration,
        notifier: ConnectionBlockedNotifier,
    ) -> None:
        self.tell_refusal = False  # the client wants connection.close for a wrong password
        self._info = info
        self._output = output
        self._parser = parser
        self._registration = registration
        self._notifier = notifier

    def start_ok(self, command: commands.Connection.StartOk) -> tuple[str, str | None]:
        """Take the client's properties.

        Returns:
            User and password; no password for a user whom its certificate has proven, "" being
            none.

        Raises as `handshake.credentials`, `handshake.qos_running` and
        `ConnectionBlockedNotifier.take_properties`.
        """
        user: str
        password: str | None
        tls = self._info.tls
        if tls is not None and tls.external and command.mechanism == handshake.EXTERNAL:
            user, password = tls.login, None
        else:
            user, password = handshake.credentials(command)
        properties = dict(command.client_properties or {})
        self._info.mechanism = command.mechanism
        self.tell_refusal = handshake.capability(properties, "authentication_failure_close")
        self._info.client_properties = properties
        self._info.user = user
        self._output.cancel_notify = handshake.capability(properties, "consumer_cancel_notify")
        self._output.qos_running = handshake.qos_running(properties)
        self._notifier.take_properties(properties)
        self._notifier.tell_blocked = handshake.capability(properties, "connection.blocked")
        return user, password

    def tune_ok(self, command: commands.Connection.TuneOk) -> None:
        """Take the client's limits. Raises as `handshake.check_tune`."""
        handshake.check_tune(command, self._output.broker.limits)
        self._info.channel_max = command.channel_max
        self._info.frame_max = command.frame_max
        self._info.heartbeat_s = command.heartbeat
        self._output.frame_max = command.frame_max
        self._parser.frame_max = command.frame_max
        self._parser.channel_max = command.channel_max

    def open(self, command: commands.Connection.Open) -> None:
        """Take the vhost, and messages from now on.

        Raises:
            AmqpError: NOT_ALLOWED for a vhost that does not exist or is closed to the user;
                CONNECTION_FORCED, the user's sessions were ended since the log-in.
        """
        vhost = command.virtual_host
        try:
            check_vhost(self._output.broker, self._info.user, vhost)
            self._registration.watch_user(vhost)
        except AmqpError as error:
            actor = Actor(self._info.user, self._info.peer, PROTOCOL, self._info.id)
            record_by(actor, "open", vhost, error.text)
            raise
        self._info.vhost = vhost
        self._output.vhost = vhost
        limits = self._output.broker.limits
        self._parser.body_bytes_max = limits.message_bytes_max
        self._parser.partial_bytes_max = limits.partial_bytes_max
