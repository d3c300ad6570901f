"""Groups that lease messages, and the answers to them, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from headrace_client.message import Properties
from headrace_client.message_value import read_value
from headrace_protos.broker.v1 import lease_pb2 as pb

HELD: Final = "held"
EXPIRED: Final = "expired"  # its deadline passed; its messages went back
RELEASED: Final = "released"  # the group gave it back
_STATES: Final = {
    pb.LeaseState.HELD: HELD,
    pb.LeaseState.EXPIRED: EXPIRED,
    pb.LeaseState.RELEASED: RELEASED,
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class LeaseState:
    """A lease of a group."""

    lease: int  # its number
    state: str  # HELD, EXPIRED or RELEASED
    messages: int  # how many
    byte_count: int  # of their bodies
    # of one that is gone: first and last of each range that went back, at most 256
    message_ids: tuple[tuple[int, int], ...] = ()

    @property
    def message_id_text(self) -> str:
        """The ranges, for people."""
        return ", ".join(
            f"{first}" if first == last else f"{first}-{last}" for first, last in self.message_ids
        )


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group."""

    name: str  # unique in its queue
    epoch: int  # of who opened it last
    next_lease: int  # number of its next lease
    settled: int  # everything up to this lease is settled
    deadline: datetime | None = None  # when what it holds expires, None when it holds nothing
    leases: tuple[LeaseState, ...] = ()  # held, or gone and not settled; ascending


@dataclass(frozen=True, slots=True)
class Leased:
    """Contents of a lease."""

    lease: int  # its number
    messages: int  # 0: nothing was ready, and there is no lease of that number
    byte_count: int  # of the bodies
    messages_ready: int  # left in the queue
    group: GroupState  # as it is now


@dataclass(frozen=True, slots=True)
class SettledLeases:
    """Result of settling leases."""

    messages: int  # that this step of the group has settled, also when it is repeated
    expired: bool  # some of the leases had expired, and their messages come again
    gone: tuple[LeaseState, ...]  # those that went back, expired or released
    group: GroupState  # as it is now


@dataclass(frozen=True, slots=True)
class LeasedMessage:
    """A message of a lease."""

    message_id: int  # number that the queue gave it; ascends in the order of arrival
    enqueued_at: datetime  # when it came to the queue
    acquired_count: int  # deliveries and leases before, failed or not
    delivery_count: int  # those that failed
    exchange: str  # that it was published to; "" is the default exchange
    routing_key: str  # that it was published with
    properties: Properties
    body: bytes  # any bytes


@dataclass(frozen=True, slots=True)
class LeaseChunk:
    """Some messages of a lease, in order."""

    offset: int  # of the first, within the lease
    total: int  # of the whole lease
    messages: tuple[LeasedMessage, ...]  # 1 or more


def read_group(group: pb.LeaseGroup) -> GroupState:
    """Return a group."""
    deadline = _time(group.deadline_ms) if group.deadline_ms else None
    return read_value(
        GroupState, group, deadline=deadline, leases=tuple(map(_read_lease, group.leases))
    )


def _read_lease(lease: pb.LeaseState) -> LeaseState:
    state = _STATES.get(lease.state, EXPIRED)  # one of a newer broker: in any case not held
    ids = tuple((each.first, each.last) for each in lease.message_ids)
    return read_value(LeaseState, lease, state=state, message_ids=ids, byte_count=lease.octets)


def read_leased(answer: pb.LeaseResponse) -> Leased:
    """Return the content of a lease."""
    return read_value(Leased, answer, byte_count=answer.octets, group=read_group(answer.group))


def read_settled(answer: pb.SettleLeasesResponse) -> SettledLeases:
    """Return the settled leases."""
    gone = tuple(map(_read_lease, answer.gone))
    return read_value(SettledLeases, answer, gone=gone, group=read_group(answer.group))


def read_chunk(answer: pb.FetchLeaseResponse) -> LeaseChunk:
    """Return messages of a lease."""
    return LeaseChunk(answer.offset, answer.total, tuple(map(_message, answer.rows)))


def _message(row: pb.LeasedMessage) -> LeasedMessage:
    return LeasedMessage(  # field by field: `read_value` would take longer for each message
        row.message_id,
        _time(row.enqueued_ms),
        row.acquired_count,
        row.delivery_count,
        row.exchange,
        row.routing_key,
        Properties.from_pb(row.properties),
        row.body,
    )


def _time(unix_ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=unix_ms)
