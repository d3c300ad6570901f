"""Leases and numbered publishers of the naive queue."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.broker.core import naive_archive as na
from tests.broker.core.naive_parts import Message, Place, Receiver, Told
from tests.broker.core.naive_state import NaiveState

from headrace_broker.core.queue.command.lease_command import (
    CloseGroup,
    LeaseCommand,
    OpenGroup,
    ReleaseLeases,
    RenewLeases,
    SettleLeases,
    TakeLease,
)
from headrace_broker.core.queue.messages.publisher import Named
from headrace_broker.core.queue.state import lease_effect as le

LeaseTold = tuple[int, int, int, int, list[int]]


@dataclass
class Group:
    name: bytes
    place: Place
    epoch: int = 0
    openers: dict[bytes, int] = field(default_factory=dict)
    next: int = 1
    settled: int = 0
    before: int = 0
    settled_count: int = 0
    deadline: int = 0
    leases: dict[int, list[Message]] = field(default_factory=dict)
    gone: dict[int, LeaseTold] = field(default_factory=dict)

    def told(self) -> tuple[object, ...]:
        all_leases = {n: told for n, told in self.gone.items() if n > self.settled}
        for number, held in self.leases.items():
            all_leases[number] = (number, le.HELD, len(held), bytes_of(held), [])
        deadline = self.deadline if self.leases else 0
        leases = [all_leases[number] for number in sorted(all_leases)]
        return (self.name, self.epoch, self.next, self.settled, deadline, leases)


def bytes_of(messages: list[Message]) -> int:
    return sum(message.byte_count for message in messages)


def rows_of(messages: list[Message]) -> list[int]:
    rows: list[int] = []
    for number in sorted(message.number for message in messages):
        if rows and rows[-1] == number:
            rows[-1] = number + 1
        else:
            rows += [number, number + 1]
    return rows


@dataclass
class Publisher:
    epoch: int
    last: int = 0
    used: int = 0
    holes: set[int] = field(default_factory=set)


class NaiveLeases(NaiveState):
    """Lease groups, each a receiver of session 0."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[bytes, Group] = {}
        self.epochs = 0
        self.publishers: dict[bytes, Publisher] = {}

    def leased(self) -> int:
        return sum(len(r.held) for place, r in self.receivers.items() if place[0] == 0)

    def do_lease_command(self, command: LeaseCommand, told: Told) -> None:
        group = self.groups.get(command.name)
        status, count, byte_count, gone = self.lease_command(group, command, told)
        known = self.groups.get(command.name)
        full = status == le.LEASE_GROUPS_FULL
        answer = known.told() if known is not None and not full else None
        without = answer is None and status != le.LEASE_OK
        ready = 0 if status == le.LEASE_FENCED or without else len(self.waiting)
        if group is None and isinstance(command, CloseGroup):
            ready = 0
        told.answers.append(
            ("lease", command.request, status, answer, count, byte_count, ready, gone)
        )

    def lease_command(
        self, group: Group | None, command: LeaseCommand, told: Told
    ) -> tuple[int, int, int, list[LeaseTold]]:
        if isinstance(command, OpenGroup):
            return self.open_group(group, command), 0, 0, []
        if group is None:
            closing = isinstance(command, CloseGroup)
            return (le.LEASE_OK if closing else le.LEASE_UNKNOWN_GROUP), 0, 0, []
        if command.epoch != group.epoch and not (
            isinstance(command, CloseGroup) and command.epoch == 0
        ):
            return le.LEASE_FENCED, 0, 0, []
        if isinstance(command, TakeLease):
            return self.take_lease(group, command, told)
        if isinstance(command, RenewLeases):
            group.deadline = self.now + int(command.ttl_ms)
            return le.LEASE_OK, 0, 0, []
        if isinstance(command, SettleLeases):
            return self.settle_leases(group, int(command.last))
        if isinstance(command, ReleaseLeases):
            numbers = [number for number in group.leases if number >= command.first]
            return le.LEASE_OK, self.end(group, numbers, le.RELEASED, command.failed, told), 0, []
        count = self.end(group, list(group.leases), le.RELEASED, False, told)
        del self.groups[group.name]
        return le.LEASE_OK, count, 0, []

    def open_group(self, group: Group | None, command: OpenGroup) -> int:
        if group is None:
            group = Group(command.name, (0, self.epochs + 1))
            self.groups[command.name] = group
            self.receivers[group.place] = Receiver(group.place, state="group")
        epoch = group.openers.get(command.opener)
        if epoch is not None and epoch != group.epoch:
            return le.LEASE_FENCED
        if epoch is None:
            self.epochs += 1
            group.epoch = group.openers[command.opener] = self.epochs
            for opener in list(group.openers)[:-8]:
                del group.openers[opener]
        group.deadline = max(group.deadline if group.leases else 0, self.now + int(command.ttl_ms))
        return le.LEASE_OK

    def take_lease(
        self, group: Group, command: TakeLease, told: Told
    ) -> tuple[int, int, int, list[LeaseTold]]:
        number = int(command.number)
        if number in group.leases:
            held = group.leases[number]
            return le.LEASE_OK, len(held), bytes_of(held), []
        if number in group.gone and number > group.settled:
            return le.LEASE_GONE, 0, 0, [group.gone[number]]
        if number < group.next:
            return le.LEASE_SETTLED, 0, 0, []
        if number > group.next:
            return le.LEASE_OUT_OF_ORDER, 0, 0, []
        attached = [r for r in self.receivers.values() if r.state == "attached"]
        own = sum(map(len, group.leases.values()))
        if any(r.exclusive for r in attached) or (
            self.settings.single_active and (attached or self.leased() > own)
        ):
            return le.LEASE_IN_USE, 0, 0, []
        taken = self.take_some(group, int(command.messages), int(command.byte_count), told)
        if taken:
            if not group.leases:
                group.deadline = 0
            group.leases[number] = taken
            group.next += 1
            group.deadline = max(group.deadline, self.now + int(command.ttl_ms))
        return le.LEASE_OK, len(taken), bytes_of(taken), []

    def take_some(self, group: Group, most: int, byte_count: int, told: Told) -> list[Message]:
        taken: list[Message] = []
        while self.waiting and len(taken) < most and bytes_of(taken) < byte_count:
            if self.is_overdue():
                self.expire_front(told)
                continue
            message = self.first_for(group.place)
            if message is None:
                break
            self.waiting.remove(message)
            self.taken(message)
            receiver = self.receivers[group.place]
            receiver.given += 1
            receiver.held[receiver.given] = (message, self.now)
            taken.append(message)
        return taken

    def drop_held(self, place: Place, messages: list[Message]) -> None:
        held = self.receivers[place].held
        for delivery in [n for n, (message, _) in held.items() if message in messages]:
            del held[delivery]

    def settle_leases(self, group: Group, last: int) -> tuple[int, int, int, list[LeaseTold]]:
        if last >= group.next:
            return le.LEASE_OUT_OF_ORDER, 0, 0, []
        if last > group.settled:
            group.before, group.settled = group.settled, last
            done = [group.leases.pop(n) for n in list(group.leases) if n <= last]
            group.settled_count = sum(map(len, done))
            for held in done:
                self.drop_held(group.place, held)
                for message in held:
                    self.keep(message, na.ACKED)
            group.gone = {n: told for n, told in group.gone.items() if n > group.before}
            self.leases_ended()
        if last < group.settled:
            return le.LEASE_OK, 0, 0, []
        gone = [told for n, told in group.gone.items() if group.before < n <= last]
        expired = any(told[1] == le.EXPIRED for told in gone)
        return (le.LEASE_GONE if expired else le.LEASE_OK), group.settled_count, 0, gone

    def end(self, group: Group, numbers: list[int], why: int, failed: bool, told: Told) -> int:
        count = 0
        ended = []
        for number in numbers:
            held = group.leases.pop(number)
            count += len(held)
            ended.append(held)
            group.gone[number] = (number, why, len(held), bytes_of(held), rows_of(held))
            told.answers.append(("lease gone", group.name, group.gone[number]))
        for held in ended:
            self.drop_held(group.place, held)
            for message in held:
                self.give_back(message, failed, told)
        self.leases_ended()
        return count

    def leases_ended(self) -> None:
        if self.settings.single_active and self.leased() == 0:
            self.choose()

    def end_due_leases(self, told: Told) -> None:
        for group in self.groups.values():
            if group.leases and group.deadline <= self.now:
                self.end(group, list(group.leases), le.EXPIRED, False, told)

    # Publishers

    def publisher_of(self, named: Named) -> Publisher | None:
        found = self.publishers.get(named.publisher)
        if found is None or found.used + self.settings.publisher_retention_ms <= self.now:
            return None
        return found

    def had(self, named: Named | None) -> list[bool]:
        """Which positions the queue has had."""
        if named is None:
            return []
        found = self.publisher_of(named)
        numbers = numbers_of(named)
        if found is None or named.epoch > found.epoch:
            return [False] * len(numbers)
        if named.epoch < found.epoch:
            return [True] * len(numbers)
        return [number <= found.last and number not in found.holes for number in numbers]

    def fences(self, named: Named) -> bool:
        """Return whether a command with these numbers comes too late."""
        found = self.publisher_of(named)
        return self.version >= 4 and found is not None and named.epoch < found.epoch

    def note(self, named: Named, start: int, stop: int) -> None:
        """Positions from `start` to `stop` came, those behind were refused."""
        if self.settings.publisher_retention_ms == 0:
            return
        found = self.publisher_of(named)
        if found is None:
            keep = self.settings.publisher_retention_ms
            self.publishers = {n: p for n, p in self.publishers.items() if p.used + keep > self.now}
            found = Publisher(int(named.epoch))
        self.publishers[named.publisher] = found
        found.used = self.now
        if named.epoch < found.epoch:
            return
        if named.epoch > found.epoch:
            found.epoch, found.last, found.holes = int(named.epoch), 0, set()
        numbers = numbers_of(named)
        found.holes -= set(numbers[start:stop])
        found.holes |= {number for number in numbers[stop:] if number > found.last}
        found.last = max(found.last, numbers[-1])


def numbers_of(named: Named) -> list[int]:
    rows = zip(named.rows[::2], named.rows[1::2], strict=True)
    return [number for row in rows for number in range(*row)]
