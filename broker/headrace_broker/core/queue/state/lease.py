"""Messages that a group holds by lease: in the queue's state and not at a connection.

A group is opened by whoever works for it, under an *epoch* that grows within the queue; who has an
older one is refused. Its leases are numbered 1, 2, 3 and so on, and are settled up to a number. All
leases of a group have one deadline; who works for the group puts it off. A lease whose deadline has
passed is *gone*: its messages went back to where they stood, and the group remembers which those
were until it has settled what comes behind.
"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.core.queue.state.lease_effect import HELD, GroupInfo, LeaseInfo
from headrace_broker.core.queue.state.session import Consumer
from headrace_broker.model.limits import LEASE_OPENERS_KEPT_MAX, LEASE_ROWS_MAX
from headrace_broker.model.ranges import Ranges

HOLDERS: Final = 0  # session of the consumers that stand for groups; no session has this id


@final
class Lease:
    """Messages that are acquired for a group, in the order in which they were ready."""

    def __init__(self, number: i64, messages: list[Acquired]) -> None:
        self.number = number
        self.messages = messages
        self.octets = octets_of(messages)

    def info(self) -> LeaseInfo:
        """Return its info."""
        return LeaseInfo(self.number, HELD, len(self.messages), self.octets, [])

    def gone(self, state: i64) -> LeaseInfo:
        """Return its info once its messages are on their way back."""
        ids = Ranges()
        for message_id in sorted([message.message_id for message in self.messages]):
            ids.append(message_id, message_id + 1)
            if len(ids.bounds) > 2 * LEASE_ROWS_MAX:
                del ids.bounds[-2:]
                break
        return LeaseInfo(self.number, state, len(self.messages), self.octets, ids.bounds)


@final
class LeaseGroup:
    """One group.

    Attributes:
        name: unique in the queue.
        epoch: that of who opened it last.
        holder: stands for it where messages are told apart by who holds them; its number is the
            epoch under which the group was made.
        openers: the newest requests by which it was opened, and the epoch that each was given.
        next_number: of its next lease.
        settled: everything up to this lease is settled.
        settled_before: the same before the last step, which may be asked for again.
        settled_count: messages that the last step settled.
        deadline_ms: when its leases expire, 0 when it holds none.
        leases: those that it holds, by number.
        gone: those beyond `settled_before` that went back, by number.
    """

    def __init__(self, name: bytes, number: i64) -> None:
        self.name = name
        self.epoch = number
        self.holder = Consumer(HOLDERS, number)
        self.openers: dict[bytes, int] = {}
        self.next_number: i64 = 1
        self.settled: i64 = 0
        self.settled_before: i64 = 0
        self.settled_count: i64 = 0
        self.deadline_ms: i64 = 0
        self.leases: dict[int, Lease] = {}
        self.gone: dict[int, LeaseInfo] = {}

    def open(self, opener: bytes, epoch: i64) -> None:
        """Fence the group's previous owner."""
        self.epoch = epoch
        self.openers[opener] = epoch
        if len(self.openers) > LEASE_OPENERS_KEPT_MAX:
            del self.openers[next(iter(self.openers))]

    def info(self) -> GroupInfo:
        """Return its info."""
        told = {number: lease.info() for number, lease in self.leases.items()}
        told.update({number: gone for number, gone in self.gone.items() if number > self.settled})
        leases = [told[number] for number in sorted(told)]
        return GroupInfo(
            self.name, self.epoch, self.next_number, self.settled, self.deadline_ms, leases
        )

    def gone_between(self, after: i64, last: i64) -> list[LeaseInfo]:
        """Return those that are gone with numbers above `after` up to `last`."""
        return [gone for number, gone in self.gone.items() if after < number <= last]


@final
class Leaving:
    """Messages of a lease that ended, until the last of them has gone.

    Attributes:
        holder: of the group.
        operation: ACCEPT, RELEASE or MODIFY_FAILED: what becomes of them.
        messages: all of them.
        next: index of the first that is still here.
    """

    def __init__(self, holder: Consumer, operation: i64, messages: list[Acquired]) -> None:
        self.holder = holder
        self.operation = operation
        self.messages = messages
        self.next: i64 = 0


@final
class Leases:
    """All groups of a queue.

    Attributes:
        groups: by name, in the order in which they were made.
        epochs: the last epoch that was given; those of groups that are closed count.
        count: messages that are leased, and of leases that ended while they are on their way.
        leaving: of the latter.
        due_ms: the soonest deadline, 0 for none.
    """

    def __init__(self) -> None:
        self.groups: dict[bytes, LeaseGroup] = {}
        self.epochs: i64 = 0
        self.count: i64 = 0
        self.leaving: deque[Leaving] = deque()
        self.due_ms: i64 = 0

    def make(self, name: bytes) -> LeaseGroup:
        """Add a group whose name is not there."""
        group = LeaseGroup(name, self.epochs + 1)
        self.groups[name] = group
        return group

    def find_due(self) -> None:
        """Find the soonest deadline."""
        soonest: i64 = 0
        for group in self.groups.values():
            if not group.leases:
                group.deadline_ms = 0
            elif soonest == 0 or group.deadline_ms < soonest:
                soonest = group.deadline_ms
        self.due_ms = soonest


def octets_of(messages: list[Acquired]) -> i64:
    """Return the octets of the bodies of messages."""
    octets: i64 = 0
    for message in messages:
        octets += message.octets
    return octets
