"""Archives of queues, as they are told."""

from __future__ import annotations

import msgspec


class ArchiveGroupStatus(msgspec.Struct, frozen=True):
    """A group that reads an archive.

    Attributes:
        epoch: of who opened it last.
        committed: index of the first row that it is not done with.
        committed_ms: Unix time at which it said so, or was opened.
        lag: rows from there on.
    """

    name: str
    epoch: int
    committed: int
    committed_ms: int
    lag: int


class ArchiveStatus(msgspec.Struct, frozen=True):
    """Archive of a queue, as its leader knows it."""

    vhost: str
    queue: str
    group: int  # of the queue
    node: str  # that leads the queue
    mode: int  # of `core.queue.messages.settings`: 0 none, 1 headers, 2 full
    since_ms: int  # when the queue had an archive first, 0 for never
    first_index: int  # of the first row that there is
    next_index: int  # of the next row
    byte_count: int  # of the bodies of the messages that have rows
    first_ms: int  # Unix time at which the first of them was settled, 0 for none
    last_ms: int  # and the last
    groups: list[ArchiveGroupStatus]  # that read it
    address: str = ""  # HOST:PORT of the leader's gRPC listener, "" where that is not known

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.next_index - self.first_index
