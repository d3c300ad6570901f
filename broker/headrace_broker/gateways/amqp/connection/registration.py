"""Registration of an open connection at its node, and its end with its user's sessions."""

from __future__ import annotations

from typing import final

from headrace_broker.catalog.permission_watch import PermissionWatch, needs_nothing
from headrace_broker.gateways.amqp.messages.connection_output import ConnectionOutput
from headrace_broker.model.reply_code import AmqpError
from headrace_broker.runtime.contract.port import ConnectionInfo


@final
class Registration:
    """A connection's entry in the node's list, from `enter` to `remove`."""

    def __init__(self, output: ConnectionOutput, info: ConnectionInfo) -> None:
        self._output = output
        self._info = info
        self._listed = False
        self._standing: PermissionWatch | None = None

    def watch_user(self, vhost: str) -> None:
        """End the session with its user, and with what ends the user's sessions.

        Raises:
            AmqpError: CONNECTION_FORCED, it has ended since the log-in.
        """
        info = self._info
        standing = PermissionWatch(info.user, vhost, needs_nothing, self._over, info.session_epoch)
        self._output.broker.standings.enter(standing)
        self._standing = standing

    def _over(self, error: AmqpError) -> None:
        control = self._info.control
        if control is not None:
            control.shut_down(error.text)

    def enter(self) -> None:
        """List the connection, which is open."""
        broker = self._output.broker
        self._listed = True
        cause = self._output.admission.account.cause
        cause.user, cause.vhost = self._info.user, self._info.vhost
        cause.client_name = self._info.client_name()
        broker.connection_opened(self._info)

    def unwatch_user(self) -> None:
        """Stop watching the user, as the connection is closing."""
        self._output.stand_down(self._standing)
        self._standing = None

    def remove(self) -> None:
        """Remove the entry; a second call does nothing."""
        if self._listed:
            self._listed = False
            self._output.broker.connection_closed(self._info)
