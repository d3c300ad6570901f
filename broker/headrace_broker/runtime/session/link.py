"""Shared state of a session's parts: the queue's leader, and the session's end."""

from __future__ import annotations

from typing import final

from headrace_broker.core.queue.command.large_command import LargeCommand
from headrace_broker.flow.account import Account
from headrace_broker.flow.pending import Pending
from headrace_broker.model.definition import Queue
from headrace_broker.runtime.contract.lane_port import HostEnd, SessionTransport
from headrace_broker.runtime.contract.port import QueueClient, QueueListener
from headrace_broker.runtime.contract.traffic import Traffic


@final
class SessionLink:
    """A session's way to its queue."""

    __deletable__ = ("client", "listener")

    def __init__(
        self,
        session: int,
        queue: Queue,
        client: QueueClient,
        listener: QueueListener,
        reach: SessionTransport,
        traffic: Traffic,
        account: Account,
        pending: Pending,
    ) -> None:
        self.session = session  # its id, unique for ever
        self.queue = queue  # the queue's definition
        self.client = client  # the session as its channel knows it
        self.listener = listener  # the channel
        self.traffic = traffic  # counts what goes through
        self.account = account  # who owes for what is published
        self.pending = pending  # what all publishers of this node have under way to the queue
        self.target = 0  # node id of the leader that is being talked to, 0 while unknown
        self.closing = False  # the channel has closed the session
        self.gone = False  # the queue is gone, or has forgotten the session
        self.lost = False  # a command or a resync did not leave
        self.doubted = False  # deliveries may be missing
        # a command was handed to a leader or to a way there; without one no queue knows the session
        self.reached = False
        self._reach = reach

    def retire(self) -> None:
        """Drop session and channel once the session is over: they refer to this."""
        del self.client
        del self.listener

    def host(self) -> HostEnd | None:
        """Return the leader, None while it is unknown or cannot be reached."""
        return self._reach.host(self.target, self.queue.group) if self.target else None

    def send(self, data: bytes) -> None:
        """Send a command; one that does not leave is sent again later by who keeps it."""
        host = self.host()
        if host is not None:
            self.reached = True
            host.command(self.session, data)

    def send_large(self, command: LargeCommand) -> None:
        """As `send`."""
        host = self.host()
        if host is not None:
            self.reached = True
            host.large(self.session, command, [])
