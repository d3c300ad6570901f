"""Effects of a queue for leases (see `lease`)."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.queue.messages.effect import Effect, GroupAnswer

LEASE_OK: Final = 0
LEASE_FENCED: Final = 1  # another owner has opened the group since
LEASE_UNKNOWN_GROUP: Final = 2
LEASE_OUT_OF_ORDER: Final = 3  # its number is beyond the next one
LEASE_GONE: Final = 4  # of what was asked about, something went back since its deadline passed
LEASE_SETTLED: Final = 5  # it is settled, and its messages are no more
LEASE_GROUPS_FULL: Final = 6  # the queue has as many groups as it may
LEASES_FULL: Final = 7  # the group, or the queue, has leased as much as it may
LEASE_IN_USE: Final = 8  # the queue is another's, as an only consumer has it

LEASE_STATUS_NAMES: Final = {
    LEASE_OK: "ok",
    LEASE_FENCED: "fenced",
    LEASE_UNKNOWN_GROUP: "unknown_group",
    LEASE_OUT_OF_ORDER: "out_of_order",
    LEASE_GONE: "gone",
    LEASE_SETTLED: "settled",
    LEASE_GROUPS_FULL: "groups_full",
    LEASES_FULL: "leases_full",
    LEASE_IN_USE: "in_use",
}

HELD: Final = 1
EXPIRED: Final = 2  # its deadline passed: its messages went back
RELEASED: Final = 3  # its group gave it back


@final
class LeaseInfo:
    """Lease, as effects carry it."""

    def __init__(
        self, number: i64, state: i64, count: i64, byte_count: i64, rows: list[int]
    ) -> None:
        self.number = number  # from 1 within its group
        self.state = state  # HELD, EXPIRED or RELEASED
        self.count = count  # of its messages
        self.byte_count = byte_count  # of their bodies
        self.rows = rows  # ids of a lease that went back, as `Ranges.bounds`, LEASE_ROWS_MAX rows

    def __repr__(self) -> str:
        return (
            f"LeaseInfo({self.number}, {self.state}, {self.count}, {self.byte_count}, {self.rows})"
        )


@final
class GroupInfo:
    """Group of leases, as effects carry it."""

    def __init__(
        self,
        name: bytes,
        epoch: i64,
        next_number: i64,
        settled: i64,
        deadline_ms: i64,
        leases: list[LeaseInfo],
    ) -> None:
        self.name = name  # unique in the queue
        self.epoch = epoch  # who opened it last has this one
        self.next_number = next_number  # of its next lease
        self.settled = settled  # everything up to this lease is settled
        self.deadline_ms = deadline_ms  # when its leases expire (Unix time in ms), 0 without any
        self.leases = leases  # that it holds, or that are gone and not settled, by number

    def __repr__(self) -> str:
        return (
            f"GroupInfo({self.name!r}, {self.epoch}, {self.next_number}, {self.settled},"
            f" {self.deadline_ms}, {self.leases})"
        )


@final
class LeaseAnswer(GroupAnswer):
    """A command of a group was applied, or may not be."""

    def __init__(
        self,
        request: i64,
        status: i64,
        group: GroupInfo | None,
        count: i64 = 0,
        byte_count: i64 = 0,
        ready: i64 = 0,
        gone: list[LeaseInfo] | None = None,
    ) -> None:
        super().__init__(request)
        self.status = status  # one of the LEASE constants
        self.group = group  # as it is now, None where there is none
        self.count = count  # messages that the command leased, settled or gave back
        self.byte_count = byte_count  # of the bodies of what it leased
        self.ready = ready  # messages that it left available
        self.gone: list[LeaseInfo] = [] if gone is None else gone  # leases that went back

    def __repr__(self) -> str:
        return (
            f"LeaseAnswer({self.request}, {LEASE_STATUS_NAMES[int(self.status)]}, {self.group},"
            f" {self.count}, {self.byte_count}, {self.ready}, {self.gone})"
        )


@final
class LeaseGone(Effect):
    """A lease ended otherwise than by being settled: its messages go back."""

    def __init__(self, name: bytes, lease: LeaseInfo) -> None:
        self.name = name  # of its group
        self.lease = lease  # what is remembered of it

    def __repr__(self) -> str:
        return f"LeaseGone({self.name!r}, {self.lease})"
