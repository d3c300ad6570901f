"""Commands of sessions that the machine of a queue may be too old for.

The version of a queue's machine is the newest that the nodes of all its replicas know, so a newer
gateway may ask for more than an older member could carry out.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i64_be
from mypy_extensions import i64

from headrace_broker.core.queue.command.command import (
    ENQUEUE,
    NAMED_VERSION,
    SET_PREFETCH,
    encode_settle,
)
from headrace_broker.core.queue.machine.versions import LEASES_VERSION, PREFETCH_VERSION

_SEQ_OFFSET: Final = 10  # of a control command's number, without stamp
_NUMBERED_BYTES: Final = 18  # of the head of a numbered command, without stamp


def may_be_carried_out(data: bytes, version: i64) -> bool:
    """Return whether a machine of that version takes a publisher's numbers, where there are some.

    It does not before all its replicas can: until then publishes wait.
    """
    named = len(data) > 1 and data[0] == ENQUEUE and data[1] == NAMED_VERSION
    return not named or version >= LEASES_VERSION


def as_known(session: i64, data: bytes, version: i64) -> bytes:
    """Return a command, or one that changes nothing in place of one that the machine cannot know.

    That is a SETTLE of nothing with the number of a SET_PREFETCH: the lane goes on, and consumers
    keep the prefetch that they have.
    """
    if version >= PREFETCH_VERSION or len(data) < _NUMBERED_BYTES or data[0] != SET_PREFETCH:
        return data
    return encode_settle(session, read_i64_be(data, _SEQ_OFFSET), [])
