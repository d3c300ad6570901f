"""What a leader knows of one follower, and how fast it may send to it."""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

PROBE: Final = 0  # the matching index is not known: one APPEND at a time
REPLICATE: Final = 1  # it is: APPENDs are pipelined within the in-flight bounds

STATE_NAMES: Final = ("probe", "replicate")


@final
class Progress:
    """Replication state of one other member, kept by the leader.

    Attributes:
        member: its id.
        state: PROBE or REPLICATE.
        match: highest index known to be durable there and equal to the leader's.
        next_index: first index of the next APPEND, always above `match`.
        probe_sent: PROBE only: an APPEND is out and nothing was heard since.
        recent_active: something was heard since the last check of the quorum.
        commit_sent: highest commit index that a message sent to it can teach it.
        flush: an APPEND is owed even if it is empty, to find out whether some got lost.
        inflight_bytes: entry data in APPENDs that are not acknowledged.

    Source: thesis section 10.2.1 (pipelining); the two states are those of etcd's raft.
    """

    def __init__(
        self, member: i64, next_index: i64, inflight_max: i64, inflight_bytes_max: i64
    ) -> None:
        self.member = member
        self.inflight_max = inflight_max
        self.inflight_bytes_max = inflight_bytes_max
        self.inflight: deque[tuple[int, int]] = deque()  # last index, bytes; oldest first
        self.inflight_bytes: i64 = 0
        self.state: i64 = PROBE
        self.match: i64 = 0
        self.next_index: i64 = next_index
        self.probe_sent = False
        self.recent_active = False
        self.commit_sent: i64 = 0
        self.flush = False

    def reset(self, next_index: i64) -> None:
        """Forget everything: a new term begins."""
        self.match = 0
        self.recent_active = False
        self.commit_sent = 0
        self.become_probe()
        self.next_index = next_index

    def become_probe(self) -> None:
        """Stop pipelining; the next APPEND starts after what is known to match."""
        self._clear_inflight()
        self.state = PROBE
        self.probe_sent = False
        self.flush = False
        self.next_index = self.match + 1
        self.commit_sent = min(self.commit_sent, self.match)

    def become_replicate(self) -> None:
        """Start pipelining after what is known to match."""
        self._clear_inflight()
        self.state = REPLICATE
        self.probe_sent = False
        self.flush = False
        self.next_index = self.match + 1

    def is_full(self) -> bool:
        """Return whether the in-flight bounds forbid another APPEND with entries."""
        return (
            len(self.inflight) >= self.inflight_max
            or self.inflight_bytes >= self.inflight_bytes_max
        )

    def is_out_of_reach(self) -> bool:
        """Return whether nothing was heard since a message to it got lost, or since a probe."""
        return self.state == PROBE and self.probe_sent

    def sent(self, last_index: i64, size: i64) -> None:
        """Account an APPEND whose last entry is `last_index` and holds `size` bytes."""
        if self.state == PROBE:
            self.probe_sent = True
            return
        self.inflight.append((last_index, size))
        self.inflight_bytes += size
        self.next_index = last_index + 1

    def acknowledged(self, index: i64) -> bool:
        """Take a successful answer up to `index`; return whether `match` grew.

        A probe that succeeds ends probing even where it teaches nothing new.
        """
        grew = index > self.match
        if grew:
            self.match = index
            self.next_index = max(self.next_index, index + 1)
        if self.state == PROBE:
            if index >= self.match:
                self.become_replicate()
        else:
            self._free_to(index)
        return grew

    def rejected(self, index: i64, agree_index: i64) -> bool:
        """Take a refusal of the APPEND that followed `index`; return False if it is stale.

        Args:
            index: the index that did not match.
            agree_index: highest index at which the logs may agree.
        """
        if self.state == REPLICATE:
            if index <= self.match:
                return False
            self.become_probe()
            return True
        if index != self.next_index - 1:
            return False
        self.next_index = max(min(index, agree_index + 1), self.match + 1)
        self.probe_sent = False
        return True

    def _free_to(self, index: i64) -> None:
        inflight = self.inflight
        while inflight and inflight[0][0] <= index:
            self.inflight_bytes -= inflight.popleft()[1]

    def _clear_inflight(self) -> None:
        self.inflight.clear()
        self.inflight_bytes = 0
