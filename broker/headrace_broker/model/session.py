"""Sessions: one channel's conversation with one queue.

A session id is one integer below 2**62, so that compiled code keeps it in a machine word:

    node id (10 bits) | boot of that node (20 bits) | number within that boot (32 bits)

The highest bit of the number is set for sessions by which brokers publish dead letters.

Boot counts are larger than that on nodes that lost their data once (they go on from a date, so as
not to repeat what is forgotten); `boot_mark` says what of them a session id holds.
"""

from __future__ import annotations

from typing import Final

BOOT_BITS: Final = 20
NUMBER_BITS: Final = 32
NODE_ID_MAX: Final = (1 << 10) - 1
BOOT_MAX: Final = (1 << BOOT_BITS) - 1
NO_BOOT: Final = BOOT_MAX + 1  # the mark of none: of a node that never comes back
DEATHS_BIT: Final = 1 << (NUMBER_BITS - 1)


def boot_mark(boot: int) -> int:
    """Return what session ids hold of a boot count (from 1): 1 to BOOT_MAX; 0 for 0, not known."""
    return (boot - 1) % BOOT_MAX + 1 if boot > 0 else 0


def session_id(node: int, boot: int, number: int, deaths: bool = False) -> int:
    """Return the id of session `number` (1 to 2**31-1) of boot `boot` of node `node`.

    With `deaths` it is one whose messages' x-death a broker has written.
    """
    mark = DEATHS_BIT if deaths else 0
    return (((node << BOOT_BITS) | boot_mark(boot)) << NUMBER_BITS) | mark | number


def session_node(session: int) -> int:
    """Return the node id (1 to 1023) in a session id."""
    return session >> (BOOT_BITS + NUMBER_BITS)


def session_boot(session: int) -> int:
    """Return the `boot_mark` in a session id."""
    return (session >> NUMBER_BITS) & BOOT_MAX


def tells_deaths(session: int) -> bool:
    """Return whether the x-death of what the session publishes was written by a broker."""
    return session & DEATHS_BIT != 0
