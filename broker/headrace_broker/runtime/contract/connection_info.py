"""A client connection as the node lists it, and what may be asked of it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Final

from mypy_extensions import i64, mypyc_attr

from headrace_broker.flow.account import Account
from headrace_broker.flow.activity import Activity
from headrace_broker.model.flow import CONNECTION, RUNNING
from headrace_broker.model.limits import CLIENT_NAME_SHOWN_MAX
from headrace_broker.model.tls import TlsSession
from headrace_broker.runtime.contract.traffic import ClientTraffic

AMQP: Final = "AMQP 0-9-1"


@mypyc_attr(allow_interpreted_subclasses=True)
class ConnectionControl:
    """Operations of the node on an open client connection."""

    @abstractmethod
    def shut_down(self, reason: str) -> None:
        """Close it with CONNECTION_FORCED, telling the client the reason."""

    def traffic(self) -> list[tuple[int, ClientTraffic]]:
        """Return the traffic of each open channel, with its number."""
        return []

    @abstractmethod
    def limits_changed(self) -> None:
        """Resume waiting publishes, as far as the limits of flow control allow it now."""

    @abstractmethod
    def channels(self, now_us: int) -> list[Any]:
        """Return a `ChannelStatus` of each open channel, by number, as of the activities' clock."""


class ConnectionInfo:
    """A client connection, for listings."""

    def __init__(self, connection_id: str, name: str, peer: str, connected_at_ms: int) -> None:
        self.id = connection_id  # unique for ever; also the `owner` of its exclusive queues
        self.name = name  # "peer:port -> local:port"
        self.peer = peer
        self.connected_at_ms = connected_at_ms  # Unix time
        self.kind = CONNECTION  # of its account, CONNECTION or STREAM of `model.flow`
        self.protocol = AMQP  # for people
        self.user = ""
        self.vhost = ""
        self.client_properties: dict[str, Any] = {}
        self.channel_max = 0
        self.frame_max = 0
        self.heartbeat_s = 0
        self.channels = 0  # how many are open now
        self.channels_opened = 0  # how many ever were
        self.mechanism = ""  # of authentication
        self.session_epoch = 0  # `CatalogView.session_epoch` of its user as of the log-in
        self.tls: TlsSession | None = None  # what the TLS handshake agreed, None in the clear
        self.control: ConnectionControl | None = None  # its handle while it is open
        self.state = RUNNING  # of `model.flow`: RUNNING, FLOW, BLOCKING or BLOCKED
        self.flow = Activity(connected_at_ms * 1000)  # what stops its publishes
        self.account: Account | None = None  # what it owes, None before it has any
        self.buffered_messages = 0  # publishes held for it in its channels
        self.buffered_bytes = 0  # the same in bytes
        self.passed = ClientTraffic()  # what has passed its channels that are closed
        self.recv_oct: i64 = 0  # bytes that came from its client
        self.recv_cnt: i64 = 0  # in how many pieces
        self.send_oct: i64 = 0  # bytes that were written to it
        self.send_cnt: i64 = 0  # in how many pieces

    def client_name(self) -> str:
        """Return what the client calls itself, the beginning of a long name, "" for nothing."""
        found = self.client_properties.get("connection_name")
        return found[:CLIENT_NAME_SHOWN_MAX] if isinstance(found, str) else ""

    def byte_counts(self) -> tuple[int, ...]:
        """Return the counters that `model.stats.BYTE_FIGURES` names."""
        return (self.recv_oct, self.recv_cnt, self.send_oct, self.send_cnt)

    def traffic(self) -> tuple[int, ...]:
        """Return the traffic of all its channels, as `model.stats.CLIENT_FIGURES` names it."""
        total = ClientTraffic()
        total.add(self.passed)
        if self.control is not None:
            for _, each in self.control.traffic():
                total.add(each)
        return total.counts()
