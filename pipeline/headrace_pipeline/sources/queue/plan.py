"""Which leases are in a batch, and which task reads what of them; values in, values out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from headrace_client.lease_value import HELD, LeaseState


class Part(NamedTuple):
    """Part of a lease that one task reads."""

    lease: int  # its number
    offset: int  # of its messages that come before
    messages: int  # how many


class Room(NamedTuple):
    """Room left in a batch."""

    rows: int  # messages
    byte_count: int  # of their bodies

    @property
    def is_left(self) -> bool:
        """True if there is any."""
        return self.rows > 0 and self.byte_count > 0

    def without(self, messages: int, byte_count: int) -> Room:
        """Return the rest of it."""
        return Room(self.rows - messages, self.byte_count - byte_count)


def admit(leases: Iterable[LeaseState], start: int, room: Room) -> tuple[int, Room]:
    """Take leases that are there already into a batch, whole ones and one at least.

    Those that are gone take no room.

    Args:
        leases: of the group, ascending.
        start: number of the last one that was in a batch before.
        room: of the batch.

    Returns:
        The number of the last lease that is in the batch, and the room that is left; none when
        there are leases for which there is none.
    """
    end = start
    for lease in leases:
        if lease.lease <= start:
            continue
        held = lease.state == HELD
        fits = lease.messages <= room.rows and room.byte_count > 0  # as when it was leased
        if held and not fits and end > start:
            return end, Room(0, 0)
        end = lease.lease
        if held:
            room = room.without(lease.messages, lease.byte_count)
    return end, room


def divide(leases: Sequence[LeaseState], partitions_min: int) -> list[Part]:
    """Cut leases into ranges of about the same number of messages.

    Args:
        leases: that are held.
        partitions_min: as many at least, as long as each has a message.
    """
    total = sum(lease.messages for lease in leases)
    most = max(total // partitions_min, 1) if partitions_min else total
    parts = []
    for lease in leases:
        count = -(-lease.messages // most) if most else 0
        bounds = [lease.messages * each // count for each in range(count + 1)] if count else []
        parts += [Part(lease.lease, first, last - first) for first, last in pairwise(bounds)]
    return parts
