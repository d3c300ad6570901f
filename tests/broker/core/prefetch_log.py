"""Random logs of queues of version 5: prefetch that changes, and more priorities."""

from __future__ import annotations

import random

from tests.broker.core.archive_log import archive_log
from tests.broker.core.lease_log import STAMP

from headrace_broker.core.queue.command.command import ATTACH, CANCEL, encode_set_prefetch
from headrace_broker.core.queue.command.leader_command import encode_configure
from headrace_broker.core.queue.machine.versions import PREFETCH_VERSION
from headrace_broker.core.queue.messages.settings import decode_settings

ARCHIVES = b"\x09\x01\x04"  # head of a CONFIGURE of version 4


def prefetch_log(seed: int, length: int) -> list[bytes]:
    """Entries as of `archive_log`; once it is upgraded, some of them change the prefetch."""
    choice = random.Random(seed)
    entries = archive_log(seed, length)
    upgrade = choice.randrange(length // 2 + 1)
    for at in range(upgrade, len(entries)):
        stamp, encoded = entries[at][:STAMP], entries[at][STAMP:]
        if encoded[:3] == ARCHIVES:
            settings = decode_settings(encoded[3:])
            assert settings is not None
            settings.priority_max = choice.choice([0, 5, 31, 39, 255])
            encoded = encode_configure(PREFETCH_VERSION, settings)
        elif encoded[:1] in (bytes([ATTACH]), bytes([CANCEL])) and choice.random() < 0.6:
            encoded = _set_prefetch(choice, encoded)
        entries[at] = stamp + encoded
    return entries


def _set_prefetch(choice: random.Random, encoded: bytes) -> bytes:
    """Return a command of the same session and number."""
    items = [
        (choice.randint(1, 4), choice.choice([1, 2, 3, 7, 50]))
        for _ in range(choice.choice([0, 1, 1, 2, 3]))
    ]
    like = encode_set_prefetch(1, 1, items)
    return like[:2] + encoded[2:18] + like[18:]
