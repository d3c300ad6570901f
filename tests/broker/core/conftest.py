"""A queue with its log, and random logs, for the tests of the queue machine."""

from __future__ import annotations

import random

import pytest

from headrace_broker.codecs.batch import encode_batch
from headrace_broker.core import command
from headrace_broker.core.command import SettleItem
from headrace_broker.core.effect import Acquired, Deliver, Effect, EntryDead
from headrace_broker.core.queue_machine import QueueMachine
from headrace_broker.model.message import Publish
from headrace_broker.model.session import session_id

ANNA = session_id(1, 1, 1)
BERT = session_id(2, 1, 1)
CARL = session_id(2, 1, 2)

Run = tuple[int, int, list[int]]  # consumer's session and number, message ids in delivery order


def batch(*bodies: bytes) -> bytes:
    """Encode a batch of messages with these bodies."""
    return encode_batch([Publish(1, b"\x00\x01q", False, False, b"\x00\x00", b) for b in bodies])


class QueueLog:
    """A machine and the entries applied to it."""

    def __init__(self) -> None:
        self.machine = QueueMachine()
        self.entries: list[bytes] = []

    def apply(self, encoded: bytes) -> list[Effect]:
        """Stamp, log and apply a command; return its effects."""
        self.entries.append(command.stamp_command(1_700_000_000_000 + len(self.entries), encoded))
        return self.machine.apply(len(self.entries), self.entries[-1])

    def enqueue(self, session: int, seq: int, count: int = 1) -> list[Effect]:
        """Enqueue `count` messages whose bodies have 0, 1, 2, ... octets."""
        return self.apply(command.encode_enqueue(session, seq, batch(*map(bytes, range(count)))))

    def attach(
        self, session: int, seq: int, consumer: int, prefetch: int, exclusive: bool = False
    ) -> list[Effect]:
        encoded = command.encode_attach(session, seq, consumer, prefetch, exclusive, b"tag")
        return self.apply(encoded)

    def settle(
        self, session: int, seq: int, operation: int, *ranges: tuple[int, int, int]
    ) -> list[Effect]:
        """Settle ranges (consumer, first, last) by one operation."""
        items = [SettleItem(consumer, operation, first, last) for consumer, first, last in ranges]
        return self.apply(command.encode_settle(session, seq, items))


@pytest.fixture
def queue() -> QueueLog:
    return QueueLog()


def runs(effects: list[Effect]) -> list[Run]:
    """The deliveries among effects."""
    return [
        (effect.session, effect.consumer, [message.message_id for message in effect.messages])
        for effect in effects
        if isinstance(effect, Deliver)
    ]


def messages(effects: list[Effect]) -> list[Acquired]:
    """All delivered messages among effects."""
    return [message for e in effects if isinstance(e, Deliver) for message in e.messages]


def dead(effects: list[Effect]) -> list[int]:
    """The log positions that effects tell to be dead."""
    return [effect.index for effect in effects if isinstance(effect, EntryDead)]


def random_log(seed: int, length: int) -> list[bytes]:
    """Entries of a busy queue: most make sense, some are repeated, early or nonsense."""
    choice = random.Random(seed)
    lanes: dict[tuple[int, str], int] = {}
    entries: list[bytes] = []

    def number(session: int, lane: str, count: int) -> int:
        first = lanes.get((session, lane), 0) + 1
        lanes[session, lane] = first + count - 1
        return max(1, first + choice.choice([0] * 12 + [-1, -2, 5]))

    def one() -> bytes:
        session = session_id(choice.randint(1, 3), 1, choice.randint(1, 2))
        kind = choice.choice("eeeeeessssssssaaacggpxdd")
        if kind == "e":
            count = choice.randint(1, 12)
            bodies = [bytes(choice.choice([8, 8, 8, 100])) for _ in range(count)]
            return command.encode_enqueue(session, number(session, "p", count), batch(*bodies))
        if kind in "xd":
            return _rare(choice, session, lanes)
        seq = number(session, "c", 1)
        consumer = choice.randint(1, 3)
        if kind == "s":
            first = choice.randint(1, 60)
            items = [
                SettleItem(choice.randint(0, 3), choice.randint(1, 4), first, first + step * 7)
                for step in range(choice.randint(0, 4))
            ]
            return command.encode_settle(session, seq, items)
        if kind == "a":
            prefetch = choice.choice([1, 2, 5, 40])
            return command.encode_attach(session, seq, consumer, prefetch, seq % 9 == 0, b"tag")
        if kind == "c":
            return command.encode_cancel(session, seq, consumer)
        return (command.encode_get if kind == "g" else command.encode_purge)(session, seq)

    for _ in range(length):
        entries.append(command.stamp_command(len(entries), one()))
    return entries


def _rare(choice: random.Random, session: int, lanes: dict[tuple[int, str], int]) -> bytes:
    what = choice.randint(1, 6)
    if what == 1:
        lanes.pop((session, "p"), None)
        lanes.pop((session, "c"), None)
        return command.encode_close(session)
    if what == 2:
        return command.encode_node_down(choice.randint(1, 3), 0)
    if what == 3:
        boot = choice.choice([1, 1, 1, 2])
        return command.encode_node_down(choice.randint(1, 3), boot)
    return choice.randbytes(choice.randint(0, 40))


def replay(machine: QueueMachine, entries: list[bytes], start: int = 0) -> list[str]:
    """Apply `entries` from position `start`; return all effects as text."""
    told: list[str] = []
    for offset, data in enumerate(entries[start:]):
        told.extend(map(repr, machine.apply(start + offset + 1, data)))
    return told
