"""Random logs of queues whose consumers have their prefetch changed."""

from __future__ import annotations

import random

from tests.broker.core.archive_log import archive_log
from tests.broker.core.lease_log import STAMP

from headrace_broker.core.queue.command import ATTACH, CANCEL, CONFIGURE, encode_set_prefetch
from headrace_broker.core.queue.queue_machine import PREFETCH_VERSION

ARCHIVES = b"\x09\x01\x04"  # head of a CONFIGURE of version 4


def prefetch_log(seed: int, length: int) -> list[bytes]:
    """Entries as of `archive_log`; once it is upgraded, some of them change the prefetch."""
    choice = random.Random(seed)
    entries = archive_log(seed, length)
    upgrade = choice.randrange(length // 2 + 1)
    for at in range(upgrade, len(entries)):
        stamp, encoded = entries[at][:STAMP], entries[at][STAMP:]
        if encoded[:3] == ARCHIVES:
            encoded = bytes([CONFIGURE, 1, PREFETCH_VERSION]) + encoded[3:]
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
