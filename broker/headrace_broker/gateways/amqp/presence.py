"""A connection's place on the node: listed, and told when publishers are blocked."""

from __future__ import annotations

from typing import final

from pamqp import commands

from headrace_broker.codecs.method import cut_short_string
from headrace_broker.gateways.amqp.outlet import Outlet
from headrace_broker.runtime.port import ConnectionInfo


@final
class Presence:
    """Listed and watching from `enter` to `leave`.

    Attributes:
        tell_blocked: the client understands connection.blocked.
    """

    def __init__(self, outlet: Outlet, info: ConnectionInfo) -> None:
        self.tell_blocked = False
        self._outlet = outlet
        self._info = info
        self._here = False
        self._watcher = self.blocked_changed  # one object, so that it is known again

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

    def blocked_changed(self, reason: str) -> None:
        """Publishers are blocked for this reason, or with "" no longer."""
        self._outlet.brake.block(reason != "")
        if not self.tell_blocked:
            return
        if reason:
            self._outlet.send(0, commands.Connection.Blocked(cut_short_string(reason)))
        else:
            self._outlet.send(0, commands.Connection.Unblocked())
