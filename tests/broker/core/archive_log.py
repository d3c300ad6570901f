"""Random logs of queues with an archive."""

from __future__ import annotations

import random

from tests.broker.core.lease_log import STAMP, lease_log

from headrace_broker.core.queue.command import archive_command, command, leader_command
from headrace_broker.core.queue.machine.queue_machine import QueueMachine
from headrace_broker.core.queue.messages.settings import decode_settings


def archive_log(seed: int, length: int) -> list[bytes]:
    """Entries as of `lease_log`, with archives and those who read them once it is upgraded."""
    choice = random.Random(seed)
    machine = QueueMachine()  # says what makes sense next
    entries: list[bytes] = []

    def add(encoded: bytes) -> None:
        entries.append(command.stamp_command(len(entries) * 3, encoded))
        machine.apply(len(entries), entries[-1])

    for data in lease_log(seed, length):
        add(_upgraded(choice, data[STAMP:]))
        if machine.version == 4 and choice.random() < 0.2:
            add(_by_a_reader(choice, machine))
    return entries[:length]


def _upgraded(choice: random.Random, encoded: bytes) -> bytes:
    if encoded[:3] != b"\x09\x01\x03":
        return encoded
    settings = decode_settings(encoded[3:])
    assert settings is not None
    settings.archive = choice.choice([0, 1, 2, 2, 2])
    settings.archive_max_messages = choice.choice([1 << 20] * 7 + [40, 3, 0])
    settings.archive_max_bytes = choice.choice([1 << 30] * 5 + [300])
    settings.archive_max_age_ms = choice.choice([-1, -1, -1, 1 << 40, 200, 30])
    return leader_command.encode_configure(4, settings)


def _by_a_reader(choice: random.Random, machine: QueueMachine) -> bytes:
    """Return a command of a group that reads: mostly one that makes sense now."""
    info = machine.archive()
    name = choice.choice([b"r", b"r", b"s"])
    group = next((group for group in info.groups if group.name == name), None)
    kind = choice.choice("oooccccccccccccccx")
    if (group is None and choice.random() < 0.9) or kind == "o":
        return archive_command.encode_open_archive(5, name, b"%d" % choice.randint(1, 14))
    epoch = 1 if group is None else int(group.epoch)
    if kind == "x":
        return archive_command.encode_close_archive(7, name, choice.choice([0, epoch]))
    if choice.random() < 0.1:
        epoch = max(epoch - 1, 1)
    up_to = choice.choice([int(info.first), int(info.following)]) + choice.choice([0, 1, 1, 5, -3])
    up_to = max(up_to, 0)
    return archive_command.encode_commit_archive(6, name, epoch, up_to)
