"""Marks: the newest batch of a disk that its node must still have when it comes back."""

from __future__ import annotations

from typing import NamedTuple


class Mark(NamedTuple):
    """The newest batch that a disk is known to have synced.

    Batches of a node's log are numbered without gaps, and nothing is promised before its batch is
    synced. So the number of the newest synced batch stands for all that was promised on a disk.
    """

    disk: int  # id of the data directory
    boot: int  # boot count under which that was heard
    process: int  # random number of the process that said so, from 1; 0: it was never met
    batch: int  # number of the newest batch known to be synced, 0 for none


Starts = tuple[tuple[int, int], ...]
"""Boot counts of a disk's newest starts, ascending, each with the last batch found then."""


def survived(starts: Starts, boot: int) -> int:
    """Return the last batch of a boot that every later start has found, -1 if none came later."""
    found = [batch for later, batch in starts if later > boot]
    return min(found, default=-1)
