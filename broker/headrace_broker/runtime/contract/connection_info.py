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
        """Return a `model.status.ChannelStatus` of each open channel, by number.

        Args:
            now_us: on the clock of activities.
        """


class ConnectionInfo:
    """A client connection, for listings.

    Attributes:
        id: unique in the cluster for ever; also the `owner` of its exclusive queues.
        name: "peer:port -> local:port".
        connected_at_ms: Unix time.
        kind: of its account, CONNECTION or STREAM of `model.flow`.
        protocol: for people.
        channels: how many are open now.
        channels_opened: how many ever were.
        mechanism: of authentication.
        session_epoch: `CatalogView.session_epoch` of its user as of the log-in.
        tls: what the TLS handshake agreed, None in the clear.
        control: its handle while it is open.
        state: of `model.flow`: RUNNING, FLOW, BLOCKING or BLOCKED.
        flow: what stops its publishes.
        account: what it owes, None before it has any.
        held_messages: publishes held for it in its channels.
        held_octets: the same in octets.
        passed: what has passed its channels that are closed.
        recv_oct: octets that came from its client.
        recv_cnt: in how many pieces.
        send_oct: octets that were written to it.
        send_cnt: in how many pieces.
    """

    def __init__(self, connection_id: str, name: str, peer: str, connected_at_ms: int) -> None:
        self.id = connection_id
        self.name = name
        self.peer = peer
        self.connected_at_ms = connected_at_ms
        self.kind = CONNECTION
        self.protocol = AMQP
        self.user = ""
        self.vhost = ""
        self.client_properties: dict[str, Any] = {}
        self.channel_max = 0
        self.frame_max = 0
        self.heartbeat_s = 0
        self.channels = 0
        self.channels_opened = 0
        self.mechanism = ""
        self.session_epoch = 0
        self.tls: TlsSession | None = None
        self.control: ConnectionControl | None = None
        self.state = RUNNING
        self.flow = Activity(connected_at_ms * 1000)
        self.account: Account | None = None
        self.held_messages = 0
        self.held_octets = 0
        self.passed = ClientTraffic()
        self.recv_oct: i64 = 0
        self.recv_cnt: i64 = 0
        self.send_oct: i64 = 0
        self.send_cnt: i64 = 0

    def client_name(self) -> str:
        """Return what the client calls itself, the beginning of a long name, "" for nothing."""
        found = self.client_properties.get("connection_name")
        return found[:CLIENT_NAME_SHOWN_MAX] if isinstance(found, str) else ""

    def octets(self) -> tuple[int, ...]:
        """Return the counters that `model.stats.OCTET_FIGURES` names."""
        return (self.recv_oct, self.recv_cnt, self.send_oct, self.send_cnt)

    def traffic(self) -> tuple[int, ...]:
        """Return the traffic of all its channels, as `model.stats.CLIENT_FIGURES` names it."""
        total = ClientTraffic()
        total.add(self.passed)
        if self.control is not None:
            for _, each in self.control.traffic():
                total.add(each)
        return total.counts()
