"""Random logs of queues whose messages are leased, and whose publishers number what they send."""

from __future__ import annotations

import random

from tests.broker.core.conftest import random_settings, rich_log

from headrace_broker.core.queue.command import command, leader_command, lease_command
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.messages.settings import decode_settings
from headrace_broker.core.queue.state.lease_effect import GroupInfo
from headrace_broker.model.ranges import Ranges

STAMP = 8


def lease_log(seed: int, length: int) -> list[bytes]:
    """Entries as of `rich_log`, with those of groups among them once the queue is upgraded."""
    choice = random.Random(seed)
    machine = QueueMachine()  # says what makes sense next
    entries: list[bytes] = []

    def add(encoded: bytes) -> None:
        entries.append(command.stamp_command(len(entries) * 3, encoded))
        machine.apply(len(entries), entries[-1])

    for data in rich_log(seed, length):
        add(_upgraded(choice, data[STAMP:]))
        if machine.version >= 3 and choice.random() < 0.5:
            add(_by_a_group(choice, machine))
    return entries[:length]


def _upgraded(choice: random.Random, encoded: bytes) -> bytes:
    if encoded[:2] == b"\x09\x01" and len(encoded) > 2:
        settings = decode_settings(encoded[3:])
        assert settings is not None
        if choice.random() < 0.3:
            settings = random_settings(choice)
        settings.publisher_retention_ms = choice.choice([1 << 40, 1 << 40, 90, 0])
        settings.single_active = choice.random() < 0.1
        return leader_command.encode_configure(choice.choice([3, 4]), settings)
    is_enqueue = encoded[:1] == b"\x01" and len(encoded) > 22
    if is_enqueue and choice.random() < 0.6:
        return _named(choice, encoded)
    return encoded


def _named(choice: random.Random, encoded: bytes) -> bytes:
    """Return an ENQUEUE whose messages have numbers, some of which came before mostly."""
    count = int.from_bytes(encoded[18:22], "big")
    if not 0 < count < 20:
        return encoded
    rows = Ranges()
    number = choice.choice([1, choice.randint(1, 60)])
    for _ in range(count):
        rows.append(number, number + 1)
        number += choice.choice([1, 1, 1, 2, 5])
    session, seq = (int.from_bytes(encoded[at : at + 8], "big") for at in (2, 10))
    return command.encode_enqueue_named(
        session,
        seq,
        encoded[18:],
        choice.choice([b"p", b"q"]),
        choice.choice([1, 1, 1, 2, 3]),
        rows.bounds,
        encoded[1] == 2,
    )


def _by_a_group(choice: random.Random, machine: QueueMachine) -> bytes:
    """Return a command of a group: mostly one that makes sense now."""
    groups = {group.name: group for group in machine.lease_groups()}
    name = choice.choice([b"g", b"g", b"h"])
    if choice.random() < 0.02:
        return lease_command.encode_renew(4, b"stranger", 1, 5)
    group = groups.get(name)
    if group is None or choice.random() < 0.05:
        opener = b"%d" % choice.randint(1, 12)
        return lease_command.encode_open_group(5, name, choice.choice([1, 40, 200]), opener)
    epoch = group.epoch if choice.random() < 0.93 else int(group.epoch) - 1
    kind = choice.choice("llllllsssrgc")
    ttl = choice.choice([10, 40, 200, 900])
    if kind == "l":
        number = _near(choice, int(group.next_number))
        byte_count = choice.choice([1 << 30, 1 << 30, 50])
        most = choice.choice([1, 3, 20])
        return lease_command.encode_lease(6, name, epoch, max(number, 1), most, byte_count, ttl)
    if kind == "s":
        return lease_command.encode_settle_leases(7, name, epoch, _some_lease(choice, group))
    if kind == "r":
        return lease_command.encode_renew(8, name, epoch, ttl)
    if kind == "g":
        first, failed = _some_lease(choice, group), choice.random() < 0.5
        return lease_command.encode_release_leases(9, name, epoch, first, failed)
    return lease_command.encode_close_group(10, name, choice.choice([0, epoch]))


def _near(choice: random.Random, number: int) -> int:
    return number + choice.choice([0] * 12 + [-1, -2, 1])


def _some_lease(choice: random.Random, group: GroupInfo) -> int:
    return choice.randint(int(group.settled), int(group.next_number))
