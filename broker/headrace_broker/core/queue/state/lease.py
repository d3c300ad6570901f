"""Messages that a group holds by lease: in the queue's state and not at a connection.

A group is opened by whoever works for it, under an *epoch* that grows within the queue; who has an
older one is refused. Its leases are numbered 1, 2, 3 and so on, and are settled up to a number. All
leases of a group have one deadline; who works for the group puts it off. A lease whose deadline has
passed is *gone*: its messages went back to where they stood, and the group remembers which those
were until it has settled what comes behind.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from headrace_broker.core.queue.messages.effect import Acquired
from headrace_broker.core.queue.state.consumer import Consumer
from headrace_broker.core.queue.state.lease_effect import HELD, GroupInfo, LeaseInfo
from headrace_broker.model.limits import LEASE_OPENERS_KEPT_MAX, LEASE_ROWS_MAX
from headrace_broker.model.ranges import Ranges

HOLDERS: Final = 0  # session of the consumers that stand for groups; no session has this id


@final
class Lease:
    """Messages that are acquired for a group, in the order in which they were ready."""

    def __init__(self, number: i64, messages: list[Acquired]) -> None:
        self.number = number
        self.messages = messages
        self.byte_count = bytes_of(messages)

    def info(self) -> LeaseInfo:
        """Return its info."""
        return LeaseInfo(self.number, HELD, len(self.messages), self.byte_count, [])

    def gone(self, state: i64) -> LeaseInfo:
        """Return its info once its messages are on their way back."""
        ids = Ranges()
        for message_id in sorted([message.message_id for message in self.messages]):
            ids.append(message_id, message_id + 1)
            if len(ids.bounds) > 2 * LEASE_ROWS_MAX:
                del ids.bounds[-2:]
                break
        return LeaseInfo(self.number, state, len(self.messages), self.byte_count, ids.bounds)


@final
class LeaseGroup:
    """One group."""

    def __init__(self, name: bytes, number: i64) -> None:
        self.name = name  # unique in the queue
        self.epoch = number  # that of who opened it last
        # stands for it where messages are told apart by who holds them; its number is the epoch
        # under which the group was made
        self.holder = Consumer(HOLDERS, number)
        self.openers: dict[bytes, int] = {}  # newest requests that opened it -> epoch
        self.next_number: i64 = 1  # of its next lease
        self.settled: i64 = 0  # everything up to this lease is settled
        self.settled_before: i64 = 0  # the same before the last step, which may be asked for again
        self.settled_count: i64 = 0  # messages that the last step settled
        self.deadline_ms: i64 = 0  # when its leases expire, 0 when it holds none
        self.leases: dict[int, Lease] = {}  # those that it holds, by number
        self.gone: dict[int, LeaseInfo] = {}  # beyond `settled_before`, by number

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
    """Messages of a lease that ended, until the last of them has gone."""

    def __init__(self, holder: Consumer, operation: i64, messages: list[Acquired]) -> None:
        self.holder = holder  # of the group
        self.operation = operation  # ACCEPT, RELEASE or MODIFY_FAILED: what becomes of them
        self.messages = messages  # all of them
        self.next: i64 = 0  # index of the first that is still here


@final
class Leases:
    """All groups of a queue."""

    def __init__(self) -> None:
        self.groups: dict[bytes, LeaseGroup] = {}  # by name, in the order in which they were made
        self.epochs: i64 = 0  # the last epoch that was given; those of groups that are closed count
        self.count: i64 = 0  # leased messages, and those of ended leases on their way
        self.leaving: list[Leaving] = []  # of the latter
        self.due_ms: i64 = 0  # the soonest deadline, 0 for none

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


def bytes_of(messages: list[Acquired]) -> i64:
    """Return the bytes of the bodies of messages."""
    byte_count: i64 = 0
    for message in messages:
        byte_count += message.byte_count
    return byte_count
