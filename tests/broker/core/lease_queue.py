"""A queue whose messages are leased, for tests."""

from __future__ import annotations

from tests.broker.core.conftest import ANNA, QueueLog, batch

from headrace_broker.core.queue.command import lease_command
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.messages.effect import Effect
from headrace_broker.core.queue.state.lease_effect import LEASE_OK, GroupInfo, LeaseAnswer

TTL = 10_000


def batch_of(count: int) -> bytes:
    return batch(*[b""] * count)


class Leasing(QueueLog):
    """A queue whose groups are asked one thing at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.configure(3)
        self.effects: list[Effect] = []

    def ask(self, encoded: bytes) -> LeaseAnswer:
        self.effects = self.apply(encoded)
        (answer,) = [effect for effect in self.effects if isinstance(effect, LeaseAnswer)]
        assert answer.request == 77
        return answer

    def open(self, opener: bytes = b"a", name: bytes = b"g", ttl_ms: int = TTL) -> LeaseAnswer:
        return self.ask(lease_command.encode_open_group(77, name, ttl_ms, opener))

    def lease(
        self,
        number: int,
        most: int = 100,
        epoch: int = 1,
        name: bytes = b"g",
        byte_count: int = 1 << 30,
        ttl_ms: int = TTL,
    ) -> LeaseAnswer:
        encoded = lease_command.encode_lease(77, name, epoch, number, most, byte_count, ttl_ms)
        return self.ask(encoded)

    def renew(self, ttl_ms: int = TTL, epoch: int = 1) -> LeaseAnswer:
        return self.ask(lease_command.encode_renew(77, b"g", epoch, ttl_ms))

    def settle_to(self, last: int, epoch: int = 1) -> LeaseAnswer:
        return self.ask(lease_command.encode_settle_leases(77, b"g", epoch, last))

    def release(self, first: int = 1, failed: bool = False, epoch: int = 1) -> LeaseAnswer:
        return self.ask(lease_command.encode_release_leases(77, b"g", epoch, first, failed))

    def close(self, epoch: int = 0) -> LeaseAnswer:
        return self.ask(lease_command.encode_close_group(77, b"g", epoch))

    def held(self, number: int, epoch: int = 1) -> list[int]:
        """The ids of the messages of a lease, in its order."""
        status, found = self.machine.leased(b"g", epoch, number)
        assert (status == LEASE_OK) == bool(found)
        return [message.message_id for message in found]

    def figures(self) -> tuple[int, int, int]:
        """Return the numbers of ready, unsettled, and leased messages."""
        machine = self.machine
        return machine.ready_count, machine.unsettled_count, machine.leased_count

    def fill(self) -> Leasing:
        """Take ten messages in two entries, and a group that is open under epoch 1."""
        self.enqueue(ANNA, 1, 6)
        self.enqueue(ANNA, 7, 4)
        self.open()
        return self

    def turn_over(self) -> None:
        """Go on with a machine that was restored from a snapshot."""
        restored = QueueMachine.restore(self.machine.snapshot())
        assert restored.digest() == self.machine.digest()
        assert restored.live_entries() == self.machine.live_entries()
        assert restored.due_ms() == self.machine.due_ms()
        self.machine = restored


def group_of(answer: LeaseAnswer) -> GroupInfo:
    """The group that answers."""
    assert answer.group is not None
    return answer.group


def states(answer: LeaseAnswer) -> list[tuple[int, int, int]]:
    """Number, state and message count of the leases of the group that answers."""
    return [(lease.number, lease.state, lease.count) for lease in group_of(answer).leases]
