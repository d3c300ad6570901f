"""A queue with its log, and random logs, for the tests of the queue machine."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from headrace_broker.codecs.batch import encode_batch
from headrace_broker.core.queue.command import command, leader_command
from headrace_broker.core.queue.command.command import ACCEPT, SettleItem
from headrace_broker.core.queue.machine.blank_states import _KNOWN, NEW_STATE, blank
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.messages.effect import Acquired, Deliver, Effect, EntryDead
from headrace_broker.core.queue.messages.settings import (
    QueueSettings,
    decode_settings,
    encode_settings,
)
from headrace_broker.core.queue.snapshot.snapshot import write_snapshot
from headrace_broker.model.message import Publish
from headrace_broker.model.session import session_id

ANNA = session_id(1, 1, 1)
BERT = session_id(2, 1, 1)
CARL = session_id(2, 1, 2)
PUBLISHER = session_id(3, 1, 9)

Run = tuple[int, int, list[int]]  # consumer's session and number, message ids in delivery order


@pytest.fixture(autouse=True)
def shared() -> Iterator[None]:
    """Check that the states that queues share were not changed."""
    yield
    for state in (NEW_STATE, *_KNOWN.values()):
        assert write_snapshot(state) == write_snapshot(blank(state.version, state.settings))
        assert (state.tally, state.ready.returned, state.ready.watched) == (None, [], False)


def batch(*bodies: bytes) -> bytes:
    """Encode a batch of messages with these bodies."""
    return encode_batch([Publish(1, b"\x00\x01q", False, False, b"\x00\x00", b) for b in bodies])


class QueueLog:
    """A machine and the entries applied to it."""

    def __init__(self) -> None:
        self.machine = QueueMachine()
        self.entries: list[bytes] = []
        self.now_ms = 1_700_000_000_000
        self.published = 0
        self.seqs: dict[int, int] = {}  # for tests that count the control lanes here

    def apply(self, encoded: bytes) -> list[Effect]:
        """Stamp, log and apply a command; return its effects."""
        self.entries.append(command.stamp_command(self.now_ms, encoded))
        return self.machine.apply(len(self.entries), self.entries[-1])

    def configure(self, version: int = 2, **fields: object) -> list[Effect]:
        """Apply CONFIGURE with these settings, the others as they are."""
        settings = decode_settings(encode_settings(self.machine.settings))
        assert settings is not None
        for name, value in fields.items():
            assert hasattr(settings, name), name
            setattr(settings, name, value)
        return self.apply(leader_command.encode_configure(version, settings))

    def publish(self, *messages: tuple[bytes, bytes]) -> list[Effect]:
        """Enqueue messages (property block, body) of a publisher of its own."""
        first, self.published = self.published + 1, self.published + len(messages)
        return self.apply(command.encode_enqueue(PUBLISHER, first, rich_batch(*messages)))

    def tick(self, after_ms: int = 0) -> list[Effect]:
        """Apply TICK some time later."""
        self.now_ms += after_ms
        return self.apply(leader_command.encode_tick())

    def ids(self) -> list[int]:
        """The ids of available messages in order of their ids."""
        return [message.message_id for message in self.machine.available_from(0, 10**6)]

    def enqueue(self, session: int, seq: int, count: int = 1) -> list[Effect]:
        """Enqueue `count` messages whose bodies have 0, 1, 2, ... bytes."""
        return self.apply(command.encode_enqueue(session, seq, batch(*map(bytes, range(count)))))

    def attach(
        self, session: int, seq: int, consumer: int, prefetch: int, exclusive: bool = False
    ) -> list[Effect]:
        encoded = command.encode_attach(session, seq, consumer, prefetch, exclusive, b"tag")
        return self.apply(encoded)

    def set_prefetch(self, session: int, seq: int, *items: tuple[int, int]) -> list[Effect]:
        """Change the prefetch of consumers (number, prefetch)."""
        return self.apply(command.encode_set_prefetch(session, seq, list(items)))

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


HEADERS = (b"x-delay", b"x-deduplication-header", b"group", b"last", b"tenant")


def properties(
    priority: int = -1, expiration: int = -1, headers: dict[bytes, int] | None = None
) -> bytes:
    """Encode a property block with integer headers."""
    flags = 0
    fields = b""
    if headers is not None:
        flags |= 0x2000
        table = b"".join(
            bytes([len(name)]) + name + b"I" + value.to_bytes(4, "big", signed=True)
            for name, value in headers.items()
        )
        fields += len(table).to_bytes(4, "big") + table
    if priority >= 0:
        flags |= 0x0800
        fields += bytes([priority])
    if expiration >= 0:
        flags |= 0x0100
        text = str(expiration).encode()
        fields += bytes([len(text)]) + text
    return flags.to_bytes(2, "big") + fields


def rich_batch(*messages: tuple[bytes, bytes]) -> bytes:
    """Encode a batch of messages with these property blocks and bodies."""
    return encode_batch(
        [Publish(1, b"\x00\x01q", False, False, block, body) for block, body in messages]
    )


def _random_properties(choice: random.Random) -> bytes:
    headers = {
        name: choice.choice([0, 1, 2, 40])
        for name in HEADERS
        if choice.random() < (0.1 if name == b"x-delay" else 0.4)
    }
    return properties(
        choice.choice([-1, -1, 0, 3, 40]), choice.choice([-1, -1, 0, 5, 80]), headers or None
    )


def random_settings(choice: random.Random) -> QueueSettings:
    """Settings of any kind of queue."""
    settings = QueueSettings()
    settings.message_ttl_ms = choice.choice([-1, -1, 0, 20, 100])
    settings.max_length = choice.choice([-1, -1, 0, 5, 50])
    settings.max_length_bytes = choice.choice([-1, -1, 60, 900])
    settings.overflow = choice.choice([0, 1, 2])
    settings.delivery_limit = choice.choice([-1, 0, 2])
    settings.dead_letter = choice.choice([0, 1, 2])
    settings.single_active = choice.random() < 0.2
    settings.consumer_timeout_ms = choice.choice([-1, 15, 60])
    settings.priority_max = choice.choice([0, 5, 31])
    settings.deduplicate = choice.random() < 0.3
    settings.dedup_count = choice.choice([0, 2, 100])
    settings.dedup_ms = choice.choice([-1, 30])
    settings.retry_type = choice.choice([0, 0, 1, 2, 3])
    settings.retry_min_ms = choice.choice([0, 4])
    settings.retry_max_ms = choice.choice([0, 9])
    kept_apart = choice.choice("  gl")
    settings.high_watermark = choice.choice([0, 3, 12])
    settings.low_watermark = min(choice.choice([0, 1, 8]), int(settings.high_watermark))
    settings.high_watermark_bytes = choice.choice([0, 0, 90, 400])
    settings.low_watermark_bytes = settings.high_watermark_bytes // choice.choice([1, 2])
    settings.group_key = b"group" if kept_apart == "g" else b""
    settings.last_value_key = b"last" if kept_apart == "l" else b""
    settings.fairness_key = choice.choice([b"", b"tenant", b"tenant", b"group"])
    return settings


def rich_log(seed: int, length: int) -> list[bytes]:
    """Entries of a queue that is upgraded somewhere and whose settings change now and then."""
    choice = random.Random(seed)
    upgrade = choice.randrange(length // 2 + 1)
    entries: list[bytes] = []
    for at, data in enumerate(random_log(seed, length)):
        if at >= upgrade:
            if (at - upgrade) % 40 == 0:
                entries.append(leader_command.encode_configure(2, random_settings(choice)))
            entries.extend(_by_the_leader(choice, at))
        entries.append(_enriched(choice, data[8:], length) if at >= upgrade else data[8:])
    del entries[length:]
    return [command.stamp_command(at * 3, data) for at, data in enumerate(entries)]


def _by_the_leader(choice: random.Random, at: int) -> list[bytes]:
    kind = choice.choice("........ttaf")
    if kind == "t":
        return [leader_command.encode_tick()]
    if kind == "a":
        session = session_id(choice.randint(1, 3), 1, choice.randint(1, 2))
        ids = [choice.randint(1, at * 4 + 1) for _ in range(20)]
        return [leader_command.encode_acquire(session, choice.randint(1, 3), ids)]
    if kind == "f":
        return [leader_command.encode_forget(list(range(1, at * 5)))]
    return []


def _enriched(choice: random.Random, entry: bytes, length: int) -> bytes:
    """Return a command with what later versions gave it, if it is of such a kind."""
    if entry[:1] == b"\x01":  # the batch of an ENQUEUE, with properties instead
        count = int.from_bytes(entry[18:22], "big") if len(entry) > 22 else 0
        if not 0 < count < 20:
            return entry
        messages = [
            (_random_properties(choice), bytes(choice.choice([0, 8, 8, 70]))) for _ in range(count)
        ]
        kind = choice.choice([b"\x0e\x01", *[b"\x01\x01"] * 3, *[b"\x01\x02"] * 6])
        return kind + entry[2:18] + rich_batch(*messages)
    if entry[:1] == b"\x03" and len(entry) > 26 and choice.random() < 0.6:
        return entry[:1] + b"\x02" + entry[2:26] + _random_attach(choice, entry[26:])
    if entry[:2] == b"\x06\x01" and choice.random() < 0.5:
        return b"\x06\x02" + entry[2:] + choice.randint(1, length * 4).to_bytes(8, "big")
    if entry[:1] == b"\x07" and choice.random() < 0.8:
        ids = sorted({choice.randint(1, length * 4) for _ in range(9)})
        listed = b"".join(each.to_bytes(8, "big") for each in ids)
        return b"\x0c\x01" + entry[2:] + len(ids).to_bytes(4, "big") + listed
    return entry


def _random_attach(choice: random.Random, rest: bytes) -> bytes:
    """Flags, tag and what an extended ATTACH has behind them."""
    flags = (rest[0] & 1) | (2 if choice.random() < 0.3 else 0)
    priority = choice.choice([0, 0, 5, -2]).to_bytes(4, "big", signed=True)
    data = choice.choice([0, 100]).to_bytes(4, "big")
    return bytes([flags]) + rest[1:] + priority + data + choice.choice([0, 9]).to_bytes(8, "big")


def random_log(seed: int, length: int) -> list[bytes]:
    """Entries of a busy queue: most make sense, some are repeated, early or nonsense."""
    choice = random.Random(seed)
    lanes: dict[tuple[int, str], int] = {}
    entries: list[bytes] = []

    def number(session: int, lane: str, count: int) -> int:
        done = lanes.get((session, lane), 0)
        first = max(1, done + 1 + choice.choice([0] * 12 + [-1, -2, 5]))
        if first <= done + 1:  # else there is a gap, and it is not applied
            lanes[session, lane] = max(done, first + count - 1)
        return first

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


# Messages that take turns

A, B, C = 1, 2, 3  # tenants


def of(tenant: int, body: bytes = b"", **more: int) -> tuple[bytes, bytes]:
    """A message of a tenant."""
    return properties(headers={b"tenant": tenant}, **more), body


NOBODY = (properties(headers={}), b"")


@pytest.fixture
def fair() -> QueueLog:
    """A queue whose tenants take turns."""
    queue = QueueLog()
    queue.configure(fairness_key=b"tenant", priority_max=31)
    return queue


def taken(queue: QueueLog, count: int) -> list[int]:
    """Ids in the order in which a consumer that settles at once gets them, one at a time."""
    got = [m.message_id for m in messages(queue.attach(BERT, 1, 1, 1))]
    for number in range(1, count):
        effects = queue.settle(BERT, number + 1, ACCEPT, (1, number, number))
        got += [m.message_id for m in messages(effects)]
    return got
